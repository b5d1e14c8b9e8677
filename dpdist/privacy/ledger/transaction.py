"""What may be done in a transaction, on whichever database a ledger or a journal is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement found; the values of a row have the types of the database's columns."""

    @property
    def rowcount(self) -> int:
        """How many rows a statement changed."""

    def fetchone(self) -> Any:
        """The next row, None behind the last one."""

    def fetchall(self) -> list[Any]:
        """All that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """A connection inside a transaction that somebody else begins and ends."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """One statement, with a question mark in the place of each value."""

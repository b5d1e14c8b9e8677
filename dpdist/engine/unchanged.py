"""Whether rows that are read again are those that were read before, by what one process remembers.

A streamed run reads its rows in every round. If somebody writes to the store meanwhile, its releases are about several
versions of the rows, and nobody could say which. So the worker that reads a range keeps a number that stands for its
values, under a key that it draws itself, and compares. Both stay in its memory: a number that tells data from its
neighbours must never be seen, not even by the coordinator. A worker that takes a range over from a lost one reads it
for the first time, as does a run that is resumed: what has changed before that is not noticed.
"""

from __future__ import annotations

import secrets
from typing import Any

from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.kernels.fingerprints import Key, fingerprint


class Unchanged:
    """What was read before, of one shard. A copy that is sent elsewhere, or written to a disk, remembers nothing."""

    def __init__(self) -> None:
        self._key = Key.of(secrets.token_bytes(Key.BYTES))
        self._known: dict[tuple[str, int, int], int] = {}

    def __reduce__(self) -> tuple[type[Unchanged], tuple[()]]:
        return Unchanged, ()

    def check(self, name: str, start: int, stop: int, rows: NDArray[Any], place: str) -> None:
        """Remember these rows (``place`` in words), or raise `DataError` if they are not those that are remembered."""
        self.compare(name, start, stop, fingerprint(rows, self._key), place)

    def number(self, part: NDArray[Any], before: int, more: bool) -> int:
        """What stands for bytes that come in parts (`fingerprint`), to be compared when the last one is there."""
        return fingerprint(part, self._key, before, more)

    def compare(self, name: str, start: int, stop: int, found: int, place: str) -> None:
        """`check` for rows whose number is known."""
        if self._known.setdefault((name, start, stop), found) != found:
            raise DataError(
                f"{place} have changed since this run first read them: something writes to "
                "the store while it is read. What was charged is recorded: restore the rows and run again with the "
                "same run_id to resume, or write the new ones as a dataset of their own"
            )

"""The version of a database's tables: recorded beside them, brought up to date at opening, refused if it is newer.

A program that does not know what newer tables mean could overlook a limit or a charge, so it uses none of them. Older
tables are changed in one transaction that excludes all other writers: of several openers one changes them, and a
change that is interrupted leaves the old version. Nothing here deletes a charge, and no migration may.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dpdist.errors import LedgerError
from dpdist.privacy.ledger.damage import as_written
from dpdist.privacy.ledger.transaction import Transaction

Step = str | Callable[[Any], None]
"""A statement, or a function of the open transaction."""
_CREATED = re.compile(r"\s*CREATE TABLE (\w+)")


@dataclass(frozen=True)
class Schema:
    """The tables of a ledger or of a journal.

    Attributes
    ----------
    part : str
        ``"ledger"`` or ``"journal"``; each has its own version, also where they share a database.
    table : str
        One of the tables of version 1. Where it is there and no version is recorded, the tables are of version 1:
        programs before this one recorded none.
    migrations : tuple of tuples of Step
        Number i leads from version i to version i + 1. The first one makes all tables. Published ones never change.
    """

    part: str
    table: str
    migrations: tuple[tuple[Step, ...], ...]

    @property
    def version(self) -> int:
        """What this program knows."""
        return len(self.migrations)

    @property
    def record(self) -> str:
        """The table that holds the version, one number."""
        return f"dpdist_{self.part}_version"


class Migratable(Protocol):
    """What a migration needs of a database beside its transactions."""

    path: str

    def write(self, work: Callable[[Any], Any]) -> Any:
        """What `work` returns from a transaction that excludes all other writers; it may be called again."""

    def has_table(self, db: Transaction, name: str) -> bool:
        """Whether there is such a table."""

    def define(self, db: Transaction, statement: str) -> None:
        """Execute one statement of a migration, with the types of this database."""

    def let_read(self, db: Transaction, table: str) -> None:
        """Let every account that may use the database read a table."""

    def let_use(self, db: Transaction, table: str, like: str) -> None:
        """Give every account the rights on a new table that it has on one that was there."""


@as_written
def found_version(store: Migratable, db: Transaction, schema: Schema) -> tuple[int, bool]:
    """The version of the tables (0: there are none), and whether it is recorded."""
    if store.has_table(db, schema.record):
        return int(db.execute(f"SELECT version FROM {schema.record}").fetchone()[0]), True
    return int(store.has_table(db, schema.table)), False


def statements_of(schema: Schema) -> list[str]:
    """What makes the tables of a database that has none, to be copied: without what the functions of migrations do.

    They give each database a name of its own, and `bring_up_to_date` calls them for every copy.
    """
    steps = [step for migration in schema.migrations for step in migration if isinstance(step, str)]
    return [
        *steps,
        f"CREATE TABLE {schema.record} (version INTEGER NOT NULL)",
        f"INSERT INTO {schema.record} VALUES (0)",
    ]


def bring_up_to_date(store: Migratable, schema: Schema, copied: bool = False) -> None:
    """Make the tables, or change older ones, once.

    Tables of this program's version stay as they are, so an account without the right to create can use them. Of those
    that were ``copied`` from where `statements_of` made them, the statements are done.
    """

    def change(db: Transaction) -> None:
        version, recorded = found_version(store, db, schema)
        refuse_newer(store.path, schema, version)
        if version == schema.version:
            return
        for migration in schema.migrations[version:]:
            for step in migration:
                if isinstance(step, str) and copied:
                    continue
                if isinstance(step, str):
                    store.define(db, step)
                    if version and (made := _CREATED.match(step)):
                        store.let_use(db, made[1], schema.table)
                else:
                    step(db)
        if not recorded:
            store.define(db, f"CREATE TABLE {schema.record} (version INTEGER NOT NULL)")
            store.let_read(db, schema.record)
            db.execute(f"INSERT INTO {schema.record} VALUES (?)", (schema.version,))
        else:
            db.execute(f"UPDATE {schema.record} SET version = ?", (schema.version,))

    store.write(change)


@as_written
def check_version(path: str, db: Transaction, schema: Schema) -> None:
    """Refuse tables that another program has migrated while this one had them open."""
    refuse_newer(path, schema, int(db.execute(f"SELECT version FROM {schema.record}").fetchone()[0]))


def refuse_newer(path: str, schema: Schema, version: int) -> None:
    """Raise `LedgerError` where this program does not know the version."""
    if version > schema.version:
        raise LedgerError(
            f"the {schema.part} {path} has version {version}, and this dpdist knows versions up to {schema.version}: "
            "upgrade dpdist here (a newer one has used it). Nothing was charged or released"
        )

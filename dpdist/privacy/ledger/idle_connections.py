"""Databases in memory that are empty again, kept for the next one.

Every fit on arrays has a ledger in memory. To make one, to read its schema and to prepare each statement anew takes
longer than all that such a fit writes into it; a connection that has done so before, and whose tables were emptied, has
it behind it. What is kept was emptied first, and is closed if it cannot be: it holds nothing of whoever had it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading

from dpdist.privacy.ledger.migrations import Schema, statements_of

MOST = 4
"""Connections that are kept for each set of tables: as many fits may be under way in one process."""

_IDLE: dict[tuple[Schema, ...], list[sqlite3.Connection]] = {}
_COPYING = threading.Lock()


def take(schemas: tuple[Schema, ...]) -> sqlite3.Connection:
    """A connection to a database with the tables of these schemas (`statements_of`) and nothing in them."""
    with contextlib.suppress(KeyError, IndexError):
        return _IDLE[schemas].pop()
    made = _connected()
    with _COPYING:
        _template(schemas).backup(made)
    return made


def put_back(connection: sqlite3.Connection, schemas: tuple[Schema, ...]) -> None:
    """Empty a database that nobody uses any more and keep it, or close it."""
    waiting = _IDLE.setdefault(schemas, [])
    if connection.in_transaction or len(waiting) >= MOST:
        connection.close()
        return
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in _emptying(schemas):
            connection.execute(statement)
    except sqlite3.Error:
        connection.close()
    else:
        waiting.append(connection)


def _connected() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


@functools.cache
def _template(schemas: tuple[Schema, ...]) -> sqlite3.Connection:
    made = _connected()
    for schema in schemas:
        for statement in statements_of(schema):
            made.execute(statement)
    return made


@functools.cache
def _emptying(schemas: tuple[Schema, ...]) -> tuple[str, ...]:
    """What makes a database as its template is: no rows, and tables of no version yet."""
    made = _template(schemas)
    names = [str(name) for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    versions = {schema.record for schema in schemas}
    rows = [f"DELETE FROM {name}" for name in names if name not in versions]
    return ("BEGIN", *rows, *(f"UPDATE {record} SET version = 0" for record in sorted(versions)), "COMMIT")


if hasattr(os, "register_at_fork"):  # a connection stays in the process that made it
    os.register_at_fork(after_in_child=_IDLE.clear)

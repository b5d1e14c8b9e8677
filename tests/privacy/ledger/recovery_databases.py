"""Databases that are copied, and taken back to a copy, perhaps while a process uses them."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import psycopg

from tests.postgres import PostgresServer


class Databases:
    """The database of a ledger, on a real server, and copies of it."""

    def __init__(self, server: PostgresServer) -> None:
        self.address = server.address.replace("/postgres", "/world")
        self._server = server.address
        self._copies: list[str] = []
        self.restore(None)

    def copy(self) -> str:
        self._copies.append(f"copy{len(self._copies)}")
        self._make(self._copies[-1], "world")
        return self._copies[-1]

    def restore(self, source: str | None) -> None:
        self._make("world", source or "template0")

    def close(self) -> None:
        for name in ("world", *self._copies):
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _make(self, name: str, source: str) -> None:
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for _ in range(100):  # a connection that was closed can still be there for a moment
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                return self._execute(f"CREATE DATABASE {name} TEMPLATE {source}")
            time.sleep(0.05)
        raise AssertionError(f"{source} stays in use")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]


def take_back(path: Path, content: bytes) -> None:
    """Make a database that is in use what it was."""
    with contextlib.closing(sqlite3.connect(path)) as target:
        path = path.with_name(f"{path.name}.then")
        path.write_bytes(content)
        with contextlib.closing(sqlite3.connect(path)) as source:
            source.backup(target)
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)

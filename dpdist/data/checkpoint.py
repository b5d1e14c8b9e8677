"""What an unfinished ingestion has to remember, in one SQLite file beside the output.

It holds what was asked for, how far the source was read, the rows that are in no chunk yet, and those that were put
aside until all rows of their owners are known. All of that changes in one transaction, so after a crash it is as it was
at one moment. The file is private (it holds rows and names owners) and is deleted when the ingestion ends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpdist.errors import DataError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS aside (bucket INTEGER NOT NULL, rows BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS aside_by_bucket ON aside (bucket)",
)
_CACHE = -4 * 1024  # KiB


class Checkpoint:
    """The file of one ingestion, locked while it is open.

    Raises
    ------
    DataError
        From every method: another process has the file, or it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
            # Exclusive before anything is read: the lock is kept until the file is closed, or the process dies.
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", f"cache_size={_CACHE}"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.execute("BEGIN EXCLUSIVE")
            for table in _TABLES:
                self._db.execute(table)
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: sqlite3.Error) -> DataError:
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DataError(f"another process is ingesting to the same place (it holds {self.path}); let it finish")
        return DataError(
            f"cannot keep {self.path}, where an ingestion remembers how far it is ({error}); check that the directory "
            "can be written and has room, then run the same command again. If the file is damaged, delete it and the "
            "unfinished output"
        )

    def read(self) -> dict[str, Any]:
        """What the last `commit` wrote: plain JSON under "request" and "progress", bytes under "carry/..."."""
        try:
            stored = dict(self._db.execute("SELECT key, value FROM state"))
        except sqlite3.Error as error:
            raise self._failed(error) from None
        return {key: value if key.startswith("carry/") else json.loads(value) for key, value in stored.items()}

    def commit(self, values: Mapping[str, Any]) -> None:
        """Make values, and the rows that were put aside so far, durable together."""
        rows = [(key, value if isinstance(value, bytes) else json.dumps(value)) for key, value in values.items()]
        try:
            self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", rows)
            self._db.execute("COMMIT")
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def clear(self) -> None:
        """Forget everything."""
        try:
            self._db.execute("DELETE FROM state")
            self._db.execute("DELETE FROM aside")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def put_aside(self, bucket: int, rows: bytes) -> None:
        """Keep some rows of a bucket (`dpdist.data.owners`)."""
        try:
            self._db.execute("INSERT INTO aside VALUES (?, ?)", [bucket, rows])
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def aside(self, bucket: int) -> Iterator[bytes]:
        """What was put aside in a bucket, in order."""
        try:
            for (rows,) in self._db.execute("SELECT rows FROM aside WHERE bucket = ? ORDER BY rowid", [bucket]):
                yield rows
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def delete(self) -> None:
        """Delete the file."""
        try:
            self._db.execute("ROLLBACK")
            self._db.execute("PRAGMA journal_mode=DELETE")  # leaves one file, and a blank journal until it is closed
        except sqlite3.Error as error:
            raise self._failed(error) from None
        # Unlinked before the lock is gone, so that nobody can take up a file that is about to go, and last.
        self.path.with_name(self.path.name + "-journal").unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Give back the lock; what was not committed is forgotten."""
        self._db.close()

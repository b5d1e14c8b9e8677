"""What an unfinished ingestion has to remember, in one SQLite file beside the output.

It holds what was asked for, how far the source was read, the rows that are in no chunk yet, and how many rows of each
privacy unit were kept. All of that changes in one transaction, so after a crash it is as it was at one moment. The file
is private (it names units) and is deleted when the ingestion ends.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpdist.errors import DataError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS units (unit TEXT PRIMARY KEY, kept INTEGER NOT NULL) WITHOUT ROWID",
)
_CACHE = -64 * 1024  # KiB


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
        """Make values, and the counts of units so far, durable together."""
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
            self._db.execute("DELETE FROM units")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def keep(self, units: pa.Array, candidates: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
        """Which candidates are among the first ``most`` of their unit; rows without a unit (null) are all kept."""
        encoded = units.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        rows = np.flatnonzero(candidates & (codes >= 0))
        kept = candidates.copy()
        if not len(rows):
            return kept
        present, codes = np.unique(codes[rows], return_inverse=True)
        names = encoded.dictionary.take(pa.array(present))
        before = self._kept(names)
        kept[rows] = before[codes] + _ranks(codes) < most
        self._add(names, np.minimum(before + np.bincount(codes), most) - before)
        return kept

    def _kept(self, names: pa.Array) -> NDArray[np.int64]:
        """How many rows of each unit were kept before."""
        kept = np.zeros(len(names), np.int64)
        order = np.asarray(pc.array_sort_indices(names))  # so that the tree is walked once, from left to right
        try:
            # One JSON text instead of a statement for each name is four times as fast.
            found = self._db.execute(
                "SELECT key, kept FROM json_each(?) JOIN units ON unit = value",
                [json.dumps(names.take(pa.array(order)).to_pylist())],
            ).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None
        if found:
            places, counts = np.array(found, np.int64).T
            kept[order[places]] = counts
        return kept

    def _add(self, names: pa.Array, counts: NDArray[np.int64]) -> None:
        try:
            for count in np.unique(counts[counts > 0]):
                some = names.filter(pa.array(counts == count))
                some = some.take(pc.array_sort_indices(some)).to_pylist()
                self._db.execute(
                    "INSERT INTO units SELECT value, ?2 FROM json_each(?1) WHERE true "
                    "ON CONFLICT (unit) DO UPDATE SET kept = kept + excluded.kept",
                    [json.dumps(some), int(count)],
                )
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def delete(self) -> None:
        """Delete the file."""
        try:
            self._db.execute("ROLLBACK")
            self._db.execute("PRAGMA journal_mode=DELETE")  # leaves one file
        except sqlite3.Error as error:
            raise self._failed(error) from None
        # Unlinked before the lock is gone, so that nobody can take up a file that is about to go.
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Give back the lock; what was not committed is forgotten."""
        self._db.close()


def _ranks(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal codes stand before each.

    >>> _ranks(np.array([2, 1, 2, 2, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]])
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - starts[codes[order]]
    return ranks

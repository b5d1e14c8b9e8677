"""Released values, stored before anyone uses them, and one writer per run.

A release that was charged may be drawn again only if nobody can have seen the first draw. Two facts make that true:
a value is committed here before it leaves the coordinator, and of two coordinators that think they own a run only the
newest can commit. So a release id has one value for ever, and a resumed run gets the values its first life released.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dpdist.errors import Fenced, Forgotten, LedgerError
from dpdist.privacy.ledger.damage import as_written
from dpdist.privacy.ledger.heads import Head, Witness
from dpdist.privacy.ledger.migrations import Schema
from dpdist.privacy.ledger.sqlite import Store, open_store, utc_now
from dpdist.privacy.ledger.transaction import Transaction
from dpdist.privacy.tracebacks import forgetful

_VERSION_1 = (
    "CREATE TABLE dpdist_epochs (run_id TEXT PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL)",
    """CREATE TABLE dpdist_values (
        release_id TEXT PRIMARY KEY NOT NULL, run_id TEXT NOT NULL, epoch INTEGER NOT NULL,
        dtype TEXT NOT NULL, shape TEXT NOT NULL, bytes BLOB NOT NULL, stored_at TEXT NOT NULL)""",
)


def _identify(db: Transaction) -> None:
    db.execute("INSERT INTO dpdist_journal (id) VALUES (?)", (secrets.token_hex(16),))


_VERSION_2 = (
    "CREATE TABLE dpdist_journal (id TEXT PRIMARY KEY NOT NULL)",
    # The newest head that it was told of every ledger that it keeps values for.
    """CREATE TABLE dpdist_remembered (
        ledger TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL, token TEXT NOT NULL)""",
    "CREATE INDEX dpdist_values_by_run ON dpdist_values (run_id)",
    "ALTER TABLE dpdist_epochs ADD COLUMN receipt TEXT",  # what the ledger charged, as JSON
    _identify,
)
SCHEMA = Schema("journal", "dpdist_epochs", (_VERSION_1, _VERSION_2))
VALUES_TABLE = "dpdist_values"
TABLES = ("dpdist_journal", "dpdist_remembered", "dpdist_epochs", VALUES_TABLE)
_ID = "SELECT id FROM dpdist_journal"
_REMEMBERED = "SELECT ledger, number, token FROM dpdist_remembered WHERE ledger = ?"
_OTHER = "SELECT ledger, number, token FROM dpdist_remembered WHERE ledger <> ? LIMIT 1"
_REMEMBER = """INSERT INTO dpdist_remembered (ledger, number, token) VALUES (?, ?, ?)
    ON CONFLICT (ledger) DO UPDATE SET number = excluded.number, token = excluded.token
    WHERE excluded.number > dpdist_remembered.number"""
_HOLDS = "SELECT 1 FROM dpdist_values WHERE run_id = ? LIMIT 1"
_EPOCH = "SELECT epoch FROM dpdist_epochs WHERE run_id = ?"
FIRST_EPOCH = "INSERT INTO dpdist_epochs (run_id, epoch) VALUES (?, 1)"
_RECEIPT = "UPDATE dpdist_epochs SET receipt = ? WHERE run_id = ?"
_RUNS = """SELECT run_id, receipt FROM dpdist_epochs AS epochs
    WHERE receipt IS NOT NULL OR EXISTS (SELECT 1 FROM dpdist_values AS kept WHERE kept.run_id = epochs.run_id)
    ORDER BY run_id"""
_NEXT_EPOCH = "UPDATE dpdist_epochs SET epoch = epoch + 1 WHERE run_id = ?"
_VALUE = "SELECT run_id, dtype, shape, bytes FROM dpdist_values WHERE release_id = ?"
_ADD_VALUE = "INSERT INTO dpdist_values VALUES (?, ?, ?, ?, ?, ?, ?)"

_DTYPES = {np.dtype(np.float64): "<f8", np.dtype(np.int64): "<i8"}


class ReleasedValues(Protocol):
    """One writer's view of one run."""

    run_id: str

    def check(self) -> None:
        """Raise `Fenced` if another opener has taken the run over."""

    def get(self, release_id: str) -> np.ndarray | None:
        """The stored value, if there is one."""

    def put(self, release_id: str, value: np.ndarray) -> np.ndarray:
        """Store a value once, and return the one that counts."""

    def close(self) -> None:
        """Give up writing."""


class AnyJournal(Witness, Protocol):
    """Where released values are kept: `Journal`, or `dpdist.privacy.ledger.object_journal.ObjectJournal`."""

    path: str

    @property
    def id(self) -> str:
        """Its random name, made with it: the ledger writes down which journal keeps the values of a run."""

    def other(self, ledger: str) -> Head | None:
        """A head of another ledger than this one, if it was told of any."""

    def charged(self) -> dict[str, dict[str, Any] | None]:
        """The runs that it keeps something of, with what was charged for each; None: it was not told."""

    def knows(self, run_id: str) -> bool:
        """Whether the run was ever opened in it."""

    def holds(self, run_id: str) -> bool:
        """Whether it has a value of the run."""

    def open(self, run_id: str) -> ReleasedValues:
        """Take a run over."""

    def close(self) -> None:
        """Let go of it."""


class Journal:
    """The released values of any number of runs in one database, which may be the ledger's.

    Parameters
    ----------
    path : path-like
        A file, created with its directories, on a local disk; the address of a PostgreSQL database
        (`dpdist.privacy.ledger.postgres`); or ``":memory:"``.
    store : Store, optional
        The same database, where it is open already.

    Examples
    --------
    >>> journal = Journal(":memory:")
    >>> run = journal.open("monday")
    >>> run.put("monday/0", np.array([1.5, -2.0]))
    array([ 1.5, -2. ])
    >>> again = journal.open("monday")
    >>> again.put("monday/0", np.array([7.0, 7.0]))  # the first value stays
    array([ 1.5, -2. ])
    >>> run.check()
    Traceback (most recent call last):
    dpdist.errors.Fenced: run 'monday' was taken over by a newer process (epoch 2, this one has 1): stop this one
    """

    def __init__(self, path: str | os.PathLike[str], store: Store | None = None) -> None:
        self.path = os.fspath(path)
        if store is None:
            store = open_store(self.path, SCHEMA)
        else:
            store.keep(SCHEMA)
        self._db = store

    @functools.cached_property
    def id(self) -> str:
        """Its random name, made with it: the ledger writes down which journal keeps the values of a run."""
        return self._db.read(lambda db: str(db.execute(_ID).fetchone()[0]))

    def remembered(self, ledger: str) -> Head | None:
        """Return the newest head that it was told of a ledger."""
        row = self._db.read(lambda db: db.execute(_REMEMBERED, (ledger,)).fetchone())
        return None if row is None else Head(*row)

    def other(self, ledger: str) -> Head | None:
        """Return a head of another ledger than this one, if it was told of any."""
        row = self._db.read(lambda db: db.execute(_OTHER, (ledger,)).fetchone())
        return None if row is None else Head(*row)

    def remember(self, head: Head, receipt: Mapping[str, Any] | None = None) -> None:
        """Keep a head, unless a newer one of that ledger is known; and what was charged for a run."""

        def keep(db: Transaction) -> None:
            db.execute(_REMEMBER, (head.ledger, head.number, head.token))
            if receipt is not None:
                db.execute(_RECEIPT, (json.dumps(receipt), receipt["run_id"]))

        self._db.write(keep)

    def charged(self) -> dict[str, dict[str, Any] | None]:
        """Return the runs that it keeps something of, with what was charged for each; None: it was not told."""
        return self._db.read(
            lambda db: {run_id: receipt and json.loads(receipt) for run_id, receipt in db.execute(_RUNS).fetchall()}
        )

    @property
    def called(self) -> str:
        """For messages."""
        return f"the journal {self.path}"

    def knows(self, run_id: str) -> bool:
        """Whether the run was ever opened in it."""
        return self._db.read(lambda db: db.execute(_EPOCH, (run_id,)).fetchone() is not None)

    def holds(self, run_id: str) -> bool:
        """Whether it has a value of the run."""
        return self._db.read(lambda db: db.execute(_HOLDS, (run_id,)).fetchone() is not None)

    def is_in(self, store: Store) -> bool:
        """Whether it writes by this very connection, so that others can be written with it as one."""
        return self._db is store

    def open(self, run_id: str) -> RunJournal:
        """Take the run over: from now on every earlier opener of it is fenced off."""

        def next_epoch(db: Transaction) -> int:  # repeated, it leaves out a number that nobody has
            if not db.execute(_NEXT_EPOCH, (run_id,)).rowcount:
                db.execute(FIRST_EPOCH, (run_id,))
            return int(db.execute(_EPOCH, (run_id,)).fetchone()[0])

        return RunJournal(self._db, run_id, self._db.write(next_epoch))

    def close(self) -> None:
        """Close the file; the runs opened from this object can no longer be used."""
        self._db.close()


class RunJournal:
    """One writer's view of one run; made by `Journal.open`. ``epoch`` counts the openers of the run."""

    def __init__(self, db: Store, run_id: str, epoch: int) -> None:
        self._db = db
        self.run_id = run_id
        self.epoch = epoch
        self._closed = False

    def close(self) -> None:
        """Give up writing this run; the journal's file stays open for its other runs."""
        self._closed = True

    def check(self) -> None:
        """Raise `Fenced` if another opener has taken the run over; call it before noise is drawn."""
        self._db.read(self._check)

    def get(self, release_id: str) -> np.ndarray | None:
        """Return the stored value, None if the release has not been stored."""
        return self._db.read(lambda db: self._read(db, release_id))

    @forgetful
    def put(self, release_id: str, value: np.ndarray) -> np.ndarray:
        """Store a value and return the one that counts; only what is returned may be used.

        If the release has a value already, that one is returned and `value` is forgotten. The value is on the disk when
        this returns; dtype, shape and every bit are kept.

        Raises
        ------
        Fenced
            If another opener has taken the run over; nothing is stored.
        LedgerError
            If the value is not a float64 or int64 array, the id belongs to another run, or the file cannot be written.
        """
        return self._db.write(lambda db: self.put_within(db, release_id, value))

    def put_within(self, db: Transaction, release_id: str, value: np.ndarray) -> np.ndarray:
        """The same, as a part of a transaction of the same database (`is_in`)."""
        dtype, shape, data = encoded(value)

        # The check and the insert are one transaction: nobody can take the run over in between.
        self._check(db)
        stored = self._read(db, release_id)
        if stored is not None:
            return stored
        db.execute(_ADD_VALUE, (release_id, self.run_id, self.epoch, dtype, shape, data, utc_now()))
        return decoded(dtype, shape, data)

    def is_in(self, store: Store) -> bool:
        """Whether it writes by this very connection, so that others can be written with it as one."""
        return self._db is store

    def _check(self, db: Transaction) -> None:
        if self._closed:
            raise LedgerError(f"run {self.run_id!r} was closed here: open it again to go on")
        row = db.execute(_EPOCH, (self.run_id,)).fetchone()
        if row is None:
            raise Forgotten(
                f"the journal has forgotten the run {self.run_id!r}, which is open: it was emptied or restored from a "
                "copy meanwhile. Restore its newest state. Nothing was drawn"
            )
        epoch = row[0]
        if epoch != self.epoch:
            raise Fenced(
                f"run {self.run_id!r} was taken over by a newer process (epoch {epoch}, this one has {self.epoch}): "
                "stop this one"
            )

    def _read(self, db: Transaction, release_id: str) -> np.ndarray | None:
        row: Sequence[Any] | None = db.execute(_VALUE, (release_id,)).fetchone()
        if row is None:
            return None
        if row[0] != self.run_id:
            raise LedgerError(f"release id {release_id!r} belongs to run {row[0]!r}; use ids that contain the run id")
        return decoded(*row[1:])


def encoded(value: np.ndarray) -> tuple[str, str, bytes]:
    """A released value as dtype, shape and bytes."""
    array = np.asarray(value)
    dtype = _DTYPES.get(array.dtype)
    if dtype is None:
        raise LedgerError(f"a released value must be a float64 or int64 array, got dtype {array.dtype}; convert it")
    return dtype, json.dumps(array.shape), array.astype(dtype, copy=False).tobytes()


@as_written
def decoded(dtype: str, shape: str, data: bytes) -> np.ndarray:
    """The released value, bit for bit."""
    return np.frombuffer(data, dtype).reshape(json.loads(shape)).astype(np.dtype(dtype).newbyteorder("="))

"""One SQLite file that keeps what it was told: durable transactions, safe for threads, errors that say what to do.

The ledger and the journal both rest on this helper. A transaction that returned is on the disk (write-ahead log,
``synchronous=EXTRA``, full fsync where the system has one); a transaction that did not return left nothing behind, or
can be repeated, because every statement the two send is idempotent.

The file must be on a local disk: SQLite's locks are not reliable on network file systems.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from dpdist.errors import LedgerError, LedgerUnavailable
from dpdist.privacy.ledger import idle_connections
from dpdist.privacy.ledger.migrations import Migratable, Schema, bring_up_to_date, check_version
from dpdist.privacy.ledger.postgres import PostgresDatabase, is_address
from dpdist.privacy.ledger.transaction import Transaction

Result = TypeVar("Result")

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another process that is writing."""
_ASK_AGAIN = 0.0005
"""Seconds between two attempts meanwhile: SQLite's own grow to a tenth of a second, in which a hundred could write."""

_CLOSED = sqlite3.connect(":memory:", check_same_thread=False)
_CLOSED.close()

MEMORY = ":memory:"
"""Path of a database that lives as long as its object: for data in memory and for tests."""

_MOUNTS = "/proc/self/mountinfo"
"""Where Linux lists what is mounted; the fifth word is where, with blanks and backslashes in octal."""
_DAMAGED = "it is damaged: restore a backup; do not delete it, that would forget what was spent"
_CHECKED_TABLES = """SELECT name FROM sqlite_master
    WHERE type = 'table' AND name LIKE 'dpdist!_%' ESCAPE '!' AND name != 'dpdist_values'"""
LEDGER_OR_JOURNAL = "a file or postgresql://USER@HOST/DATABASE (for a journal also s3://BUCKET/PREFIX)"
"""What a ledger or a journal can be, for messages."""

_FIXES = {
    sqlite3.SQLITE_ERROR: "its tables are not as dpdist made them: restore a backup; do not delete it",
    sqlite3.SQLITE_READONLY: "it is read-only: give this account the right to write the file and its directory",
    sqlite3.SQLITE_PERM: "access was refused: give this account the right to write the file and its directory",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or created: name a file in a directory this account may write",
    sqlite3.SQLITE_BUSY: "another process kept it locked for too long: find the process that holds it, or try again",
    sqlite3.SQLITE_FULL: "the disk (or the quota) is full: make room and start the same run again",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: "it is not an SQLite file, or damaged: name another file or restore a backup",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write, or is full: check it, make room, then start the same run "
    "again",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite stores (about 1 GB): release it in several pieces",
}


_FAILURES = (sqlite3.Error, UnicodeError, OverflowError)
"""What SQLite raises; not its own where it quotes the damaged name of a table, which Python reads as text, and where it
is given what it cannot keep: half a character, a number of more than 64 bits."""


def utc_now() -> str:
    """The time in UTC as ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def check_is_file_name(path: str, expected: str) -> None:
    """Refuse an address of what nothing is kept in: as a file it would be one below a directory called ``s3:``."""
    if not path:
        raise LedgerError(f'expected {expected}, got "", which is no name')
    kind, separator, _ = path.partition("://")
    if separator:  # the address may carry a password
        raise LedgerError(f"expected {expected}, got an address that begins with {kind + separator!r}")


class Store(Migratable, Protocol):
    """What a ledger or a journal needs of a database."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """What `work` finds in a transaction that sees one state and changes nothing."""

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """What `work` returns from a transaction that excludes all other writers; durable then.

        A database that was lost in between calls `work` again, also where the first call took place (the answer to its
        COMMIT was lost). So `work` decides by what it reads, and changes nothing but the database.
        """

    def keep(self, schema: Schema) -> None:
        """Make or migrate more tables, and refuse to write once a newer program has changed them."""

    def close(self) -> None:
        """Let go of it."""


def open_store(path: str, schema: Schema | None, *beside: Schema) -> Store:
    """An SQLite file, or a PostgreSQL database where ``path`` is the address of one; None takes it as it is.

    Of one in memory, the tables that will stand ``beside`` its own are made with these.
    """
    return PostgresDatabase(path, schema) if is_address(path) else Database(path, schema, *beside)


class Database:
    """A connection to one SQLite file, shared by the threads of one process.

    Parameters
    ----------
    path : str
        A file (created with its directories) or ``":memory:"``.
    schema : Schema or None
        The tables, made or migrated at opening; None for those that are there, whatever they are.
    *beside : Schema
        More of them, where it is in memory.

    Raises
    ------
    LedgerError
        From every method, when the file cannot be read or written durably; when its tables are newer than `schema`.
    """

    def __init__(self, path: str, schema: Schema | None, *beside: Schema) -> None:
        if not path:
            raise LedgerError('a ledger or journal needs a file name, got ""; use ":memory:" for one that is not kept')
        check_is_file_name(path, LEDGER_OR_JOURNAL)
        self.path = path
        self._file = path if path == MEMORY else located(path)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._inodes: dict[str, tuple[int, int] | None] = {}
        self._schemas: tuple[Schema, ...] = ()
        if path == MEMORY:
            self._begin_in_memory(beside if schema is None else (schema, *beside))
        else:
            self._open(path, schema)

    def _begin_in_memory(self, schemas: tuple[Schema, ...]) -> None:
        self._schemas = self._begun_with = schemas
        self._connection = idle_connections.take(schemas)
        self._connection.execute("PRAGMA foreign_keys = ON")
        for schema in schemas:
            bring_up_to_date(self, schema, copied=True)

    def _open(self, path: str, schema: Schema | None) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(
                f"the directory of {path} cannot be created ({error.strerror}): name a directory this account may write"
            ) from error
        refuse_left_log(path)
        with contextlib.suppress(OSError):  # explained by the opening, or there is no file yet
            refuse_other_names(path)
        refuse_mounted(path)
        try:
            # Autocommit mode: transactions are begun and ended by this class only. The lock makes sharing safe.
            self._connection = sqlite3.connect(path, BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
            if schema is not None:
                self._refuse_others()
                self._check_pages()
            self._configure()
            self._inodes[self._file] = _inode(self._file)
        except _FAILURES as error:
            raise self._explained(error) from error
        try:
            if schema is not None:
                self.keep(schema)
            if inode := _inode(log := log_of(self._file)):
                self._inodes[log] = inode
        except LedgerError:
            self.close()
            raise

    def keep(self, schema: Schema) -> None:
        """Make or migrate more tables, and refuse to write once a newer program has changed them."""
        if schema not in self._schemas:
            bring_up_to_date(self, schema)
            self._schemas = (*self._schemas, schema)

    def _check_pages(self) -> None:
        """Refuse tables of which a page was damaged: SQLite itself would find fewer rows and say nothing.

        About 4 us a run on file. Not those of released values: they may be large, and each is checked when it is read.
        """
        names = [str(name) for (name,) in self._connection.execute(_CHECKED_TABLES)]
        found = [self._connection.execute(f"PRAGMA integrity_check('{name}')").fetchone()[0] for name in names]
        if unsound := [text for text in found if text != "ok"]:
            self._connection.close()
            raise LedgerError(f"{self.path} cannot be used ({unsound[0]}): {_DAMAGED}. Nothing may be released")

    def _refuse_others(self) -> None:
        """The database of another program is not written to: not even its mode is changed."""
        found = [
            (str(kind), str(name)) for kind, name in self._connection.execute("SELECT type, name FROM sqlite_master")
        ]
        names = {name for _, name in found}
        views = [name for kind, name in found if kind == "view" and name.lower().startswith("dpdist_")]  # in our places
        if strange := [name for kind, name in found if kind == "trigger"] + views:
            self._connection.close()
            raise LedgerError(
                f"{self.path} has {strange[0]!r}, a trigger or a view that dpdist did not make, and it could change "
                "what is charged: restore a backup from before somebody made it. Nothing was charged"
            )
        if names and not any(name.startswith("dpdist_") for name in names):
            self._connection.close()
            raise LedgerError(f"{self.path} is the database of another program: name another file. Nothing was charged")

    def _configure(self) -> None:
        # Switching a new file to the write-ahead log does not wait for others that do the same.
        self._insist("PRAGMA journal_mode = WAL")
        # EXTRA equals FULL with the log and is stronger where the file system has no log; the last two are for macOS.
        for pragma in ("synchronous = EXTRA", "foreign_keys = ON", "fullfsync = ON", "checkpoint_fullfsync = ON"):
            self._connection.execute(f"PRAGMA {pragma}")

    def _insist(self, statement: str) -> None:
        """Execute a statement that is refused while another process writes."""
        if self.path == MEMORY:  # which no other process has
            self._connection.execute(statement)
            return
        give_up = time.monotonic() + BUSY_TIMEOUT
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    self._connection.execute(statement)
                    return
                except sqlite3.OperationalError as error:
                    if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                        raise
                    time.sleep(_ASK_AGAIN)
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_TIMEOUT)}")

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `work` finds, given a transaction that sees one state of the file and changes nothing."""
        with self._transaction("" if self.path == MEMORY else "BEGIN") as db:  # of one connection, the lock is enough
            return work(db)

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Let `work` change the file, given a transaction that excludes all other writers; durable when it returns."""
        shared = () if self.path == MEMORY else self._schemas  # nobody else can migrate one in memory
        with self._transaction("BEGIN IMMEDIATE", shared) as db:
            return work(db)

    @contextlib.contextmanager
    def _transaction(self, begin: str, schemas: Sequence[Schema] = ()) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._check_file()
            try:
                if begin:
                    self._insist(begin)
                try:
                    for schema in schemas:
                        check_version(self.path, self._connection, schema)
                    yield self._connection
                    if begin:
                        self._connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        if self._connection.in_transaction:
                            self._connection.execute("ROLLBACK")
                    raise
            except _FAILURES as error:
                raise self._explained(error) from error

    def _check_file(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened by the parent process: open it again in this process")
        # A file that was deleted while open can still be written, but nobody will ever read those charges again. The
        # write-ahead log has what was written last, and stays where it is for as long as somebody has it open.
        for file, inode in self._inodes.items():
            if inode is None or _inode(file) != inode:
                raise LedgerError(
                    f"{file} was deleted or replaced while it was open: "
                    "put the original back before anything is released"
                )
        if self._inodes:
            with contextlib.suppress(OSError):  # it is there, as seen above
                refuse_other_names(self._file)

    def _explained(self, error: Exception) -> LedgerError:
        code = _primary_code(error)
        if code == sqlite3.SQLITE_CANTOPEN and os.path.isfile(self.path):  # its log cannot be made
            code = sqlite3.SQLITE_READONLY
        fix = _FIXES.get(code, "see the message before this one, then start the same run again")
        kind = LedgerUnavailable if code == sqlite3.SQLITE_BUSY else LedgerError
        return kind(
            f"{self.path} cannot be used ({error}): {fix}. Nothing may be released; "
            "repeating the call with the same run id never charges twice."
        )

    def has_table(self, db: Transaction, name: str) -> bool:
        """Whether there is such a table."""
        return (
            db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone() is not None
        )

    def define(self, db: Transaction, statement: str) -> None:
        """Execute one statement of a migration."""
        db.execute(statement)

    def let_read(self, db: Transaction, table: str) -> None:
        """Who may read the file may read its tables."""

    def let_use(self, db: Transaction, table: str, like: str) -> None:
        """Who may write the file may write its tables."""

    def close(self) -> None:
        """Close the file; later calls raise `LedgerError`."""
        with self._lock:
            if self.path == MEMORY and self._connection is not _CLOSED:
                used, self._connection = self._connection, _CLOSED
                if self._pid == os.getpid() and self._schemas == self._begun_with:
                    idle_connections.put_back(used, self._schemas)
            self._connection.close()


def located(path: str) -> str:
    """The name of a file wherever the process goes; ``..`` stays: it may lead out of what a symbolic link leads to."""
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except OSError as error:
        raise LedgerError(f"{path} cannot be found from here ({error.strerror}): name it in full, from /") from None


def log_of(path: str) -> str:
    """The write-ahead log of a file: beside it, not beside a symbolic link to it."""
    return f"{os.path.realpath(path)}-wal"


def refuse_left_log(path: str) -> None:
    """Raise `LedgerError` where a file is gone and its write-ahead log is still there.

    The log has what was written last. SQLite would delete it with a new file, and read it into one that is put there.
    """
    log = log_of(path)  # asked for first: who makes a new file makes the log after it
    if _size(log) and not _size(path):
        raise LedgerError(
            f"{path} is gone or empty, and its write-ahead log {log} is still there, with what was written last: put "
            "the file back beside its log. If it was moved away, move the log after it; if it is lost, move the log "
            "away, and keep it"
        )


def refuse_other_names(path: str) -> None:
    """Raise `LedgerError` where a file has more than one name (hard links): each would have a log of its own.

    What is charged under one name is not seen under the other, so a limit could be spent once under each.
    """
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise LedgerError(
            f"{path} is one of {status.st_nlink} names of the same file (hard links), and what is charged under one is "
            "not seen under the other: end what uses it, keep the name that has a write-ahead log (-wal) beside it, "
            f"and remove the others{_beside(path, status)}, or make them symbolic links; 'find -samefile' finds them"
        )


def _beside(path: str, status: os.stat_result) -> str:
    """The other names of a file in its directory, where that can be listed."""
    own, names = os.path.realpath(path), []
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(own)) as files:
        names = [file.path for file in files if file.inode() == status.st_ino and file.path != own]
    return f" ({', '.join(sorted(names))})" if names else ""


def refuse_mounted(path: str) -> None:
    """Raise `LedgerError` where one file is mounted, as into a container: its log stays outside of what is mounted.

    So a container that is killed takes its last charges with it, and two do not see each other's.
    """
    file = re.sub(r"[\\ \t\n]", lambda found: f"\\{ord(found[0]):03o}", os.path.realpath(path))
    with contextlib.suppress(OSError):  # systems other than Linux have no such list
        lines = Path(_MOUNTS).read_text(errors="surrogateescape").split("\n")
        if any(line.split(" ")[4:5] == [file] for line in lines):
            raise LedgerError(
                f"{path} is mounted as a single file, without its write-ahead log, so that charges would be lost: "
                "mount the directory that it is in. Nothing was charged"
            )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _primary_code(error: Exception) -> int:
    """SQLite's error code without its extension; 0 for an error that is not SQLite's."""
    if isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in str(error):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", 0) & 0xFF

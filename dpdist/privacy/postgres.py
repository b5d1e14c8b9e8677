"""A ledger and journal that several machines share: a PostgreSQL database in place of the SQLite file.

The tables and the statements are those of SQLite; this module is only how a transaction is made. One advisory lock
excludes all other writers of the database's dpdist tables, so a check and its charge are never interleaved with
another job's; a transaction that returned is on the server's disk. A lost connection is opened again between
transactions (a server that restarts, a failover), never within one: its outcome would be unknown.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dpdist.errors import LedgerError
from dpdist.privacy.migrations import Schema, bring_up_to_date, check_version

SCHEMES = ("postgresql", "postgres")
RECONNECT_FOR = 30.0
"""Seconds to wait for a server that went away."""
LOCK_WAIT = 30
"""Seconds to wait for another job that is writing."""
_LOCK = 0x6470_6469_7374  # "dpdist": the advisory lock of all writers
_TYPES = {" REAL": " DOUBLE PRECISION", " BLOB": " BYTEA", " INTEGER": " BIGINT"}


def is_address(path: str) -> bool:
    """Whether a ledger's name is the address of a PostgreSQL database."""
    return urlsplit(path).scheme in SCHEMES


def has_table(address: str, name: str) -> bool:
    """Whether the database has such a table; makes nothing."""
    with contextlib.closing(PostgresDatabase(address, None)) as database, database.read() as db:
        return database.has_table(db, name)


class PostgresDatabase:
    """A connection to one PostgreSQL database, shared by the threads of one process.

    Parameters
    ----------
    address : str
        ``postgresql://user@host:5432/database?sslmode=verify-full``, without a password: that comes from the
        environment (``PGPASSWORD``, ``PGPASSFILE`` or ``PGSERVICE``), because addresses end up in records of runs.
    schema : Schema or None
        The tables, made or migrated at opening; None for those that are there, whatever they are.

    Raises
    ------
    LedgerError
        From every method, when the database cannot be reached, or would not keep what it is told; when its tables are
        newer than `schema`.
    """

    def __init__(self, address: str, schema: Schema | None) -> None:
        self.path = address
        _check_address(address)
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs the package psycopg: pip install 'dpdist[postgres]'"
            ) from None
        self._psycopg: Any = psycopg
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._connection: Any = None
        self._schemas: tuple[Schema, ...] = ()
        self._connect(time.monotonic())
        try:
            if schema is not None:
                self.keep(schema)
        except LedgerError:
            self.close()
            raise

    def keep(self, schema: Schema) -> None:
        """Make or migrate more tables, and refuse to write once a newer program has changed them."""
        bring_up_to_date(self, schema)
        self._schemas = (*self._schemas, schema)

    def read(self) -> contextlib.AbstractContextManager[Any]:
        """Return a transaction that sees one state of the database and changes nothing."""
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())

    def write(self) -> contextlib.AbstractContextManager[Any]:
        """Return a transaction that excludes all other writers from its first statement on; durable once left."""
        # READ COMMITTED: what is read after the lock was got includes what its last holder wrote
        lock = f"SELECT pg_advisory_xact_lock({_LOCK})"
        return self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED", (lock,), self._schemas)

    @contextlib.contextmanager
    def _transaction(self, begin: str, then: Sequence[str], schemas: Sequence[Schema] = ()) -> Iterator[Any]:
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened by the parent process: open it again in this process")
        with self._lock:
            try:
                self._begin([begin, *then])
                try:
                    statements = _Statements(self._connection)
                    for schema in schemas:
                        check_version(self.path, statements, schema)
                    yield statements
                    self._connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(self._psycopg.Error):
                        self._connection.execute("ROLLBACK")
                    raise
            except self._psycopg.Error as error:
                raise self._explained(error) from error

    def _begin(self, statements: Sequence[str]) -> None:
        """Begin a transaction, on a new connection if the old one is gone: nothing has been sent yet."""
        give_up = time.monotonic() + RECONNECT_FOR
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connect(give_up)
                self._connection.execute("; ".join(statements))
                return
            except self._psycopg.errors.LockNotAvailable:
                self._connection.execute("ROLLBACK")
                raise
            except self._psycopg.OperationalError:
                self._connection.close()
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.2)

    def _connect(self, give_up: float) -> None:
        while True:
            try:
                self._connection = self._psycopg.connect(
                    self.path,
                    autocommit=True,
                    connect_timeout=5,
                    keepalives_idle=10,
                    keepalives_interval=5,
                    keepalives_count=3,
                    tcp_user_timeout=30_000,
                    options=f"-c lock_timeout={LOCK_WAIT}s -c synchronous_commit=on -c client_encoding=UTF8",
                    application_name="dpdist",
                )
                break
            except self._psycopg.Error as error:
                if time.monotonic() >= give_up:
                    raise self._explained(error) from error
                time.sleep(0.2)
        for setting in ("fsync", "full_page_writes"):
            if self._connection.execute(f"SHOW {setting}").fetchone()[0] != "on":
                raise LedgerError(
                    f"the server of {self.path} runs with {setting}=off, so it could forget what was spent when it "
                    f"crashes: set {setting}=on in postgresql.conf"
                )

    def _explained(self, error: Exception) -> LedgerError:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return LedgerError(
            f"{self.path} cannot be used ({type(error).__name__}: {first}): {_fix(self._psycopg, error)}. Nothing may "
            "be released; repeating the call with the same run id never charges twice."
        )

    def has_table(self, db: Any, name: str) -> bool:
        """Whether there is such a table."""
        return db.execute("SELECT to_regclass(?)", (name,)).fetchone()[0] is not None

    def define(self, db: Any, statement: str) -> None:
        """Execute one statement of a migration, with this database's types."""
        for ours, theirs in _TYPES.items():
            statement = statement.replace(ours, theirs)
        db.execute(statement)

    def let_read(self, db: Any, table: str) -> None:
        """Let every account that may use the database read a table."""
        db.execute(f"GRANT SELECT ON {table} TO PUBLIC")

    def let_use(self, db: Any, table: str, like: str) -> None:
        """Give every account the rights on a new table that it has on one that was there."""
        granted = db.execute(
            "SELECT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END, privilege_type "
            "FROM information_schema.role_table_grants WHERE table_schema = current_schema() AND table_name = ?",
            (like,),
        )
        for account, right in granted.fetchall():
            db.execute(f"GRANT {right} ON {table} TO {account}")

    def close(self) -> None:
        """Close the connection; later calls open another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


class _Statements:
    """A connection that takes SQLite's placeholders."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement.replace("?", "%s"), values or None)


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.password is not None or "password" in dict(parse_qsl(parts.query)):
        # the address itself must not appear here either
        raise LedgerError(
            "the address of a PostgreSQL ledger must not contain the password, because it is kept in records of runs: "
            "put the password into PGPASSWORD, or a password file named by PGPASSFILE"
        )


def _fix(psycopg: Any, error: Exception) -> str:
    errors = psycopg.errors
    if isinstance(error, errors.LockNotAvailable):
        return "another job kept its ledger locked for too long: find what holds it (pg_stat_activity), or try again"
    if isinstance(error, errors.InsufficientPrivilege):
        return (
            "this account may not use the tables: GRANT SELECT, INSERT, UPDATE on them; an account with CREATE makes "
            "them at first use, and their owner opens them once after an upgrade of dpdist that changes them"
        )
    if isinstance(error, errors.DiskFull):
        return "the server's disk is full: make room and start the same run again"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "the server is a read-only replica: name the primary (target_session_attrs=read-write)"
    if isinstance(error, psycopg.OperationalError):
        return "check that the server runs, the address, the password and TLS settings; then start the same run again"
    return "see the message before this one, then start the same run again"

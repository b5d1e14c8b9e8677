"""A ledger and journal that several machines share: a PostgreSQL database in place of the SQLite file.

The tables and the statements are those of SQLite; this module is only how a transaction is made. One advisory lock
excludes all other writers of the database's dpdist tables, so a check and its charge are never interleaved with
another job's; a transaction that returned is on the server's disk.

A server that is away (a crash, a restart, a failover) is waited for with the patience of `dpdist.patience`, and a
transaction that was lost with its connection is repeated as a whole. Where only the answer to its COMMIT was lost, it
has taken place: so every transaction decides by what it reads, and finds its own work done.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from dpdist.errors import LedgerError, LedgerUnavailable
from dpdist.patience import Patience
from dpdist.privacy.ledger.migrations import Schema, bring_up_to_date, check_version
from dpdist.privacy.ledger.transaction import Transaction

Result = TypeVar("Result")

SCHEMES = ("postgresql", "postgres")
LOCK_WAIT = 30
"""Seconds to wait for another job that is writing."""
ANSWER_WITHIN = 50
"""Seconds for a transaction; a server that keeps the connection and says nothing is left after that."""
HEARD_WITHIN = 20
"""Seconds in which the server hears of us inside a transaction; after that it gives the lock to other jobs, which wait
for it: we may have been stopped, or cut off, and would keep them from the ledger for hours."""
_REFUSED = re.compile(
    "authentication failed|no password supplied|does not exist|pg_hba.conf|permission denied|not permitted to log in"
    "|does not support SSL|certificate"
)
"""What no patience cures. The errors of opening have no codes; what is said in another language is waited for."""
_LOCK = 0x6470_6469_7374  # "dpdist": the advisory lock of all writers
_TYPES = {" REAL": " DOUBLE PRECISION", " BLOB": " BYTEA", " INTEGER": " BIGINT"}


def is_address(path: str) -> bool:
    """Whether a ledger's name is the address of a PostgreSQL database."""
    return urlsplit(path).scheme in SCHEMES


def has_table(address: str, name: str) -> bool:
    """Whether the database has such a table; makes nothing."""
    with contextlib.closing(PostgresDatabase(address, None)) as database:
        return database.read(lambda db: database.has_table(db, name))


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

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Return what `work` finds, given a transaction that sees one state of the database and changes nothing."""
        return self._repeated(work, ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"])

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Let `work` change the database, given a transaction that excludes all other writers; durable when it returns.

        `work` may be called more than once, after a call that took place, too: it must find that done, and have no
        effect but on the database.
        """
        # READ COMMITTED: what is read after the lock was got includes what its last holder wrote
        lock = f"SELECT pg_advisory_xact_lock({_LOCK})"
        return self._repeated(work, ["BEGIN ISOLATION LEVEL READ COMMITTED", lock], self._schemas)

    def _repeated(
        self, work: Callable[[Transaction], Result], begin: Sequence[str], schemas: Sequence[Schema] = ()
    ) -> Result:
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path} was opened by the parent process: open it again in this process")
        patience = Patience()
        with self._lock:
            while True:
                try:
                    if self._connection is None or self._connection.closed:
                        self._connect()
                    return self._once(work, begin, schemas)
                except self._psycopg.Error as error:
                    lost = self._connection is None or self._connection.closed
                    away = lost and not _REFUSED.search(str(error))
                    if not (away and patience.wait()):
                        raise self._explained(error, away) from error

    def _once(self, work: Callable[[Transaction], Result], begin: Sequence[str], schemas: Sequence[Schema]) -> Result:
        with _time_limit(self._connection):
            try:
                self._connection.execute("; ".join(begin))
                statements = _Statements(self._connection)
                for schema in schemas:
                    check_version(self.path, statements, schema)
                result = work(statements)
                self._connection.execute("COMMIT")
                return result
            except BaseException:
                with contextlib.suppress(self._psycopg.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _connect(self) -> None:
        connection = self._psycopg.connect(
            self.path,
            autocommit=True,
            connect_timeout=5,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
            options=f"-c lock_timeout={LOCK_WAIT}s -c idle_in_transaction_session_timeout={HEARD_WITHIN}s "
            # an account that is shown some rows only would not see what others have spent: it is refused
            "-c synchronous_commit=on -c client_encoding=UTF8 -c row_security=off",
            application_name="dpdist",
        )
        with _time_limit(connection):
            for setting in ("fsync", "full_page_writes"):
                if connection.execute(f"SHOW {setting}").fetchone()[0] != "on":
                    connection.close()
                    raise LedgerError(
                        f"the server of {self.path} runs with {setting}=off, so it could forget what was spent when it "
                        f"crashes: set {setting}=on in postgresql.conf"
                    )
        self._connection = connection

    def _explained(self, error: Exception, away: bool) -> LedgerError:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        kind = LedgerUnavailable if away or isinstance(error, self._psycopg.errors.LockNotAvailable) else LedgerError
        return kind(
            f"{self.path} cannot be used ({type(error).__name__}: {first}): {_fix(self._psycopg, error)}. Nothing may "
            "be released; repeating the call with the same run id never charges twice."
        )

    def has_table(self, db: Transaction, name: str) -> bool:
        """Whether there is such a table."""
        return db.execute("SELECT to_regclass(?)", (name,)).fetchone()[0] is not None

    def define(self, db: Transaction, statement: str) -> None:
        """Execute one statement of a migration, with this database's types."""
        for ours, theirs in _TYPES.items():
            statement = statement.replace(ours, theirs)
        db.execute(statement)

    def let_read(self, db: Transaction, table: str) -> None:
        """Let every account that may use the database read a table."""
        db.execute(f"GRANT SELECT ON {table} TO PUBLIC")

    def let_use(self, db: Transaction, table: str, like: str) -> None:
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


@contextlib.contextmanager
def _time_limit(connection: Any) -> Iterator[None]:
    """End a connection whose server stopped answering: libpq itself would wait for ever."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:

        def end() -> None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(ANSWER_WITHIN, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if not address.startswith(f"{parts.scheme}://"):
        raise LedgerError(f"expected postgresql://USER@HOST/DATABASE, got {parts.scheme}: without the two slashes")
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
            "them at first use, and their owner opens them once after an upgrade of dpdist that changes them. Where "
            "row-level security hides rows from it, it needs BYPASSRLS: a ledger is read whole or not at all"
        )
    if isinstance(error, errors.UndefinedTable):
        return "its tables are not as dpdist made them: restore a backup; do not delete it"
    if isinstance(error, errors.DiskFull):
        return "the server's disk is full: make room and start the same run again"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "the server is a read-only replica: name the primary (target_session_attrs=read-write)"
    if isinstance(error, psycopg.OperationalError):
        return "check that the server runs, the address, the password and TLS settings; then start the same run again"
    return "see the message before this one, then start the same run again"

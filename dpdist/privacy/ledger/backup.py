"""Copies of a ledger: made while it is in use, and put back where it was lost.

A copy is one SQLite file, of a ledger in a file and of one in PostgreSQL alike, with the journal where that is kept in
the same database. It is read in one transaction, so it is the ledger as it stood at one moment. (A plain copy of an
SQLite file in use may lack everything that is still in its write-ahead log.)

A ledger that is put back from a copy has forgotten what was charged since. It is not used before whoever answers for
the data has said what that was (`dpdist.privacy.ledger.recall`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpdist.errors import LedgerError
from dpdist.privacy.ledger import journal
from dpdist.privacy.ledger import tables as ledger_tables
from dpdist.privacy.ledger.heads import adopt, stands_on
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.migrations import Schema, bring_up_to_date
from dpdist.privacy.ledger.postgres import has_table, is_address
from dpdist.privacy.ledger.recall import Memory, Recalled, recall
from dpdist.privacy.ledger.records import ACCOUNTS, RUN, check_sums
from dpdist.privacy.ledger.sqlite import LEDGER_OR_JOURNAL, Database, check_is_file_name, log_of, refuse_left_log
from dpdist.privacy.ledger.transaction import Transaction

_LEDGER, _JOURNAL = ledger_tables.SCHEMA, journal.SCHEMA
_NEWEST = "SELECT written_at FROM dpdist_heads ORDER BY number DESC LIMIT 1"
_JOURNALS = "SELECT id, path FROM dpdist_journals ORDER BY path"
_JOURNAL_HERE = "SELECT id FROM dpdist_journal"
TABLES = {_LEDGER.part: ledger_tables.TABLES, _JOURNAL.part: journal.TABLES}


@dataclass(frozen=True)
class Copied:
    """What a copy holds: how many runs, up to when; and where else their values are kept."""

    runs: int
    when: str
    journals: tuple[str, ...]


def back_up(path: str, copy: str) -> Copied:
    """Copy a ledger that may be in use to a new file.

    Raises
    ------
    LedgerError
        If there is something at ``copy`` already, or what was read does not add up; then there is no copy.
    """
    check_is_file_name(copy, "a file for the copy")
    if os.path.lexists(copy):
        raise LedgerError(f"{copy} is there already, and a copy is never overwritten: name a new file")
    with contextlib.closing(Ledger.existing(path)) as ledger, _finished(copy) as unfinished:
        source, there = ledger._db, _parts(ledger)
        with contextlib.closing(Database(unfinished, None)) as target:
            for schema in there:
                bring_up_to_date(target, schema)

            def rows(db: Transaction, new: Transaction) -> Copied:
                for schema in there:
                    _copy_rows(db, new, schema)
                runs, when = check_sums(new), new.execute(_NEWEST).fetchone()[0]
                ours = {name for (name,) in db.execute(_JOURNAL_HERE)} if _JOURNAL in there else set()
                paths = [place for name, place in new.execute(_JOURNALS) if name not in ours]
                return Copied(runs, when, tuple(paths))

            # one state of the source, however often its server is lost meanwhile
            return source.read(lambda db: target.write(lambda new: rows(db, new)))


def put_back(copy: str | None, path: str, memories: Sequence[Memory], why: str) -> Recalled:
    """Put a ledger back from a copy, with what is remembered of it, where there is none any more.

    Parameters
    ----------
    copy : str or None
        None for a ledger that was put back by other means, or that has to be made of memories alone.
    path : str
        A file, or the address of a PostgreSQL database.
    memories : sequence of Memory
        What was charged since the copy was made.
    why : str
        Kept on file: who says that this is all.
    """
    if not is_address(path):
        check_is_file_name(path, LEDGER_OR_JOURNAL)
    if copy is not None:
        check_is_file_name(copy, "the file of a copy")
    there = has_table(path, _LEDGER.table) if is_address(path) else os.path.lexists(path)
    if there and copy is not None:
        raise LedgerError(
            f"there is something at {path}, which may know of charges that the copy does not: move it away, with its "
            "write-ahead log (or name an empty database), and keep it"
        )
    if there:
        return _recall_in_place(path, memories, why)
    with contextlib.ExitStack() as opened:
        if is_address(path):
            folder = opened.enter_context(tempfile.TemporaryDirectory())
            made = os.path.join(folder, "ledger.sqlite")
        else:
            made = opened.enter_context(_finished(path))
        if copy is None:
            recalled = _make_of(memories, made, path, why)
        else:
            _take(copy, made)
            with contextlib.closing(Ledger(made)) as ledger:
                recalled = ledger._db.write(lambda db: recall(db, path, memories, why))
        if is_address(path):
            _into_server(made, path)
    return recalled


def _recall_in_place(path: str, memories: Sequence[Memory], why: str) -> Recalled:
    def work(db: Transaction) -> Recalled:
        check_sums(db)
        heads = [head for memory in memories for head in memory.heads]
        early = [run_id for memory in memories if not memory.heads for run_id in memory.charged]
        has_all = all(db.execute(RUN, (run_id,)).fetchone() is not None for run_id in early)
        if has_all and all(stands_on(db, head) for head in heads):
            raise LedgerError(
                f"the ledger {path} has forgotten nothing of what is remembered by those who were asked: there is "
                "nothing to restore, and nothing was changed. If a dataset, a run or a journal refuses it, name that"
            )
        return recall(db, path, memories, why)

    with contextlib.closing(Ledger.existing(path)) as ledger:
        return ledger._db.write(work)


def _make_of(memories: Sequence[Memory], made: str, path: str, why: str) -> Recalled:
    """A ledger of what is remembered, with the id of the one that was lost."""
    ledgers = {head.ledger for memory in memories for head in memory.heads}
    if len(ledgers) != 1:
        raise LedgerError(
            f"there is no ledger at {path}, and those who were asked remember {len(ledgers) or 'none'}: name a copy, "
            "or datasets, directories of runs or journals that knew the one ledger"
        )
    (known,) = ledgers

    def work(db: Transaction) -> Recalled:
        adopt(db, known)
        return recall(db, path, memories, why)

    with contextlib.closing(Ledger(made)) as ledger:
        return ledger._db.write(work)


def _take(copy: str, target: str) -> None:
    """A copy as a ledger of this version that adds up; the copy itself is only read."""
    if not os.path.isfile(copy):
        raise LedgerError(f"there is no copy at {copy}")
    shutil.copyfile(copy, target)
    for log in filter(os.path.exists, (f"{copy}-wal", log_of(copy))):  # of a plain copy that took it along
        shutil.copyfile(log, f"{target}-wal")
    try:
        with contextlib.closing(sqlite3.connect(target)) as connection:
            sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names of tables are read as text
        sound, tables = str(error), {_LEDGER.table}
    if sound != "ok":
        raise LedgerError(f"the copy {copy} is damaged ({sound}): take another one")
    if _LEDGER.table not in tables:
        raise LedgerError(f"{copy} is no copy of a ledger of dpdist; name another file")
    with contextlib.closing(Ledger(target)) as ledger:
        ledger._db.read(check_sums)


def _into_server(made: str, address: str) -> None:
    with contextlib.closing(Ledger(address)) as ledger, contextlib.closing(Ledger(made)) as found:
        there = _parts(found)
        for schema in there[1:]:
            ledger._db.keep(schema)

        def work(db: Transaction, new: Transaction) -> None:
            if new.execute(ACCOUNTS).fetchone():
                raise LedgerError(
                    f"an account was charged or limited in {address} meanwhile: name an empty database, keep this one"
                )
            for schema in there:
                _copy_rows(db, new, schema)
            check_sums(new)

        found._db.read(lambda db: ledger._db.write(lambda new: work(db, new)))


def _parts(ledger: Ledger) -> list[Schema]:
    """What is kept in the ledger's database, brought up to date: the ledger, and the journal if it is there."""
    if not ledger._db.read(lambda db: ledger._db.has_table(db, _JOURNAL.table)):
        return [_LEDGER]
    ledger._db.keep(_JOURNAL)
    return [_LEDGER, _JOURNAL]


def _copy_rows(source: Any, target: Any, schema: Schema) -> None:
    """Replace what is in fresh tables by the rows of another database."""
    for table in reversed(TABLES[schema.part]):
        target.execute(f"DELETE FROM {table}")
    for table in TABLES[schema.part]:
        for rows in _pieces(source, table):
            columns = [column[0] for column in rows.description]
            places = ", ".join("?" * len(columns))
            for row in rows:
                target.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", tuple(row))


def _pieces(source: Any, table: str) -> Iterator[Any]:
    """All rows of a table; values run by run, because they can be large."""
    if table != journal.VALUES_TABLE:
        yield source.execute(f"SELECT * FROM {table}")
        return
    for (run_id,) in source.execute(f"SELECT DISTINCT run_id FROM {table}").fetchall():
        yield source.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run_id,))


@contextlib.contextmanager
def _finished(path: str) -> Iterator[str]:
    """A name beside ``path`` to write to; it gets its own name once it is complete, and replaces nothing."""
    refuse_left_log(path)
    unfinished = f"{path}.{secrets.token_hex(4)}.unfinished"
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        _settle(unfinished)
        _name(unfinished, path)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}): name another place, or make room") from None
    finally:
        for leftover in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm"):
            with contextlib.suppress(OSError):
                os.unlink(leftover)
    _settle(os.path.dirname(os.path.abspath(path)))


def _name(unfinished: str, path: str) -> None:
    """Rename a file to what is no file yet: a run may have made one meanwhile, and charged it."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise LedgerError(
            f"something was made at {path} meanwhile, perhaps by a run that began: it was left as it is, and nothing "
            "was put in its place. Move it away, with its write-ahead log, keep it, and start again"
        ) from None
    except OSError:  # a file system without links
        os.rename(unfinished, path)
    else:
        os.unlink(unfinished)


def _settle(path: str) -> None:
    """Return when a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

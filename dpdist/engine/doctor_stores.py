"""The checks of what is stored: the ledger, and the journal of released values."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpdist.data import Dataset
from dpdist.engine.disks import CONTAINER, MEMORY, NETWORK, mount_of
from dpdist.engine.doctor import Finding, clocks, is_loopback
from dpdist.engine.memory import noted_head
from dpdist.errors import DataError, Forgotten, LedgerError
from dpdist.objects import StoreError
from dpdist.privacy.ledger.heads import check_head
from dpdist.privacy.ledger.journal import FIRST_EPOCH
from dpdist.privacy.ledger.journal import SCHEMA as JOURNAL
from dpdist.privacy.ledger.location import is_there
from dpdist.privacy.ledger.migrations import found_version, refuse_newer
from dpdist.privacy.ledger.object_journal import creates_once
from dpdist.privacy.ledger.postgres import is_address
from dpdist.privacy.ledger.records import ADD_RUN, check_sums
from dpdist.privacy.ledger.sqlite import Store, open_store, utc_now
from dpdist.privacy.ledger.tables import SCHEMA as LEDGER

_TRIALS: dict[str, Callable[[str], tuple[str, tuple[Any, ...]]]] = {
    "dpdist_runs": lambda name: (
        ADD_RUN, (1, name, name, name, "doctor", 1.0, 0.0, "replace-one", None, None, None, utc_now(), "doctor", None,
        None, None, None, None, None, None, None)
    ),
    "dpdist_epochs": lambda name: (FIRST_EPOCH, (name,)),
}  # fmt: skip
"""What a trial writes into the tables of a ledger and of a journal."""


class _Undo(Exception):
    """Ends a transaction that must leave nothing behind but what was found."""

    def __init__(self, says: str, outdated: list[Finding], is_ledger: bool) -> None:
        self.found = says, outdated, is_ledger


def examine_ledger(path: str) -> list[Finding]:
    """Examine a ledger: a file, or the address of a PostgreSQL database. Nothing that is written stays."""
    try:
        return list(_database(path) if is_address(path) else _file(path))
    except LedgerError as error:
        return [Finding("ledger", "fail", str(error), "see the message")]


def examine_account(path: str, dataset: Dataset) -> list[Finding]:
    """Examine whether a ledger is the one that limits a dataset, with all that it held; nothing is written."""
    try:
        known = noted_head(dataset)
        if known is None:
            return []
        (head, note), by = known, f"the dataset {dataset.location}"
        if not is_there(path):
            raise Forgotten(
                f"{by} is limited by the ledger with the id {head.ledger}, last used at {note.get('path')}, and there "
                f"is no ledger at {path}: name that ledger, or restore it"
            )
        with contextlib.closing(open_store(path, None)) as store:
            if store.read(lambda db: found_version(store, db, LEDGER)[0]) != LEDGER.version:
                return []  # that is a finding already, and the next run migrates it
            store.read(lambda db: check_head(db, path, head, by, dataset.account))
    except (LedgerError, DataError) as error:
        return [Finding("account", "fail", str(error), "see the message")]
    return [Finding("account", "ok", f"{by} is limited by this ledger, which has all that it saw")]


def examine_journal(path: str) -> list[Finding]:
    """Examine a journal that is not in the ledger's database: a file, a database, or an object store."""
    if "://" in path and not is_address(path):
        return [_put_if_absent(path)]
    try:
        found = list(_database(path) if is_address(path) else _file(path))
    except LedgerError as error:
        found = [Finding("ledger", "fail", str(error), "see the message")]
    return [Finding(one.check.replace("ledger", "journal"), one.status, one.says, one.fix) for one in found]


def _database(address: str) -> Iterator[Finding]:
    store = open_store(address, None)  # it refuses a server with fsync or full_page_writes off
    with contextlib.closing(store):
        before = time.time()
        theirs, encrypted, standby = store.read(
            lambda db: db.execute(
                "SELECT extract(epoch FROM clock_timestamp())::float8, "
                "coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false), "
                "current_setting('synchronous_standby_names')"
            ).fetchone()
        )
        after = time.time()
        what, outdated = _trial(store)
    yield Finding("ledger", "ok", f"PostgreSQL, durable (fsync, full_page_writes, synchronous_commit), {what}")
    yield from outdated
    yield from (
        Finding(f"ledger {one.check}", one.status, one.says, one.fix)
        for one in clocks({"the ledger": (theirs, before, after)})
    )
    host = urlsplit(address).hostname or "localhost"
    if not encrypted and not is_loopback(host):
        yield Finding(
            "ledger encryption",
            "fail",
            "the connection to the ledger is not encrypted: who can change it in transit can forge the account",
            "add sslmode=verify-full&sslrootcert=FILE to the address, and hostssl to pg_hba.conf",
        )
    if not standby:
        yield Finding(
            "ledger copies",
            "warn",
            "one server keeps the account: if its disk is lost, what was spent is forgotten",
            "add a synchronous standby (synchronous_standby_names), or archive the write-ahead log",
        )


def _file(path: str) -> Iterator[Finding]:
    kind, _ = mount_of(path if os.path.exists(path) else os.path.dirname(os.path.abspath(path)))
    if kind in NETWORK:
        yield Finding(
            "ledger",
            "fail",
            f"{path} is on a network file system ({kind}), where locks are not reliable: two runs could both be paid "
            "from what is left for one",
            "put it on a local disk, or use PostgreSQL for a ledger that several machines share",
        )
    elif kind in MEMORY:
        yield Finding(
            "ledger",
            "fail",
            f"{path} is in memory ({kind}): a restart forgets what was spent",
            "put it on a disk that is kept and backed up",
        )
    elif kind in CONTAINER:
        yield Finding(
            "ledger",
            "warn",
            f"{path} is in a container's own layer ({kind}): it may go with the container, and the account with it",
            "put it on a mounted volume, or use PostgreSQL",
        )
    if not os.path.exists(path):
        yield _new_file(path)
        return
    if not _is_ledger(path):
        raise LedgerError(f"{path} is no ledger of dpdist; name the file that the runs used")
    with contextlib.closing(open_store(path, None)) as store:
        pragmas = ("PRAGMA journal_mode", "PRAGMA synchronous")
        mode, level = store.read(lambda db: [db.execute(pragma).fetchone()[0] for pragma in pragmas])
        what, outdated = _trial(store)
    if mode != "wal" or level < 2:
        yield Finding("ledger", "fail", f"{path} does not wait for the disk (journal_mode {mode})", "use a local disk")
    else:
        yield Finding("ledger", "ok", f"{path}: every charge waits for the disk, {what}")
    yield from outdated


def _is_ledger(path: str) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{os.path.abspath(path)}?mode=ro", uri=True)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return True  # locked or damaged: opening it explains
    return bool(names & {"dpdist_runs", "dpdist_epochs"})


def _new_file(path: str) -> Finding:
    folder = Path(os.path.abspath(path)).parent
    while not folder.exists():
        folder = folder.parent
    trial = folder / f".dpdist-doctor-{secrets.token_hex(4)}"
    try:
        with open(trial, "xb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding(
            "ledger", "fail", f"{path} does not exist and cannot be made in {folder} ({error.strerror})",
            "name a place that this account may write, and that has room",
        )  # fmt: skip
    finally:
        trial.unlink(missing_ok=True)
    return Finding(
        "ledger", "warn", f"{path} does not exist; the first run makes it",
        "if there were runs before, name the ledger they used: a new one has forgotten what was spent",
    )  # fmt: skip


def _trial(store: Store) -> tuple[str, list[Finding]]:
    """Write one line more in a table that is there, or a table, and take it back; what there is, and what is outdated.

    Raises `LedgerError` where the tables are newer than this program, or charges do not add up.
    """
    name = f"doctor-{secrets.token_hex(8)}"

    def trial(db: Any) -> None:
        says = "it has no tables yet; the first run makes them"
        outdated = []
        versions = {schema: found_version(store, db, schema)[0] for schema in (LEDGER, JOURNAL)}
        for schema, version in versions.items():
            refuse_newer(store.path, schema, version)
            if 0 < version < schema.version:
                outdated.append(_outdated(schema.part, version, schema.version))
        there = [schema for schema, version in versions.items() if version]
        current = [schema for schema in there if versions[schema] == schema.version]
        if there:
            says = f"its tables have version {versions[there[0]]}"
        if current:
            db.execute(*_TRIALS[current[0].table](name))
            says += ", a trial charge was written and taken back"
        elif not there:
            db.execute("CREATE TABLE dpdist_doctor (name TEXT)")
        raise _Undo(says, outdated, LEDGER in current)

    try:
        store.write(trial)
    except _Undo as undone:
        says, outdated, is_ledger = undone.found
    if is_ledger:
        says += f", the charges of {store.read(check_sums)} runs add up"
    return says, outdated


def _outdated(part: str, version: int, known: int) -> Finding:
    return Finding(
        "ledger version",
        "warn",
        f"the {part} has version {version}; the next run changes it to {known}, and older programs stop",
        "make a backup, wait for the runs of older programs to end, and upgrade dpdist wherever it is used",
    )


def _put_if_absent(url: str) -> Finding:
    try:
        once = creates_once(url)
    except DataError as error:
        return Finding("journal", "fail", str(error), "see the message")
    except StoreError as error:
        return Finding("journal", "fail", f"nothing can be written to {url}: {error.why}", error.fix)
    if once:
        return Finding("journal", "ok", f"{url} can be written, and an object is made only once")
    return Finding(
        "journal",
        "fail",
        f"{url} lets an object be made twice: two coordinators of one run could both draw noise and both be seen",
        "use a store that enforces put-if-absent (Amazon S3, Google Cloud Storage, Azure, MinIO), or PostgreSQL",
    )

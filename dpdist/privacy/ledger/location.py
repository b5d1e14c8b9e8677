"""Where a ledger is looked for."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import urllib.parse
from pathlib import Path

from dpdist.errors import LedgerError
from dpdist.objects import is_object_store
from dpdist.privacy.ledger.postgres import has_table, is_address
from dpdist.privacy.ledger.sqlite import LEDGER_OR_JOURNAL, MEMORY, check_is_file_name, located, refuse_left_log


def default_path() -> str:
    """Where the ledger of this account lives: ``DPDIST_LEDGER``, else the user's data directory (XDG)."""
    if named := os.environ.get("DPDIST_LEDGER"):
        return named
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(Path(home) / "dpdist" / "ledger.sqlite")


def wherever(path: str) -> str:
    """What names a ledger or journal in processes that are in other directories, too."""
    return path if path == MEMORY or is_address(path) or is_object_store(path) else located(path)


def is_there(path: str) -> bool:
    """Whether there is such a ledger; makes none."""
    return has_table(path, "dpdist_runs") if is_address(path) else os.path.exists(path)


def check_is_ledger(named: str) -> None:
    """Raise `LedgerError` unless there is a ledger at a place; makes none."""
    if is_address(named):
        if not has_table(named, "dpdist_runs"):
            raise LedgerError(
                f"the database {named} has no tables of dpdist. They are made by the first run, or by the first "
                "limit that is set; if there were runs, name the database they used"
            )
        return
    refuse_left_log(named)
    check_is_file_name(named, LEDGER_OR_JOURNAL)
    if not os.path.isfile(named):
        raise LedgerError(
            f"there is no ledger at {named}. It is made by the first run, or by the first limit that is set; if "
            "there were runs, name the file they used or set DPDIST_LEDGER to it"
        )
    tables = None
    # a damaged or locked file is explained by the opening below; names of tables are read as text
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        address = f"file:{urllib.parse.quote(os.path.abspath(named))}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=0)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if tables is not None and "dpdist_runs" not in tables:
        raise LedgerError(f"{named} is a database or an empty file, but no ledger of dpdist; name another file")

"""The runs and releases that a ledger holds, as SQL and as records.

All of it works inside a transaction of `dpdist.privacy.ledger.ledger`.
"""

from __future__ import annotations

import functools
import getpass
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.totals import Balance, Sums, balances, decoded, encoded
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.ledger.damage import as_written
from dpdist.privacy.ledger.transaction import Transaction

_OF_A_RUN = """epsilon, delta, neighbours, mu, split, fold, account,
    dataset_id, run_id, digest, charged_at, user_name, label, journal, library, unit, group_size, total"""
RUN_COLUMNS = f"SELECT {_OF_A_RUN} FROM dpdist_runs"
RUN = f"{RUN_COLUMNS} WHERE run_id = ?"
ACCOUNT_OF_RUN = "SELECT account FROM dpdist_runs WHERE run_id = ?"
RUNS = f"{RUN_COLUMNS} WHERE account = ? ORDER BY number"
LAST_RUN = f"{RUN_COLUMNS} WHERE account = ? ORDER BY number DESC LIMIT 1"
COUNT_RUNS = "SELECT COUNT(*) FROM dpdist_runs WHERE account = ?"
HOW_CHARGED = f"""SELECT number, (SELECT what FROM dpdist_heads AS head WHERE head.number = dpdist_runs.number),
    (SELECT subject FROM dpdist_heads AS head WHERE head.number = dpdist_runs.number), {_OF_A_RUN}
    FROM dpdist_runs WHERE account = ? ORDER BY number"""
EVENTS = "SELECT written_at, what, subject FROM dpdist_heads WHERE what IN ('restore', 'move') ORDER BY number"
ANY_RUN = "SELECT 1 FROM dpdist_runs LIMIT 1"
BEFORE = """SELECT earlier.total FROM dpdist_runs AS run JOIN dpdist_runs AS earlier
    ON earlier.account = run.account AND earlier.number < run.number WHERE run.run_id = ?
    ORDER BY earlier.number DESC LIMIT 1"""
_BALANCES = f"SELECT fold_total, split_total, {_OF_A_RUN} FROM dpdist_runs WHERE account = ? ORDER BY number"
_CHARGE_WITHOUT_RUN = """SELECT subject FROM dpdist_heads AS head WHERE what = 'charge' AND NOT EXISTS
    (SELECT 1 FROM dpdist_runs AS run WHERE run.run_id = head.subject AND run.number = head.number)"""
RECEIPT = (
    "number", "account", "run_id", "dataset_id", "digest", "epsilon", "delta", "neighbours", "mu", "split", "fold",
    "charged_at", "user_name", "label", "journal", "library", "unit", "group_size",
)  # fmt: skip
"""All that was charged for a run, as others keep it: a ledger that has forgotten the run can charge it again."""
WHOLE_RUN = (*RECEIPT, "total", "fold_total", "split_total")
ADD_RUN = f"INSERT INTO dpdist_runs ({', '.join(WHOLE_RUN)}) VALUES ({', '.join('?' * len(WHOLE_RUN))})"
RECEIPT_OF_RUN = f"SELECT {', '.join(RECEIPT)} FROM dpdist_runs WHERE run_id = ?"
BIND = "UPDATE dpdist_runs SET journal = ? WHERE run_id = ? AND journal IS NULL"
_ADD_JOURNAL = """INSERT INTO dpdist_journals (id, path) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET path = excluded.path"""
JOURNAL_PATH = "SELECT path FROM dpdist_journals WHERE id = ?"
WHOLE_RELEASE = (
    "release_id", "run_id", "position", "name", "mechanism", "noise_std", "sensitivity", "cost", "recorded_at",
    "committed",
)  # fmt: skip
_RELEASE_COLUMNS = f"SELECT {', '.join(WHOLE_RELEASE)} FROM dpdist_releases"
COMMITTED = "SELECT run_id, committed FROM dpdist_releases WHERE release_id = ?"
COMMIT = "UPDATE dpdist_releases SET committed = ? WHERE release_id = ? AND committed IS NULL"
RELEASE = f"{_RELEASE_COLUMNS} WHERE release_id = ? OR (run_id = ? AND position = ?)"
RELEASES = f"""{_RELEASE_COLUMNS} WHERE run_id IN (SELECT run_id FROM dpdist_runs WHERE account = ?)
    ORDER BY run_id, position"""
ADD_RELEASE = f"""INSERT INTO dpdist_releases ({", ".join(WHOLE_RELEASE)})
    VALUES ({", ".join("?" * len(WHOLE_RELEASE))})"""
ACCOUNTS = "SELECT account FROM dpdist_accounts ORDER BY account"

_EDITION = "@"
LINE_CHANGED = "a line was changed or lost. Restore the newest copy of the ledger, and run nothing until then"


@dataclass(frozen=True)
class RunCharge:
    """A run that is paid for; ``resumed`` if it had been paid for before this call."""

    dataset_id: str
    run_id: str
    digest: str
    charge: Charge
    when: str
    resumed: bool


@dataclass(frozen=True)
class ReleaseRecord:
    """One release of a run, as it was announced before its noise was drawn.

    ``committed`` is the number of the ledger's head with which its value began to count; None before that, and for
    the releases of earlier versions, which did not say.
    """

    release_id: str
    run_id: str
    index: int
    name: str
    mechanism: str
    noise_std: float
    sensitivity: float
    cost: str
    when: str
    committed: int | None = None


@dataclass(frozen=True)
class RunRecord:
    """One run of an account's history, with its releases in order.

    ``journal`` is the id of the journal that keeps its values and ``library`` the version that planned it. ``unit`` is
    what its guarantee is about, and ``group_size`` how many of these the account was charged for
    (`dpdist.privacy.protected_units`). None where an earlier version charged it.
    """

    account: str
    dataset_id: str
    run_id: str
    digest: str
    charge: Charge
    when: str
    user: str | None
    label: str | None
    total: Sums
    """What was spent on the account once this run was charged."""
    journal: str | None = None
    library: str | None = None
    unit: str | None = None
    group_size: int | None = None
    releases: tuple[ReleaseRecord, ...] = ()

    @property
    def epsilon(self) -> float:
        """What the run was charged."""
        return self.charge.epsilon

    @property
    def delta(self) -> float:
        """What the run was charged."""
        return self.charge.delta


def balance_columns(balance: Balance) -> tuple[str | None, ...]:
    """A balance as the last columns of a run."""
    return encoded(balance.total), encoded(balance.fold), encoded(balance.split)


def check_sums(db: Transaction) -> int:
    """Add the charges of all runs up again, from the charges alone; return how many there are.

    Raises
    ------
    LedgerError
        Where a charge is missing, or the charges up to a run do not come to the balance that was kept with it.
    """
    if lost := db.execute(_CHARGE_WITHOUT_RUN).fetchone():
        raise LedgerError(f"the ledger has charged the run {lost[0]!r} and has no such run: {LINE_CHANGED}")
    count = 0
    for (account,) in db.execute(ACCOUNTS).fetchall():
        rows = db.execute(_BALANCES, (account,)).fetchall()
        runs = [run_record(row) for _, _, *row in rows]
        for (fold, split, *_), run, summed in zip(rows, runs, balances(run.charge for run in runs), strict=True):
            if (encoded(run.total), fold, split) != balance_columns(summed):
                raise LedgerError(
                    f"the charges of {account!r} up to the run {run.run_id!r} do not add up: {LINE_CHANGED}"
                )
            count += 1
    return count


@as_written
def run_record(row: Sequence[Any]) -> RunRecord:
    epsilon, delta, neighbours, mu, split, fold, *rest = row
    account, dataset_id, run_id, digest, when, user, label, journal, library, unit, group_size, total = rest
    charge = Charge(epsilon, delta, Neighbours(neighbours), mu, split, fold)
    names = (account, dataset_id, run_id, digest, charge, when, user, label)
    return RunRecord(*names, decoded(total), journal, library, unit, group_size)


def enter_journal(db: Transaction, journal_id: str, path: str) -> None:
    """Write down where a journal was last used."""
    db.execute(_ADD_JOURNAL, (journal_id, path))


def whoami() -> str:
    """Who works with the ledger: the account and the host of this process, ``ann@node1``."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user without a name
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@functools.cache
def library() -> str:
    """The version of dpdist that runs."""
    return version("dpdist")


def plan_in(digest: str) -> str:
    """The digest of a plan on whatever edition of its dataset."""
    return digest.partition(_EDITION)[0]


def edition_of(digest: str, edition: str | None) -> str:
    """The digest of a plan on one edition of its dataset (None: there is but one)."""
    return digest if edition is None else f"{digest}{_EDITION}{edition}"

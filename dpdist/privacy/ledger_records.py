"""What the tables of a ledger hold, as SQL and as records; only `dpdist.privacy.ledger` reads and writes them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from dpdist.errors import Forgotten, LedgerError
from dpdist.privacy import heads
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.damage import as_written
from dpdist.privacy.filter import TOLERANCE, Charge, Composition, Limit
from dpdist.privacy.migrations import Schema
from dpdist.privacy.sqlite import utc_now
from dpdist.privacy.totals import NOTHING, Balance, Sums, balances, charged, decoded, encoded
from dpdist.privacy.units import About, of_group, unit_of_account

# Every statement the ledger knows. Plain SQL: another database needs its own `Database` and nothing else.
_VERSION_1 = (
    """CREATE TABLE dpdist_limits (
        dataset_id TEXT NOT NULL, number INTEGER NOT NULL, set_at TEXT NOT NULL,
        epsilon REAL NOT NULL, delta REAL NOT NULL, neighbours TEXT NOT NULL, composition TEXT NOT NULL,
        PRIMARY KEY (dataset_id, number))""",
    """CREATE TABLE dpdist_runs (
        run_id TEXT PRIMARY KEY NOT NULL, dataset_id TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL,
        epsilon REAL NOT NULL, delta REAL NOT NULL, neighbours TEXT NOT NULL, mu REAL, split TEXT, fold INTEGER,
        charged_at TEXT NOT NULL, user_name TEXT, label TEXT,
        UNIQUE (dataset_id, number))""",
    """CREATE TABLE dpdist_releases (
        release_id TEXT PRIMARY KEY NOT NULL, run_id TEXT NOT NULL REFERENCES dpdist_runs (run_id),
        position INTEGER NOT NULL, name TEXT NOT NULL, mechanism TEXT NOT NULL,
        noise_std REAL NOT NULL, sensitivity REAL NOT NULL, cost TEXT NOT NULL, recorded_at TEXT NOT NULL,
        UNIQUE (run_id, position))""",
)


def _open_accounts(db: Any) -> None:
    """Every dataset that was charged or limited before there were accounts has one of its own name.

    Its unit is that of its dataset, which a ledger did not know: the next charge tells it. The head's number starts at
    the number of writes so far, hence above all numbers of runs.
    """
    counts = [db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("dpdist_runs", "dpdist_limits")]
    heads.begin(db, sum(counts))
    named = db.execute("SELECT dataset_id FROM dpdist_runs UNION SELECT account FROM dpdist_limits")
    for (dataset_id,) in named.fetchall():
        open_account(db, dataset_id, dataset_id)
        runs = [run_record(row) for row in db.execute(RUNS, (dataset_id,)).fetchall()]
        for run, balance in zip(runs, balances(run.charge for run in runs), strict=True):
            db.execute(_SET_BALANCE, (*balance_columns(balance), run.run_id))


_VERSION_2 = (
    "CREATE TABLE dpdist_ledger (id TEXT PRIMARY KEY NOT NULL)",
    """CREATE TABLE dpdist_heads (
        number INTEGER PRIMARY KEY NOT NULL, token TEXT NOT NULL, what TEXT NOT NULL, subject TEXT NOT NULL,
        written_at TEXT NOT NULL)""",
    # Who shares an account, and what it is about: a row, an owner of several, a label, an answer; NULL: not yet said.
    "CREATE TABLE dpdist_accounts (account TEXT PRIMARY KEY NOT NULL, unit TEXT, opened_at TEXT NOT NULL)",
    # Named: whether anybody can say later that other data are about the same people.
    """CREATE TABLE dpdist_datasets (
        dataset_id TEXT PRIMARY KEY NOT NULL, account TEXT NOT NULL REFERENCES dpdist_accounts (account),
        named INTEGER NOT NULL)""",
    "CREATE INDEX dpdist_unnamed ON dpdist_datasets (named) WHERE named = 0",
    "CREATE INDEX dpdist_restored ON dpdist_heads (number) WHERE what = 'restore'",
    # Where others saw this ledger stand before it was restored from a copy: what they remember is charged again.
    "CREATE TABLE dpdist_recalled (number INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY (number, token))",
    # Where the values of runs are kept: the journal's own id, and where it was when it was last used.
    "CREATE TABLE dpdist_journals (id TEXT PRIMARY KEY NOT NULL, path TEXT NOT NULL)",
    "ALTER TABLE dpdist_limits RENAME COLUMN dataset_id TO account",
    "ALTER TABLE dpdist_runs ADD COLUMN account TEXT NOT NULL DEFAULT ''",
    "UPDATE dpdist_runs SET account = dataset_id",
    "CREATE INDEX dpdist_runs_by_account ON dpdist_runs (account, number)",
    # What was spent once the run was charged (`dpdist.privacy.totals`): on the account, and on the part that it reads.
    "ALTER TABLE dpdist_runs ADD COLUMN total TEXT",
    "ALTER TABLE dpdist_runs ADD COLUMN fold_total TEXT",
    "ALTER TABLE dpdist_runs ADD COLUMN split_total TEXT",
    "CREATE INDEX dpdist_runs_by_fold ON dpdist_runs (account, split, fold, number) WHERE split IS NOT NULL",
    "CREATE INDEX dpdist_runs_by_split ON dpdist_runs (account, split, number) WHERE split IS NOT NULL",
    "ALTER TABLE dpdist_runs ADD COLUMN unit TEXT",  # of the guarantee that was charged, before any conversion
    "ALTER TABLE dpdist_runs ADD COLUMN group_size INTEGER",  # how many such units the account paid for
    "ALTER TABLE dpdist_runs ADD COLUMN journal TEXT REFERENCES dpdist_journals (id)",  # NULL: of an earlier version
    "ALTER TABLE dpdist_runs ADD COLUMN library TEXT",  # the version that made the plan
    "ALTER TABLE dpdist_releases ADD COLUMN committed INTEGER",  # the number of the head; NULL: no value that counts
    _open_accounts,
)
SCHEMA = Schema("ledger", "dpdist_runs", (_VERSION_1, _VERSION_2))
TABLES = (
    "dpdist_ledger", "dpdist_heads", "dpdist_recalled", "dpdist_accounts", "dpdist_datasets", "dpdist_journals",
    "dpdist_limits", "dpdist_runs", "dpdist_releases",
)  # fmt: skip
"""Each after those that it refers to."""
LIMIT = """SELECT epsilon, delta, neighbours, composition, number FROM dpdist_limits
    WHERE account = ? ORDER BY number DESC LIMIT 1"""
LIMITS = """SELECT epsilon, delta, neighbours, composition, set_at FROM dpdist_limits
    WHERE account = ? ORDER BY number"""
_ADD_LIMIT = """INSERT INTO dpdist_limits (account, number, set_at, epsilon, delta, neighbours, composition)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_OF_A_RUN = """epsilon, delta, neighbours, mu, split, fold, account,
    dataset_id, run_id, digest, charged_at, user_name, label, journal, library, unit, group_size, total"""
_RUN_COLUMNS = f"SELECT {_OF_A_RUN} FROM dpdist_runs"
RUN = f"{_RUN_COLUMNS} WHERE run_id = ?"
RUNS = f"{_RUN_COLUMNS} WHERE account = ? ORDER BY number"
_LAST_TWO = f"{_RUN_COLUMNS} WHERE account = ? ORDER BY number DESC LIMIT 2"
_RESTORED = """SELECT written_at FROM dpdist_heads WHERE what = 'restore' AND number >
    (SELECT number FROM dpdist_runs WHERE run_id = ?) ORDER BY number DESC LIMIT 1"""
_RECALLED = "SELECT what FROM dpdist_heads WHERE number = (SELECT number FROM dpdist_runs WHERE run_id = ?)"
EVENTS = "SELECT written_at, what, subject FROM dpdist_heads WHERE what IN ('restore', 'move') ORDER BY number"
ANY_RUN = "SELECT 1 FROM dpdist_runs LIMIT 1"
_STATE = """SELECT set_.epsilon, set_.delta, set_.neighbours, set_.composition, last.neighbours, last.total,
    (SELECT unit FROM dpdist_accounts WHERE account = ?)
    FROM (SELECT 1 AS one) AS one
    LEFT JOIN (SELECT * FROM dpdist_limits WHERE account = ? ORDER BY number DESC LIMIT 1) AS set_ ON 1 = 1
    LEFT JOIN (SELECT * FROM dpdist_runs WHERE account = ? ORDER BY number DESC LIMIT 1) AS last ON 1 = 1"""
_LAST_OF_FOLD = """SELECT fold_total FROM dpdist_runs WHERE account = ? AND split = ? AND fold = ?
    ORDER BY number DESC LIMIT 1"""
_LAST_OF_SPLIT = """SELECT split_total FROM dpdist_runs WHERE account = ? AND split = ?
    ORDER BY number DESC LIMIT 1"""
BEFORE = """SELECT earlier.total FROM dpdist_runs AS run JOIN dpdist_runs AS earlier
    ON earlier.account = run.account AND earlier.number < run.number WHERE run.run_id = ?
    ORDER BY earlier.number DESC LIMIT 1"""
ADD_RUN = """INSERT INTO dpdist_runs (number, account, run_id, dataset_id, digest,
    epsilon, delta, neighbours, mu, split, fold, charged_at, user_name, label, journal, library, unit, group_size,
    total, fold_total, split_total)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_BALANCES = f"SELECT fold_total, split_total, {_OF_A_RUN} FROM dpdist_runs WHERE account = ? ORDER BY number"
_CHARGE_WITHOUT_RUN = """SELECT subject FROM dpdist_heads AS head WHERE what = 'charge' AND NOT EXISTS
    (SELECT 1 FROM dpdist_runs AS run WHERE run.run_id = head.subject AND run.number = head.number)"""
_SET_BALANCE = "UPDATE dpdist_runs SET total = ?, fold_total = ?, split_total = ? WHERE run_id = ?"
RECEIPT = (
    "number", "account", "run_id", "dataset_id", "digest", "epsilon", "delta", "neighbours", "mu", "split", "fold",
    "charged_at", "user_name", "label", "journal", "library", "unit", "group_size",
)  # fmt: skip
"""All that was charged for a run, as others keep it: a ledger that has forgotten the run can charge it again."""
_RECEIPT = f"SELECT {', '.join(RECEIPT)} FROM dpdist_runs WHERE run_id = ?"
BIND = "UPDATE dpdist_runs SET journal = ? WHERE run_id = ? AND journal IS NULL"
_ADD_JOURNAL = """INSERT INTO dpdist_journals (id, path) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET path = excluded.path"""
_JOURNAL_PATH = "SELECT path FROM dpdist_journals WHERE id = ?"
_JOURNAL_OF = """SELECT path FROM dpdist_journals WHERE id IN
    (SELECT journal FROM dpdist_runs WHERE run_id = ?)"""
_RELEASE_COLUMNS = """SELECT release_id, run_id, position, name, mechanism, noise_std, sensitivity,
    cost, recorded_at, committed FROM dpdist_releases"""
COMMITTED = "SELECT run_id, committed FROM dpdist_releases WHERE release_id = ?"
COMMIT = "UPDATE dpdist_releases SET committed = ? WHERE release_id = ? AND committed IS NULL"
RELEASE = f"{_RELEASE_COLUMNS} WHERE release_id = ? OR (run_id = ? AND position = ?)"
RELEASES = f"{_RELEASE_COLUMNS} WHERE run_id = ? ORDER BY position"
ADD_RELEASE = """INSERT INTO dpdist_releases (release_id, run_id, position, name, mechanism, noise_std, sensitivity,
    cost, recorded_at, committed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
ACCOUNTS = "SELECT account FROM dpdist_accounts ORDER BY account"
_ADD_ACCOUNT = "INSERT INTO dpdist_accounts (account, opened_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
_ADD_DATASET = "INSERT INTO dpdist_datasets (dataset_id, account, named) VALUES (?, ?, ?)"
UNNAMED = "SELECT 1 FROM dpdist_datasets WHERE named = 0 LIMIT 1"
DATASETS = "SELECT dataset_id FROM dpdist_datasets WHERE account = ? ORDER BY dataset_id"
SET_UNIT = "UPDATE dpdist_accounts SET unit = ? WHERE account = ?"
_ACCOUNT_OF = "SELECT account FROM dpdist_datasets WHERE dataset_id = ?"

_EDITION = "@"
_LINE_CHANGED = "a line was changed or lost. Restore the newest copy of the ledger, and run nothing until then"


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
    (`dpdist.privacy.units`). None where an earlier version charged it.
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


def open_account(db: Any, account: str, dataset_id: str | None = None, named: bool = True) -> None:
    """Open an account unless there is one, and say whose it is.

    A dataset has one account for ever: with a second one, its limit would begin anew.
    """
    on_file = None if dataset_id is None else account_of(db, dataset_id)
    if on_file is None:
        db.execute(_ADD_ACCOUNT, (account, utc_now()))
        if dataset_id is not None:
            db.execute(_ADD_DATASET, (dataset_id, account, int(named)))
    elif on_file != account:
        raise LedgerError(
            f"the dataset {dataset_id!r} is charged to the account {on_file!r} and cannot be charged to {account!r} "
            f"as well: a limit would begin anew. Open it with account={on_file!r}"
        )


def account_of(db: Any, dataset_id: str) -> str | None:
    """The account that a dataset pays from, None if it has none yet."""
    row = db.execute(_ACCOUNT_OF, (dataset_id,)).fetchone()
    return None if row is None else str(row[0])


def read_limit(db: Any, account: str) -> tuple[Limit | None, int]:
    """The limit in force and its number; (None, 0) without one."""
    row = db.execute(LIMIT, (account,)).fetchone()
    if row is None:
        return None, 0
    *terms, number = row
    return limit_of(*terms), number


def add_limit(db: Any, account: str, limit: Limit) -> None:
    """Put a limit in force."""
    _, number = read_limit(db, account)
    terms = (limit.budget.epsilon, limit.budget.delta, limit.neighbours.value, limit.composition)
    db.execute(_ADD_LIMIT, (account, number + 1, utc_now(), *terms))


@as_written
def limit_of(epsilon: float, delta: float, neighbours: str, composition: Composition) -> Limit:
    return Limit(Budget(epsilon, delta), Neighbours(neighbours), composition)


def read_receipt(db: Any, run_id: str) -> dict[str, Any]:
    """The receipt of a run on file, and which ledger gave it."""
    paid = dict(zip(RECEIPT, db.execute(_RECEIPT, (run_id,)).fetchone(), strict=True))
    path = db.execute(_JOURNAL_PATH, (paid["journal"],)).fetchone()
    unit = read_account(db, paid["account"]).unit
    return {"ledger": heads.read_id(db), "journal_path": path and path[0], "account_unit": unit, **paid}


def read_charges(db: Any, account: str) -> list[Charge]:
    """All charges on an account, oldest first."""
    return [run_record(row).charge for row in db.execute(RUNS, (account,))]


@dataclass(frozen=True)
class Account:
    """What the next charge has to know of an account: its limit, its relation, what its runs come to, and its unit."""

    name: str
    limit: Limit | None
    neighbours: Neighbours | None
    total: Sums
    unit: str | None

    def unit_for(self, about: About) -> str:
        """What it is about, or will be once this is charged."""
        is_new = self.limit is None and self.neighbours is None
        return unit_of_account(about, is_new) if self.unit is None else self.unit


def read_account(db: Any, account: str) -> Account:
    """An account as its last run left it."""
    *terms, neighbours, total, unit = db.execute(_STATE, (account, account, account)).fetchone()
    limit = None if terms[0] is None else limit_of(*terms)
    relation = limit.neighbours if limit else neighbours and Neighbours(neighbours)
    _check_last(db, account)
    return Account(account, limit, relation, decoded(total), unit)


def _check_last(db: Any, account: str) -> None:
    """Refuse a balance that does not follow from the one before it and the charge between them."""
    newest = [run_record(row) for row in db.execute(_LAST_TWO, (account,)).fetchall()]
    if not newest:
        return
    last, *earlier = newest
    before = earlier[0].total if earlier else NOTHING
    after = before.plus(Sums.of(last.charge))
    if last.charge.split is None:
        follows = last.total == after
    else:  # at most the whole charge, as far as its fold is the dearest now
        follows = last.total.dearest(before) == last.total and last.total.dearest(after) == after
    if not follows:
        raise LedgerError(f"the charges of {account!r} up to the run {last.run_id!r} do not add up: {_LINE_CHANGED}")


def balance_after(db: Any, account: Account, charge: Charge) -> Balance:
    """What would be spent after one more charge."""
    if charge.split is None:
        return charged(charge, account.total, NOTHING, NOTHING)
    part = (account.name, charge.split)
    fold = db.execute(_LAST_OF_FOLD, (*part, charge.fold)).fetchone() or (None,)
    split = db.execute(_LAST_OF_SPLIT, part).fetchone() or (None,)
    return charged(charge, account.total, decoded(*fold), decoded(*split))


def balance_columns(balance: Balance) -> tuple[str | None, ...]:
    """A balance as the last columns of a run."""
    return encoded(balance.total), encoded(balance.fold), encoded(balance.split)


def check_sums(db: Any) -> int:
    """Add the charges of all runs up again, from the charges alone; return how many there are.

    Raises
    ------
    LedgerError
        Where a charge is missing, or the charges up to a run do not come to the balance that was kept with it.
    """
    if lost := db.execute(_CHARGE_WITHOUT_RUN).fetchone():
        raise LedgerError(f"the ledger has charged the run {lost[0]!r} and has no such run: {_LINE_CHANGED}")
    count = 0
    for (account,) in db.execute(ACCOUNTS).fetchall():
        rows = db.execute(_BALANCES, (account,)).fetchall()
        runs = [run_record(row) for _, _, *row in rows]
        for (fold, split, *_), run, summed in zip(rows, runs, balances(run.charge for run in runs), strict=True):
            if (encoded(run.total), fold, split) != balance_columns(summed):
                raise LedgerError(
                    f"the charges of {account!r} up to the run {run.run_id!r} do not add up: {_LINE_CHANGED}"
                )
            count += 1
    return count


@as_written
def run_record(row: Sequence) -> RunRecord:
    epsilon, delta, neighbours, mu, split, fold, *rest = row
    account, dataset_id, run_id, digest, when, user, label, journal, library, unit, group_size, total = rest
    charge = Charge(epsilon, delta, Neighbours(neighbours), mu, split, fold)
    names = (account, dataset_id, run_id, digest, charge, when, user, label)
    return RunRecord(*names, decoded(total), journal, library, unit, group_size)


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=TOLERANCE)


def enter_journal(db: Any, journal_id: str, path: str) -> None:
    """Write down where a journal was last used."""
    db.execute(_ADD_JOURNAL, (journal_id, path))


def check_journal(db: Any, record: RunRecord, journal_id: str | None) -> None:
    """Refuse to go on with a run in another journal than the one that keeps its values."""
    if None in (record.journal, journal_id) or record.journal == journal_id:
        return
    (path,) = db.execute(_JOURNAL_PATH, (record.journal,)).fetchone()
    raise Forgotten(
        f"the values of the run {record.run_id!r} are kept in the journal with the id {record.journal}, last used at "
        f"{path}, and this is another one, where they would be drawn a second time: name that journal, or restore it. "
        "Nothing was drawn"
    )


def check_may_go_on(db: Any, record: RunRecord) -> None:
    """Refuse to go on with a run from before the ledger was restored: it could draw a value that was seen again."""
    restored = db.execute(_RESTORED, (record.run_id,)).fetchone()
    again = db.execute(_RECALLED, (record.run_id,)).fetchone()
    if restored is None and (again is None or again[0] != "recall"):
        return
    raise Forgotten(
        f"the run {record.run_id!r} was charged before the ledger was restored from a copy"
        f"{'' if restored is None else f' ({restored[0]})'}, and which of its values were seen since that copy is not "
        "on file: it cannot go on, its results are what was released then. Start a new run. Nothing was drawn"
    )


def check_uncommitted(db: Any, release: ReleaseRecord) -> None:
    """Refuse to draw a release again that has had a value: somebody may have seen it."""
    if release.committed is None:
        return
    row = db.execute(_JOURNAL_OF, (release.run_id,)).fetchone()
    raise Forgotten(
        f"release {release.index} of the run {release.run_id!r} has been drawn, and its value is missing in the "
        f"journal {row[0] if row else 'of the ledger'}: the journal was emptied or restored from a copy. Restore its "
        "newest state. Nothing was drawn"
    )


@functools.cache
def library() -> str:
    """The version of dpdist that runs."""
    return version("dpdist")


def _plan_in(digest: str) -> str:
    return digest.partition(_EDITION)[0]


def edition_of(digest: str, edition: str | None) -> str:
    """The digest of a plan on one edition of its dataset (None: there is but one)."""
    return digest if edition is None else f"{digest}{_EDITION}{edition}"


def check_same_run(record: RunRecord, dataset_id: str, digest: str, charge: Charge, about: About) -> None:
    """Refuse to go on with a run as something else; `charge` is of one unit, on file is what the account paid."""
    old, new = record.charge, of_group(charge, record.group_size or 1)
    same_price = _close(old.epsilon, new.epsilon) and _close(old.delta, new.delta) and _close(old.mu, new.mu)
    same_rows = (old.neighbours, old.split, old.fold) == (new.neighbours, new.split, new.fold)
    if record.dataset_id == dataset_id and record.digest != digest and _plan_in(record.digest) == _plan_in(digest):
        raise LedgerError(
            f"run id {record.run_id!r} was begun at {record.when} on another version of the dataset {dataset_id!r}, "
            "which has been written again since. One charge does not pay for releases on two versions, and those of "
            "the first say nothing about the second: choose a new run id, or restore the rows that the run was begun on"
        )
    same_plan = (record.dataset_id, record.digest) == (dataset_id, digest)
    if not (same_plan and same_price and same_rows and record.unit in (None, about.charged)):
        raise LedgerError(
            f"run id {record.run_id!r} was used at {record.when} for a different plan or dataset; choose a new run id. "
            f"To resume that run, start it with the parameters it had{_versions(record)}."
        )


def other_release(record: RunRecord, index: int, release_id: str) -> LedgerError:
    """What is raised where a run that goes on asks for something else than it announced."""
    return LedgerError(
        f"release {index} ({release_id!r}) of run {record.run_id!r} is on file with other parameters: the plan has "
        f"changed; start a new run, or go on with the parameters it had{_versions(record)}"
    )


def _versions(record: RunRecord) -> str:
    """Which versions planned a run and go on with it, where that may be why the two differ."""
    if record.library in (None, library()):
        return ""
    return (
        f" and with dpdist {record.library}, which planned it: this is dpdist {library()}, and what it decides by "
        "itself may differ"
    )


def same_release(old: ReleaseRecord, new: ReleaseRecord) -> bool:
    """The same release announced again: everything equal but the time, numbers up to rounding."""
    names = replace(new, noise_std=old.noise_std, sensitivity=old.sensitivity, when=old.when, committed=old.committed)
    return names == old and _close(old.noise_std, new.noise_std) and _close(old.sensitivity, new.sensitivity)

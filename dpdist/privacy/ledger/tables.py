"""The tables of a ledger, version by version (`dpdist.privacy.ledger.migrations`)."""

from __future__ import annotations

from dpdist.privacy.accounting.totals import balances
from dpdist.privacy.ledger import heads
from dpdist.privacy.ledger.accounts import open_account
from dpdist.privacy.ledger.migrations import Schema
from dpdist.privacy.ledger.records import RUNS, balance_columns, run_record
from dpdist.privacy.ledger.transaction import Transaction

_SET_BALANCE = "UPDATE dpdist_runs SET total = ?, fold_total = ?, split_total = ? WHERE run_id = ?"
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


def _open_accounts(db: Transaction) -> None:
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
    # What was spent once the run was charged (`dpdist.privacy.accounting.totals`): on the account, and on the part that
    # it reads.
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
_VERSION_3 = (
    # Where an account is on its way to, or came from (`dpdist.privacy.ledger.moving`): "coming", "here" or "gone".
    """CREATE TABLE dpdist_moves (
        account TEXT PRIMARY KEY NOT NULL, stage TEXT NOT NULL, ledger TEXT NOT NULL, path TEXT NOT NULL)""",
    # Ledgers in which it was charged before, and where these stood: datasets that they limited belong to this one now.
    """CREATE TABLE dpdist_origins (
        account TEXT NOT NULL, ledger TEXT NOT NULL, PRIMARY KEY (account, ledger))""",
    """CREATE TABLE dpdist_taken (
        ledger TEXT NOT NULL, number INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY (ledger, number, token))""",
)
SCHEMA = Schema("ledger", "dpdist_runs", (_VERSION_1, _VERSION_2, _VERSION_3))
TABLES = (
    "dpdist_ledger", "dpdist_heads", "dpdist_recalled", "dpdist_accounts", "dpdist_datasets", "dpdist_journals",
    "dpdist_limits", "dpdist_runs", "dpdist_releases", "dpdist_moves", "dpdist_origins", "dpdist_taken",
)  # fmt: skip
"""Each after those that it refers to."""

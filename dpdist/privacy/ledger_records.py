"""What the tables of a ledger hold, as SQL and as records; only `dpdist.privacy.ledger` reads and writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpdist.errors import LedgerError
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.filter import TOLERANCE, Charge, Composition, Limit
from dpdist.privacy.migrations import Schema

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
SCHEMA = Schema("ledger", "dpdist_runs", (_VERSION_1,))
LIMIT = """SELECT epsilon, delta, neighbours, composition, number FROM dpdist_limits
    WHERE dataset_id = ? ORDER BY number DESC LIMIT 1"""
LIMITS = """SELECT epsilon, delta, neighbours, composition, set_at FROM dpdist_limits
    WHERE dataset_id = ? ORDER BY number"""
ADD_LIMIT = "INSERT INTO dpdist_limits VALUES (?, ?, ?, ?, ?, ?, ?)"
_RUN_COLUMNS = """SELECT epsilon, delta, neighbours, mu, split, fold,
    dataset_id, run_id, digest, charged_at, user_name, label FROM dpdist_runs"""
RUN = f"{_RUN_COLUMNS} WHERE run_id = ?"
RUNS = f"{_RUN_COLUMNS} WHERE dataset_id = ? ORDER BY number"
ADD_RUN = "INSERT INTO dpdist_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RELEASE_COLUMNS = """SELECT release_id, run_id, position, name, mechanism, noise_std, sensitivity,
    cost, recorded_at FROM dpdist_releases"""
RELEASE = f"{_RELEASE_COLUMNS} WHERE release_id = ? OR (run_id = ? AND position = ?)"
RELEASES = f"{_RELEASE_COLUMNS} WHERE run_id = ? ORDER BY position"
ADD_RELEASE = "INSERT INTO dpdist_releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
DATASETS = "SELECT dataset_id FROM dpdist_runs UNION SELECT dataset_id FROM dpdist_limits ORDER BY dataset_id"

_EDITION = "@"


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
    """One release of a run, as it was announced before its noise was drawn."""

    release_id: str
    run_id: str
    index: int
    name: str
    mechanism: str
    noise_std: float
    sensitivity: float
    cost: str
    when: str


@dataclass(frozen=True)
class RunRecord:
    """One run of a dataset's history, with its releases in order."""

    dataset_id: str
    run_id: str
    digest: str
    charge: Charge
    when: str
    user: str | None
    label: str | None
    releases: tuple[ReleaseRecord, ...] = ()

    @property
    def epsilon(self) -> float:
        """What the run was charged."""
        return self.charge.epsilon

    @property
    def delta(self) -> float:
        """What the run was charged."""
        return self.charge.delta


def read_limit(db: Any, dataset_id: str) -> tuple[Limit | None, int]:
    """The limit in force and its number; (None, 0) without one."""
    row = db.execute(LIMIT, (dataset_id,)).fetchone()
    if row is None:
        return None, 0
    *terms, number = row
    return limit_of(*terms), number


def limit_of(epsilon: float, delta: float, neighbours: str, composition: Composition) -> Limit:
    return Limit(Budget(epsilon, delta), Neighbours(neighbours), composition)


def read_charges(db: Any, dataset_id: str) -> list[Charge]:
    return [run_record(row).charge for row in db.execute(RUNS, (dataset_id,))]


def run_record(row: Sequence) -> RunRecord:
    epsilon, delta, neighbours, mu, split, fold, *rest = row
    dataset_id, run_id, digest, when, user, label = rest
    charge = Charge(epsilon, delta, Neighbours(neighbours), mu, split, fold)
    return RunRecord(dataset_id, run_id, digest, charge, when, user, label)


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=TOLERANCE)


def edition_of(digest: str, edition: str | None) -> str:
    """The digest of a plan on one edition of its dataset (None: there is but one)."""
    return digest if edition is None else f"{digest}{_EDITION}{edition}"


def check_same_run(record: RunRecord, dataset_id: str, digest: str, charge: Charge) -> None:
    old = record.charge
    same_price = _close(old.epsilon, charge.epsilon) and _close(old.delta, charge.delta) and _close(old.mu, charge.mu)
    same_rows = (old.neighbours, old.split, old.fold) == (charge.neighbours, charge.split, charge.fold)
    same_plan = record.digest.partition(_EDITION)[0] == digest.partition(_EDITION)[0]
    if record.dataset_id == dataset_id and same_plan and record.digest != digest:
        raise LedgerError(
            f"run id {record.run_id!r} was begun at {record.when} on another version of the dataset {dataset_id!r}, "
            "which has been written again since. One charge does not pay for releases on two versions, and those of "
            "the first say nothing about the second: choose a new run id, or restore the rows that the run was begun on"
        )
    if (record.dataset_id, record.digest) != (dataset_id, digest) or not (same_price and same_rows):
        raise LedgerError(
            f"run id {record.run_id!r} was used at {record.when} for a different plan or dataset; choose a new run id. "
            "To resume that run, start it with the parameters it had."
        )


def same_release(old: ReleaseRecord, new: ReleaseRecord) -> bool:
    """The same release announced again: everything equal but the time, numbers up to rounding."""
    names = replace(new, noise_std=old.noise_std, sensitivity=old.sensitivity, when=old.when)
    return names == old and _close(old.noise_std, new.noise_std) and _close(old.sensitivity, new.sensitivity)

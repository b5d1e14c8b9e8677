"""Which ledger a job is charged to, and what is on file there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpdist.pipeline.job import Job
from dpdist.pipeline.rundir import LEDGER
from dpdist.privacy.filter import Charge, Limit, total
from dpdist.privacy.ledger import Ledger, default_path
from dpdist.privacy.postgres import is_address


def ledger_path(job: Job) -> str | None:
    """The file or address that is charged; None for a ledger in memory, which generated data without an output gets."""
    if job.ledger is not None:
        return str(job.ledger)
    if "generate" not in job.data:
        return default_path()
    return None if job.output is None else str(Path(job.output) / LEDGER)


def recorded(path: str | None, output: str | None) -> str | None:
    """How a run's record names its ledger: relative to the run directory if it is in there, else in full.

    Examples
    --------
    >>> recorded("runs/monday/ledger.sqlite", "runs/monday"), recorded("/srv/ledger.sqlite", "runs/monday")
    ('ledger.sqlite', '/srv/ledger.sqlite')
    """
    if path is None or is_address(path):
        return path
    full = os.path.abspath(path)
    inside = output is not None and os.path.dirname(full) == os.path.abspath(output)
    return os.path.basename(full) if inside else full


def spent(limit: Limit | None, charges: Sequence[Charge]) -> dict[str, float]:
    """A sum of charges, by the rule of the account, as plain numbers."""
    amount = total(limit, charges)
    return {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}


def before_and_after(ledger: Ledger, dataset_id: str, run_id: str) -> dict[str, Any]:
    """What was spent on the dataset before and after a run on file; a run that was resumed counts once."""
    limit, runs = ledger.limit(dataset_id), ledger.history(dataset_id)
    position = [run.run_id for run in runs].index(run_id)
    charges = [run.charge for run in runs]
    return {
        "before": spent(limit, charges[:position]),
        "after": spent(limit, charges[: position + 1]),
        "limit": shown_limit(limit),
    }


def shown_limit(limit: Limit | None) -> dict[str, float] | None:
    """A limit as plain numbers."""
    return None if limit is None else {"epsilon": limit.budget.epsilon, "delta": limit.budget.delta}


def is_charged(path: str, dataset_id: str, run_id: str) -> bool:
    """Whether a run is on file; raises `LedgerError` where nobody can say."""
    if not is_address(path) and not Path(path).exists():
        return False
    ledger = Ledger(path)
    try:
        return any(run.run_id == run_id for run in ledger.history(dataset_id))
    finally:
        ledger.close()

"""Which ledger a job is charged to, and what is on file there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from dpdist.errors import DpdistError
from dpdist.objects import is_object_store
from dpdist.pipeline.job import Job
from dpdist.pipeline.rundir import LEDGER, OutputError
from dpdist.pipeline.sections import PASSWORD, STORES, of_another_kind
from dpdist.privacy.filter import Limit, total
from dpdist.privacy.ledger import Ledger, default_path
from dpdist.privacy.postgres import has_table, is_address
from dpdist.privacy.totals import Sums


def ledger_path(job: Job) -> str | None:
    """The file or address that is charged; None for a ledger in memory, which generated data without an output gets."""
    if job.ledger is not None:
        return str(job.ledger)
    if "generate" not in job.data:
        path = default_path()
        if re.search(f"{PASSWORD}|{of_another_kind('ledger')}", path):
            raise DpdistError(
                f"DPDIST_LEDGER cannot be used: expected {STORES['ledger'][0]}, without a password, which goes into "
                "PGPASSWORD or PGPASSFILE"
            )
        return path
    if is_object_store(job.output):
        raise OutputError(
            f"output {job.output} cannot hold the ledger of a run on generated data: name one with the key ledger, "
            f"{STORES['ledger'][0]}. Nothing was charged"
        )
    return None if job.output is None else str(Path(job.output) / LEDGER)


def recorded(path: str | None, output: str | None) -> str | None:
    """How a run's record names its ledger or journal: relative to the run directory if it is in there, else in full.

    Examples
    --------
    >>> recorded("runs/monday/ledger.sqlite", "runs/monday"), recorded("/srv/ledger.sqlite", "runs/monday")
    ('ledger.sqlite', '/srv/ledger.sqlite')
    """
    if path is None or is_address(path) or is_object_store(path):
        return path
    full = os.path.abspath(path)
    inside = output is not None and os.path.dirname(full) == os.path.abspath(output)
    return os.path.basename(full) if inside else full


def spent(limit: Limit | None, sums: Sums) -> dict[str, float]:
    """What charges come to, by the rule of the account, as plain numbers."""
    amount = total(limit, sums)
    return {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}


def before_and_after(ledger: Ledger, dataset_id: str, run_id: str) -> dict[str, Any]:
    """What was spent on the dataset before and after a run on file; a run that was resumed counts once."""
    limit, run = ledger.limit(dataset_id), ledger.run(run_id)
    assert run is not None, "it was charged"
    return {
        "before": spent(limit, ledger.spent_before(run_id)),
        "after": spent(limit, run.total),
        "limit": shown_limit(limit),
    }


def shown_limit(limit: Limit | None) -> dict[str, float] | None:
    """A limit as plain numbers."""
    return None if limit is None else {"epsilon": limit.budget.epsilon, "delta": limit.budget.delta}


def exists(path: str) -> bool:
    """Whether there is such a ledger; makes none."""
    return has_table(path, "dpdist_runs") if is_address(path) else Path(path).exists()


def is_charged(path: str, dataset_id: str, run_id: str) -> bool:
    """Whether a run is on file; raises `LedgerError` where nobody can say."""
    if not exists(path):
        return False
    ledger = Ledger(path)
    try:
        run = ledger.run(run_id)
        return run is not None and run.dataset_id == dataset_id
    finally:
        ledger.close()

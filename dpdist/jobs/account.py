"""Which ledger a job is charged to, and what is on file there."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

from dpdist.errors import DpdistError, Forgotten
from dpdist.jobs.job import Job
from dpdist.jobs.sections import PASSWORD, STORES, of_another_kind
from dpdist.objects import is_object_store
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import Limit, total
from dpdist.privacy.accounting.totals import Sums
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.location import default_path, is_there
from dpdist.privacy.ledger.postgres import is_address
from dpdist.privacy.ledger.sqlite import MEMORY
from dpdist.runs.directory import LEDGER, OutputError, RunDirectory


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


def before_and_after(ledger: Ledger, run_id: str) -> dict[str, Any]:
    """What was spent on the account of a run on file, before and after it; a run that was resumed counts once."""
    run = ledger.run(run_id)
    assert run is not None, "it was charged"
    limit = ledger.limit(run.account)
    return {
        "before": spent(limit, ledger.spent_before(run_id)),
        "after": spent(limit, run.total),
        "limit": shown_limit(limit),
    }


def shown_limit(limit: Limit | None) -> dict[str, float] | None:
    """A limit as plain numbers."""
    return None if limit is None else {"epsilon": limit.budget.epsilon, "delta": limit.budget.delta}


def open_ledger(path: str | None, journal: str | None, place: RunDirectory | None) -> Ledger:
    """The ledger of a run; refused where its record names one that is not there, or has no charge of it."""
    if path is None or place is None:
        return Ledger(path or MEMORY, journal=journal)
    if (place.paid or place.head is not None) and not is_there(path):
        raise Forgotten(
            f"the run in {place.path} is paid for in the ledger {path}, and there is no ledger at that place: restore "
            "it. A new one would have forgotten what was spent. Nothing was charged"
        )
    ledger = Ledger(path, journal=journal, witnesses=[place])
    if place.paid and place.head is None and ledger.run(place.run_id) is None:
        ledger.close()
        raise Forgotten(
            f"the ledger {path} has no charge of the run in {place.path}, which is done or was started by an earlier "
            "version of dpdist: it was emptied, exchanged or restored from a copy. Restore its newest state; if it is "
            "certain that this run was never charged, name another output. Nothing was charged"
        )
    return ledger


def is_charged(path: str, run_id: str) -> bool:
    """Whether a run is on file; raises `LedgerError` where nobody can say."""
    return charge_of(path, run_id) is not None


def charge_of(path: str, run_id: str) -> Charge | None:
    """What the account paid for a run, which may be many times the epsilon of the run; None if it is not on file."""
    if not is_there(path):
        return None
    with closing(Ledger(path)) as ledger:
        run = ledger.run(run_id)
        return None if run is None else run.charge


def goes_on(path: str, run_id: str) -> bool:
    """Whether a run on file can be resumed."""
    with closing(Ledger(path)) as ledger:
        return ledger.goes_on(run_id)


def is_unused(path: str) -> bool:
    """Whether there is a ledger to which nothing was ever charged, and in which nothing is limited."""
    if not is_there(path):
        return False
    with closing(Ledger(path)) as ledger:
        return not ledger.accounts()

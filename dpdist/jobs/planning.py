"""What a job would release, at which noise and cost: from public numbers, before anything is read or charged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from dpdist.data import Units
from dpdist.data.folds import split_slots
from dpdist.engine.checks import check_plannable
from dpdist.engine.coordinator import stay
from dpdist.engine.local_cluster import capacity
from dpdist.engine.shards import streamed_bytes
from dpdist.errors import BudgetExceeded, Forgotten
from dpdist.jobs import job_data as inputs
from dpdist.jobs.account import ledger_path, shown_limit, spent
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.following import foresee
from dpdist.jobs.job import Job, locating, make_estimator
from dpdist.jobs.job_data import Size
from dpdist.jobs.scale import suggestion
from dpdist.local.local_estimator import LocalEstimator
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.accounting.totals import NOTHING, Sums
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.location import is_there
from dpdist.privacy.protected_units import About

FORMAT = "dpdist-plan/1"


def plan_job(job: Job, *, n_rows: int | None = None, n_features: int | None = None) -> dict[str, Any]:
    """The plan of a job as plain values.

    Parameters
    ----------
    job : Job
    n_rows, n_features : int, optional
        In place of the data's own; with both, the data need not exist.

    Returns
    -------
    dict
        ``plan.items`` has the lines of the plan with the standard deviation of their noise (and, as
        ``noise_multiplier``, per unit of sensitivity), ``guarantee`` what would hold, ``outlook`` (where the method has
        a formula, else None) the error to expect, and what it would take, ``scale`` how to cut the data and how many
        workers are worth it (`dpdist.jobs.scale`).
    """
    size = size_of(job, n_rows, n_features)
    record, plan = _planned(job, size)
    shown = _shown(job, size, plan)
    there = None if shown.schema is None else shown.partition_bytes
    scale = suggestion(shown.n_rows, shown.nbytes, shown.n_features, record["passes"], there)
    return {**record, "scale": scale}


def dry_run_job(job: Job, *, cluster: Any = None) -> dict[str, Any]:
    """`plan_job`, and what the ledger would say and how much memory a worker needs; ``cluster`` as in a job."""
    size = size_of(job, None, None)
    record, plan = _planned(job, size)
    held = memory(_shown(job, size, plan), _grows(job, size), *capacity(cluster))
    return {**record, "memory": held, "budget": account(job, size, plan)}


def _grows(job: Job, size: Size) -> float:
    """How many times larger rows are as a fit keeps them; 1 for data that does not exist yet, which is float64."""
    arrays = {} if size.schema is None else size.schema.arrays
    model = make_estimator(job)
    if not set(arrays) >= ({"X", "y"} if model.labelled else {"X"}):
        return 1.0
    return float(model.kept_row_bytes(arrays) / sum(spec.row_bytes for spec in arrays.values()))


def _shown(job: Job, size: Size, plan: Plan) -> Size:
    """How much memory the rows take would tell how many there are: where that is private, count the declared number."""
    return size if _public(plan, size) else inputs.to_be_written(job.params["n_public"], size.n_features)


def checked(job: Job, size: Size) -> tuple[Any, Plan]:
    """The estimator of a job and its plan; an error names the key and the line that are wrong."""
    with locating(job):
        model = make_estimator(job)
        if size.schema is not None:
            model.check_declared(size.schema)
        plan = model.plan(size.n_rows, size.n_features, **of_units(size))
    for item in plan.items:
        check_plannable(item, size.units, plan.neighbours)
    foresee(job, model, size.n_rows, size.n_features, **of_units(size))
    return model, plan


def of_units(size: Size) -> dict[str, Units]:
    """What an estimator's ``plan``, ``sensitivities`` and ``outlook`` need to know where units own several rows."""
    return {} if size.units.max_rows == 1 else {"units": size.units}


def passes(plan: Plan, names: Sequence[str]) -> float:
    """How often the data is gone through for releases of these names: a sample or a fold counts as its share."""
    counts = Counter(names)
    asked = (n * plan[name].passes * plan[name].rate * _share_of_rows(plan, plan[name]) for name, n in counts.items())
    return float(round(sum(asked), 9))


def memory(size: Size, grows: float, n_threads: int, workers_memory: float) -> dict[str, Any]:
    """Whether the rows stay in the workers' memory or are read again every round, and bytes of rows per thread.

    ``grows`` says how many times larger than the stored ones prepared rows are.
    """
    kept = round(size.nbytes * grows)
    resident = stay(kept, size.nbytes if size.in_memory else 0, workers_memory)
    held = kept / n_threads if resident else streamed_bytes(size.partition_bytes, size.remote) * max(1.0, grows)
    return {
        "worker_threads": n_threads,
        "workers_bytes": int(workers_memory),
        "data_bytes": size.nbytes,
        "resident": resident,
        "bytes_per_thread": int(held),
    }


def account(job: Job, size: Size, plan: Plan) -> dict[str, Any]:
    """What the ledger would have on file before and after, and whether it would let the run pass."""
    path = ledger_path(job)
    charge = Charge(plan.spent.epsilon, plan.spent.delta, plan.neighbours, plan.total_mu)
    limit, before, refusal = None, NOTHING, None
    if path is not None and size.account is not None and is_there(path):
        with closing(Ledger(path)) as ledger:
            on_file = ledger.account(size.account)
            limit, before = on_file.limit, on_file.total
            try:
                if size.ledger is not None:
                    ledger.check_remembered(size.ledger, f"the dataset {inputs.source(job)}", size.account)
                charge = ledger.can_afford(size.account, charge, About(size.units.name, plan.protects))
            except (BudgetExceeded, Forgotten) as error:
                refusal = str(error)
    elif size.ledger is not None:
        refusal = f"the dataset is limited by the ledger with the id {size.ledger.ledger}, which is not at {path}"
    return {
        "ledger": path,
        "journal": job.journal,
        "before": spent(limit, before),
        "after": spent(limit, before.plus(Sums.of(charge))),
        "limit": shown_limit(limit),
        "affordable": refusal is None,
        "refusal": refusal,
    }


def _planned(job: Job, size: Size) -> tuple[dict[str, Any], Plan]:
    model, plan = checked(job, size)
    names = [item.name for item in plan.items for _ in range(item.count)]
    method, reason = chosen_method(job, model, size)
    simulation = getattr(model, "random_state", None) is not None
    record = {
        "format": FORMAT,
        "id": method.id,
        "title": method.title,
        "reason": reason,
        "estimator": job.estimator,
        "asked": dict(job.asked),
        "data": {
            "source": inputs.source(job),
            "id": size.dataset_id,
            "account": size.account,
            "n_rows": size.n_rows if _public(plan, size) else None,
            "n_features": size.n_features,
        },
        "guarantee": plan.guarantee(simulation, size.units.name, size.units.max_rows).to_dict(),
        "simulation": simulation,
        "plan": {"accountant": plan.accountant, "items": _lines(model, plan, size)},
        "releases": plan.n_releases,
        "passes": passes(plan, names),
        "outlook": asdict(model.outlook(size.n_rows, size.n_features, **of_units(size))),
        "then": foresee(job, model, size.n_rows, size.n_features, **of_units(size)),
    }
    return record, plan


def _lines(model: Any, plan: Plan, size: Size) -> list[dict[str, Any]]:
    """The lines of the plan, with the noise of each whose query is known beforehand.

    In the local model: with the noise of one report, and the standard error of the mean that the reports of the line
    give, at the worst records.
    """
    if isinstance(model, LocalEstimator):
        return _lines_of_reports(model, plan, size)
    sensitivities = model.sensitivities(size.n_rows, size.n_features, **of_units(size))
    lines = []
    for item, line in zip(plan.items, plan.describe(), strict=True):
        sensitivity = sensitivities.get(item.name)
        per_unit = float(item.mechanism.noise_std(1.0))
        multiplier = None if math.isnan(per_unit) else per_unit  # NaN: the scale of the noise follows the data
        noise = None if sensitivity is None or multiplier is None else float(item.mechanism.noise_std(sensitivity))
        lines.append({**line, "sensitivity": sensitivity, "noise_std": noise, "noise_multiplier": multiplier})
    return lines


def _lines_of_reports(model: Any, plan: Plan, size: Size) -> list[dict[str, Any]]:
    groups = split_slots(size.n_rows, len(plan.items))
    lines = []
    for t, (group, line) in enumerate(zip(groups, plan.describe(), strict=True)):
        noise = float(model.protocol(size.n_rows, size.n_features, t).noise_std)
        error = noise / math.sqrt(group.n_rows)
        lines.append({**line, "noise_std": noise, "noise_multiplier": None, "standard_error": error})
    return lines


def size_of(job: Job, n_rows: int | None, n_features: int | None) -> Size:
    """The size of a job's data, but for the numbers that are given; with both of them the data need not exist."""
    if n_rows is not None and n_features is not None and not inputs.is_there(job):
        return inputs.to_be_written(n_rows, n_features)
    found = inputs.size(job)
    return replace(found, n_rows=n_rows or found.n_rows, n_features=n_features or found.n_features)


def _public(plan: Plan, size: Size) -> bool:
    """Whether the number of rows may be shown."""
    return plan.neighbours is Neighbours.REPLACE_ONE and size.units.counted


def _share_of_rows(plan: Plan, item: Item) -> float:
    """1, or one over the number of folds of the split that the plan reads."""
    if item.fold is None:
        return 1.0
    return 1 / len({other.fold for other in plan.items if other.fold is not None and other.fold[0] == item.fold[0]})

"""`run_job`: a validated job becomes a fitted model, a run directory and the object that ``dpdist run --json`` prints.

Nothing here computes; it opens the data and the ledger, fits the estimator, and writes down what was released, under
which guarantee, and what it cost. All numbers in the result are public or released; errors against a truth are there
for generated data only.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.engine.local_cluster import opened
from dpdist.engine.security import is_remote
from dpdist.errors import DpdistError, LedgerError
from dpdist.estimators.inference import record_of
from dpdist.estimators.original_units import original_record
from dpdist.estimators.outlook import Outlook
from dpdist.jobs import job_data as inputs
from dpdist.jobs.account import before_and_after, is_charged, is_unused, ledger_path, open_ledger, recorded
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.following import follow
from dpdist.jobs.job import Job
from dpdist.jobs.loaded import recorded_model
from dpdist.jobs.planning import checked, dry_run_job, of_units, passes
from dpdist.patience import hurried
from dpdist.privacy.budget import Neighbours
from dpdist.reports.report import write_report
from dpdist.runs.directory import ARRAYS, FORMAT, RunDirectory
from dpdist.runs.provenance import environment, now


def run_job(job: Job, *, resume: bool = False, dry_run: bool = False, scheduler: str | None = None) -> dict[str, Any]:
    """Run a job and return its record, the object in ``run.json``.

    Parameters
    ----------
    job : Job
        Of `dpdist.jobs.job.load_job`.
    resume : bool
        Go on with the run in ``job.output``: it keeps its id, so that it pays for nothing twice and released values
        stay what they were. A job that was never started there is started.
    dry_run : bool
        Charge nothing, read no row, write nothing; the plan is returned (`dpdist.jobs.planning.dry_run_job`).
    scheduler : str, optional
        Address of a Dask scheduler, in place of ``job.cluster``.

    Raises
    ------
    DpdistError
        Whatever is wrong with the data, the place for the output, the ledger or the cluster. `BudgetExceeded` when
        the ledger refuses; nothing was read or charged then.
    """
    cluster = job.cluster if scheduler is None else at_scheduler(job.cluster, scheduler)
    if dry_run:
        return dry_run_job(job, cluster=cluster)
    if resume and job.output is None:
        raise DpdistError("--resume needs the output directory of the run: give it with --output or the key output")
    if "path" in job.data and job.output is None:
        raise DpdistError(
            "output is missing: a run on a stored dataset spends its budget, and without a directory for the results "
            "they would be lost. Name one with --output or the key output"
        )
    path = ledger_path(job)
    began = time.perf_counter()
    size = inputs.size(job)
    model, _ = checked(job, size)
    method, reason = chosen_method(job, model, size)
    outlook = _foretold(model.outlook(size.n_rows, size.n_features, **of_units(size)))
    dataset, generated = inputs.load(job)
    head: dict[str, Any] = {
        "id": method.id,
        "title": method.title,
        "reason": reason,
        "estimator": job.estimator,
        "asked": dict(job.asked),
        "budget": {"ledger": recorded(path, job.output), "journal": recorded(job.journal, job.output)},
    }
    with _directory(job.output, head, resume, path) as place:
        run_id = secrets.token_hex(16) if place is None else place.run_id
        started = now() if place is None else place.started
        with closing(open_ledger(path, job.journal, place)) as ledger, opened(cluster) as workers:
            model.set_params(ledger=ledger, cluster=workers, run_id=run_id)
            model.fit(dataset, **inputs.beside(job, generated))
            account = before_and_after(ledger, run_id)
            # a run of an earlier version that was complete has told nobody
            receipt = ledger.receipt(run_id)
            stood = ledger.head() if place is None or place.head is None else place.head
        then, made = follow(job, model, generated)
        arrays = {**released_arrays(job, model), **{name: np.asarray(value) for name, value in made.items()}}
        state, kept = recorded_model(model, arrays)
        record = {
            "format": FORMAT,
            **head,
            "run_id": run_id,
            "status": "done",
            "started": started,
            "finished": now(),
            "seconds": round(time.perf_counter() - began, 3),
            **({} if place is None else place.times),
            "rounds": int(getattr(model, "n_iter_", len(model.releases_))),
            "passes": passes(model.plan_, [release.name for release in model.releases_]),
            "dataset": describe(dataset, inputs.source(job), model.guarantee_.neighbours),
            "guarantee": model.guarantee_.to_dict(),
            "simulation": bool(model.guarantee_.simulation),
            "plan": {"accountant": model.plan_.accountant, "items": model.plan_.describe()},
            "releases": [_release(release, model.guarantee_.model) for release in model.releases_],
            "outlook": outlook,
            "expected_error": _finite(getattr(model, "expected_error_", None)),
            "metrics": None if generated is None else generated.metrics(model),
            "inference": record_of(model),
            "original_units": original_record(model),
            "fitted": state,
            "then": then,
            "budget": {**head["budget"], **account, "head": stood.to_dict(), "receipt": receipt},
            "released": {
                "path": None if place is None else ARRAYS,
                "arrays": {k: {"dtype": str(v.dtype), "shape": list(v.shape)} for k, v in arrays.items()},
            },
            "environment": environment(),
        }
        if place is not None:
            place.finish(record, {**arrays, **kept})
            write_report(place.path)
    return record


def at_scheduler(cluster: Any, scheduler: str) -> Any:
    """The cluster of a job at another address, with the certificates that the job names."""
    return {**cluster, "address": scheduler} if is_remote(cluster) else scheduler


@contextlib.contextmanager
def _directory(
    output: str | None, head: Mapping[str, Any], resume: bool, ledger: str | None
) -> Iterator[RunDirectory | None]:
    """The output, if there is one; a run that ends before it has charged anything leaves no trace of itself."""
    if output is None or ledger is None:
        yield None
        return
    place = RunDirectory(output, head, resume=resume)
    try:
        yield place
    except BaseException:
        # who cannot read the ledger cannot say that nothing was charged; nor can a ledger that was taken back meanwhile
        with contextlib.suppress(LedgerError), hurried():
            if place.head is None and not is_charged(ledger, place.run_id):
                place.withdraw(with_ledger=is_unused(ledger))
        raise


def released_arrays(job: Job, model: Any) -> dict[str, NDArray[Any]]:
    """The outputs of the method, without the trailing underscore, and the released iterates."""
    arrays = {name.rstrip("_"): np.asarray(getattr(model, name)) for name in job.method.outputs}
    history = [np.asarray(iterate, dtype=np.float64) for iterate in getattr(model, "history_", [])]
    if history and all(iterate.shape == history[0].shape for iterate in history):
        arrays["history"] = np.stack(history)
    return arrays


def describe(dataset: Dataset, source: str, neighbours: Neighbours) -> dict[str, Any]:
    """What is public about a dataset; the number of rows often is not (`dpdist.data.units`, add-or-remove-one)."""
    schema = dataset.schema
    public = neighbours is Neighbours.REPLACE_ONE and schema.units.counted
    return {
        "id": dataset.id,
        "account": dataset.account,
        "source": source,
        "n_rows": dataset.n_rows if public else None,
        "arrays": {
            name: {"dtype": spec.dtype, "shape": [spec.shape[0] if public else None, *spec.shape[1:]]}
            for name, spec in schema.arrays.items()
        },
        "unit": schema.unit,
        "max_rows_per_unit": schema.max_rows_per_unit,
        "columns": {name: list(columns) for name, columns in schema.columns.items()},
        **({"missing": list(schema.missing)} if schema.missing else {}),
        "encoding": None if schema.encoding is None else schema.encoding.to_attributes(),
    }


def _foretold(outlook: Outlook) -> dict[str, Any]:
    """What the plan of the job says of the error, as JSON."""
    found = {name: _finite(value) if isinstance(value, float) else value for name, value in asdict(outlook).items()}
    return {**found, "warnings": list(outlook.warnings)}


def _finite(error: float | None) -> float | None:
    return None if error is None or not math.isfinite(error) else float(error)


def _release(release: Any, model: str) -> dict[str, Any]:
    value = np.asarray(release.value, dtype=np.float64)
    return {
        "index": int(release.index),
        "name": release.name,
        "shape": list(value.shape),
        # a noise whose scale follows the data has no public size; that of a report is no noise of the sum of all
        "noise_std": None if model == "local" or math.isnan(release.noise_std) else float(release.noise_std),
        "sensitivity": None if model == "local" else float(release.sensitivity),
        "rms": float(np.sqrt(np.mean(value**2))),
    }

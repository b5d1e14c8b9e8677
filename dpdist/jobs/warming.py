"""`warm_job`: compile what the method of a job needs, before a run waits for it.

The method is fitted once, with its parameters, to a few rows: those of the job where it generates them, else made-up
ones. Numba keeps what is compiled for the processor at hand; later processes load it in milliseconds.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpdist.data import Dataset
from dpdist.errors import DpdistError
from dpdist.estimators.outlook import nobody_asks
from dpdist.jobs import job_data as inputs
from dpdist.jobs.audit import made_up_columns
from dpdist.jobs.job import Job, locating, make_estimator
from dpdist.kernels.block_pass import scale_row
from dpdist.kernels.compiled import compilations
from dpdist.privacy.ledger.ledger import Ledger

N_ROWS = 3000
"""Of what is fitted; a job that refuses so few rows gets its own number."""


def kernel_folder() -> str:
    """Where compiled kernels are kept; refused where there is no such place."""
    folder = scale_row.stats.cache_path
    if folder is None:
        raise DpdistError(
            "compiled kernels would be lost at the end of the process: neither the folder of the package nor the "
            "user's cache can be written; set NUMBA_CACHE_DIR to a folder that can, here and where jobs run"
        )
    return str(Path(folder).resolve())


def warm_job(job: Job, *, dtype: str = "float64") -> dict[str, Any]:
    """Compile the kernels of a job, without its data, its ledger or its cluster.

    Parameters
    ----------
    job : Job
        Its method and parameters count. A job of a method with randomised reports has to generate its data.
    dtype : {"float64", "float32"}
        Of the features: kernels are compiled for each.

    Returns
    -------
    dict
        ``id``, ``compiled`` (names of kernels that were not there), ``seconds``, ``folder``.
    """
    folder = kernel_folder()
    local = job.method.trust == "local"
    if local and "generate" not in job.data:
        raise DpdistError(
            f"{job.source}: users of stored data are not made up; name the method instead: dpdist warm {job.method.id}"
        )
    start = time.perf_counter()
    with compilations() as compiled:
        if "generate" in job.data:
            _fit_generated(job, dtype)
        else:
            _fit_made_up(job, dtype)
    return {"id": job.method.id, "compiled": compiled, "seconds": time.perf_counter() - start, "folder": folder}


def _fit_generated(job: Job, dtype: str) -> None:
    asked = {key: value for key, value in job.data.items() if key != "store"}
    if "dtype" in asked:
        asked["dtype"] = dtype
    few = min(asked.get("n", N_ROWS), N_ROWS)
    try:
        _fit(job, {**asked, "n": few})
    except DpdistError:  # where so few rows are refused
        _fit(job, asked)


def _fit(job: Job, data: dict[str, Any]) -> None:
    small = replace(job, data=data)
    dataset, generated = inputs.load(small)
    _fit_to(small, dataset, **inputs.beside(small, generated))


def _fit_made_up(job: Job, dtype: str) -> None:
    first, *_ = make_estimator(job).worst_neighbours(N_ROWS, made_up_columns(job)).values()
    arrays = {**first[0], "X": first[0]["X"].astype(dtype)}
    _fit_to(job, Dataset.from_arrays(**arrays, row_order="arrival"))


def _fit_to(job: Job, dataset: Dataset, **beside: Any) -> None:
    model = make_estimator(job)
    with nobody_asks(), closing(Ledger(":memory:")) as ledger, locating(job):  # few rows for the delta, on purpose
        model.set_params(ledger=ledger, cluster="threads").fit(dataset, **beside)

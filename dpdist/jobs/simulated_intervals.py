"""`bootstrap_run`: how sure a finished run is, by fits to rows of its own law.

Its report and its card show it from then on. Nothing but what the run released is read, and public rows where they are
given, so that nothing is charged.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data.table_files import table_batches
from dpdist.errors import DataError
from dpdist.estimators.bootstrap import MOST_STEPS, Bootstrapped, bootstrapped, fit_again
from dpdist.estimators.inference import LEVEL, check_level, record_of
from dpdist.estimators.original_units import original_record
from dpdist.jobs.job_data import check_public
from dpdist.jobs.loaded import load_run
from dpdist.jobs.predictions import is_dataset, open_dataset, spec_of
from dpdist.reports.report import write_report
from dpdist.runs.directory import read_finished_run
from dpdist.runs.simulated_fits import keep_simulated


def bootstrap_run(
    place: str | os.PathLike[str],
    *,
    n_fits: int = 100,
    public: str | None = None,
    random_state: int = 0,
    level: float = LEVEL,
    format: str | None = None,
    delimiter: str = ",",
    tell: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Fit rows of the law that a run found again and again, and keep how the answers vary beside the run.

    Parameters
    ----------
    place : path or address
        The output of ``dpdist run``.
    n_fits, random_state : int
        As of `dpdist.estimators.estimator.Estimator.bootstrap`.
    public : str, optional
        A table with the columns of the model, or a dataset: rows that are public, for how features vary.
    level : float
        Of the intervals.
    format, delimiter : str
        Of the table, as for ``dpdist predict``.
    tell : callable, optional
        ``tell(done, total, about)`` after each fit; the total grows with each correction of the law.

    Returns
    -------
    dict
        What was kept: ``n_fits``, ``random_state``, ``public_rows``, ``inference`` (rows of a summary, level and notes)
        and ``original_units``; and where the ``report`` is.

    Raises
    ------
    NoIntervals
        Where the fitted model is no law of rows, or its method moves the answer by more than can be undone.
    """
    check_level(level)
    run, model = read_finished_run(place), load_run(place)
    rows = None if public is None else public_rows(model, run["dataset"], public, format, delimiter)
    fit = fit_again if tell is None else told(tell, n_fits)
    found = bootstrapped(model, n_fits, rows, random_state, fit)
    kept = {
        "n_fits": n_fits,
        "random_state": random_state,
        "public_rows": None if rows is None else len(rows),
        "inference": record_of(found, level),
        "original_units": original_record(_corrected(model, found), level),
    }
    keep_simulated(place, run, kept)
    return {**kept, "report": str(write_report(place))}


def told(tell: Callable[[int, int, str], None], n_fits: int) -> Callable[..., Any]:
    """`fit_again`, and what was done so far: ``n_fits`` for each law that rows are drawn of, which are two at least."""
    numbers, most = count(1), n_fits * (1 + MOST_STEPS)

    def fit(*asked: Any) -> Any:
        again, number = fit_again(*asked), next(numbers)
        laws = -(-number // n_fits)
        tell(number, n_fits * max(2, laws), f"{most} at most")
        return again

    return fit


def public_rows(
    model: Any, fitted_to: Mapping[str, Any], place: str, format: str | None, delimiter: str
) -> NDArray[np.float64]:
    """Features of public rows, as the model was fitted to them; rows with a value that cannot be used are left out.

    The dataset of the run itself is refused: no interval may be made of protected rows.
    """
    if is_dataset(place, format):
        dataset = open_dataset(place)
        check_public(dataset, place, fitted_to["id"], fitted_to["account"])
        if "X" not in dataset.arrays:
            raise DataError(f"the dataset {place} has no array X: public rows are its rows")
        X = np.asarray(dataset.read(0, dataset.n_rows)["X"], dtype=np.float64)
        return X[np.isfinite(X).all(axis=1)]
    parts = []
    for rows in table_batches(place, spec_of(model, label=False), format, delimiter):
        bad = rows.bad
        parts.append(np.asarray(rows.X if bad is None else rows.X[~bad], dtype=np.float64))
    return np.concatenate(parts) if parts else np.empty((0, model.n_features_in_))


def _corrected(model: Any, found: Bootstrapped) -> Any:
    """The model with the parameters that were corrected for their bias, for the units of the table."""
    shown = copy.copy(model)
    known = found._known()
    shown._inferred = known
    if hasattr(model, "coef_"):
        shown.coef_ = found.estimate_.reshape(np.shape(model.coef_))
    if hasattr(model, "intercept_") and known.names[-1] == "intercept":
        shown.intercept_ = known.values[-1:].reshape(np.shape(model.intercept_))
    return shown

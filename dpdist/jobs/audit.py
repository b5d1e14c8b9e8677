"""`audit_job`: try to catch a method leaking more than it claims, on made-up neighbours.

The method of a job is fitted many times to two datasets of made-up rows that differ in one unit. Which pairs of them
there are, its family says (`Estimator.worst_neighbours`); the choice among them, the score and the verdict are those of
`dpdist.privacy.audit.black_box`.

Where rounds are releases and the job does not say how many, there is one: all of the budget then goes into it, and a
fault in what bounds a row or in its noise shows at once. (That rounds add up as they should is for the accountant's
tests.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from dpdist.data import Dataset
from dpdist.errors import DpdistError
from dpdist.estimators.outlook import nobody_asks
from dpdist.jobs import job_data as inputs
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.job import Job, locating, make_estimator
from dpdist.jobs.method_parameters import offers
from dpdist.jobs.registry import RegisteredMethod
from dpdist.privacy.audit.black_box import CONFIDENCE, Claim, Finding, Vectors, audit_black_box
from dpdist.privacy.audit.worst_neighbours import Pair
from dpdist.privacy.ledger.ledger import Ledger

FORMAT = "dpdist-audit/1"
N_TRIALS, N_LEARN = 30, 40
"""Runs on either dataset of each pair that choose one, and of the chosen one that teach what tells it apart."""
AT_ONCE = 10
_LARGEST = 1e100


def audit_job(
    job: Job, *, n_runs: int = 400, n_rows: int = 200, tell: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Audit the method of a job with its parameters and budget; its data is not touched.

    Parameters
    ----------
    job : Job
    n_runs : int
        Runs on either dataset that are counted at most; `N_TRIALS` on each pair and `N_LEARN` are made before.
    n_rows : int
        Rows of the made-up datasets.
    tell : callable, optional
        ``tell(done, total)`` after each run; it may be over before the total.

    Returns
    -------
    dict
        ``claimed`` and ``found`` (lower bounds with their confidence) as plain values; ``contradicted`` says whether a
        claim is.
    """
    if n_runs < 50:
        raise DpdistError(f"{n_runs} runs can show nothing: take at least 50, better several hundred")
    width = made_up_columns(job)
    pairs = _fresh(job).worst_neighbours(n_rows, width)
    claimed, done, total = None, 0, 2 * (N_TRIALS * len(pairs) + N_LEARN + n_runs)

    def run(pair: Pair, count: int) -> tuple[Vectors, Vectors]:
        nonlocal done, claimed
        datasets = [_dataset(arrays) for arrays in pair]
        outputs: list[list[Vectors]] = [[], []]
        for _ in range(count):
            for dataset, vectors in zip(datasets, outputs, strict=True):  # in turns: whatever drifts drifts for both
                fitted = _fit(job, dataset)
                vectors.append(_released(job, fitted))
                claimed = Claim(fitted.guarantee_.epsilon, fitted.guarantee_.delta, fitted.guarantee_.mu)
                done += 1
                if tell is not None:
                    tell(done, total)
        return np.stack(outputs[0]), np.stack(outputs[1])

    def claim() -> Claim:
        assert claimed is not None
        return claimed

    found = audit_black_box(run, pairs, claim, n_trials=N_TRIALS, n_learn=N_LEARN, n_runs=n_runs, n_at_once=AT_ONCE)
    size, model = inputs.to_be_written(n_rows, width), _fresh(job)
    method, _ = chosen_method(job, model, size)
    return record(job, method, claim(), found, rows=n_rows, features=width)


def made_up_columns(job: Job) -> int:
    """How many columns made-up rows need."""
    kept = job.params.get("n_nonzero") or getattr(job.params.get("solver"), "n_nonzero", None) or 0
    return len(job.params.get("start") or ()) or max(4, int(kept) + 2)  # a start is of so many columns


def record(
    job: Job, method: RegisteredMethod, claim: Claim, found: Finding, *, rows: int, features: int
) -> dict[str, Any]:
    """An audit as plain values."""
    return {
        "format": FORMAT,
        "id": method.id,
        "title": method.title,
        "estimator": job.estimator,
        "claimed": {"epsilon": claim.epsilon, "delta": claim.delta, "mu": claim.mu},
        "found": {
            "epsilon": found.epsilon_lower,
            "mu": found.mu_lower,
            "confidence": CONFIDENCE,
            "runs": found.n_runs,
        },
        "contradicted": found.verdict == "caught",
        "rows": rows,
        "features": features,
        "neighbours": found.neighbours,
        "asked": {"params": job.asked["params"], "budget": job.asked["budget"]},
    }


def _fresh(job: Job) -> Any:
    model = make_estimator(job)
    model.set_params(random_state=None)  # noise as in a real run
    rounds_are_releases = job.method.parameters.get("solver") not in ("output", "objective")
    for name, offered in offers(type(model)).items() if rounds_are_releases else ():
        value = getattr(model, name)
        value = offered[value]() if isinstance(value, str) and value in offered else value
        if getattr(value, "n_rounds", 1) is None:
            model.set_params(**{f"{name}__n_rounds": 1})
    return model


def _dataset(arrays: Mapping[str, Any]) -> Dataset:
    return Dataset.from_arrays(**arrays, row_order="arrival")


def _fit(job: Job, dataset: Dataset) -> Any:
    model = _fresh(job)
    with nobody_asks(), closing(Ledger(":memory:")) as ledger, locating(job):  # few rows for the delta, on purpose
        return model.set_params(ledger=ledger, cluster="threads").fit(dataset)


def _released(job: Job, model: Any) -> Vectors:
    """What a run makes public, as one vector: each line's first release and sum of releases, and the results.

    The row moves the releases of a line in similar ways, so their sum tells more than they do one by one.
    """
    first: dict[tuple[str, int], Vectors] = {}
    sums: dict[tuple[str, int], Vectors] = {}
    for release in model.releases_:
        value = np.ravel(np.asarray(release.value, dtype=np.float64))
        scale = release.noise_std if 0 < release.noise_std < math.inf else 1.0
        key = release.name, value.size
        first.setdefault(key, value / scale)
        sums[key] = sums.get(key, 0.0) + value / scale
    results = [np.ravel(np.asarray(getattr(model, name), dtype=np.float64)) for name in job.method.outputs]
    vector = np.concatenate([*(each[key] for key in sorted(sums) for each in (first, sums)), *results])
    return np.clip(np.nan_to_num(vector, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)

"""`audit_job`: try to catch a method leaking more than it claims, on made-up neighbours.

The method of a job is fitted many times to two datasets of made-up rows that differ in one row, whose features are far
beyond any bound, so that clipping, sampling and noise do what they do to the worst real row. There are three such pairs
(`PAIRS`); trial runs choose the pair, and the linear combination of everything that is released which tells it apart
best. Then fresh runs are scored, events chosen on a part of them and counted on the others: each bound is wrong with a
chance of 1e-6 at most.

Where rounds are releases and the job does not say how many, there is one: all of the budget then goes into it, and a
fault in what bounds a row or in its noise shows at once. (That rounds add up as they should is for the accountant's
tests.)

An audit can contradict a guarantee, not prove it: these neighbours are bad ones, not the worst for every method.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.errors import DpdistError
from dpdist.jobs import job_data as inputs
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.job import Job, locating, make_estimator
from dpdist.jobs.sections import offers
from dpdist.losses import LOSSES
from dpdist.privacy.audit.two_point import AuditResult, event_bound
from dpdist.privacy.ledger.ledger import Ledger

Vectors = NDArray[np.float64]

FORMAT = "dpdist-audit/1"
CONFIDENCE = 1 - 1e-6
FAR = 1e6
"""Features of the row that differs; longer rows would lose nothing by being cut off."""
FAR_LABEL = 1e9
N_TRIALS = 60
"""Runs on either dataset of a pair that choose pair and score."""
_LARGEST = 1e100


def audit_job(
    job: Job, *, n_runs: int = 400, n_rows: int = 200, tell: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Audit the method of a job with its parameters and budget; its data is not touched.

    Parameters
    ----------
    job : Job
    n_runs : int
        Runs on either dataset that are counted; as many as half of them are made before, to choose what to count.
    n_rows : int
        Rows of the made-up datasets.
    tell : callable, optional
        ``tell(done, total)`` after each run.

    Returns
    -------
    dict
        ``claimed`` and ``found`` (lower bounds with their confidence) as plain values; ``contradicted`` says whether a
        bound exceeds the claim.
    """
    if n_runs < 50:
        raise DpdistError(f"{n_runs} runs can show nothing: take at least 50, better several hundred")
    model, claimed = _fresh(job), None
    kept = job.params.get("n_nonzero") or getattr(job.params.get("solver"), "n_nonzero", None) or 0
    width = max(4, int(kept) + 2)
    done, total = 0, 2 * (N_TRIALS * len(PAIRS) + n_runs + n_runs // 4)

    def runs(pair: tuple[Dataset, Dataset], count: int) -> list[Vectors]:
        nonlocal done, claimed
        outputs: list[list[Vectors]] = [[], []]
        for _ in range(count):
            for which in (0, 1):  # in turns, so that whatever drifts drifts for both
                fitted = _fit(job, pair[which])
                outputs[which].append(_released(job, fitted))
                claimed = fitted.guarantee_
                done += 1
                if tell is not None:
                    tell(done, total)
        return [np.stack(vectors) for vectors in outputs]

    trials = []
    for name, make in PAIRS.items():
        pair = make(*_labels(model), n_rows, width)
        outputs, half = runs(pair, N_TRIALS), N_TRIALS // 2
        trial = score_of(*(each[:half] for each in outputs))
        scores = [trial(each[half:]) for each in outputs]
        apart = abs(scores[0].mean() - scores[1].mean()) / (scores[0].std() + scores[1].std() + 1e-300)
        trials.append((apart, name, pair, score_of(*outputs)))
    _, name, pair, score = max(trials, key=lambda trial: trial[0])
    scores = [score(each) for each in runs(pair, n_runs + n_runs // 4)]
    found = lower_bounds(scores[0], scores[1], n_runs // 4, job.delta)
    assert claimed is not None
    mu = claimed.mu
    size = inputs.to_be_written(n_rows, width)
    method, _ = chosen_method(job, model, model.plan(n_rows, width), size)
    return {
        "format": FORMAT,
        "id": method.id,
        "title": method.title,
        "estimator": job.estimator,
        "claimed": {"epsilon": claimed.epsilon, "delta": claimed.delta, "mu": mu},
        "found": plain(found, mu),
        "contradicted": bool(found.epsilon_lower > claimed.epsilon or (mu is not None and _above(found, mu))),
        "rows": n_rows,
        "features": width,
        "neighbours": name,
        "asked": {"params": job.asked["params"], "budget": job.asked["budget"]},
    }


def lower_bounds(one: Vectors, other: Vectors, n_pilot: int, delta: float) -> AuditResult:
    """As `dpdist.privacy.audit.two_point.two_point_bound`, but the pilot chooses by even odds.

    At the confidence of the result a short pilot finds nothing at all, and so would choose no event.
    """
    thresholds = np.quantile(np.concatenate([one[:n_pilot], other[:n_pilot]]), np.linspace(0.02, 0.98, 97))
    best = [(-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]
    for threshold in thresholds:
        for side in (1.0, -1.0):
            hits = [int(np.count_nonzero(side * (each[:n_pilot] - threshold) >= 0)) for each in (one, other)]
            bounds = event_bound(hits[0], hits[1], n_pilot, delta, 0.5)
            best = [max(old, (bound, float(threshold), side)) for old, bound in zip(best, bounds, strict=True)]
    found, n_runs = [], len(one) - n_pilot
    for which, (_, threshold, side) in enumerate(best):
        hits = [int(np.count_nonzero(side * (each[n_pilot:] - threshold) >= 0)) for each in (one, other)]
        found.append(event_bound(hits[0], hits[1], n_runs, delta, CONFIDENCE)[which])
    return AuditResult(found[0], found[1], delta, CONFIDENCE, n_runs)


def plain(found: AuditResult, mu: float | None) -> dict[str, Any]:
    """Bounds as plain values."""
    shown = {"epsilon": found.epsilon_lower, "mu": None if mu is None else found.mu_lower}
    return {**shown, "confidence": found.confidence, "runs": found.n_runs}


def _above(found: AuditResult, mu: float) -> bool:
    return found.mu_lower is not None and found.mu_lower > mu


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


def _alone(one: Any, other: Any, n_rows: int, width: int) -> tuple[Dataset, Dataset]:
    """All other rows are zero; the row has one label or the other."""
    X = np.zeros((n_rows, width))
    X[0] = FAR
    return _dataset(X, one, one), _dataset(X, one, other)


def _in_a_crowd(one: Any, other: Any, n_rows: int, width: int) -> tuple[Dataset, Dataset]:
    """The same among rows at random."""
    X = np.random.default_rng(0).standard_normal((n_rows, width))
    X[0] = FAR
    return _dataset(X, one, one), _dataset(X, one, other)


def _against_the_rest(one: Any, other: Any, n_rows: int, width: int) -> tuple[Dataset, Dataset]:
    """All other rows pull the first coefficient one way, the row pulls the other way, and the second up or down.

    Losses that saturate have their largest gradients where a row is on the wrong side.
    """
    pair = []
    for sign in (-1.0, 1.0):
        X = np.zeros((n_rows, width))
        X[:, 0] = 1.0
        X[0, :2] = -0.5 * FAR, sign * FAR
        pair.append(_dataset(X, other, other))
    return pair[0], pair[1]


PAIRS: Mapping[str, Callable[[Any, Any, int, int], tuple[Dataset, Dataset]]] = {
    "alone": _alone,
    "in a crowd": _in_a_crowd,
    "against the rest": _against_the_rest,
}
"""Ways of making neighbours from two labels and a shape."""


def _dataset(X: Vectors, rest: Any, label: Any) -> Dataset:
    y = np.full(len(X), rest if abs(rest) < FAR_LABEL else 1.0)
    y[0] = label
    return Dataset.from_arrays(X=X, y=y, row_order="arrival")


def _labels(model: Any) -> tuple[Any, Any]:
    """Two labels that are as different as can be, for what the model takes."""
    parameters = model.get_params(deep=False)
    if parameters.get("classes") is not None:
        return parameters["classes"][0], parameters["classes"][1]
    loss = parameters.get("loss")
    loss = LOSSES.get(loss) if isinstance(loss, str) else loss
    signs = getattr(loss, "labels", None) == "signs" or parameters.get("estimator") == "logistic"
    return (-1, 1) if signs else (-FAR_LABEL, FAR_LABEL)


def _fit(job: Job, dataset: Dataset) -> Any:
    model = _fresh(job)
    with warnings.catch_warnings(), closing(Ledger(":memory:")) as ledger, locating(job):
        warnings.simplefilter("ignore")  # few rows for the delta, on purpose
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


def score_of(one: Vectors, other: Vectors) -> Callable[[Vectors], Vectors]:
    """The linear score that tells two samples apart best (Fisher's), of numbers in robust units and cut at 10."""
    pooled = np.concatenate([one, other])
    centre = np.median(pooled, axis=0)
    spread = 1.4826 * np.median(np.abs(pooled - centre), axis=0)  # the standard deviation of a normal law
    spread = np.where(spread > 0, spread, np.maximum(np.abs(pooled - centre).max(axis=0), 1e-300))

    def scaled(values: Vectors) -> Vectors:
        return np.clip((values - centre) / spread, -10.0, 10.0)

    means = [scaled(sample).mean(axis=0) for sample in (one, other)]
    within = np.concatenate([scaled(sample) - mean for sample, mean in zip((one, other), means, strict=True)])
    covariance = within.T @ within / len(within) + 0.05 * np.eye(pooled.shape[1])
    weights = np.linalg.solve(covariance, means[0] - means[1])
    return lambda values: scaled(values) @ weights

"""`audit_reports`: try to catch a report telling more than it claims.

In the local model a single report is what has to be private, so a run of the audit is one user: many users with one
record report, many with another. What a report adds to the server's sum is scored by the linear combination that
tells the two apart best on trial, or along the line between the two records' values. The records are as different as
can be, and far beyond any bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpdist.jobs import job_data as inputs
from dpdist.jobs.audit import CONFIDENCE, FAR, FAR_LABEL, FORMAT, Vectors, lower_bounds, plain, score_of
from dpdist.jobs.choosing import chosen_method
from dpdist.jobs.job import Job, make_estimator
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.randomness.draws import SystemDraws

Records = Mapping[str, np.ndarray]
Score = Callable[[Vectors], Vectors]
PER_RUN = 50
"""Users on either side for each run that is asked for: a report costs microseconds."""


def audit_reports(job: Job, *, n_runs: int, tell: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Audit a single report of the method of a job; the arguments and the result are those of `audit_job`."""
    width = int(job.data.get("d", 1))
    size, model = inputs.to_be_written(int(job.data.get("n", 10**5)), width), make_estimator(job)
    protocol = model.protocol(size.n_rows, width)
    method, _ = chosen_method(job, model, model.plan(size.n_rows, width), size)
    n_users = PER_RUN * n_runs
    pairs = _pairs(protocol, width)
    done, total = 0, len(pairs) + 1

    def reports(pair: tuple[Records, Records], n: int) -> list[Vectors]:
        nonlocal done
        drawn = [_drawn(protocol, records, width, n) for records in pair]
        done += 1
        if tell is not None:
            tell(done, total)
        return drawn

    trials: list[tuple[float, int, str, tuple[Records, Records], Score]] = []
    for name, pair in pairs.items():
        outputs, half = reports(pair, n_users // 4), n_users // 8
        for score in (score_of(*(each[:half] for each in outputs)), _along(protocol, pair, width)):
            scores = [score(each[half:]) for each in outputs]
            apart = abs(scores[0].mean() - scores[1].mean()) / (scores[0].std() + scores[1].std() + 1e-300)
            trials.append((apart, len(trials), name, pair, score))
    *_, name, pair, score = max(trials)
    one, other = (score(each) for each in reports(pair, n_users + n_users // 4))
    delta = protocol.randomiser.delta
    found = lower_bounds(one, other, n_users // 4, delta)
    mu = protocol.cost.parameter if protocol.cost.kind == "gaussian" else None
    return {
        "format": FORMAT,
        "id": method.id,
        "title": method.title,
        "estimator": job.estimator,
        "claimed": {"epsilon": protocol.randomiser.epsilon, "delta": delta, "mu": mu},
        "found": plain(found, mu),
        "contradicted": bool(
            found.epsilon_lower > protocol.randomiser.epsilon
            or (mu is not None and found.mu_lower is not None and found.mu_lower > mu)
        ),
        "rows": 1,
        "features": width,
        "neighbours": name,
        "confidence": CONFIDENCE,
        "asked": {"params": job.asked["params"], "budget": job.asked["budget"]},
    }


def _pairs(protocol: LocalProtocol, width: int) -> dict[str, tuple[Records, Records]]:
    """Two records each; only what the protocol reads counts."""
    if protocol.statistic.domain == "category":
        first, second, none = ({"X": np.array([code])} for code in (0.0, 1.0, np.nan))
        return {"two categories": (first, second), "a category and none": (first, none)}
    ones = np.ones((1, width))
    rising = np.arange(1, width + 1, dtype=np.float64)[None] * FAR
    return {
        "opposite rows": ({"X": FAR * ones, "y": np.array([1.0])}, {"X": -FAR * ones, "y": np.array([1.0])}),
        "opposite labels": (
            {"X": ones, "y": np.array([FAR_LABEL])},
            {"X": ones, "y": np.array([-FAR_LABEL])},
        ),
        "a row and none": ({"X": rising, "y": np.array([FAR_LABEL])}, {"X": 0 * ones, "y": np.array([np.nan])}),
    }


def _along(protocol: LocalProtocol, pair: tuple[Records, Records], width: int) -> Score:
    """How far a report lies in the direction from one record's value to the other's."""
    one, other = (protocol.statistic.values(records, np.zeros(width)) for records in pair)
    if protocol.statistic.domain == "category":
        one, other = (np.eye(protocol.statistic.size)[values] * (values >= 0)[:, None] for values in (one, other))
    direction = (one - other)[0]
    return lambda outputs: outputs[:, : len(direction)] @ direction[: outputs.shape[1]]


def _drawn(protocol: LocalProtocol, records: Records, width: int, n_users: int) -> Vectors:
    """What each of many users with the same record adds to the sum."""
    block = {name: np.repeat(values, n_users, axis=0) for name, values in records.items()}
    values = protocol.statistic.values(block, np.zeros(width))
    reports = protocol.randomiser.randomise(values, SystemDraws())
    return np.stack([protocol.randomiser.accumulate(reports[i : i + 1]) for i in range(n_users)]).astype(np.float64)

"""Curves that are drawn beside measured errors: lower bounds and minimax rates, from the numbers of a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpdist.central.linear.gradient_descent import norm_gradient
from dpdist.jobs.job import Job, make_estimator
from dpdist.privacy.audit.lower_bounds import (
    local_sparse_lower_bound,
    sparse_mean_lower_bound,
    sparse_regression_rates,
)
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.crowd_problems import abilities
from dpdist.solvers.dawid_skene import theory_report

_TASKS = 10_000
"""Of a vote that is simulated."""
_FEW = 10
"""Rows of a problem whose truth alone is wanted."""


def _rate(name: str, job: Job) -> float:
    delta = job.delta if name == "central" else 0.0
    sparsity, noise = int(job.data["n_nonzero"]), float(job.data.get("noise_std", 1.0))
    return sparse_regression_rates(job.data["n"], job.data["d"], sparsity, job.epsilon, delta, noise)[name]


def _local(interactive: bool, job: Job) -> float:
    n, d = job.data["n"], job.data["d"]
    return math.sqrt(local_sparse_lower_bound(n, d, job.epsilon, interactive=interactive))


def _sparse_mean(job: Job) -> float:
    data, moment = job.data, float(job.params["second_moment"])
    return math.sqrt(
        sparse_mean_lower_bound(data["n"], data["d"], int(data["n_nonzero"]), moment, job.epsilon, job.delta)[0]
    )


def _abilities(job: Job) -> NDArray[np.float64]:
    law, n = str(job.data["law"]), int(job.data["n"])
    return abilities(law, n, n, np.random.default_rng(int(job.data["random_state"])))


def _crowd_labels(job: Job) -> float:
    report = theory_report(job.data["n"], job.data["d"], job.epsilon, _abilities(job))
    return min(float(report["label_error"]), 0.5)


def _crowd_abilities(job: Job) -> float:
    return float(theory_report(job.data["n"], job.data["d"], job.epsilon, _abilities(job))["ability_error"])


def _true_weights(job: Job) -> float:
    """Share of wrong labels by a vote of reports that count for the log-odds of their users' true chances."""
    generator = np.random.default_rng(0)
    right = 0.5 + math.tanh(job.epsilon / 2) * (_abilities(job) - 0.5)
    weights = np.log(right / (1 - right))
    votes = (np.where(generator.random((_TASKS, len(right))) < right, 1.0, -1.0) @ weights) + 0.0
    return float(np.mean(votes < 0) + np.mean(votes == 0) / 2)


def _planned_subspace(job: Job) -> float:
    """What the plan of a job that finds principal components foresees, told the gap of the truth."""
    problem = PROBLEMS[str(job.data["generate"])]
    values = np.linalg.eigvalsh(problem.generate({**job.data, "n": _FEW}).truth)[::-1]
    model = make_estimator(job)
    k = model.n_components
    model.set_params(gap=float(values[k - 1] - values[k]))
    return float(model.outlook(job.data["n"], job.data["d"]).predicted_error)


def _gradient(population: bool, job: Job) -> float:
    """``sqrt(4 M F / T + 2 d noise^2)``, and for expected gradients ``G sqrt(d ln(n) / n)`` more (Theorem 4.1.3)."""
    model, n, d = make_estimator(job), int(job.data["n"]), int(job.data["d"])
    method, plan = model._method_for(n, d), model.plan(n, d)
    problem = method.problem
    query = norm_gradient(problem)
    noise = plan["gradient"].mechanism.noise_std(query.sensitivity(problem.neighbours)) / n
    fall = problem.loss.smoothness(problem.row_norm) * problem.loss.value_bound
    length = math.sqrt(4 * fall / method.rounds + 2 * d * noise**2)
    return length + (query.clip_norm * math.sqrt(d * math.log(n) / n) if population else 0.0)


BOUNDS: Mapping[str, Callable[[Job], float]] = {
    "non-private": partial(_rate, "non-private"),
    "central": partial(_rate, "central"),
    "labels": partial(_rate, "labels"),
    "interactive": partial(_rate, "interactive"),
    "one-report": partial(_rate, "one-report"),
    "local-one-report": partial(_local, False),
    "local-interactive": partial(_local, True),
    "sparse-mean": _sparse_mean,
    "crowd-labels": _crowd_labels,
    "crowd-abilities": _crowd_abilities,
    "true-weights": _true_weights,
    "planned-subspace": _planned_subspace,
    "gradient": partial(_gradient, False),
    "population-gradient": partial(_gradient, True),
}
"""From a job to the distance from the truth. The first five are rates, up to constants; the next three are lower
bounds for the worst case, square roots of those of the mean squared distance (`dpdist.privacy.audit.lower_bounds`). The
next four are the upper bounds of wrong labels and of errors of abilities (the latter up to epsilon 1) of
`dpdist.solvers.dawid_skene.theory_report`, a vote that knows how able users are, and what the outlook of the job
foresees of principal components. The last two bound lengths of gradients, on the rows and in the population."""

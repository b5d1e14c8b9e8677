"""Who answers: every own solver, plain adaptive sufficient statistics, scikit-learn without privacy, and a constant."""

from __future__ import annotations

import functools
import math
import statistics
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as SklearnLogisticRegression
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss

from dpdist import Ledger, LinearRegression, LogisticRegression
from dpdist.central import AcceleratedGradient, ClipLabel, ClipNorm
from dpdist.errors import BudgetError
from dpdist.privacy.accounting.closed_forms import gdp_mu
from tests.benchmarks.answers.problems import Problem, Split

DELTA, SEEDS = 1e-6, range(5)
PENALTIES = (1e-6, 1e-4, 1e-2)
"""Strengths that scikit-learn gets without privacy; the best on the held-out rows counts."""
MOST_NUMBERS_FOR_ALL = 5_000_000
"""Rows times columns; larger problems are fitted by the default alone."""

Errors = list[float]
Record = dict[str, Any]


def error(problem: Problem, split: Split, linear_predictor: np.ndarray) -> float:
    """Held-out log-loss, mean squared error, or squared distance from the truth relative to that of zero."""
    if problem.family == "logistic":
        return float(log_loss(split.y_test, expit(linear_predictor), labels=[0, 1]))
    if split.truth is not None:
        return float(np.mean((linear_predictor - split.truth) ** 2) / np.mean(split.truth**2))
    return float(np.mean((linear_predictor - split.y_test) ** 2))


@functools.lru_cache(maxsize=8)
def references(problem: Problem) -> dict[str, Errors]:
    """What needs no budget: the best constant, the best of scikit-learn's fits, and the one to bounded rows.

    The latter has the smallest penalty: it is what our fits go to with their budget.
    """
    constant: Errors = []
    free: dict[float, Errors] = {alpha: [] for alpha in PENALTIES}
    cut: Errors = []
    for seed in SEEDS:
        split = problem.draw(seed)
        constant.append(error(problem, split, np.full(len(split.y_test), _constant(problem, split))))
        for alpha in PENALTIES:
            free[alpha].append(error(problem, split, _without_privacy(problem, split, alpha)))
        cut.append(error(problem, split, _without_privacy(problem, bounded(problem, split), min(PENALTIES))))
    best = min(free.values(), key=np.mean)
    return {"constant": rounded(constant), "not private": rounded(best), "bounded": rounded(cut)}


def bounded(problem: Problem, split: Split) -> Split:
    """The rows to fit on, scaled down to the public bounds that there are."""
    row_norm, label_bound = problem.bounds.get("row_norm", math.inf), problem.bounds.get("label_bound", math.inf)
    lengths = np.maximum(np.linalg.norm(split.X, axis=1, keepdims=True), 1e-300)
    return replace(
        split, X=split.X * np.minimum(1.0, row_norm / lengths), y=np.clip(split.y, -label_bound, label_bound)
    )


def _constant(problem: Problem, split: Split) -> float:
    if problem.family == "logistic":
        share = split.y.mean()
        return math.log(share / (1 - share))
    return 0.0 if split.truth is not None else float(split.y.mean())


def _without_privacy(problem: Problem, split: Split, alpha: float) -> np.ndarray:
    n = len(split.X)
    if problem.family == "logistic":
        model = SklearnLogisticRegression(C=1 / (alpha * n), max_iter=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(split.X, split.y).decision_function(split.X_test)
    return Ridge(alpha=alpha * n, fit_intercept=split.truth is None).fit(split.X, split.y).predict(split.X_test)


# -- our own --------------------------------------------------------------------------------------------------------

Choices = Mapping[str, Any]
LOGISTIC: dict[str, Choices] = {
    "newton": {"solver": "newton"},
    "gradient": {"solver": "gradient"},
    "accelerated, 60 rounds": {"solver": AcceleratedGradient(n_rounds=60), "alpha": 1e-6},
    "objective": {"solver": "objective", "alpha": 1e-3},
    "sample": {"rows": "sample"},
}


def _squared(bound: float, row_norm: float) -> dict[str, Choices]:
    clip = ClipNorm(bound * row_norm)
    return {
        "sufficient-statistics": {"solver": "sufficient-statistics", "gradient": ClipLabel(bound)},
        "gradient": {"solver": "gradient", "gradient": clip},
        "accelerated, 60 rounds": {"solver": AcceleratedGradient(n_rounds=60), "gradient": clip, "alpha": 1e-6},
        "huber": {"loss": "huber"},
    }


ROBUST: dict[str, Choices] = {
    **{name: {"gradient": name} for name in ("truncate", "smooth-truncate", "trim")},
    "huber": {"loss": "huber"},
}


def own(problem: Problem) -> dict[str, Choices]:
    """Solvers of the family; "auto" is the default, which stays alone where all would take hours.

    Left out are those that were never better than sampled gradients (variance reduction), and those for sets.
    """
    bounds = problem.bounds
    if problem.family == "logistic":
        found = {"auto": {}, **LOGISTIC}
    elif problem.family == "squared":
        bound = bounds["label_bound"]
        found = {"auto": {"gradient": ClipLabel(bound)}, **_squared(bound, bounds["row_norm"])}
    else:
        found = {"auto": {}, **ROBUST}
    small = problem.n_rows * problem.n_features <= MOST_NUMBERS_FOR_ALL
    return found if small else {"auto": found["auto"]}


def everybody(problem: Problem, epsilon: float) -> dict[str, Record]:
    """All of them, but for the one that the default is."""
    choices = own(problem)
    found = {"auto": measured(problem, choices.pop("auto"), epsilon)}
    taken = {"solver": found["auto"]["solver"]}
    return found | {
        name: measured(problem, c, epsilon) for name, c in choices.items() if not taken.items() <= c.items()
    }


def _estimator(problem: Problem, choices: Choices, epsilon: float, seed: int | None) -> Any:
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": seed, "ledger": Ledger(":memory:")}
    if problem.family == "logistic":
        return LogisticRegression(classes=[0, 1], row_norm=problem.bounds["row_norm"], **choices, **common)
    if problem.family == "squared":
        return LinearRegression(row_norm=problem.bounds["row_norm"], **choices, **common)
    return LinearRegression(fit_intercept=False, second_moment=problem.bounds["second_moment"], **choices, **common)


def measured(problem: Problem, choices: Choices, epsilon: float) -> Record:
    """Errors for all seeds, and what was said of them before and after."""
    errors, after, seconds = [], [], []
    n, d = problem.n_rows, problem.n_features
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are expected to be useless: the errors tell
        for seed in SEEDS:
            split = problem.draw(seed)
            model = _estimator(problem, choices, epsilon, seed)
            start = time.perf_counter()
            try:
                model.fit(split.X, split.y)
            except BudgetError as refusal:
                return {"refused": str(refusal)[:100]}
            seconds.append(time.perf_counter() - start)
            found = model.decision_function if problem.family == "logistic" else model.predict
            errors.append(error(problem, split, found(split.X_test)))
            after.append(getattr(model, "expected_error_", None))
        outlook = model.outlook(n, d)
    passes = sum(item.count * item.passes * item.rate for item in model.plan_.items)
    return {
        "error": rounded(errors),
        "solver": model.solver_,
        "before": outlook.predicted_error if outlook.low is None else [outlook.low, outlook.high],
        "after": rounded(after) if None not in after else None,
        "passes": round(passes, 2),
        "seconds": float(f"{statistics.median(seconds):.3g}"),
    }


def rounded(errors: Errors) -> Errors:
    return [float(f"{e:.6g}") for e in errors]


# -- adaptive sufficient statistics -----------------------------------------------------------------------------------


def adassp(problem: Problem, epsilon: float) -> Record:
    """Wang (2018): the smallest eigenvalue, ``X'X`` and ``X'y`` for a third of the budget each, and one ridge."""
    row_norm, bound = problem.bounds["row_norm"], problem.bounds["label_bound"]
    mu = gdp_mu(epsilon, DELTA) / math.sqrt(3)
    constant = row_norm / math.sqrt(problem.n_features)
    square = row_norm**2 + constant**2
    errors = []
    for seed in SEEDS:
        split, rng = bounded(problem, problem.draw(seed)), np.random.default_rng(seed)
        X = np.column_stack([split.X, np.full(len(split.X), constant)])
        d = X.shape[1]
        M = X.T @ X
        smallest = max(0.0, np.linalg.eigvalsh(M)[0] + square / mu * (rng.normal() - math.sqrt(math.log(6 / DELTA))))
        ridge = max(0.0, math.sqrt(d * math.log(2 * d**2 / 0.05)) * square / mu - smallest)
        E = np.triu(rng.normal(size=(d, d))) * math.sqrt(2) * square / mu
        b = X.T @ split.y + 2 * math.sqrt(square) * bound / mu * rng.normal(size=d)
        w = np.linalg.solve(M + E + np.triu(E, 1).T + ridge * np.eye(d), b)
        errors.append(error(problem, split, split.X_test @ w[:-1] + constant * w[-1]))
    return {"error": rounded(errors)}

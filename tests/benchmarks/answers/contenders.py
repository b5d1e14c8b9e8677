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

from dpdist import Ledger, LinearRegression, LinearSVC, LogisticRegression
from dpdist.central import AcceleratedGradient, ClipLabel, ClipNorm, HardThresholding
from dpdist.constraints import L1Ball
from dpdist.errors import BudgetError
from dpdist.privacy.accounting.closed_forms import gdp_mu
from tests.benchmarks.answers.problems import L1_RADIUS, N_NONZERO, RESIDUAL_BOUND, Problem, Split

DELTA, SEEDS = 1e-6, range(5)
PENALTIES = (1e-6, 1e-4, 1e-2)
"""Strengths that scikit-learn gets without privacy; the best on the held-out rows counts."""
MOST_NUMBERS_FOR_ALL = 5_000_000
"""Rows times columns; larger problems are fitted by the default alone. Of those with 1e5 rows only the default is
recorded so far, so that nothing is said of the best own solver there."""

CLASSES = ("logistic", "sparse classes")

Errors = list[float]
Record = dict[str, Any]


def error(problem: Problem, split: Split, linear_predictor: np.ndarray) -> float:
    """Held-out log-loss, share of wrong classes, mean squared error, or squared distance from the truth.

    The last is relative to that of zero, or of a constant where there is one.
    """
    if problem.family == "four classes":
        return float(log_loss(split.y_test, np.exp(linear_predictor), labels=range(4)))
    if problem.family == "hinge":
        return float(np.mean((linear_predictor > 0) != split.y_test))
    if problem.family in CLASSES:
        return float(log_loss(split.y_test, expit(linear_predictor), labels=[0, 1]))
    if split.truth is not None:
        spread = np.var(split.truth) if problem.family == "sparse" else np.mean(split.truth**2)
        return float(np.mean((linear_predictor - split.truth) ** 2) / spread)
    return float(np.mean((linear_predictor - split.y_test) ** 2))


@functools.lru_cache(maxsize=8)
def references(problem: Problem) -> dict[str, Errors]:
    """What needs no budget: the best constant, the best of scikit-learn's fits, and the one to weighed rows.

    The latter has the smallest penalty, and counts rows that are longer than ``row_norm`` as little as Newton steps and
    sufficient statistics do: it is what our fits go to with their budget.
    """
    constant: Errors = []
    free: dict[float, Errors] = {alpha: [] for alpha in PENALTIES}
    cut: Errors = []
    for seed in SEEDS:
        split = problem.draw(seed)
        constant.append(error(problem, split, _constant(problem, split)))
        for alpha in PENALTIES:
            free[alpha].append(error(problem, split, _without_privacy(problem, split, alpha)))
        cut.append(error(problem, split, _without_privacy(problem, split, min(PENALTIES), weighed=True)))
    best = min(free.values(), key=np.mean)
    return {"constant": rounded(constant), "not private": rounded(best), "bounded": rounded(cut)}


def bounded(problem: Problem, split: Split) -> Split:
    """The rows to fit on, scaled down to the public bounds that there are."""
    row_norm, label_bound = problem.bounds.get("row_norm", math.inf), problem.bounds.get("label_bound", math.inf)
    lengths = np.maximum(np.linalg.norm(split.X, axis=1, keepdims=True), 1e-300)
    return replace(
        split, X=split.X * np.minimum(1.0, row_norm / lengths), y=np.clip(split.y, -label_bound, label_bound)
    )


def _constant(problem: Problem, split: Split) -> np.ndarray:
    n = len(split.y_test)
    if problem.family == "four classes":
        return np.tile(np.log(np.bincount(split.y, minlength=4) / len(split.y)), (n, 1))
    share = split.y.mean()
    if problem.family in (*CLASSES, "hinge"):
        return np.full(n, math.log(share / (1 - share)))
    return np.full(n, 0.0 if problem.family == "robust" else share)


def _without_privacy(problem: Problem, split: Split, alpha: float, weighed: bool = False) -> np.ndarray:
    n, weights, y = len(split.X), None, split.y
    if weighed:
        row_norm, label_bound = (problem.bounds.get(name, math.inf) for name in ("row_norm", "label_bound"))
        lengths = np.maximum(np.linalg.norm(split.X, axis=1), 1e-300)
        weights, y = np.minimum(1.0, row_norm / lengths) ** 2, np.clip(y, -label_bound, label_bound)
    if problem.family in (*CLASSES, "hinge", "four classes"):
        model = SklearnLogisticRegression(C=1 / (alpha * n), max_iter=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(split.X, y, weights)
        return told(problem, model, split.X_test)
    ridge = Ridge(alpha=alpha * n, fit_intercept=problem.family != "robust")
    return np.asarray(ridge.fit(split.X, y, weights).predict(split.X_test))


def told(problem: Problem, model: Any, X: np.ndarray) -> np.ndarray:
    """What a model says of rows, as `error` wants it."""
    if problem.family == "four classes":
        return np.asarray(model.predict_log_proba(X))
    return np.asarray(model.decision_function(X) if problem.family in (*CLASSES, "hinge") else model.predict(X))


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


SPARSE: dict[str, Choices] = {
    "residual": {"solver": HardThresholding(n_nonzero=N_NONZERO), "gradient": "residual"},
    "frank-wolfe": {"solver": "frank-wolfe", "constraint": L1Ball(L1_RADIUS)},
}
HINGE: dict[str, Choices] = {
    "gradient": {"solver": "gradient"},
    "accelerated, 60 rounds": {"solver": AcceleratedGradient(n_rounds=60), "alpha": 1e-6},
    "objective": {"solver": "objective", "alpha": 1e-3},
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
    elif problem.family in ("sparse", "sparse classes"):
        found = {"auto": {"solver": HardThresholding(n_nonzero=N_NONZERO)}, **SPARSE}
    elif problem.family == "hinge":
        found = {"auto": {}, **HINGE}
    elif problem.family == "four classes":
        found = {"auto": {}, **{name: LOGISTIC[name] for name in ("newton", "gradient", "accelerated, 60 rounds")}}
    else:
        found = {"auto": {}, **ROBUST}
    small = problem.n_rows * problem.n_features <= MOST_NUMBERS_FOR_ALL
    return found if small else {"auto": found["auto"]}


def everybody(problem: Problem, epsilon: float) -> dict[str, Record]:
    """All of them, but for the one that the default is."""
    choices = own(problem)
    found = {"auto": measured(problem, choices.pop("auto"), epsilon)}
    taken = {"solver": found["auto"].get("solver")}
    return found | {
        name: measured(problem, c, epsilon) for name, c in choices.items() if not taken.items() <= c.items()
    }


def _estimator(problem: Problem, choices: Choices, epsilon: float, seed: int | None) -> Any:
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": seed, "ledger": Ledger(":memory:")}
    if problem.family == "logistic":
        return LogisticRegression(classes=[0, 1], row_norm=problem.bounds["row_norm"], **choices, **common)
    if problem.family == "four classes":
        return LogisticRegression(classes=range(4), row_norm=problem.bounds["row_norm"], **choices, **common)
    if problem.family == "hinge":
        return LinearSVC(classes=[0, 1], row_norm=problem.bounds["row_norm"], **choices, **common)
    if problem.family in ("sparse", "sparse classes"):
        common |= {"feature_bound": problem.bounds["feature_bound"], "alpha": 0.0}
        if problem.family == "sparse":
            return LinearRegression(residual_bound=RESIDUAL_BOUND, **choices, **common)
        return LogisticRegression(classes=[0, 1], **choices, **common)
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
            errors.append(error(problem, split, told(problem, model, split.X_test)))
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

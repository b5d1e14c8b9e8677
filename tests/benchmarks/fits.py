"""Whole private fits against non-private libraries."""

from __future__ import annotations

import functools
import time

import dask
import dask.array as da
import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as SklearnLogisticRegression
from threadpoolctl import threadpool_limits

from dpdist import LogisticRegression
from dpdist.central import GradientDescent
from tests.benchmarks.measure import benchmark, best_of

ROUNDS = 30


@functools.cache
def logit(n: int = 400_000, d: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.normal(size=d)
    theta *= 6 / np.linalg.norm(theta)
    return X, (rng.random(n) < expit(X @ theta * np.sqrt(d) / 2)).astype(int)


def private_fit(X: np.ndarray, y: np.ndarray, n_rounds: int = ROUNDS) -> LogisticRegression:
    return LogisticRegression(
        classes=[0, 1],
        epsilon=1.0,
        delta=1e-6,
        row_norm=1.0,
        solver=GradientDescent(n_rounds=n_rounds),
        cluster="threads",
    ).fit(X, y)


@benchmark("fit-vs-sklearn", ">= 1.0")
def fit_vs_sklearn() -> tuple[float, str]:
    X, y = logit()
    with threadpool_limits(1), dask.config.set(num_workers=1):
        theirs, ours = best_of(
            lambda: SklearnLogisticRegression(C=1 / (1e-4 * len(X))).fit(X, y), lambda: private_fit(X, y), repeats=5
        )
    return theirs / ours, f"scikit-learn's lbfgs takes this many times as long as {ROUNDS} private rounds, 4e5 x 50"


@benchmark("default-fit-vs-sklearn", ">= 1.5")
def default_fit_vs_sklearn() -> tuple[float, str]:
    X, y = logit()
    default = LogisticRegression(classes=[0, 1], epsilon=1.0, delta=1e-6, row_norm=1.0, cluster="threads")
    with threadpool_limits(1), dask.config.set(num_workers=1):
        theirs, ours = best_of(
            lambda: SklearnLogisticRegression(C=1 / (1e-4 * len(X))).fit(X, y), lambda: default.fit(X, y), repeats=3
        )
    return theirs / ours, f"scikit-learn's lbfgs takes this many times as long as solver={default.solver_!r}, 4e5 x 50"


@benchmark("iteration-vs-dask-glm", ">= 20")
def iteration_vs_dask_glm() -> tuple[float, str]:
    from dask_glm.algorithms import gradient_descent
    from dask_glm.families import Logistic

    X, y = logit()
    chunks = len(X) // 8
    dX, dy = da.from_array(X, chunks=(chunks, X.shape[1])), da.from_array(y.astype(float), chunks=chunks)
    private_fit(X, y)
    times = []
    for iterations in (2, 7):
        start = time.perf_counter()
        with np.errstate(over="ignore"):
            gradient_descent(dX, dy, max_iter=iterations, tol=0, family=Logistic)
        times.append(time.perf_counter() - start)
    short, long = best_of(lambda: private_fit(X, y, 5), lambda: private_fit(X, y, 35), repeats=5)
    theirs, ours = (times[1] - times[0]) / 5, (long - short) / 30
    return theirs / ours, "dask-glm's gradient_descent takes this many times as long per iteration, 4e5 x 50"

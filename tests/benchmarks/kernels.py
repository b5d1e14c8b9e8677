"""What one clipped, exact gradient pass costs against reading memory and against NumPy without privacy."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from dpdist.kernels.coordinate_gradients import coordinate_gradient
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.truncation import ScalarMap, SmoothTruncation, SoftTruncation
from dpdist.losses import Logistic
from tests.benchmarks.measure import benchmark, best_of


@functools.cache
def rows(n: int = 1_000_000, d: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.where(rng.random(n) < 0.5, -1.0, 1.0), rng.normal(size=d) / d


def gradient(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return glm_gradient(X, y, w, Logistic(), row_norm=7.0, clip_norm=7.0, grid=grid_for(7.0))


@benchmark("gradient-pass", ">= 0.75")
def gradient_pass() -> tuple[float, str]:
    X, y, w = rows()
    read, ours = best_of(X.sum, lambda: gradient(X, y, w))
    return read / ours, "speed of a private logistic gradient over 1e6 x 50, one core, as a share of X.sum()"


@benchmark("gradient-vs-numpy", ">= 1.5")
def gradient_vs_numpy() -> tuple[float, str]:
    X, y, w = rows()
    t = (y > 0).astype(float)
    with threadpool_limits(1):
        plain, ours = best_of(lambda: X.T @ (expit(X @ w) - t), lambda: gradient(X, y, w))
    return plain / ours, "NumPy's non-private X.T @ (sigmoid(X @ w) - y) takes this many times as long"


def robust(bounded: ScalarMap) -> np.ndarray:
    X, y, w = rows()
    return coordinate_gradient(X, y, w, Logistic(), bounded, grid=grid_for(bounded.bound))


@benchmark("robust-pass", "<= 1.5")
def robust_pass() -> tuple[float, str]:
    clipped, soft = best_of(lambda: gradient(*rows()), lambda: robust(SoftTruncation(1.0)))
    return soft / clipped, "a soft-truncated gradient pass over 1e6 x 50, one core, takes this many times a clipped one"


@benchmark("robust-pass-smooth", "<= 3")
def robust_pass_smooth() -> tuple[float, str]:
    one, nine = SmoothTruncation(1.0), SmoothTruncation(9.2)
    clipped, smooth, smoother = best_of(lambda: gradient(*rows()), lambda: robust(one), lambda: robust(nine))
    return smooth / clipped, f"the same for the smoothed truncation with beta = 1; {smoother / clipped:.2f} for 9.2"


@benchmark("gradient-two-threads", ">= 1.5")
def gradient_two_threads() -> tuple[float, str]:
    X, y, w = rows()
    half = len(X) // 2
    parts = [(X[:half], y[:half], w), (X[half:], y[half:], w)]
    with ThreadPoolExecutor(2) as pool:
        one, two, read, reads = best_of(
            lambda: gradient(X, y, w),
            lambda: list(pool.map(lambda part: gradient(*part), parts)),
            X.sum,
            lambda: list(pool.map(lambda part: part[0].sum(), parts)),
            repeats=25,
        )
    return one / two, f"speed-up of two threads over one; of X.sum(), which only reads memory: {read / reads:.2f}"

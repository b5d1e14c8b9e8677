"""Rounds and fits of private EM algorithms, against a logistic gradient pass and against scikit-learn."""

from __future__ import annotations

import functools
import warnings

import dask
import numpy as np
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from dpdist import TwoComponentMixture
from dpdist.central import ClippedEM
from dpdist.kernels.grid import grid_for
from dpdist.kernels.latent import Latent, MissingCells, MixedLines, TwoComponents, distance
from tests.benchmarks.kernels import gradient, rows
from tests.benchmarks.measure import benchmark, best_of

ROUNDS = 8


@functools.cache
def with_missing_cells() -> np.ndarray:
    X = rows()[0].copy()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return X


def share(model: Latent) -> float:
    """Speed of a round over 1e6 x 50, one core, as a share of that of the logistic gradient."""
    X, y, w = rows()
    seen, clip_norm = (with_missing_cells() if model.empty_cells else X), 7.0
    plain, ours = best_of(
        lambda: gradient(X, y, w), lambda: model.clipped_sum(seen, y, 50 * w, clip_norm, grid_for(clip_norm), None)
    )
    return plain / ours


@benchmark("em-pass", ">= 0.6")
def em_pass() -> tuple[float, str]:
    lines = share(MixedLines(1.0))
    said = f"speed of a round for two components, as a share of a logistic gradient pass; {lines:.2f} for two lines"
    return share(TwoComponents(1.0)), said


@benchmark("missing-cells-pass", ">= 0.4")
def missing_cells_pass() -> tuple[float, str]:
    return share(MissingCells(1.0)), "the same for a regression with a tenth of the cells missing"


@benchmark("em-vs-sklearn", ">= 1.0")
def em_vs_sklearn() -> tuple[float, str]:
    """At 1.5 times its error at most, or the ratio is 0."""
    n, d, rng = 1_000_000, 20, np.random.default_rng(0)
    b = rng.normal(size=d)
    b *= 3 / np.linalg.norm(b)
    X = rng.choice([-1.0, 1.0], n)[:, None] * b + rng.normal(size=(n, d))
    start = b + 0.75 * rng.normal(size=d) / np.sqrt(d)
    theirs = GaussianMixture(
        2, covariance_type="diag", max_iter=ROUNDS, tol=0.0, means_init=np.array([start, -start]),
        weights_init=[0.5, 0.5], precisions_init=np.ones((2, d)), init_params="random_from_data",
    )  # fmt: skip
    ours = TwoComponentMixture(
        ClippedEM(ROUNDS), noise_std=1.0, radius=3.75, start=start, epsilon=1.0, delta=1e-7, cluster="threads"
    )
    with threadpool_limits(1), dask.config.set(num_workers=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        long, short = best_of(lambda: theirs.fit(X), lambda: ours.fit(X), repeats=2)
    errors = [
        distance(TwoComponents(1.0), found, b) for found in ((theirs.means_[0] - theirs.means_[1]) / 2, ours.coef_)
    ]
    good = errors[1] <= 1.5 * errors[0]
    said = (
        f"scikit-learn's 8 iterations take this many times as long, 1e6 x 20; errors {errors[1]:.2g}, {errors[0]:.2g}"
    )
    return (long / short if good else 0.0), said

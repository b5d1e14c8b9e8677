"""What releases of symmetric matrices cost: passes against NumPy without privacy, noise against that of a vector."""

from __future__ import annotations

import functools
import math
import tracemalloc

import dask
import numpy as np
from sklearn.decomposition import PCA as SklearnPCA
from threadpoolctl import threadpool_limits

from dpdist import Budget, Coordinator, Dataset, local
from dpdist.central import PCA
from dpdist.estimators.row_maps import features
from dpdist.kernels.hessians import glm_hessian
from dpdist.kernels.moments import second_moment
from dpdist.kernels.packed import packed_size
from dpdist.losses import Logistic, Sigmoid
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.privacy.randomness.bits import SystemBits
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream
from dpdist.queries.moment_sums import SecondMomentSum
from tests.benchmarks.measure import benchmark, best_of

ROWS = {50: 400_000, 200: 100_000, 1000: 20_000}
WIDE = 999
"""Columns of a matrix of 499 500 entries."""


@functools.cache
def rows(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS[d], d))
    return X, np.where(rng.random(len(X)) < 0.5, -1.0, 1.0), rng.normal(size=d) / d


def against_numpy(d: int) -> tuple[float, str]:
    X, _, _ = rows(d)
    with threadpool_limits(1):
        plain, ours = best_of(lambda: X.T @ X, lambda: second_moment(X, math.sqrt(d)), repeats=15)
    return ours / plain, f"exact second moments of clipped rows, {len(X):.0e} x {d}, one core, over NumPy's X.T @ X"


benchmark("moments-50-columns", "<= 1.5")(functools.partial(against_numpy, 50))
benchmark("moments-200-columns", "<= 1.15")(functools.partial(against_numpy, 200))
benchmark("moments-1000-columns", "<= 1.05")(functools.partial(against_numpy, 1000))


@benchmark("pca-vs-sklearn", "<= 1.3")
def pca_vs_sklearn() -> tuple[float, str]:
    X = np.random.default_rng(0).normal(size=(400_000, 100))
    private = PCA(5, row_norm=12.0, epsilon=1.0, delta=1e-6, cluster="threads")
    with threadpool_limits(1), dask.config.set(num_workers=1):
        theirs, ours = best_of(
            lambda: SklearnPCA(5, svd_solver="covariance_eigh").fit(X), lambda: private.fit(X), repeats=7
        )
    return ours / theirs, "a whole private PCA in memory, 4e5 x 100, one core, over scikit-learn's covariance_eigh"


@benchmark("moment-reports", "<= 1.5")
def moment_reports() -> tuple[float, str]:
    protocol = local.SecondMoment(row_norm=5.0, epsilon=1.0).protocol(10**6, 20)
    block = {"X": np.random.default_rng(0).normal(size=(4096, 20))}
    stream = Stream(bytes(32), "benchmark")
    drawn, reported = best_of(
        lambda: StreamDraws(stream.generator(0)).normals((4096, packed_size(20))),
        lambda: protocol.summarise(block, StreamDraws(stream.generator(0))),
        repeats=40,
    )
    return (
        reported / drawn,
        "reports of the products of 20 columns and their sum, over drawing 210 normal numbers for each",
    )


@benchmark("hessian-pass", "<= 1.3")
def hessian_pass() -> tuple[float, str]:
    """The dearest of the widths and losses."""
    found = {}
    for d in ROWS:
        X, y, w = rows(d)
        r = math.sqrt(d)
        with threadpool_limits(1):
            moments, logistic, sigmoid = best_of(
                functools.partial(second_moment, X, r),
                functools.partial(glm_hessian, X, y, w, Logistic(), row_norm=r),
                functools.partial(glm_hessian, X, y, w, Sigmoid(), row_norm=r),
                repeats=10,
            )
        found[d] = max(logistic, sigmoid) / moments
    several = ", ".join(f"{ratio:.2f} at {d} columns" for d, ratio in found.items())
    return max(found.values()), f"a Hessian pass (logistic and sigmoid) over one of second moments: {several}"


@benchmark("matrix-noise", "<= 1")
def matrix_noise() -> tuple[float, str]:
    units = np.zeros(packed_size(WIDE), dtype=np.int64)
    mechanisms = [kind().at(1.0) for kind in (Gaussian, SymmetricGaussian)]
    vector, matrix = best_of(
        *(functools.partial(mechanism.release, units, 2.0**38, SystemBits()) for mechanism in mechanisms), repeats=4
    )
    return matrix / vector, "noise of a packed matrix of 499 500 entries over that of a vector as long"


@benchmark("matrix-memory", "<= 200")
def matrix_memory() -> tuple[float, str]:
    dataset = Dataset.from_arrays(X=np.random.default_rng(0).normal(size=(40, WIDE)))
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": features}, cluster="threads") as run:
        plan = run.plan([Item("moments", SymmetricGaussian(), count=2)])
        for _ in range(2):  # the first compiles
            tracemalloc.start()
            run.release(SecondMomentSum(WIDE, 30.0), plan["moments"])
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    return peak / packed_size(WIDE), "bytes an entry at the most, of a whole release of a matrix of 499 500 entries"

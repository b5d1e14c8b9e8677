"""What the engine adds: to reading a store, to a round on a cluster, to the coordinator's memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

from dpdist import Budget, Coordinator, Dataset
from dpdist.central.queries import GradientSum
from dpdist.data import synthetic
from dpdist.engine import coordinator as engine
from dpdist.fitting.columns import ClassCodes, features
from dpdist.losses import Logistic
from dpdist.privacy.ledger import Ledger
from dpdist.privacy.mechanisms import Gaussian
from dpdist.privacy.plan import Item
from tests.benchmarks.measure import benchmark


def rounds(dataset: Dataset, n_rounds: int, cluster: object = "threads") -> list[float]:
    """Seconds of each round of a private gradient on a dataset; the first ones load and warm up."""
    times = []
    with Coordinator(
        dataset,
        Budget(1.0, 1e-6),
        arrays={"X": features, "y": ClassCodes((0, 1))},
        ledger=Ledger(":memory:"),
        cluster=cluster,
    ) as coordinator:
        item = coordinator.plan([Item("gradient", Gaussian(), count=n_rounds)])["gradient"]
        query = GradientSum(Logistic(), row_norm=1.0, clip_norm=1.0)
        w = np.zeros(dataset.arrays["X"].shape[1])
        for _ in range(n_rounds):
            start = time.perf_counter()
            w = -coordinator.release(query, item, w) / dataset.n_rows
            times.append(time.perf_counter() - start)
    return times


@benchmark("epoch-vs-read", "<= 1.3")
def epoch_vs_read() -> tuple[float, str]:
    with tempfile.TemporaryDirectory() as folder:
        dataset, _ = synthetic.logit(2_000_000, 50, store=f"{folder}/rows.zarr")

        def read() -> float:
            start = time.perf_counter()
            ranges = [dataset.partitions[i::2] for i in range(2)]
            source, labels = dataset.source("X"), dataset.source("y")
            graph = {
                f"read-{i}": (lambda part: [(source.read(*r), labels.read(*r), None)[2] for r in part], part)
                for i, part in enumerate(ranges)
            }
            dask.threaded.get(graph, list(graph), num_workers=2)
            return time.perf_counter() - start

        share, engine.RESIDENT_SHARE = engine.RESIDENT_SHARE, 0.0
        try:
            with dask.config.set(num_workers=2):
                reads = [read() for _ in range(6)]
                epochs = rounds(dataset, 14)[2:]
                reads += [read() for _ in range(6)]
        finally:
            engine.RESIDENT_SHARE = share
    return min(epochs) / min(reads), "one streamed epoch over 2e6 x 50 on disk against only reading it, two threads"


@benchmark("round-overhead", "<= 1.0")
def round_overhead() -> tuple[float, str]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_000_000, 10)) / 4
    dataset = Dataset.from_arrays(X=X, y=rng.integers(0, 2, len(X)), partition_rows=1000)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        there = np.median(rounds(dataset, 40, client)[10:])
    # what one worker computes in a round, without the other one
    half = Dataset.from_arrays(X=X[::2].copy(), y=rng.integers(0, 2, len(X) // 2), partition_rows=1000)
    with dask.config.set(num_workers=1):
        here = np.median(rounds(half, 40)[10:])
    overhead = 1000 * (there - here)
    return overhead / 50, f"{overhead:.1f} ms a round above the compute, 1000 partitions, 2 processes (goal 50 ms)"


@benchmark("coordinator-memory", "<= 1.05")
def coordinator_memory() -> tuple[float, str]:
    peaks = {}
    for n in (100_000, 10_000_000):
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "rows.zarr")
            run = "from tests.benchmarks.engine import {0}; {0}({1!r}, {2})"
            for step in ("write_rows", "fit_and_print_peak"):
                done = subprocess.run(
                    [sys.executable, "-c", run.format(step, store, n)], check=True, capture_output=True, text=True
                )
            peaks[n] = json.loads(done.stdout.splitlines()[-1])
    return peaks[10_000_000] / peaks[100_000], "peak memory of the coordinating process, 1e7 rows against 1e5"


def write_rows(store: str, n: int) -> None:
    synthetic.logit(n, 10, store=store, dtype="float32")


def fit_and_print_peak(store: str, n: int) -> None:
    import resource

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        rounds(Dataset.open(store), 10, cluster)
        print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))

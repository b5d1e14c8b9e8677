"""What the engine adds: to reading a store, to a round on a cluster, to the coordinator's memory."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import dask
import numpy as np
import psutil
import zarr
from distributed import Client, LocalCluster

from dpdist import Budget, Coordinator, Dataset
from dpdist.engine import coordinator as engine
from dpdist.engine.unchanged import Unchanged
from dpdist.estimators.row_maps import ClassCodes, features
from dpdist.losses import Logistic
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.problems import linear_problems as synthetic
from dpdist.queries.gradient_sums import GradientSum
from tests.benchmarks.measure import benchmark
from tests.s3 import BUCKET, KEY, SECRET, Faults, S3Server

LATENCY = 0.02
"""Seconds until a store far away begins to answer."""


def rounds(
    dataset: Dataset, n_rounds: int, cluster: object = "threads", between: Callable[[int], None] = lambda done: None
) -> list[float]:
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
        for done in range(n_rounds):
            between(done)
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


@benchmark("epoch-check", "<= 1.25")
def epoch_check() -> tuple[float, str]:
    """Rounds in turns, with and without comparing rows that are read again with what they were."""
    check, compare = Unchanged.check, True

    def sometimes(self: Unchanged, *rows: Any) -> None:
        if compare:
            check(self, *rows)

    def switch(done: int) -> None:
        nonlocal compare
        compare = done % 2 == 0

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(engine, "RESIDENT_SHARE", 0.0),
        mock.patch.object(Unchanged, "check", sometimes),
        dask.config.set(num_workers=2),
    ):
        dataset, _ = synthetic.logit(1_000_000, 50, store=f"{folder}/rows.zarr")
        times = rounds(dataset, 102, between=switch)
    return min(times[2::2]) / min(
        times[3::2]
    ), "one streamed epoch over 1e6 x 50 on disk, with and without the comparison"


@benchmark("s3-epoch", "<= 1.2")
def s3_epoch() -> tuple[float, str]:
    return streaming(None)


@benchmark("s3-epoch-late", "<= 1.2")
def s3_epoch_late() -> tuple[float, str]:
    return streaming(LATENCY)


def streaming(latency: float | None, repeats: int = 6) -> tuple[float, str]:
    """A streamed epoch of a store against only reading it, in turns; the server takes its share of the processors."""
    reads: dict[int, list[float]] = {1: [], 2: [], 4: [], 8: [], 16: []}
    with store_in_bucket(latency) as (dataset, server_seconds):
        before = server_seconds()

        def read_in_turns(done: int) -> None:
            if done >= 3 and done % 3 == 0:  # the first epochs load and warm up
                for n_threads, times in reads.items():
                    times.append(read_all(dataset, n_threads))

        with mock.patch.object(engine, "RESIDENT_SHARE", 0.0), dask.config.set(num_workers=2):
            epochs = rounds(dataset, 3 * (repeats + 1), between=read_in_turns)
        passes = 1 + len(epochs) + len(reads) * repeats
        server = (server_seconds() - before) / passes
        size = dataset.nbytes / 1e6
    best = min(reads, key=lambda n: min(reads[n]))
    late = "" if latency is None else f" that answers {1000 * latency:.0f} ms late"
    return min(epochs[3:]) / min(reads[best]), (
        f"one streamed epoch over {size:.0f} MB in an S3 server{late}, two threads, against reading all chunks with "
        f"{best} threads, the fastest of {', '.join(map(str, reads))} ({min(reads[best]):.2f} s; the server here "
        f"takes {server:.2f} s of a processor for each pass)"
    )


def read_all(dataset: Dataset, n_threads: int) -> float:
    """Seconds to read and decode every chunk of every array, without any check."""
    arrays: list[Any] = [zarr.open_array(dataset.source(name).array.store_path, mode="r") for name in dataset.arrays]
    start = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(lambda rows: [array[slice(*rows)] for array in arrays] and None, dataset.partitions):
            pass
    return time.perf_counter() - start


@contextlib.contextmanager
def store_in_bucket(latency: float | None) -> Iterator[tuple[Dataset, Callable[[], float]]]:
    """400 MB in a real S3 server, perhaps behind a proxy process; and the processor time of the server so far."""
    server = S3Server()
    account = {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": server.address,
    }  # fmt: skip
    process = psutil.Process(server._process.pid)
    place = f"s3://{BUCKET}/rows"
    try:
        with mock.patch.dict(os.environ, account), proxied(server, latency) as address:
            synthetic.logit(1_000_000, 50, store=place)
            with mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL": address}):
                yield Dataset.open(place), lambda: sum(process.cpu_times()[:2])
    finally:
        server.remove()


@contextlib.contextmanager
def proxied(server: S3Server, latency: float | None) -> Iterator[str]:
    """The address of the server, or of a proxy in a process of its own that passes every request on late."""
    if latency is None:
        yield server.address
        return
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=pass_on, args=(server.port, latency, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def pass_on(port: int, latency: float, told: Connection) -> None:
    proxy = Faults(SimpleNamespace(port=port))  # type: ignore[arg-type]
    proxy.spoil = lambda method, path: time.sleep(latency)
    told.send(proxy.address)
    time.sleep(3600)


@benchmark("round-overhead", "<= 15")
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
    return overhead, "milliseconds of a round above the compute, 1000 partitions in two worker processes"


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

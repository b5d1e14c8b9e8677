"""How a round grows with partitions, workers and the size of the state, beside the model of `dpdist.jobs.scale`.

Writes the numbers as CSV and a picture as SVG to ``benchmark-results/``. With the variable ``DPDIST_SCALE=full``
up to 1e5 partitions and 32 workers, else up to 1e4 and 8 (which takes about a minute).
"""

from __future__ import annotations

import csv
import os
import tempfile
import time
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import dask
import numpy as np
import psutil
from distributed import Client

from dpdist import Budget, Coordinator, Dataset
from dpdist.engine.query import Query
from dpdist.jobs.scale import Machine, Work, load_seconds, round_seconds, run_seconds
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.grid import grid_for, to_units
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.problems import linear_problems as synthetic
from tests.benchmarks.engine import rounds as gradient_rounds
from tests.benchmarks.measure import benchmark
from tests.faults.cluster import RealCluster

FULL = os.environ.get("DPDIST_SCALE") == "full"
PARTITIONS = (10, 100, 1000, 10_000, 100_000)[: 5 if FULL else 4]
WORKERS = (1, 2, 4, 8, 16, 32)[: 6 if FULL else 4]
SIZES = (10, 100, 1000, 10_000, 100_000)
ROUNDS = 12


@dataclass(frozen=True)
class Echo(Query):
    """Rows of any length, summed into ``n`` coordinates: the state travels out and a summary of its size comes back."""

    tag: ClassVar[str] = "Echo"

    n: int

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def grid(self) -> float:
        return grid_for(1.0)

    def summarise(self, block, state, rows):  # type: ignore[no-untyped-def]
        total = np.zeros(self.n, dtype=np.int64)
        X = to_units(clip_l2(block["X"], 1.0), self.grid, 1.0).sum(axis=0)
        total[: len(X)] = X[: self.n]
        return total


@dataclass(frozen=True)
class Point:
    """One measurement."""

    what: str
    partitions: int
    workers: int
    size: int
    load: float
    round: float
    scheduler_cpu: float
    coordinator_bytes: int

    @property
    def work(self) -> Work:
        return Work(self.partitions, 8 * self.partitions, self.partitions, self.size)


def measure(what: str, dataset: Dataset, client: Client, workers: int, size: int) -> Point:
    """Median round, loading time, CPU seconds of the scheduler per round, and the coordinator's peak memory."""

    def cpu() -> float:
        return sum(client.run_on_scheduler(lambda: psutil.Process().cpu_times()[:2]))

    def run(rounds: int) -> list[float]:
        times = [time.perf_counter()]
        with Coordinator(
            dataset, Budget(1.0, 1e-6), arrays={"X": np.asarray}, ledger=Ledger(":memory:"), cluster=client
        ) as coordinator:
            item = coordinator.plan([Item("sum", Gaussian(), count=rounds)])["sum"]
            state = np.zeros(size)
            for _ in range(rounds):
                state = coordinator.release(Echo(size), item, state)
                times.append(time.perf_counter())
        return times

    before = cpu()
    times = run(ROUNDS)
    used = cpu() - before
    tracemalloc.start()
    run(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    steps = np.diff(times)
    load = float(steps[0] - np.median(steps[2:]))
    return Point(what, len(dataset.partitions), workers, size, load, float(np.median(steps[2:])), used / ROUNDS, peak)


def points() -> list[Point]:
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def rows(n: int) -> Dataset:
            place = folder / f"{n}.zarr"
            if not place.exists():
                X = np.random.default_rng(0).uniform(0.1, 0.9, size=(n, 1))
                Dataset.from_arrays(place, X=X, partition_rows=1)
            return Dataset.open(str(place))

        with RealCluster(folder / "cluster", 0) as cluster:
            for workers in WORKERS:
                while len(cluster.workers) < workers:
                    cluster.start_worker()
                with cluster.client(workers) as client:
                    measure("warm", rows(64), client, workers, 10)
                    found.append(measure("workers", rows(64), client, workers, 10))
                    if workers == max(WORKERS):
                        found.append(measure("both", rows(64), client, workers, SIZES[-1]))
                    if workers == 2:
                        found += [measure("partitions", rows(n), client, 2, 10) for n in PARTITIONS]
                        found += [measure("size", rows(64), client, 2, size) for size in SIZES]
    return found


def fitted(found: list[Point]) -> Machine:
    """The constants of this machine: least squares of relative errors, none below zero."""
    from scipy.optimize import nnls

    columns = [[1.0, p.workers, 16 * p.size * p.workers, p.size, -(-p.partitions // p.workers)] for p in found]
    scale = np.array([p.round for p in found])
    latency, task, per_byte, draw, block = nnls(np.array(columns) / scale[:, None], np.ones(len(found)))[0]
    opens = [p.load / (-(-p.partitions // p.workers)) for p in found if p.partitions >= 1000]
    return replace(
        Machine(), latency=latency, task=task, link=1 / max(per_byte, 1e-12), draw=draw, block=block,
        open=float(np.median(opens)) if opens else Machine().open,
    )  # fmt: skip


def draw(found: list[Point], machine: Machine, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    titles = {"partitions": "partitions (2 workers)", "workers": "workers", "size": "numbers in the state (2 workers)"}
    for axis, what in zip(axes, titles, strict=False):
        group = [p for p in found if p.what == what]
        x = [getattr(p, what) for p in group]
        axis.loglog(x, [p.round for p in group], "o", label="measured round")
        axis.loglog(x, [round_seconds(p.work, p.workers, machine, True) for p in group], "-", label="model")
        axis.loglog(x, [p.scheduler_cpu for p in group], "^", label="scheduler CPU", alpha=0.6)
        axis.set_xlabel(titles[what])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend()
    threads = [2**i for i in range(14)]
    for n, style in ((10**9, "-"), (10**11, "--")):
        work = Work(n, 408 * n, 408 * n // 2**25, 50, 30)
        axes[3].loglog(threads, [run_seconds(work, t) for t in threads], style, label=f"{n:.0e} rows of 50, 30 passes")
    axes[3].set_xlabel("worker threads (predicted)")
    axes[3].legend()
    axes[3].grid(alpha=0.3)
    figure.savefig(path)
    plt.close(figure)


@benchmark("cluster-throughput", ">= 0.9")
def cluster_throughput() -> tuple[float, str]:
    """Rows per second of the same fit, resident: worker processes over TCP against as many threads of this process."""
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset, _ = synthetic.logit(2_000_000, 50, store=folder / "rows.zarr")

        def rate(cluster: object) -> float:
            return dataset.n_rows / min(gradient_rounds(dataset, 30, cluster)[5:])

        with RealCluster(folder / "cluster", 0) as cluster:
            for workers in (1, 2, 4):
                while len(cluster.workers) < workers:
                    cluster.start_worker()
                for _ in range(2):  # in turns, so that a busy neighbour disturbs both alike
                    with dask.config.set(num_workers=workers):
                        here = f"{workers} threads"
                        rates[here] = max(rates.get(here, 0.0), rate("threads"))
                    with cluster.client(workers) as client:
                        there = f"{workers} worker processes"
                        rates[there] = max(rates.get(there, 0.0), rate(client))
    detail = "; ".join(f"{name} {value / 1e6:.1f}" for name, value in rates.items())
    return rates["2 worker processes"] / rates["2 threads"], (
        f"2 worker processes over TCP against 2 threads, 2e6 x 50 kept in memory; million rows a second on "
        f"{os.cpu_count()} processors: {detail}"
    )


@benchmark("scale", "<= 3.0")
def scale() -> tuple[float, str]:
    found = points()
    machine = fitted(found)
    folder = Path("benchmark-results")
    folder.mkdir(exist_ok=True)
    with open(folder / "scale.csv", "w", newline="") as file:
        table = csv.writer(file)
        names = ["what", "partitions", "workers", "size", "load", "round", "scheduler_cpu", "coordinator_bytes"]
        table.writerow([*names, "model_round"])
        for p in found:
            predicted = round_seconds(p.work, p.workers, machine, True)
            table.writerow([*(getattr(p, name) for name in names), predicted])
    draw(found, machine, folder / "scale.svg")
    ratios = [p.round / round_seconds(p.work, p.workers, machine, True) for p in found]
    worst = max(max(r, 1 / r) for r in ratios)
    big = Work(10**11, 408 * 10**11, 408 * 10**11 // 2**25, 50, 30)
    detail = (
        f"worst factor between model and {len(found)} measured rounds; here: latency {1000 * machine.latency:.1f} ms, "
        f"{1000 * machine.task:.2f} ms a task, link {machine.link / 1e9:.2f} GB/s, {1e6 * machine.draw:.1f} us to draw "
        f"a number, {1e6 * machine.block:.0f} us a partition, {1000 * machine.open:.2f} ms to open one; 1e11 x 50 on "
        "1000 threads (default constants): loading "
        f"{load_seconds(big, 1000):.0f} s, a round {round_seconds(big, 1000):.0f} s; see {folder}/scale.svg"
    )
    return worst, detail

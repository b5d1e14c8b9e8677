"""Under a simulation seed the released bits do not depend on where and how the sums were made."""

from __future__ import annotations

import os
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client

from dpdist import Budget, Coordinator, Dataset, LogisticRegression
from dpdist.central import GradientDescent, Sample
from dpdist.engine import progress
from dpdist.estimators.row_maps import features
from tests.engine.conftest import ARRAYS, gradients
from tests.processes import worker_processes

FIT = {
    "classes": [0, 1], "epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "random_state": 5,
    "solver": GradientDescent(n_rounds=4),
}  # fmt: skip


def bits(dataset, **options):
    model = LogisticRegression(**FIT, **options).fit(dataset)
    return np.concatenate([r.value for r in model.releases_])


@pytest.fixture(scope="module")
def reference(rows):
    return bits(Dataset.from_arrays(**rows), cluster="threads")


@pytest.fixture(scope="module")
def cluster():
    with worker_processes(2) as cluster:
        yield cluster


@pytest.mark.parametrize("partition_rows", [1000, 7777, 20_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_partitions(rows, reference, partition_rows, threads):
    dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
    with dask.config.set(num_workers=threads):
        assert np.array_equal(bits(dataset, cluster="threads"), reference)


@pytest.mark.parametrize("partition_rows", [1000, 7777])
@pytest.mark.parametrize("kind", ["memory", "store", "dask"])
def test_processes(rows, reference, cluster, tmp_path, kind, partition_rows):
    if kind == "memory":
        dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
    elif kind == "store":
        dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=partition_rows, **rows)
    else:
        X, y = (da.from_array(rows[name], chunks=(partition_rows, *rows[name].shape[1:])) for name in "Xy")
        dataset = Dataset.from_arrays(X=X, y=y)
    assert np.array_equal(bits(dataset, cluster=cluster), reference)


def test_one_and_three_worker_processes(rows, reference, tmp_path):
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=1000, **rows)
    for n_workers in (1, 3):
        with worker_processes(n_workers) as cluster:
            assert np.array_equal(bits(dataset, cluster=cluster.scheduler_address), reference)


def test_an_active_client_is_used(rows, reference, cluster, tmp_path):
    dataset = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=1000, **rows)
    with Client(cluster):
        assert np.array_equal(bits(dataset), reference)


def test_partitions_in_another_order(rows, reference, monkeypatch):
    shuffled = Dataset.partitions.fget
    order = np.random.default_rng(0).permutation(20)
    monkeypatch.setattr(Dataset, "partitions", property(lambda self: [shuffled(self)[i] for i in order]))
    assert np.array_equal(bits(Dataset.from_arrays(partition_rows=1000, **rows), cluster="threads"), reference)


def test_poisson_batches(rows, tmp_path, cluster):
    options = {"rows": Sample(0.1)}
    here = bits(Dataset.from_arrays(**rows), cluster="threads", **options)
    there = Dataset.from_arrays(tmp_path / "rows.zarr", partition_rows=1000, **rows)
    assert np.array_equal(bits(there, cluster=cluster, **options), here)


def slow_features(rows):
    time.sleep(0.02)
    return features(rows)


@pytest.mark.parametrize("in_memory", [False, True], ids=["store", "memory"])
def test_a_worker_killed_in_the_middle_of_a_round(ledger, rows, tmp_path, monkeypatch, in_memory):
    """Streamed shards take 0.2 s a round here, so a kill after 0.1 s hits the middle.

    Rows that were sent to the worker from memory are in no store: they are sent again.
    """
    monkeypatch.setattr("dpdist.engine.coordinator.RESIDENT_SHARE", 0.0)
    dataset = Dataset.from_arrays(None if in_memory else tmp_path / "rows.zarr", partition_rows=1000, **rows)

    def run(**options):
        arrays = {**ARRAYS, "X": slow_features}
        with Coordinator(dataset, Budget(1.0, 1e-6), arrays=arrays, ledger=ledger, random_state=2, **options) as run:
            return gradients(run, 6)

    whole = run(cluster="threads")
    with (
        worker_processes(2) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(0.0 if in_memory else 0.1, os.kill, (victim, signal.SIGKILL))

        def strike(event: progress.Event) -> None:
            if isinstance(event, progress.Released) and event.done == 3:
                killer.start()
                if in_memory:  # its rounds are too short to hit
                    killer.join()

        with progress.watching(strike):
            assert np.array_equal(run(cluster=client), whole)
        assert killer.finished.is_set()
        assert victim not in client.run(os.getpid, on_error="ignore").values()  # the scheduler may not have noticed yet
    assert [len(r.releases) for r in ledger.history(dataset.id)] == [6, 6]

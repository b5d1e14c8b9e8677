"""Clusters that lose all that they have: every worker, at once or one after another, or the scheduler."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.cli.exit_codes import report
from dpdist.engine import waits
from dpdist.engine.connection import Connection
from dpdist.engine.progress import Loading, Released, watching
from dpdist.errors import ClusterError
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from tests.faults import jobs
from tests.faults.cluster import RealCluster, within
from tests.faults.page import came_to

SECONDS = 0.05  # for a partition
LIMIT = 60.0  # for a whole run, restarts of workers included


@pytest.fixture
def run(place):
    def run(cluster, **options):
        def asked():
            ledger = Ledger(place / "ledger.sqlite")
            try:
                return jobs.run(place / "rows.zarr", ledger, "run", cluster, **{"seconds": SECONDS, **options})
            finally:
                ledger.close()

        return within(LIMIT, asked)

    return run


def meanwhile(action) -> threading.Thread:
    """In mid-round, and while the run goes on."""

    def act() -> None:
        time.sleep(SECONDS)
        action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_all_workers_replaced_at_once(place, run, healthy):
    with RealCluster(place, 2) as cluster:
        cluster.ready()

        def replace() -> None:
            cluster.kill_workers()
            cluster.start_worker()
            cluster.start_worker()

        with jobs.at_release(3, lambda: meanwhile(replace)):
            values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_all_workers_replaced_while_a_dataset_is_loading(place, run, healthy):
    seen: list[object] = []
    with RealCluster(place, 2) as cluster:
        cluster.ready()

        def replace() -> None:
            time.sleep(0.5)  # each has a partition or two of its five
            seen.append(time.monotonic())
            cluster.kill_workers()
            cluster.start_worker()
            cluster.start_worker()

        def strike(event: object) -> None:
            seen.append(event)
            if isinstance(event, Loading):
                threading.Thread(target=replace, daemon=True).start()

        with watching(strike):
            values = run(cluster.address, prepare=jobs.slowly)
    (struck,) = (entry for entry in seen if isinstance(entry, float))
    took = time.monotonic() - struck
    before = [type(event) for event in seen[: seen.index(struck)]]
    assert Loading in before and Released not in before, "it was hit while it loaded"
    healthy(values)
    came_to("Cluster", "both workers are replaced while rows are loaded", "survived: the same values", took)


def test_all_workers_gone_while_a_run_meets_them(place, run, healthy, monkeypatch):
    """The scheduler lists them, and when they are asked nobody is there; others come."""
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        listed = Connection.workers

        def list_and_kill(connection):
            found = listed(connection)
            monkeypatch.undo()
            cluster.kill_workers()
            cluster.start_worker()
            return found

        monkeypatch.setattr(Connection, "workers", list_and_kill)
        values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_workers_replaced_one_after_another(place, run, healthy):
    """As spot machines are taken away: at no time are all gone, and at the end nobody is left of the first ones."""
    with RealCluster(place, 2) as cluster:
        cluster.ready()

        def evict(number: int) -> None:
            cluster.start_worker()
            with cluster.client(2 + number):
                cluster.kill_workers(number)

        with jobs.at_release(1, lambda: meanwhile(lambda: evict(0))), jobs.at_release(4, lambda: evict(1)):
            values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_scaled_to_zero_and_back(place, run, healthy):
    """New workers come later than notice is taken."""
    with RealCluster(place, 2) as cluster:
        cluster.ready()

        def scale() -> None:
            cluster.kill_workers()
            time.sleep(3 * waits.NOTICE)
            cluster.start_worker()

        with jobs.at_release(3, lambda: meanwhile(scale)):
            values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_one_worker_under_a_nanny(place, run, healthy):
    with RealCluster(place, 1, nanny=True) as cluster:
        cluster.ready()

        def kill() -> None:
            with cluster.client() as client:
                (pid,) = client.run(os.getpid).values()
            os.kill(pid, signal.SIGKILL)

        with jobs.at_release(2, kill), jobs.at_release(4, lambda: meanwhile(kill)):
            values = run(cluster.address)
    healthy(values)


def test_rows_of_this_process_are_sent_again(tmp_path):
    """They are in no store: with the workers that had them, they are gone from the cluster."""
    X = jobs.data()

    def fit(cluster, ledger):
        with Coordinator(
            Dataset.from_arrays(X=X, partition_rows=jobs.PARTITION), Budget(1.0, 1e-6), arrays={"X": np.asarray},
            ledger=ledger, cluster=cluster, run_id="run", random_state=7,
        ) as coordinator:  # fmt: skip
            item = coordinator.plan([Item("sum", Gaussian(), count=4)])["sum"]
            return [coordinator.release(jobs.SlowSum(1.0, SECONDS), item) for _ in range(4)]

    undisturbed = fit("threads", Ledger(":memory:"))
    with RealCluster(tmp_path, 2) as cluster:
        cluster.ready()

        def replace() -> None:
            cluster.kill_workers()
            cluster.start_worker()

        with jobs.at_release(2, lambda: meanwhile(replace)):
            values = within(LIMIT, lambda: fit(cluster.address, Ledger(":memory:")))
    assert np.array_equal(values, undisturbed)


@pytest.mark.faults
def test_no_workers_for_ever_is_one_error_after_patience(place, run, healthy, hasty):
    with RealCluster(place, 1) as cluster:
        cluster.ready()
        times = []

        def end() -> None:
            times.append(time.monotonic())
            cluster.kill_workers()

        with (
            jobs.at_release(3, end),
            pytest.raises(ClusterError, match=r"has no workers; waited 15 s.*same run_id") as it,
        ):
            run(cluster.address)
        assert waits.PATIENCE - 1 < time.monotonic() - times[0] < waits.PATIENCE + 10
        assert "\n" not in str(it.value)
        before = jobs.on_file(place / "ledger.sqlite")
        cluster.start_worker()
        cluster.ready(1)
        with jobs.at_release(0, None) as replayed:
            values = run(cluster.address)
    assert replayed == [True] * 3 + [False] * 3
    assert jobs.on_file(place / "ledger.sqlite").items() >= before.items()
    healthy(values)


@pytest.mark.faults
def test_a_worker_that_is_stopped_for_ever_is_done_without(place, run, healthy, hasty):
    """Dask itself gives it up after its worker-ttl, five minutes; here others do its part."""
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        with jobs.at_release(3, lambda: os.kill(cluster.workers[0].pid, signal.SIGSTOP)):
            values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_a_worker_that_is_stopped_from_the_beginning(place, run, healthy, hasty):
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        os.kill(cluster.workers[0].pid, signal.SIGSTOP)
        values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_rounds_that_last_are_not_disturbed(place, run, healthy, monkeypatch):
    """A worker that computes is alive, however long it does: no connection is made anew."""
    monkeypatch.setattr(waits, "NOTICE", 0.3)
    monkeypatch.setattr(waits, "PATIENCE", 1.0)
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        clients = cluster.log().count("Receive client connection")
        values = run(cluster.address, seconds=0.5)  # five partitions for each worker
        assert cluster.log().count("Receive client connection") == clients + 1
    healthy(values)


@pytest.mark.parametrize("seconds", [0.0, pytest.param(1.0, marks=pytest.mark.faults)], ids=["at once", "later"])
def test_a_scheduler_that_dies_between_two_rounds(place, run, healthy, hasty, seconds):
    with RealCluster(place, 2) as cluster:
        cluster.ready()

        def end() -> None:
            cluster.scheduler.kill()
            cluster.scheduler.wait()
            time.sleep(seconds)

        began = time.monotonic()
        with jobs.at_release(3, end), pytest.raises(ClusterError, match="same run_id") as stopped:
            run(cluster.address)
        assert report(stopped.value) == 75
        assert time.monotonic() - began < waits.PATIENCE + 10 + 10
        assert "\n" not in str(stopped.value)
        cluster.start_scheduler()
        for _ in range(2):
            cluster.start_worker()
        cluster.ready(2)
        with jobs.at_release(0, None) as replayed:
            values = run(cluster.address)
    assert replayed == [True] * 3 + [False] * 3
    healthy(values)


@pytest.mark.faults
def test_a_scheduler_that_comes_back(place, run, healthy):
    with RealCluster(place, 1) as cluster:
        cluster.ready()

        def replace() -> None:
            cluster.scheduler.kill()
            cluster.scheduler.wait()
            time.sleep(2.0)
            cluster.start_scheduler()
            cluster.start_worker()

        with jobs.at_release(2, lambda: meanwhile(replace)):
            values = run(cluster.address)
    healthy(values)


@pytest.mark.faults
def test_a_scheduler_that_is_stopped(place, run, healthy, hasty):
    """It takes connections and says nothing: for a while, for ever, and from the beginning."""
    with RealCluster(place, 1) as cluster:
        cluster.ready()
        pid = cluster.scheduler.pid

        def hang() -> None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(3 * waits.NOTICE)
            os.kill(pid, signal.SIGCONT)

        with (
            jobs.at_release(1, lambda: meanwhile(hang)),
            jobs.at_release(4, lambda: os.kill(pid, signal.SIGSTOP)),
            pytest.raises(ClusterError, match=r"cannot be reached .*waited 15 s.*same run_id"),
        ):
            run(cluster.address)
        assert len(jobs.on_file(place / "ledger.sqlite")) == 4
        with pytest.raises(ClusterError, match="cannot reach the Dask scheduler"):
            run(cluster.address)
        os.kill(pid, signal.SIGCONT)
        values = run(cluster.address)
    healthy(values)

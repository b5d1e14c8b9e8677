"""Workers and the scheduler, as processes that are killed, stopped, and run out of memory in the middle of a round."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from dpdist import Ledger
from dpdist.errors import ClusterError
from tests.faults import jobs
from tests.faults.cluster import RealCluster

ROUND = 0.05 * jobs.N_ROWS / jobs.PARTITION / 2  # seconds, with two workers


@pytest.fixture
def run(place):
    def run(cluster: RealCluster, **options):
        ledger = Ledger(place / "ledger.sqlite")
        try:
            return jobs.run(place / "rows.zarr", ledger, "run", cluster.address, seconds=0.05, **options)
        finally:
            ledger.close()

    return run


def later(seconds: float, *action) -> threading.Timer:
    timer = threading.Timer(seconds, *action)
    timer.start()
    return timer


def test_a_worker_killed_in_the_middle_of_a_round(place, run, healthy):
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        victim = cluster.workers[0]
        with jobs.at_release(3, lambda: later(ROUND / 2, victim.kill)):
            values = run(cluster)
        assert victim.wait(10) == -signal.SIGKILL
    healthy(values)


def test_a_worker_that_hangs_for_a_while(place, run, healthy):
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        pid = cluster.workers[0].pid

        def hang() -> None:
            os.kill(pid, signal.SIGSTOP)
            later(2.0, os.kill, (pid, signal.SIGCONT))

        began = time.monotonic()
        with jobs.at_release(3, hang):
            values = run(cluster)
        assert time.monotonic() - began > 2.0
    healthy(values)


@pytest.mark.faults
def test_a_worker_that_hangs_for_ever_is_given_up_after_its_time(place, run, healthy):
    ttl = 10.0
    with RealCluster(place, 2, env={"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{ttl:g}s"}) as cluster:
        cluster.ready()
        times = []
        with jobs.at_release(
            3, lambda: (times.append(time.monotonic()), os.kill(cluster.workers[0].pid, signal.SIGSTOP))
        ):
            values = run(cluster)
        stall = time.monotonic() - times[0]
        assert stall < 2 * ttl + 10, "the scheduler looks once per TTL for heartbeats that are older than that"
        print(f"stall {stall:.1f} s")
    healthy(values)


def test_a_scheduler_killed_in_the_middle_of_a_run(place, run, healthy, hasty):
    with RealCluster(place, 2) as cluster:
        cluster.ready()
        with (
            jobs.at_release(3, lambda: later(ROUND / 2, cluster.scheduler.kill)),
            pytest.raises(ClusterError, match="run again with the same run_id") as stopped,
        ):
            run(cluster)
        assert "\n" not in str(stopped.value)
        before = jobs.on_file(place / "ledger.sqlite")
        assert len(before) == 3
        cluster.start_scheduler()
        for _ in range(2):  # the old ones may have ended themselves
            cluster.start_worker()
        cluster.ready(2)
        with jobs.at_release(0, None) as replayed:
            values = run(cluster)
    assert replayed == [True] * 3 + [False] * 3
    assert jobs.on_file(place / "ledger.sqlite").items() >= before.items()
    healthy(values)


@pytest.mark.faults
def test_a_worker_out_of_memory(place, run, healthy):
    """The nanny ends a worker above its limit; with more memory (here: a smaller need) the run goes on."""
    env = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.95",
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    }
    with RealCluster(place, 1, env=env, worker=["--memory-limit", "600MB"], nanny=True) as cluster:
        cluster.ready()
        with pytest.raises(ClusterError, match=r"workers were lost .* \(memory limit\?\)"):
            run(cluster, swell=1_500_000_000)
        ledger = Ledger(place / "ledger.sqlite")
        assert len(jobs.on_file(place / "ledger.sqlite")) == 0, "no noise was drawn"
        ledger.close()
        cluster.ready(1)
        values = run(cluster)
        assert "terminat" in cluster.log() or "95%" in cluster.log()
    healthy(values)


def test_the_kernels_own_limit(place, healthy):
    """Memory that is not given at all (setrlimit): one sentence without a number of the data, and the run goes on."""
    from dpdist.errors import DataError

    with RealCluster(place, 0) as cluster:
        cluster.start_worker(before=["prlimit", f"--as={6 * 2**30}"])
        cluster.ready()
        ledger = Ledger(place / "ledger.sqlite")
        with pytest.raises(DataError, match="failed with MemoryError"):
            jobs.run(place / "rows.zarr", ledger, "run", cluster.address, swell=20 * 2**30)
        values = jobs.run(place / "rows.zarr", ledger, "run", cluster.address)
        ledger.close()
    healthy(values)
    assert np.isfinite(values).all()

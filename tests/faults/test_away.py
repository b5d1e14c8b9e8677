"""Parts of a cluster that stay away, with the times that are set by default: what it comes to, and when."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from dpdist import Ledger
from dpdist.cli.exit_codes import report
from dpdist.engine import waits
from dpdist.errors import ClusterError
from tests.faults import jobs
from tests.faults.cluster import RealCluster, within
from tests.faults.page import came_to

pytestmark = pytest.mark.faults
MARGIN = 10.0  # seconds, beside the patience that is stated


def scaled_to_zero(cluster: RealCluster) -> None:
    cluster.kill_workers()
    threading.Timer(30.0, cluster.start_worker).start()


FAULTS: dict[str, tuple[Callable[[RealCluster], None], bool]] = {
    "scaled to zero, one worker is back after 30 s": (scaled_to_zero, True),
    "a worker is stopped for good": (lambda cluster: os.kill(cluster.workers[0].pid, signal.SIGSTOP), True),
    "all workers are stopped for good": (
        lambda cluster: [os.kill(worker.pid, signal.SIGSTOP) for worker in cluster.workers] and None,
        False,
    ),
    "all workers are killed for good": (lambda cluster: cluster.kill_workers(), False),
    "the scheduler is killed for good": (lambda cluster: cluster.scheduler.kill(), False),
    "the scheduler is stopped for good": (lambda cluster: os.kill(cluster.scheduler.pid, signal.SIGSTOP), False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_stays_away(place, healthy, fault):
    strike, survived = FAULTS[fault]
    times: list[float] = []

    def run(cluster: str):
        ledger = Ledger(place / "ledger.sqlite")
        try:
            return within(
                waits.PATIENCE + 60, lambda: jobs.run(place / "rows.zarr", ledger, "run", cluster, seconds=0.05)
            )
        finally:
            ledger.close()

    def act() -> None:
        times.append(time.monotonic())
        strike(cluster)

    with RealCluster(place, 2) as cluster:
        cluster.ready()
        with jobs.at_release(3, act):
            if survived:
                values = run(cluster.address)
            else:
                with pytest.raises(ClusterError, match="same run_id") as ended:
                    run(cluster.address)
        took = time.monotonic() - times[0]
    if not survived:
        assert report(ended.value) == 75 and waits.PATIENCE - 1 < took < waits.PATIENCE + MARGIN
        before = jobs.on_file(place / "ledger.sqlite")
        assert len(before) == 3
        values = run("threads")
        assert jobs.on_file(place / "ledger.sqlite").items() >= before.items()
    healthy(values)
    came_to("Cluster", fault, "survived: the same values" if survived else "exit code 75; resumed", took)

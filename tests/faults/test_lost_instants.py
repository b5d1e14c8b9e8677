"""Workers, schedulers and clocks that fail at instants that nobody chose, under three kinds of runs."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from dpdist.cli.exit_codes import report
from dpdist.errors import ClusterError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from tests.faults import runs
from tests.faults.clock import COMPILER, JumpingClock
from tests.faults.cluster import RealCluster, within
from tests.faults.page import came_to

INSTANTS = 20
LIMIT = 150.0
DAY = 86_400
Strike = Callable[[RealCluster, JumpingClock | None], None]


def one(cluster: RealCluster, clock: JumpingClock | None) -> None:
    cluster.kill_workers(0)


def everyone(cluster: RealCluster, clock: JumpingClock | None) -> None:
    cluster.kill_workers(0, 1)


def one_after_another(cluster: RealCluster, clock: JumpingClock | None) -> None:
    for i in range(2):
        cluster.kill_workers(i)
        time.sleep(1.0)


def stop(cluster: RealCluster, clock: JumpingClock | None) -> None:
    pid = cluster.workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(pid, signal.SIGCONT)


def scheduler(cluster: RealCluster, clock: JumpingClock | None) -> None:
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    time.sleep(1.0)
    cluster.start_scheduler()


def jump(step: int) -> Strike:
    def strike(cluster: RealCluster, clock: JumpingClock | None) -> None:
        assert clock is not None
        clock.jump(int(clock.file.read_text()) + step)

    return strike


FAULTS: dict[str, tuple[str, Strike]] = {
    "one": ("a worker is killed", one),
    "all": ("all workers are killed at once", everyone),
    "both": ("all workers are killed, one after another", one_after_another),
    "stop": ("a worker is stopped for 3 s", stop),
    "scheduler": ("the scheduler is killed, back after 1 s", scheduler),
    "back": ("the clocks of scheduler and workers go back a day", jump(-DAY)),
    "ahead": ("the clocks of scheduler and workers go ahead a day", jump(DAY)),
}


@pytest.mark.parametrize("name", runs.RUNS)
@pytest.mark.parametrize(
    ("fault", "instants"),
    [("all", 1), *(pytest.param(fault, INSTANTS, marks=pytest.mark.faults) for fault in FAULTS)],
)
def test_at_random_instants(tmp_path, name, fault, instants):
    what, strike = FAULTS[fault]
    jumps = what.startswith("the clocks")
    if jumps and COMPILER is None:
        pytest.skip("needs a C compiler")
    rows = str(tmp_path / "rows.zarr")
    runs.write(rows)
    clock = JumpingClock(tmp_path) if jumps else None

    def run(number: object, cluster: object) -> tuple[dict[str, np.ndarray], float]:
        began, output, job = time.monotonic(), str(tmp_path / f"out-{number}"), tmp_path / "job.yaml"
        kept = {"ledger": str(tmp_path / "ledger.sqlite"), "cluster": cluster}
        job.write_text(json.dumps(runs.job(name, rows, output, **kept)))
        record = within(LIMIT, lambda: run_job(load_job(job), resume=True))
        assert record["status"] == "done"
        return runs.released(output), time.monotonic() - began

    expected, _ = run("undisturbed", "threads")
    with ExitStack() as stack:
        cluster = stack.enter_context(RealCluster(tmp_path / "cluster", 2, env=clock.env if clock else None))
        stack.enter_context(cluster.ready().supervised())
        there = {"address": cluster.address}
        run("first", there)  # compiles
        _, alone = run("alone", there)
        chosen, longest, ended = random.Random(f"{name} {fault}"), 0.0, 0
        for number in range(instants):
            cluster.ready(2)
            due = threading.Timer(chosen.uniform(0, alone), strike, [cluster, clock])
            due.start()
            began = time.monotonic()
            try:
                found, took = run(number, there)
            except ClusterError as error:
                took, ended = time.monotonic() - began, ended + 1
                assert report(error) == 75
                due.join()
                found, _ = run(number, {"address": cluster.ready(2).address})
            due.join()
            longest = max(longest, took - alone)
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[array], expected[array]) for array in expected), number
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert len(ledger.history(Dataset.open(rows).id)) == instants + 3, "each is charged once"
    ledger.close()
    if instants == INSTANTS:
        # which of the two may depend on how fast this machine starts processes
        outcome = "survived, or exit code 75 and resumed" if fault == "scheduler" else "survived"
        assert fault == "scheduler" or not ended
        came_to("Cluster", f"{what}, at {INSTANTS} random instants ({name})", f"{outcome}: the same values", longest)

"""Clocks that jump: noise, charges and liveness do not look at them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from tests.faults import jobs
from tests.faults.clock import COMPILER, JumpingClock
from tests.faults.cluster import ROOT, RealCluster, within

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
DAY = 86_400


@pytest.fixture
def clock(place):
    return JumpingClock(place)


def test_the_clock_does_jump(clock):
    code = (
        "import time, datetime; print(time.time(), datetime.datetime.now(datetime.UTC).timestamp(), time.monotonic())"
    )
    readings = []
    for shift in (0, 5 * DAY):
        clock.jump(shift)
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **clock.env}, capture_output=True, text=True
        )
        readings.append(np.array(done.stdout.split(), dtype=float))
    moved = readings[1] - readings[0]
    assert np.allclose(moved, [5 * DAY, 5 * DAY, 0], atol=30)


def fit(place, cluster):
    def run():
        ledger = Ledger(place / "ledger.sqlite")
        try:
            return jobs.run(place / "rows.zarr", ledger, "run", cluster.address, seconds=0.05)
        finally:
            ledger.close()

    return within(100.0, run)


def test_scheduler_and_workers(place, clock, healthy):
    """Ahead and back. A scheduler whose clock went ahead may think its workers dead, and end them."""
    env = {**clock.env, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s"}
    jumps = iter([DAY, -DAY])
    with (
        RealCluster(place, 2, env=env) as cluster,
        cluster.ready().supervised(),
        jobs.at_release(1, lambda: clock.jump(next(jumps))),
        jobs.at_release(3, lambda: clock.jump(next(jumps))),
    ):
        values = fit(place, cluster)
    healthy(values)


@pytest.mark.parametrize("step", [-DAY, pytest.param(DAY, marks=pytest.mark.faults)], ids=["back", "ahead"])
def test_clocks_that_jump_a_hundred_times(place, clock, healthy, hasty, step):
    """Set back while a message of Dask waits for its batch, a clock lets it wait for a day: here, some surely do."""
    env = {**clock.env, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s"}

    def jump() -> None:
        for i in range(1, 101):
            clock.jump(i * step)
            time.sleep(0.02)

    jumper = threading.Thread(target=jump)
    with RealCluster(place, 2, env=env) as cluster, cluster.ready().supervised():
        with jobs.at_release(1, jumper.start):
            values = fit(place, cluster)
        jumper.join()
    healthy(values)


def test_the_coordinator(place, clock, secrets):
    """It is ended in the middle of the run, after its clock went back a day; its second life is a day ahead."""
    ledger, lives = place / "ledger.sqlite", []
    words = ["-m", "tests.faults.jobs", str(place / "rows.zarr"), str(ledger), "run", "threads", "0.02"]
    for life in range(2):
        clock.jump(0 if life == 0 else DAY)
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env={**os.environ, **clock.env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if life == 0 and line.startswith("Released 2"):
                clock.jump(-DAY)
            if life == 0 and line.startswith("Released 4"):
                process.kill()
        assert process.wait() == (-9 if life == 0 else 0)
        assert process.stderr is not None
        (place / f"life-{life}.log").write_text("\n".join(lines) + process.stderr.read())
        lives.append(jobs.on_file(ledger))
    assert 4 <= len(lives[0]) < jobs.N_ROUNDS and lives[1].items() >= lives[0].items(), "no value was drawn again"
    book = Ledger(ledger)
    (run,) = book.history(Dataset.open(str(place / "rows.zarr")).id)
    assert [release.index for release in run.releases] == list(range(jobs.N_ROUNDS))
    assert secrets.found_in(place, skip=[place / "rows.zarr"]) == []

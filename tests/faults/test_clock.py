"""Clocks that jump: noise, charges and liveness do not look at them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from tests.faults import jobs
from tests.faults.clock import COMPILER, JumpingClock
from tests.faults.cluster import ROOT, RealCluster

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


def test_scheduler_and_workers(place, clock, healthy):
    env = {**clock.env, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s"}
    jumps = iter([DAY, -DAY, 3600, 0])
    with RealCluster(place, 2, env=env) as cluster:
        cluster.ready()
        ledger = Ledger(place / "ledger.sqlite")
        with jobs.at_release(1, lambda: clock.jump(next(jumps))), jobs.at_release(3, lambda: clock.jump(next(jumps))):
            values = jobs.run(place / "rows.zarr", ledger, "run", cluster.address, seconds=0.05)
        ledger.close()
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

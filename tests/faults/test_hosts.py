"""Hosts that are cut off silently, for ever or for a while: no packet says so, only time does. Needs root."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dpdist import Ledger
from dpdist.cli.exit_codes import report
from dpdist.engine import waits
from dpdist.errors import ClusterError
from tests.faults import jobs
from tests.faults.cluster import make_certificates
from tests.faults.hosts import USABLE, Hosts
from tests.faults.page import came_to

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not USABLE, reason="makes network namespaces: needs root")]
TTL = 15.0
SETTINGS = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{TTL:g}s"}
AWAY = 6.0
SURVIVED = "survived: the same values"


def run(place: Path, hosts: Hosts, cluster=None) -> np.ndarray:
    ledger = Ledger(place / "ledger.sqlite")
    try:
        return jobs.run(place / "rows.zarr", ledger, "run", cluster or hosts.address, seconds=0.05)
    finally:
        ledger.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_worker_cut_off_for_ever(place, healthy, tmp_path, encrypted):
    keys = make_certificates(tmp_path, "ours") if encrypted else None
    with Hosts(place, 3, SETTINGS, keys) as hosts:
        hosts.ready()
        times = []

        def cut() -> None:
            times.append(time.monotonic())
            threading.Timer(0.1, hosts.cut, [2]).start()

        with jobs.at_release(3, cut):
            values = run(place, hosts, None if keys is None else keys.cluster(hosts.address))
        stall = time.monotonic() - times[0]
    assert stall < 2 * TTL + 10, "the scheduler looks once per TTL for heartbeats that are older than that"
    healthy(values)
    came_to("Hosts", f"a worker's host is cut off for good ({'TLS' if encrypted else 'plain'})", SURVIVED, stall)


def test_a_worker_cut_off_for_a_while(place, healthy):
    with Hosts(place, 3, SETTINGS) as hosts:
        hosts.ready()

        times = []

        def cut() -> None:
            times.append(time.monotonic())
            hosts.cut(2)
            threading.Timer(AWAY, hosts.heal, [2]).start()

        with jobs.at_release(3, cut):
            values = run(place, hosts)
        took = time.monotonic() - times[0]
        with hosts.client() as client:
            assert len(client.nthreads()) == 3, "nobody was lost"
    healthy(values)
    came_to("Hosts", f"a worker's host is cut off for {AWAY:.0f} s", SURVIVED, took)


def test_the_scheduler_cut_off_for_a_while(place, healthy):
    with Hosts(place, 2, SETTINGS) as hosts:
        hosts.ready()

        times = []

        def cut() -> None:
            times.append(time.monotonic())
            hosts.cut(0)
            threading.Timer(AWAY, hosts.heal, [0]).start()

        with jobs.at_release(3, cut):
            values = run(place, hosts)
        took = time.monotonic() - times[0]
    healthy(values)
    came_to("Hosts", f"the scheduler's host is cut off for {AWAY:.0f} s", SURVIVED, took)


def test_the_scheduler_cut_off_for_ever(place, healthy):
    """One clear error when patience is over; on another cluster the run goes on."""
    with Hosts(place, 2, SETTINGS) as hosts:
        hosts.ready()
        times = []

        def cut() -> None:
            times.append(time.monotonic())
            hosts.cut(0)

        with jobs.at_release(3, cut), pytest.raises(ClusterError, match="same run_id") as stopped:
            run(place, hosts)
        took = time.monotonic() - times[0]
    assert report(stopped.value) == 75 and took < waits.PATIENCE + 10
    before = jobs.on_file(place / "ledger.sqlite")
    assert len(before) == 3
    ledger = Ledger(place / "ledger.sqlite")
    values = jobs.run(place / "rows.zarr", ledger, "run", "threads")
    ledger.close()
    assert jobs.on_file(place / "ledger.sqlite").items() >= before.items()
    healthy(values)
    came_to("Hosts", "the scheduler's host is cut off for good", "exit code 75; resumed", took)

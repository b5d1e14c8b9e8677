"""Servers that go away at instants that nobody chose, while a run keeps all that it has with them."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import psycopg
import pytest

from dpdist import Dataset, Ledger, objects
from dpdist.engine import coordinator
from tests.faults import runs
from tests.faults.page import came_to
from tests.postgres import PostgresServer
from tests.s3 import BUCKET, Faults

pytestmark = pytest.mark.faults

INSTANTS = 20
AWAY = 2.0


Strike = Callable[[Faults, PostgresServer], None]


def crash(store: Faults, postgres_server: PostgresServer) -> None:
    postgres_server.stop("immediate")
    threading.Timer(AWAY, postgres_server.start).start()


def drop(store: Faults, postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.address) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dpdist'")


FAULTS: dict[str, tuple[str, str, Strike]] = {
    "refused": ("Object store", "refuses connections", lambda store, _: store.be_away("refused", AWAY)),
    "503": ("Object store", "answers 503", lambda store, _: store.be_away("503", AWAY)),
    "cut": ("Object store", "cuts its answers off", lambda store, _: store.be_away("cut", AWAY)),
    "crash": ("PostgreSQL", "crashes", crash),
    "drop": ("PostgreSQL", "ends all connections", drop),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", runs.RUNS)
def test_at_random_instants(s3_faults, postgres_server, tmp_path, monkeypatch, name, fault):
    monkeypatch.setitem(objects.RETRIES, "retry_timeout", timedelta(seconds=0.3))  # AWAY is longer than that
    monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)
    section, what, strike = FAULTS[fault]
    place = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    runs.write(f"{place}/rows.zarr")

    def run(number: object) -> tuple[dict[str, np.ndarray], float]:
        began = time.monotonic()
        kept = {"ledger": postgres_server.address, "journal": f"{place}/journal"}
        found = runs.run(tmp_path, name, f"{place}/rows.zarr", f"{place}/out-{number}", **kept)
        return found, time.monotonic() - began

    run("first")  # compiles
    expected, alone = run("alone")
    instants, longest = random.Random(f"{name} {fault}"), 0.0
    for number in range(INSTANTS):
        due = threading.Timer(instants.uniform(0, alone), strike, [s3_faults, postgres_server])
        due.start()
        found, took = run(number)
        due.join()
        longest = max(longest, took - alone)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[array], expected[array]) for array in expected), number
        s3_faults.come_back()
        wait_for(postgres_server)
    ledger = Ledger(postgres_server.address)
    assert len(ledger.history(Dataset.open(f"{place}/rows.zarr").id)) == INSTANTS + 2, "each is charged once"
    ledger.close()
    when = f"for {AWAY:.0f} s " if fault != "drop" else ""
    came_to(
        section, f"{what} {when}at {INSTANTS} random instants of a run ({name})", "survived: the same values", longest
    )


def wait_for(postgres_server: PostgresServer) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(postgres_server.address).close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < give_up
            time.sleep(0.1)

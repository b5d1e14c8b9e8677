"""A PostgreSQL server that is lost inside transactions for 20 s, or for good; with the times that are set."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from dpdist import Ledger, patience
from dpdist.cli import exit_codes
from dpdist.engine.progress import Event, Loading, Released, watching
from dpdist.errors import LedgerError
from dpdist.privacy.ledger import postgres
from tests.cli.command import call
from tests.faults import runs
from tests.faults.page import came_to
from tests.postgres import Cuts, PostgresServer

pytestmark = pytest.mark.faults

AWAY = 20.0
SURVIVED = "survived: the same values"
INSIDE = {
    "a charge": b"INTO dpdist_runs",
    "a release": b"INTO dpdist_releases",
    "a value": b"INTO dpdist_values",
    "a COMMIT": b"COMMIT",
}


@pytest.fixture
def cuts(postgres_server: PostgresServer) -> Iterator[Cuts]:
    proxy = Cuts(postgres_server)
    yield proxy
    proxy.close()


@pytest.fixture
def rows(tmp_path: Path) -> str:
    runs.write(str(tmp_path / "rows.zarr"))
    return str(tmp_path / "rows.zarr")


@pytest.fixture
def expected(tmp_path: Path, rows: str) -> dict[str, np.ndarray]:
    return runs.run(tmp_path, "central", rows, str(tmp_path / "alone"), ledger=str(tmp_path / "alone.sqlite"))


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


def charges(address: str) -> int:
    with contextlib.closing(Ledger(address)) as ledger:
        return sum(len(ledger.history(account)) for account in ledger.accounts())


@pytest.mark.parametrize("inside", INSIDE)
def test_a_crash_inside_a_transaction(postgres_server, cuts, tmp_path, rows, expected, inside):
    struck: list[float] = []

    def crash(message: bytes) -> None:
        if INSIDE[inside] in message and not struck:
            struck.append(time.monotonic())
            postgres_server.stop("immediate")
            threading.Timer(AWAY, postgres_server.start).start()

    Ledger(cuts.address).close()
    cuts.spoil = crash
    assert same(runs.run(tmp_path, "central", rows, str(tmp_path / "out"), ledger=cuts.address), expected)
    took = time.monotonic() - struck[0]
    assert took >= AWAY and charges(postgres_server.address) == 1
    came_to("PostgreSQL", f"crashes inside {inside}, back after {AWAY:.0f} s", SURVIVED, took)


def test_a_second_crash_inside_the_transaction_that_is_repeated(postgres_server, cuts, tmp_path, rows, expected):
    struck: list[float] = []

    def crash(message: bytes) -> None:
        if INSIDE["a value"] in message and len(struck) < 2:
            struck.append(time.monotonic())
            postgres_server.stop("immediate")
            threading.Timer(AWAY / 4, postgres_server.start).start()

    Ledger(cuts.address).close()
    cuts.spoil = crash
    assert same(runs.run(tmp_path, "central", rows, str(tmp_path / "out"), ledger=cuts.address), expected)
    took = time.monotonic() - struck[0]
    assert len(struck) == 2 and took >= AWAY / 2 and charges(postgres_server.address) == 1
    came_to("PostgreSQL", f"crashes twice inside a value, back after {AWAY / 4:.0f} s each time", SURVIVED, took)


def test_a_connection_on_which_nothing_is_said_any_more(postgres_server, cuts, tmp_path, rows, expected):
    struck: list[float] = []

    def silent(message: bytes) -> str | None:
        if INSIDE["a value"] not in message or struck:
            return None
        struck.append(time.monotonic())
        return "silent"

    cuts.spoil = silent
    assert same(runs.run(tmp_path, "central", rows, str(tmp_path / "out"), ledger=cuts.address), expected)
    took = time.monotonic() - struck[0]
    assert took >= postgres.ANSWER_WITHIN and charges(postgres_server.address) == 1
    came_to("PostgreSQL", "keeps a connection and says nothing on it", SURVIVED, took)


def test_no_room_for_another_connection(postgres_server, tmp_path, rows, expected):
    postgres_server.stop()
    postgres_server.start("-c max_connections=2 -c superuser_reserved_connections=0 -c max_wal_senders=0")
    with contextlib.ExitStack() as others:
        for _ in range(2):
            others.enter_context(psycopg.connect(postgres_server.address))
        threading.Timer(AWAY, others.pop_all().close).start()
        began = time.monotonic()
        assert same(
            runs.run(tmp_path, "central", rows, str(tmp_path / "out"), ledger=postgres_server.address), expected
        )
    came_to("PostgreSQL", f"has no room for a connection for {AWAY:.0f} s", SURVIVED, time.monotonic() - began)


@pytest.mark.parametrize("moment", ["the charge is due", "a value is due"])
def test_gone_for_good(postgres_server, tmp_path, rows, expected, capsys, moment):
    output = str(tmp_path / "out")
    struck: list[float] = []

    def leave(event: Event) -> None:
        due = isinstance(event, Loading) if "charge" in moment else isinstance(event, Released) and event.done == 3
        if due and not struck:
            struck.append(time.monotonic())
            postgres_server.stop("immediate")

    (tmp_path / "job.yaml").write_text(json.dumps(runs.job("central", rows, output, ledger=postgres_server.address)))
    with watching(leave):
        ended = call(capsys, "run", tmp_path / "job.yaml", "--quiet")
    took = time.monotonic() - struck[0]
    assert ended.code == 75 and took < patience.PATIENCE + 10
    postgres_server.start()
    assert call(capsys, "run", tmp_path / "job.yaml", "--quiet", "--resume").code == 0
    assert same(runs.released(output), expected) and charges(postgres_server.address) == 1
    came_to("PostgreSQL", f"is gone for good when {moment}", "exit code 75; resumed", took)


def test_another_job_that_keeps_the_ledger_locked(postgres_server, tmp_path):
    Ledger(postgres_server.address).close()
    with psycopg.connect(postgres_server.address) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({postgres._LOCK})")
        began = time.monotonic()
        with pytest.raises(LedgerError, match="pg_stat_activity") as stopped:
            Ledger(postgres_server.address)
    took = time.monotonic() - began
    assert exit_codes.report(stopped.value) == 75 and took < postgres.LOCK_WAIT + 10
    came_to("PostgreSQL", "is kept locked by another job", "exit code 75", took)


@pytest.mark.parametrize(("what", "part"), [("database", "/postgres"), ("account", "tester@")])
def test_what_is_not_there(postgres_server, what, part):
    began = time.monotonic()
    with pytest.raises(LedgerError, match="does not exist") as stopped:
        Ledger(postgres_server.address.replace(part, f"{part[0]}nobody{part[-1] if part[-1] == '@' else ''}"))
    took = time.monotonic() - began
    assert exit_codes.report(stopped.value) == 2 and took < 5
    came_to("PostgreSQL", f"does not know the {what}", "exit code 2", took)

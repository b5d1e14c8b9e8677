"""The ledger and the journal in a real PostgreSQL server: shared by processes, restarted, lost, and never overspent."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from dpdist import Dataset, LogisticRegression, patience
from dpdist.central import GradientDescent
from dpdist.cli import main
from dpdist.engine.progress import Charged, Event, Loading, Released, watching
from dpdist.errors import BudgetExceeded, Fenced, LedgerError, Unavailable
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger import postgres
from dpdist.privacy.ledger.journal import Journal
from dpdist.privacy.ledger.ledger import Ledger
from tests.postgres import Cuts, PostgresServer
from tests.processes import PROCESSES

# -- one account, as in a file ------------------------------------------------------------------------------------


def test_it_keeps_accounts_as_a_file_does(postgres_server, tmp_path):
    def use(path):
        ledger = Ledger(path)
        ledger.set_limit("d", Budget(1.0, 1e-5), composition="gaussian")
        ledger.set_limit("d", Budget(0.9, 1e-5), composition="gaussian")
        ledger.open_run("d", "r", "plan", Charge(0.3, 1e-6, mu=0.1), user="ann", label="30 x gradient")
        ledger.record_release("r", "r/0", 0, "gradient", "Gaussian", float("nan"), 2.0, "gaussian 0.1")
        ledger.record_release("r", "r/1", 1, "gradient", "Gaussian", 4.5, 2.0, "gaussian 0.1")
        assert ledger.open_run("d", "r", "plan", Charge(0.3, 1e-6, mu=0.1)).resumed
        with pytest.raises(LedgerError, match="different plan"):
            ledger.open_run("d", "r", "another plan", Charge(0.3, 1e-6, mu=0.1))
        with pytest.raises(LedgerError, match="other parameters"):
            ledger.record_release("r", "r/1", 1, "gradient", "Gaussian", 5.5, 2.0, "gaussian 0.1")
        with pytest.raises(BudgetExceeded):
            ledger.open_run("d", "s", "plan", Charge(0.9, 1e-5, mu=0.25))
        (run,) = ledger.history("d")
        limits = [limit for _, limit in ledger.limits("d")]
        releases = [(r.release_id, r.index, r.noise_std, r.sensitivity) for r in run.releases]
        return run.charge, run.user, run.label, releases, ledger.spent("d"), ledger.remaining("d"), limits

    assert use(postgres_server.address) == use(tmp_path / "l.sqlite")


@pytest.mark.parametrize(
    "value", [np.array([1.5, -0.0, np.inf, np.nan, 5e-324]), np.arange(6).reshape(2, 3) - 2**60, np.float64(0.1)]
)
def test_values_come_back_bit_by_bit(postgres_server, value):
    Journal(postgres_server.address).open("r").put("r/0", value)
    again = Journal(postgres_server.address).open("r").get("r/0")
    assert again.dtype == np.asarray(value).dtype and again.shape == np.shape(value)
    assert again.tobytes() == np.asarray(value).tobytes()


def test_the_newest_opener_of_a_run_is_its_only_writer(postgres_server):
    first, second = Journal(postgres_server.address), Journal(postgres_server.address)
    old = first.open("r")
    new = second.open("r")
    with pytest.raises(Fenced, match="newer process"):
        old.check()
    with pytest.raises(Fenced):
        old.put("r/0", np.zeros(1))
    assert new.put("r/0", np.ones(1)) == 1.0


# -- many at once -------------------------------------------------------------------------------------------------


def hammer(address: str, process: int, start, results) -> None:
    start.wait()
    ledger = Ledger(address)  # the tables are made by all of them at once
    outcome = []
    for i in range(12):
        try:
            outcome.append(ledger.open_run("d", f"{process}/{i}", "p", Charge(0.1)).run_id)
        except BudgetExceeded:
            outcome.append("")
    results.put(outcome)


def test_jobs_on_several_machines_cannot_overspend(postgres_server):
    Ledger(postgres_server.address).set_limit("d", Budget(1.0))
    results, start = PROCESSES.Queue(), PROCESSES.Event()
    processes = [PROCESSES.Process(target=hammer, args=(postgres_server.address, i, start, results)) for i in range(5)]
    for process in processes:
        process.start()
    start.set()
    outcomes = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    charged = [run_id for outcome in outcomes for run_id in outcome if run_id]
    ledger = Ledger(postgres_server.address)
    assert len(charged) == 10
    assert sorted(charged) == sorted(run.run_id for run in ledger.history("d"))


def charge_for_ever(address: str, told) -> None:
    ledger = Ledger(address)
    for i in range(10**6):
        told.send(("asking", f"{i}"))
        ledger.open_run("d", f"{i}", "p", Charge(0.5))
        told.send(("done", f"{i}"))


def test_a_killed_job_leaves_each_charge_whole_or_absent(postgres_server):
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=charge_for_ever, args=(postgres_server.address, theirs))
    process.start()
    theirs.close()
    words = [ours.recv() for _ in range(9)]
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with contextlib.suppress(EOFError):
        while True:
            words.append(ours.recv())
    done = {run_id for word, run_id in words if word == "done"}
    asked = {run_id for _, run_id in words}
    ledger = Ledger(postgres_server.address)
    on_file = {run.run_id for run in ledger.history("d")}
    assert done <= on_file <= asked and len(asked - done) <= 1
    for run_id in asked:
        ledger.open_run("d", run_id, "p", Charge(0.5))
    assert ledger.spent("d").epsilon == 0.5 * len(asked)


# -- a server that goes away --------------------------------------------------------------------------------------


def fit(path: str, data: Dataset, **parameters) -> LogisticRegression:
    model = LogisticRegression(
        classes=[0, 1],
        row_norm=1.0,
        solver=GradientDescent(n_rounds=6),
        epsilon=1.0,
        delta=1e-6,
        random_state=0,
        ledger=path,
        **parameters,
    )
    return model.fit(data)


@pytest.fixture
def data() -> Dataset:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    return Dataset.from_arrays(X=X, y=(X[:, 0] > 0).astype(int), dataset_id="restart")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_restarts_in_the_middle_of_a_run_changes_nothing(postgres_server, data, mode):
    expected = fit(postgres_server.address, data, run_id="undisturbed").coef_

    def restart(event: Event) -> None:
        if isinstance(event, Released) and event.done == 3:
            postgres_server.stop(mode)
            postgres_server.start()

    with watching(restart):
        model = fit(postgres_server.address, data, run_id="disturbed")
    assert (model.coef_ == expected).all()
    assert [run.run_id for run in Ledger(postgres_server.address).history("restart")] == ["undisturbed", "disturbed"]


def test_a_server_that_is_gone_when_the_charge_is_due_costs_nothing(postgres_server, data, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.5)
    events: list[Event] = []

    def leave(event: Event) -> None:
        events.append(event)
        if isinstance(event, Loading):
            postgres_server.stop("immediate")

    with watching(leave), pytest.raises(LedgerError, match="Nothing may be released"):
        fit(postgres_server.address, data, run_id="a")
    assert not any(isinstance(event, Charged | Released) for event in events)
    postgres_server.start()
    assert Ledger(postgres_server.address).history("restart") == []
    fit(postgres_server.address, data, run_id="a")
    assert Ledger(postgres_server.address).spent("restart").epsilon == pytest.approx(1.0)


def test_a_server_that_is_lost_between_releases_stops_the_run_and_the_same_run_goes_on(
    postgres_server, data, monkeypatch
):
    monkeypatch.setattr(patience, "PATIENCE", 0.5)
    expected = fit(postgres_server.address, data, run_id="undisturbed").coef_

    def leave(event: Event) -> None:
        if isinstance(event, Released) and event.done == 2:
            postgres_server.stop("immediate")

    with watching(leave), pytest.raises(LedgerError, match="same run"):
        fit(postgres_server.address, data, run_id="a")
    postgres_server.start()
    replayed: list[bool] = []
    with watching(lambda event: replayed.append(event.replayed) if isinstance(event, Released) else None):
        model = fit(postgres_server.address, data, run_id="a")
    assert replayed[:2] == [True, True] and not any(replayed[2:])
    assert (model.coef_ == expected).all()
    assert Ledger(postgres_server.address).spent("restart").epsilon == pytest.approx(2.0)  # two runs, each charged once


# -- a connection that is lost inside a transaction -----------------------------------------------------------------


@pytest.fixture
def cuts(postgres_server: PostgresServer) -> Iterator[Cuts]:
    proxy = Cuts(postgres_server)
    yield proxy
    proxy.close()


def bookkeeping(address: str) -> list[object]:
    """Every transaction that a ledger and a journal know, and what each returned."""
    told: list[object] = []
    with contextlib.closing(Ledger(address)) as ledger:
        ledger.set_limit("d", Budget(1.0, 1e-5))
        ledger.set_limit("d", Budget(2.0, 1e-5))
        charge = Charge(0.25, 1e-6)
        told += [ledger.open_run("d", "r", "plan", charge).resumed, ledger.open_run("d", "r", "plan", charge).resumed]
        told += [ledger.record_release("r", "r/0", 0, "sum", "Gaussian", 4.5, 2.0, "gaussian 0.1") for _ in range(2)]
        run = ledger.journal.open("r")
        told += [run.put("r/0", np.array([1.5, 2.5])).tolist(), run.put("r/0", np.zeros(2)).tolist()]
        again = ledger.journal.open("r")
        told += [again.epoch > run.epoch, again.get("r/0").tolist()]
        with pytest.raises(Fenced):
            run.put("r/1", np.zeros(1))
        limits = [limit for _, limit in ledger.limits("d")]
        told += [limits, ledger.spent("d"), [(run.run_id, len(run.releases)) for run in ledger.history("d")]]
    return told


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_a_connection_cut_at_any_kind_of_message_of_any_transaction_changes_nothing(postgres_server, cuts, fault):
    messages: list[bytes] = []
    cuts.spoil = messages.append
    expected = bookkeeping(cuts.address)
    assert sum(b"COMMIT" in message for message in messages) >= 14
    first = {(before[:60], message[:60]): i for i, (before, message) in enumerate(itertools.pairwise(messages), 1)}
    assert len(first) > 30
    for strike in [0, *first.values()]:  # one of a kind: the same message after the same one
        postgres_server.forget()
        seen = itertools.count()
        cuts.spoil = lambda _, seen=seen, strike=strike: fault if next(seen) == strike else None
        assert bookkeeping(cuts.address) == expected, (strike, messages[strike])


def test_a_server_that_crashes_inside_any_kind_of_transaction_is_waited_for(postgres_server, cuts, data):
    expected = fit(postgres_server.address, data, run_id="undisturbed").coef_
    for kind in (b"INTO dpdist_runs", b"INTO dpdist_releases", b"INTO dpdist_values", b"COMMIT"):
        struck: list[bytes] = []

        def crash(message: bytes, kind=kind, struck=struck) -> None:
            if kind in message and not struck:
                struck.append(message)
                postgres_server.stop("immediate")
                threading.Timer(2.0, postgres_server.start).start()

        cuts.spoil = crash
        model = fit(cuts.address, data, run_id=f"disturbed {kind!r}")
        assert struck and (model.coef_ == expected).all()
    assert Ledger(postgres_server.address).spent("restart").epsilon == pytest.approx(5.0)


@pytest.mark.parametrize("when", [b"INTO dpdist_runs", b"COMMIT"])
def test_a_connection_on_which_nothing_is_said_any_more_is_left_and_keeps_nobody_out(
    postgres_server, cuts, monkeypatch, when
):
    """Neither end learns that the other one is gone."""
    monkeypatch.setattr(postgres, "ANSWER_WITHIN", 6)
    monkeypatch.setattr(postgres, "HEARD_WITHIN", 2)
    ledger = Ledger(cuts.address)
    struck = threading.Event()

    def silent(message: bytes) -> str | None:
        if when not in message or struck.is_set():
            return None
        struck.set()
        return "silent"

    cuts.spoil = silent
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        charged = pool.submit(ledger.open_run, "d", "r", "plan", Charge(0.25))
        assert struck.wait(10)
        Ledger(postgres_server.address).open_run("d", "s", "plan", Charge(0.25))
        assert time.monotonic() - began < 6, "the other job waited for no more than HEARD_WITHIN"
        assert not charged.result(30).resumed
    assert 6 <= time.monotonic() - began < 30
    assert sorted(run.run_id for run in ledger.history("d")) == ["r", "s"]


def test_a_server_that_refuses_is_not_waited_for(postgres_server):
    for wrong, said in (("/postgres", "does not exist"), ("tester", "role")):
        began = time.monotonic()
        with pytest.raises(LedgerError, match=said) as refused:
            Ledger(postgres_server.address.replace(wrong, wrong[:1] + "nobody"))
        assert time.monotonic() - began < 5
        assert not isinstance(refused.value, Unavailable)


def test_a_server_that_is_full_is_waited_for(postgres_server):
    postgres_server.stop()
    postgres_server.start("-c max_connections=2 -c superuser_reserved_connections=0 -c max_wal_senders=0")
    with contextlib.ExitStack() as others:
        for _ in range(2):
            others.enter_context(psycopg.connect(postgres_server.address))
        threading.Timer(3.0, others.pop_all().close).start()
        Ledger(postgres_server.address).set_limit("d", Budget(1.0))
    assert Ledger(postgres_server.address).accounts() == ["d"]


JOB = """
method: dp-gd
data: {{path: {data}, id: restart}}
params: {{classes: [0, 1], row_norm: 1.0, solver: {{n_rounds: 6}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
ledger: {ledger}
output: {output}
"""


@pytest.mark.parametrize("gone", [False, True], ids=["server there", "server gone"])
def test_a_job_that_is_ended_after_its_charge_is_resumed_and_not_paid_twice(
    postgres_server, tmp_path, monkeypatch, gone
):
    monkeypatch.setattr(patience, "PATIENCE", 0.5)
    X = np.random.default_rng(0).normal(size=(2000, 3))
    Dataset.from_arrays(tmp_path / "rows.zarr", X=X, y=(X[:, 0] > 0).astype(int), dataset_id="restart")
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(data=tmp_path / "rows.zarr", ledger=postgres_server.address, output=tmp_path / "out"))

    def end(event: Event) -> None:
        if isinstance(event, Released) and event.done == 2:
            if gone:
                postgres_server.stop("immediate")
            raise KeyboardInterrupt

    with watching(end), pytest.raises(KeyboardInterrupt):
        run_job(load_job(path))
    if gone:
        postgres_server.start()
    first = json.loads((tmp_path / "out" / "run.json").read_text())
    assert first["status"] == "started"
    record = run_job(load_job(path), resume=True)
    assert record["run_id"] == first["run_id"] and record["status"] == "done"
    assert [run.run_id for run in Ledger(postgres_server.address).history("restart")] == [first["run_id"]]


# -- servers and addresses that will not do -----------------------------------------------------------------------


def test_an_address_with_a_password_is_refused_and_not_repeated():
    for address in ("postgresql://ann:sesame@h/d", "postgresql://h/d?user=ann&password=sesame"):
        with pytest.raises(LedgerError, match="PGPASSWORD") as refused:
            Ledger(address)
        assert "sesame" not in str(refused.value)


def test_a_server_that_would_forget_is_refused(postgres_server):
    postgres_server.stop()
    postgres_server.start("-c fsync=off")
    with pytest.raises(LedgerError, match="fsync=off"):
        Ledger(postgres_server.address)


def test_a_replica_is_refused(postgres_server):
    postgres_server.stop()
    postgres_server.start("-c default_transaction_read_only=on")
    with pytest.raises(LedgerError, match="primary"):
        Ledger(postgres_server.address)


def test_a_server_nobody_listens_at(monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.0)
    with pytest.raises(LedgerError, match="check that the server runs"):
        Ledger("postgresql://nobody@127.0.0.1:1/none")


def test_a_job_that_keeps_the_ledger_locked_is_named(postgres_server, monkeypatch):
    Ledger(postgres_server.address).close()
    monkeypatch.setattr(postgres, "LOCK_WAIT", 1)
    held = threading.Event()
    with psycopg.connect(postgres_server.address) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({postgres._LOCK})")
        held.set()
        began = time.monotonic()
        with pytest.raises(LedgerError, match="pg_stat_activity"):
            Ledger(postgres_server.address)
        assert time.monotonic() - began < 20
    assert Ledger(postgres_server.address).accounts() == []


def test_an_account_is_kept_by_the_commands(postgres_server):
    runner = CliRunner()

    def dpdist(*arguments: str):
        return runner.invoke(main, ["budget", *arguments, "--ledger", postgres_server.address])

    missing = dpdist("show")
    assert missing.exit_code == 2 and "no tables of dpdist" in missing.stderr
    assert dpdist("set", "d", "--epsilon", "2", "--delta", "0", "--new").exit_code == 0
    Ledger(postgres_server.address).open_run("d", "r", "p", Charge(0.5, neighbours=Neighbours.REPLACE_ONE))
    shown = dpdist("show", "d", "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["left"]["epsilon"] == 1.5

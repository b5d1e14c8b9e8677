"""The account is never overspent, never forgets, never charges twice: under processes, threads, kills and broken files.

A kill ends a process, not the machine: that a commit survives a power cut rests on fsync and is not tested here.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import BudgetError, BudgetExceeded, LedgerError, LedgerUnavailable
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger import sqlite
from dpdist.privacy.ledger.ledger import Charge, Ledger, default_path

# Real processes; the server that forks them has imported everything once, so each starts in milliseconds.
from tests.processes import PROCESSES

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE


def join(processes: list) -> None:
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


def is_intact(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# -- one process --------------------------------------------------------------------------------------------------


def test_a_resume_is_free_and_another_plan_under_its_id_is_refused() -> None:
    ledger = Ledger(":memory:")
    charge = Charge(0.3, 1e-7, mu=0.1)
    first = ledger.open_run("d", "run", "plan", charge)
    again = ledger.open_run("d", "run", "plan", Charge(0.3 * (1 + 1e-12), 1e-7, mu=0.1))
    assert (first.resumed, again.resumed) == (False, True)
    assert again.charge == charge and again.when == first.when
    for dataset_id, digest, other in (
        ("d", "other plan", charge),
        ("other data", "plan", charge),
        ("d", "plan", Charge(0.2, 1e-7, mu=0.1)),
        ("d", "plan", Charge(0.3, 1e-7)),
        ("d", "plan", Charge(0.3, 1e-7, ADD, mu=0.1)),
    ):
        with pytest.raises(LedgerError, match="choose a new run id"):
            ledger.open_run(dataset_id, "run", digest, other)
    assert ledger.spent("d").epsilon == 0.3
    assert ledger.accounts() == ["d"]


def test_no_limit_records_and_does_not_refuse() -> None:
    ledger = Ledger(":memory:")
    assert ledger.limit("d") is None and ledger.remaining("d") is None
    assert ledger.spent("d").epsilon == 0
    for i in range(3):
        ledger.open_run("d", f"r{i}", "p", Charge(1000.0))
    assert ledger.spent("d").epsilon == 3000


def test_a_limit_is_a_budget() -> None:
    """A number in its place was told as a damaged ledger."""
    ledger = Ledger(":memory:")
    with pytest.raises(BudgetError, match=r"such as Budget\(1.0\), got 5.0"):
        ledger.set_limit("d", 5.0)  # type: ignore[arg-type]
    assert ledger.limit("d") is None


def test_basic_rule_fills_the_limit_exactly_and_not_beyond() -> None:
    ledger = Ledger(":memory:")
    ledger.set_limit("d", Budget(1.0, 1e-6))
    for i in range(10):  # 0.1 and 1e-7 are not exact in binary: rounding must not cost the last run
        ledger.open_run("d", f"r{i}", "p", Charge(0.1, 1e-7))
    assert ledger.remaining("d").epsilon == pytest.approx(0, abs=1e-12)
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.open_run("d", "r10", "p", Charge(1e-6))
    for number in ("limit (epsilon 1,", "spent (epsilon 1,", "asked (epsilon 1e-06,", "left (epsilon 0,"):
        assert number in str(refusal.value)
    with pytest.raises(BudgetExceeded):
        ledger.can_afford("d", Charge(1e-6))
    assert ledger.open_run("d", "r3", "p", Charge(0.1, 1e-7)).resumed  # a resume needs nothing
    assert len(ledger.history("d")) == 10
    ledger.open_run("other", "r11", "p", Charge(5.0))  # datasets have separate accounts


def test_rounding_is_forgiven_up_to_one_part_in_a_billion() -> None:
    for composition in ("basic", "gaussian"):
        ledger = Ledger(":memory:")
        ledger.set_limit("d", Budget(1.0, 1e-6), composition=composition)
        mu = gdp_mu(1.0, 1e-6)
        with pytest.raises(BudgetExceeded):
            ledger.open_run("d", "r", "p", Charge(1 + 1e-8, 1e-6, mu=mu * (1 + 1e-8)))
        ledger.open_run("d", "r", "p", Charge(1 + 1e-10, 1e-6 * (1 + 1e-10), mu=mu * (1 + 1e-10)))


def test_delta_is_limited_on_its_own() -> None:
    ledger = Ledger(":memory:")
    ledger.set_limit("pure", Budget(1.0))
    ledger.open_run("pure", "a", "p", Charge(0.5))
    with pytest.raises(BudgetExceeded):
        ledger.open_run("pure", "b", "p", Charge(0.1, 1e-300))
    assert ledger.spent("pure").delta == 0


def test_can_afford_writes_nothing() -> None:
    ledger = Ledger(":memory:")
    ledger.set_limit("d", Budget(1.0))
    for _ in range(5):
        ledger.can_afford("d", Charge(0.9))
    assert ledger.spent("d").epsilon == 0 and ledger.history("d") == []


def test_gaussian_rule_adds_squares_of_mu() -> None:
    ledger = Ledger(":memory:")
    limit = Budget(1.0, 1e-6)
    mu = gdp_mu(limit.epsilon, limit.delta)
    ledger.set_limit("d", limit, composition="gaussian")
    one = Charge(0.28, 1e-6, mu=mu / 4)  # 4.5 times the limit by the basic rule
    for i in range(15):
        ledger.open_run("d", f"r{i}", "p", one)
    left = ledger.remaining("d")
    assert left.mu == pytest.approx(mu / 4, rel=1e-6)
    assert gdp_mu(left.epsilon, left.delta) == pytest.approx(mu / 4, rel=1e-6)
    # The remainder is a budget that a Gaussian plan can be made for and that then fits exactly.
    ledger.open_run("d", "r15", "p", Charge(left.epsilon, left.delta, mu=gdp_mu(left.epsilon, left.delta)))
    spent = ledger.spent("d")
    assert (spent.epsilon, spent.delta, spent.mu) == pytest.approx((1.0, 1e-6, mu), rel=1e-6)
    with pytest.raises(BudgetExceeded, match="mu"):
        ledger.open_run("d", "r16", "p", Charge(0.01, 1e-6, mu=mu / 1000))
    with pytest.raises(BudgetError, match="carries no mu"):
        ledger.open_run("d", "r17", "p", Charge(0.01))


def test_one_account_keeps_one_rule_and_one_relation() -> None:
    ledger = Ledger(":memory:")
    ledger.set_limit("d", Budget(1.0, 1e-6))
    ledger.set_limit("d", Budget(1.0, 1e-6), composition="gaussian")  # nothing charged yet: still free to choose
    ledger.open_run("d", "a", "p", Charge(0.2, 1e-6, mu=0.04))
    with pytest.raises(BudgetError, match='composition="gaussian"'):
        ledger.set_limit("d", Budget(2.0, 1e-6))
    with pytest.raises(BudgetError, match="counts add-or-remove-one neighbours"):
        ledger.set_limit("d", Budget(2.0, 1e-6), composition="gaussian", neighbours=ADD)
    ledger.set_limit("d", Budget(0.1, 1e-6), composition="gaussian")  # below what is spent: nothing more fits
    assert ledger.remaining("d").mu == 0
    with pytest.raises(BudgetExceeded):
        ledger.open_run("d", "b", "p", Charge(0.01, 1e-6, mu=1e-4))
    assert ledger.limit("d").budget == Budget(0.1, 1e-6)
    with pytest.raises(BudgetError, match="delta > 0"):
        ledger.set_limit("e", Budget(1.0), composition="gaussian")
    ledger.open_run("f", "c", "p", Charge(1.0))
    with pytest.raises(BudgetError, match="carries no mu"):
        ledger.set_limit("f", Budget(2.0, 1e-6), composition="gaussian")


@pytest.mark.parametrize("limited", [True, False])
def test_relations_do_not_mix(limited: bool) -> None:
    ledger = Ledger(":memory:")
    if limited:
        ledger.set_limit("d", Budget(9.0, 1e-2))
    ledger.open_run("d", "a", "p", Charge(0.5))
    added = Charge(1.0, 1e-6, ADD, mu=0.25)
    for ask in (lambda: ledger.open_run("d", "b", "p", added), lambda: ledger.can_afford("d", added)):
        with pytest.raises(BudgetError, match="epsilon -> 2 epsilon"):
            ask()
    converted = added.under_replace_one()
    assert converted == Charge(2.0, (1 + math.e) * 1e-6, REPLACE, mu=0.5)
    assert converted.under_replace_one() is converted
    ledger.open_run("d", "b", "p", converted)
    if limited:
        ledger.set_limit("e", Budget(9.0), neighbours=ADD)
    else:
        ledger.open_run("e", "first", "p", Charge(0.5, neighbours=ADD))
    with pytest.raises(BudgetError, match="no conversion"):
        ledger.open_run("e", "c", "p", Charge(0.5))


def test_folds_take_the_maximum_inside_a_split_and_add_across_splits() -> None:
    ledger = Ledger(":memory:")
    ledger.set_limit("d", Budget(1.0))
    ledger.open_run("d", "all", "p", Charge(0.2))
    for fold in range(5):
        ledger.open_run("d", f"a{fold}", "p", Charge(0.3, split="a", fold=fold))
    assert ledger.spent("d").epsilon == pytest.approx(0.5)
    ledger.open_run("d", "b0", "p", Charge(0.4, split="b", fold=0))
    assert ledger.spent("d").epsilon == pytest.approx(0.9)  # a row can be in fold 0 of b and in any fold of a
    ledger.open_run("d", "b1", "p", Charge(0.4, split="b", fold=1))
    ledger.open_run("d", "b1 again", "p", Charge(0.1, split="b", fold=1))
    assert ledger.spent("d").epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.open_run("d", "a0 again", "p", Charge(0.1, split="a", fold=0))
    ledger.open_run("d", "b0 again", "p", Charge(0.1, split="b", fold=0))
    with pytest.raises(BudgetExceeded):
        ledger.open_run("d", "all again", "p", Charge(0.01))


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "mu": 0.0},
        {"epsilon": 1.0, "mu": math.nan},
        {"epsilon": 1.0, "split": "a"},
    ],
)
def test_charges_that_make_no_sense_are_refused(arguments: dict) -> None:
    with pytest.raises(BudgetError):
        Charge(**arguments)


def test_releases_are_appended_once_and_shown_in_order(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "ledger.sqlite"
    ledger = Ledger(path)
    with pytest.raises(LedgerError, match="open_run"):
        ledger.record_release("run", "run/0", 0, "gradient", "Gaussian", 2.5, 1.0, "gaussian 0.4")
    ledger.open_run("d", "run", "plan", Charge(1.0, 1e-6, mu=0.5), user="ann", label="nightly")
    assert ledger.record_release("run", "run/1", 1, "gradient", "Gaussian", 2.5, 1.0, "gaussian 0.4")
    assert ledger.record_release("run", "run/0", 0, "step size", "Laplace", 0.1, 1 / 3, "laplace 3.3")
    assert not ledger.record_release("run", "run/1", 1, "gradient", "Gaussian", 2.5 * (1 + 1e-15), 1.0, "gaussian 0.4")
    for changed in (
        ("run", "run/1", 1, "gradient", "Gaussian", 1.25, 1.0, "gaussian 0.4"),
        ("run", "run/1", 1, "gradient", "Laplace", 2.5, 1.0, "gaussian 0.4"),
        ("run", "run/1", 2, "gradient", "Gaussian", 2.5, 1.0, "gaussian 0.4"),
        ("run", "run/2", 1, "gradient", "Gaussian", 2.5, 1.0, "gaussian 0.4"),
    ):
        with pytest.raises(LedgerError, match="other parameters"):
            ledger.record_release(*changed)
    ledger.close()
    (run,) = Ledger(path).history("d")  # everything was on the disk
    assert (run.run_id, run.digest, run.user, run.label) == ("run", "plan", "ann", "nightly")
    assert (run.epsilon, run.delta, run.charge.mu) == (1.0, 1e-6, 0.5)
    assert [r.release_id for r in run.releases] == ["run/0", "run/1"]
    assert run.releases[0].sensitivity == 1 / 3
    assert run.when.endswith("+00:00")


def test_the_default_file_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPDIST_LEDGER", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == str(tmp_path / "dpdist" / "ledger.sqlite")
    monkeypatch.setenv("DPDIST_LEDGER", str(tmp_path / "elsewhere" / "l.db"))
    Ledger().open_run("d", "r", "p", Charge(1.0))
    assert (tmp_path / "elsewhere" / "l.db").exists()


# -- threads and processes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_memory", [True, False])
def test_threads_cannot_overspend(tmp_path: Path, in_memory: bool) -> None:
    ledger = Ledger(":memory:" if in_memory else tmp_path / "l.sqlite")
    ledger.set_limit("d", Budget(1.0))
    charged: list[str] = []

    def spend(thread: int) -> None:
        for i in range(10):
            with contextlib.suppress(BudgetExceeded):
                charged.append(ledger.open_run("d", f"{thread}/{i}", "p", Charge(0.1)).run_id)

    threads = [threading.Thread(target=spend, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(charged) == 10
    assert sorted(charged) == sorted(run.run_id for run in ledger.history("d"))


def hammer(path: Path, process: int, start, results) -> None:
    start.wait()
    ledger = Ledger(path)  # the file is created by all of them at once
    outcome = []
    for i in range(80):
        try:
            outcome.append(ledger.open_run("d", f"{process}/{i}", "p", Charge(1.0)).run_id)
        except BudgetExceeded:
            outcome.append("")
    results.put(outcome)


def test_processes_cannot_overspend(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).set_limit("d", Budget(500.0))
    results, start = PROCESSES.Queue(), PROCESSES.Event()
    processes = [PROCESSES.Process(target=hammer, args=(path, i, start, results)) for i in range(8)]
    for process in processes:
        process.start()
    start.set()
    outcomes = [results.get(timeout=240) for _ in processes]
    join(processes)
    charged = [run_id for outcome in outcomes for run_id in outcome if run_id]
    assert sum(map(len, outcomes)) == 640
    assert len(charged) == 500
    assert sorted(charged) == sorted(run.run_id for run in Ledger(path).history("d"))
    assert Ledger(path).spent("d").epsilon == 500.0


def create_and_charge(path: Path, process: int, start) -> None:
    start.wait()
    Ledger(path).open_run("d", "the same run", "p", Charge(0.1))
    Ledger(path).open_run("d", f"run {process}", "p", Charge(0.1))


def test_processes_create_the_file_together_and_share_a_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "l.sqlite"
    start = PROCESSES.Event()
    processes = [PROCESSES.Process(target=create_and_charge, args=(path, i, start)) for i in range(6)]
    for process in processes:
        process.start()
    start.set()
    join(processes)
    assert Ledger(path).spent("d").epsilon == pytest.approx(0.7)  # one for the shared run, one for each


# -- kills --------------------------------------------------------------------------------------------------------


def charge_for_ever(path: Path, life: int, told) -> None:
    ledger = Ledger(path)
    for i in range(10**6):
        run_id = f"{life}/{i}"
        told.send(("asking", run_id))
        ledger.open_run("d", run_id, "p", Charge(0.5))
        ledger.record_release(run_id, f"{run_id}/0", 0, "sum", "Laplace", 1.0, 1.0, "laplace 0.5")
        told.send(("done", run_id))


def test_a_killed_process_leaves_each_charge_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).close()
    chance = random.Random(20)
    expected = 0
    for life in range(8):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=charge_for_ever, args=(path, life, theirs))
        process.start()
        theirs.close()
        assert [ours.recv(), ours.recv()] == [("asking", f"{life}/0"), ("done", f"{life}/0")]
        time.sleep(chance.uniform(0, 0.02))
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        done, asked = {f"{life}/0"}, f"{life}/0"
        with contextlib.suppress(EOFError):
            while True:
                word, run_id = ours.recv()
                asked = run_id
                if word == "done":
                    done.add(run_id)
        assert is_intact(path)
        ledger = Ledger(path)
        on_file = {run.run_id: run for run in ledger.history("d") if run.run_id.startswith(f"{life}/")}
        assert done <= set(on_file) <= done | {asked}
        assert all(len(on_file[run_id].releases) == 1 for run_id in done)
        # The run that was under way starts again and is charged once, whether the first attempt got through or not.
        assert ledger.open_run("d", asked, "p", Charge(0.5)).resumed is (asked in on_file)
        expected += len(done | {asked})
        assert ledger.spent("d").epsilon == 0.5 * expected
        ledger.close()


def die_inside_a_transaction(path: Path) -> None:
    def half(db: Any) -> None:
        db.execute("UPDATE dpdist_runs SET epsilon = 0")
        os.kill(os.getpid(), signal.SIGKILL)

    Ledger(path)._db.write(half)


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).open_run("d", "r", "p", Charge(0.5))
    process = PROCESSES.Process(target=die_inside_a_transaction, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert Ledger(path).spent("d").epsilon == 0.5


# -- files that cannot be used ------------------------------------------------------------------------------------


def test_a_path_that_cannot_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "l.sqlite", ""):
        with pytest.raises(LedgerError, match=r"name a|file name"):
            Ledger(path)


def test_the_id_of_a_dataset_that_shares_an_account_is_not_taken_for_an_account() -> None:
    with contextlib.closing(Ledger(":memory:")) as ledger:
        ledger.open_run("a", "first", "p", Charge(0.5), account="survey")
        asked = [
            lambda: ledger.set_limit("a", Budget(1.0)),
            lambda: ledger.open_run("b", "second", "p", Charge(0.5), account="a"),
            lambda: ledger.can_afford("a", Charge(0.5)),
            *(lambda ask=ask: ask("a") for ask in (ledger.spent, ledger.remaining, ledger.limit, ledger.limits)),
            *(lambda ask=ask: ask("a") for ask in (ledger.history, ledger.n_runs, ledger.last_run)),
        ]
        for ask in asked:
            with pytest.raises(LedgerError, match="'a' is a dataset that pays from the account 'survey'"):
                ask()
        assert ledger.accounts() == ["survey"] and ledger.n_runs("survey") == 1
        ledger.open_run("c", "third", "p", Charge(0.25), account="shared")
        ledger.open_run("shared", "fourth", "p", Charge(0.25), account="survey")  # the account was there before it
        assert ledger.spent("shared").epsilon == 0.25


def test_a_limit_on_the_id_of_a_dataset_is_not_passed_by_in_another_account() -> None:
    with contextlib.closing(Ledger(":memory:")) as ledger:
        ledger.set_limit("a", Budget(1.0))
        with pytest.raises(LedgerError, match=r"a limit was set on 'a'.*'survey', which has none: set it on"):
            ledger.open_run("a", "first", "p", Charge(50.0), account="survey")
        assert ledger.is_empty()
        ledger.set_limit("survey", Budget(2.0))
        with pytest.raises(BudgetExceeded):
            ledger.open_run("a", "first", "p", Charge(50.0), account="survey")
        ledger.open_run("a", "first", "p", Charge(2.0), account="survey")


@pytest.mark.parametrize("address", ["s3://bucket/ledger", "mysql://ann:secret@host/budgets", "file:///srv/ledger"])
def test_an_address_of_what_keeps_no_ledger_makes_no_directory(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal = "a file or postgresql://USER@HOST/DATABASE.*begins with '{}//'".format(address.partition("//")[0])
    for opened in (Ledger, Ledger.existing):
        with pytest.raises(LedgerError, match=refusal) as refused:
            opened(address)
        assert "secret" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_address_of_a_server_needs_its_slashes() -> None:
    for opened in (Ledger, Ledger.existing):
        with pytest.raises(LedgerError, match="expected postgresql://USER@HOST/DATABASE") as refused:
            opened("postgresql:/budgets")
        assert not isinstance(refused.value, LedgerUnavailable)


def test_a_file_that_is_not_a_ledger_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 50)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not an SQLite file"):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("bit", [0x80, 0x02])
@pytest.mark.parametrize("text", [b"dpdist_runs", b"CREATE TABLE", b"epsilon", b"mu_squared", b'": [0.5'])
def test_one_flipped_bit_of_its_text_is_one_error_or_none(tmp_path: Path, text: bytes, bit: int) -> None:
    path = tmp_path / "l.sqlite"
    with contextlib.closing(Ledger(path)) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
    whole, refused, at = path.read_bytes(), 0, -1
    while (at := whole.find(text, at + 1)) >= 0:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        try:
            with contextlib.closing(Ledger.existing(path)) as ledger:
                assert ledger.spent("d").epsilon == 0.5
        except LedgerError as error:
            assert any(word in str(error) for word in ("damaged", "no ledger of dpdist", "no such column"))
            refused += 1
    assert refused


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path)
    for i in range(50):
        ledger.open_run("d", f"r{i}", "p", Charge(1.0), label="x" * 200)
    ledger.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(LedgerError, match="restore a backup"):
        Ledger(path).open_run("d", "r99", "p", Charge(1.0))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LedgerError, match="restore a backup"):
        Ledger(path).history("d")


def test_a_file_that_became_read_only_charges_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    ledger._db._connection.execute("PRAGMA query_only = ON")  # chmod would not stop root
    with pytest.raises(LedgerError, match="read-only"):
        ledger.open_run("d", "r", "p", Charge(1.0))
    ledger._db._connection.execute("PRAGMA query_only = OFF")
    assert ledger.spent("d").epsilon == 0
    ledger.open_run("d", "r", "p", Charge(1.0))  # the failed transaction left nothing open


def test_a_full_disk_charges_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    pages = ledger._db._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._db._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match="full"):
        ledger.open_run("d", "r", "p", Charge(1.0), label="x" * 100_000)
    assert ledger.spent("d").epsilon == 0
    ledger._db._connection.execute("PRAGMA max_page_count = 1000000")
    assert not ledger.open_run("d", "r", "p", Charge(1.0), label="x" * 100_000).resumed


def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    connection = Ledger(tmp_path / "l.sqlite")._db._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone()[0] >= 2  # FULL


def test_a_file_that_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l.sqlite"
    holder = Ledger(path)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.1)
    ledger = Ledger(path)

    def while_it_is_held(_: Any) -> None:
        with pytest.raises(LedgerUnavailable, match="locked for too long"):
            ledger.open_run("d", "r", "p", Charge(1.0))
        assert ledger.spent("d").epsilon == 0  # reading goes on beside a writer

    holder._db.write(while_it_is_held)
    ledger.open_run("d", "r", "p", Charge(1.0))


def test_a_file_deleted_or_replaced_while_open_takes_no_charge(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    ledger = Ledger(path)
    ledger.open_run("d", "r", "p", Charge(1.0))
    path.rename(tmp_path / "moved.sqlite")
    with pytest.raises(LedgerError, match="deleted or replaced"):
        ledger.open_run("d", "s", "p", Charge(1.0))
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="deleted or replaced"):
        ledger.open_run("d", "s", "p", Charge(1.0))
    (tmp_path / "moved.sqlite").rename(path)
    assert ledger.spent("d").epsilon == 1


@pytest.mark.parametrize("ends", [["-wal"], ["-wal", "-shm"]])
def test_a_ledger_that_is_overwritten_by_a_copy_while_open_takes_no_charge(tmp_path: Path, ends: list[str]) -> None:
    path = tmp_path / "l.sqlite"
    with contextlib.closing(Ledger(path)) as before:
        before.open_run("d", "q", "p", Charge(1.0))
    copy = path.read_bytes()
    with contextlib.closing(Ledger(path)) as ledger:
        ledger.open_run("d", "r", "p", Charge(1.0))
        for end in ends:  # as whoever restores a plain copy has to
            Path(f"{path}{end}").unlink()
        path.write_bytes(copy)
        with pytest.raises(LedgerError, match=r"l\.sqlite-wal was deleted or replaced"):
            ledger.open_run("d", "s", "p", Charge(1.0))


@pytest.mark.parametrize("go_on", [True, False])
def test_a_ledger_behind_a_symbolic_link_has_its_log_beside_the_file(tmp_path: Path, go_on: bool) -> None:
    """Where the link is there is none, however often one looks."""
    path, link = tmp_path / "real" / "l.sqlite", tmp_path / "link.sqlite"
    link.symlink_to(path)
    path.parent.mkdir()
    with contextlib.closing(Ledger(link)) as ledger:
        ledger.open_run("d", "r", "p", Charge(1.0))
        log = Path(f"{path}-wal").read_bytes()
        if go_on:
            Path(f"{path}-wal").unlink()
            with pytest.raises(LedgerError, match=r"real/l\.sqlite-wal was deleted or replaced"):
                ledger.open_run("d", "s", "p", Charge(1.0))
    path.unlink()
    Path(f"{path}-wal").write_bytes(log)
    with pytest.raises(LedgerError, match="is gone or empty, and its write-ahead log"):
        Ledger(link)
    assert Path(f"{path}-wal").read_bytes() == log


@pytest.mark.parametrize("named", ["l.sqlite", "link/../l.sqlite"])
def test_a_ledger_is_the_same_one_wherever_the_process_goes(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Ledger(named)) as ledger:
        monkeypatch.chdir(tmp_path / "far")
        ledger.open_run("d", "r", "p", Charge(1.0))
        (found,) = tmp_path.rglob("l.sqlite")
        found.rename("moved.sqlite")
        with pytest.raises(LedgerError, match=r"l\.sqlite was deleted or replaced"):
            ledger.open_run("d", "s", "p", Charge(1.0))


def test_a_process_whose_directory_is_gone_can_use_a_ledger_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for path in (tmp_path / "l.sqlite", ":memory:"):
        with contextlib.closing(Ledger(path)) as ledger:
            ledger.open_run("d", "r", "p", Charge(1.0))
    for path, journal in (("l.sqlite", None), (tmp_path / "l.sqlite", "j.sqlite")):
        with pytest.raises(LedgerError, match="name it in full"):
            Ledger(path, journal=journal)


def test_a_copy_of_a_ledger_is_the_same_one_wherever_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As scikit-learn copies the parameters of a model, and as a model is sent to other processes."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Ledger("l.sqlite", journal="j.sqlite")) as ledger:
        ledger.set_limit("d", Budget(1.0))
        ledger.open_run("d", "r", "p", Charge(1.0), journal=ledger.journal)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with contextlib.closing(copy.deepcopy(ledger)) as again:
            assert again.journal.id == ledger.journal.id
            with pytest.raises(BudgetExceeded):
                again.open_run("d", "s", "p", Charge(1.0))
    assert not any(Path.cwd().iterdir())


def test_a_file_with_two_names_takes_no_charge(tmp_path: Path) -> None:
    """Each name would have a log of its own, and the limit would be there for each."""
    path, other = tmp_path / "l.sqlite", tmp_path / "other.sqlite"
    ledger = Ledger(path)
    ledger.set_limit("d", Budget(1.0))
    other.hardlink_to(path)
    for refused in (lambda: Ledger(other), lambda: Ledger(path), lambda: ledger.open_run("d", "r", "p", Charge(1.0))):
        with pytest.raises(LedgerError, match=rf"of 2 names .*the others \({tmp_path}/(l|other)\.sq") as error:
            refused()
        assert "Nothing was charged" not in str(error.value), "a run may have been, before somebody made the other name"
    assert {file.name for file in tmp_path.glob("other*")} == {"other.sqlite"}
    other.unlink()
    other.symlink_to(path)
    ledger.open_run("d", "r", "p", Charge(1.0))
    with PROCESSES.Pool(1) as elsewhere, pytest.raises(BudgetExceeded):
        elsewhere.apply(charge_once, (str(other),))


def test_a_file_that_is_mounted_without_its_log_takes_no_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux lists it: who runs tests may not mount anything."""
    mounts, folder = tmp_path / "mountinfo", tmp_path / "a b"
    folder.mkdir()
    line = "29 22 254:0 /srv {} rw,relatime shared:1 - ext4 /dev/vda rw\n"
    monkeypatch.setattr(sqlite, "_MOUNTS", str(mounts))
    shown = str(folder).replace(" ", "\\040")
    mounts.write_text(line.format("/") + line.format(shown))
    with contextlib.closing(Ledger(folder / "l.sqlite")) as ledger:  # mounted with its directory
        ledger.open_run("d", "r", "p", Charge(1.0))
    mounts.write_text(line.format("/") + line.format(f"{shown}/l.sqlite"))
    (tmp_path / "link").symlink_to(folder)
    for place in (folder, tmp_path / "link"):
        with pytest.raises(LedgerError, match="mounted as a single file"):
            Ledger(place / "l.sqlite")
    assert [file.name for file in folder.iterdir()] == ["l.sqlite"]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TRIGGER cheaper AFTER INSERT ON dpdist_runs BEGIN UPDATE dpdist_runs SET epsilon = 1e-9; END",
        "CREATE VIEW Dpdist_lists AS SELECT * FROM dpdist_limits",
    ],
)
def test_a_file_that_changes_what_is_written_is_refused(tmp_path: Path, made: str) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(made)
    for opened in (Ledger, Ledger.existing):
        with pytest.raises(LedgerError, match="a trigger or a view that dpdist did not make"):
            opened(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dpdist_ledger_version SET version = 'x'",
        "DELETE FROM dpdist_ledger_version",
        "UPDATE dpdist_limits SET number = 'x'",
        f"UPDATE dpdist_runs SET total = '{'[' * 100_000}'",
    ],
)
def test_what_cannot_have_been_written_is_one_error(tmp_path: Path, change: str) -> None:
    path = tmp_path / "l.sqlite"
    with contextlib.closing(Ledger(path)) as ledger:
        ledger.set_limit("d", Budget(2.0))
        ledger.open_run("d", "r", "p", Charge(1.0))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path).set_limit("d", Budget(3.0))


def test_a_view_that_somebody_made_for_reports_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIEW spending AS SELECT account, epsilon FROM dpdist_runs")
    Ledger(path).open_run("d", "r", "p", Charge(1.0))


def charge_once(path: str) -> None:
    Ledger(path).open_run("d", "s", "p", Charge(1.0))


def test_a_closed_ledger_says_so() -> None:
    ledger = Ledger(":memory:")
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.spent("d")


def test_a_connection_is_not_used_across_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(LedgerError, match="parent process"):
            ledger.spent("d")
    assert ledger.spent("d").epsilon == 0

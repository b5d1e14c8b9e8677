"""Running totals: what adding up all charges gives, bit by bit, on a file and a server; a charge reads none of them."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from dpdist.engine.doctor_stores import examine_ledger
from dpdist.errors import BudgetError, BudgetExceeded
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.filter import Limit, check_fits, left, total
from dpdist.privacy.accounting.totals import NOTHING, Sums, balances, decoded, encoded
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger import sqlite
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.records import check_sums
from tests.processes import PROCESSES

REPLACE = Neighbours.REPLACE_ONE
# the same charges each time, however long they take
ALIKE = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(params=["file", "server"])
def place(request, tmp_path: Path) -> str:
    """Where a ledger may be made."""
    if request.param == "file":
        return str(tmp_path / "ledger.sqlite")
    postgres_server = request.getfixturevalue("postgres_server")
    return postgres_server.address


# -- exact --------------------------------------------------------------------------------------------------------

prices = some.one_of(some.sampled_from([0.1, 1.0, 1e-300, 5e-324, 3e15]), some.floats(1e-12, 1e6))
parts = some.one_of(some.just((None, None)), some.tuples(some.sampled_from(["a", "b"]), some.integers(0, 2)))
charges = some.builds(
    lambda epsilon, delta, mu, part: Charge(epsilon, delta, mu=mu, split=part[0], fold=part[1]),
    prices,
    some.one_of(some.just(0.0), some.floats(0, 0.9)),
    some.one_of(some.none(), some.floats(1e-6, 10)),
    parts,
)


def what_a_row_pays(charged: list[Charge], price: Callable[[Charge], float]) -> float:
    """The plain model: the charges on all rows, and those on the dearest fold of every split, at once."""
    columns = defaultdict(lambda: defaultdict(list))
    for charge in charged:
        columns[charge.split][charge.fold].append(price(charge))
    dearest = [max(folds.values(), key=math.fsum) for folds in columns.values()]
    return math.fsum(paid for column in dearest for paid in column)


@settings(ALIKE, max_examples=300)
@given(some.lists(charges, max_size=12))
def test_the_balance_is_the_rounded_exact_sum(charged: list[Charge]) -> None:
    last = NOTHING
    for i, balance in enumerate(balances(charged)):
        last, so_far = balance.total, charged[: i + 1]
        assert float(last.epsilon) == what_a_row_pays(so_far, lambda charge: charge.epsilon)
        assert float(last.delta) == what_a_row_pays(so_far, lambda charge: charge.delta)
        if last.mu_squared is not None:
            assert float(last.mu_squared) == what_a_row_pays(so_far, lambda charge: charge.mu**2)
        assert (last.mu_squared is None) == any(charge.mu is None for charge in so_far)
    assert decoded(encoded(last)) == last


@settings(ALIKE, max_examples=40)
@given(some.lists(charges, max_size=8))
def test_a_ledger_keeps_the_balance_beside_every_run(charged: list[Charge]) -> None:
    ledger = Ledger(":memory:")
    for i, charge in enumerate(charged):
        ledger.open_run("d", f"r{i}", "p", charge)
        ledger.open_run("other", f"o{i}", "p", Charge(1.0))
    assert [run.total for run in ledger.history("d")] == [balance.total for balance in balances(charged)]
    totals = [NOTHING, *(balance.total for balance in balances(charged))]
    assert [ledger.spent_before(f"r{i}") for i in range(len(charged))] == totals[:-1]
    spent = ledger.spent("d")
    assert (spent.epsilon, spent.delta) == (float(totals[-1].epsilon), float(totals[-1].delta))
    assert ledger._db.read(check_sums) == 2 * len(charged)


def test_ten_thousand_charges_do_not_drift() -> None:
    """Ten thousand times a tenth, added one by one, is 1000.0000000001588."""
    total = NOTHING
    for _ in range(10_000):
        total = decoded(encoded(total.plus(Sums.of(Charge(0.1)))))
    assert float(total.epsilon) == math.fsum([0.1] * 10_000) == 1000.0


def test_a_sum_that_no_number_holds_is_refused() -> None:
    ledger = Ledger(":memory:")
    ledger.open_run("d", "a", "p", Charge(1e308))
    with pytest.raises(BudgetError, match="more than a number can hold"):
        ledger.open_run("d", "b", "p", Charge(1e308))
    assert ledger.spent("d").epsilon == 1e308 and ledger.run("b") is None


def test_where_a_mu_is_unknown_the_gaussian_rule_lets_nothing_more_in() -> None:
    limit = Limit(Budget(3.0, 1e-5), REPLACE, "gaussian")
    unknown = Sums(Fraction(1), Fraction(0), None)  # only a ledger that was put together again can have it
    one = Charge(0.1, 1e-7, mu=0.01)
    assert left(limit, total(limit, unknown)).mu == 0
    with pytest.raises(BudgetExceeded):
        check_fits("d", limit, one, unknown, unknown.plus(Sums.of(one)))
    check_fits("d", limit, one, NOTHING, Sums.of(one))


# -- noticed ------------------------------------------------------------------------------------------------------


def edit(path: str, statement: str) -> None:
    with contextlib.closing(sqlite.open_store(path, None)) as store:
        store.write(lambda db: db.execute(statement))


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE dpdist_runs SET epsilon = 0.25 WHERE run_id = 'r1'", "up to the run 'r1' do not add up"),
        ("UPDATE dpdist_runs SET total = NULL WHERE run_id = 'r2'", "up to the run 'r2' do not add up"),
        ("UPDATE dpdist_runs SET fold_total = NULL WHERE run_id = 'r3'", "up to the run 'r3' do not add up"),
        ("UPDATE dpdist_runs SET split_total = NULL WHERE run_id = 'r3'", "up to the run 'r3' do not add up"),
        ("DELETE FROM dpdist_runs WHERE run_id = 'r1'", "charged the run 'r1' and has no such run"),
        ("DELETE FROM dpdist_runs WHERE run_id = 'r2'", "charged the run 'r2' and has no such run"),
    ],
)
def test_a_ledger_that_was_edited_is_found_by_the_doctor(place, statement, says, kept_folder) -> None:
    with contextlib.closing(Ledger(place)) as ledger:
        for i in range(3):
            ledger.open_run("d", f"r{i}", "p", Charge(0.5))
        ledger.open_run("d", "r3", "p", Charge(0.5, split="s", fold=0))
    (sound,) = [one for one in examine_ledger(place) if one.check == "ledger"]
    assert sound.status == "ok" and "the charges of 4 runs add up" in sound.says
    edit(place, statement)
    (found,) = [one for one in examine_ledger(place) if one.check == "ledger"]
    assert found.status == "fail" and says in found.says and "Restore the newest copy" in found.says


# -- the same cost for ever ---------------------------------------------------------------------------------------


def filled(path: str, n_runs: int, composition: str) -> Ledger:
    ledger = Ledger(path)
    ledger.set_limit("d", Budget(1e6, 1e-6), composition=composition)
    for i in range(n_runs):
        part = {} if i % 2 else {"split": f"s{i % 3}", "fold": i}
        ledger.open_run("d", f"old {i}", "p", Charge(0.01, mu=1e-4, **part))
    return ledger


@pytest.mark.parametrize("composition", ["basic", "gaussian"])
def test_a_charge_does_the_same_work_after_many_runs(tmp_path, composition) -> None:
    """Counted in steps of the database, which are the same on a busy machine."""

    def steps(n_runs: int) -> int:
        ledger, count = filled(str(tmp_path / f"{n_runs}.sqlite"), n_runs, composition), 0

        def step() -> None:
            nonlocal count
            count += 1

        ledger._db._connection.set_progress_handler(step, 1)
        for part in ({}, {"split": "s1", "fold": 10**6}, {"split": "s1", "fold": 4}):
            ledger.open_run("d", f"new {part}", "p", Charge(0.01, mu=1e-4, **part))
            ledger.can_afford("d", Charge(0.01, mu=1e-4, **part))
        assert ledger.spent("d").mu is not None
        return count

    assert steps(1000) <= 1.1 * steps(10)


@pytest.mark.slow
def test_the_ten_thousandth_charge_takes_as_long_as_the_tenth(place, tmp_path, postgres_server) -> None:
    old = filled(place, 10_000, "basic")
    new = filled(str(tmp_path / "new.sqlite"), 10, "basic")
    if place == postgres_server.address:
        new = Ledger(place)  # an account of its own in the same server

    def seconds(ledger: Ledger, account: str, i: int) -> float:
        began = time.perf_counter()
        ledger.open_run(account, f"{account} {i}", "p", Charge(0.01, mu=1e-4))
        return time.perf_counter() - began

    times = [(seconds(old, "d", i), seconds(new, "young", i)) for i in range(200)]
    assert statistics.median(a for a, _ in times) < 2 * statistics.median(b for _, b in times)


# -- many at once -------------------------------------------------------------------------------------------------


def race(path: str, process: int, start, results) -> None:
    ledger = Ledger(path)
    start.wait()
    charged = 0
    with contextlib.suppress(BudgetExceeded):
        while True:
            ledger.open_run("d", f"{process}/{charged}", "p", Charge(0.125))
            charged += 1
    results.put(charged)


def test_eight_processes_that_race_for_a_limit_of_500_get_500(place) -> None:
    with contextlib.closing(Ledger(place)) as ledger:
        ledger.set_limit("d", Budget(500 * 0.125))
    results, start = PROCESSES.Queue(), PROCESSES.Event()
    processes = [PROCESSES.Process(target=race, args=(place, i, start, results)) for i in range(8)]
    for process in processes:
        process.start()
    start.set()
    charged = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sum(charged) == 500
    with contextlib.closing(Ledger(place)) as ledger:
        runs = ledger.history("d")
        assert len({run.run_id for run in runs}) == len(runs) == 500
        assert ledger.spent("d").epsilon == 500 * 0.125 and ledger.remaining("d").epsilon == 0
        assert ledger._db.read(check_sums) == 500


def test_a_waiting_writer_asks_again_and_again(tmp_path) -> None:
    """SQLite's own waiting asks once, as far as a connection tells, and sleeps for up to a tenth of a second at a time.

    Half of the pauses are short also where other processes load the machine and some are long.
    """
    first, second = Ledger(tmp_path / "l.sqlite"), Ledger(tmp_path / "l.sqlite")
    asked: list[float] = []

    def note(statement: str) -> None:
        if statement.startswith("BEGIN"):
            asked.append(time.perf_counter())

    second._db._connection.set_trace_callback(note)
    thread = threading.Thread(target=second.open_run, args=("d", "r", "p", Charge(0.1)))

    def hold(db: Any) -> int:
        thread.start()
        give_up = time.monotonic() + sqlite.BUSY_TIMEOUT / 2
        while len(asked) < 200 and time.monotonic() < give_up:
            time.sleep(0.01)
        return len(asked)

    assert first._db.write(hold) >= 200
    thread.join()
    assert statistics.median(np.diff(asked)) < 0.012
    assert [run.run_id for run in first.history("d")] == ["r"]


def test_limits_by_either_rule_hold_to_the_last_bit_after_many_charges() -> None:
    for composition, one in (("basic", Charge(0.001, 1e-9)), ("gaussian", None)):
        limit = Budget(1.0, 1e-6)
        if composition == "gaussian":
            one = Charge(0.001, 1e-9, mu=gdp_mu(limit.epsilon, limit.delta) / math.sqrt(1000))
        ledger = Ledger(":memory:")
        ledger.set_limit("d", limit, composition=composition)
        for i in range(1000):
            ledger.open_run("d", f"r{i}", "p", one)
        with pytest.raises(BudgetExceeded):
            ledger.open_run("d", "one more", "p", one)
        assert len(ledger.history("d")) == 1000

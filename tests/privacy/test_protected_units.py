"""What an account is about, and what a charge about another unit costs it: what is proved, or a refusal."""

from __future__ import annotations

import contextlib
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dpdist.errors import BudgetError, BudgetExceeded, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.protected_units import ANSWER, LABEL, ROW, About, Protected, of_group, unit_of_account

LABELS = Protected("the label", LABEL)
ANSWERS = Protected("one of 3 answers", ANSWER, 3)
ADD = Neighbours.ADD_OR_REMOVE_ONE
KINDS = {
    "row": About(ROW),
    "patient": About("patient"),
    "household": About("household"),
    "label": About(ROW, LABELS),
    "answer": About(ROW, ANSWERS),
}
COSTS = {
    ("row", "row"): 1, ("patient", "patient"): 1, ("label", "label"): 1, ("answer", "answer"): 1,
    ("patient", "row"): 1, ("household", "row"): 1, ("household", "household"): 1,
    ("row", "label"): 1, ("patient", "label"): 1, ("household", "label"): 1,
    ("row", "answer"): 1, ("patient", "answer"): 1, ("household", "answer"): 1,
    ("answer", "row"): 3,
}  # fmt: skip
"""How many times its price a charge of one kind costs an account of another; all other pairs are refused."""


def account(unit: str | None = None, **limit: object) -> Ledger:
    ledger = Ledger(":memory:")
    ledger.set_limit("d", Budget(10.0, 1e-5), unit=unit, **limit)
    return ledger


@pytest.mark.parametrize(("own", "unit"), list(product(KINDS, KINDS)))
def test_a_charge_costs_what_is_proved_or_is_refused(own: str, unit: str) -> None:
    ledger, about = account(unit), KINDS[own]
    times = COSTS.get((own, unit))
    if times is None:
        for act in (
            lambda: ledger.can_afford("d", Charge(0.5, 1e-9), about),
            lambda: ledger.open_run("d", "r", "p", Charge(0.5, 1e-9), about=about),
        ):
            with pytest.raises(BudgetError, match=f"is about one {unit}, and the charge is about one {own}") as refused:
                act()
            assert "Nothing was charged" in str(refused.value) and "account" in str(refused.value)
        assert ledger.spent("d").epsilon == 0 and ledger.history("d") == []
        return
    assert ledger.can_afford("d", Charge(0.5, 1e-9), about).epsilon == times * 0.5
    ledger.open_run("d", "r", "p", Charge(0.5, 1e-9, mu=0.1), about=about)
    spent, (run,) = ledger.spent("d"), ledger.history("d")
    assert spent.epsilon == run.epsilon == times * 0.5 and spent.mu == pytest.approx(times * 0.1)
    assert (run.unit, run.group_size) == (own, times) and ledger.account("d").unit == unit
    assert ledger.open_run("d", "r", "p", Charge(0.5, 1e-9, mu=0.1), about=about).resumed


@pytest.mark.parametrize(("own", "unit"), [(a, b) for a, b in product(KINDS, KINDS) if a != b])
def test_nothing_is_converted_under_add_or_remove_one(own: str, unit: str) -> None:
    ledger = account(unit, neighbours=ADD)
    with pytest.raises(BudgetError, match="the charge is about one"):
        ledger.can_afford("d", Charge(0.5, neighbours=ADD), KINDS[own])


def test_a_group_costs_what_its_members_cost_one_after_another() -> None:
    """Against the exact privacy profile of a Gaussian, whose shift is m times as large."""
    mu, m = 0.7, 4
    for epsilon in (0.1, 0.5, 1.0):
        delta = gdp_delta(epsilon, mu)
        group = of_group(Charge(epsilon, delta / 1e3, mu=mu), m)  # a delta so small that m of them are below 1
        assert group.epsilon == m * epsilon and group.mu == m * mu
        assert group.delta == pytest.approx(delta / 1e3 * math.expm1(m * epsilon) / math.expm1(epsilon))
        # the true delta of the group at m epsilon is at most what the formula says
        assert gdp_delta(m * epsilon, m * mu) <= delta * math.expm1(m * epsilon) / math.expm1(epsilon)


def test_a_group_of_a_pure_mechanism_by_enumeration() -> None:
    """Randomised response on m answers: the largest ratio between any two rows is e^(m epsilon), no less."""
    epsilon, m = 0.8, 3
    keep = 1 / (1 + math.exp(-epsilon))
    rows = list(product((0, 1), repeat=m))
    law = np.array(
        [[math.prod(keep if a == b else 1 - keep for a, b in zip(r, s, strict=True)) for s in rows] for r in rows]
    )
    worst = max(math.log(law[i, s] / law[j, s]) for i, j, s in product(range(8), repeat=3))
    assert worst == pytest.approx(of_group(Charge(epsilon), m).epsilon)


def test_a_delta_that_grows_beyond_one_is_refused() -> None:
    for epsilon in (5.0, 400.0):
        with pytest.raises(BudgetError, match="delta"):
            of_group(Charge(epsilon, 1e-3), 3)


def test_a_limit_says_nothing_about_its_unit_until_its_dataset_is_charged() -> None:
    for unit in ("row", "patient", "label", "answer"):
        ledger = account()
        assert ledger.account("d").unit is None
        ledger.open_run("d", "r", "p", Charge(0.5), about=About(unit))
        assert ledger.account("d").unit == unit


def test_a_limit_on_a_dataset_of_rows_is_not_one_about_labels() -> None:
    """Somebody was promised something about rows."""
    ledger = account()
    with pytest.raises(BudgetError, match="is about one row, and the charge is about one label"):
        ledger.open_run("d", "r", "p", Charge(0.5), about=About(ROW, LABELS))


def test_without_a_limit_the_first_charge_decides() -> None:
    ledger = Ledger(":memory:")
    ledger.open_run("d", "labels", "p", Charge(0.5), about=About(ROW, LABELS))
    ledger.open_run("d", "rows", "p", Charge(0.25))  # rows cover their labels
    assert ledger.account("d").unit == "label" and ledger.spent("d").epsilon == 0.75
    with pytest.raises(BudgetError, match="one account keeps one unit"):
        ledger.set_limit("d", Budget(9.0), unit="row")
    ledger.set_limit("d", Budget(9.0))
    assert ledger.account("d").unit == "label"
    ledger.open_run("e", "rows of e", "p", Charge(0.5))
    with pytest.raises(BudgetError, match="is about one row"):
        ledger.open_run("e", "labels of e", "p", Charge(0.5), about=About(ROW, LABELS))


def test_an_account_about_parts_of_rows_stays_one_about_them() -> None:
    """A charge about all data does not make it an account about rows: such a charge is converted."""
    for part in (LABEL, ANSWER):
        assert unit_of_account(About(part), is_new=True) == unit_of_account(About(part), is_new=False) == part
        new = LABEL if part == LABEL else "patient"  # an answer is worth something to rows, a label is not
        assert unit_of_account(About("patient", Protected("it", part)), is_new=True) == new
        assert unit_of_account(About("patient", Protected("it", part)), is_new=False) == "patient"


def test_a_unit_can_be_named_until_something_is_charged() -> None:
    ledger = account("row")
    head = ledger.head()
    ledger.set_limit("d", Budget(10.0, 1e-5), unit="row")
    assert ledger.head() == head
    ledger.set_limit("d", Budget(10.0, 1e-5), unit="label")
    assert ledger.account("d").unit == "label" and ledger.head() != head
    ledger.open_run("d", "r", "p", Charge(0.5), about=About(ROW, LABELS))
    for unit in ("row", "patient", "answer"):
        with pytest.raises(BudgetError, match=f"set the limit with unit='label', or open another account for a {unit}"):
            ledger.set_limit("d", Budget(10.0, 1e-5), unit=unit)


def test_an_account_about_answers_and_one_about_rows_are_filled_at_their_own_pace() -> None:
    prices = {}
    for unit in ("row", "answer"):
        ledger = account(unit)
        with contextlib.suppress(BudgetExceeded):
            for i in range(100):
                ledger.open_run("d", f"r{i}", "p", Charge(1.0), about=About(ROW, ANSWERS))
        prices[unit] = len(ledger.history("d"))
    assert prices == {"row": 3, "answer": 10}


def test_a_run_is_not_resumed_as_one_about_something_else(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    ledger.open_run("d", "r", "p", Charge(0.5), about=About(ROW, ANSWERS))
    for about in (About(ROW), About(ROW, LABELS), About("patient")):
        with pytest.raises(LedgerError, match="different plan"):
            ledger.open_run("d", "r", "p", Charge(0.5), about=about)

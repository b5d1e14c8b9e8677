"""A charge costs the same after ten years: its work is counted, not timed, so that no load can make this fail."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest

from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.budget import Budget
from dpdist.privacy.ledger.ledger import Ledger

N_RUNS = 10_000


def work_of_a_charge(ledger: Ledger, run_id: str, charge: Charge) -> tuple[int, int, int]:
    """Statements, instructions of SQLite's machine and calls of functions that one charge takes."""
    statements: list[str] = []
    counts = {"instructions": 0, "calls": 0}

    def instruction() -> int:
        counts["instructions"] += 1
        return 0

    def step(frame: Any, event: str, _: Any) -> None:
        counts["calls"] += event in ("call", "c_call")

    connection = ledger._db._connection  # type: ignore[attr-defined]
    connection.set_trace_callback(statements.append)
    ledger.open_run("d", f"{run_id} (traced)", "p", charge)
    connection.set_trace_callback(None)
    connection.set_progress_handler(instruction, 1)
    ledger.open_run("d", f"{run_id} (stepped)", "p", charge)
    connection.set_progress_handler(None, 1)
    sys.setprofile(step)
    try:
        ledger.open_run("d", f"{run_id} (called)", "p", charge)
    finally:
        sys.setprofile(None)
    return len(statements), counts["instructions"], counts["calls"]


@pytest.mark.parametrize(
    ("composition", "charge"),
    [("basic", Charge(0.1, 1e-9)), ("gaussian", Charge(0.1, 1e-9, mu=0.3, split="s", fold=1))],
)
def test_a_charge_at_the_ten_thousandth_run_does_the_work_of_the_tenth(charge, composition):
    with contextlib.closing(Ledger(":memory:")) as ledger:
        ledger.set_limit("d", Budget(1e6, 1e-2), composition=composition)
        for number in range(10):
            ledger.open_run("d", f"{number}", "p", charge)
        early = work_of_a_charge(ledger, "tenth", charge)
        for number in range(10, N_RUNS):
            ledger.open_run("d", f"{number}", "p", charge)
        late = work_of_a_charge(ledger, "ten thousandth", charge)
    assert late[0] == early[0] <= 20, "statements"
    assert late[1] <= 1.1 * early[1] <= 1000, "instructions"
    assert late[2] <= 1.1 * early[2] <= 2000, "calls"

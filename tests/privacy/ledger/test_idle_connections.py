"""What a database in memory leaves to the next one: its tables, and nothing that was in them."""

from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3

import numpy as np
import pytest

from dpdist import Budget, Ledger
from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger import idle_connections
from dpdist.privacy.ledger.journal import SCHEMA as JOURNAL
from dpdist.privacy.ledger.tables import SCHEMA as LEDGER

BOTH = (LEDGER, JOURNAL)


def spend(ledger: Ledger) -> str:
    """Write to every table that a run writes to; the id of the ledger."""
    ledger.set_limit("people", Budget(2.0))
    ledger.open_run("rows", "monday", "digest", Charge(1.0), account="people", journal=ledger.journal)
    run = ledger.journal.open("monday")
    ledger.record_release("monday", "monday/0", 0, "sum", "Laplace", 1.0, 1.0, "pure 1")
    ledger.commit(run, "monday/0", np.ones(3))
    return ledger.id


@pytest.fixture(autouse=True)
def nobody_waits():
    idle_connections._IDLE.clear()


def test_what_comes_back_is_as_it_was_made():
    fresh = idle_connections.take(BOTH)
    made = list(fresh.iterdump())
    with contextlib.closing(Ledger(":memory:")) as ledger:
        spend(ledger)
        used = ledger._db._connection
        assert len(list(used.iterdump())) > len(made)
    again = idle_connections.take(BOTH)
    assert again is used and list(again.iterdump()) == made


def test_the_next_ledger_is_another_one_and_empty():
    with contextlib.closing(Ledger(":memory:")) as first:
        name = spend(first)
        connection = first._db._connection
    with contextlib.closing(Ledger(":memory:")) as second:
        assert second._db._connection is connection
        assert second.id != name and second.is_empty() and second.accounts() == [] and second.limit("people") is None
        assert not second.journal.knows("monday") and second.journal.charged() == {}
        assert second.head().number == 0
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
        spend(second)


def test_who_closed_it_reaches_it_no_more():
    ledger = Ledger(":memory:")
    journal = ledger.journal
    ledger.close()
    with contextlib.closing(Ledger(":memory:")) as other:
        spend(other)
        for question in (ledger.accounts, lambda: journal.knows("monday"), lambda: spend(ledger)):
            with pytest.raises(LedgerError):
                question()
        ledger.close()  # once more, which ends nothing of the other
        assert other.accounts() == ["people"]


def test_so_many_are_kept_and_none_in_the_middle_of_a_transaction():
    ledgers = [Ledger(":memory:") for _ in range(idle_connections.MOST + 2)]
    ledgers[0]._db._connection.execute("BEGIN")
    for ledger in ledgers:
        ledger.close()
    waiting = idle_connections._IDLE[BOTH]
    assert len(waiting) == idle_connections.MOST and not any(each.in_transaction for each in waiting)


def test_one_that_cannot_be_emptied_is_closed():
    taken = idle_connections.take(BOTH)
    taken.execute("DROP TABLE dpdist_values")
    idle_connections.put_back(taken, BOTH)
    with pytest.raises(sqlite3.ProgrammingError):
        taken.execute("SELECT 1")
    assert not idle_connections._IDLE[BOTH]


def test_one_with_other_tables_than_it_began_with_is_not_passed_on():
    with contextlib.closing(Ledger(":memory:", journal="file:elsewhere")) as ledger:
        ledger._db.keep(JOURNAL)
    assert not any(idle_connections._IDLE.values())


def _waiting() -> int:
    return sum(map(len, idle_connections._IDLE.values()))


def test_a_fork_has_none_of_them():
    Ledger(":memory:").close()
    assert _waiting() == 1
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_waiting) == 0

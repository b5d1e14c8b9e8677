"""The accounts of a ledger: who shares one, its limit and its unit, and what the next charge comes to.

All of it works inside a transaction of `dpdist.privacy.ledger.ledger`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, get_args

from dpdist.errors import Forgotten, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import Composition, Limit
from dpdist.privacy.accounting.totals import NOTHING, Balance, Sums, charged, decoded
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger import heads
from dpdist.privacy.ledger.damage import as_written
from dpdist.privacy.ledger.records import (
    JOURNAL_PATH,
    LINE_CHANGED,
    RECEIPT,
    RECEIPT_OF_RUN,
    RUN_COLUMNS,
    RUNS,
    run_record,
)
from dpdist.privacy.ledger.sqlite import utc_now
from dpdist.privacy.ledger.transaction import Transaction
from dpdist.privacy.protected_units import About, unit_of_account

LIMIT = """SELECT epsilon, delta, neighbours, composition, number FROM dpdist_limits
    WHERE account = ? ORDER BY number DESC LIMIT 1"""
LIMITS = """SELECT epsilon, delta, neighbours, composition, set_at FROM dpdist_limits
    WHERE account = ? ORDER BY number"""
_ADD_LIMIT = """INSERT INTO dpdist_limits (account, number, set_at, epsilon, delta, neighbours, composition)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_LAST_TWO = f"{RUN_COLUMNS} WHERE account = ? ORDER BY number DESC LIMIT 2"
_STATE = """SELECT set_.epsilon, set_.delta, set_.neighbours, set_.composition, last.neighbours, last.total,
    (SELECT unit FROM dpdist_accounts WHERE account = ?)
    FROM (SELECT 1 AS one) AS one
    LEFT JOIN (SELECT * FROM dpdist_limits WHERE account = ? ORDER BY number DESC LIMIT 1) AS set_ ON 1 = 1
    LEFT JOIN (SELECT * FROM dpdist_runs WHERE account = ? ORDER BY number DESC LIMIT 1) AS last ON 1 = 1"""
_LAST_OF_FOLD = """SELECT fold_total FROM dpdist_runs WHERE account = ? AND split = ? AND fold = ?
    ORDER BY number DESC LIMIT 1"""
_LAST_OF_SPLIT = """SELECT split_total FROM dpdist_runs WHERE account = ? AND split = ?
    ORDER BY number DESC LIMIT 1"""
_ADD_ACCOUNT = "INSERT INTO dpdist_accounts (account, opened_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
_ADD_DATASET = "INSERT INTO dpdist_datasets (dataset_id, account, named) VALUES (?, ?, ?)"
UNNAMED = "SELECT 1 FROM dpdist_datasets WHERE named = 0 LIMIT 1"
DATASETS = "SELECT dataset_id FROM dpdist_datasets WHERE account = ? ORDER BY dataset_id"
SET_UNIT = "UPDATE dpdist_accounts SET unit = ? WHERE account = ?"
_MOVE = "SELECT stage, ledger, path FROM dpdist_moves WHERE account = ?"
_ACCOUNT_OF = "SELECT account FROM dpdist_datasets WHERE dataset_id = ?"
_PAYS_ELSEWHERE = """SELECT account FROM dpdist_datasets WHERE dataset_id = ? AND account <> ?
    AND NOT EXISTS (SELECT 1 FROM dpdist_accounts WHERE account = ?)"""
_LIMITS_NOBODY = """SELECT 1 FROM dpdist_limits WHERE account = ?
    AND NOT EXISTS (SELECT 1 FROM dpdist_datasets WHERE account = ?) LIMIT 1"""


def open_account(db: Transaction, account: str, dataset_id: str | None = None, named: bool = True) -> None:
    """Open an account unless there is one, and say whose it is.

    A dataset has one account for ever: with a second one, its limit would begin anew.
    """
    on_file = None if dataset_id is None else account_of(db, dataset_id)
    if on_file is None:
        db.execute(_ADD_ACCOUNT, (account, utc_now()))
        if dataset_id is not None:
            db.execute(_ADD_DATASET, (dataset_id, account, int(named)))
    elif on_file != account:
        raise LedgerError(
            f"the dataset {dataset_id!r} is charged to the account {on_file!r} and cannot be charged to {account!r} "
            f"as well: a limit would begin anew. Open it with account={on_file!r}"
        )


def account_of(db: Transaction, dataset_id: str) -> str | None:
    """The account that a dataset pays from, None if it has none yet."""
    row = db.execute(_ACCOUNT_OF, (dataset_id,)).fetchone()
    return None if row is None else str(row[0])


def check_is_account(db: Transaction, name: str) -> None:
    """Refuse the id of a dataset that pays from an account of another name: a limit on its id would limit nothing."""
    if row := db.execute(_PAYS_ELSEWHERE, (name, name, name)).fetchone():
        raise LedgerError(f"{name!r} is a dataset that pays from the account {row[0]!r}: name that account")


def check_limits_somebody(db: Transaction, dataset_id: str, account: Account) -> None:
    """Refuse to charge a dataset to an account without a limit where one was set on its id: it would limit nothing."""
    if dataset_id == account.name or account.limit is not None:
        return
    if db.execute(_LIMITS_NOBODY, (dataset_id, dataset_id)).fetchone():
        raise LedgerError(
            f"a limit was set on {dataset_id!r}, and this dataset pays from the account {account.name!r}, which has "
            f"none: set it on {account.name!r}. Nothing was charged"
        )


def read_limit(db: Transaction, account: str) -> tuple[Limit | None, int]:
    """The limit in force and its number; (None, 0) without one."""
    row = db.execute(LIMIT, (account,)).fetchone()
    if row is None:
        return None, 0
    *terms, number = row
    return limit_of(*terms), number


@as_written
def add_limit(db: Transaction, account: str, limit: Limit) -> None:
    """Put a limit in force."""
    _, number = read_limit(db, account)
    terms = (limit.budget.epsilon, limit.budget.delta, limit.neighbours.value, limit.composition)
    db.execute(_ADD_LIMIT, (account, number + 1, utc_now(), *terms))


@as_written
def limit_of(epsilon: float, delta: float, neighbours: str, composition: Composition) -> Limit:
    if composition not in get_args(Composition):
        raise ValueError
    return Limit(Budget(epsilon, delta), Neighbours(neighbours), composition)


def read_receipt(db: Transaction, run_id: str) -> dict[str, Any]:
    """The receipt of a run on file, and which ledger gave it."""
    paid = dict(zip(RECEIPT, db.execute(RECEIPT_OF_RUN, (run_id,)).fetchone(), strict=True))
    path = db.execute(JOURNAL_PATH, (paid["journal"],)).fetchone()
    unit = read_account(db, paid["account"]).unit
    return {"ledger": heads.read_id(db), "journal_path": path and path[0], "account_unit": unit, **paid}


def read_charges(db: Transaction, account: str) -> list[Charge]:
    """All charges on an account, oldest first."""
    return [run_record(row).charge for row in db.execute(RUNS, (account,))]


@dataclass(frozen=True)
class Account:
    """What the next charge has to know of an account: its limit, its relation, what its runs come to, and its unit."""

    name: str
    limit: Limit | None
    neighbours: Neighbours | None
    total: Sums
    unit: str | None

    def unit_for(self, about: About) -> str:
        """What it is about, or will be once this is charged."""
        is_new = self.limit is None and self.neighbours is None
        return unit_of_account(about, is_new) if self.unit is None else self.unit


def read_account(db: Transaction, account: str) -> Account:
    """An account as its last run left it."""
    *terms, neighbours, total, unit = db.execute(_STATE, (account, account, account)).fetchone()
    limit = None if terms[0] is None else limit_of(*terms)
    relation = limit.neighbours if limit else neighbours and Neighbours(neighbours)
    _check_last(db, account)
    return Account(account, limit, relation, decoded(total), unit)


def _check_last(db: Transaction, account: str) -> None:
    """Refuse a balance that does not follow from the one before it and the charge between them."""
    newest = [run_record(row) for row in db.execute(_LAST_TWO, (account,)).fetchall()]
    if not newest:
        return
    last, *earlier = newest
    before = earlier[0].total if earlier else NOTHING
    after = before.plus(Sums.of(last.charge))
    if last.charge.split is None:
        follows = last.total == after
    else:  # at most the whole charge, as far as its fold is the dearest now
        follows = last.total.dearest(before) == last.total and last.total.dearest(after) == after
    if not follows:
        raise LedgerError(f"the charges of {account!r} up to the run {last.run_id!r} do not add up: {LINE_CHANGED}")


@dataclass(frozen=True)
class Move:
    """The last move of an account: ``"coming"`` from a ledger, ``"here"`` from it, or ``"gone"`` to it."""

    stage: str
    ledger: str
    path: str


def move_command(account: str, source: str, target: str) -> str:
    """What to type to move an account, or to finish it."""
    return shlex.join(["dpdist", "budget", "move", account, "--ledger", source, "--to", target])


def read_move(db: Transaction, account: str) -> Move | None:
    """The last move of an account, None if it was never moved."""
    row = db.execute(_MOVE, (account,)).fetchone()
    return None if row is None else Move(*row)


def check_is_here(db: Transaction, account: str, path: str) -> None:
    """Refuse to change an account that was moved away, or is not here yet; `path` is this ledger's, for the message."""
    move = read_move(db, account)
    if move is None or move.stage == "here":
        return
    if move.stage == "gone":
        raise Forgotten(
            f"the account {account!r} was moved from {path} to the ledger {move.path} ({move.ledger}): name that one "
            "for new runs; those that were charged here cannot go on. If the move was cut off, "
            f"{move_command(account, path, move.path)!r} finishes it. Nothing was charged or drawn"
        )
    raise Forgotten(
        f"the account {account!r} is being moved to {path} from the ledger {move.path} ({move.ledger}), and that was "
        f"cut off: {move_command(account, move.path, path)!r} finishes it. Nothing was charged or drawn"
    )


def balance_after(db: Transaction, account: Account, charge: Charge) -> Balance:
    """What would be spent after one more charge."""
    if charge.split is None:
        return charged(charge, account.total, NOTHING, NOTHING)
    part = (account.name, charge.split)
    fold = db.execute(_LAST_OF_FOLD, (*part, charge.fold)).fetchone() or (None,)
    split = db.execute(_LAST_OF_SPLIT, part).fetchone() or (None,)
    return charged(charge, account.total, decoded(*fold), decoded(*split))

"""What others remember of a ledger, charged again after it was restored from a copy.

A copy has forgotten what was charged after it was made. Journals and records of runs keep a receipt of every charge,
and the datasets that an account limits keep what was spent on it; all of them keep where the ledger stood. `recall`
charges again, in one transaction, every run of a receipt that the ledger does not have, makes up what is then still
missing of what a dataset saw spent, and writes down that those who gave their memory are satisfied. Whoever was not
asked still refuses the ledger (`dpdist.privacy.ledger.heads.check_head`), until it is.

Nothing is charged twice: a run is on file once, and what is made up is what is missing of what was seen. What was
charged here after the two pasts parted is none of that: whoever remembers the other past has not seen it. No run from
before goes on afterwards: which of its values were seen is not on file, so it could draw one of them again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpdist.errors import LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import Limit
from dpdist.privacy.accounting.totals import NOTHING, Sums, balances
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.ledger.accounts import (
    SET_UNIT,
    account_of,
    add_limit,
    balance_after,
    open_account,
    read_account,
    read_limit,
)
from dpdist.privacy.ledger.heads import Head, advance, came_from, common_until, mark_recalled, read_id
from dpdist.privacy.ledger.records import (
    ADD_RUN,
    HOW_CHARGED,
    RECEIPT,
    RUN,
    balance_columns,
    enter_journal,
    run_record,
)
from dpdist.privacy.ledger.sqlite import utc_now
from dpdist.privacy.ledger.transaction import Transaction

_ALL = "up to "
"""What is made up stands for all that was lost up to an entry."""


@dataclass(frozen=True)
class Seen:
    """What somebody saw spent on an account, its limit, and what it is about.

    ``head`` is where the ledger stood then, and ``past`` are earlier heads of it
    (`dpdist.privacy.ledger.heads.read_past`); None where an earlier version kept none.
    """

    account: str
    spent: Sums
    limit: Limit
    unit: str | None
    head: Head
    past: tuple[tuple[int, str], ...] | None


@dataclass(frozen=True)
class Memory:
    """What one witness remembers of a ledger.

    Attributes
    ----------
    by : str
        Who, for messages.
    heads : tuple of Head
        Where the ledger stood, and where others stood; empty where it was told of none.
    charged : mapping of str to (mapping or None)
        The receipts of runs; None where only the run is known, and not what it was charged.
    seen : Seen, optional
    """

    by: str
    heads: tuple[Head, ...] = ()
    charged: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    seen: Seen | None = None


@dataclass(frozen=True)
class Recalled:
    """What a ledger had forgotten: runs that were charged again, accounts on which something had to be made up."""

    runs: tuple[str, ...]
    accounts: tuple[str, ...]


def recall(db: Transaction, path: str, memories: Sequence[Memory], why: str) -> Recalled:
    """Charge again what is remembered, in a transaction that excludes all other writers.

    Parameters
    ----------
    db : transaction
    path : str
        Of the ledger, for messages.
    memories : sequence of Memory
    why : str
        Kept on file: who says so, and from which copy.

    Raises
    ------
    LedgerError
        If somebody remembers another ledger, or a run of which nobody knows what it was charged, or another charge than
        is on file.
    """
    ledger = read_id(db)
    for memory in memories:
        if memory.heads and not _of_this(db, memory):
            raise LedgerError(
                f"{memory.by} belongs to the ledger with the id {memory.heads[0].ledger}, and {path} is another one "
                f"({ledger}): give what belongs to this ledger"
            )
    receipts = _receipts(memories, ledger)
    lost = [receipts[run_id] for run_id in receipts if not _on_file(db, path, receipts[run_id])]
    _check_known(db, memories, receipts)
    heads = [head for memory in memories for head in _of_this(db, memory)]
    past = max([head.number for head in heads] + [int(receipt["number"]) for receipt in lost], default=0)
    advance(db, "restore", why, past)
    for receipt in sorted(lost, key=lambda receipt: int(receipt["number"])):
        _charge_again(db, receipt, str(int(receipt["number"])))
    saw = sorted((memory.seen for memory in memories if memory.seen), key=lambda seen: seen.head.number)
    made_up = [seen.account for seen in saw if _make_up(db, seen)]
    for head in heads:
        mark_recalled(db, head)
    return Recalled(tuple(str(receipt["run_id"]) for receipt in lost), tuple(dict.fromkeys(made_up)))


def _of_this(db: Transaction, memory: Memory) -> list[Head]:
    """The heads of this ledger that are remembered, and of those that an account was moved from, which are its past."""
    ledger, seen = read_id(db), memory.seen
    moved = {head.ledger for head in memory.heads if seen is not None and came_from(db, seen.account, head.ledger)}
    return [head for head in memory.heads if head.ledger in {ledger, *moved}]


def _receipts(memories: Sequence[Memory], ledger: str) -> dict[str, Mapping[str, Any]]:
    """What a ledger charged for the runs that are remembered; `LedgerError` where two remember it differently."""
    found: dict[str, Mapping[str, Any]] = {}
    for memory in memories:
        for run_id, receipt in memory.charged.items():
            if receipt is None or receipt.get("ledger") != ledger:
                continue
            if _terms(found.setdefault(run_id, receipt)) != _terms(receipt):
                raise LedgerError(
                    f"{memory.by} and another who was asked remember different charges, plans or datasets of the run "
                    f"{run_id!r}: one of the two was changed. Find out which, and leave it out. Nothing was changed"
                )
    return found


def _terms(receipt: Mapping[str, Any]) -> tuple[Charge, Any, Any]:
    return charge_of(receipt), receipt["digest"], receipt["dataset_id"]


def charge_of(receipt: Mapping[str, Any]) -> Charge:
    """What a receipt says was charged."""
    prices = (receipt["epsilon"], receipt["delta"], Neighbours(receipt["neighbours"]))
    return Charge(*prices, receipt.get("mu"), receipt.get("split"), receipt.get("fold"))


def _on_file(db: Transaction, path: str, receipt: Mapping[str, Any]) -> bool:
    row = db.execute(RUN, (receipt["run_id"],)).fetchone()
    if row is None:
        return False
    run = run_record(row)
    if (run.charge, run.digest, run.dataset_id) != _terms(receipt):
        raise LedgerError(
            f"the run {run.run_id!r} is on file in {path} with another charge, plan or dataset than its receipt says: "
            "one of the two was changed, or belongs to another ledger. Restore the newest copy of both"
        )
    return True


def _check_known(db: Transaction, memories: Sequence[Memory], receipts: Mapping[str, Any]) -> None:
    for memory in memories:
        for run_id, receipt in memory.charged.items():
            known = receipt is not None or run_id in receipts
            if not known and db.execute(RUN, (run_id,)).fetchone() is None:
                raise LedgerError(
                    f"{memory.by} has the run {run_id!r}, and nobody who was asked knows what this ledger charged for "
                    "it: give the directory of that run as well. Nothing was changed"
                )


def _charge_again(db: Transaction, receipt: Mapping[str, Any], of: str) -> None:
    """Charge what was lost; the head says `of` which entry of the ledger that was."""
    dataset_id = str(receipt["dataset_id"])
    account = account_of(db, dataset_id) or str(receipt["account"])
    balance = balance_after(db, read_account(db, account), charge_of(receipt))
    open_account(db, account, dataset_id)
    _keep_unit(db, account, receipt.get("account_unit"))
    if receipt.get("journal") is not None:
        enter_journal(db, str(receipt["journal"]), str(receipt["journal_path"]))
    columns = {**{name: receipt.get(name) for name in RECEIPT}, "account": account}
    columns["number"] = advance(db, "recall", of).number
    db.execute(ADD_RUN, (*columns.values(), *balance_columns(balance)))


def _keep_unit(db: Transaction, account: str, unit: str | None) -> None:
    known = read_account(db, account).unit
    if known is None and unit is not None:
        db.execute(SET_UNIT, (unit, account))
    elif unit not in (None, known):
        raise LedgerError(
            f"the account {account!r} is about one {known}, and what is remembered of it is about one {unit}: these do "
            "not add up. Restore a copy from before that was changed. Nothing was changed"
        )


def _make_up(db: Transaction, seen: Seen) -> bool:
    """Charge what is missing of what was seen to be spent; and limit the account if it has no limit any more."""
    open_account(db, seen.account)
    _keep_unit(db, seen.account, seen.unit)
    if read_limit(db, seen.account)[0] is None:
        add_limit(db, seen.account, seen.limit)
    spent = _of_these(db, seen)
    if spent is None:
        return False
    missing = seen.spent.minus(spent)
    mu_is_missing = missing.mu_squared is not None and missing.mu_squared > 0
    mu_is_unknown = seen.spent.mu_squared is None and spent.mu_squared is not None
    if missing.epsilon <= 0 and missing.delta <= 0 and not mu_is_missing and not mu_is_unknown:
        return False
    name = f"recalled-{secrets.token_hex(8)}"
    paid = dict.fromkeys(RECEIPT) | {
        "account": seen.account,
        "run_id": name,
        "dataset_id": seen.account,
        "digest": name,
        "epsilon": max(_at_least(missing.epsilon), math.ulp(0.0)),
        "delta": _at_least(missing.delta),
        "neighbours": seen.limit.neighbours.value,
        "mu": None if missing.mu_squared is None else max(_root(missing.mu_squared), math.ulp(0.0)),
        "charged_at": utc_now(),
        "label": "spent before the ledger was restored, by runs that nobody remembers",
    }
    _charge_again(db, paid, f"{_ALL}{seen.head.number}")
    return True


def _of_these(db: Transaction, seen: Seen) -> Sums | None:
    """What a ledger has of the charges that were seen; None if all that was seen then has been made up already.

    Seen were those up to where the pasts part, and of those that were lost after that and charged again, the earlier
    ones. What was charged in another way since, nobody who remembers what was lost has seen.
    """
    common = None if seen.past is None else common_until(db, seen.past)
    moved = seen.head.ledger != read_id(db)
    charges = []
    for number, what, subject, *row in db.execute(HOW_CHARGED, (seen.account,)).fetchall():
        if what == "recall" and subject.startswith(_ALL) and int(subject.removeprefix(_ALL)) >= seen.head.number:
            return None
        if moved or common is None:
            is_seen = not (moved and what == "charge")
        else:
            lost = what == "recall" and int(subject.removeprefix(_ALL)) <= seen.head.number
            is_seen = number <= common or lost
        if is_seen:
            charges.append(run_record(row).charge)
    return ([balance.total for balance in balances(charges)] or [NOTHING])[-1]


def _at_least(exact: Fraction) -> float:
    """The smallest float that is no less, and not below 0."""
    near = float(max(exact, Fraction(0)))
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _root(square: Fraction) -> float:
    """A float of which the square, as it is summed, is no less."""
    root = math.sqrt(_at_least(square))
    while Fraction(root**2) < square:
        root = math.nextafter(root, math.inf)
    return root

"""Moving an account to another ledger: its limits, and all that was ever charged to it, go along.

Whoever answers for the data does this on purpose; both ledgers keep on file who did. It takes three transactions, one
after the other, each of them durable and each done once however often it is asked for:

==============================  ==========================  ======================================================
done so far                     charged in the old ledger?  in the new one?
==============================  ==========================  ======================================================
nothing                         yes                         as before
the new one expects it          yes                         refused: it is coming
the old one has closed it       refused: it is gone         refused: it is coming
the new one has taken it in     refused: it is gone         yes, with all that was spent
==============================  ==========================  ======================================================

So whatever ends a move, the account is charged in one place at most, every refusal names the command, and the same
command goes on from there. A run from before does not go on afterwards: the new ledger keeps its charge and its
releases, and its values stay in the journal that has them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpdist.errors import BudgetError, LedgerError
from dpdist.privacy.accounting.filter import check_suits
from dpdist.privacy.ledger.accounts import LIMITS, SET_UNIT, account_of, open_account, read_account, read_move
from dpdist.privacy.ledger.heads import Head, advance, read_head
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.location import is_there
from dpdist.privacy.ledger.postgres import is_address
from dpdist.privacy.ledger.recall import charge_of
from dpdist.privacy.ledger.records import RELEASES, RUN, WHOLE_RELEASE, WHOLE_RUN, check_sums, enter_journal, run_record
from dpdist.privacy.ledger.sqlite import utc_now
from dpdist.privacy.ledger.transaction import Transaction

_SET_MOVE = """INSERT INTO dpdist_moves (account, stage, ledger, path) VALUES (?, ?, ?, ?)
    ON CONFLICT (account) DO UPDATE SET stage = excluded.stage, ledger = excluded.ledger, path = excluded.path"""
_ADD_LIMIT = """INSERT INTO dpdist_limits (account, number, epsilon, delta, neighbours, composition, set_at)
    SELECT ?, COUNT(*) + 1, ?, ?, ?, ?, ? FROM dpdist_limits WHERE account = ?"""
_DATASETS = "SELECT dataset_id, named FROM dpdist_datasets WHERE account = ? ORDER BY dataset_id"
_RUNS = f"SELECT {', '.join(WHOLE_RUN)} FROM dpdist_runs WHERE account = ? ORDER BY number"
_RUN_IDS = "SELECT run_id FROM dpdist_runs WHERE account = ?"
_OTHER_RUN_IDS = "SELECT run_id FROM dpdist_runs WHERE account <> ?"
_JOURNALS = """SELECT id, path FROM dpdist_journals WHERE id IN
    (SELECT journal FROM dpdist_runs WHERE account = ?)"""
_HEADS = "SELECT number, token FROM dpdist_heads"
_TAKEN = "SELECT ledger, number, token FROM dpdist_taken"
_ORIGINS = "SELECT ledger FROM dpdist_origins WHERE account = ?"
_ADD_ORIGIN = "INSERT INTO dpdist_origins (account, ledger) VALUES (?, ?) ON CONFLICT DO NOTHING"
_AT_ONCE = 500
"""Values of one statement: a ledger of many years has a hundred thousand heads."""


@dataclass(frozen=True)
class Parcel:
    """All of one account, as its ledger has it."""

    account: str
    path: str
    head: Head
    """Where its ledger stands."""
    unit: str | None
    limits: Sequence[Sequence[Any]]
    datasets: Sequence[Sequence[Any]]
    journals: Sequence[Sequence[Any]]
    runs: Sequence[dict[str, Any]]
    releases: Sequence[Sequence[Any]]
    origins: Sequence[str]
    heads: Sequence[Sequence[Any]]

    @property
    def ledger(self) -> str:
        """The id of its ledger."""
        return self.head.ledger


def move(source: Ledger, account: str, target: Ledger, why: str, *, nothing_since: bool = False) -> int:
    """Move an account to another ledger, or finish that; return how many runs it has there.

    Parameters
    ----------
    source, target : Ledger
        The one that has the account, and one that has no runs of it.
    account : str
    why : str
        Kept on file in both: who says so.
    nothing_since : bool
        The account was moved elsewhere before, and whoever says so answers for it that it was never charged there: that
        ledger was lost before it had taken the account in.

    Raises
    ------
    LedgerError
        If the target has charged the account, a run id or a dataset of it otherwise, or the account is elsewhere.
        Nothing is changed then.
    """
    leaving = check_may_leave(source, account, target, nothing_since=nothing_since)
    if not target._db.read(lambda db: _is_taken_in(db, leaving, target.path)):
        target._db.write(lambda db: _expect(db, leaving, target.path, why))
    closed = source._db.write(lambda db: _close(db, source.path, leaving.head, account, target, why, nothing_since))
    target._db.write(lambda db: _take_in(db, closed, target.path, why))
    return target.n_runs(account)


def check_may_leave(source: Ledger, account: str, target: Ledger, *, nothing_since: bool) -> Parcel:
    """All of an account, unless it may not be moved; changes nothing."""
    if source.id == target.id:
        raise LedgerError(
            f"{target.path} is {source.path}, or a copy of it: name another ledger, which may be a new file. Nothing "
            "was changed"
        )
    return source._db.read(lambda db: _packed(db, source.path, account, target, nothing_since))


def _full(path: str) -> str:
    """A place as it can be named from everywhere."""
    return path if is_address(path) or "://" in path else os.path.abspath(path)


# -- in the old ledger --------------------------------------------------------------------------------------------


def _packed(
    db: Transaction, path: str, account: str, target: Ledger, nothing_since: bool, sound: Head | None = None
) -> Parcel:
    """All of an account that may leave; `sound` is where the charges of the ledger were seen to add up."""
    where = read_move(db, account)
    if where is not None and where.stage == "coming":
        raise LedgerError(
            f"the account {account!r} is on its way to {path} from the ledger {where.path}, and that was cut off: move "
            "it from there. Nothing was changed"
        )
    if where is not None and where.stage == "gone" and where.ledger != target.id:
        _check_never_arrived(account, where.ledger, where.path, path, nothing_since)
    head = read_head(db)
    if head != sound:  # all charges are added up again: not a second time while nobody else can charge
        check_sums(db)
    runs = [dict(zip(WHOLE_RUN, row, strict=True)) for row in db.execute(_RUNS, (account,)).fetchall()]
    limits = db.execute(LIMITS, (account,)).fetchall()
    if not runs and not limits:
        raise LedgerError(f"the ledger {path} has no account {account!r}: there is nothing to move")
    heads = [(head.ledger, *row) for row in db.execute(_HEADS).fetchall()]
    return Parcel(
        account,
        _full(path),
        head,
        read_account(db, account).unit,
        limits,
        db.execute(_DATASETS, (account,)).fetchall(),
        [(name, _full(place)) for name, place in db.execute(_JOURNALS, (account,)).fetchall()],
        runs,
        db.execute(RELEASES, (account,)).fetchall(),
        [head.ledger, *(name for (name,) in db.execute(_ORIGINS, (account,)).fetchall())],
        heads + [tuple(row) for row in db.execute(_TAKEN).fetchall()],
    )


def _check_never_arrived(account: str, ledger: str, place: str, path: str, nothing_since: bool) -> None:
    fix = f"the account {account!r} was moved from {path} to the ledger {place} ({ledger}) already"
    if not nothing_since:
        raise LedgerError(
            f"{fix}: move it from there. Where that ledger is lost, put it back ('dpdist budget restore'); where it "
            "was lost before it had taken the account in, say so with --nothing-since. Nothing was changed"
        )
    if is_there(place):
        with contextlib.closing(Ledger(place)) as there:
            arrived = there.move(account) if there.id == ledger else None
        if arrived is not None and arrived.stage != "coming":
            raise LedgerError(f"{fix}, and has arrived: move it from there. Nothing was changed")


def _close(
    db: Transaction, path: str, sound: Head, account: str, target: Ledger, why: str, nothing_since: bool
) -> Parcel:
    """Charge nothing more to an account, and return all of it: from here on it does not change."""
    leaving = _packed(db, path, account, target, nothing_since, sound)
    where = read_move(db, account)
    if where is None or (where.stage, where.ledger) != ("gone", target.id):
        head = advance(db, "move", f"{why}: {account} to {_full(target.path)} ({target.id})")
        db.execute(_SET_MOVE, (account, "gone", target.id, _full(target.path)))
        own = (head.ledger, head.number, head.token)
        leaving = Parcel(**{**vars(leaving), "head": head, "heads": [*leaving.heads, own]})
    return leaving


# -- in the new one -----------------------------------------------------------------------------------------------


def _is_taken_in(db: Transaction, leaving: Parcel, path: str) -> bool:
    where = read_move(db, leaving.account)
    if where is None or where.stage != "here":
        return False
    there = {run_id for (run_id,) in db.execute(_RUN_IDS, (leaving.account,))}
    if where.ledger == leaving.ledger and there >= {run["run_id"] for run in leaving.runs}:
        return True
    raise LedgerError(
        f"the account {leaving.account!r} was moved to {path} from the ledger {where.path} ({where.ledger}) before, "
        f"and {leaving.path} has charged it as well: one of the two was restored from a copy. Use {path}. Nothing was "
        "changed"
    )


def _expect(db: Transaction, coming: Parcel, path: str, why: str) -> None:
    """Charge nothing to an account that is coming, so that it can be taken in."""
    if _is_taken_in(db, coming, path):  # by another process that moves it, too
        return
    _check_can_take(db, coming, path)
    where = read_move(db, coming.account)
    if where is None or (where.stage, where.ledger) != ("coming", coming.ledger):
        advance(db, "move", f"{why}: {coming.account} is expected from {coming.path} ({coming.ledger})")
    db.execute(_SET_MOVE, (coming.account, "coming", coming.ledger, coming.path))


def _check_can_take(db: Transaction, coming: Parcel, path: str) -> None:
    account = coming.account
    where = read_move(db, account)
    if where is not None and where.stage == "coming" and where.ledger != coming.ledger:
        raise LedgerError(
            f"{path} expects the account {account!r} from the ledger {where.path} ({where.ledger}): finish that move, "
            "or name another ledger. Nothing was changed"
        )
    brought = {run["run_id"]: (run["digest"], run["charged_at"], run["epsilon"]) for run in coming.runs}
    own = [run_record(db.execute(RUN, row).fetchone()) for row in db.execute(_RUN_IDS, (account,)).fetchall()]
    strange = [run for run in own if brought.get(run.run_id) != (run.digest, run.when, run.epsilon)]
    if strange or (own and (where is None or where.stage == "here")):
        raise LedgerError(
            f"the ledger {path} has charged the account {account!r} itself ({len(own)} run"
            f"{'' if len(own) == 1 else 's'}), and two pasts cannot be made one: name a ledger without runs of it, "
            "which may be a new file, and charge the account there only. Nothing was changed"
        )
    of_others = {run_id for (run_id,) in db.execute(_OTHER_RUN_IDS, (account,)).fetchall()}
    for run in coming.runs:
        if run["run_id"] in of_others:
            raise LedgerError(
                f"{path} has charged another account for a run with the id {run['run_id']!r}: name another ledger, "
                "which may be a new file. Nothing was changed"
            )
    for dataset_id, _ in coming.datasets:
        if (payer := account_of(db, dataset_id)) not in (None, account):
            raise LedgerError(
                f"in {path} the dataset {dataset_id!r} is charged to the account {payer!r}: name another ledger, "
                "which may be a new file. Nothing was changed"
            )
    _check_adds_up(db, coming, path)


def _check_adds_up(db: Transaction, coming: Parcel, path: str) -> None:
    """Refuse an account of which a limit that was set in the new ledger before does not suit what comes."""
    there = read_account(db, coming.account)
    if None not in (there.unit, coming.unit) and there.unit != coming.unit:
        raise LedgerError(
            f"in {path} the account {coming.account!r} is about one {there.unit}, and it is about one {coming.unit}: "
            "name another ledger, which may be a new file. Nothing was changed"
        )
    if there.limit is None or coming.limits:
        return
    for run in coming.runs:
        try:
            check_suits(coming.account, there.limit, there.limit.neighbours, charge_of(run))
        except BudgetError as error:
            raise LedgerError(f"the limit that was set in {path} does not suit: {error}. Nothing was changed") from None


def _take_in(db: Transaction, coming: Parcel, path: str, why: str) -> None:
    """Put all of an account on file, and charge it from now on."""
    account = coming.account
    if _is_taken_in(db, coming, path):
        return
    _check_can_take(db, coming, path)
    head = advance(db, "move", f"{why}: {account} from {coming.path} ({coming.ledger})", past=coming.head.number)
    open_account(db, account)
    if coming.unit is not None:
        db.execute(SET_UNIT, (coming.unit, account))
    on_file = {tuple(limit) for limit in db.execute(LIMITS, (account,)).fetchall()}
    for limit in coming.limits:
        if tuple(limit) not in on_file:
            db.execute(_ADD_LIMIT, (account, *limit, account))
    for dataset_id, named in coming.datasets:
        open_account(db, account, dataset_id, bool(named))
    for name, place in coming.journals:
        enter_journal(db, name, place)
    known = {run_id for (run_id,) in db.execute(_RUN_IDS, (account,)).fetchall()}
    runs = [run for run in coming.runs if run["run_id"] not in known]
    numbered = [{**run, "number": head.number + 1 + place} for place, run in enumerate(runs)]
    now = utc_now()
    carried = [(run["number"], secrets.token_hex(16), "carry", run["run_id"], now) for run in numbered]
    _insert(db, "dpdist_heads", ("number", "token", "what", "subject", "written_at"), carried)
    _insert(db, "dpdist_runs", WHOLE_RUN, (tuple(run.values()) for run in numbered))
    _insert(db, "dpdist_releases", WHOLE_RELEASE, (row for row in coming.releases if row[1] not in known))
    for name in coming.origins:
        if name != head.ledger:
            db.execute(_ADD_ORIGIN, (account, name))
    past = (row for row in coming.heads if row[0] != head.ledger)
    _insert(db, "dpdist_taken", ("ledger", "number", "token"), past, "ON CONFLICT DO NOTHING")
    db.execute(_SET_MOVE, (account, "here", coming.ledger, coming.path))


def _insert(
    db: Transaction, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], unless: str = ""
) -> None:
    """Insert many rows with few statements."""
    one = f"({', '.join('?' * len(columns))})"
    left = iter(rows)
    while some := list(itertools.islice(left, _AT_ONCE // len(columns))):
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([one] * len(some))} {unless}"
        db.execute(statement, tuple(itertools.chain.from_iterable(some)))

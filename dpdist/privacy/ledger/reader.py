"""What a ledger says: its accounts, its limits, its history, and where it stands. Nothing here writes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

from dpdist.errors import Forgotten
from dpdist.privacy.accounting.filter import Amount, Limit, left, total
from dpdist.privacy.accounting.totals import Sums, decoded
from dpdist.privacy.ledger.accounts import (
    DATASETS,
    LIMITS,
    UNNAMED,
    Account,
    Move,
    account_of,
    check_is_account,
    check_is_here,
    limit_of,
    read_account,
    read_limit,
    read_move,
    read_receipt,
)
from dpdist.privacy.ledger.heads import Head, came_from, check_head, read_head, read_id, read_past
from dpdist.privacy.ledger.records import (
    ACCOUNTS,
    ANY_RUN,
    BEFORE,
    COUNT_RUNS,
    EVENTS,
    LAST_RUN,
    RELEASES,
    RUN,
    RUNS,
    ReleaseRecord,
    RunRecord,
    run_record,
)
from dpdist.privacy.ledger.resumption import check_may_go_on
from dpdist.privacy.ledger.sqlite import MEMORY, Result, Store
from dpdist.privacy.ledger.transaction import Transaction


class LedgerReader:
    """The part of `dpdist.privacy.ledger.ledger.Ledger` that answers questions, each from one state of the database."""

    path: str
    _db: Store
    _seen: Head | None

    def _not_taken_back(self, db: Transaction, work: Callable[[Transaction], Result]) -> tuple[Result, Head]:
        """Do `work`, and say where the ledger stands then; a ledger that has forgotten what was seen is refused.

        A database can be taken back while it is in use: a server fails over to a copy that lags behind.
        """
        if self._seen is not None and self.path != MEMORY:
            check_head(db, self.path, self._seen, "this process")
        return work(db), read_head(db)

    def _look(self, work: Callable[[Transaction], Result]) -> Result:
        """What `work` finds for somebody who acts on it, unless the ledger has forgotten what this object saw."""
        result, self._seen = self._db.read(lambda db: self._not_taken_back(db, work))
        return result

    # -- which ledger it is, and where it stands ------------------------------------------------------------------

    @functools.cached_property
    def id(self) -> str:
        """The random name of this ledger, made with it; a copy of the file has the same one."""
        return self._db.read(lambda db: read_id(db))

    def head(self) -> Head:
        """Where the ledger stands now: for others to remember, see `dpdist.privacy.ledger.heads`."""
        if self.path == MEMORY and self._seen is not None:  # nobody else writes to it
            return self._seen
        return self._look(read_head)

    def past(self, account: str, head: Head) -> list[tuple[int, str]]:
        """Some of the charges on an account before a head: for others to remember (`dpdist.privacy.ledger.recall`)."""
        return self._db.read(lambda db: read_past(db, account, head.number))

    def receipt(self, run_id: str) -> dict[str, Any]:
        """What was charged for a run: for others to keep, as a ledger that has forgotten it can charge it again."""
        return self._db.read(lambda db: read_receipt(db, run_id))

    def check_remembered(self, remembered: Head, by: str, account: str | None = None) -> None:
        """Raise `LedgerError` unless this is the ledger that was seen before, with all that it held then.

        Parameters
        ----------
        remembered : Head
        by : str
            Who remembers it, for the message: ``"the dataset rows.zarr"``.
        account : str, optional
            Which account is to be charged: ledgers that it was moved from are its past.
        """
        self._look(lambda db: check_head(db, self.path, remembered, by, account))

    def came_from(self, account: str, ledger: str) -> bool:
        """Whether an account was charged in another ledger before it was moved here."""
        return self._db.read(lambda db: came_from(db, account, ledger))

    def check_is_here(self, account: str) -> None:
        """Raise `Forgotten` where an account was moved away, or is not here yet."""
        self._db.read(lambda db: check_is_here(db, account, self.path))

    def move(self, account: str) -> Move | None:
        """Return from where, or to where, an account was moved last; None if it never was."""
        return self._db.read(lambda db: read_move(db, account))

    # -- reports --------------------------------------------------------------------------------------------------

    def accounts(self) -> list[str]:
        """Return the names of all accounts: every dataset with a charge or a limit has one, of its id or shared."""
        return self._db.read(lambda db: [row[0] for row in db.execute(ACCOUNTS)])

    def datasets(self, account: str) -> list[str]:
        """Return the ids of the datasets that pay from an account."""
        return self._db.read(lambda db: [row[0] for row in db.execute(DATASETS, (account,))])

    def account_of(self, dataset_id: str) -> str | None:
        """Return the account that a dataset pays from, None if nothing was ever charged to it."""
        return self._db.read(lambda db: account_of(db, dataset_id))

    def has_unnamed(self) -> bool:
        """Whether something was charged for arrays without a name: nothing adds them to what comes later."""
        return self._db.read(lambda db: db.execute(UNNAMED).fetchone() is not None)

    def account(self, name: str) -> Account:
        """Return the limit of an account, its relation, and what its runs come to."""
        return self._read_of(name, lambda db: read_account(db, name))

    def spent(self, account: str) -> Amount:
        """Return the total of all charges by the account's rule ("basic" if no limit is set)."""
        state = self.account(account)
        return total(state.limit, state.total)

    def remaining(self, account: str) -> Amount | None:
        """Return what a charge on all rows may still cost, None if there is no limit."""
        state = self.account(account)
        return None if state.limit is None else left(state.limit, total(state.limit, state.total))

    def limits(self, account: str) -> list[tuple[str, Limit]]:
        """Return every limit that was set, with the time, oldest first; the last one is in force."""
        found = self._read_of(account, lambda db: db.execute(LIMITS, (account,)).fetchall())
        return [(when, limit_of(*terms)) for *terms, when in found]

    def events(self) -> list[tuple[str, str, str]]:
        """Return when the ledger was restored or an account was moved, which of the two, and who said so."""
        return self._db.read(lambda db: [(str(when), str(what), str(why)) for when, what, why in db.execute(EVENTS)])

    def history(self, account: str) -> list[RunRecord]:
        """Return every run of the account, oldest first, with its releases."""

        def found(db: Transaction) -> list[RunRecord]:
            made = [ReleaseRecord(*row) for row in db.execute(RELEASES, (account,)).fetchall()]
            of_run = {run_id: tuple(some) for run_id, some in groupby(made, lambda release: release.run_id)}
            runs = [run_record(row) for row in db.execute(RUNS, (account,)).fetchall()]
            return [replace(run, releases=of_run.get(run.run_id, ())) for run in runs]

        return self._read_of(account, found)

    def n_runs(self, account: str) -> int:
        """Return how many runs were charged to an account."""
        return self._read_of(account, lambda db: int(db.execute(COUNT_RUNS, (account,)).fetchone()[0]))

    def last_run(self, account: str) -> RunRecord | None:
        """Return the newest run of an account, without its releases; None if there is none."""
        row = self._read_of(account, lambda db: db.execute(LAST_RUN, (account,)).fetchone())
        return None if row is None else run_record(row)

    def run(self, run_id: str) -> RunRecord | None:
        """Return one run, without its releases; None if it was not charged."""
        row = self._db.read(lambda db: db.execute(RUN, (run_id,)).fetchone())
        return None if row is None else run_record(row)

    def goes_on(self, run_id: str) -> bool:
        """Whether a run on file can be resumed: none can from before the ledger was restored, or its account moved."""

        def found(db: Transaction) -> bool:
            record = run_record(db.execute(RUN, (run_id,)).fetchone())
            with contextlib.suppress(Forgotten):
                check_is_here(db, record.account, self.path)
                check_may_go_on(db, record)
                return True
            return False

        return self._db.read(found)

    def spent_before(self, run_id: str) -> Sums:
        """Return what was spent on its account before a run on file."""
        return self._db.read(lambda db: decoded(*(db.execute(BEFORE, (run_id,)).fetchone() or (None,))))

    def limit(self, account: str) -> Limit | None:
        """Return the limit of an account that is in force, None if there is none."""
        return self._read_of(account, lambda db: read_limit(db, account)[0])

    def _read_of(self, account: str, work: Callable[[Transaction], Result]) -> Result:
        """What `work` finds of an account; the id of a dataset that pays from another one is refused."""

        def found(db: Transaction) -> Result:
            check_is_account(db, account)
            return work(db)

        return self._db.read(found)

    def is_empty(self) -> bool:
        """Whether nothing was ever charged to it."""
        return self._db.read(lambda db: db.execute(ANY_RUN).fetchone() is None)

"""The durable account of what was spent on each dataset: one atomic check-and-charge per run, before any noise.

A *run* is one plan with one total cost. It is charged once, in full, before it reads private data; its releases are
appended one by one before their noise is drawn. A run that crashed opens again under the same id and pays nothing.

How charges add up, by which of two rules, and why an account keeps one rule, is in `dpdist.privacy.accounting.filter`.
The guarantee of a dataset over its life is the largest limit that was ever set for it; with no limit, spending is
recorded and not limited.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from dpdist.errors import BudgetError, LedgerError
from dpdist.objects import is_object_store
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import Composition, Limit, check_fits, check_suits
from dpdist.privacy.accounting.totals import Balance
from dpdist.privacy.budget import Budget, Neighbours, check_account
from dpdist.privacy.ledger.accounts import (
    SET_UNIT,
    Account,
    add_limit,
    balance_after,
    check_is_account,
    check_is_here,
    check_limits_somebody,
    open_account,
    read_account,
    read_charges,
    read_limit,
)
from dpdist.privacy.ledger.heads import Head, Witness, advance
from dpdist.privacy.ledger.journal import SCHEMA as JOURNAL_TABLES
from dpdist.privacy.ledger.journal import AnyJournal, Journal
from dpdist.privacy.ledger.location import check_is_ledger, default_path, is_there, wherever
from dpdist.privacy.ledger.object_journal import ObjectJournal
from dpdist.privacy.ledger.records import (
    ADD_RUN,
    RUN,
    RunCharge,
    balance_columns,
    enter_journal,
    library,
    run_record,
    whoami,
)
from dpdist.privacy.ledger.resumption import (
    check_journal,
    check_may_go_on,
    check_same_run,
)
from dpdist.privacy.ledger.sqlite import MEMORY, open_store, utc_now
from dpdist.privacy.ledger.tables import SCHEMA
from dpdist.privacy.ledger.transaction import Transaction
from dpdist.privacy.ledger.writer import LedgerWriter
from dpdist.privacy.protected_units import ROWS, About, counted, group_size, why_dear


class Ledger(LedgerWriter):
    """The account of every dataset in one database; safe for many threads and processes.

    The database is an SQLite file on one machine, or one of a PostgreSQL server that many machines reach.

    All methods raise `LedgerError` if the file cannot be read or written durably; then nothing may be released.

    Parameters
    ----------
    path : path-like, optional
        A file, created with its directories, or ``postgresql://user@host/database`` (see
        `dpdist.privacy.ledger.postgres`). Default: the environment variable ``DPDIST_LEDGER``, else
        ``dpdist/ledger.sqlite`` in the user's data directory. ``":memory:"`` keeps nothing after the object is gone.
    journal : path-like, optional
        Where released values are kept, if not in the same database: another file or database, or an object store
        (``s3://bucket/prefix``). Keep it as long as the ledger.
    account : str, optional
        Who pays for arrays that name neither themselves nor an account: the arrays of a grid search, say. By default
        every fit of such arrays has an account of its own, and nothing adds them up.
    witnesses : sequence of Witness, optional
        Who else remembers where the ledger stands (`dpdist.privacy.ledger.paid_run`): the record of a run.

    Notes
    -----
    The check and the charge are one transaction that excludes all other writers, and it is on the disk before
    `open_run` returns. So whatever crashes, and however many processes run at once, the charges on a dataset never
    exceed its limit (beyond a relative 1e-9 for rounding), and no noise is drawn that is not paid for.

    Dataset ids and digests must be random or derived from public parameters, never from the rows: the ledger is read
    by people, and a content hash tells two neighbouring datasets apart with certainty.

    Examples
    --------
    >>> ledger = Ledger(":memory:")
    >>> ledger.set_limit("survey", Budget(1.0, 1e-6))
    >>> ledger.open_run("survey", "monday", "plan-a", Charge(0.75, 1e-7)).resumed
    False
    >>> ledger.open_run("survey", "monday", "plan-a", Charge(0.75, 1e-7)).resumed
    True
    >>> ledger.remaining("survey").epsilon
    0.25
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        journal: str | os.PathLike[str] | None = None,
        account: str | None = None,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        if not isinstance(path, str | os.PathLike | None):
            raise LedgerError(f"a ledger is a file or the address of a database, got {path!r}: pass its path")
        self.path = default_path() if path is None else os.fspath(path)
        self.pays_for_unnamed = None if account is None else check_account(account)
        self.witnesses = tuple(witnesses)
        self._journal = self.path if journal is None else os.fspath(journal)
        self._places = wherever(self.path), wherever(self._journal)
        beside = (JOURNAL_TABLES,) if self.path == self._journal else ()
        self._db = open_store(self.path, SCHEMA, *beside)
        self._seen: Head | None = None

    @classmethod
    def existing(cls, path: str | os.PathLike[str] | None = None) -> Ledger:
        """Open a ledger that is there; raise `LedgerError` where `Ledger` would make a new, empty one."""
        named = default_path() if path is None else os.fspath(path)
        check_is_ledger(named)
        return cls(named)

    @classmethod
    def unless_there(cls, path: str | os.PathLike[str] | None = None) -> Ledger | None:
        """One in memory that is called as the one of which there is none yet: what it refuses makes no file."""
        named = default_path() if path is None else os.fspath(path)
        if is_there(named):
            return None
        stand_in = cls(MEMORY)
        stand_in.path = named
        return stand_in

    @functools.cached_property
    def journal(self) -> AnyJournal:
        """The released values of the runs charged here: by default in the same database (or memory).

        The two belong together: a release that is charged and has no value is drawn anew, which is harmless only if the
        first draw was lost unseen. A ledger that outlives its journal would pay for two draws once.
        """
        if is_object_store(self._journal):
            return ObjectJournal(self._journal)
        return Journal(self._journal, self._db if self._journal == self.path else None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, or copied, it is opened there again: the same one, whatever directory that is in."""
        if MEMORY in (self.path, self._journal):
            raise LedgerError("a ledger in memory cannot be sent to another process: give it a file")
        (path, journal), named, told = self._places, self.pays_for_unnamed, self.witnesses
        return functools.partial(Ledger, path, journal=journal, account=named, witnesses=told), ()

    def close(self) -> None:
        """Close the file, and the journal's."""
        if "journal" in vars(self):
            self.journal.close()
        self._db.close()

    # -- limits ---------------------------------------------------------------------------------------------------

    def set_limit(
        self,
        account: str,
        budget: Budget,
        *,
        neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
        composition: Composition = "basic",
        unit: str | None = None,
    ) -> None:
        """Set or change what may be spent on an account in total, counting what has been spent already.

        Set it before the first run. Lowering it is always sound; raising it weakens the guarantee to the new limit.
        The relation, the rule and the unit stay as they are once something has been charged. Earlier limits are kept on
        file. ``unit`` is what the limit is about (`dpdist.privacy.protected_units`): ``"row"``, ``"label"``,
        ``"answer"``, or the name of an owner of rows; by default that of the dataset that is charged first.

        Raises
        ------
        BudgetError
            If the limit makes no sense or does not suit the charges on file.
        LedgerError
            If it is the id of a dataset that pays from an account of another name.
        """
        if not isinstance(budget, Budget):
            raise BudgetError(f"a limit is a Budget, such as Budget(1.0), got {budget!r}")
        if composition not in ("basic", "gaussian"):
            raise BudgetError(f'composition must be "basic" or "gaussian", got {composition!r}')
        if composition == "gaussian" and budget.delta == 0:
            raise BudgetError('composition="gaussian" needs delta > 0: Gaussian noise is never pure; try delta=1e-6')
        if not isinstance(account, str) or (account.rstrip("/").endswith(".zarr") and os.path.isdir(account)):
            raise BudgetError(
                f"a limit is set on the name of an account, such as Dataset.open('rows.zarr').account, got {account!r}"
            )
        if not isinstance(unit, str | None):
            raise BudgetError(f"unit must be a name such as 'row' or 'patient', got {unit!r}")
        limit = Limit(budget, Neighbours(neighbours), composition)

        def change(db: Transaction) -> None:
            check_is_account(db, account)
            check_is_here(db, account, self.path)
            old, _ = read_limit(db, account)
            known = read_account(db, account).unit
            if old == limit and unit in (None, known):
                return
            charges = read_charges(db, account)
            if old and charges and old.composition != composition:
                raise BudgetError(
                    f'the charges on {account!r} add up by the rule "{old.composition}" and one account keeps one '
                    f'rule; set the limit with composition="{old.composition}"'
                )
            if charges and known is not None and unit not in (None, known):
                raise BudgetError(
                    f"the charges on {account!r} are about one {known} and one account keeps one unit; set the limit "
                    f"with unit={known!r}, or open another account for a {unit}"
                )
            for charge in charges:
                check_suits(account, limit, limit.neighbours, charge)
            open_account(db, account)
            if unit is not None:
                db.execute(SET_UNIT, (unit, account))
            advance(db, "limit", account)
            add_limit(db, account, limit)

        self._write(change)

    # -- charges --------------------------------------------------------------------------------------------------

    def can_afford(self, account: str, charge: Charge, about: About = ROWS) -> Charge:
        """Raise what `open_run` would raise about the charge, and write nothing: a check before any data is read.

        Returns what the account would pay. The answer holds for now only; another process may spend in between, which
        `open_run` will notice.
        """
        return self._db.read(lambda db: self._check(db, read_account(db, account), charge, about)[0])

    def open_run(
        self,
        dataset_id: str,
        run_id: str,
        digest: str,
        charge: Charge,
        *,
        about: About = ROWS,
        account: str | None = None,
        named: bool = True,
        journal: AnyJournal | None = None,
        user: str | None = None,
        label: str | None = None,
    ) -> RunCharge:
        """Charge a run, once: check the limit and write the charge in one durable transaction.

        Parameters
        ----------
        dataset_id, run_id : str
            Random or chosen public names. A run id belongs to one plan on one dataset for ever.
        digest : str
            Names the plan (all its public parameters). The same run id with the same digest is a resume, free of cost.
        charge : Charge
            The plan's total.
        about : About, optional
            Whose data it is about: an account about another unit is charged what that is proved to cost it
            (`dpdist.privacy.protected_units`). Default: one row.
        account : str, optional
            Who pays: what all datasets about the same people share. Default: the dataset's own, of its id.
        named : bool
            Whether the dataset, or its account, has a name that somebody can give again.
        journal : Journal, optional
            Where its values are going to be kept: the run belongs to that journal for ever.
        user, label : str, optional
            Shown in the history. The user is by default the account and the host of this process: ``ann@node1``.

        Raises
        ------
        BudgetExceeded
            If the charge does not fit into what is left; nothing is charged.
        BudgetError
            If the charge is made under another neighbouring relation, lacks the mu that the account's rule needs, or is
            about a unit from which nothing follows for the account's.
        LedgerError
            If the run id was used for something else, or the dataset pays from another account; or if the account is
            called like a dataset that pays from another one, or has no limit where one was set on the dataset's id.
        """
        account = dataset_id if account in (None, dataset_id) else check_account(account)
        kept_by = None if journal is None else journal.id
        if not (dataset_id and run_id and digest):
            raise LedgerError(f"a run needs a dataset id, a run id and a digest, got {(dataset_id, run_id, digest)!r}")
        user, now = user or whoami(), utc_now()

        def charge_once(db: Transaction) -> RunCharge:
            row = db.execute(RUN, (run_id,)).fetchone()
            if row:
                record = run_record(row)
                check_same_run(record, dataset_id, digest, charge, about)
                check_is_here(db, record.account, self.path)
                check_may_go_on(db, record)
                check_journal(db, record, kept_by)
                # this call's own charge, if the answer to its COMMIT was lost
                resumed = record.when != now
                return RunCharge(dataset_id, run_id, digest, record.charge, record.when, resumed)
            on_file = read_account(db, account)
            paid, balance = self._check(db, on_file, charge, about)
            check_limits_somebody(db, dataset_id, on_file)
            open_account(db, account, dataset_id, named)
            unit = on_file.unit_for(about)
            if on_file.unit is None:
                db.execute(SET_UNIT, (unit, account))
            head = advance(db, "charge", run_id)
            price = (paid.epsilon, paid.delta, paid.neighbours.value, paid.mu, paid.split, paid.fold)
            if journal is not None and kept_by is not None:
                enter_journal(db, kept_by, journal.path)
            names = (head.number, account, run_id, dataset_id, digest)
            made = (now, user, label, kept_by, library(), about.charged, group_size(unit, about))
            db.execute(ADD_RUN, (*names, *price, *made, *balance_columns(balance)))
            return RunCharge(dataset_id, run_id, digest, paid, now, resumed=False)

        return self._write(charge_once)

    def _check(self, db: Transaction, account: Account, charge: Charge, about: About) -> tuple[Charge, Balance]:
        """What the account would pay, and what would be spent then; raises what `Ledger.open_run` says it raises."""
        check_is_account(db, account.name)
        check_is_here(db, account.name, self.path)
        check_suits(account.name, account.limit, account.neighbours or charge.neighbours, charge)
        unit = account.unit_for(about)
        charge = counted(account.name, unit, charge, about)
        balance = balance_after(db, account, charge)
        check_fits(account.name, account.limit, charge, account.total, balance.total, why_dear(unit, about))
        return charge, balance

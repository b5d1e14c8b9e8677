"""What a run writes into its ledger once it is charged: that a release is announced, that its value counts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpdist.errors import Forgotten, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.accounts import check_is_here
from dpdist.privacy.ledger.heads import advance
from dpdist.privacy.ledger.journal import AnyJournal, Journal, ReleasedValues, RunJournal
from dpdist.privacy.ledger.reader import LedgerReader
from dpdist.privacy.ledger.records import (
    ACCOUNT_OF_RUN,
    ADD_RELEASE,
    BIND,
    COMMIT,
    COMMITTED,
    RELEASE,
    RUN,
    ReleaseRecord,
    RunRecord,
    enter_journal,
    run_record,
)
from dpdist.privacy.ledger.resumption import (
    check_journal,
    check_may_go_on,
    check_same_run,
    check_uncommitted,
    other_release,
    same_release,
)
from dpdist.privacy.ledger.sqlite import Result, utc_now
from dpdist.privacy.ledger.transaction import Transaction
from dpdist.privacy.protected_units import ROWS, About
from dpdist.privacy.tracebacks import forgetful


class LedgerWriter(LedgerReader):
    """The part of `dpdist.privacy.ledger.ledger.Ledger` that runs use which are charged already."""

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        """Let `work` change the ledger, unless it has forgotten what this object saw."""
        result, self._seen = self._db.write(lambda db: self._not_taken_back(db, work))
        return result

    def record_release(
        self,
        run_id: str,
        release_id: str,
        index: int,
        name: str,
        mechanism: str,
        noise_std: float,
        sensitivity: float,
        cost: str,
    ) -> bool:
        """Append one release of an open run, durably; call it before the noise is drawn.

        Parameters
        ----------
        run_id, release_id : str
            A release id belongs to one release for ever; make it from the run id, the plan and the index.
        index : int
            Its place in the run.
        name, mechanism, cost : str
            For the reader of the history, e.g. ``"gradient"``, ``"Gaussian"``, ``"gaussian 0.25"``.
        noise_std, sensitivity : float
            As planned, from public numbers. A noise that is not public (NaN: its scale follows the data) is kept as
            infinite.

        Returns
        -------
        bool
            True if it is new, False if the same release is on file already (a resumed run).

        Raises
        ------
        LedgerError
            If the run was never opened, or the release id or the index is on file for a different release.
        Forgotten
            If the release has been committed: it has a value, and whoever asks has not found it.
        """
        noise_std, sensitivity = float(noise_std), float(sensitivity)
        noise_std = math.inf if math.isnan(noise_std) else noise_std  # SQL has no NaN
        new = ReleaseRecord(release_id, run_id, index, name, mechanism, noise_std, sensitivity, cost, utc_now())

        def append(db: Transaction) -> bool:
            run = db.execute(RUN, (run_id,)).fetchone()
            if not run:
                raise LedgerError(f"run {run_id!r} has not been charged: call open_run before its first release")
            record = run_record(run)
            check_is_here(db, record.account, self.path)
            check_may_go_on(db, record)
            on_file = [ReleaseRecord(*row) for row in db.execute(RELEASE, (release_id, run_id, index))]
            if len(on_file) == 1 and same_release(on_file[0], new):
                check_uncommitted(db, on_file[0])
                return on_file[0].when == new.when  # this call's own, if the answer to its COMMIT was lost
            if on_file:
                raise other_release(record, index, release_id)
            db.execute(ADD_RELEASE, tuple(vars(new).values()))
            return True

        return self._write(append)

    @forgetful
    def commit(self, run: ReleasedValues, release_id: str, value: np.ndarray) -> np.ndarray:
        """Store the value of an announced release, and write down that it counts; only what is returned may be used.

        Where ledger and journal are one database this is one transaction. Elsewhere the value is stored first: between
        the two it counts already, because whoever goes on finds it.

        Raises
        ------
        Fenced
            If another opener has taken the run over; nothing is stored.
        LedgerError
            If the release was not announced, or one of the two cannot be written.
        """
        if isinstance(run, RunJournal) and run.is_in(self._db):

            def both(db: Transaction) -> np.ndarray:
                stored = run.put_within(db, release_id, value)
                self._commit(db, run.run_id, release_id)
                return stored

            return self._write(both)
        stored = run.put(release_id, value)
        self.confirm(run.run_id, release_id)
        return stored

    def confirm(self, run_id: str, release_id: str) -> int:
        """Write down that a release has a value in its journal, unless that is on file; call it before it is used.

        Returns the number of the head with which the value began to count.
        """
        on_file = self._db.read(lambda db: db.execute(COMMITTED, (release_id,)).fetchone())
        if on_file is None or on_file[1] is None:
            return self._write(lambda db: self._commit(db, run_id, release_id))
        return int(on_file[1])

    def _commit(self, db: Transaction, run_id: str, release_id: str) -> int:
        on_file = db.execute(COMMITTED, (release_id,)).fetchone()
        if on_file is None:
            raise Forgotten(
                f"the journal has a value of the run {run_id!r} that the ledger {self.path} never announced: the "
                "ledger was restored from a copy, or replaced. Restore its newest state. Nothing was drawn"
            )
        if on_file[1] is not None:
            return int(on_file[1])
        check_is_here(db, db.execute(ACCOUNT_OF_RUN, (run_id,)).fetchone()[0], self.path)
        number = advance(db, "commit", release_id).number
        db.execute(COMMIT, (number, release_id))
        return number

    def resume(
        self, dataset_id: str, run_id: str, digest: str, charge: Charge, journal: AnyJournal, about: About = ROWS
    ) -> bool:
        """Whether the run has been charged, so that it can go on; raises where it must not.

        A run that an earlier version charged, when nobody wrote down which journal keeps its values, belongs from now
        on to the one that it is first opened with: it must have been opened there before.

        Raises
        ------
        Forgotten
            If its values are kept in another journal.
        LedgerError
            If the run id was used for something else.
        """
        name = journal.id

        def checked(db: Transaction) -> RunRecord | None:
            row = db.execute(RUN, (run_id,)).fetchone()
            if row is None:
                return None
            record = run_record(row)
            check_same_run(record, dataset_id, digest, charge, about)
            check_is_here(db, record.account, self.path)
            check_may_go_on(db, record)
            check_journal(db, record, name)
            return record

        record = self._look(checked)
        if record is None:
            return False
        if record.journal is None:
            if not journal.knows(run_id):
                raise Forgotten(
                    f"the run {run_id!r} was charged at {record.when}, and {journal.called} has never heard of it: "
                    "name the journal that it was started with, or restore that one. Nothing was drawn"
                )

            def bind(db: Transaction) -> None:
                enter_journal(db, name, journal.path)
                db.execute(BIND, (name, run_id))

            self._write(bind)
        return True

    def keeps(self, journal: AnyJournal) -> bool:
        """Whether a journal is kept by the same connection: then both are written in one transaction."""
        return isinstance(journal, Journal) and journal.is_in(self._db)

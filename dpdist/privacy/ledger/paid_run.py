"""One run, as its ledger, its journal and its witnesses have it: what is written down where, and in which order.

A run is charged in the ledger; whoever remembers the ledger is told its new head. Then, release by release: it is
announced in the ledger, drawn, its value stored in the journal and committed in the ledger, the nearest witness is
told, and only then is the value used. A process can end, or be ended, between any two of these:

======================================  ======================  ====================================================
it ended after                          who goes on finds       and
======================================  ======================  ====================================================
the charge                              the charge              pays nothing and draws
the announcement                        no value                draws: nobody saw a first draw
the value was stored                    a value                 commits that value and uses it
the commitment                          a value, committed      tells the nearest witness and uses it
======================================  ======================  ====================================================

Nothing of this leads to a value without its announcement, a committed release without its value, a value of a run that
was not charged, another journal than the recorded one, or a ledger that stands before, or beside, what a witness was
told. So whoever finds one of these knows that something was lost, emptied, exchanged or restored from a copy, and it is
refused with what to restore (`dpdist.errors.Forgotten`). Only a release that was never committed is drawn again.

Ledger and journal that were restored together from one copy agree with each other: for that there are the witnesses
outside of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpdist.errors import Forgotten
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.heads import Witness
from dpdist.privacy.ledger.journal import AnyJournal, ReleasedValues
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.protected_units import ROWS, About


class PaidRun:
    """One coordinator's hold on one run.

    Parameters
    ----------
    ledger : Ledger
    journal : AnyJournal
        The ledger's own, or another one.
    dataset_id, run_id : str
    account : str, optional
        Who pays. Default: the dataset's own account.
    named : bool
        Whether dataset or account have a name that somebody can give again.
    witnesses : sequence of Witness
        Who else remembers where the ledger stands. All of them are asked first and told of the charge; the first one is
        told of every value as well.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: AnyJournal,
        dataset_id: str,
        run_id: str,
        *,
        account: str | None = None,
        named: bool = True,
        witnesses: Sequence[Witness] = (),
    ) -> None:
        self.run_id = run_id
        self.goes_on = False
        """Whether it was charged before it was opened here, so that it pays nothing again."""
        self._ledger = ledger
        self._journal = journal
        self._dataset_id = dataset_id
        self._account = account or dataset_id
        self._named = named
        self._witnesses = tuple(witnesses)
        self._run: ReleasedValues | None = None
        self._terms: tuple[str, Charge, About] | None = None
        self._told = -1
        """The number of the newest head that the first witness knows."""

    def open(self, digest: str, charge: Charge, about: About = ROWS) -> None:
        """See that the run can be charged, or go on, and take it over; nothing is charged and no row has to be read.

        Raises
        ------
        BudgetExceeded
            When the account cannot pay.
        BudgetError
            When the account adds up another kind of charge.
        Forgotten
            When ledger, journal and witnesses do not have the same past.
        LedgerError
            When the run id was used for something else.
        """
        ledger, journal = self._ledger, self._journal
        self._ask()
        if ledger.is_empty() and not ledger.keeps(journal) and (head := journal.other(ledger.id)) is not None:
            ledger.check_remembered(head, journal.called, self._account)  # it took the place of a ledger that was lost
        self.goes_on = ledger.resume(self._dataset_id, self.run_id, digest, charge, journal, about)
        if not self.goes_on:
            if journal.holds(self.run_id):
                raise Forgotten(
                    f"{journal.called} has values of the run {self.run_id!r}, and the ledger {ledger.path} has no "
                    "charge for it: the ledger was emptied, exchanged or restored from a copy. Restore its newest "
                    "state, or give a run that has nothing to do with that one another run id. Nothing was charged"
                )
            ledger.can_afford(self._account, charge, about)
        self._terms = digest, charge, about
        self._run = journal.open(self.run_id)

    def charge(self, label: str) -> None:
        """Charge the run, unless it has been, and let everybody remember it.

        They are asked once more: while rows were loaded, another copy of the ledger may have been charged.
        """
        assert self._terms is not None
        digest, charge, about = self._terms
        self._ask()
        self._ledger.open_run(
            self._dataset_id,
            self.run_id,
            digest,
            charge,
            about=about,
            account=self._account,
            named=self._named,
            journal=self._journal,
            label=label,
        )
        self.check()  # who was taken over meanwhile knows less than the newer one has told
        self._tell(self._everybody(), self._ledger.receipt(self.run_id))

    def value(self, release_id: str) -> np.ndarray | None:
        """The value of a release that was drawn before; None if there is none. It is committed from now on."""
        value = self._opened().get(release_id)
        if value is not None and self._ledger.confirm(self.run_id, release_id) > self._told:
            self._tell(self._witnesses[:1])  # who committed it had no time to
        return value

    def announce(
        self,
        release_id: str,
        index: int,
        name: str,
        mechanism: str,
        noise_std: float,
        sensitivity: float,
        cost: str,
    ) -> None:
        """Write down a release that has no value yet; see `Ledger.record_release`. Then it may be drawn."""
        try:
            self._ledger.record_release(self.run_id, release_id, index, name, mechanism, noise_std, sensitivity, cost)
        except Forgotten:
            self.check()  # of a coordinator that was taken over, the newer one may just have committed it
            raise

    def commit(self, release_id: str, value: np.ndarray) -> np.ndarray:
        """Store what was drawn, and return the value that counts; only that one may be used."""
        stored = self._ledger.commit(self._opened(), release_id, value)
        self._tell(self._witnesses[:1])
        return stored

    def check(self) -> None:
        """Raise `Fenced` if another opener has taken the run over; call it before noise is drawn."""
        self._opened().check()

    def close(self) -> None:
        """Give up writing this run."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def _ask(self) -> None:
        """Refuse a ledger that has forgotten what others remember of it."""
        ledger = self._ledger
        for witness in self._everybody():
            if (head := witness.remembered(ledger.id)) is not None:
                ledger.check_remembered(head, witness.called, self._account)
                if witness in self._witnesses[:1] and head.ledger == ledger.id:
                    self._told = head.number

    def _everybody(self) -> list[Witness]:
        """A journal in the ledger's own database has the ledger's past: it would not notice anything."""
        journal = [] if self._ledger.keeps(self._journal) else [self._journal]
        return [*self._witnesses, *journal]

    def _tell(self, witnesses: Sequence[Witness], receipt: Mapping[str, Any] | None = None) -> None:
        if witnesses:
            head = self._ledger.head()
            for witness in witnesses:
                witness.remember(head, receipt)
            self._told = head.number

    def _opened(self) -> ReleasedValues:
        assert self._run is not None
        return self._run

"""What a dataset remembers of the ledger that limits it: a public note in its store, beside the schema.

Once an account has a limit, every dataset that pays from it remembers the ledger's id, where the ledger stood, and
what was spent. So a limit does not vanish with its file: a new ledger, another one, or an older copy is refused when
the dataset is used. Who cannot write the store leaves no note; then the ledger alone remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.data import Dataset
from dpdist.errors import DataError, Forgotten
from dpdist.privacy.accounting.totals import encoded
from dpdist.privacy.ledger.accounts import move_command
from dpdist.privacy.ledger.heads import Head
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.sqlite import MEMORY

NOTE = "dpdist-ledger"


def noted_head(dataset: Dataset) -> tuple[Head, dict[str, Any]] | None:
    """Where the ledger of a dataset stood, and all of the note; `DataError` if the note is damaged."""
    note = dataset.noted(NOTE)
    if note is None:
        return None
    try:
        return Head.from_dict(note), dict(note)
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"the attribute {NOTE!r} at {dataset.location} is damaged, and it says which ledger limits the dataset: "
            "restore it from a copy"
        ) from None


class DatasetMemory:
    """A dataset as a witness of one ledger (`dpdist.privacy.ledger.heads.Witness`).

    Parameters
    ----------
    dataset : Dataset
    account : str
        Who pays for it.
    ledger : Ledger
    """

    def __init__(self, dataset: Dataset, account: str, ledger: Ledger) -> None:
        self._dataset = dataset
        self._account = account
        self._ledger = ledger
        self._told = False
        self.is_missing = False
        """Whether the account has a limit that the dataset could not be told: then the ledger alone remembers."""

    @property
    def called(self) -> str:
        """For messages."""
        return f"the dataset {self._dataset.location}"

    def remembered(self, ledger: str) -> Head | None:
        """Where the ledger stood when it was last told.

        Raises
        ------
        Forgotten
            If the dataset belongs to another ledger.
        """
        known = noted_head(self._dataset)
        self.is_missing = known is None and self._ledger.limit(self._account) is not None
        if known is None:
            return None
        head, note = known
        if head.ledger != ledger and not self._ledger.came_from(self._account, head.ledger):
            self._ledger.check_is_here(self._account)
            raise Forgotten(
                f"{self.called} is limited by the ledger with the id {head.ledger}, last used at {note.get('path')}, "
                f"and {self._ledger.path} is another one ({ledger}): name that ledger, or put it back "
                "with 'dpdist budget restore'; to go on in another one, whoever answers for the data says "
                f"{move_command(self._account, str(note.get('path')), self._ledger.path)!r}. Nothing was charged"
            )
        return head

    def remember(self, head: Head, receipt: Mapping[str, Any] | None = None) -> None:
        """Keep the head in the store if the account has a limit, once for a run: a note is written as a whole.

        Of several runs that write it at once the last one may know less than the others: so each looks afterwards
        whether more was charged, and writes again.
        """
        if self._told or self._ledger.path == MEMORY or self._ledger.limit(self._account) is None:
            return
        self._told = True
        known = self.remembered(head.ledger)
        if known is not None and known.number >= head.number:
            return
        newest: Head | None = head
        while newest is not None:
            self.is_missing = not self._write(newest)
            newest = None if self.is_missing else self._charged_since(newest)

    def _charged_since(self, head: Head) -> Head | None:
        newest = self._ledger.head()
        last_charge, _ = self._ledger.past(self._account, newest)[-1]
        return newest if last_charge > head.number else None

    def _write(self, head: Head) -> bool:
        account, moved = self._ledger.account(self._account), self._ledger.move(self._account)
        limit = account.limit
        assert limit is not None, "a limit stays"
        return self._dataset.note(
            NOTE,
            {
                **head.to_dict(),
                "path": self._ledger.path,
                "account": account.name,
                "unit": account.unit,
                "moved_from": moved.ledger if moved is not None and moved.stage == "here" else None,
                "spent": encoded(account.total),
                "past": self._ledger.past(account.name, head),
                "limit": {
                    "epsilon": limit.budget.epsilon,
                    "delta": limit.budget.delta,
                    "neighbours": limit.neighbours.value,
                    "composition": limit.composition,
                },
            },
        )

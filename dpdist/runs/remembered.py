"""What datasets, the directories of runs and journals remember of a ledger, for one that is put back from a copy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from dpdist.data import Dataset
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.data.stores import open_to_read, shown
from dpdist.engine.memory import NOTE, noted_head
from dpdist.errors import DataError, LedgerError
from dpdist.objects import is_object_store
from dpdist.privacy.accounting.filter import Limit
from dpdist.privacy.accounting.totals import decoded
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger.heads import Head
from dpdist.privacy.ledger.journal import AnyJournal, Journal
from dpdist.privacy.ledger.object_journal import ObjectJournal
from dpdist.privacy.ledger.postgres import has_table, is_address
from dpdist.privacy.ledger.recall import Memory, Seen, charge_of
from dpdist.runs.directory import RECORD, read_run

_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, LedgerError)


def of_dataset(location: str) -> Memory:
    """What a stored dataset remembers: where the ledger stood, and what was spent on its account."""
    try:
        group = open_to_read(location)
    except DataError:
        raise
    except Exception as error:
        problem = type(error).__name__
    else:
        by = f"the dataset {shown(location)}"
        if ATTRIBUTE not in group.attrs:
            return Memory(by)
        known = noted_head(Dataset.open(group))
        if known is None:
            return Memory(by)
        head, note = known
        try:
            return Memory(by, (head,), seen=_seen(head, note))
        except _DAMAGED:
            raise DataError(
                f"what {by} remembers of its ledger is damaged (the attribute {NOTE!r}): restore it from a copy"
            ) from None
    raise DataError(f"there is no dataset at {shown(location)} ({problem}); check the path")


def _seen(head: Head, note: Mapping[str, Any]) -> Seen:
    limit = note["limit"]
    terms = Limit(Budget(limit["epsilon"], limit["delta"]), Neighbours(limit["neighbours"]), limit["composition"])
    past = None if note.get("past") is None else tuple((int(number), str(token)) for number, token in note["past"])
    for number, token in past or ():
        Head.from_dict({"ledger": head.ledger, "number": number, "token": token})
    return Seen(str(note["account"]), decoded(note["spent"]), terms, note["unit"], head, past)


def _check_receipts(by: str, charged: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Refuse what no ledger has written, before anything is charged for it."""
    try:
        for receipt in filter(None, charged.values()):
            charge_of(receipt)
            Head.from_dict({"ledger": receipt["ledger"], "number": receipt["number"], "token": ""})
            if not all(isinstance(receipt[name], str) for name in ("account", "run_id", "dataset_id", "digest")):
                raise TypeError
            if receipt.get("journal") is not None:
                str(receipt["journal_path"])
    except _DAMAGED:
        raise LedgerError(f"what {by} remembers of a charge is damaged: restore it from a copy") from None


def of_runs(directory: str) -> list[Memory]:
    """What the record of a run remembers, or those of all runs in a directory of them."""
    if is_object_store(directory) or os.path.exists(os.path.join(directory, RECORD)):
        return [of_run(directory)]
    if not os.path.isdir(directory):
        raise LedgerError(f"there is no directory {directory}; expected the output of a run, or one of several runs")
    names = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    runs = [of_run(name) for name in names if os.path.exists(os.path.join(name, RECORD))]
    if not runs:
        raise LedgerError(
            f"there is no run in the directory {directory}; expected the output of a run, or one of several runs"
        )
    return runs


def of_run(directory: str) -> Memory:
    """What the record of one run remembers: where the ledger stood, and its receipt."""
    record, by = read_run(directory), f"the run in {directory}"
    try:
        budget: dict[str, Any] = record["budget"]
        head = budget.get("head")
        if "head" in budget and head is None:  # it has charged nothing
            return Memory(by)
        heads = () if head is None else (Head.from_dict(head),)
        charged = {str(record["run_id"]): budget.get("receipt")}
    except _DAMAGED:
        raise LedgerError(f"what {by} remembers of its ledger is damaged: restore it from a copy") from None
    _check_receipts(by, charged)
    return Memory(by, heads, charged)


def of_journal(location: str) -> Memory:
    """What a journal that is not in the ledger's own database remembers: of every ledger whose runs it keeps."""
    if not is_object_store(location):
        there = has_table(location, "dpdist_epochs") if is_address(location) else os.path.isfile(location)
        if not there:
            raise LedgerError(f"there is no journal at {location}; check the path")
    opened: AnyJournal = ObjectJournal(location) if is_object_store(location) else Journal(location)
    with closing(opened) as journal:
        charged = journal.charged()
        _check_receipts(journal.called, charged)
        ledgers = {str(receipt["ledger"]) for receipt in charged.values() if receipt is not None}
        heads = (journal.remembered(ledger) for ledger in sorted(ledgers))
        return Memory(journal.called, tuple(head for head in heads if head is not None), charged)


def gather(datasets: Sequence[str], runs: Sequence[str], journals: Sequence[str]) -> list[Memory]:
    """What all of them remember."""
    return [
        *(of_dataset(location) for location in datasets),
        *(memory for directory in runs for memory in of_runs(directory)),
        *(of_journal(location) for location in journals),
    ]

"""What datasets, the directories of runs and journals remember of a ledger, for one that is put back from a copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import zarr

from dpdist.data import Dataset
from dpdist.data.schema import ATTRIBUTE
from dpdist.data.writing import shown, zarr_place
from dpdist.engine.memory import noted_head
from dpdist.errors import DataError, LedgerError
from dpdist.objects import is_object_store
from dpdist.pipeline.rundir import RECORD, read_run
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.filter import Limit
from dpdist.privacy.heads import Head
from dpdist.privacy.journal import AnyJournal, Journal
from dpdist.privacy.object_journal import ObjectJournal
from dpdist.privacy.postgres import has_table, is_address
from dpdist.privacy.recall import Memory, Seen
from dpdist.privacy.totals import decoded


def of_dataset(location: str) -> Memory:
    """What a stored dataset remembers: where the ledger stood, and what was spent on its account."""
    try:
        group = zarr.open_group(**zarr_place(location), mode="r")
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
        limit = dict(note["limit"])
        budget = Budget(limit.pop("epsilon"), limit.pop("delta"))
        terms = Limit(budget, Neighbours(limit["neighbours"]), limit["composition"])
        past = None if note.get("past") is None else tuple((int(number), str(token)) for number, token in note["past"])
        seen = Seen(str(note["account"]), decoded(note["spent"]), terms, note["unit"], head, past)
        return Memory(by, (head,), seen=seen)
    raise DataError(f"there is no dataset at {shown(location)} ({problem}); check the path")


def of_runs(directory: str) -> list[Memory]:
    """What the record of a run remembers, or those of all runs in a directory of them."""
    if is_object_store(directory) or os.path.exists(os.path.join(directory, RECORD)):
        return [of_run(directory)]
    if not os.path.isdir(directory):
        raise LedgerError(f"there is no directory {directory}; expected the output of a run, or one of several runs")
    names = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    return [of_run(name) for name in names if os.path.exists(os.path.join(name, RECORD))]


def of_run(directory: str) -> Memory:
    """What the record of one run remembers: where the ledger stood, and its receipt."""
    record = read_run(directory)
    budget: dict[str, Any] = record["budget"]
    head = budget.get("head")
    if "head" in budget and head is None:  # it has charged nothing
        return Memory(f"the run in {directory}")
    heads = () if head is None else (Head.from_dict(head),)
    return Memory(f"the run in {directory}", heads, {str(record["run_id"]): budget.get("receipt")})


def of_journal(location: str) -> Memory:
    """What a journal that is not in the ledger's own database remembers: of every ledger whose runs it keeps."""
    if not is_object_store(location):
        there = has_table(location, "dpdist_epochs") if is_address(location) else os.path.isfile(location)
        if not there:
            raise LedgerError(f"there is no journal at {location}; check the path")
    opened: AnyJournal = ObjectJournal(location) if is_object_store(location) else Journal(location)
    with closing(opened) as journal:
        charged = journal.charged()
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

"""Whether a run on file may go on: as what it was, with its values, and without drawing one of them again."""

from __future__ import annotations

import math
from dataclasses import replace

from dpdist.errors import Forgotten, LedgerError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.filter import TOLERANCE
from dpdist.privacy.ledger.records import JOURNAL_PATH, ReleaseRecord, RunRecord, library, plan_in
from dpdist.privacy.ledger.transaction import Transaction
from dpdist.privacy.protected_units import About, of_group

_RESTORED = """SELECT written_at FROM dpdist_heads WHERE what = 'restore' AND number >
    (SELECT number FROM dpdist_runs WHERE run_id = ?) ORDER BY number DESC LIMIT 1"""
_HOW_IT_CAME = "SELECT what FROM dpdist_heads WHERE number = (SELECT number FROM dpdist_runs WHERE run_id = ?)"
_JOURNAL_OF = """SELECT path FROM dpdist_journals WHERE id IN
    (SELECT journal FROM dpdist_runs WHERE run_id = ?)"""


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=TOLERANCE)


def check_journal(db: Transaction, record: RunRecord, journal_id: str | None) -> None:
    """Refuse to go on with a run in another journal than the one that keeps its values."""
    if None in (record.journal, journal_id) or record.journal == journal_id:
        return
    (path,) = db.execute(JOURNAL_PATH, (record.journal,)).fetchone()
    raise Forgotten(
        f"the values of the run {record.run_id!r} are kept in the journal with the id {record.journal}, last used at "
        f"{path}, and this is another one, where they would be drawn a second time: name that journal, or restore it. "
        "Nothing was drawn"
    )


def check_may_go_on(db: Transaction, record: RunRecord) -> None:
    """Refuse to go on with a run from before a restore, or from another ledger: it could draw a seen value again."""
    restored = db.execute(_RESTORED, (record.run_id,)).fetchone()
    how = (db.execute(_HOW_IT_CAME, (record.run_id,)).fetchone() or (None,))[0]
    if how == "carry":
        raise Forgotten(
            f"the run {record.run_id!r} was charged in another ledger, before the account {record.account!r} was moved "
            "here: it cannot go on, its results are what was released then. Start a new run. Nothing was drawn"
        )
    if restored is None and how != "recall":
        return
    raise Forgotten(
        f"the run {record.run_id!r} was charged before the ledger was restored from a copy"
        f"{'' if restored is None else f' ({restored[0]})'}, and which of its values were seen since that copy is not "
        "on file: it cannot go on, its results are what was released then. Start a new run. Nothing was drawn"
    )


def check_uncommitted(db: Transaction, release: ReleaseRecord) -> None:
    """Refuse to draw a release again that has had a value: somebody may have seen it."""
    if release.committed is None:
        return
    row = db.execute(_JOURNAL_OF, (release.run_id,)).fetchone()
    raise Forgotten(
        f"release {release.index} of the run {release.run_id!r} has been drawn, and its value is missing in the "
        f"journal {row[0] if row else 'of the ledger'}: the journal was emptied or restored from a copy. Restore its "
        "newest state. Nothing was drawn"
    )


def check_same_run(record: RunRecord, dataset_id: str, digest: str, charge: Charge, about: About) -> None:
    """Refuse to go on with a run as something else; `charge` is of one unit, on file is what the account paid."""
    old, new = record.charge, of_group(charge, record.group_size or 1)
    same_price = _close(old.epsilon, new.epsilon) and _close(old.delta, new.delta) and _close(old.mu, new.mu)
    same_rows = (old.neighbours, old.split, old.fold) == (new.neighbours, new.split, new.fold)
    if record.dataset_id == dataset_id and record.digest != digest and plan_in(record.digest) == plan_in(digest):
        raise LedgerError(
            f"run id {record.run_id!r} was begun at {record.when} on another version of the dataset {dataset_id!r}, "
            "which has been written again since. One charge does not pay for releases on two versions, and those of "
            "the first say nothing about the second: choose a new run id, or restore the rows that the run was begun on"
        )
    same_plan = (record.dataset_id, record.digest) == (dataset_id, digest)
    if not (same_plan and same_price and same_rows and record.unit in (None, about.charged)):
        raise LedgerError(
            f"run id {record.run_id!r} was used at {record.when} for a different plan or dataset; choose a new run id. "
            f"To resume that run, start it with the parameters it had{_versions(record)}."
        )


def other_release(record: RunRecord, index: int, release_id: str) -> LedgerError:
    """What is raised where a run that goes on asks for something else than it announced."""
    return LedgerError(
        f"release {index} ({release_id!r}) of run {record.run_id!r} is on file with other parameters: the plan has "
        f"changed; start a new run, or go on with the parameters it had{_versions(record)}"
    )


def _versions(record: RunRecord) -> str:
    """Which versions planned a run and go on with it, where that may be why the two differ."""
    if record.library in (None, library()):
        return ""
    return (
        f" and with dpdist {record.library}, which planned it: this is dpdist {library()}, and what it decides by "
        "itself may differ"
    )


def same_release(old: ReleaseRecord, new: ReleaseRecord) -> bool:
    """The same release announced again: everything equal but the time, numbers up to rounding."""
    names = replace(new, noise_std=old.noise_std, sensitivity=old.sensitivity, when=old.when, committed=old.committed)
    return names == old and _close(old.noise_std, new.noise_std) and _close(old.sensitivity, new.sensitivity)

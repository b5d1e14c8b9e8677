"""The place of a run: ``run.json``, ``released.zarr``, ``report.html``, and who may write there.

``run.json`` exists, with status "started" and the run's id, before anything is charged. So a place that cannot be
written to is noticed for free, and a run that was killed can be found again and resumed under the id that the ledger
and the journal know. It is replaced as a whole, after the arrays are complete, so that a reader sees the started or the
finished run and never half of one. `dpdist.runs.storage` has what a directory and an object store do for that.

It also remembers where the ledger stood when it last charged or committed something of this run, so that a ledger that
was lost, or restored from a copy, is noticed (`dpdist.privacy.ledger.paid_run`).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dpdist.errors import DpdistError, Unavailable
from dpdist.privacy.ledger.heads import Head
from dpdist.runs.provenance import now
from dpdist.runs.storage import Arrays, ResultStore, ResultStoreError, ResultStoreUnavailable, as_json, result_store

FORMAT = "dpdist-run/1"
RECORD, ARRAYS, LEDGER = "run.json", "released.zarr", "ledger.sqlite"

FREE_TO_CHANGE = ("cluster", "output", "then")
"""What a resumed run may be asked differently: where it computes, and what is made of its release, which costs nothing.
Not the ledger or the journal: another one would pay for, or draw, values a second time."""


class OutputError(DpdistError):
    """The output cannot be used: not writable, taken by another run, or not a run's."""


class OutputUnavailable(OutputError, Unavailable):
    """The output was away for longer than it is waited for."""


def output_error(error: ResultStoreError, message: str) -> OutputError:
    """What is wrong with a place, said of the output of a run."""
    return (OutputUnavailable if isinstance(error, ResultStoreUnavailable) else OutputError)(message)


class RunDirectory:
    """The output of one run.

    Parameters
    ----------
    path : str
        A new or empty directory, or the address of one in an object store; with ``resume`` also that of the same run.
    head : mapping
        The entries of ``run.json`` that are known before the run: method, estimator, ``asked``, ledger and journal.
    resume : bool
        Go on with the run that was started there, if one was.

    Attributes
    ----------
    path : str
    run_id : str
        New, or that of the run that is resumed.
    started : str
    times : mapping
        ``finished`` and ``seconds`` of a run that was done already, else empty: what it took does not change when it is
        resumed, which only writes down again what is there.
    paid : bool
        Whether the ledger must have a charge of it: it is done, or an earlier version started it, which did not say.
    head : Head or None
        Where the ledger stood when it was last told; None before the charge.
    """

    def __init__(self, path: str, head: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self.times: Mapping[str, Any] = {}
        self.paid = False
        self.head: Head | None = None
        self._store = result_store(path)
        found = self._found()
        if found is None:
            self._new = True
            self.run_id, self.started = secrets.token_hex(16), now()
            started = self._start(head)
            if started is not None:
                self._record = started
                return
            found = self._found()  # of a process that was faster
        if not resume or found is None:
            raise OutputError(_taken(path, "started" if found is None else str(found.get("status"))))
        _check_same(path, found, head)
        self._new = False
        self._record = found
        self.run_id, self.started = str(found["run_id"]), str(found["started"])
        self.head = _head_in(found)
        self.paid = found.get("status") == "done" or "head" not in found["budget"]
        self._check_writable()
        if found.get("status") != "done":
            return
        if (found.get("asked") or {}).get("then") == head["asked"].get("then"):
            self.times = {key: found[key] for key in ("finished", "seconds") if key in found}
            return
        self._record = {**found, "status": "started"}  # its arrays will be others before the record is
        try:
            self._store.replace(RECORD, as_json(self._record))
        except ResultStoreError as error:
            raise _unwritable(self.path, error) from None

    @property
    def called(self) -> str:
        """For messages."""
        return f"the run in {self.path}"

    def remembered(self, ledger: str) -> Head | None:
        """Where the ledger of this run stood, whichever is asked about: it has one."""
        return self.head

    def remember(self, head: Head, receipt: Mapping[str, Any] | None = None) -> None:
        """Keep where the ledger stands now, and what it charged, unless more is known."""
        if self.head is not None and self.head.ledger == head.ledger and self.head.number >= head.number:
            return
        budget = {**self._record["budget"], "head": head.to_dict()}
        if receipt is not None:
            budget["receipt"] = dict(receipt)
        self._record = {**self._record, "budget": budget}
        try:
            self._store.replace(RECORD, as_json(self._record))
        except ResultStoreError as error:
            raise _unwritable(self.path, error, "Whatever was charged is on file") from None
        self.head = head

    def _found(self) -> dict[str, Any] | None:
        """The record of the run that is there, None for a new place."""
        try:
            names, text = self._store.names(), self._store.read(RECORD)
        except ResultStoreError as error:
            fix = error.fix or "name a directory"
            raise output_error(error, f"output {self.path} cannot be used ({error.why}): {fix}") from None
        if text is None:
            rest = [name for name in names if not name.startswith(f".{RECORD}")]
            if rest:
                raise OutputError(
                    f"output {self.path} holds other files ({', '.join(sorted(rest)[:3])}) and no run: name a new or "
                    "an empty directory"
                )
            return None
        try:
            record = json.loads(text)
            if record["format"] != FORMAT or not record["run_id"]:
                raise ValueError
            _head_in(record)
            str(record["started"]), dict(record.get("asked") or {})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OutputError(
                f"{self._store.shown(RECORD)} cannot be read as a run of this version ({FORMAT}): name another output"
            ) from None
        return dict(record)

    def _start(self, head: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of a run that begins; None where another one has begun meanwhile."""
        record = {"format": FORMAT, **head, "run_id": self.run_id, "status": "started", "started": self.started}
        record["budget"] = {**record["budget"], "head": None}
        try:
            made = self._store.create(RECORD, as_json(record))
        except ResultStoreError as error:
            raise _unwritable(self.path, error) from None
        return record if made else None

    def _check_writable(self) -> None:
        probe = f".{RECORD}.{secrets.token_hex(4)}"
        try:
            self._store.create(probe, b"")
            self._store.discard([probe])
        except ResultStoreError as error:
            raise _unwritable(self.path, error) from None

    def withdraw(self, with_ledger: bool) -> None:
        """Undo the start of a run that charged nothing, so that the same place can be used again.

        With the ledger that was made there, if nobody else has used it.
        """
        if self._new:
            ledger = [LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm"] if with_ledger else []
            # what ended the run has to be said, and --resume starts it anew
            with contextlib.suppress(ResultStoreError):
                self._store.discard([RECORD, *ledger])

    def finish(self, record: Mapping[str, Any], arrays: Arrays) -> None:
        """Write the released arrays, then the record, which says that they are complete."""
        try:
            self._store.write_arrays(ARRAYS, arrays)
            self._store.replace(RECORD, as_json(record))
        except ResultStoreError as error:
            raise output_error(
                error,
                f"the results could not be written to {self.path} ({error.why}); what was released is on file: "
                f"{error.fix or 'make room'}, and run again with --resume, which costs nothing",
            ) from None


def read_run(location: str | os.PathLike[str]) -> dict[str, Any]:
    """The record of a run; `OutputError` if there is none or it is damaged."""
    store = result_store(location)
    path = store.shown(RECORD)
    try:
        text = store.read(RECORD)
    except ResultStoreError as error:
        fix = error.fix or "expected the output directory of dpdist run"
        raise output_error(error, f"no run at {location} ({RECORD}: {error.why}); {fix}") from None
    if text is None:
        raise OutputError(f"no run at {location} (it has no {RECORD}); expected the output directory of dpdist run")
    try:
        run = json.loads(text)
    except (ValueError, RecursionError):  # the last of thousands of brackets
        raise OutputError(f"{path} is damaged: expected the JSON that dpdist run writes. Run the job again") from None
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise OutputError(f"{path} is not a run of this version of dpdist: expected the format {FORMAT}")
    return run


def read_finished_run(location: str | os.PathLike[str]) -> dict[str, Any]:
    """The same; `OutputError` also if the run is not finished."""
    run = read_run(location)
    if run.get("status") != "done":
        raise OutputError(f"the run at {location} is not finished: go on with it with dpdist run JOB --resume")
    return run


def read_arrays(store: ResultStore, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of a run; `OutputError` if they are damaged."""
    try:
        return store.read_arrays(name)
    except ResultStoreError as error:
        raise output_error(error, f"the released arrays at {store.shown(name)} cannot be read: {error}") from None
    except Exception as error:  # zarr and its codecs have many kinds of errors
        problem = type(error).__name__
    raise OutputError(
        f"the released arrays at {store.shown(name)} cannot be read ({problem}); run the job again with --resume, "
        "which costs nothing"
    )


def _taken(path: str, status: str) -> str:
    if status == "done":
        return f"output {path} holds a finished run: name another directory with --output, or move this one away"
    return (
        f"output {path} holds a run that was started and not finished: if it still runs, wait for it, as --resume "
        "takes it over; else go on with it with --resume (what it has paid for is not paid again), or name another "
        "directory with --output"
    )


def _head_in(record: Mapping[str, Any]) -> Head | None:
    """What a record remembers of the ledger."""
    found = record["budget"].get("head")
    return None if found is None else Head.from_dict(found)


def _unwritable(path: str, error: ResultStoreError, charged: str = "Nothing was charged") -> OutputError:
    fix = error.fix or "make room, or name a directory this account may write to"
    return output_error(error, f"output {path} cannot be written to ({error.why}): {fix}. {charged}")


def _check_same(path: str, found: Mapping[str, Any], head: Mapping[str, Any]) -> None:
    before, asked = found.get("asked") or {}, json.loads(json.dumps(head["asked"]))
    changed = [key for key in sorted({*before, *asked} - set(FREE_TO_CHANGE)) if before.get(key) != asked.get(key)]
    if changed:
        raise OutputError(
            f"output {path} holds a run that was asked for something else (different: {', '.join(changed)}): resume it "
            "with the job it was started with, or name another directory with --output"
        )
    paid = found.get("budget") or {}
    if paid.get("ledger") != head["budget"]["ledger"]:
        raise OutputError(
            f"output {path} holds a run that is paid for in the ledger {paid.get('ledger')}, not in "
            f"{head['budget']['ledger']}: resume it with the same ledger (key ledger of the job, or the environment "
            "variable DPDIST_LEDGER)"
        )
    if paid.get("journal") != head["budget"]["journal"]:
        kept, asked = paid.get("journal") or "its ledger", head["budget"]["journal"] or "its ledger"
        raise OutputError(
            f"output {path} holds a run whose released values are kept in {kept}, and in {asked} they would be drawn a "
            "second time: resume it with the same journal (key journal of the job)"
        )

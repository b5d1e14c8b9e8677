"""The directory of a run: ``run.json``, ``released.zarr``, ``report.html``, and who may write there.

``run.json`` exists, with status "started" and the run's id, before anything is charged. So a place that cannot be
written to is noticed for free, and a run that was killed can be found again and resumed under the id that the ledger
and the journal know. It is replaced as a whole (written aside, flushed to the disk, renamed), so that a reader sees the
started or the finished run and never half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zarr
from numpy.typing import NDArray

from dpdist.errors import DpdistError
from dpdist.pipeline.provenance import now

FORMAT = "dpdist-run/1"
RECORD, ARRAYS, LEDGER = "run.json", "released.zarr", "ledger.sqlite"

FREE_TO_CHANGE = ("cluster", "output")
"""What a resumed run may be asked differently: where it computes. Not the ledger: another one would pay for, and draw,
values a second time."""


class OutputError(DpdistError):
    """The output directory cannot be used: not writable, taken by another run, or not a run's."""


class RunDirectory:
    """The output of one run.

    Parameters
    ----------
    path : str
        A new or empty directory; with ``resume`` also that of the same run.
    head : mapping
        The entries of ``run.json`` that are known before the run: method, estimator, ``asked``, the ledger's path.
    resume : bool
        Go on with the run that was started there, if one was.

    Attributes
    ----------
    path : Path
    run_id : str
        New, or that of the run that is resumed.
    started : str
    times : mapping
        ``finished`` and ``seconds`` of a run that was done already, else empty: what it took does not change when it is
        resumed, which only writes down again what is there.
    """

    def __init__(self, path: str, head: Mapping[str, Any], *, resume: bool) -> None:
        self.path = Path(path)
        self.times: Mapping[str, Any] = {}
        self._made: list[Path] = []
        found = self._found(path)
        if found is None:
            self._new = True
            self.run_id, self.started = secrets.token_hex(16), now()
            self._start(head)
            return
        if not resume:
            raise OutputError(_taken(path, str(found.get("status"))))
        _check_same(path, found, head)
        self._new = False
        self.run_id, self.started = str(found["run_id"]), str(found["started"])
        if found.get("status") == "done":
            self.times = {key: found[key] for key in ("finished", "seconds") if key in found}
        self._check_writable()

    def _found(self, path: str) -> dict[str, Any] | None:
        """The record of the run that is there, None for a new place."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputError(f"output {path} cannot be used ({error.strerror}): name a directory") from None
        if RECORD not in names:
            rest = [name for name in names if not name.startswith(f".{RECORD}")]
            if rest:
                raise OutputError(
                    f"output {path} holds other files ({', '.join(sorted(rest)[:3])}) and no run: name a new or an "
                    "empty directory"
                )
            return None
        try:
            record = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
            if record["format"] != FORMAT or not record["run_id"]:
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            raise OutputError(
                f"{self.path / RECORD} cannot be read as a run of this version ({FORMAT}): name another output"
            ) from None
        return dict(record)

    def _start(self, head: Mapping[str, Any]) -> None:
        record = {"format": FORMAT, **head, "run_id": self.run_id, "status": "started", "started": self.started}
        try:
            for folder in (*reversed(self.path.parents), self.path):
                if not folder.exists():
                    folder.mkdir(exist_ok=True)
                    self._made.append(folder)
            self._replace(RECORD, record, exclusive=True)
        except FileExistsError:
            raise OutputError(_taken(str(self.path), "started")) from None
        except OSError as error:
            self._remove_made()
            raise _unwritable(self.path, error) from None

    def _check_writable(self) -> None:
        probe = self.path / f".{RECORD}.{secrets.token_hex(4)}"
        try:
            probe.touch(exist_ok=False)
            probe.unlink()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def withdraw(self) -> None:
        """Undo the start of a run that charged nothing, so that the same place can be used again."""
        if not self._new:
            return
        for name in (RECORD, LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm"):
            (self.path / name).unlink(missing_ok=True)
        self._remove_made()

    def _remove_made(self) -> None:
        with contextlib.suppress(OSError):  # somebody else has put a file there
            for folder in reversed(self._made):
                folder.rmdir()

    def finish(self, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the released arrays, then the record, which says that they are complete."""
        try:
            self._write_arrays(arrays)
            self._replace(RECORD, record)
        except OSError as error:
            raise OutputError(
                f"the results could not be written to {self.path} ({error.strerror}); what was released is kept in "
                "the ledger: make room and run again with --resume, which costs nothing"
            ) from None

    def _write_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        aside, final = self.path / f".{ARRAYS}", self.path / ARRAYS
        shutil.rmtree(aside, ignore_errors=True)
        group = zarr.open_group(aside, mode="w", zarr_format=3)
        for name, values in arrays.items():
            group.create_array(name, data=values, chunks=values.shape or "auto", compressors=None)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(aside, final)

    def _replace(self, name: str, record: Mapping[str, Any], exclusive: bool = False) -> None:
        aside = self.path / f".{name}.{secrets.token_hex(4)}"
        try:
            with open(aside, "x", encoding="utf-8") as file:
                json.dump(record, file, indent=2, allow_nan=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            if exclusive:
                _link(aside, self.path / name)
            else:
                os.replace(aside, self.path / name)
        finally:
            aside.unlink(missing_ok=True)
        _flush(self.path)


def _link(aside: Path, name: Path) -> None:
    """Give the file its name, unless that is taken: of two runs that start here at once, one goes on."""
    try:
        os.link(aside, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the last one gets the name, and no charge is made twice
        os.replace(aside, name)


def _flush(folder: Path) -> None:
    """Make the renaming durable, where directories can be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _taken(path: str, status: str) -> str:
    if status == "done":
        return f"output {path} holds a finished run: name another directory with --output, or move this one away"
    return (
        f"output {path} holds a run that was started and not finished: go on with it with --resume (what it has paid "
        "for is not paid again), or name another directory with --output"
    )


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"output {path} cannot be written to ({error.strerror}): name a directory this account may write to. Nothing "
        "was charged"
    )


def _check_same(path: str, found: Mapping[str, Any], head: Mapping[str, Any]) -> None:
    before, asked = found.get("asked") or {}, json.loads(json.dumps(head["asked"]))
    changed = [key for key in sorted({*before, *asked} - set(FREE_TO_CHANGE)) if before.get(key) != asked.get(key)]
    if changed:
        raise OutputError(
            f"output {path} holds a run that was asked for something else (different: {', '.join(changed)}): resume it "
            "with the job it was started with, or name another directory with --output"
        )
    ledger = (found.get("budget") or {}).get("ledger")
    if ledger != head["budget"]["ledger"]:
        raise OutputError(
            f"output {path} holds a run that is paid for in the ledger {ledger}, not in {head['budget']['ledger']}: "
            "resume it with the same ledger (key ledger of the job, or the environment variable DPDIST_LEDGER)"
        )

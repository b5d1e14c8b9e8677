"""Disks that are full: small file systems in memory, filled to the last byte in the middle of a run. Needs root."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from dpdist.cli import exit_codes
from dpdist.data import ingest
from dpdist.engine import coordinator
from dpdist.engine.progress import Charged, Loading, Planned, Released, watching
from dpdist.errors import DataError, LedgerError
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.privacy.accounting.charge import Charge
from dpdist.runs.directory import OutputError
from tests.cli.command import call
from tests.faults import jobs
from tests.faults.cluster import RealCluster, within
from tests.faults.page import came_to

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system: needs root")]


class SmallDisk:
    """A file system of 2 MB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)

    def fill(self) -> None:
        with open(self.folder / "filler", "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def write_protect(self, on: bool) -> None:
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(self.folder)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(place: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(place / "small")
    try:
        yield disk
    finally:
        disk.unmount()


def run(place: Path, ledger: Ledger) -> np.ndarray:
    try:
        return jobs.run(place / "rows.zarr", ledger, "run")
    finally:
        ledger.close()


@contextmanager
def ends(fault: str, kind: type[Exception], match: str, code: int = 2) -> Iterator[Any]:
    """Within it, the run ends with one error; what it came to stands on the page."""
    began = time.monotonic()
    with pytest.raises(kind, match=match) as stopped:
        yield stopped
    took = time.monotonic() - began
    assert exit_codes.report(stopped.value) == code and "\n" not in str(stopped.value)
    came_to("Disk", fault, f"exit code {code}; resumed", took)


def test_under_the_ledger_when_the_charge_is_due(place, disk, healthy):
    path = disk.folder / "ledger.sqlite"
    Ledger(path).close()
    seen = []

    def strike(event: object) -> None:
        seen.append(event)
        if isinstance(event, Loading):
            disk.fill()

    with watching(strike), ends("full under the ledger when the charge is due", LedgerError, "full"):
        run(place, Ledger(path))
    assert not any(isinstance(event, Charged) for event in seen)
    disk.empty()
    ledger = Ledger(path)
    assert ledger.accounts() == []
    healthy(run(place, ledger), path)


def test_under_the_ledger_in_the_middle_of_a_run(place, disk, healthy):
    path = disk.folder / "ledger.sqlite"
    with jobs.at_release(3, disk.fill), ends("full under the ledger when a release is due", LedgerError, "full"):
        run(place, Ledger(path))
    disk.empty()
    before = jobs.on_file(path)
    assert 3 <= len(before) < jobs.N_ROUNDS
    values = run(place, Ledger(path))
    assert jobs.on_file(path).items() >= before.items()
    healthy(values, path)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_ledger_on_a_disk_that_takes_nothing_is_one_error_for_every_command(place, disk, fault, monkeypatch, capsys):
    path = disk.folder / "ledger.sqlite"
    monkeypatch.setenv("DPDIST_LEDGER", str(path))
    with contextlib.closing(Ledger(path)) as ledger:
        ledger.open_run("d", "r", "p", Charge(0.5))
    disk.fill() if fault == "full" else disk.write_protect(True)
    for words in (
        ["budget", "set", "d", "--epsilon", "1", "--delta", "0"],
        ["budget", "show", "d"],
        ["budget", "history", "d"],
        ["budget", "backup", str(disk.folder / "copy.sqlite")],
        ["budget", "restore", "--nothing-since"],
    ):
        said = call(capsys, *words)
        assert said.code in (0, 2) and "Traceback" not in said.err, (words, said)
        if said.code:
            assert said.err.count("dpdist: ") == 1, said.err
            fix = "make room" if fault == "full" else "give this account the right to write the file and its directory"
            assert re.search(f"{fix}|forgotten nothing", said.err), said.err
    disk.empty() if fault == "full" else disk.write_protect(False)
    with contextlib.closing(Ledger(path)) as ledger:
        assert ledger.spent("d").epsilon == 0.5 and len(ledger.history("d")) == 1
        ledger.open_run("d", "s", "p", Charge(0.5))
        assert ledger.spent("d").epsilon == 1.0


def test_under_the_journal(place, disk, secrets, expected):
    ledger, journal = place / "ledger.sqlite", disk.folder / "journal.sqlite"
    with jobs.at_release(3, disk.fill), ends("full under the journal when a value is due", LedgerError, "full"):
        run(place, Ledger(ledger, journal=journal))
    disk.empty()
    before = jobs.on_file(journal)
    assert 3 <= len(before) < jobs.N_ROUNDS
    assert np.array_equal(run(place, Ledger(ledger, journal=journal)), expected)
    assert jobs.on_file(journal).items() >= before.items()
    book = Ledger(ledger)
    (charge,) = book.history(Dataset.open(str(place / "rows.zarr")).id)
    assert len(charge.releases) == jobs.N_ROUNDS
    assert secrets.found_in(place, skip=[place / "rows.zarr"]) == []


@pytest.mark.parametrize(
    ("when", "released"), [("when the charge is due", 0), ("when they are written", 5)], ids=["charge", "results"]
)
def test_under_the_run_directory(place, disk, secrets, when, released):
    """It remembers the charge, and takes the results; between the two the run does not need it."""
    X = jobs.data()
    Dataset.from_arrays(place / "labelled.zarr", X=X, y=(X[:, 0] > 0).astype(int), partition_rows=jobs.PARTITION)
    job = {
        "method": "dp-gd",
        "data": {"path": str(place / "labelled.zarr")},
        "params": {"classes": [0, 1], "row_norm": 1.0, "solver": {"n_rounds": 4}},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "ledger": str(place / "ledger.sqlite"),
        "output": str(disk.folder / "run"),
    }
    (place / "job.yaml").write_text(json.dumps(job))
    asked = load_job(place / "job.yaml")

    def strike(event: object) -> None:
        due = isinstance(event, Released) and event.done == event.planned if released else isinstance(event, Planned)
        if due:
            disk.fill()

    with watching(strike), ends(f"full under the results {when}", OutputError, "No space left.*make room"):
        run_job(asked)
    before = jobs.on_file(place / "ledger.sqlite")
    assert len(before) == released
    disk.empty()
    record = run_job(asked, resume=True)
    after = jobs.on_file(place / "ledger.sqlite")
    assert record["status"] == "done" and len(after) == 5 and after.items() >= before.items()
    book = Ledger(place / "ledger.sqlite")
    assert len(book.history(Dataset.open(str(place / "labelled.zarr")).id)) == 1
    skip = [place / "rows.zarr", place / "labelled.zarr"]
    assert secrets.found_in(place, skip=skip) == []


def test_under_the_rows(place, healthy, monkeypatch):
    """The kernel answers EIO to whoever reads there; the data is as good as it was once the disk is."""
    monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)
    path = place / "ledger.sqlite"
    chunk = place / "rows.zarr" / "X" / "c" / "4" / "0"
    kept = chunk.read_bytes()

    def break_disk() -> None:
        chunk.unlink()
        chunk.symlink_to("/proc/self/mem")

    said = "cannot be read .*Input/output error.*check the disk"
    with jobs.at_release(3, break_disk), ends("does not read a chunk of the rows in a round", DataError, said):
        run(place, Ledger(path))
    chunk.unlink()
    chunk.write_bytes(kept)
    healthy(run(place, Ledger(path)), path)


def test_under_workers_that_spill_what_they_hold(place, healthy, tmp_path_factory):
    """Not as the project sets them: rows that find no room on the disk stay in memory."""
    disk = SmallDisk(tmp_path_factory.mktemp("spilled") / "small")
    spilling = {"TARGET": "1e-5", "SPILL": "1e-4", "PAUSE": "False", "TERMINATE": "False"}
    env = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{name}": value for name, value in spilling.items()}
    options = ["--memory-limit", "1GiB", "--local-directory", str(disk.folder)]
    struck: list[float] = []

    def strike(event: object) -> None:
        if isinstance(event, Loading):
            struck.append(time.monotonic())
            disk.fill()

    try:
        with (
            RealCluster(place, 2, env=env, worker=options) as cluster,
            contextlib.closing(Ledger(place / "ledger.sqlite")) as ledger,
        ):
            cluster.ready()
            with watching(strike):
                values = within(60, lambda: jobs.run(place / "rows.zarr", ledger, "run", cluster.address))
            took = time.monotonic() - struck[0]
            assert "keeping data in memory" in cluster.log()
    finally:
        disk.unmount()
    healthy(values)
    came_to("Disk", "full under workers that spill the rows they hold", "survived: the same values", took)


def test_under_an_ingestion_by_owners_it_is_known_before_it_is_full(place, disk):
    """Nothing is written that has no room; owners count once, whatever they have; and what was read is kept."""
    lines = "who,a\n" + "".join(f"p{i % 3},{i}\n" for i in range(150))
    (place / "t.csv").write_text(lines)
    asked: Any = {"features": ["a"], "unit": "who", "partition_rows": 1000, "progress": (seen := []).append}
    fits, full = disk.folder / "fits", disk.folder / "full"
    assert ingest(place / "t.csv", fits, max_rows=50_000, **asked).schema.n_rows == 150_000
    seen.clear()
    for again in (False, True):
        with pytest.raises(DataError, match=r"would take 1,200,000 bytes, 50,000 rows for each of 3 owners, and there"):
            ingest(place / "t.csv", full, max_rows=50_000, **asked)
        assert [path.name for path in full.iterdir()] == ["zarr.json"]
        assert bool(seen) is not again
        seen.clear()
    shutil.rmtree(fits)
    assert ingest(place / "t.csv", full, max_rows=50_000, **asked).schema.n_rows == 150_000
    assert [path.name for path in disk.folder.iterdir()] == ["full"]

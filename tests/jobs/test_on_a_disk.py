"""Whole jobs on a disk of this machine. What other tests write is in memory, where rows are read in another way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Dataset, load_run
from dpdist.data.mapped_files import CAN_LEASE, MappedFiles
from dpdist.engine import coordinator
from dpdist.engine.disks import OWN, mount_of
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job

ROWS, D, PARTITIONS = 4096, 16, 3  # half a megabyte in each file: fewer bytes are sooner copied than mapped
FOLDERS = (tempfile.gettempdir(), "/var/tmp", "/tmp", Path(__file__).parents[2])


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on one, which vanishes with the test."""
    for folder in FOLDERS:
        if mount_of(folder)[0] in OWN and os.access(folder, os.W_OK):
            with tempfile.TemporaryDirectory(prefix="dpdist-tests-", dir=folder) as place:
                yield Path(place)
            return
    pytest.skip("this machine has no disk of its own that can be written to")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which files were mapped."""
    found, part = [], MappedFiles.part

    def seen(self: MappedFiles, place: Path, *where: Any) -> Any:
        rows = part(self, place, *where)
        found.extend([] if rows is None else [place])
        return rows

    monkeypatch.setattr(MappedFiles, "part", seen)
    return found


def ran(folder: Path, compression: str) -> Any:
    """The coefficients of a job that is kept in a folder, with all that belongs to it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(PARTITIONS * ROWS, D)) / 8
    y = (X[:, 0] + rng.normal(size=len(X)) / 8 > 0).astype(float)
    Dataset.from_arrays(
        folder / "rows.zarr", X=X, y=y, partition_rows=ROWS, compression=compression, dataset_id="survey"
    )
    job = folder / "job.yaml"
    job.write_text(
        f"method: dp-gd\nestimator: LogisticRegression\ndata: {{path: {folder}/rows.zarr}}\n"
        "params: {classes: [0, 1], row_norm: 1.0, random_state: 1}\nbudget: {epsilon: 1.0, delta: 1.0e-6}\n"
        f"ledger: {folder}/ledger.sqlite\noutput: {folder}/run\n"
    )
    run_job(load_job(job))
    return load_run(folder / "run").coef_


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("streamed", [False, True], ids=["resident", "streamed"])
def test_a_job_on_a_disk_ends_as_one_in_memory_does(
    streamed: bool,
    compression: str,
    disk: Path,
    tmp_path: Path,
    mapped: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if streamed:
        monkeypatch.setattr(coordinator, "RESIDENT_SHARE", 0.0)
    found = ran(disk, compression)
    assert bool(mapped) == (streamed and compression == "none" and CAN_LEASE)
    assert np.array_equal(found, ran(tmp_path, compression))

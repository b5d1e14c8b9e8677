"""Ingestion in processes of its own: killed at any moment, watched for memory, two of them at once."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import shutil
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import sklearn.datasets

from dpdist.data import Dataset, Progress, arrayfiles, checkpoint, copying, delimited, ingest, owners, readers
from dpdist.errors import DataError
from tests.data.test_ingestion import files

# A server that has imported everything forks the children: each is a real process, and starts at once.
from tests.processes import PROCESSES


def child(source: str, dest: str, rows: Any, pipe: Connection | None, block: int, asked: dict[str, Any]) -> None:
    """Ingest with small blocks and many checkpoints.

    ``rows`` tells how far it was at first and is now; where that is more than the third number, it waits for a larger.
    """
    delimited.BLOCK_BYTES = readers._BATCH_BYTES = block
    arrayfiles.aligned_rows = lambda _: 1024  # type: ignore[assignment]
    checkpoint._CACHE = -1024
    copying.CHECKPOINT_SECONDS = 0.0 if pipe is None else 0.2
    owners.BUCKET_BYTES = 2**15 if pipe is None else owners.BUCKET_BYTES

    def tell(at: Progress) -> None:
        rows[:2] = rows[0] or at.rows, at.rows
        time.sleep(0 if pipe is not None else 0.005)
        while at.rows > rows[2]:
            time.sleep(0.001)

    ingest(source, dest, progress=tell, **asked)
    if pipe is not None:
        pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def start(*arguments: Any) -> Any:
    process = PROCESSES.Process(target=child, args=arguments, daemon=True)
    process.start()
    return process


def table(n_rows: int, columns: int) -> pa.Table:
    rng = np.random.default_rng(3)
    named: dict[str, Any] = {f"x{j}": rng.standard_normal(n_rows).round(6) for j in range(columns)}
    named["who"] = [f"patient-{i}" for i in rng.integers(0, n_rows // 4, n_rows)]
    named["y"] = np.where(rng.random(n_rows) < 0.9, "yes", "no")
    return pa.table(named)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "libsvm"])
def test_killed_at_any_moment(tmp_path: Path, kind: str) -> None:
    """Kill -9 at random moments, each further on, until it ends: byte for byte what one go writes."""
    n_rows, moments = 12_000, random.Random(kind)
    source = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pq.write_table(table(n_rows, 4), source, row_group_size=900)
    elif kind == "libsvm":
        sklearn.datasets.dump_svmlight_file(*sparse(n_rows, 4), str(source), zero_based=False)
    else:
        with gzip.open(source, "wb", 1) if kind == "csv.gz" else open(source, "wb") as out:
            pyarrow.csv.write_csv(table(n_rows, 4), out)
    asked: dict[str, Any] = {
        "features": ["x0", "x2"], "label": "y", "label_type": "str", "unit": "who", "max_rows": 3,
        "partition_rows": 777, "dataset_id": "one", "on_bad": "drop",
    }  # fmt: skip
    if kind == "libsvm":
        asked = {"features": ["4"], "partition_rows": 777, "dataset_id": "one"}
    ingest(source, tmp_path / "whole", **asked)

    out, kills, resumed = tmp_path / "killed", 0, 0
    rows = PROCESSES.RawArray("q", 3)
    while True:
        # while nobody looks it comes no further than an eighth of the rows
        rows[:] = 0, 0, n_rows * (kills + 2) // 16
        process = start(str(source), str(out), rows, None, 20_000, asked)
        while process.is_alive() and rows[1] <= n_rows * kills // 16:
            time.sleep(0.0005)
        time.sleep(moments.random() * 0.02)
        process.kill()  # SIGKILL
        process.join()
        kills += 1
        resumed += rows[0] > 1000  # more than a batch: not from the beginning
        assert process.exitcode in (0, -signal.SIGKILL)
        if out.exists() and not (tmp_path / "killed.ingesting").exists():
            break  # it may be killed between the end of its work and its own
        with contextlib.suppress(DataError):
            Dataset.open(out)
            assert files(out) == files(tmp_path / "whole"), "what looks complete is complete"
        assert kills < 40
    assert kills >= 8 and resumed >= 3, (kills, resumed)
    assert files(out) == files(tmp_path / "whole")
    assert not list(tmp_path.glob("killed.*"))
    Dataset.open(out).verify()


@pytest.mark.parametrize("point", ["before the end", "after the end"])
def test_killed_while_it_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The two moments around the one at which the dataset becomes complete."""
    pyarrow.csv.write_csv(table(1000, 4), tmp_path / "t.csv")
    asked: dict[str, Any] = {"features": ["x0"], "partition_rows": 300, "dataset_id": "one"}
    done = ingest(tmp_path / "t.csv", tmp_path / "whole", **asked)

    def killed(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        if point == "after the end":
            patch.setattr(checkpoint.Checkpoint, "delete", killed)
        else:
            patch.setattr(copying.GrowingGroup, "finish", killed)
        with pytest.raises(SystemExit):
            ingest(tmp_path / "t.csv", tmp_path / "out", **asked)
    assert (tmp_path / "out.ingesting").exists()
    if point == "after the end":
        Dataset.open(tmp_path / "out").verify()
    again = ingest(tmp_path / "t.csv", tmp_path / "out", **asked)
    assert again.schema == replace(done.schema, edition=again.schema.edition) and again.rows_read == done.rows_read
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert not (tmp_path / "out.ingesting").exists()


def test_killed_while_it_deletes_what_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of an unfinished dataset is still known to be one, whichever of it is gone."""
    source, out = tmp_path / "t.csv", tmp_path / "out"
    pyarrow.csv.write_csv(table(1000, 4), source)
    asked: dict[str, Any] = {"features": ["x0"], "label": "x1", "partition_rows": 300}

    def killed(*_: Any) -> None:
        raise SystemExit

    def killed_then(path: Path) -> None:
        real(path)
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(copying.GrowingGroup, "finish", killed)
        ingest(source, out, **asked)
    real = shutil.rmtree
    for _ in range(2):  # arrays
        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(shutil, "rmtree", killed_then)
            ingest(source, out, restart=True, **asked)
    assert [path.name for path in out.iterdir()] == ["zarr.json"]
    assert ingest(source, out, **asked).schema.n_rows == 1000


def test_notes_count_on_nothing_that_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a power cut comes after a note, the chunks before it are there, and their directory."""
    source, out = tmp_path / "t.csv", tmp_path / "out"
    pyarrow.csv.write_csv(table(1000, 4), source)
    synced: set[str] = set()
    counted: list[int] = []
    fsync, commit = os.fsync, checkpoint.Checkpoint.commit

    def watched(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def noted(self: checkpoint.Checkpoint, values: Any) -> None:
        stored = values.get("progress", {}).get("stored", 0)
        needed = {f"{out}/X/c/{i}/0" for i in range(stored // 100)} | ({f"{out}/X/c"} if stored else set())
        assert needed <= synced
        counted.append(stored)
        commit(self, values)

    monkeypatch.setattr(copying, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(checkpoint.Checkpoint, "commit", noted)
    ingest(source, out, features=["x0"], partition_rows=100)
    assert len(set(counted)) > 3 and counted[-1] == 1000


def killed_in_the_end(source: str, dest: str, nth: int, asked: dict[str, Any]) -> None:
    """Ingest, and die at the nth line of those that delete the notes; there may be fewer."""
    ends, lines = {checkpoint.Checkpoint.delete.__code__, checkpoint.Checkpoint.close.__code__}, 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code not in ends:
            return None
        if event in ("line", "return"):
            lines += 1
            if lines == nth:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    ingest(source, dest, **asked)


def test_killed_when_the_dataset_is_done(tmp_path: Path) -> None:
    """Whoever runs the same again is told that it is finished, and no file with rows is left beside it."""
    source, out, told = tmp_path / "t.csv", tmp_path / "out", 0
    pyarrow.csv.write_csv(table(100, 4), source)
    asked: dict[str, Any] = {"features": ["x0"], "unit": "who", "max_rows": 2, "dataset_id": "one"}
    whole = ingest(source, tmp_path / "whole", **asked)
    for nth in range(1, 30):
        process = PROCESSES.Process(target=killed_in_the_end, args=(str(source), str(out), nth, asked), daemon=True)
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        edition = Dataset.open(out).schema.edition
        if (tmp_path / "out.ingesting").exists() and nth > 1:
            again = ingest(source, out, restart=nth % 2 == 0, **asked)  # what is finished is not deleted
            assert again.schema == replace(whole.schema, edition=edition)
            assert again.rows_read == 100 and again.over_bound == whole.over_bound > 0
        elif nth > 1:
            told += 1
            for restart in (False, True):
                with pytest.raises(DataError, match=r"is finished, with the id one: it was made from t\.csv with"):
                    ingest(source, out, restart=restart, **asked)
            with pytest.raises(DataError, match="exists already, and a dataset is never overwritten"):
                ingest(source, out, **{**asked, "max_rows": 3})
        else:
            with pytest.raises(DataError, match="exists already, and a dataset is never overwritten"):
                ingest(source, out, **{**asked, "max_rows": 3})
        assert Dataset.open(out).schema.edition == edition
        assert files(out) == files(tmp_path / "whole") and not list(tmp_path.glob("out.*"))
        shutil.rmtree(out)
    assert process.exitcode == 0 and nth > 6 and told >= 2


def sparse(n_rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((n_rows, columns)).round(6) * (rng.random((n_rows, columns)) < 0.5), np.arange(n_rows)


@pytest.mark.parametrize("kind", ["csv", "unit", "csv.gz", "parquet", "npy", "npz", "libsvm"])
def test_memory_does_not_grow_with_the_source(tmp_path: Path, kind: str) -> None:
    peaks = []
    # batches of sparse lines are smaller, and so many of them have to be under way before their threads hold the most
    for n_rows in (60_000 if kind == "libsvm" else 20_000, 160_000):
        source, asked = tmp_path / f"{n_rows}.{'csv' if kind == 'unit' else kind}", {"partition_rows": 2048}
        asked |= {"features": ["x*"]} if kind[:2] != "np" else {}
        asked |= {"unit": "who", "max_rows": 2} if kind == "unit" else {}
        asked |= {"features": ["20"]} if kind == "libsvm" else {}
        if kind == "parquet":
            pq.write_table(table(n_rows, 20), source, row_group_size=2000)
        elif kind == "libsvm":
            sklearn.datasets.dump_svmlight_file(*sparse(n_rows, 20), str(source), zero_based=False)
        elif kind[:2] == "np":
            X = np.random.default_rng(0).standard_normal((n_rows, 20))
            np.save(source, X) if kind == "npy" else np.savez_compressed(source, X=X)
        else:
            with gzip.open(source, "wb", 1) if kind == "csv.gz" else open(source, "wb") as out:
                pyarrow.csv.write_csv(table(n_rows, 20), out)
        receiver, sender = PROCESSES.Pipe()
        rows = PROCESSES.RawArray("q", [0, 0, n_rows])
        process = start(str(source), str(tmp_path / f"{n_rows}.out"), rows, sender, 2**18, asked)
        process.join()
        assert process.exitcode == 0
        peaks.append(receiver.recv())
    # 8 times the rows are 22 MB more of values (and 28 MB more of text).
    assert peaks[1] < peaks[0] + 12_000, peaks


def test_two_at_once(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(table(10_000, 4), tmp_path / "t.csv")
    asked: dict[str, Any] = {"features": ["x0"], "partition_rows": 300}
    rows = PROCESSES.RawArray("q", [0, 0, 10_000])
    process = start(str(tmp_path / "t.csv"), str(tmp_path / "out"), rows, None, 20_000, asked)
    while not rows[1]:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(DataError, match="another process is ingesting to the same place"):
            ingest(tmp_path / "t.csv", tmp_path / "out", **asked)
        with pytest.raises(DataError, match="another process is ingesting to the same place"):
            ingest(tmp_path / "t.csv", tmp_path / "out", restart=True, **asked)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    process.join()
    assert process.exitcode == 0
    assert Dataset.open(tmp_path / "out").n_rows == 10_000

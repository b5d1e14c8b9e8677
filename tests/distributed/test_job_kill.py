"""kill -9 of ``dpdist run`` at random instants: the run goes on under its charge, and no value is drawn twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from tests.cli.command import start

N_ROUNDS = 150


@pytest.fixture
def folder(tmp_path):
    path = tmp_path
    X = np.random.default_rng(0).normal(size=(5000, 4)) / 2
    Dataset.from_arrays(path / "rows.zarr", X=X, y=(X[:, 0] > 0).astype(int), partition_rows=1000)
    (path / "job.yaml").write_text(
        f"""
        method: dp-gd
        data: {{path: {path}/rows.zarr}}
        params: {{classes: [0, 1], row_norm: 1.0, solver: {{n_rounds: {N_ROUNDS}}}}}
        budget: {{epsilon: 1.0, delta: 1.0e-6}}
        ledger: {path}/ledger.sqlite
        cluster: threads
        """
    )
    return path


def words(folder: Path, name: str) -> tuple[object, ...]:
    return ("run", folder / "job.yaml", "--output", folder / name, "--resume")


def planned(process: subprocess.Popen[str]) -> None:
    """Wait until the run is planned, which is where it gets interesting."""
    assert process.stderr is not None
    for line in process.stderr:
        if "to be charged" in line:
            return
    raise AssertionError(f"the run ended before it was planned: {process.wait()}")


def journal(folder: Path) -> dict[str, bytes]:
    """Every value that was ever released, by its id."""
    with sqlite3.connect(folder / "ledger.sqlite", timeout=30) as connection:
        return dict(connection.execute("SELECT release_id, bytes FROM dpdist_values"))


def n_released(folder: Path) -> int:
    with sqlite3.connect(folder / "ledger.sqlite", timeout=30) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM dpdist_values").fetchone()[0])


def released(folder: Path, name: str) -> dict[str, bytes]:
    group = folder / name / "released.zarr"
    return {str(path.relative_to(group)): path.read_bytes() for path in group.rglob("*") if path.is_file()}


def runs(folder: Path) -> dict[str, int]:
    """Number of releases on file of every run that was charged."""
    ledger = Ledger(folder / "ledger.sqlite")
    found = {run.run_id: len(run.releases) for run in ledger.history(Dataset.open(folder / "rows.zarr").id)}
    ledger.close()
    return found


def kill_and_resume(folder: Path, kills: int, seed: int) -> None:
    whole = start(*words(folder, "whole"))
    whole.communicate(timeout=300)
    assert whole.returncode == 0 and list(runs(folder).values()) == [N_ROUNDS + 1]

    rng, interrupted = np.random.default_rng(seed), 0
    for i, part in enumerate(rng.uniform(0, 1.1, kills)):
        name, charged, before = f"run-{i}", set(runs(folder)), n_released(folder)
        process = start(*words(folder, name))
        planned(process)
        while process.poll() is None and n_released(folder) - before < part * N_ROUNDS:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))  # some rounds' time: anywhere within one
        process.kill()
        process.communicate()
        record = json.loads((folder / name / "run.json").read_text())
        if record["status"] == "started":
            interrupted += 1
        seen, on_file = journal(folder), runs(folder)
        assert set(on_file) - charged <= {record["run_id"]}

        job = load_job(folder / "job.yaml", [f"output={folder / name}"])
        resumed = run_job(job, resume=True)
        values = released(folder, name)
        assert resumed["run_id"] == record["run_id"] and resumed["status"] == "done"
        assert runs(folder) == {**on_file, record["run_id"]: N_ROUNDS + 1}, "charged once, each release on file once"
        after = journal(folder)
        assert {key: after[key] for key in seen} == seen, "what was released before the kill was not drawn again"

        replay = run_job(job, resume=True)
        assert released(folder, name) == values and replay["releases"] == resumed["releases"]
        assert journal(folder) == after
    assert len(runs(folder)) == 1 + kills, "nobody paid twice"
    assert interrupted >= kills / 4, "the kills must come in the middle of runs"


def test_five_kills(folder):
    kill_and_resume(folder, 5, seed=1)


@pytest.mark.slow
def test_twenty_kills(folder):
    kill_and_resume(folder, 20, seed=2)

"""Runs whose object store goes away for a while: where they need it, and what must come of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dpdist import Dataset
from dpdist.engine.progress import Event, Loading, Released, watching
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.runs.storage import result_store
from tests.s3 import Faults

KINDS = ("refused", "503", "cut", "page")
MOMENTS = ("opening", "loading", "round", "journal", "results")
N_ROUNDS = 4


def job(folder: Path, moment: str, address: str) -> dict[str, object]:
    """A seeded job that needs the address at this moment of a run, and a folder for all else."""
    X = np.random.default_rng(0).normal(size=(3000, 4)) / 2
    rows = f"{address}/rows.zarr" if moment in ("opening", "loading", "round") else str(folder / "rows.zarr")
    Dataset.from_arrays(rows, X=X, y=(X[:, 0] > 0).astype(int), partition_rows=500)
    return {
        "method": "dp-gd",
        "data": {"path": rows},
        "params": {"classes": [0, 1], "row_norm": 1.0, "solver": {"n_rounds": N_ROUNDS}, "random_state": 1},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "cluster": "threads",
        "ledger": str(folder / "ledger.sqlite"),
        **({"journal": f"{address}/journal"} if moment == "journal" else {}),
        "output": f"{address}/out" if moment == "results" else str(folder / "out"),
    }


def run(path: Path, asked: dict[str, object]) -> dict[str, np.ndarray]:
    """What a job releases, as its output has it."""
    path.write_text(json.dumps(asked))
    record = run_job(load_job(path))
    assert record["status"] == "done"
    return result_store(str(asked["output"])).read_arrays("released.zarr")


@contextmanager
def struck(store: Faults, moment: str, kind: str, seconds: float) -> Iterator[list[float]]:
    """Within it the store goes away at this moment of a run; tells when that was."""
    times: list[float] = []

    def strike(event: Event) -> None:
        released = isinstance(event, Released)
        due = isinstance(event, Loading) if moment == "loading" else released and event.done == 2
        if moment == "results":
            due = released and event.done == event.planned
        if due and not times:
            times.append(time.monotonic())
            store.be_away(kind, seconds)

    if moment == "opening":
        times.append(time.monotonic())
        store.be_away(kind, seconds)
    with watching(strike):
        yield times


def go_through(store: Faults, folder: Path, address: str, kind: str, moment: str, seconds: float) -> float:
    """Run a job while the store is away, check that it only takes time, and return how much."""
    asked = job(folder, moment, address)
    alone = {"ledger": str(folder / "other.sqlite"), "journal": None, "output": str(folder / "undisturbed")}
    expected = run(folder / "undisturbed.yaml", asked | alone)
    with struck(store, moment, kind, seconds) as times:
        found = run(folder / "disturbed.yaml", asked)
    took = time.monotonic() - times[0]
    assert took >= seconds, "the store was needed while it was away"
    assert found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)
    return took

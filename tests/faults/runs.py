"""Three seeded runs that need their stores from end to end: central, local in rounds, sample and aggregate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import Dataset
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from dpdist.runs.storage import result_store

N, D = 20_000, 16

RUNS: dict[str, dict[str, Any]] = {
    "central": {
        "method": "dp-gd",
        "arrays": {"X": "X", "y": "label"},
        "params": {"classes": [0, 1], "row_norm": 4.0, "solver": {"n_rounds": 6}},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    },
    "local": {
        "method": "ldp-iht",
        "arrays": {"X": "X", "y": "y"},
        "params": {"n_nonzero": 2, "noise_bound": 0.05},
        "budget": {"epsilon": 2.0},
    },
    "aggregate": {
        "method": "saa-clipmean",
        "arrays": {"X": "X", "y": "y"},
        "params": {"radius": 2.0, "fit_intercept": False},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    },
}


def write(place: str) -> None:
    """The rows of all three: features -1 or 1, two of which matter."""
    rng = np.random.default_rng(3)
    X = rng.choice([-1.0, 1.0], size=(N, D))
    y = 0.6 * X[:, 1] - 0.4 * X[:, 5] + rng.uniform(-0.05, 0.05, N)
    Dataset.from_arrays(place, X=X, y=y, label=(y > 0).astype(int), partition_rows=2048)


def job(name: str, rows: str, output: str, **more: Any) -> dict[str, Any]:
    """A run as a job, in this process, with noise from a seed."""
    asked = {key: value for key, value in RUNS[name].items() if key != "arrays"}
    asked["params"] = asked["params"] | {"random_state": 1}
    return {
        **asked,
        "data": {"path": rows, "arrays": RUNS[name]["arrays"]},
        "output": output,
        "cluster": "threads",
        **more,
    }


def run(folder: Path, name: str, rows: str, output: str, **more: Any) -> dict[str, np.ndarray]:
    """What a run releases."""
    path = folder / "job.yaml"
    path.write_text(json.dumps(job(name, rows, output, **more)))
    assert run_job(load_job(path))["status"] == "done"
    return released(output)


def released(output: str) -> dict[str, np.ndarray]:
    """What the output of a run holds; a store that is still away is waited for."""
    return result_store(output).read_arrays("released.zarr")

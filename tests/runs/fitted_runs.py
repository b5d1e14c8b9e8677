"""Run directories made from models that were really fitted, in the format of ``dpdist run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dpdist import Budget, Dataset, Ledger
from dpdist.problems import linear_problems as synthetic
from dpdist.runs.provenance import environment


def record(model: Any, dataset: Dataset, **changes: Any) -> dict[str, Any]:
    """The record of a fit, as `dpdist.jobs.run` would write it; ``changes`` replace entries."""
    guarantee = model.guarantee_.to_dict()
    run = {
        "format": "dpdist-run/1",
        "id": "dp-gd",
        "title": "Gradient descent on all rows with Gaussian noise",
        "estimator": type(model).__name__,
        "run_id": "0123456789abcdef",
        "status": "done",
        "started": "2026-01-31T02:00:00Z",
        "finished": "2026-01-31T02:00:01Z",
        "seconds": 1.234,
        "rounds": model.n_iter_,
        "passes": float(len(model.releases_)),
        "asked": {
            "method": "dp-gd",
            "data": {"generate": "logit", "n": dataset.n_rows, "random_state": 0},
            "params": {"classes": list(getattr(model, "classes_", [])), "row_norm": 1.0},
            "budget": {"epsilon": guarantee["epsilon"], "delta": guarantee["delta"]},
        },
        "dataset": {
            "id": dataset.id,
            "source": "generated: logit",
            "n_rows": dataset.n_rows,
            "arrays": {k: {"dtype": s.dtype, "shape": list(s.shape)} for k, s in dataset.arrays.items()},
            "unit": "row",
            "max_rows_per_unit": 1,
            "columns": {},
        },
        "guarantee": guarantee,
        "simulation": guarantee["simulation"],
        "plan": {"accountant": model.plan_.accountant, "items": model.plan_.describe()},
        "releases": [
            {
                "index": r.index,
                "name": r.name,
                "shape": list(r.value.shape),
                "noise_std": r.noise_std,
                "sensitivity": r.sensitivity,
                "rms": float(np.sqrt(np.mean(r.value**2))),
            }
            for r in model.releases_
        ],
        "metrics": {"error": 0.0123, "nonprivate_error": 0.0004, "trivial_error": 0.31, "what": "excess log-loss"},
        "budget": {
            "ledger": "ledger.sqlite",
            "before": {"epsilon": 0.5, "delta": 1e-7},
            "after": {"epsilon": 1.5, "delta": 1.1e-6},
            "limit": {"epsilon": 3.0, "delta": 1e-5},
        },
        "released": {"path": "released.zarr", "arrays": {}},
        "environment": environment(),
    }
    return json.loads(json.dumps({**run, **changes}, default=lambda value: value.item()))


def arrays_of(model: Any) -> dict[str, np.ndarray]:
    """Released arrays of a fit, with the released iterates."""
    return {
        "coef": np.asarray(model.coef_),
        "intercept": np.asarray(model.intercept_),
        "history": np.array(model.history_),
    }


def write(folder: Path, run: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Put both where a run would."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))
    group = zarr.open_group(folder / "released.zarr", mode="w")
    for name, values in arrays.items():
        group.create_array(name, data=values, chunks=values.shape or "auto")
    return folder


def fit(estimator: type, n_rows: int = 20_000, n_features: int = 12, **parameters: Any) -> tuple[Any, Dataset]:
    """A fit to generated rows, with secret noise unless ``random_state`` is given."""
    dataset, _ = synthetic.logit(n_rows, n_features)
    ledger = Ledger(":memory:")
    ledger.set_limit(dataset.id, Budget(3.0, 1e-5))
    common: dict[str, Any] = {"row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "ledger": ledger}
    return estimator(**{**common, **parameters}).fit(dataset), dataset

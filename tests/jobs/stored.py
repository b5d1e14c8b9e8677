"""A job on a small stored dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpdist import Dataset


def stored_job(folder: Path, *more: str) -> Path:
    """Write the dataset and the job, with these lines more, and return the job's path; the ledger is beside them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)) / 2
    Dataset.from_arrays(folder / "rows.zarr", X=X, y=(X[:, 0] > 0).astype(int), partition_rows=500)
    path = folder / "job.yaml"
    lines = (
        "method: dp-gd",
        f"data: {{path: {folder}/rows.zarr}}",
        "params: {classes: [0, 1], row_norm: 1.0}",
        "budget: {epsilon: 1.0, delta: 1.0e-6}",
        f"ledger: {folder}/ledger.sqlite",
        *more,
    )
    path.write_text("\n".join(lines))
    return path

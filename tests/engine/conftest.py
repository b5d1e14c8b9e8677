"""Small datasets and the shortest way to a release, for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.estimators.row_maps import ClassCodes, features
from dpdist.losses import Logistic
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.gradient_sums import GradientSum

QUERY = GradientSum(Logistic(), row_norm=1.0, clip_norm=1.0)
ARRAYS = {"X": features, "y": ClassCodes((0, 1))}


@pytest.fixture(scope="session")
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 5)) / 2
    return {"X": X, "y": (X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0).astype(int)}


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def coordinate(ledger) -> Callable[..., Coordinator]:
    def make(dataset: Dataset, **options: Any) -> Coordinator:
        options = {"ledger": ledger, "cluster": "threads", **options}
        return Coordinator(dataset, Budget(1.0, 1e-6), arrays=ARRAYS, **options)

    return make


def gradients(coordinator: Coordinator, n_rounds: int = 3) -> np.ndarray:
    """A few dependent releases."""
    item = coordinator.plan([Item("gradient", Gaussian(), count=n_rounds)])["gradient"]
    w, values = np.zeros(5), []
    for _ in range(n_rounds):
        values.append(coordinator.release(QUERY, item, w))
        w = w - values[-1] / coordinator.dataset.n_rows
    return np.array(values)

"""Losses that are not convex on real tables that no rule was made with: never worse than the start, or a constant."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Minimizer
from dpdist.central import MirrorDescent, SaddleEscape, TrustRegion
from dpdist.constraints import L1Ball, L2Ball
from dpdist.losses import Biweight, Sigmoid
from tests.benchmarks.answers.real_tables import TABLES, loaded

ROWS = 6000
SWINGS = 0.01
"""By how much more Frank-Wolfe may end above a constant: on a ball it keeps swinging along the border (0.0043 on one of
these tables), which is why ``solver="gradient"`` is what to take there."""
COMMON = {"epsilon": 1.0, "delta": 1e-6, "cluster": "threads", "random_state": 0}
SOLVERS = {
    "gradient": {"solver": "gradient"},
    "momentum": {"solver": "momentum"},
    "langevin": {"solver": "langevin"},
    "trust region": {"solver": TrustRegion()},
    "mirror": {"solver": MirrorDescent(), "constraint": L1Ball(3.0), "fit_intercept": False},
    "frank-wolfe": {"solver": "frank-wolfe", "constraint": L2Ball(3.0), "fit_intercept": False},
    "saddle escape": {"solver": SaddleEscape(), "constraint": L2Ball(3.0), "fit_intercept": False},
}


def table(name):
    """Some of its rows with a constant column, their norm at most, and labels: two classes, or numbers in [-1, 1]."""
    X, y = loaded(name)
    chosen = np.random.default_rng(0).permutation(len(X))[:ROWS]
    row_norm = (len(TABLES[name].ranges) + len(TABLES[name].levels) + 1) ** 0.5
    return np.column_stack([X[chosen], np.ones(len(chosen))]), y[chosen], row_norm


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("affairs", Sigmoid()),
        pytest.param("nlswork: union", Sigmoid(), marks=pytest.mark.slow),
        ("CPS1988: log wage", Biweight(1.0)),
        pytest.param("share spent on food", Biweight(0.5), marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_never_worse_than_the_start_or_a_constant(name, loss, solver):
    X, y, row_norm = table(name)
    y = np.where(y == 1, 1, -1) if loss.labels == "signs" else y
    options = {**COMMON, "row_norm": row_norm, **SOLVERS[solver]}
    model = Minimizer(loss, **options).fit(X, y)
    value = loss.value(model._linear_predictor(X), y).mean()
    constants = [loss.value(np.full(len(y), c), y).mean() for c in np.linspace(-3, 3, 61)]
    assert value < loss.value(np.zeros(len(y)), y).mean() + 1e-9, "the start"
    assert value < min(constants) + (SWINGS if solver == "frank-wolfe" else 0.002)

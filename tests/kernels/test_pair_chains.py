"""Online descents over pairs: against plain NumPy, and their rounding against its bound."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.pair_chains import chain_error, pair_chain
from dpdist.privacy.accounting.contraction import OnlinePath
from dpdist.queries.pair_iterates import OnlinePoints

N, D = 60, 3


def plainly(X, y, path, radius, row_norm):
    """In extended precision."""
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    y = np.where(good & (abs(y) == 1), y, 0.0)
    X = np.where(good[:, None], X, 0.0).astype(np.longdouble)
    X = X * np.minimum(1, row_norm * (1 - 1e-12) / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    v, points = np.zeros(D, dtype=np.longdouble), []
    for t, eta in enumerate(path.steps):
        held = np.arange(t) if path.past is None else path.past[t][path.past[t] >= 0]
        if eta > 0:
            gradient = path.ridge * v
            for j in held:
                if y[t] * y[j] == -1:
                    k = 1 / (1 + np.exp(2 * y[t] * (X[t] - X[j]) @ v))
                    gradient = gradient - 2 * k * y[t] * (X[t] - X[j]) / len(held)
            v = v - eta * gradient
            v = v * min(1, radius / max(np.sqrt(v @ v), 1e-300))
        points.append(v)
    return np.array(points)


@pytest.mark.parametrize("memory", ["all", "fifo", "rsx"])
@pytest.mark.parametrize("radius", [0.3, 5.0])
def test_points_are_those_of_the_definition(memory, radius):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, D)), rng.choice([-1.0, 1.0, 1.0, 0.0], N)
    X[5], y[7] = np.nan, np.inf
    path = OnlinePath(N, 0.3, 16.0, "contract", memory, 1 if memory == "all" else 5)
    found = pair_chain(X, y, path.steps, path.ridge, radius, 2.0, path.past)
    apart = np.linalg.norm((found - plainly(X, y, path, radius, 2.0)).astype(float), axis=1)
    bound = chain_error(path.steps, path.ridge, radius, 2.0, D)
    assert (apart <= bound).all() and bound.max() < 1e-10 and abs(found).max() > 0.05


def test_extreme_rows_leave_finite_points():
    X, y = np.array([[1e308] * D, [-1e308] * D, [5e-324] * D, [np.inf] * D] * 5), np.tile([1.0, -1.0], 10)
    path = OnlinePath(20, 1e-6, 4.0)
    assert np.isfinite(pair_chain(X, y, path.steps, path.ridge, 1e50, 1e40)).all()


def test_a_new_row_moves_its_step_by_nearly_the_whole_pull_and_never_by_more():
    """Rare pairs bring the point far along an axis; then one row is on the wrong side of nearly all before it."""
    n = 3000
    rows, y = np.ones((n, 1)), -np.ones(n)  # nearly all: negative, at +1
    y[::10], rows[5::10] = 1.0, -1.0  # some positive beside them, some negative on the other side
    path = OnlinePath(n, 1e-3, 4.0)
    query = OnlinePoints(1.0, 100.0, 1, path)
    assert query.moves.each.tolist() == path.moves(4.0, 200.0).each.tolist()
    other, other_y = rows.copy(), y.copy()
    rows[-1], y[-1] = -1.0, 1.0
    other[-1], other_y[-1] = 1.0, 1.0
    first, second = (query.points({"X": X, "y": signs}) for X, signs in ((rows, y), (other, other_y)))
    assert np.array_equal(first[:-1], second[:-1])
    assert 0.7 * 4.0 < abs(first[-1, 0] - second[-1, 0]) / path.steps[-1] <= 4.0

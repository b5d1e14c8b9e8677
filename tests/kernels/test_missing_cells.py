"""Bounded gradients of rows with missing cells: against NumPy, exact over parts, and never above the bound."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.grid import grid_for
from dpdist.kernels.latent import MissingCells
from dpdist.kernels.missing_cells import missing_cells_gradient
from dpdist.kernels.truncation import SoftTruncation


def rows(d, dtype, seed):
    """With missing cells, two rows that are null, and one of which nothing is there."""
    rng = np.random.default_rng(seed)
    X, y, b = (2 * rng.normal(size=(60, d))).astype(dtype), 3 * rng.normal(size=60), rng.normal(size=d)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[3, 0], X[5], y[7] = np.inf, np.nan, np.nan
    good = ~np.isinf(X).any(axis=1) & np.isfinite(y)
    return X, y, b, good


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 5, 8, 67])
def test_the_sum_is_that_of_bounded_gradients_and_of_its_parts(d, dtype, exact):
    X, y, b, good = rows(d, dtype, d)
    g = MissingCells(0.9, exact=exact).row_gradients(X[good].astype(np.float64), y[good], b)
    for bound in (0.3, 1e6):
        grid = grid_for(bound)
        found = missing_cells_gradient(X, y, b, 0.9, bound, grid=grid, exact=exact)
        clipped = g * np.minimum(1.0, bound / np.maximum(np.linalg.norm(g, axis=1), 1e-300))[:, None]
        np.testing.assert_allclose(found * grid, -clipped.sum(axis=0), atol=60 * grid + 1e-9)
        parts = [
            missing_cells_gradient(X, y, b, 0.9, bound, grid=grid, exact=exact, rows=np.array([i])) for i in range(60)
        ]
        assert np.array_equal(found, sum(parts)) and not parts[3].any() and not parts[7].any()
        assert all(sum(int(v) ** 2 for v in part) <= (bound / grid) ** 2 for part in parts)
    mapped = SoftTruncation(0.7)
    found = missing_cells_gradient(X, y, b, 0.9, mapped, grid=grid_for(mapped.bound), exact=exact)
    np.testing.assert_allclose(found * grid_for(mapped.bound), -mapped(g).sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("bound", [1e-6, 1.0, 1e9])
def test_no_row_adds_more_than_the_bound(bound):
    rng, grid = np.random.default_rng(0), grid_for(bound)
    values = [0.0, 5e-324, 1e-200, 1.0, 1e30, 1.7e308, np.nan, -1.7e308, np.inf]
    most = 0.0
    for _ in range(2000):
        x, y, b = rng.choice(values, 4), rng.choice(values, 1), rng.normal(size=4) * 10.0 ** rng.integers(-50, 50)
        part = missing_cells_gradient(x[None], y, b, 10.0 ** rng.integers(-3, 3), bound, grid=grid)
        most = max(most, sum(int(v) ** 2 for v in part) / (bound / grid) ** 2)
    assert 0.9 < most <= 1.0

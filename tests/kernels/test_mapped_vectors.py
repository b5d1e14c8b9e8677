"""Compiled maps against those of NumPy: the same integers, whatever the rows, the factors and their places."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.block_pass import aligned
from dpdist.kernels.coordinate_gradients import _add as add_mapped_rows
from dpdist.kernels.coordinate_gradients import coordinate_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.mapped_vectors import add_mapped
from dpdist.kernels.truncation import HardClip, SmoothTruncation, SoftTruncation
from dpdist.losses import Squared
from tests.kernels.test_truncation import MAPS, floats

ENTRIES = [0.0, -0.0, 5e-324, -1e-310, 2.2e-308, 1e-160, 1e-20, -0.3, 1.0, -2.5, 1e9, 1e38]


@pytest.mark.parametrize("bounded", [HardClip(0.7), SoftTruncation(1 / 3), SmoothTruncation(9.2)], ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_are_those_of_the_products_one_by_one(bounded, dtype):
    """Factors from an offset, rows in any order and more than once, totals that are not zero."""
    assert add_mapped_rows.py_func.__globals__["add_mapped"] is add_mapped
    rng = np.random.default_rng(8)
    grid = grid_for(bounded.bound)
    constants = bounded.constants(grid)
    for d in (1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 140):
        X = rng.choice(ENTRIES, (12, d)).astype(dtype)
        rows = rng.integers(0, 12, 29)
        factors = rng.choice([0.0, -0.0, 1e-300, 1.0, -0.7, 2.0**500], 33) * constants.per_scale
        totals = aligned(-(-d // 8) * 8 + 1)
        totals[:d] = 5.0
        add_mapped_rows(totals, X, rows, factors, 3, 29, 0, constants)
        with np.errstate(over="ignore", under="ignore"):
            products = [np.multiply(factors[3 + k], X[i], dtype=np.float64) for k, i in enumerate(rows)]
        expected = 5 + sum(bounded.units(product, grid).astype(np.int64) for product in products)
        assert totals[:d].tolist() == expected.tolist()
        assert np.abs(expected).max() > 5 and not totals[d:].any()
        add_mapped_rows(totals, X, rows, factors, 0, 0, 0, constants)
        assert totals[:d].tolist() == expected.tolist()


@pytest.mark.filterwarnings("ignore:overflow encountered in multiply")
def test_compiled_maps_give_the_same_integers():
    # One row times l' = 1 in a single call: its coordinates are the units of its entries.
    u = floats(4, 40_000)
    u = u[np.isfinite(u)]
    for bounded in MAPS:
        grid = grid_for(bounded.bound)
        x = u * bounded.scale
        x = x[np.isfinite(x)]
        row = coordinate_gradient(x[None], [-1.0], np.zeros(len(x)), Squared(), bounded, grid=grid)
        expected = bounded.units(x * bounded.constants(grid).per_scale, grid)
        assert np.array_equal(row, expected.astype(np.int64)), bounded
        inside = np.abs(bounded(x) / grid - row)
        assert inside.max() < 1 + 1e-3  # truncated, and otherwise the value


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_that_share_a_vector(dtype):
    # where few columns are left, a vector holds those of several rows; the last rows of a block come one by one
    rng = np.random.default_rng(6)
    for beta in (1.0, 9.2, 100.0):
        bounded = SmoothTruncation(beta, 0.8)
        grid = grid_for(bounded.bound)
        for n, d in [(1, 1), (9, 1), (40, 2), (15, 3), (24, 4), (31, 5), (17, 8), (50, 11), (23, 50), (300, 18)]:
            X = rng.standard_cauchy((n, d)).astype(dtype)
            got = coordinate_gradient(X, -np.ones(n), np.zeros(d), Squared(), bounded, grid=grid)
            expected = bounded.units(X.astype(float) * bounded.constants(grid).per_scale, grid).sum(axis=0)
            assert np.array_equal(got, expected.astype(np.int64)), (beta, n, d)
            chosen = rng.permutation(n)[: n // 2 + 1]
            got = coordinate_gradient(X, -np.ones(n), np.zeros(d), Squared(), bounded, grid=grid, rows=chosen)
            expected = bounded.units(X[chosen].astype(float) * bounded.constants(grid).per_scale, grid).sum(axis=0)
            assert np.array_equal(got, expected.astype(np.int64)), (beta, n, d)

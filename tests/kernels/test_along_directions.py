"""Coordinates of rows along directions: as long as the row, and the same bits alone and in company."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.along_directions import coordinates


def directions(d, k, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, k)))[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "k"), [(1, 1), (5, 2), (40, 8), (40, 11), (9, 9)])
def test_they_are_the_products_and_the_length(d, k, dtype):
    X, U = np.random.default_rng(1).normal(size=(50, d)).astype(dtype), directions(d, k)
    found = coordinates(X, U)
    assert found[:, :k] == pytest.approx(X.astype(float) @ U, abs=1e-12)
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.linalg.norm(X.astype(float), axis=1))


def test_a_row_has_the_same_bits_alone_and_in_company():
    X, U = np.random.default_rng(2).normal(size=(30, 37)), directions(37, 5)
    X[3], X[4], X[5, 2] = 1e300, 0.0, np.nan
    found = coordinates(X, U)
    for k in range(30):
        assert np.array_equal(coordinates(X[k : k + 1], U)[0], found[k], equal_nan=True)
        assert np.array_equal(coordinates(X[k:], U)[0], found[k], equal_nan=True)


def test_wild_rows_are_null_rows_or_as_long_as_numbers_allow():
    X = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e308, 1e308], [5e-324, 0.0], [-1e200, 0.0], [0.0, 0.0]])
    found = coordinates(X, np.array([[1.0], [0.0]]))
    assert np.isnan(found[:2]).all() and np.isfinite(found[2:]).all()
    assert found[2, 0] == pytest.approx(found[2, 1]) and found[2, 0] > 1e50
    assert found[4, 0] < -1e50 and abs(found[4, 1]) < 1e-6 * abs(found[4, 0])
    assert not found[5].any() and np.abs(found[3]).max() < 1e-300

"""Second moments are exact integer sums of products of truncated, clipped rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels import moments
from dpdist.kernels.clip import clip_l2, unit_l2
from dpdist.kernels.grid import to_units
from dpdist.kernels.moments import moment_grid, moment_radius, second_moment, unpack_symmetric


def bad_rows(n, d, seed):
    X = np.random.default_rng(seed).normal(size=(n, d)) * 2
    X[0, 0], X[1, -1], X[2], X[3], X[4] = np.nan, -np.inf, 1e308, 5e-324, 0.0
    return X


def exact(X, row_norm, intercept):
    h = np.sqrt(moment_grid(np.hypot(row_norm, intercept)))
    units = to_units(clip_l2(X, row_norm), h).astype(object)
    if intercept:
        column = np.where(np.isfinite(X).all(axis=1), int(Fraction(intercept) / Fraction(float(h))), 0)
        units = np.hstack([units, column.astype(object)[:, None]])
    return units, units.T @ units


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row_norm, intercept", [(1.0, 0.0), (1.0, 1.0), (3.7, 0.2), (1e-20, 1e3)])
def test_matches_python_integers(dtype, row_norm, intercept):
    with np.errstate(over="ignore"):
        X = bad_rows(300, 7, 0).astype(dtype)
    units, expected = exact(X, row_norm, intercept)
    packed = second_moment(X, row_norm, intercept=intercept)
    assert packed.dtype == np.int64
    assert np.array_equal(unpack_symmetric(packed).astype(object), expected)
    limit = Fraction(row_norm) ** 2 + Fraction(intercept) ** 2
    grid = Fraction(moment_grid(np.hypot(row_norm, intercept)))
    for row in units:
        assert sum(int(u) ** 2 for u in row) * grid <= limit
        assert max(abs(int(u)) for u in row) <= 2**20


def test_full_panels_are_exact():
    # Every entry at its largest: a panel's sums reach 2**52, the place where float64 would start to round.
    X = np.tile([[1 - 1e-9, 2.0**-20]], (3 * moments.PANEL_ROWS + 17, 1)) * [1.0, 0.5]
    units, expected = exact(X[:1], 1.0, 0.0)
    assert units[0, 0] == 2**20 - 1
    packed = second_moment(X, 1.0)
    assert [int(v) for v in packed] == [len(X) * int(expected[i, j]) for i, j in ((0, 0), (0, 1), (1, 1))]


def test_any_split_gives_the_same_integers():
    X = bad_rows(9001, 5, 1)
    whole = second_moment(X, 1.5, intercept=0.5)
    order = np.random.default_rng(2).permutation(len(X))
    assert np.array_equal(second_moment(X[order], 1.5, intercept=0.5), whole)
    for size in (7, 1000, 4096, 5000):
        m = 700 if size == 7 else len(X)
        parts = [second_moment(X[i : min(i + size, m)], 1.5, intercept=0.5) for i in range(0, m, size)]
        assert np.array_equal(sum(parts), second_moment(X[:m], 1.5, intercept=0.5))


def test_replacing_a_row():
    rng = np.random.default_rng(3)
    r, grid = 1.3, Fraction(moment_grid(1.3))
    worst = 0.0
    for _ in range(300):
        a, b = rng.normal(size=(2, 1, 3)) * 10.0 ** rng.uniform(-3, 3, (2, 1, 1))
        difference = unpack_symmetric(second_moment(a, r)).astype(object) - unpack_symmetric(second_moment(b, r))
        frobenius2 = sum(int(v) ** 2 for v in difference.ravel()) * grid**2
        assert frobenius2 <= 2 * Fraction(r) ** 4
        eigenvalues = np.linalg.eigvalsh(difference.astype(float)) * float(grid)
        assert np.abs(eigenvalues).max() <= r**2 * (1 + 1e-13)
        worst = max(worst, float(frobenius2) ** 0.5 / (np.sqrt(2) * r**2))
    assert worst > 0.99


def test_close_to_numpy():
    X = np.random.default_rng(4).normal(size=(5000, 6))
    X /= np.linalg.norm(X, axis=1)[:, None] * 1.001
    matrix = unpack_symmetric(second_moment(X, 1.0).astype(float)) * moment_grid(1.0)
    np.testing.assert_allclose(matrix, X.T @ X, atol=5000 * 2.0**-19)


def test_python_integers_beyond_int64(monkeypatch):
    X = bad_rows(100, 3, 5)
    expected = second_moment(X, 1.0)
    monkeypatch.setattr(moments, "fits_int64", lambda n_rows, unit_bound: n_rows < 100)
    wide = second_moment(X, 1.0)
    assert wide.dtype == object and wide.tolist() == expected.tolist()
    assert isinstance(wide[0], int)


def test_unpacking():
    matrix = unpack_symmetric(np.arange(6))
    assert matrix.tolist() == [[0, 1, 2], [1, 3, 4], [2, 4, 5]]
    with pytest.raises(ValueError, match="triangle"):
        unpack_symmetric(np.arange(5))


def test_refuses():
    with pytest.raises(ValueError, match="row_norm"):
        second_moment(np.ones((2, 2)), np.inf)
    with pytest.raises(ValueError, match="intercept"):
        second_moment(np.ones((2, 2)), 1.0, intercept=-1.0)
    with pytest.raises(DataError):
        second_moment(np.ones(3), 1.0)
    assert second_moment(np.empty((0, 2)), 1.0).tolist() == [0, 0, 0]


def joined(X, y, row_norm, unit, label_bound, label_scale):
    """Rows with their labels in units, in Python integers."""
    radius = moments.moment_radius(row_norm, labels=label_bound * label_scale)
    h, margin = np.sqrt(moment_grid(radius)), 1 - 1e-12
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    units = to_units((unit_l2 if unit else clip_l2)(X, row_norm), h).astype(object)
    column = to_units(np.clip(y, -label_bound, label_bound) * (label_scale * margin), h)
    units = np.hstack([units, column.astype(object)[:, None]])
    units[~good] = 0
    return units


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("label_bound, label_scale", [(2.0, 1.0), (1e6, 1e-6), (0.1, 30.0)])
def test_labels_join_the_rows(dtype, unit, label_bound, label_scale):
    with np.errstate(over="ignore"):
        X = bad_rows(5000, 7, 6).astype(dtype)
    y = np.random.default_rng(7).normal(size=5000) * label_bound
    y[5], y[6], y[7], y[8] = np.nan, np.inf, 1e308, -1e-320
    units = joined(X, y, 1.3, unit, label_bound, label_scale)
    packed = second_moment(X, 1.3, unit=unit, labels=(y, label_bound, label_scale))
    assert np.array_equal(unpack_symmetric(packed).astype(object), units.T @ units)
    grid = Fraction(moment_grid(moments.moment_radius(1.3, labels=label_bound * label_scale)))
    limit = Fraction(1.3) ** 2 + (Fraction(label_bound) * Fraction(label_scale)) ** 2
    assert max(sum(int(u) ** 2 for u in row) for row in units) * grid <= limit


def test_rows_of_unit_norm_count_alike():
    X = bad_rows(300, 4, 8)
    X[5:9] *= np.array([1e-300, 1e-160, 1e160, 1e300])[:, None]
    matrix = unpack_symmetric(second_moment(X, 2.0, unit=True).astype(float)) * moment_grid(2.0)
    n_good = np.count_nonzero(np.isfinite(X).all(axis=1) & (X != 0).any(axis=1))
    assert np.trace(matrix) == pytest.approx(4 * n_good, rel=1e-5)
    np.testing.assert_array_equal(second_moment(X[10:], 2.0, unit=True), second_moment(X[10:] / 64, 2.0, unit=True))


@pytest.mark.parametrize("n", [0, 1, 2, 9000, 9001])
def test_pairs_are_differences_of_consecutive_rows(n):
    X, y = bad_rows(9001, 3, 9)[:n] + 5.0, np.random.default_rng(10).normal(size=9001)[:n] + 7.0
    even = n - n % 2
    first, second = X[:even:2], X[1:even:2]
    with np.errstate(all="ignore"):
        rows, labels = (first - second) * np.sqrt(0.5), (y[:even:2] - y[1:even:2]) * np.sqrt(0.5)
        found = second_moment(X, 1.5, paired=True, labels=(y, 1.0, 1.0))
    assert np.array_equal(found, second_moment(rows, 1.5, labels=(labels, 1.0, 1.0)))


def test_pairs_have_the_covariance_of_the_rows_and_no_mean():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(20_000, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.3], [0.0, 0.0, 0.5]]) + 100.0
    found = unpack_symmetric(second_moment(X, 20.0, paired=True).astype(float)) * moment_grid(20.0) / 10_000
    np.testing.assert_allclose(found, np.cov(X.T), atol=0.1)


def test_truncated_products_break_the_bound_that_truncated_factors_keep():
    """What `second_moment` must not do: sqrt(2) r^2 is a property of matrices of rank one."""
    rng, worst = np.random.default_rng(12), 0.0
    for _ in range(2000):
        a, b = rng.normal(size=(2, 3))
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        products = np.trunc(np.outer(a, a) * 8) / 8 - np.trunc(np.outer(b, b) * 8) / 8
        worst = max(worst, np.linalg.norm(products))
    assert worst > 1.001 * np.sqrt(2)


def test_what_is_joined_to_a_row_is_scaled_down_with_it():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    X[0], X[1], X[2], X[3, 0], y[4] = 1e300, 1e-300, 0.0, np.inf, np.nan
    packed = second_moment(X, 0.9, intercept=0.5, labels=(y, 2.0, 0.3), whole=True)
    good = np.isfinite(X).all(axis=1) & np.isfinite(y)
    with np.errstate(over="ignore"):
        factors = np.minimum(1.0, 0.9 / np.maximum(np.linalg.norm(X[good], axis=1), 1e-300))[:, None]
    Z = np.column_stack([X[good], np.full(good.sum(), 0.5), 0.3 * np.clip(y[good], -2, 2)]) * factors
    Z[0] = [0.9 / 3**0.5] * 3 + [0.0, 0.0]  # a row so long that what is joined to it vanishes
    matrix = unpack_symmetric(packed.astype(float)) * moment_grid(moment_radius(0.9, 0.5, 0.6))
    np.testing.assert_allclose(matrix, Z.T @ Z, atol=200 * 2.0**-18)
    with pytest.raises(ValueError, match="no pairs"):
        second_moment(X, 1.0, paired=True, whole=True)

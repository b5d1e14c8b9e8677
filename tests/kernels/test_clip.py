"""Clipped rows obey their bound exactly (checked with rationals), whatever the floats were."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.clip import clip_l2, kappa, row_norms, sanitise

EXTREME = np.array([
    [np.nan, 0.0, 1.0], [np.inf, 1.0, -1.0], [-np.inf, np.nan, 0.0], [1e308, 1e308, 1e308],
    [-1.7976931348623157e308, 1.7976931348623157e308, 0.0], [5e-324, -5e-324, 5e-324], [2.3e-308, 5e-324, 0.0],
    [1e-200, 1e-170, 0.0], [0.0, -0.0, 0.0], [1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [1e200, 1e-200, 1.0],
    [1 / 3, 2 / 3, 2 / 3],
])  # fmt: skip
BOUNDS = [1.0, 0.1, 1e-30, 1e30, 2.0**-200, 2.0**200, 1 / 3]


def rows():
    rng = np.random.default_rng(0)
    return np.concatenate([EXTREME, rng.normal(size=(200, 3)) * 10.0 ** rng.uniform(-40, 40, (200, 1))])


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_hold_exactly(bound):
    X = rows()
    limit = Fraction(bound)
    finite = np.isfinite(X).all(axis=1)
    clipped = clip_l2(X, bound)
    assert clipped.shape == X.shape and np.isfinite(clipped).all()
    assert not clipped[~finite].any()
    sizes = [sum(Fraction(v) ** 2 for v in row) for row in clipped]
    assert limit**2 * Fraction(999, 1000) <= max(sizes) <= limit**2  # reached: the test could fail


def test_long_rows_stay_inside():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 3000)) * 50
    for row in clip_l2(X, 1.0):
        assert sum(Fraction(v) ** 2 for v in row) <= 1


def test_rows_inside_are_untouched_and_directions_kept():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 4))
    assert np.array_equal(clip_l2(X, 100.0), X)
    scaled = clip_l2(X, 0.5)
    np.testing.assert_allclose(scaled, X * (0.5 / np.linalg.norm(X, axis=1))[:, None], rtol=1e-11)


def test_float32_rows_are_bounded_in_float64():
    X = np.full((2, 1000), 3e38, dtype=np.float32)
    clipped = clip_l2(X, 1.0)
    assert clipped.dtype == np.float64
    assert sum(Fraction(v) ** 2 for v in clipped[0]) <= 1


def test_sanitise():
    X = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0], [5.0, 6.0], [7.0, -np.inf]])
    y = np.array([1.0, 1.0, 0.5, np.nan, -1.0])
    clean, labels, weight = sanitise(X, y, labels="signs")
    assert weight.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert labels.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert clean.tolist() == [[1.0, 2.0]] + [[0.0, 0.0]] * 4
    assert sanitise(X, y)[2].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]
    assert sanitise(X)[2].tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert np.isnan(X[1, 0])  # the input is not changed


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf, 1e-300, 1e300])
def test_refuses_what_cannot_be_a_public_bound(bound):
    with pytest.raises(ValueError, match="bound must be"):
        clip_l2(np.ones((1, 2)), bound)


def test_kappa_covers_long_rows():
    assert kappa(1) == kappa(5000) == 1e-12
    assert kappa(10**6) == (10**6 + 16) * 2.0**-53


def test_norms_do_not_depend_on_other_rows_or_on_the_layout():
    X = np.random.default_rng(2).normal(size=(12, 9000))
    norms = row_norms(X)
    np.testing.assert_array_equal([row_norms(row[None])[0] for row in X], norms)
    np.testing.assert_array_equal(row_norms(np.asfortranarray(X)), norms)

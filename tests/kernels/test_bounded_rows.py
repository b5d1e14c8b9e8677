"""Bounded rows against fractions, entry by entry."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.clip import kappa

ENTRIES = [0.0, -0.0, 5e-324, -1e-310, 1e-200, -1e-20, 0.3, -1.0, 2.0, 1e9, -1e38, 1e200, -1.7e308]


def rows(d, dtype):
    rng = np.random.default_rng(d)
    with np.errstate(over="ignore", under="ignore"):
        X = rng.choice(ENTRIES, (60, d)) * rng.choice([1.0, 1.0, 1e-150], (60, 1))
        X[:2], X[2, 0], X[3, -1], X[4] = 0.0, np.nan, np.inf, -np.inf
        X = X.astype(dtype)
    y = rng.choice([1.0, -2.5, 1e300, 5e-324, np.nan, -np.inf], 60, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    return X, y


def plain(x, y, row_norm, feature_bound, scale_labels):
    """The row and its label in fractions, and the factor (a float, of which the last bits do not count)."""
    if not (np.isfinite(x).all() and math.isfinite(y)):
        return [Fraction(0)] * len(x), Fraction(0)
    row, label = [Fraction(float(v)) for v in x], Fraction(y)
    if feature_bound is not None:
        row = [max(-Fraction(feature_bound), min(v, Fraction(feature_bound))) for v in row]
    biggest = max(abs(v) for v in row)
    if row_norm is not None and biggest:
        limit = Fraction(row_norm * (1 - kappa(len(x))))
        root = Fraction(math.sqrt(float(sum((v / biggest) ** 2 for v in row))))
        if biggest * root > limit:
            factor = limit / (biggest * root)
            row, label = [v * factor for v in row], label * factor if scale_labels else label
    return row, label


@pytest.mark.parametrize("d", [1, 2, 7, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("scale_labels", [False, True])
def test_rows_are_those_of_fractions_and_within_their_bounds(d, dtype, order, scale_labels):
    X, y = rows(d, dtype)
    for row_norm, feature_bound in [(None, None), (1.0, None), (None, 0.5), (3.0, 2.0), (1e-30, 1e5), (1e150, None)]:
        out, labels = bounded_rows(
            np.asarray(X, order=order), y[:, None], row_norm=row_norm, feature_bound=feature_bound,
            scale_labels=scale_labels,
        )  # fmt: skip
        assert out.dtype == labels.dtype == np.float64 and labels.shape == (60,)
        for i in range(60):
            expected, label = plain(X[i], float(y[i]), row_norm, feature_bound, scale_labels)
            vanishing = Fraction(1, 10**322) * Fraction(max(1.0, row_norm or 0.0))  # an entry is divided by the largest
            close = [abs(Fraction(a) - b) <= abs(b) / 10**13 + vanishing
                     for a, b in zip([*out[i], labels[i]], [*expected, label], strict=True)]  # fmt: skip
            assert all(close)
            if row_norm is not None:
                assert sum(Fraction(v) ** 2 for v in out[i]) <= Fraction(row_norm) ** 2
            if feature_bound is not None:
                assert np.abs(out[i]).max() <= feature_bound


def test_what_is_given_stays_as_it_was_and_no_rows_are_none():
    X, y = rows(3, np.float64)
    kept = X.copy(), y.copy()
    bounded_rows(X, y, row_norm=0.1, scale_labels=True)
    assert np.array_equal(X, kept[0], equal_nan=True) and np.array_equal(y, kept[1], equal_nan=True)
    out, labels = bounded_rows(X[:0], y[:0], row_norm=1.0)
    assert out.shape == (0, 3) and labels.shape == (0,)

"""Rows in the box and in the ball against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.clip import kappa
from dpdist.kernels.entries import ball_values, box_values, finite_rows

ENTRIES = [0.0, -0.0, 5e-324, 1e-310, -1e-200, 1e-20, 0.3, -1.0, 2.0, -7.0, 1e9, 1e38, -1e200, 1.7e308]


def rows(d, dtype):
    rng = np.random.default_rng(d)
    with np.errstate(over="ignore", under="ignore"):
        X = rng.choice(ENTRIES, (50, d))
        X[:20] = rng.choice(ENTRIES[5:10], (20, d))
        X[20], X[21, 0], X[22, -1], X[23] = 0.0, np.nan, np.inf, -np.inf
        return X.astype(dtype)


@pytest.mark.parametrize("d", [1, 2, 4, 9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_finite_rows_and_boxes(d, dtype, order):
    X = np.asarray(rows(d, dtype), order=order)
    finite = np.zeros(50, dtype=bool)
    finite_rows(X, finite)
    assert finite.tolist() == [all(math.isfinite(v) for v in row) for row in X] and not finite[21:24].any()
    for low, high in [(-1.0, 1.0), (0.0, 3.0), (-1e308, 1e308), (2.0, 2.0 + 1e-9)]:
        centre, radius = low / 2 + high / 2, high / 2 - low / 2
        out = np.full((50, d), np.nan)
        box_values(X, low, high, centre, radius, out)
        assert np.abs(out).max() <= 1
        for i in range(50):
            for x, got in zip(X[i], out[i], strict=True):
                cut = max(Fraction(low), min(Fraction(float(x)), Fraction(high))) if finite[i] else Fraction(centre)
                exact = (cut - Fraction(centre)) / Fraction(radius)
                near = 1e-15 + 2.0**-52 * abs(centre / radius)  # the difference is rounded
                assert abs(Fraction(got) - max(-1, min(exact, 1))) <= near


@pytest.mark.parametrize("d", [1, 2, 4, 5, 9, 30])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("radius", [1.0, 1e-30, 0.7, 1e9])
def test_balls(d, dtype, order, radius):
    X, target = np.asarray(rows(d, dtype), order=order), 1 - kappa(d)
    out = np.full((50, d), np.nan)
    ball_values(X, radius, target, out)
    for x, got in zip(X, out, strict=True):
        assert sum(Fraction(v) ** 2 for v in got) <= 1
        exact = [Fraction(float(v)) / Fraction(radius) if np.isfinite(x).all() else Fraction(0) for v in x]
        biggest = max(abs(v) for v in exact)
        if biggest:
            root = Fraction(math.sqrt(float(sum((v / biggest) ** 2 for v in exact))))
            if biggest * root > Fraction(target):
                exact = [v * Fraction(target) / (biggest * root) for v in exact]
        assert all(abs(Fraction(a) - b) <= abs(b) / 10**14 + Fraction(2, 10**322)
                   for a, b in zip(got, exact, strict=True))  # fmt: skip

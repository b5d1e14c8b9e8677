"""The arithmetic of vector reports against fractions, and against loops with the same order of addition."""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np
import pytest

from dpdist.kernels import unit_vectors
from dpdist.kernels.unit_vectors import UNITS, lifted_products, products, rounded_reports, rounded_sum

DIMENSIONS = [1, 2, 3, 4, 5, 8, 31]


@numba.njit
def row_product(A, B, i, d):
    return unit_vectors.row_product(A, B, i, d)


def four_sums(a, b):
    p = [np.float64(0.0)] * 4
    whole = len(a) - len(a) % 4
    for j in range(len(a)):
        lane = j % 4 if j < whole else 0
        p[lane] = p[lane] + np.float64(a[j]) * np.float64(b[j])
    return (p[0] + p[1]) + (p[2] + p[3])


def vectors(d, seed=0):
    """Rows of norm at most 1: zero, tiny, of norm 1 up to rounding, and one that rounding put above."""
    V = np.random.default_rng(seed).normal(size=(12, d))
    V /= np.linalg.norm(V, axis=1)[:, None]
    V[0], V[1], V[2], V[3] = 0.0, 5e-324, V[3] * 1e-170, V[4] * (1 + 2e-16)
    V[5:9] *= np.array([0.5, 1e-8, 0.999999999, 1.0])[:, None]
    return V


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("d", [0, *DIMENSIONS])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_row_products_have_a_fixed_order(d, dtype, order):
    rng = np.random.default_rng(d)
    entries = [0.0, -0.0, 1e-40, -0.1, 1.0, 3.7, 1e30, -1e38]
    A, B = (np.asarray(rng.normal(size=(20, d + 2)), dtype=dtype, order=order) for _ in range(2))
    A[:6], B[:6] = rng.choice(entries, (2, 6, d + 2))
    A[5, 0] = np.inf
    for i in range(20):
        a, b = A[i, :d].astype(np.float64), B[i, :d].astype(np.float64)
        assert np.array_equal(row_product(A, B, i, d), four_sums(a, b), equal_nan=True)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_lifted_products(d):
    G, V = np.random.default_rng(d).normal(size=(12, d + 1)), vectors(d)
    given, (dot, norm2, scale) = V.copy(), np.empty((3, 12))
    lifted_products(G, V, dot, norm2, scale)
    assert np.array_equal(V, given)
    for g, v, scaled, a, b in zip(G, given, V * scale[:, None], dot, norm2, strict=True):
        square = sum((Fraction(x) ** 2 for x in v), Fraction(0))
        last = math.sqrt(max(0.0, float(1 - square)))
        norm = math.sqrt(float(square) + last**2)
        exact = sum((Fraction(x) * Fraction(y) for x, y in zip(g, v, strict=False)), Fraction(0))
        # near the sphere the last coordinate is the root of a number with a rounding error
        error = 1e-13 + min(3e-8, 1e-15 / last if last else 1.0)
        assert abs(a - (float(exact) + g[d] * last) / norm) < error * (1 + abs(g[d]))
        assert abs(b - float(sum(Fraction(x) ** 2 for x in g))) < 1e-13
        assert np.allclose(scaled, v / norm, rtol=1e-15, atol=5e-324)
        lifted = sum(Fraction(x) ** 2 for x in scaled)
        assert lifted <= 1 + Fraction(1, 2**50)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_reports_are_rounded_and_clamped_and_sums_are_theirs(d, order):
    rng = np.random.default_rng(d)
    G, V = np.asarray(rng.normal(size=(40, d + 1)), order=order), np.asarray(rng.normal(size=(40, d)), order=order)
    a, b = rng.choice([0.0, 1e-7, 1.0, -3.0, 1e300], 40), rng.choice([0.0, 0.5, 2.0, -1e300], 40)
    for limit in (2.0**31 - 1, 2.0**22, 3.0):
        reports, total = np.full((40, d), 9, dtype=np.int32), np.full(d, 5)
        rounded_reports(G, V, a, b, limit, reports)
        for i in range(40):
            for j in range(d):
                value = (a[i] * G[i, j] + b[i] * V[i, j]) * UNITS
                rounded = round(Fraction(value)) if math.isfinite(value) else math.copysign(limit, value)
                assert reports[i, j] == max(-limit, min(rounded, limit))
        rounded_sum(G, V, a, b, limit, total)
        assert (total - 5).tolist() == [sum(int(v) for v in column) for column in reports.T]
    none = np.zeros(d, dtype=np.int64)
    rounded_sum(G[:0], V[:0], a[:0], b[:0], 1.0, none)
    assert not none.any()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_products_of_vectors_of_any_norm(d):
    rng = np.random.default_rng(d)
    G, V = rng.normal(size=(9, d)), rng.normal(size=(9, d)) * 10.0 ** rng.integers(-100, 100, (9, 1))
    dots, norms = products(G, V)
    for g, v, dot, norm in zip(G, V, dots, norms, strict=True):
        terms = [Fraction(x) * Fraction(y) for x, y in zip(g, v, strict=True)]
        assert abs(Fraction(dot) - sum(terms)) <= sum(map(abs, terms)) / 10**14
        assert abs(norm - math.sqrt(sum(Fraction(x) ** 2 for x in g))) < 1e-13

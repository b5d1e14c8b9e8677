"""The steps of a block of rows against loops over numbers, in the order of addition that is promised: the same bits."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from dpdist.kernels import block_steps
from dpdist.kernels.block_pass import aligned
from dpdist.kernels.block_steps import (
    DERIVATIVE,
    FACTOR,
    LABEL,
    LANES,
    MARGIN,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    WORK_SIZE,
)

DIMENSIONS = [1, 2, 7, 8, 9, 16, 33, 63, 64, 65, 72, 131]
NUMBERS = [0.0, -0.0, 5e-324, 1e-310, -1e-200, 1e-60, 0.1, -1.0, 3.5, 1e60, -1e200, 1e308, np.inf, -np.inf, np.nan]


@numba.njit
def dots_and_norms2(X, rows, n, w, work):
    block_steps.dots_and_norms2(X, rows, n, w, work, 0)


@numba.njit
def add_truncated(totals, X, rows, work, n):
    block_steps.add_truncated(totals, X, rows, work, n, 0)


@numba.njit
def row_factors(work, n, row_limit, shift, signs):
    return block_steps.row_factors(work, n, row_limit, shift, signs)


@numba.njit
def row_units(work, n, largest, by_norm, clip_limit, per_grid, intercept):
    return block_steps.row_units(work, n, largest, by_norm, clip_limit, per_grid, intercept)


def lane_sum(values):
    """Lane ``j % 8`` in the order of j; then i and i + 4, i and i + 2, i and i + 1."""
    lanes = [np.float64(0.0)] * LANES
    for j, value in enumerate(values):
        lanes[j % LANES] = lanes[j % LANES] + value
    for width in (4, 2, 1):
        lanes = [lanes[i] + lanes[i + width] for i in range(width)]
    return lanes[0]


def same(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


def matrix(n, d, dtype, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-30, 30, (n, 1))
    wild = rng.random((n, d)) < 0.05
    with np.errstate(over="ignore", under="ignore"):
        return np.where(wild, rng.choice(NUMBERS, (n, d)), X).astype(dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dots_and_norms_have_the_promised_order(d, dtype):
    rng = np.random.default_rng(d)
    X = matrix(30, d, dtype, d)
    w = aligned(-(-d // LANES) * LANES + 1)
    w[:d] = rng.normal(size=d)
    for n in (0, 1, 7, 8, 9, 21):
        rows = rng.integers(0, 30, n)
        work = np.full(WORK_SIZE, 7.0)
        dots_and_norms2(X, rows, n, w, work)
        x = X[rows].astype(np.float64)
        assert same(work[MARGIN : MARGIN + n], [lane_sum(row * w[:d]) for row in x])
        assert same(work[NORM2 : NORM2 + n], [lane_sum(row * row) for row in x])
        rest = np.delete(work, [*range(MARGIN, MARGIN + n), *range(NORM2, NORM2 + n)])
        assert (rest == 7.0).all()


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_truncated_products_are_added_exactly(d, dtype):
    rng = np.random.default_rng(d)
    X = (rng.normal(size=(20, d)) * 10.0 ** rng.integers(-9, 4, (20, d))).astype(dtype)
    X[3], X[4, 0] = 0.0, 1e-42
    for n in (0, 1, 8, 19):
        rows = rng.integers(0, 20, n)
        work, totals = aligned(WORK_SIZE), aligned(-(-d // LANES) * LANES + 1)
        work[UNITS : UNITS + n] = rng.normal(size=n) * 2.0 ** rng.integers(0, 30, n)
        totals[:d] = np.arange(d)
        add_truncated(totals, X, rows, work, n)
        expected = [j + sum(int(work[UNITS + k] * float(X[i, j])) for k, i in enumerate(rows)) for j in range(d)]
        assert totals[:d].tolist() == expected and not totals[d:].any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("row_limit", [0.7, 2.0**200, np.inf])
def test_factors_margins_labels_and_rare_rows(signs, row_limit):
    norms2 = np.array([1.0, 0.25, 1e30, NORM2_LOW, NORM2_HIGH, 3.0, 1e-100, 1e100, 2.0])
    rare = [0.0, 5e-324, np.nextafter(NORM2_LOW, 0), np.nextafter(NORM2_HIGH, np.inf), np.inf, np.nan]
    labels = np.array([1.0, -1.0, 0.5, np.nan, np.inf, 1 + 2**-52, -0.0, 1.0, 1e308])
    for n in (1, 7, 8, 9):
        for odd in [None, *rare]:
            work = np.full(WORK_SIZE, np.nan)  # what lies behind the last row does not count
            work[NORM2 : NORM2 + n], work[LABEL : LABEL + n] = norms2[:n], labels[:n]
            margins = np.linspace(-3, 1e9, n)
            work[MARGIN : MARGIN + n] = margins
            if odd is not None:
                work[NORM2 + n - 1] = odd
            assert row_factors(work, n, row_limit, 0.375, signs) == (odd is not None)
            for k in range(n - (odd is not None)):
                factor = min(np.float64(row_limit) / math.sqrt(norms2[k]), 1.0)
                assert work[FACTOR + k] == factor and work[MARGIN + k] == margins[k] * factor + 0.375
                known = not signs or abs(labels[k]) == 1.0
                assert same(work[LABEL + k], labels[k] if known else np.nan)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("by_norm", [False, True])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_units_and_the_sum_of_the_constant_feature(by_norm, intercept):
    derivatives = np.array([0.3, -7.0, 1e300, -np.inf, np.nan, 0.0, -0.0, 5e-324, -1e-3, 1.0, 2.5])
    labels = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 0.0, 9.0, np.nan, -np.inf, 1e308])
    norms2 = np.array([1.0, 0.25, 4.0, 1.0, 1.0, 9.0, 1.0, 1e-100, 1.0, 1.0, 1e100])
    factors = np.array([1.0, 0.5, 0.25, 1.0, 1.0, 1 / 3, 1.0, 1.0, 1.0, 1.0, 1e-50])
    for largest in (2.0, 2.0**500):
        for odd in (None, 0.0, np.inf, np.nan):
            for n in (1, 7, 8, 11):
                work = np.full(WORK_SIZE, np.nan)
                for offset, values in ((DERIVATIVE, derivatives), (LABEL, labels), (NORM2, norms2), (FACTOR, factors)):
                    work[offset : offset + n] = values[:n]
                if odd is not None:
                    work[NORM2] = odd
                total = row_units(work, n, largest, by_norm, 0.8, 2.0**30, intercept)
                constant = []
                for k in range(n):
                    c = derivatives[k] if np.isfinite(derivatives[k]) and np.isfinite(labels[k]) else 0.0
                    c = max(min(c, largest), -largest)
                    assert work[DERIVATIVE + k] == c
                    if by_norm:
                        size = abs(c) * math.sqrt((factors[k] * factors[k]) * norms2[k] + intercept * intercept)
                        c *= min(np.float64(0.8) / size, 1.0)
                    units = 0.0 if odd is not None and k == 0 else c * 2.0**30
                    assert work[UNITS + k] == units * factors[k]
                    constant.append(np.trunc(units * intercept))
                assert total == lane_sum(constant)


def test_a_borrowed_tuple_is_the_same():
    @numba.njit
    def first_and_rest(value):
        array, (number, inner) = block_steps.borrow(value)
        return array[0] + number + inner[-1]

    array, inner = np.array([2.0, 3.0]), np.array([5.0, 7.0], dtype=np.float32)
    assert first_and_rest((array, (1, inner))) == 10.0

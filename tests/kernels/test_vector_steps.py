"""Vector code for shifted rows and rows with missing cells against NumPy: the same bits, in the promised order."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from dpdist.kernels import vector_steps
from dpdist.kernels.block_pass import aligned
from dpdist.kernels.block_steps import DERIVATIVE, FACTOR, LANES, MARGIN, NORM2, UNITS, WORK_SIZE
from tests.kernels.test_block_steps import DIMENSIONS, lane_sum, matrix, same

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.parametrize("d", DIMENSIONS),
    pytest.mark.parametrize("dtype", [np.float64, np.float32]),
]
COUNTS = (0, 1, 7, 8, 9, 21)


@numba.njit
def shift_rows(X, rows, n, vector, work, out):
    vector_steps.shift_rows(X, rows, n, vector, work, out, 0)


@numba.njit
def seen_cells(X, rows, n, w, work):
    vector_steps.seen_cells(X, rows, n, w, work, 0)


@numba.njit
def fill_cells(X, rows, n, w, work, out):
    vector_steps.fill_cells(X, rows, n, w, work, out, 0)


@numba.njit
def clip_factors(work, n, limit):
    return vector_steps.clip_factors(work, n, limit)


def drawn(d, dtype, n):
    """Rows and places of them, a padded vector, scratch with scalars of rows, and room for what is written."""
    rng = np.random.default_rng(d + n)
    X, places = matrix(30, d, dtype, d), rng.integers(0, 30, n)
    vector, work, out = aligned(-(-d // LANES) * LANES + 1), np.full(WORK_SIZE, 7.0), np.full((22, d), 5.0)
    vector[:d] = rng.normal(size=d)
    for offset in (UNITS, DERIVATIVE):
        work[offset : offset + n] = rng.normal(size=n)
    return X, places, vector, work, out, X[places].astype(np.float64)


def test_shifted_rows(d, dtype):
    for n in COUNTS:
        X, places, vector, work, out, x = drawn(d, dtype, n)
        expected = work[UNITS : UNITS + n, None] * x + vector[:d]
        shift_rows(X, places, n, vector, work, out)
        assert same(out[:n], expected) and (out[n:] == 5.0).all()
        assert same(work[NORM2 : NORM2 + n], [lane_sum(v * v) for v in expected])


def test_cells_that_are_seen_and_filled(d, dtype):
    for n in COUNTS:
        X, places, w, work, out, x = drawn(d, dtype, n)
        missing = np.isnan(x)
        seen, lost = np.where(missing, 0.0, x), np.where(missing, w[:d], 0.0)
        c, h = work[UNITS : UNITS + n, None].copy(), work[DERIVATIVE : DERIVATIVE + n, None].copy()
        seen_cells(X, places, n, w, work)
        for offset, products in ((MARGIN, seen * w[:d]), (NORM2, seen * seen), (FACTOR, lost * lost)):
            assert same(work[offset : offset + n], [lane_sum(row) for row in products])
        fill_cells(X, places, n, w, work, out)
        filled = np.where(missing, h * w[:d], c * x)
        assert same(out[:n], filled) and (out[n:] == 5.0).all()
        assert same(work[NORM2 : NORM2 + n], [lane_sum(v * v) for v in filled])


def test_factors_that_clip(d, dtype):
    for n in COUNTS:
        X, places, vector, work, out, _ = drawn(d, dtype, n)
        shift_rows(X, places, n, vector, work, out)
        norm2 = work[NORM2 : NORM2 + n].copy()
        rare = clip_factors(work, n, 0.9)
        ordinary = (norm2 > 1e-200) & (norm2 < 1e200)
        expected = np.minimum(1.0, 0.9 / np.sqrt(norm2[ordinary]))
        assert same(work[UNITS : UNITS + n][ordinary], expected) and (rare or ordinary.all())

"""Column sums of squares: agreement with NumPy, bounds for any row, exact sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.grid import grid_for
from dpdist.kernels.squares import square_sums
from tests.kernels.test_gradients import ADVERSARIAL, data, with_bad_rows


@pytest.mark.parametrize("d", [1, 3, 8, 50])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_agrees_with_numpy(d, dtype):
    X, y, _ = data(300, d, d, dtype=dtype)
    X, _ = with_bad_rows(X, y)
    for row_norm, bound in [(1.0, 1.0), (3.0, 0.4), (1e3, 1e3)]:
        with np.errstate(under="ignore"):
            squares = np.minimum(clip_l2(X, row_norm) ** 2, bound**2)
        expected = np.trunc(squares / grid_for(bound**2)).sum(axis=0)
        # a rounding error of the norm can flip the truncation of a row
        assert np.abs(square_sums(X, row_norm, bound) - expected).max() <= 300
        assert expected.max() > 1e4


def test_every_term_lies_in_its_range():
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.array(ADVERSARIAL), rng.normal(size=(50, 3)) * 10.0 ** rng.integers(-20, 20, (50, 1))])
    largest = 0.0
    for row_norm, bound in [(1.0, 1.0), (2.0, 0.3), (1e-40, 1e-40), (1e50, 1.0)]:
        limit = Fraction(bound**2) / Fraction(grid_for(bound**2))
        for row in rows:
            units = square_sums(row[None], row_norm, bound)
            assert all(0 <= int(u) <= limit for u in units)
            largest = max(largest, float(max(map(int, units)) / limit))
            if not np.isfinite(row).all():
                assert not units.any()
    assert largest > 0.999


def test_any_split_gives_the_same_bits():
    X, y, _ = data(5000, 13, 1)
    X, _ = with_bad_rows(X, y)
    whole = square_sums(X, 1.0, 0.7)
    for size in (1, 777):
        m = 300 if size == 1 else 5000
        parts = sum(square_sums(X[i : min(i + size, m)], 1.0, 0.7) for i in range(0, m, size))
        assert np.array_equal(parts, whole if m == 5000 else square_sums(X[:m], 1.0, 0.7))
    assert not square_sums(X[:0], 1.0, 0.7).any()


def test_totals_beyond_float64():
    n = 2**21 + 2**20 + 5
    units = square_sums(np.full((n, 1), 1 - 2.0**-20, dtype=np.float32), 2.0, 1.0)
    one = square_sums(np.full((1, 1), 1 - 2.0**-20, dtype=np.float32), 2.0, 1.0)
    assert int(one[0]) % 2 == 0 and int(units[0]) == int(one[0]) * n > 2**53


def test_refusals():
    with pytest.raises(DataError):
        square_sums(np.zeros(3), 1.0, 1.0)
    for row_norm, bound in [(0.0, 1.0), (1.0, np.inf)]:
        with pytest.raises(ValueError, match="must be"):
            square_sums(np.zeros((2, 2)), row_norm, bound)

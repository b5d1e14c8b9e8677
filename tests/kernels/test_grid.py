"""Grids are exact powers of two, truncation is toward zero, sums are exact in any order."""

from __future__ import annotations

from fractions import Fraction
from math import frexp, nextafter

import numpy as np
import pytest

from dpdist.kernels.grid import GridSum, exact_total, fits_int64, grid_for, to_units


def test_grid_of_powers_of_two_and_their_neighbours():
    for e in range(-300, 301, 7):
        power = 2.0**e
        above = nextafter(power, np.inf)
        for bound, ceiling in ((nextafter(power, 0), e), (power, e), (above, e + 1), (1.7 * power, e + 1)):
            grid = grid_for(bound)
            assert grid == 2.0 ** (ceiling - 32)
            assert frexp(grid)[0] == 0.5
            assert Fraction(bound) / Fraction(grid) <= 2**32
            assert Fraction(bound) / Fraction(grid) > 2**31


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan])
def test_grid_refuses(bound):
    with pytest.raises(ValueError, match="positive and finite"):
        grid_for(bound)


def test_units_truncate_toward_zero_exactly():
    rng = np.random.default_rng(0)
    grid = 2.0**-20
    values = np.concatenate([
        rng.normal(size=2000) * 10.0 ** rng.uniform(-12, 5, 2000),
        [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, grid, -grid, nextafter(grid, 0), -nextafter(grid, 0), 1.5 * grid],
        rng.integers(-(2**40), 2**40, 200) * grid,
    ])  # fmt: skip
    units = to_units(values, grid)
    assert units.dtype == np.int64
    for value, unit in zip(values, units, strict=True):
        assert int(unit) == int(Fraction(value) / Fraction(grid))  # int() truncates toward zero


def test_units_clamp_on_the_integer():
    bound = 2 * np.sqrt(2) / 3
    grid = grid_for(bound)
    values = np.array([bound * (1 + 1e-7), -bound * (1 + 1e-7), np.inf, -np.inf, np.nan, 1e308, bound])
    units = to_units(values, grid, bound=bound)
    assert max(abs(int(u)) for u in units) * Fraction(grid) <= Fraction(bound)
    assert units[2] == units[3] == units[4] == 0
    assert units[5] == units[0] == int(Fraction(bound) / Fraction(grid))
    assert np.abs(to_units(values, 2.0**-1000)).max() == 2**62


def test_sums_are_exact_and_order_free():
    rng = np.random.default_rng(1)
    parts = [GridSum(rng.integers(-(2**63), 2**63, 5, dtype=np.int64), 2.0**-32) for _ in range(200)]
    expected = [sum(int(p.units[j]) for p in parts) for j in range(5)]
    assert max(map(abs, expected)) > 2**63
    for order in (range(200), reversed(range(200)), rng.permutation(200)):
        total = GridSum(np.zeros(5, dtype=np.int64), 2.0**-32)
        for i in order:
            total = total + parts[i]
        assert [int(u) for u in total.units] == expected
        assert [float(v) for v in total.value] == [float(e) * 2.0**-32 for e in expected]


def test_int64_stays_int64_while_it_can():
    a = GridSum(np.array([2**62, -(2**62)]), 1.0)
    assert (a + GridSum(np.array([2**62 - 1, -(2**62)]), 1.0)).units.dtype == np.int64
    wide = a + GridSum(np.array([2**62, -1]), 1.0)
    assert wide.units.dtype == object and wide.units.tolist() == [2**63, -(2**62) - 1]
    assert (wide + a).units.tolist() == [3 * 2**62, -(2**63) - 1]


def test_different_grids_do_not_mix():
    with pytest.raises(ValueError, match="different grids"):
        GridSum(np.array([1]), 0.5) + GridSum(np.array([1]), 0.25)
    with pytest.raises(ValueError, match="shapes"):
        GridSum(np.array([1]), 0.5) + GridSum(np.array([1, 2]), 0.5)
    with pytest.raises(TypeError):
        GridSum(np.array([1]), 0.5) + 1.0


def test_capacity_depends_on_the_row_count_only():
    small = [np.array([1, 2]), np.array([3, -5])]
    assert exact_total(small, n_rows=2**31 - 1).dtype == np.int64
    big = exact_total(small, n_rows=2**31)
    assert big.dtype == object and big.tolist() == [4, -3]
    assert fits_int64(2**23 - 1, 2**40) and not fits_int64(2**23, 2**40)
    full = np.array([2**62])
    assert exact_total([full, full, full.astype(object)], n_rows=2**31).tolist() == [3 * 2**62]

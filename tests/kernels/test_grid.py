"""Grids are exact powers of two, truncation is toward zero, sums are exact in any order."""

from __future__ import annotations

from fractions import Fraction
from math import frexp, nextafter

import numpy as np
import pytest

from dpdist.kernels.grid import add_units, fits_int64, grid_for, to_units


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


@pytest.mark.parametrize("wide", [False, True])
def test_sums_are_exact_and_order_free(wide):
    rng = np.random.default_rng(1)
    most = 2**63 if wide else 2**55
    parts = [rng.integers(-most, most, 5, dtype=np.int64) for _ in range(200)]
    expected = [sum(int(p[j]) for p in parts) for j in range(5)]
    assert (max(map(abs, expected)) > 2**63) is wide
    for order in (range(200), reversed(range(200)), rng.permutation(200)):
        total = None
        for i in order:
            total = add_units(total, parts[i], wide)
        assert [int(u) for u in total] == expected
        assert (total.dtype == object) is wide


def test_a_sum_does_not_touch_its_parts():
    part = np.array([1, 2])
    total = add_units(None, part, False)
    add_units(total, part, False)
    total += 1
    assert part.tolist() == [1, 2]


def test_capacity_depends_on_public_numbers_only():
    assert fits_int64(2**31 - 1) and not fits_int64(2**31)
    assert fits_int64(2**23 - 1, 2**40) and not fits_int64(2**23, 2**40)

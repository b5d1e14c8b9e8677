"""Spreads from noisy counts, and what is cut off, against the numbers that were counted."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.spreads import cut_squares, normal_spread

LAWS = {"normal": lambda rng, n: rng.normal(size=n), "t(3)": lambda rng, n: rng.standard_t(3, size=n),
        "Laplace": lambda rng, n: rng.laplace(size=n)}  # fmt: skip


def counted(sizes, longest, octaves):
    """Of sizes beyond ``longest``, of those in the octave below it, and so on."""
    edges = longest * 2.0 ** np.arange(-octaves, 1.0)
    return np.histogram(sizes, [*edges, np.inf])[0][::-1].astype(float)


@pytest.mark.parametrize("spread", [0.003, 0.05, 0.4])
def test_the_spread_of_normal_numbers_is_found_in_noisy_counts(spread):
    """With noise of 8 % of the number of blocks, as in sample and aggregate: known to a quarter, without bias."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        sizes = np.minimum(np.abs(spread * rng.normal(size=500)), 1.0)
        counts = counted(sizes, 1.0, 10)[1:]
        counts = np.append(counts, 500 - counts.sum()) + rng.normal(0, 40, 11)
        found.append(normal_spread(counts, 40.0, 1.0, 500))
    assert abs(np.mean(found) / spread - 1) < 0.06 and np.std(found) < 0.3 * spread


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("cut", [0.5, 1.35, 3.0, 4.5])
def test_what_is_left_of_squares_that_are_cut_is_known_to_5_percent(law, cut):
    x = LAWS[law](np.random.default_rng(1), 400_000)
    uncut, square = cut_squares(counted(np.abs(x), cut, 12), cut, len(x))
    assert uncut == pytest.approx(np.mean(np.abs(x) <= cut), abs=1e-9)
    assert square == pytest.approx(np.mean(np.clip(x, -cut, cut) ** 2), rel=0.05)


def test_counts_that_are_all_noise_leave_numbers():
    counts = np.random.default_rng(2).normal(0, 50, 13)
    uncut, square = cut_squares(counts, 1.0, 100)
    assert 0 <= uncut <= 1 and np.isfinite(square) and square >= 0
    assert 0 < normal_spread(counts, 50.0, 1.0, 100) <= 1.0

"""Laws of reports and the reports drawn from them, against integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.scalar_reports import (
    CELLS,
    LARGEST,
    WORDS,
    cell_law,
    mixed_law,
    odds,
    scalar_reports,
    sign_law,
)

EPSILONS = [1e-6, 0.1, 1.0, 4.0, 30.0]
VALUES = [-1.0, 1.0, 0.0, -0.0, 5e-324, -1e-310, 0.3, -0.7, 1 - 2**-53, 1 / 3, 1.0000001, -1.5]


def laws(epsilon):
    return [sign_law(epsilon), cell_law(epsilon), mixed_law(epsilon, 0.3), mixed_law(epsilon, 0.999)]


def plain_report(value, word, law):
    """By the description of a law: words are counted, products with the number are rounded as floats are."""
    w = word >> 2
    if w < law.signs:
        threshold = law.signs // 2 + int(value * float(law.signs // 2 - law.least))
        return law.jump if w < min(max(threshold, law.least), law.signs - law.least) else -law.jump
    w -= law.signs
    rest = CELLS - law.band
    start = min(max(rest // 2 + int(np.rint(value * (rest // 2))), 0), rest)
    if w < law.band * law.inside:
        cell = start + w // law.inside
    else:
        w -= law.band * law.inside
        cell = w // law.outside if w < rest * law.outside else w - rest * law.outside  # one more word for a few
        cell += law.band if cell >= start else 0
    return 2 * cell - (CELLS - 1)


def words(law, rng):
    """Where one report ends and another begins, the ends, and random ones."""
    edges = [0, 1, law.signs // 2, law.least, law.signs - law.least, law.signs]
    edges += [law.signs + law.band * law.inside + k * law.outside for k in (0, 1, CELLS - law.band)]
    edges += [law.signs + k * law.inside for k in (1, law.band // 2, law.band)] + [WORDS]
    near = {min(max(edge + shift, 0), WORDS - 1) for edge in edges for shift in (-2, -1, 0, 1)}
    return np.array([*sorted(near), *rng.integers(0, WORDS, 100)], dtype=np.uint64) << np.uint64(2)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_reports_are_counted_from_words(epsilon):
    rng = np.random.default_rng(1)
    for law in laws(epsilon):
        drawn = words(law, rng) | np.uint64(3)  # the last two bits do not count
        for value in VALUES:
            found = scalar_reports(np.full(len(drawn), value), drawn, law)
            assert found.tolist() == [plain_report(value, int(word), law) for word in drawn]
            assert np.abs(found).max() <= law.units
        for value in (np.nan, np.inf, -np.inf, 100.0, -1e200):  # no report about a number, but one that a number has
            assert np.abs(scalar_reports(np.full(len(drawn), value), drawn, law)).max() <= law.units
        table = scalar_reports(np.resize(VALUES, (4, 7)), drawn[:28].reshape(4, 7), law)
        each = [plain_report(v, int(w), law) for v, w in zip(np.resize(VALUES, 28), drawn, strict=False)]
        assert table.ravel().tolist() == each


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_slopes_and_variances_are_those_of_the_counts(epsilon):
    for law in laws(epsilon):
        signs, rest = law.signs, CELLS - law.band
        for value in (0.0, 1.0, -1.0):
            start = rest // 2 + round(value * (rest // 2))
            plus = signs // 2 + math.trunc(value * (signs // 2 - law.least)) if signs else 0
            # sums over cells k of 2 k - (CELLS - 1) and its square: all cells, then the band
            first, last = 2 * start - (CELLS - 1), 2 * (start + law.band - 1) - (CELLS - 1)
            band = law.band * (first + last) // 2
            squares = law.band * Fraction(first + last, 2) ** 2 + Fraction(law.band * (law.band**2 - 1), 3)
            more = law.inside - law.outside
            mean = Fraction(law.jump * (2 * plus - signs) + more * band, WORDS)
            everywhere = law.outside * Fraction(CELLS * (CELLS**2 - 1), 3)
            square = (signs * law.jump**2 + everywhere + more * squares) / WORDS
            assert float(mean) == pytest.approx(law.slope * value, rel=1e-6, abs=1e-9 * law.units)
            variance = float((square - mean**2) / Fraction(law.slope) ** 2)
            assert variance == pytest.approx(law.variance(value), rel=1e-5, abs=1e-9)
        assert law.noise_std == pytest.approx(math.sqrt(max(law.variance(0.0), law.variance(1.0))))


def test_odds_are_below_the_exponential():
    for epsilon in (0.0, 1e-9, *EPSILONS, 100.0):
        exact = math.exp(min(epsilon, LARGEST))
        assert exact * (1 - 1e-14) < odds(epsilon) < exact

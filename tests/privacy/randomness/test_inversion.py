"""Laplace noise by inversion: the very words that each number has, by numbers of any precision."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from dpdist.privacy.randomness import inversion
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.privacy.randomness.discrete import discrete_laplace
from dpdist.privacy.randomness.inversion import DIGITS, LARGEST, laplace_by_inversion
from tests.privacy.randomness.test_discrete import Scripted, bits, chi_square_p, pmf, two_sample_p

ALPHA = 1e-7
SCALES = [1, 2, 3, 1000, 2**21, LARGEST]


def exact(scale: int, digits: int, length: int = DIGITS) -> int:
    """``floor(-scale ln V)`` for V in the middle of ``[digits, digits + 1) 2**-length``."""
    with mpmath.workprec(400):
        value = (mpmath.mpf(digits) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** length
        return int(mpmath.floor(-scale * mpmath.log(value)))


def of_word(scale: int, digits: int, negative: int, *more: int) -> int:
    return int(laplace_by_inversion(scale, 1, Scripted(digits << 1 | negative, *more))[0])


@pytest.mark.parametrize("scale", SCALES)
def test_numbers_are_those_of_the_logarithm(scale: int) -> None:
    rng = np.random.default_rng(scale)
    uniform = [int(d) for d in rng.integers(0, 2**DIGITS, 300)]
    small = [int(d) >> int(s) for d, s in zip(rng.integers(2**62, 2**63, 60), rng.integers(0, 40, 60), strict=True)]
    for digits in (*uniform, *small, 2**DIGITS - 2, 2**62):
        found, more = exact(scale, digits), 2**63  # the middle, where a word is not enough
        if found == exact(scale, digits << 64 | more, DIGITS + 64):
            assert abs(of_word(scale, digits, 0, *[more] * 4)) == found
        if found:
            assert of_word(scale, digits, 1, *[more] * 4) == -found


@pytest.mark.parametrize("scale", SCALES)
def test_a_number_has_all_words_up_to_its_exponential_and_no_other(scale: int) -> None:
    """The edges between two numbers, to the last digit: ``V <= exp(-g / scale)`` is at least g."""
    for g in (1, 2, scale, 7 * scale + 3, 20 * scale):
        with mpmath.workprec(400):
            edge = int(mpmath.floor(mpmath.exp(-mpmath.mpf(g) / scale) * mpmath.mpf(2) ** DIGITS))
            rest = mpmath.exp(-mpmath.mpf(g) / scale) * mpmath.mpf(2) ** DIGITS - edge
            word = int(mpmath.floor(rest * mpmath.mpf(2) ** 64))
        if edge < 2**45:
            continue
        assert of_word(scale, edge - 1, 0, 2**63, 2**63) >= g
        assert of_word(scale, edge + 1, 0, 2**63, 2**63) == g - 1
        # of the word that is neither, the words that follow
        assert of_word(scale, edge, 0, word - 1, 2**63) == g
        assert of_word(scale, edge, 0, word + 1, 2**63) == g - 1


def test_doubles_stay_within_a_third_of_the_margin() -> None:
    rng = np.random.default_rng(0)
    digits = np.concatenate([rng.integers(2**45, 2**63, 3000), 2**63 - 1 - rng.integers(0, 2**30, 500)])
    digits = np.concatenate([digits, (2.0 ** rng.uniform(45, 63, 3000)).astype(np.int64)])
    logs = -np.log((digits.astype(np.float64) + 0.5) * 2.0**-DIGITS)
    with mpmath.workprec(200):
        for d, found in zip(digits.tolist(), logs.tolist(), strict=True):
            for end in (d, d + 1):
                true = -mpmath.log(mpmath.mpf(end) / mpmath.mpf(2) ** DIGITS)
                assert abs(true - found) + 1e-15 * (1 + found) < inversion._MARGIN / 3


@pytest.mark.parametrize("word", [0, 1, 2**45, 2**64 - 2])
def test_the_rarest_words_ask_for_more(word: int) -> None:
    scale = 1000
    found = of_word(scale, word >> 1, word & 1, 5, 7, 9)
    assert abs(found) == exact(scale, ((word >> 1) << 64 | 5) << 64 | 7, DIGITS + 128)


def test_minus_zero_is_drawn_again() -> None:
    one, half = 2**DIGITS - 2, 2**62  # 0 and 0 for scale 1, whose half lies at e^-1
    assert of_word(1, one, 0) == of_word(1, half, 0) == 0
    assert of_word(1, half, 1, half << 1 | 1, 2**60 << 1 | 1) == -exact(1, 2**60)


@pytest.mark.parametrize("scale", [1, 2, 7, 300])
def test_the_law_is_that_of_the_formula(scale: int) -> None:
    found = laplace_by_inversion(scale, 200_000, bits("inversion", scale=scale))
    assert chi_square_p(found, lambda x: pmf(discrete_laplace, scale, x)) > ALPHA


def test_the_law_is_that_of_rejection() -> None:
    scale, n = 2**20, 100_000
    cells = [
        np.floor_divide(draw(scale, n, bits("two", sampler=draw.__name__)), scale // 4)
        for draw in (laplace_by_inversion, discrete_laplace)
    ]
    assert two_sample_p(*cells) > ALPHA


def test_larger_scales_and_other_shapes() -> None:
    class Counted(StreamBits):
        taken = 0

        def words(self, n: int) -> Any:
            self.taken += n
            return super().words(n)

    source = Counted(np.random.default_rng(0))
    assert laplace_by_inversion(2**20, (10, 100), source).shape == (10, 100) and source.taken < 1010
    large = laplace_by_inversion(2**40, 1000, source)
    assert source.taken > 5000 and math.isclose(abs(large).mean(), 2**40, rel_tol=0.2)

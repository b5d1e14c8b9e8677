"""Rounding in machine words is rounding in Python's integers, wherever it says that it is decided."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.privacy.randomness.discrete import dyadic_above
from dpdist.privacy.randomness.rounding import nearest, nearest_of_words

RNG = np.random.default_rng(3)
SCALES = [
    *(Fraction(2) ** e for e in (-30, -3, -1, 0, 1, 13, 38, 52, 56)),
    *(dyadic_above(Fraction(float(v))) for v in (0.37, 3.3, 1e5 / 7, 1e9 / 3, 1e13 / 7, 1e16 / 3)),
]


def edges() -> np.ndarray:
    """Digits at random, at both ends, and about places where a result changes."""
    near = [(1 << i) + o for i in range(1, 64) for o in (-2, -1, 0, 1)]
    return np.array([*RNG.integers(0, 2**64 - 1, 4000, dtype=np.uint64, endpoint=True), 0, 2**64 - 1, *near], np.uint64)


@pytest.mark.parametrize("s", SCALES, ids=lambda s: f"{float(s):.3g}")
def test_what_is_decided_is_what_integers_give(s):
    digits = edges()
    k = RNG.integers(0, 12, digits.size)
    value, decided = nearest_of_words(s, k, digits)
    exact, sure = nearest(s, k.astype(object), digits.astype(object), 64)
    assert (value[decided] == exact[decided]).all()
    assert not (decided & ~sure.astype(bool)).any(), "what is not settled by the digits is not called decided"
    if s < 2**40:
        assert decided.mean() > 0.9, "most are"


@pytest.mark.parametrize("s", [Fraction(1, 3), Fraction(2**43 + 1), Fraction(2) ** 70, Fraction(1, 2**90)])
def test_scales_that_do_not_fit_are_left_undecided(s):
    assert not nearest_of_words(s, np.arange(5), edges()[:5])[1].any()


def test_large_results_are_left_undecided():
    """No integer of 64 bits wraps around."""
    s, digits = Fraction(2) ** 60, edges()
    k = np.where(np.arange(digits.size) % 2, 300, 5)
    value, decided = nearest_of_words(s, k, digits)
    assert not decided[k == 300].any()
    exact, _ = nearest(s, k.astype(object), digits.astype(object), 64)
    assert (value[decided] == exact[decided]).all()
    assert all(v < 2**62 for v in exact[decided])

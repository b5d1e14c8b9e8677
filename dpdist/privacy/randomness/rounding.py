"""Rounding ``s (k + x)`` to an integer for a number ``x`` of which only the first binary digits are known."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_LONGEST = 42  # bits of the numerator of a dyadic number that is split into two halves
_HALF = 21
_LOW = np.uint64(2**_HALF - 1)
_LOW32 = np.uint64(2**32 - 1)
_MOST = 2**8  # larger whole parts are left to Python


def nearest(s: Fraction, k: Any, digits: Any, length: int) -> tuple[Any, Any]:
    """``round(s (k + x))`` for ``x`` in [digits, digits + 1) 2**-length, and whether all of that interval agrees."""
    twice, one = 2 * s.numerator, s.denominator << length
    numerator = twice * ((k << length) + digits) + one
    value = numerator // (2 * one)
    return value, numerator - value * (2 * one) <= 2 * one - twice


def nearest_of_words(s: Fraction, k: NDArray[np.int64], digits: Words) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`nearest` for 64 digits, in machine words: results that it does not say are decided mean nothing.

    ``s = m 2**e`` with ``m < 2**42``, or nothing is decided. ``P = m (2**64 k + digits)`` is held in two words, and
    ``floor(2**(e-64) P + 1/2)``, taken by a shift by ``64 - e`` bits, has to be that of ``P + m`` as well, which no
    ``x`` of the interval reaches.
    """
    m, shift = s.numerator, 64 + s.denominator.bit_length() - 1
    zeros = (m & -m).bit_length() - 1
    m, shift = m >> zeros, shift - zeros
    undecided = np.zeros(k.shape, np.int64), np.zeros(k.shape, np.bool_)
    if s.denominator & (s.denominator - 1) or m.bit_length() > _LONGEST or not 2 <= shift < 127:
        return undecided
    # m * digits: four products of 21 and 32 bits, then into two words
    halves = [(np.uint64(m >> _HALF), _HALF), (np.uint64(m) & _LOW, 0)]
    high, low = np.zeros(k.shape, np.uint64), np.zeros(k.shape, np.uint64)
    for part, by in halves:
        for word, at in ((digits >> np.uint64(32), 32), (digits & _LOW32, 0)):
            high, low = _plus(high, low, *_shifted(word * part, by + at))
    small = k < _MOST
    high = high + np.where(small, k, 0).astype(np.uint64) * np.uint64(m)  # below 2**51
    half = 1 << (shift - 1)
    first = _plus(high, low, np.uint64(half >> 64), np.uint64(half & (2**64 - 1)))
    value = _down(*first, shift)
    last = _down(*_plus(*first, np.uint64(0), np.uint64(m)), shift)
    inside = (value == last) & (value < np.uint64(2**62)) & small
    return value.astype(np.int64), inside


def _plus(high: Words, low: Words, more: Any, less: Any) -> tuple[Words, Words]:
    total = low + less
    return high + more + (total < low), total


def _shifted(value: Words, by: int) -> tuple[Any, Words]:
    """A number below 2**53, moved up by at most 53 bits, in two words."""
    return (value >> np.uint64(64 - by) if by else np.uint64(0)), value << np.uint64(by)


def _down(high: Words, low: Words, by: int) -> Words:
    """A number of two words moved down; one that does not fit a word becomes too large to be taken."""
    if by >= 64:
        return high >> np.uint64(by - 64)
    too_large = high >> np.uint64(by) != 0
    return np.where(too_large, np.uint64(2**64 - 1), (high << np.uint64(64 - by)) | (low >> np.uint64(by)))

"""Random matrices made of real numbers of which as many digits are drawn as a rounded result needs: exact laws.

Noise for symmetric matrices is made of normal and exponential numbers, by products, sums and a root. `Reals` knows them
to `BITS` binary places at first. Integers enclose what is made of them; where both ends round to the same integers,
that is the result for the real numbers as well. Where they do not, about once in ``2**100`` releases, further digits
are drawn, from the exact law of what is known already, until they do: no digit that could matter is ever left out, so
that the released law is that of the real numbers, rounded, and there is nothing to be charged for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import (
    Digits,
    Integers,
    below_exp_exactly,
    rounded_gaussian,
    rounded_laplace,
)

BITS = 224
"""Binary places that are drawn at first."""

_LIMB = 20  # products of two limbs, summed over at most 2**13 columns, are exact in float64
_MOST_COLUMNS = 2**13
_AT_ONCE = 2**18
"""How many numbers are drawn, or entries of a product held, at once: what bounds the memory of a wide matrix."""


class Reals:
    """Independent normal or exponential numbers, each known to lie within one unit of a centre.

    Attributes
    ----------
    centres : ndarray of Python integers
        A number lies in ``[centre - 1, centre + 1]``, in units of ``2**-places``.
    places : int
    """

    def __init__(self, law: Literal["normal", "exponential"], shape: tuple[int, ...], bits: Bits, start: int = BITS):
        draw = rounded_gaussian if law == "normal" else rounded_laplace
        count = math.prod(shape)
        self.centres: Integers = np.empty(count, dtype=object)
        for first in range(0, count, _AT_ONCE):
            nearest = draw(Fraction(2**start), min(_AT_ONCE, count - first), bits).astype(object)
            self.centres[first : first + _AT_ONCE] = 2 * (nearest if law == "normal" else abs(nearest))
        self.centres = self.centres.reshape(shape)
        self._law, self._bits, self._start = law, bits, start
        self._digits: list[Digits] | None = None
        self.places = start + 1

    def refine(self) -> None:
        """Draw further digits of all of them."""
        if self._digits is None:
            self._nearest: Integers = self.centres // 2
            self._digits = [self._inside(int(k)) for k in self._nearest.ravel()]
            length = max((digits.length for digits in self._digits), default=64)
        else:
            length = self._digits[0].length + 64
        for digits in self._digits:
            while digits.length < length:
                digits.extend(self._bits)
        known = np.array([digits.digits for digits in self._digits], dtype=object).reshape(self._nearest.shape)
        low, width = self._cells
        self.centres = (low << length) + width * known + width // 2
        self.places = self._start + 1 + length

    @property
    def _cells(self) -> tuple[Integers, Integers]:
        """Where the cells begin whose numbers were rounded to one integer, and how wide they are."""
        low = 2 * self._nearest - 1
        if self._law == "exponential":  # the cell at 0 is half as wide
            at_zero = np.asarray(self._nearest == 0, dtype=np.bool_)
            return np.where(at_zero, 0, low), np.where(at_zero, 1, 2).astype(object)
        return low, np.full(low.shape, 2, dtype=object)

    def _inside(self, nearest: int) -> Digits:
        """Where in its cell a number lies, drawn by rejection: uniform, and kept as often as its density says."""
        unit = Fraction(1, 2 ** (self._start + 1))
        low, width = (0, 1) if nearest == 0 and self._law == "exponential" else (2 * nearest - 1, 2)

        def ends(digits: Digits) -> tuple[Fraction, Fraction]:
            return (low + width * digits.low) * unit, (low + width * digits.high) * unit

        while True:
            place = Digits(int(self._bits.words(1)[0]))
            coin = Digits(int(self._bits.words(1)[0]))
            if below_exp_exactly(coin, lambda: self._loss(low, width, unit, ends(place)), self._bits, place):  # noqa: B023
                return place

    def _loss(self, low: int, width: int, unit: Fraction, ends: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
        """Bounds of how much smaller the logarithm of the density is than at its largest in the cell."""
        if self._law == "exponential":
            return ends[0] - low * unit, ends[1] - low * unit
        least = 0 if low < 0 < low + width else min(abs(low), abs(low + width))
        squares = sorted(end * end for end in ends)
        if ends[0] < 0 < ends[1]:
            squares[0] = Fraction(0)
        floor = (least * unit) ** 2
        return (squares[0] - floor) / 2, (squares[1] - floor) / 2


def decided(enclose: Callable[[], tuple[Integers, Integers]], *numbers: Reals) -> Integers:
    """The integers that both ends of an enclosure agree on, with as many digits of the numbers as that takes."""
    while True:
        low, high = enclose()
        if np.array_equal(low, high):
            return low
        for each in numbers:
            each.refine()


def gram_enclosed(centres: Integers) -> tuple[Integers, int]:
    """``G G'`` of the centres, packed, and how far that of the numbers may be from it, in the square of their unit.

    ``|x y - a b| <= |a| + |b| + 1`` for ``|x - a|, |y - b| <= 1``.
    """
    return gram(centres), 2 * int(abs(centres).sum(axis=1).max()) + centres.shape[1]


def gram(G: Integers) -> Integers:
    """``G G'`` of integers of any size, exactly, by products of matrices of floats; packed.

    The integers are written in limbs of 20 bits; products of two limbs add up below ``2**53``, so that the order in
    which they are added does not matter.

    Examples
    --------
    >>> gram(np.array([[2**100, -3], [5, 1]], dtype=object)).tolist()[1] == 5 * 2**100 - 3
    True
    """
    if G.shape[1] > _MOST_COLUMNS:
        return gram(G[:, :_MOST_COLUMNS]) + gram(G[:, _MOST_COLUMNS:])
    signs = np.where(np.asarray(G < 0, dtype=np.bool_), -1.0, 1.0)
    rest: Integers = abs(G)
    limbs = []
    while bool(np.any(rest)):
        limbs.append((rest & (2**_LIMB - 1)).astype(np.float64) * signs)
        rest = rest >> _LIMB
    del rest, signs
    size = len(G)
    found: Integers = np.zeros(size * (size + 1) // 2, dtype=object)
    panel, at = max(1, _AT_ONCE // size), 0
    for first in range(0, size if limbs else 0, panel):
        part = _products([limb[first : first + panel] for limb in limbs], [limb[first:] for limb in limbs])
        for i, row in enumerate(part):
            found[at : at + size - first - i] = row[i:]
            at += size - first - i
    return found


def _products(one: Sequence[NDArray[np.float64]], other: Sequence[NDArray[np.float64]]) -> Integers:
    """``A B'`` of two matrices in limbs."""
    total = np.zeros((len(one[0]), len(other[0])), dtype=object)
    for place in reversed(range(2 * len(one) - 1)):
        part = np.zeros(total.shape, dtype=np.int64)
        for i in range(max(0, place - len(one) + 1), min(place, len(one) - 1) + 1):
            part += (one[i] @ other[place - i].T).astype(np.int64)
        total = (total << _LIMB) + part.astype(object)
    return total


def rounded_ratio(numerators: Integers, denominator: Integers | int) -> Integers:
    """The nearest integers to ratios (halves upwards).

    >>> rounded_ratio(np.array([5, -5, 3], dtype=object), 2).tolist()
    [3, -2, 2]
    """
    found: Integers = (2 * numerators + denominator) // (2 * denominator)
    return found

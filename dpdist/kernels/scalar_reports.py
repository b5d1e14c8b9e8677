"""The laws of a report about a number in [-1, 1], counted in 64-bit words.

A report is a function of the number and of one uniform word of 62 bits. How many words lead to a report is an integer
that can be written down, so the ratio of two probabilities is a quotient of integers, not a floating-point promise.
Two kinds of reports, of which a law mixes one or both:

* a *sign*: of ``signs`` words, those below a threshold that grows with the number give ``+jump``, the others
  ``-jump``; either has at least ``least`` words;
* a *cell* of ``cells`` on a line: each of the ``band`` consecutive ones around the number has ``inside`` words, each of
  the others ``outside`` or one more.

Plain NumPy: this is what a device runs. The compiled twin is in `dpdist.kernels.sampled_coordinates`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORDS = 2**62
CELLS = 2**21
LARGEST = 30.0
"""More than this epsilon is not used: the words would not do, and there is nothing left to gain."""


class ScalarLaw(NamedTuple):
    """The integers of a law; what they count is said at the top of this module."""

    signs: int
    least: int
    jump: int
    band: int
    inside: int
    outside: int

    @property
    def units(self) -> int:
        """The largest report, in absolute value."""
        return max(self.jump if self.signs else 0, CELLS - 1 if self.signs < WORDS else 0)

    @property
    def slope(self) -> float:
        """The mean of a report is this times the number."""
        by_sign = self.jump * (self.signs - 2 * self.least)
        by_cell = (self.inside - self.outside) * self.band * (CELLS - self.band)
        return (by_sign + by_cell) / WORDS

    def variance(self, value: float) -> float:
        """Of a report about ``value``, divided by the slope."""
        centre = (CELLS - self.band) * value
        everywhere = CELLS * (CELLS**2 - 1) / 3
        band = self.band * centre**2 + self.band * (self.band**2 - 1) / 3
        cells = self.outside * everywhere + (self.inside - self.outside) * band
        square = (self.signs * float(self.jump) ** 2 + cells) / WORDS
        return square / self.slope**2 - value**2

    @property
    def noise_std(self) -> float:
        """Standard deviation for the number where it is largest; the variance is a parabola in it."""
        return math.sqrt(max(self.variance(0.0), self.variance(1.0)))


def odds(epsilon: float) -> Fraction:
    """Slightly less than e^epsilon."""
    return Fraction(math.exp(min(epsilon, LARGEST))) * (1 - Fraction(1, 2**48))


def sign_law(epsilon: float) -> ScalarLaw:
    """A sign for every word."""
    return ScalarLaw(WORDS, _least(WORDS, epsilon), 1, 0, 0, 0)


def cell_law(epsilon: float, signs: int = 0) -> ScalarLaw:
    """A cell for every word but ``signs``."""
    words = WORDS - signs
    ratio = odds(epsilon)
    band = 2 * max(1, round(CELLS / (2 * (math.exp(min(epsilon, LARGEST) / 2) + 1))))
    rest = CELLS - band
    inside = math.floor(words * ratio / (rest + band * ratio))
    while inside > ratio * ((words - band * inside) // rest):
        inside -= 1 + (inside >> 40)
    return ScalarLaw(signs, 0, 0, band, inside, (words - band * inside) // rest)


def mixed_law(epsilon: float, share: float) -> ScalarLaw:
    """A cell with probability ``share``, otherwise a sign, of equal mean."""
    signs = WORDS - math.floor(share * WORDS)
    least = _least(signs, epsilon)
    cells = cell_law(epsilon, signs)
    jump = round(cells.slope / float(1 - Fraction(2 * least, signs)) * WORDS / (WORDS - signs))
    return cells._replace(least=least, jump=jump)


def scalar_reports(values: NDArray[np.float64], words: NDArray[np.uint64], law: ScalarLaw) -> NDArray[np.int64]:
    """One report per value and word, in arrays of the same shape.

    Parameters
    ----------
    values : ndarray of float64
        In [-1, 1]; what lies outside (or is not a number) is not reported with any other law, by the last clip.
    words : ndarray of uint64
    law : ScalarLaw

    Examples
    --------
    >>> words = np.arange(4, dtype=np.uint64) << np.uint64(62)
    >>> scalar_reports(np.full(4, 0.5), words, sign_law(1.0))
    array([ 1,  1,  1, -1])
    """
    w = (words >> np.uint64(2)).astype(np.int64)
    with np.errstate(invalid="ignore"):
        if law.signs == WORDS:
            return _sign(values, w, law)
        cell = _cell(values, w - law.signs, law)
        return np.where(w < law.signs, _sign(values, w, law), cell) if law.signs else cell


def _sign(values: NDArray[np.float64], w: NDArray[np.int64], law: ScalarLaw) -> NDArray[np.int64]:
    half = law.signs // 2
    threshold = (values * float(half - law.least)).astype(np.int64)
    threshold += half
    np.maximum(threshold, law.least, out=threshold)
    np.minimum(threshold, law.signs - law.least, out=threshold)
    return np.where(w < threshold, law.jump, -law.jump)


def _cell(values: NDArray[np.float64], w: NDArray[np.int64], law: ScalarLaw) -> NDArray[np.int64]:
    rest, inside = CELLS - law.band, law.band * law.inside
    start = np.rint(values * (rest // 2)).astype(np.int64)
    start += rest // 2
    np.maximum(start, 0, out=start)
    np.minimum(start, rest, out=start)
    after = w - inside
    beyond = after // law.outside
    if (last := beyond >= rest).any():  # words that are left over when all cells have as many
        beyond[last] = after[last] - rest * law.outside
    beyond += np.multiply(beyond >= start, law.band)
    start += w // law.inside
    cell = np.where(after < 0, start, beyond)
    cell *= 2
    cell -= CELLS - 1
    return cell


def _least(signs: int, epsilon: float) -> int:
    """The smallest number of words with which a sign can be rare: the odds are at most e^epsilon."""
    return math.ceil(signs / (odds(epsilon) + 1))

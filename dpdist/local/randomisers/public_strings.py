"""Reports about one coordinate through public random numbers, as published; a sign tells more.

Everybody may know numbers ``y`` that are drawn without looking at any record, and a user says something about them: a
bit (`TransformedBit`), or which of several (`RandomCoding`). Both make a report of a Laplace law short, which is what
they were made for, and neither makes it better: a sign is as short, and has less noise.

=================== ===================================================== ===============================
randomiser          report                                                noise at epsilon 1, 4
=================== ===================================================== ===============================
`OneBit`            a sign                                                2.16, 1.04
`RandomCoding`      the number of one of T public numbers                 5.7, 1.4
`TransformedBit`    a bit, that is a public number or 0                   8.4, 6.2
=================== ===================================================== ===============================

(Standard deviation of a decoded report about a number in [-1, 1], where it is largest.) Seed 000, Algorithms 5.1.32 and
5.1.37, which are not private, or waste 9/10 of epsilon, as printed (spec 04, sections 4 and 5). Here all chances are
counted in words of 62 bits, as in `dpdist.kernels.scalar_reports`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.scalar_reports import LARGEST, WORDS, odds
from dpdist.local.survey.protocol import Domain, Sampled, SamplingRandomiser
from dpdist.privacy.randomness.draws import Draws

Floats = NDArray[np.float64]
STEPS = 2**16
"""Public numbers are whole multiples of ``1/STEPS``."""
TAIL = 32
"""They are clamped at so many scales (beyond them: a chance of 1e-14)."""
MOST_STRINGS = 256
"""Public numbers among which one can be chosen: its number is a byte."""
_PAIRS = 2000


@dataclass(frozen=True)
class _PublicNumbers(SamplingRandomiser):
    """A coordinate, drawn uniformly, and a report about it."""

    size: int
    epsilon: float

    domain: ClassVar[Domain] = "box"
    k: ClassVar[int] = 1
    """How many coordinates a user reports."""

    def __post_init__(self) -> None:
        if not (1 <= self.size < 2**31 and 1e-3 <= self.epsilon <= LARGEST):
            raise BudgetError(
                f"{self.name!r} needs a size of at least 1 and an epsilon from .001 to {LARGEST:g}, got "
                f"size={self.size!r} and epsilon={self.epsilon!r}"
            )

    @property
    @abstractmethod
    def slope(self) -> float:
        """The mean of what a report counts is this times the number."""

    @property
    @abstractmethod
    def number_scale(self) -> float:
        """Of the Laplace law of the public numbers, in units of [-1, 1]."""

    @abstractmethod
    def numbers(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """What reports count."""

    @property
    def spread(self) -> float:
        """Variance of a report about a number, at most, with what the choice of the users adds to it."""
        return self.noise_of_one**2 + 1.0

    @property
    @abstractmethod
    def noise_of_one(self) -> float:
        """Standard deviation of a decoded report about the drawn coordinate, where it is largest."""

    @property
    def width(self) -> int:
        return 3

    @property
    def noise_std(self) -> float:
        return math.sqrt(self.size * self.noise_of_one**2 + self.size - 1)

    @property
    def units(self) -> int:
        return int(2 * TAIL * self.number_scale * STEPS) + 2 * STEPS

    @property
    def influence(self) -> float:
        return 2 * self.size * self.units / self.slope

    def sample(self, n_users: int, draws: Draws) -> Sampled:
        words = draws.words(3 * n_users).reshape(n_users, 3)
        coordinates = ((words[:, :1] >> np.uint64(32)) * np.uint64(self.size)) >> np.uint64(32)
        return Sampled(coordinates.astype(np.int64), words[:, 1:])

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """The sums of what is counted about every coordinate, then how many reports there are."""
        total = np.zeros(2 * self.size, np.int64)
        np.add.at(total, reports["coordinate"], self.numbers(reports))
        total[self.size :] = np.bincount(reports["coordinate"], minlength=self.size)
        return total

    def summarise_at(self, sampled: Sampled, values: Floats) -> NDArray[np.int64]:
        return self.accumulate(self.randomise_at(sampled, values))

    def decode(self, total: Floats, n_users: int) -> Floats:
        return self.means(total[: self.size], total[self.size :])

    def means(self, sums: Floats, counts: Floats) -> Floats:
        """Estimates of numbers from the sums of so many reports about them."""
        return sums / np.maximum(counts, 1.0) / self.slope

    def _laplace(self, seeds: NDArray[np.uint64], which: Any) -> Floats:
        """Public Laplace numbers: those of a seed are independent, and the same for everybody."""
        words = _mixed(seeds + np.uint64(0x9E3779B97F4A7C15) * (np.asarray(which, dtype=np.uint64) + np.uint64(1)))
        tail = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # in (0, 1)
        sizes = np.minimum(-np.log(tail), TAIL) * self.number_scale
        numbers = np.rint(np.where(words & np.uint64(1), sizes, -sizes) * STEPS)
        return np.asarray(numbers / STEPS)


@dataclass(frozen=True)
class TransformedBit(_PublicNumbers):
    """The published transform of a Laplace report to one bit, with an epsilon that is small enough.

    A public y is Laplace with scale ``1/e``, and the bit is 1 with probability ``exp(e (|y| - |y - v|)) / 2`` for v in
    [0, 1]: twice the bit times y has the mean v. A bit 0 has probabilities whose ratio is ``1 / (2 - e^e)`` for y above
    1, which is why ``e = ln(2 - e^-epsilon)``, never epsilon itself.

    Examples
    --------
    >>> round(TransformedBit(8, 1.0).inner_epsilon, 3), round(TransformedBit(8, 1.0).noise_of_one, 2)
    (0.49, 8.41)
    """

    tag: ClassVar[str] = "TransformedBit"

    name: ClassVar[str] = "transformed-bit"

    @property
    def inner_epsilon(self) -> float:
        """e."""
        return math.log(2 - math.exp(-self.epsilon))

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("coordinate", np.int32), ("number", np.int32)])

    @property
    def number_scale(self) -> float:
        return 1 / self.inner_epsilon

    @property
    def slope(self) -> float:
        return STEPS / 4  # of y times the bit: v/2 in the mean, and v = (1 + number)/2

    @property
    def noise_of_one(self) -> float:
        return 2 * math.sqrt(4 / self.inner_epsilon**2 + 1)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Fewest words for a bit 1 where y is at least 1/2, and most words for one, ever."""
        return WORDS // 2, math.floor(WORDS * (1 - Fraction(1, 2) / odds(self.epsilon)))

    def thresholds(self, y: Floats, values: Floats) -> NDArray[np.int64]:
        """Words for a bit 1."""
        v = (1 + _bounded(values)) / 2
        words = np.exp(self.inner_epsilon * (np.abs(y) - np.abs(y - v))) / 2 * float(WORDS)
        least, most = self.bounds
        return np.clip(words.astype(np.int64), np.where(y >= 0.5, least, 1), most)

    def randomise_at(self, sampled: Sampled, values: Floats) -> NDArray[Any]:
        y = self._laplace(sampled.words[:, 0], 0)
        bit = (sampled.words[:, 1] >> np.uint64(2)).astype(np.int64) < self.thresholds(y, values[:, 0])
        reports = np.empty(len(values), self.report)
        reports["coordinate"] = sampled.coordinates[:, 0]
        reports["number"] = np.where(bit, np.rint(y * STEPS), 0)
        return reports

    def numbers(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(reports["number"].astype(np.int64))

    def means(self, sums: Floats, counts: Floats) -> Floats:
        return super().means(sums, counts) - 1

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        known = (reports["coordinate"] >= 0) & (reports["coordinate"] < self.size)
        return np.asarray(known & (np.abs(reports["number"].astype(np.int64)) <= self.units))


@dataclass(frozen=True)
class RandomCoding(_PublicNumbers):
    """The number of one of T public numbers, by minimal random coding.

    The numbers are Laplace around the middle, with scale ``2/e`` for v in [-1, 1]; the t-th is chosen with a
    probability in proportion to ``w_t = exp(e/2 (|y_t| - |y_t - v|))``. Another v changes ``w_t`` by at most e^e, and
    the sum of all as well: ``e = epsilon/2`` is epsilon-private for every T, however the numbers fell (Havasi, Peharz
    and Hernandez-Lobato 2019). The weights are whole numbers between two bounds, so that this holds in integers. The
    mean of the chosen number is ``slope v`` where T is large beside e^e. Of too few numbers none lies where it is
    wanted, which the decoder makes up for at v = 1 alone: with T = 64, the mean for a small v is too large by .2 % at
    epsilon 4, 3 % at 10, and 37 % at 20.

    In place of seed 000, Algorithm 5.1.37, which draws a set of numbers first, one by one, and adds up indices.

    Parameters
    ----------
    n_strings : int from 2 to 256, default 64
        T.
    """

    tag: ClassVar[str] = "RandomCoding"

    n_strings: int = 64

    name: ClassVar[str] = "random-coding"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.n_strings, int) and 2 <= self.n_strings <= MOST_STRINGS):
            raise BudgetError(f"n_strings must be a whole number from 2 to {MOST_STRINGS}, got {self.n_strings!r}")

    @property
    def inner_epsilon(self) -> float:
        """e."""
        return self.epsilon / 2

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype([("coordinate", np.int32), ("seed", np.uint32), ("index", np.uint8)])

    @property
    def number_scale(self) -> float:
        return 2 / self.inner_epsilon

    @property
    def slope(self) -> float:
        return STEPS * self._moments[0]

    @property
    def noise_of_one(self) -> float:
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """The mean of the chosen number for v = 1, and its standard deviation over that: by a public simulation."""
        y = self._laplace(np.arange(_PAIRS * 16, dtype=np.uint64)[:, None], np.arange(self.n_strings))
        y = np.concatenate([y, -y])
        w = self.weights(y, np.ones(len(y))).astype(np.float64)
        w /= w.sum(axis=1, keepdims=True)
        mean = float((w * y).sum(axis=1).mean())
        return mean, math.sqrt(float((w * y**2).sum(axis=1).mean()) - mean**2) / mean

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest weight: their ratio squared is less than e^epsilon, by more than a word."""
        least = 2**20
        return least, math.floor(least * odds(self.inner_epsilon) * (1 - Fraction(1, 2**24)))

    def weights(self, y: Floats, values: Floats) -> NDArray[np.int64]:
        """``w_t``, in whole numbers, for the numbers y (a row for each value)."""
        least, most = self.bounds
        v = _bounded(values)[:, None]
        gains = np.exp(self.inner_epsilon / 2 * (1 + np.abs(y) - np.abs(y - v)))  # from 1 to e^e
        return np.clip(np.rint(least * gains).astype(np.int64), least, most)

    def randomise_at(self, sampled: Sampled, values: Floats) -> NDArray[Any]:
        reports = np.empty(len(values), self.report)
        reports["coordinate"] = sampled.coordinates[:, 0]
        reports["seed"] = sampled.words[:, 0] >> np.uint64(32)
        y = self._laplace(reports["seed"].astype(np.uint64)[:, None], np.arange(self.n_strings))
        ends = np.cumsum(self.weights(y, values[:, 0]), axis=1)
        reports["index"] = (self.chosen_from(sampled.words[:, 1], ends)).astype(np.uint8)
        return reports

    @staticmethod
    def chosen_from(words: NDArray[np.uint64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which of the pieces that end there a word lies, pieces of ``[0, 2^62)`` in proportion."""
        total = ends[:, -1:]
        w = (words >> np.uint64(2)).astype(np.int64)[:, None]
        quotient, rest = WORDS // total, WORDS % total
        # floor(2^62 end / total), without a product that overflows
        cuts = quotient * ends + (rest.astype(np.float64) * (ends / total)).astype(np.int64)
        return np.asarray((w >= cuts[:, :-1]).sum(axis=1))

    def numbers(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        y = self._laplace(reports["seed"].astype(np.uint64), reports["index"])
        return np.rint(y * STEPS).astype(np.int64)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        known = (reports["coordinate"] >= 0) & (reports["coordinate"] < self.size)
        return np.asarray(known & (reports["index"] < self.n_strings))


def _bounded(values: Floats) -> Floats:
    """In [-1, 1], whatever they were: what is not a number is the middle, or it would have a law of its own."""
    return np.asarray(np.clip(np.nan_to_num(values), -1.0, 1.0))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Words that look independent of those that go in (SplitMix64; Steele, Lea and Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

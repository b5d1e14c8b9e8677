"""Private selection on integer scores: which candidate is (nearly) best.

Scores are integers (sums in units of their grid), every probability is exact (`dpdist.privacy.randomness.discrete`).
The samplers are rejection samplers: **their running time depends on the scores** (nine times as long for peaked as
for flat ones, where it was measured), which no guarantee covers: it must not be shown to anybody who should not see
the scores.

>>> from dpdist.privacy.randomness.bits import SystemBits
>>> mechanism = ExponentialMechanism().at(0.5)
>>> mechanism.cost
Cost(kind='bounded-range', parameter=1.0)
>>> mechanism.release(np.array([0, 10**9, 7]), sensitivity_units=5, bits=SystemBits())
array([1])
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import (
    Integers,
    bernoulli_exp,
    discrete_laplace,
    dyadic_above,
    dyadic_below,
    uniform_below,
)

_BATCH = 64  # candidates proposed at first; batches grow, since most scores are hopeless when the first batch fails
_MAX_BATCH = 2**14


def select(scores: NDArray[Any], range_sensitivity: float, eps0: float, bits: Bits) -> int:
    """The exponential mechanism: ``P(r)`` proportional to ``exp(eps0 scores[r] / range_sensitivity)``, exactly.

    Parameters
    ----------
    scores : ndarray of integers, shape (n_candidates,)
        Larger is better.
    range_sensitivity : float
        ``sup max_r d(r) - min_r d(r)``, ``d`` the difference of the scores of two neighbours, in units. At most twice
        the sensitivity of a single score, and equal to it where all scores move in one direction.
    eps0 : float
        The release is eps0-DP, and eps0-bounded-range, hence ``eps0**2 / 8``-zCDP (Dong, Durfee and Rogers 2020).
    bits : Bits
        Source of randomness.

    Notes
    -----
    A uniform candidate is accepted with probability ``exp(-rate (max - score))``, ``rate = eps0/range_sensitivity``
    rounded down (by a relative 2**-40 at most). The expected number of proposals is at most ``n_candidates``.
    """
    scores, rate = _scores(scores), _rate(eps0, range_sensitivity)
    best, batch = int(scores.max()), _BATCH
    while True:
        candidates = uniform_below(scores.size, batch, bits)
        hits = np.flatnonzero(_keep(scores[candidates], best, rate, bits))
        if hits.size:
            return int(candidates[hits[0]])
        batch = min(2 * batch, _MAX_BATCH)


def select_top(scores: NDArray[Any], range_sensitivity: float, eps0: float, k: int, bits: Bits) -> NDArray[np.int64]:
    """``k`` different candidates, in the order of ``k`` exponential mechanisms without replacement.

    The law is that of the top ``k`` of one Gumbel-noised score vector (Durfee and Rogers 2019). The ordered list is
    ``k eps0``-DP and ``k eps0**2 / 8``-zCDP by composition: each pick is an exponential mechanism on the scores of
    the remaining candidates.
    """
    scores = _scores(scores)
    if not 1 <= k <= scores.size:
        raise ValueError(f"cannot select k = {k} of {scores.size} candidates; k must lie between 1 and their number")
    remaining = np.arange(scores.size)
    chosen = np.empty(k, dtype=np.int64)
    for i in range(k):
        place = select(scores[remaining], range_sensitivity, eps0, bits)
        chosen[i] = remaining[place]
        remaining = np.delete(remaining, place)
    return chosen


def permute_and_flip(scores: NDArray[Any], sensitivity: float, eps: float, bits: Bits) -> int:
    """Permute-and-flip: visit candidates in random order, accept with ``exp(-eps (max - score) / (2 sensitivity))``.

    Pure eps-DP and never worse than the exponential mechanism at the same epsilon (McKenna and Sheldon 2020), but not
    bounded-range: under zCDP it costs ``eps**2 / 2``, four times the exponential mechanism, which therefore wins
    under composition.
    """
    scores, rate = _scores(scores), _rate(eps, sensitivity, 2)
    best, order, start, batch = int(scores.max()), _permutation(scores.size, bits), 0, _BATCH
    while True:  # ends: a candidate with the best score is accepted for certain
        candidates = order[start : start + batch]
        hits = np.flatnonzero(_keep(scores[candidates], best, rate, bits))
        if hits.size:
            return int(candidates[hits[0]])
        start, batch = start + batch, min(2 * batch, _MAX_BATCH)


def noisy_max(scores: NDArray[Any], sensitivity: float, eps: float, bits: Bits) -> int:
    """Report noisy max: the index of the largest ``score + Z``, ``Z`` discrete Laplace of scale ``2 sensitivity/eps``.

    Ties go to the lowest index. Pure eps-DP, ``eps**2 / 2``-zCDP; only the index may be used, never the noisy values.

    Notes
    -----
    *Why it is private with integer noise and ties.* Fix the noise of all candidates but ``r``. Then ``r`` is chosen if
    and only if ``Z_r >= m``, where ``m`` is an integer: the largest competing value, plus one if that competitor has a
    lower index, minus the score of ``r``. On a neighbour every score moves by at most ``sensitivity``, so the
    competing values rise and the score of ``r`` falls by at most that much, the tie rule stays the same, and
    the new integer threshold is at most ``m + c`` with ``c <= 2 sensitivity``. The discrete Laplace law satisfies
    ``P(Z >= m + c) >= exp(-c / scale) P(Z >= m)`` for integers ``c >= 0``, because ``P(Z = z + c) >= exp(-c / scale)
    P(Z = z)`` for every ``z``. So ``P(r)`` falls by a factor of at most ``exp(-eps)``, given the other noises, hence
    also on average.
    """
    scores = _scores(scores)
    check_positive("eps", eps)
    check_positive("sensitivity", sensitivity)
    scale = dyadic_above(2 * Fraction(sensitivity) / Fraction(eps))
    noise = discrete_laplace(scale, scores.size, bits)
    # Python integers: two int64 could overflow. argmax returns the first of equal values.
    return int(np.argmax(scores.astype(object) + noise.astype(object)))


# --- the same as calibrated objects -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Selection(Mechanism):
    """Releases the number of a coordinate; sensitivity is that of every single score (l-infinity).

    Parameters
    ----------
    strength : float, optional
    signed : bool, default False
        False: the candidates are the coordinates, the largest is best. True: the candidates are the coordinates with
        either sign, ``j`` for the negative of coordinate ``j`` and ``size + j`` for itself: the smallest entry counts
        as much as the largest one (the vertices of an l1 ball against a gradient).
    """

    strength: float | None = None
    signed: bool = False

    norm: ClassVar[float] = math.inf
    in_units: ClassVar[bool] = False

    @abstractmethod
    def _select(self, scores: Integers, sensitivity: float, bits: Bits) -> int:
        """One candidate."""

    def noise_std(self, sensitivity: float) -> float:
        """Standard deviation of Gumbel noise on the scores that would select alike."""
        return 2 * sensitivity / self.cost.parameter * math.pi / math.sqrt(6)

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """The number of the chosen candidate, as an array of one entry."""
        scores = _scores(units)
        if self.signed:
            scores = np.concatenate([-scores if scores.min() > -(2**63) else -scores.astype(object), scores])
        return np.array([self._select(scores, sensitivity_units, bits)])


@dataclass(frozen=True)
class ExponentialMechanism(_Selection):
    """`select` at ``eps0 = 2 strength``: ``strength**2 / 2``-zCDP, like a Gaussian release with that mu."""

    tag: ClassVar[str] = "ExponentialMechanism"

    @property
    def cost(self) -> Cost:
        """eps0-bounded-range."""
        return Cost("bounded-range", 2 * calibrated(self.strength))

    def _select(self, scores: Integers, sensitivity: float, bits: Bits) -> int:
        return select(scores, 2 * sensitivity, self.cost.parameter, bits)


@dataclass(frozen=True)
class PermuteAndFlip(_Selection):
    """`permute_and_flip` at ``eps = strength``."""

    tag: ClassVar[str] = "PermuteAndFlip"

    @property
    def cost(self) -> Cost:
        """Pure epsilon-DP; it is not bounded-range."""
        return Cost("pure", calibrated(self.strength))

    def _select(self, scores: Integers, sensitivity: float, bits: Bits) -> int:
        return permute_and_flip(scores, sensitivity, self.cost.parameter, bits)


@dataclass(frozen=True)
class NoisyMax(_Selection):
    """`noisy_max` at ``eps = strength``."""

    tag: ClassVar[str] = "NoisyMax"

    @property
    def cost(self) -> Cost:
        """Pure epsilon-DP; it is not bounded-range."""
        return Cost("pure", calibrated(self.strength))

    def _select(self, scores: Integers, sensitivity: float, bits: Bits) -> int:
        return noisy_max(scores, sensitivity, self.cost.parameter, bits)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _scores(scores: NDArray[Any]) -> Integers:
    scores = np.asarray(scores)
    if scores.dtype.kind not in "iO":
        raise TypeError(f"scores must be integers (int64 or Python integers), got {scores.dtype}")
    if scores.ndim != 1 or not scores.size:
        raise ValueError(f"scores must be a vector with at least one candidate, got shape {scores.shape}")
    return scores


def _rate(eps: float, sensitivity: float, factor: int = 1) -> Fraction:
    check_positive("epsilon", eps)
    check_positive("sensitivity", sensitivity)
    return dyadic_below(Fraction(eps) / (factor * Fraction(sensitivity)))


def _keep(scores: Integers, best: int, rate: Fraction, bits: Bits) -> NDArray[np.bool_]:
    """Coins with ``P(True) = exp(-rate (best - score))``; Python integers, since a gap of two int64 can overflow."""
    return bernoulli_exp((best - scores.astype(object)) * rate.numerator, rate.denominator, bits)


def _permutation(n: int, bits: Bits) -> NDArray[np.intp]:
    """A uniform permutation: the order of ``n`` independent words, drawn again if two of them are equal."""
    while True:
        words = bits.words(n)
        order = np.argsort(words)
        if np.all(words[order[1:]] != words[order[:-1]]):
            return order

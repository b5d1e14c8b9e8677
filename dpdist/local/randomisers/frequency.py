"""Reports of a category, from which the server learns how frequent every category is.

=================== ============================== ================== ============================================
class               a report is                    bits               ``n`` times the variance of a rare category
=================== ============================== ================== ============================================
`KRR`               a category                     log2 k             ``(E + k - 2) / (E - 1)^2``
`SUE`               k bits, one of them yours      k                  ``s / (s - 1)^2``, ``s = e^(epsilon / 2)``
`OUE`               the same, asymmetric           k                  ``4 E / (E - 1)^2``
`UE`                the same, of any p and q       k                  ``q (1 - q) / (p - q)^2``
`OLH`               a hash function, a hash value  64 + log2 E        ``4 E / (E - 1)^2``
`Hadamard`          a column, a sign               1 + log2 k         ``((E + 1) / (E - 1))^2``
`SubsetSelection`   a subset of the categories     k                  ``q (1 - q) / (p - q)^2``, the smallest of all
=================== ============================== ================== ============================================

``E = e^epsilon`` and k is the number of categories. Every report is epsilon-LDP *exactly*: its probabilities are
multiples of a power of two, and rounded so that no ratio of them exceeds ``e^epsilon``. A null record (-1) sends a
report, too, under the same bound: unary reports without an own bit, a constant column, a uniform category or subset.

KRR, SUE and OLH are Wang, Blocki, Li and Jha 2017 (SUE is the basic RAPPOR of Erlingsson, Pihur and Korolova 2014),
OUE is theirs; the Hadamard response with one bit is Acharya, Sun and Zhang 2019, subset selection Ye and Barg 2018.
"""

from __future__ import annotations

import functools
import math
import numbers
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.bernoulli import DIGITS, bernoulli_lanes
from dpdist.kernels.packed_bits import GROUP, count_packed, count_unary, lane_words, pack_unary, padding_is_zero
from dpdist.local.randomisers.hadamard import Hadamard
from dpdist.local.randomisers.hashing import OLH
from dpdist.local.randomisers.oracle import FrequencyOracle, SupportOracle, counts_of, odds
from dpdist.local.randomisers.responses import krr_share, respond
from dpdist.local.randomisers.subset_selection import SubsetSelection
from dpdist.privacy.randomness.draws import Draws

__all__ = ["KRR", "OLH", "ORACLES", "OUE", "SUE", "UE", "FrequencyOracle", "Hadamard", "SubsetSelection"]

_ONE = 1 << DIGITS


@dataclass(frozen=True)
class KRR(SupportOracle):
    """The own category with probability ``p = E / (E + k - 1)``, each other one with ``q = 1 / (E + k - 1)``.

    Also known as generalised randomised response, or direct encoding. The best of all for few categories
    (``k < 3 E + 2``). A null record sends a uniform category.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> KRR(4, epsilon=1.0).randomise(np.array([0, 3, -1]), SystemDraws()).dtype
    dtype('uint8')
    """

    tag: ClassVar[str] = "KRR"

    size: int
    epsilon: float

    name: ClassVar[str] = "krr"
    has_sums: ClassVar[bool] = True
    has_counts: ClassVar[bool] = True

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        q = Fraction(krr_share(self.size, self.epsilon), 2**64)
        return 1 - (self.size - 1) * q, q

    @property
    def width(self) -> int:
        return 1

    @property
    def report(self) -> np.dtype[Any]:
        return np.min_scalar_type(self.size - 1)

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        return self._respond(values, draws).astype(self.report)

    def _respond(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        return respond(values, draws.words(len(values)), self.size, krr_share(self.size, self.epsilon))

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.bincount(reports, minlength=self.size)

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        return self.accumulate(self._respond(values, draws))

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """Every user answers uniformly with probability ``k q`` and truly otherwise, so the sum needs 2 k draws."""
        return self._draw_answers(*counts_of(values, self.size), generator)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return self._draw_answers(*counts_of(values, self.size, counts), generator)

    def _draw_answers(self, truths: NDArray[np.int64], nulls: int, generator: np.random.Generator) -> NDArray[np.int64]:
        _, q = self.chances
        true = generator.binomial(truths, float(1 - self.size * q))
        return true + generator.multinomial(truths.sum() - true.sum() + nulls, np.full(self.size, 1.0 / self.size))

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((reports >= 0) & (reports < self.size))


class _Unary(SupportOracle):
    """A bit for every category, packed: 1 with probability p for the own one, q for the others."""

    has_sums: ClassVar[bool] = True
    has_counts: ClassVar[bool] = True

    @property
    @abstractmethod
    def _threshold(self) -> int:
        """``q 2**53``."""

    @abstractmethod
    def _own(self, n_users: int, draws: Draws) -> NDArray[np.uint64] | None:
        """What is sent for the own category; None for the contrary of a drawn bit."""

    @property
    def width(self) -> int:
        return 8 * -(-self.size // GROUP) + 1

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.uint8, (-(-self.size // 8),)))

    def _draw(self, n_users: int, draws: Draws) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
        own = self._own(n_users, draws)
        return bernoulli_lanes(draws.words, lane_words(n_users, self.size), self._threshold), own

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.uint8]:
        lanes, own = self._draw(len(values), draws)
        return pack_unary(lanes, values, self.size, own)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return count_packed(reports, self.size)

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        lanes, own = self._draw(len(values), draws)
        return count_unary(lanes, values, self.size, own)

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """Given the data, the bits of a category are independent of those of all others: two binomials each."""
        return self._draw_bits(*counts_of(values, self.size), generator)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return self._draw_bits(*counts_of(values, self.size, counts), generator)

    def _draw_bits(self, truths: NDArray[np.int64], nulls: int, generator: np.random.Generator) -> NDArray[np.int64]:
        p, q = self.chances
        others = truths.sum() + nulls - truths
        return generator.binomial(truths, float(p)) + generator.binomial(others, float(q))

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return padding_is_zero(reports, self.size)


@functools.cache
def _smallest(ratio: Fraction) -> int:
    """``2**53 / (ratio + 1)``, rounded up."""
    return -int(-_ONE // (ratio + 1))


@functools.cache
def _root(square: Fraction) -> Fraction:
    """The root of a number, rounded down."""
    scale = 1 << 200
    return Fraction(math.isqrt(int(square * scale * scale)), scale)


@dataclass(frozen=True)
class OUE(_Unary):
    """Optimised unary encoding: the own bit is a fair coin, the others are 1 with probability ``1 / (E + 1)``.

    Two categories differ in two bits, of which one moves from a fair coin to q and the other back, so the ratio is
    ``(1 - q) / q`` at most. A null record has no own bit.

    Examples
    --------
    >>> oracle = OUE(128, epsilon=1.0)
    >>> round(float(oracle.variance(np.zeros(1))[0]), 3), oracle.report.itemsize
    (3.683, 16)
    """

    tag: ClassVar[str] = "OUE"

    size: int
    epsilon: float

    name: ClassVar[str] = "oue"

    @property
    def _threshold(self) -> int:
        return _smallest(odds(self.epsilon))

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        return Fraction(1, 2), Fraction(self._threshold, _ONE)

    def _own(self, n_users: int, draws: Draws) -> NDArray[np.uint64] | None:
        return draws.words(-(-n_users // GROUP))


@dataclass(frozen=True)
class SUE(_Unary):
    """Symmetric unary encoding: every bit of the unit vector of the own category is flipped with probability q.

    ``q = 1 / (e^(epsilon / 2) + 1)``. Two categories differ in two bits, each of ratio ``(1 - q) / q``. A null record
    flips bits of the zero vector.
    """

    tag: ClassVar[str] = "SUE"

    size: int
    epsilon: float

    name: ClassVar[str] = "sue"

    @property
    def _threshold(self) -> int:
        return _smallest(_root(odds(self.epsilon)))

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        q = Fraction(self._threshold, _ONE)
        return 1 - q, q

    def _own(self, n_users: int, draws: Draws) -> NDArray[np.uint64] | None:
        return None


@dataclass(frozen=True)
class UE(_Unary):
    """Unary encoding with public probabilities: the own bit is 1 with probability p, each other one with q.

    Two categories differ in two bits, so the ratio is ``p (1 - q) / ((1 - p) q)`` at most; a null record has no own
    bit, and differs from any in one, of a smaller ratio. ``p = 1/2`` is `OUE`, ``p = 1 - q`` is `SUE`. With p near 1 a
    common category has less noise than there, and all others have more. Chances are multiples of ``2**-53``: p is
    rounded down, q up.

    Parameters
    ----------
    size : int
    epsilon : float
    p : float, default 0.75
    q : float, optional
        Default: the smallest that epsilon allows.

    Raises
    ------
    BudgetError
        Where p and q tell more than epsilon.

    Examples
    --------
    >>> UE(128, epsilon=1.0, p=0.5).chances == OUE(128, epsilon=1.0).chances
    True
    """

    tag: ClassVar[str] = "UE"

    size: int
    epsilon: float
    p: float = 0.75
    q: float | None = None

    name: ClassVar[str] = "ue"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("p", "q"):
            check_chance(name, getattr(self, name))
        if self._threshold >= self._kept:
            raise BudgetError(f"q must lie below p, or reports tell nothing: got p={self.p!r}, q={self.q!r}")
        if self._threshold < self._smallest:
            raise BudgetError(
                f"p={self.p!r} and q={self.q!r} tell more than epsilon={self.epsilon!r}, at which q is "
                f"{self._smallest / _ONE:.4g} at least"
            )

    @property
    def _kept(self) -> int:
        """``p 2**53``."""
        return int(Fraction(self.p) * _ONE)

    @property
    def _smallest(self) -> int:
        """The smallest ``q 2**53`` at which the odds of p are E times those of q, or less."""
        return _smallest(odds(self.epsilon) * (_ONE - self._kept) / self._kept)

    @property
    def _threshold(self) -> int:
        return self._smallest if self.q is None else -int(-Fraction(self.q) * _ONE // 1)

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        return Fraction(self._kept, _ONE), Fraction(self._threshold, _ONE)

    def _own(self, n_users: int, draws: Draws) -> NDArray[np.uint64] | None:
        return bernoulli_lanes(draws.words, -(-n_users // GROUP), self._kept)


def check_chance(name: str, chance: float | None) -> None:
    """The chance of a 1, which must tell something and not everything; None where it follows from another one."""
    if chance is not None and not (isinstance(chance, numbers.Real) and 1e-9 <= chance <= 1 - 1e-9):
        raise BudgetError(f"{name} must lie between 0 and 1, got {chance!r}")


ORACLES: dict[str, type[FrequencyOracle]] = {
    oracle.name: oracle for oracle in (KRR, SUE, OUE, UE, OLH, Hadamard, SubsetSelection)
}
"""By name."""

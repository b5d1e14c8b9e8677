"""Randomised response to every answer of a record, each on its own.

================= =================== ========================================= ====================================
class             answers             an answer is kept with probability        bits of a report
================= =================== ========================================= ====================================
`BitResponses`    two classes         ``E / (E + 1)``                           1 for a task
`SymbolResponses` k symbols           ``E / (E + k - 1)``                       8 for a task
================= =================== ========================================= ====================================

``E = e^epsilon``. Two records that differ in one answer give any report with probabilities whose ratio is E at most,
because all other factors are the same: epsilon-LADP (seed 000, Definition 7.1.1, eq. 7.9). For records that differ in
all m answers it is ``E^m``. The chance that an answer is replaced, by any symbol, each as likely, is a multiple of
``2**-53``, rounded up, so that no ratio exceeds E; estimates use the chances as they are. A null answer is reported as
any symbol, each as likely, and a ratio with it is smaller still.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError, DataError
from dpdist.kernels.bernoulli import DIGITS, bernoulli_lanes
from dpdist.kernels.bit_planes import column_counts, n_words, words_of
from dpdist.kernels.packed_bits import padding_is_zero
from dpdist.kernels.symbol_counts import OPEN, counts
from dpdist.kernels.symbol_responses import symbol_responses
from dpdist.local.randomisers.oracle import odds
from dpdist.local.survey.protocol import Domain, Randomiser
from dpdist.privacy.protected_units import ANSWER, Protected
from dpdist.privacy.randomness.draws import Draws

Floats = NDArray[np.float64]

MOST_SYMBOLS = OPEN - 1
"""Of the bytes the last two are no symbols: a null answer, and none."""


@dataclass(frozen=True)
class _Responses(Randomiser):
    """What both have in common."""

    size: int
    epsilon: float

    domain: ClassVar[Domain] = "answers"

    def __post_init__(self) -> None:
        if not 1 <= self.size < 2**31:
            raise BudgetError(f"size must be the number of tasks, from 1 to 2147483647, got {self.size!r}")
        if not 1e-6 <= self.epsilon <= 100:
            raise BudgetError(f"epsilon must be a number from 1e-6 to 100, got {self.epsilon!r}")

    @property
    def n_symbols(self) -> int:
        """How many symbols an answer may be reported as."""
        return 2

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        """Of the own symbol, and of any other one."""
        raise NotImplementedError

    @property
    def protects(self) -> Protected:
        return Protected("one answer", ANSWER, self.size)

    @property
    def slope(self) -> float:
        """What is left of the difference of two shares of answers in those of reports."""
        p, q = self.chances
        return float(p - q)

    @property
    def noise_std(self) -> float:
        """Of the share of a symbol that half of the reports have."""
        return 0.5 / self.slope

    @property
    def influence(self) -> float:
        return 1 / self.slope

    @property
    def units(self) -> int:
        return 1


@dataclass(frozen=True)
class BitResponses(_Responses):
    """Every bit of a record is flipped with probability ``1 / (E + 1)``; a report is the bits, eight to a byte.

    Parameters
    ----------
    size : int
        Number of tasks.
    epsilon : float
        Of one answer.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> answers = np.array([[0b101]], dtype=np.uint64)
    >>> BitResponses(3, epsilon=20.0).randomise(answers, SystemDraws()).tolist()
    [[5]]
    """

    tag: ClassVar[str] = "BitResponses"

    size: int
    epsilon: float

    name: ClassVar[str] = "bit-responses"
    has_sums: ClassVar[bool] = True

    @property
    def threshold(self) -> int:
        """``2**53`` times the chance of a flip, rounded up."""
        return -int(-(1 << DIGITS) // (odds(self.epsilon) + 1))

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        q = Fraction(self.threshold, 1 << DIGITS)
        return 1 - q, q

    @property
    def width(self) -> int:
        return 7 * n_words(self.size)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.uint8, (-(-self.size // 8),)))

    def respond(self, values: NDArray[np.uint64], draws: Draws) -> NDArray[np.uint64]:
        """The reports as words, one row per user.

        How many words are drawn depends on the shape of the values, which is public.
        """
        n, width = len(values), n_words(self.size)
        _check(values, np.uint64, (width, 2 * width))
        flipped = bernoulli_lanes(draws.words, n * width, self.threshold).reshape(n, width)
        reports = values[:, :width] ^ flipped
        if values.shape[1] > width:
            known = values[:, width:]
            reports = (reports & known) | (draws.words(n * width).reshape(n, width) & ~known)
        if self.size % 64:
            reports[:, -1] &= np.uint64((1 << self.size % 64) - 1)
        return reports

    def randomise(self, values: NDArray[np.uint64], draws: Draws) -> NDArray[np.uint8]:
        reports = np.ascontiguousarray(self.respond(values, draws), dtype="<u8")
        return np.ascontiguousarray(reports.view(np.uint8)[:, : -(-self.size // 8)])

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """How many reports have a one, for every task."""
        return column_counts(words_of(reports), self.size)

    def summarise(self, values: NDArray[np.uint64], draws: Draws) -> NDArray[np.int64]:
        return column_counts(self.respond(values, draws), self.size)

    def draw_sum(self, values: NDArray[np.uint64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Given the answers, the reports to a task are independent bits of three probabilities."""
        n, width = len(values), n_words(self.size)
        _check(values, np.uint64, (width, 2 * width))
        ones = column_counts(np.ascontiguousarray(values[:, :width]), self.size)
        known = np.full(self.size, n)
        if values.shape[1] > width:
            known = column_counts(np.ascontiguousarray(values[:, width:]), self.size)
        p, q = map(float, self.chances)
        drawn = generator.binomial(ones, p) + generator.binomial(known - ones, q)
        return np.asarray(drawn + generator.binomial(n - known, 0.5))

    def decode(self, total: Floats, n_users: int) -> Floats:
        """The share of ones among the answers to every task, a task without an answer counted as half a one."""
        return (np.asarray(total, dtype=np.float64) / n_users - float(self.chances[1])) / self.slope

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return padding_is_zero(reports, self.size)


@dataclass(frozen=True)
class SymbolResponses(_Responses):
    """Every symbol of a record is kept with probability ``E / (E + k - 1)``, else it becomes any other one.

    Parameters
    ----------
    size : int
        Number of tasks.
    epsilon : float
        Of one answer.
    k : int
        Number of symbols.
    mask : bool
        Whether it is public which tasks were answered; then `dpdist.kernels.symbol_counts.OPEN` is sent for the others,
        and the guarantee covers what was answered only.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> answers = np.array([[0, 2, 255]], dtype=np.uint8)
    >>> SymbolResponses(3, epsilon=30.0, k=3, mask=True).randomise(answers, SystemDraws()).tolist()
    [[0, 2, 255]]
    """

    tag: ClassVar[str] = "SymbolResponses"

    size: int
    epsilon: float
    k: int = 3
    mask: bool = False

    name: ClassVar[str] = "symbol-responses"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.k <= MOST_SYMBOLS:
            raise BudgetError(f"k must be the number of symbols, from 2 to {MOST_SYMBOLS}, got {self.k!r}")

    @property
    def protects(self) -> Protected:
        if not self.mask:
            return super().protects
        return Protected("one answer (which tasks were answered is taken for public)", ANSWER, self.size, False)

    @property
    def n_symbols(self) -> int:
        return self.k

    @property
    def threshold(self) -> int:
        """``2**53`` times the chance ``k / (E + k - 1)`` of being replaced by any symbol, rounded up."""
        return -int(-(self.k << DIGITS) // (odds(self.epsilon) + self.k - 1))

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        q = Fraction(self.threshold, self.k << DIGITS)
        return 1 - (self.k - 1) * q, q

    @property
    def width(self) -> int:
        return 7 * n_words(self.size) + -(-self.size // 4)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.uint8, (self.size,)))

    def randomise(self, values: NDArray[np.uint8], draws: Draws) -> NDArray[np.uint8]:
        _check(values, np.uint8, (self.size,))
        return symbol_responses(values, draws.words, self.threshold, self.k, self.mask)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """How often every symbol was reported, for every task."""
        return counts(np.ascontiguousarray(reports), self.k)[0].ravel()

    def decode(self, total: Floats, n_users: int) -> Floats:
        """The share of every symbol among the answers to every task; 1/k where nobody reported."""
        seen = np.asarray(total, dtype=np.float64).reshape(self.size, self.k)
        reports = seen.sum(axis=1, keepdims=True)
        shares = np.where(reports > 0, seen / np.maximum(reports, 1), 1 / self.k)
        return ((shares - float(self.chances[1])) / self.slope).ravel()

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        good = reports < self.k
        return np.asarray((good | (reports == OPEN) if self.mask else good).all(axis=1))


def _check(values: NDArray[Any], dtype: Any, widths: tuple[int, ...]) -> None:
    """Refuse values of another shape: epsilon is for so many answers, and others would be reported beside them."""
    if values.dtype != dtype or values.ndim != 2 or values.shape[1] not in widths:
        raise DataError(
            f"the answers of a record are {' or '.join(map(str, widths))} numbers of type {np.dtype(dtype)}, got "
            f"{values.shape[1:]} of type {values.dtype}: the records are of another number of tasks than the question"
        )

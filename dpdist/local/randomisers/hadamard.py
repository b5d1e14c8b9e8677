"""One random entry of the user's column of a Hadamard matrix."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bases import fwht
from dpdist.kernels.compiled import kernel
from dpdist.local.randomisers.oracle import FrequencyOracle, odds
from dpdist.privacy.randomness.draws import Draws


@functools.cache
def _threshold(digits: int, epsilon: float) -> int:
    """``2**digits / (E + 1)``, rounded up."""
    return -int(-(2**digits) // (odds(epsilon) + 1))


@kernel
def _entries(values: NDArray[np.int64], words: NDArray[np.uint64], digits: int, threshold: Any, out: Any) -> None:
    rest = (np.uint64(1) << np.uint64(digits)) - np.uint64(1)
    for i in range(len(values)):
        row = words[i] >> np.uint64(digits)
        sign = row & np.uint64(values[i] + 1)
        for shift in (32, 16, 8, 4, 2, 1):
            sign ^= sign >> np.uint64(shift)
        sign = (sign & np.uint64(1)) ^ np.uint64((words[i] & rest) < threshold)
        out[i] = np.int64(row << np.uint64(1) | sign)


@dataclass(frozen=True)
class Hadamard(FrequencyOracle):
    """A uniform row r, and the sign ``H[r, x + 1]``, flipped with probability ``1 / (E + 1)``.

    H is Sylvester's matrix of the size K, the power of two above k. Two columns agree in half of the rows, so the
    mean of ``(E + 1) / (E - 1) H[r, v + 1] sign`` is 1 for the own category and 0 for others: unbiased, with variance
    ``((E + 1) / (E - 1))^2 - f`` over n at frequency f (Acharya, Sun and Zhang 2019). The server transforms the sums of
    the signs of every row, in ``K log K`` additions. A null record has the constant column 0, which decodes to no
    category. One dishonest report moves an estimate by ``2 (E + 1) / (E - 1) / n`` at most.

    A report is ``2 r + (sign < 0)``.

    Examples
    --------
    >>> oracle = Hadamard(1000, epsilon=1.0)
    >>> round(float(oracle.variance(np.zeros(1))[0]), 3), oracle.n_rows
    (4.683, 1024)
    """

    tag: ClassVar[str] = "Hadamard"

    size: int
    epsilon: float

    name: ClassVar[str] = "hadamard-response"
    has_sums: ClassVar[bool] = True
    has_counts: ClassVar[bool] = True

    @property
    def n_rows(self) -> int:
        """K."""
        return 1 << self.size.bit_length()

    @property
    def _digits(self) -> int:
        """What a random word has left besides the row: the digits of the chance of a flip."""
        return 64 - self.size.bit_length()

    @property
    def flip(self) -> Fraction:
        """The chance that a sign is flipped."""
        return Fraction(_threshold(self._digits, self.epsilon), 2**self._digits)

    @property
    def _scale(self) -> float:
        return float(1 / (1 - 2 * self.flip))

    @property
    def width(self) -> int:
        return 1

    @property
    def report(self) -> np.dtype[Any]:
        return np.min_scalar_type(2 * self.n_rows - 1)

    def variance(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._scale**2 - np.asarray(frequencies)

    @property
    def influence(self) -> float:
        return 2 * self._scale

    def _respond(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        out = np.empty(len(values), dtype=np.int64)
        threshold = np.uint64(_threshold(self._digits, self.epsilon))
        _entries(values, draws.words(len(values)), self._digits, threshold, out)
        return out

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        return self._respond(values, draws).astype(self.report)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        cells = np.bincount(reports, minlength=2 * self.n_rows).reshape(-1, 2)
        return cells[:, 0] - cells[:, 1]

    def summarise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        return self.accumulate(self._respond(values, draws))

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """The number of flips among the users of each row and sign is binomial."""
        rows = generator.integers(0, self.n_rows, size=len(values))
        negative = np.bitwise_count(rows & (values + 1)) & 1
        cells = np.bincount(2 * rows + negative, minlength=2 * self.n_rows).reshape(-1, 2)
        return self._draw_flips(cells, generator)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """The users of a category are spread over the rows multinomially; in each row they have one sign."""
        K = self.n_rows
        rows, cells = np.arange(K), np.zeros((2, K), dtype=np.int64)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            if count < K:
                spread = np.bincount(generator.integers(0, K, size=count), minlength=K)
            else:
                spread = generator.multinomial(count, np.full(K, 1.0 / K))
            negative = (np.bitwise_count(rows & (value + 1)) & 1).astype(np.bool_)
            cells[1, negative] += spread[negative]
            cells[0, ~negative] += spread[~negative]
        return self._draw_flips(cells.T, generator)

    def _draw_flips(self, cells: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        flips = generator.binomial(cells, float(self.flip))
        return np.asarray((cells[:, 0] - 2 * flips[:, 0]) - (cells[:, 1] - 2 * flips[:, 1]))

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        return fwht(total)[1 : self.size + 1] * (self._scale / n_users)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((reports >= 0) & (reports < 2 * self.n_rows))

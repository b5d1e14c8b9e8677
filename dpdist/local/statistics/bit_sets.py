"""Statistics of a record that is a few bits, or codes of categories: one for each small set of bits."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.survey.protocol import Block

COMPILED_FROM = 64
"""So many rows are worth a compiled pass; the values are the same."""
MOST_BITS = 64
MOST_SETS = 1_000_000
Words = NDArray[np.uint64]


def code_widths(levels: Sequence[int]) -> list[int]:
    """How many bits the codes of every column take.

    >>> code_widths([2, 3, 8])
    [1, 2, 3]
    """
    return [max(1, (n - 1).bit_length()) for n in levels]


def column_masks(levels: Sequence[int]) -> list[int]:
    """The bits of every column in the word of a record.

    >>> [bin(mask) for mask in column_masks([2, 3, 2])]
    ['0b1', '0b110', '0b1000']
    """
    starts = itertools.accumulate(code_widths(levels), initial=0)
    return [((1 << width) - 1) << start for width, start in zip(code_widths(levels), starts, strict=False)]


def n_bit_sets(levels: Sequence[int], order: int) -> int:
    """How many sets of bits are not empty and meet at most ``order`` columns.

    >>> n_bit_sets([2] * 10, 3), n_bit_sets([3, 2], 1)
    (175, 4)
    """
    counts = [1] + [0] * order
    for width in code_widths(levels):
        counts = [c + (counts[m - 1] * (2**width - 1) if m else 0) for m, c in enumerate(counts)]
    return sum(counts) - 1


@lru_cache(maxsize=16)
def bit_sets(levels: tuple[int, ...], order: int) -> Words:
    """These sets as words, in increasing order."""
    of_size = [np.zeros(1, np.uint64)] + [np.zeros(0, np.uint64)] * order
    for mask, width in zip(column_masks(levels), code_widths(levels), strict=True):
        start = mask.bit_length() - width
        own = np.arange(1, 2**width, dtype=np.uint64) << np.uint64(start)
        wider = [np.bitwise_or.outer(own, of_size[m - 1]).ravel() for m in range(1, order + 1)]
        of_size[1:] = [np.concatenate(pair) for pair in zip(of_size[1:], wider, strict=True)]
    found = np.sort(np.concatenate(of_size[1:]))
    found.flags.writeable = False
    return found


@lru_cache(maxsize=16)
def parity_tickets(levels: tuple[int, ...], order: int) -> NDArray[np.int64]:
    """How many tickets each set has: as a table of ``order`` columns needs it.

    A set that meets m of p columns is part of ``w = C(p - m, order - m)`` tables, and the sum of the variances of all
    tables' cells is least where sets are drawn with chances in proportion to ``sqrt(w)``: each has ``round(sqrt(w))``.
    """
    sets, p = bit_sets(levels, order), len(levels)
    met = sum((sets & np.uint64(mask) != 0).astype(np.int64) for mask in column_masks(levels))
    of_met = np.array([0] + [round(math.sqrt(math.comb(p - m, order - m))) for m in range(1, order + 1)])
    return np.asarray(of_met[met])


@lru_cache(maxsize=16)
def _sets_of_tickets(statistic: BitSets) -> Words:
    return np.repeat(statistic.sets, statistic.n_tickets)


@dataclass(frozen=True)
class BitSets(Ticketed):
    """A number in [-1, 1] for every set of bits of a record that meets at most ``order`` columns.

    A column of two levels is a bit, 1 above a half; one of more levels holds a whole number below them, whose binary
    digits are its bits. A record with an entry that is not finite, or no level, gives zeros.

    Parameters
    ----------
    levels : tuple of int
        How many levels each column has; 64 bits at most in all.
    order : int
    """

    levels: tuple[int, ...]
    order: int

    kernel: ClassVar[str]
    """The compiled twin of the values, in `dpdist.kernels.parities`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        p, bits = len(self.levels), sum(code_widths(self.levels))
        if not 1 <= self.order <= p:
            raise BudgetError(f"order must be a whole number from 1 to the number of columns, {p}, got {self.order!r}")
        if bits > MOST_BITS:
            raise BudgetError(f"{p} columns of these levels are {bits} bits: at most {MOST_BITS} are possible")
        if (n_sets := n_bit_sets(self.levels, self.order)) > MOST_SETS:
            fits = max((k for k in range(1, self.order) if n_bit_sets(self.levels, k) <= MOST_SETS), default=0)
            way_out = f"order={fits} fits" if fits else "give fewer columns"
            raise BudgetError(
                f"order={self.order} of {p} columns asks about {n_sets} sets of bits, more than {MOST_SETS}: {way_out}"
            )

    @property
    def n_features(self) -> int:
        """How many columns a record has."""
        return len(self.levels)

    @property
    def n_tickets(self) -> NDArray[np.int64]:
        return np.ones(len(self.sets), np.int64)

    @property
    def sets(self) -> Words:
        """What the features are about, as words."""
        return bit_sets(self.levels, self.order)

    @property
    def size(self) -> int:
        return len(_sets_of_tickets(self))

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        X = np.asarray(block["X"]).reshape(len(block["X"]), len(self.levels))
        X = X.view(np.uint8) if X.dtype == np.bool_ else X
        words, known = self._words(X if X.dtype.kind in "iu" or X.dtype.itemsize > 2 else X.astype(np.float64))
        if len(X) < COMPILED_FROM:
            return np.where(known[:, None], self._by_hand(words[:, None], _sets_of_tickets(self)[coordinates]), 0.0)
        from dpdist.kernels import parities  # a device does without numba

        out = np.empty(coordinates.shape)
        getattr(parities, self.kernel)(words, known, _sets_of_tickets(self), coordinates, out)
        return out

    def _words(self, X: NDArray[Any]) -> tuple[Words, NDArray[np.bool_]]:
        levels, widths = np.array(self.levels), np.array(code_widths(self.levels))
        if len(X) < COMPILED_FROM:
            numbers = X.astype(np.float64)
            with np.errstate(invalid="ignore"):
                whole = (numbers >= 0) & (numbers < levels) & (numbers == np.floor(numbers))
            known = (np.isfinite(numbers) & (whole | (levels <= 2))).all(axis=1)
            codes = np.where(levels <= 2, numbers > 0.5, np.where(whole, numbers, 0.0)).astype(np.uint64)
            starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.uint64)
            return np.bitwise_or.reduce(codes << starts, axis=1), known
        from dpdist.kernels.parities import bit_words  # a device does without numba

        words, known = np.empty(len(X), np.uint64), np.empty(len(X), np.bool_)
        bit_words(X, levels, widths, words, known)
        return words, known

    @staticmethod
    @abstractmethod
    def _by_hand(words: Words, sets: Words) -> NDArray[np.float64]:
        """The values of known records."""


class Parities(BitSets):
    """``(-1)^(number of the set's bits that are 1)``: the Fourier coefficients of the law of the records.

    Examples
    --------
    >>> statistic = Parities((2, 2), order=2)
    >>> statistic.sets.tolist(), statistic.values({"X": np.array([[1, 0], [1, 1], [1, np.nan]])}).tolist()
    ([1, 2, 3], [[-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [0.0, 0.0, 0.0]])
    """

    tag: ClassVar[str] = "Parities"
    kernel: ClassVar[str] = "parities_at"

    @property
    def n_tickets(self) -> NDArray[np.int64]:
        return parity_tickets(self.levels, self.order)

    @staticmethod
    def _by_hand(words: Words, sets: Words) -> NDArray[np.float64]:
        odd = np.bitwise_count(words & sets) & np.uint8(1)
        return np.asarray(1.0 - 2.0 * odd)


class Conjunctions(BitSets):
    """1 where all bits of the set are 1, else -1; what is restored are the shares of the records where they are."""

    tag: ClassVar[str] = "Conjunctions"
    kernel: ClassVar[str] = "conjunctions_at"

    @staticmethod
    def _by_hand(words: Words, sets: Words) -> NDArray[np.float64]:
        return np.where(words & sets == sets, 1.0, -1.0)

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return (1.0 + mean) / 2

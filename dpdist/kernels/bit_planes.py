"""Sums of whole numbers over the ones of packed bits, by population counts, exactly.

A whole number of 16 bits is ``u = sum_b 2^b u_b``. The b-th bits of many numbers, packed as the bits that they are
multiplied with, are a *plane*, and ``sum_j x_j u_j = sum_b 2^b popcount(x & plane_b)``: 16 population counts for 64
products. Numbers with a sign are lifted by `OFFSET`, which is taken off again ``popcount(x)`` times. Everything is in
integers, so that no order of rows, columns or blocks changes a sum.

Bits lie as `dpdist.local.statistics.task_answers` packs them: bit ``j % 64`` of word ``j // 64`` of a row is that of
column j, and zeros follow the last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bernoulli import ones
from dpdist.kernels.compiled import kernel
from dpdist.kernels.packed_bits import GROUP, _transpose

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

BITS = 16
OFFSET = 1 << (BITS - 1)
LARGEST = OFFSET - 1
"""Of the size of a number that is multiplied with bits."""


def n_words(n_bits: int) -> int:
    """How many words hold so many bits."""
    return -(-n_bits // GROUP)


def pack_words(bits: NDArray[Any]) -> Words:
    """The bits of every row (its last axis) as words.

    >>> pack_words(np.array([[1, 0, 1], [0, 1, 0]], dtype=bool))
    array([[5],
           [2]], dtype=uint64)
    """
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return words_of(packed)


def words_of(packed: NDArray[np.uint8]) -> Words:
    """Packed bytes as words; zeros follow the last byte."""
    n_bytes = packed.shape[-1]
    room = np.zeros((*packed.shape[:-1], 8 * n_words(8 * n_bytes)), np.uint8)
    room[..., :n_bytes] = packed
    return room.view("<u8").astype(np.uint64, copy=False)


def planes(numbers: Integers) -> Words:
    """The planes of numbers from `-LARGEST` to `LARGEST`, one row for each of their `BITS` bits."""
    lifted = (numbers + OFFSET).astype(np.uint64)
    return pack_words((lifted >> np.arange(BITS, dtype=np.uint64)[:, None]) & np.uint64(1))


@kernel
def _row_sums(words: Words, number_planes: Words, sums: Integers, counts: Integers) -> None:
    n, width = words.shape
    for i in range(n):
        count = np.uint64(0)
        for w in range(width):
            count += ones(words[i, w])
        total = np.int64(0)
        for b in range(len(number_planes)):
            part = np.uint64(0)
            for w in range(width):
                part += ones(words[i, w] & number_planes[b, w])
            total += np.int64(part << np.uint64(b))
        sums[i] = total
        counts[i] = np.int64(count)


@kernel
def _column_sums(words: Words, number_planes: Words, sums: Integers, counts: Integers, scratch: Words) -> None:
    n, width = words.shape
    square, parts = scratch[0], scratch[1]
    for g in range((n + 63) // 64):
        here = min(64, n - 64 * g)
        for w in range(width):
            for u in range(here):
                square[u] = words[64 * g + u, w]
            for u in range(here, 64):
                square[u] = np.uint64(0)
            _transpose(square)
            first = 64 * w
            last = min(64, len(sums) - first)
            parts[:] = 0
            for b in range(len(number_planes)):
                plane = number_planes[b, g]
                for j in range(64):
                    parts[j] += ones(square[j] & plane) << np.uint64(b)
            for j in range(last):
                sums[first + j] += np.int64(parts[j])
                counts[first + j] += np.int64(ones(square[j]))


def row_sums(words: Words, numbers: Integers) -> tuple[Integers, Integers]:
    """For every row, the sum of the columns' numbers where it has a one, and how many ones it has.

    Parameters
    ----------
    words : array of uint64, shape (n, `n_words` of the columns)
    numbers : array of int64
        One for each column, from `-LARGEST` to `LARGEST`.

    Examples
    --------
    >>> sums, counts = row_sums(pack_words(np.array([[1, 0, 1], [0, 1, 0]])), np.array([5, -7, 100]))
    >>> sums.tolist(), counts.tolist()
    ([105, -7], [2, 1])
    """
    sums, counts = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    _row_sums(words, planes(numbers), sums, counts)
    return sums - OFFSET * counts, counts


def column_sums(words: Words, numbers: Integers, n_columns: int) -> tuple[Integers, Integers]:
    """For every column, the sum of the rows' numbers where it has a one, and how many ones it has.

    >>> sums, counts = column_sums(pack_words(np.array([[1, 0, 1], [0, 1, 1]])), np.array([5, -7]), 3)
    >>> sums.tolist(), counts.tolist()
    ([5, -7, -2], [1, 1, 2])
    """
    sums, counts = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.int64)
    _column_sums(words, planes(numbers), sums, counts, np.empty((2, 64), np.uint64))
    return sums - OFFSET * counts, counts


def column_counts(words: Words, n_columns: int) -> Integers:
    """How many ones every column has."""
    sums, counts = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.int64)
    _column_sums(words, np.zeros((0, 0), np.uint64), sums, counts, np.empty((2, 64), np.uint64))
    return counts

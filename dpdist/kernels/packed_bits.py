"""Rows of k bits: drawn as lanes of many users, sent as packed bytes, counted per column.

Drawn bits lie *value-major*: users are taken in groups of 64, and a group has k words, the v-th with the bits that its
users have for value v. Counting a column of 64 users is then one population count. A last group of m < 64 users has
its ``m k`` bits in the same order without gaps, so that a single user needs no more words than its k bits fill.

Packed reports have bit ``v % 8`` of byte ``v // 8`` for value v, and zeros behind the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bernoulli import ones
from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

GROUP = 64
_NONE = np.empty(0, dtype=np.uint64)

# byte b spread over eight counters of one byte each, which are added as one word
_SPREAD = (np.arange(256, dtype=np.uint64)[:, None] >> np.arange(8, dtype=np.uint64) & np.uint64(1)) @ (
    np.uint64(1) << np.arange(0, 64, 8, dtype=np.uint64)
)


def lane_words(n_users: int, n_values: int) -> int:
    """How many words hold the lanes of that many users."""
    full, rest = divmod(n_users, GROUP)
    return full * n_values + -(-rest * n_values // GROUP)


@inlined_kernel
def _bit(words: Any, at: Any) -> Any:
    return (words[at >> 6] >> np.uint64(at & 63)) & np.uint64(1)


@kernel
def _count(lanes: Words, values: NDArray[np.int64], coins: Words, counts: NDArray[np.int64]) -> None:
    n, k = len(values), len(counts)
    full = n // 64
    for g in range(full):
        base = g * k
        for v in range(k):
            counts[v] += np.int64(ones(lanes[base + v]))
    rest = n - 64 * full
    first = 64 * full * k
    for j in range(rest * k):
        counts[j // rest] += np.int64(_bit(lanes, first + j))
    for i in range(n):
        x = values[i]
        if x >= 0:
            at = 64 * (i // 64) * k + (64 * x + i % 64 if i < 64 * full else rest * x + i % 64)
            old = np.int64(_bit(lanes, at))
            if len(coins):
                counts[x] += np.int64(_bit(coins, i)) - old
            else:
                counts[x] += 1 - 2 * old


@inlined_kernel
def _transpose(square: Any) -> None:
    """Bit j of word i to bit i of word j, by exchanging ever smaller halves (Warren 2002, section 7.3)."""
    step = 32
    mask = np.uint64(0x00000000FFFFFFFF)
    while step:
        i = 0
        while i < 64:
            swap = ((square[i] >> np.uint64(step)) ^ square[i + step]) & mask
            square[i + step] ^= swap
            square[i] ^= swap << np.uint64(step)
            i = (i + step + 1) & ~step
        step >>= 1
        mask ^= mask << np.uint64(step)


@kernel
def _pack(lanes: Words, values: NDArray[np.int64], coins: Words, k: int, square: Words, packed: Bytes) -> None:
    n, n_bytes = packed.shape
    full = n // 64
    for g in range(full):
        for v0 in range(0, k, 64):
            here = min(64, k - v0)
            for v in range(here):
                square[v] = lanes[g * k + v0 + v]
            for v in range(here, 64):
                square[v] = np.uint64(0)
            _transpose(square)
            for u in range(64):
                for b in range(min(8, n_bytes - v0 // 8)):
                    packed[64 * g + u, v0 // 8 + b] = np.uint8((square[u] >> np.uint64(8 * b)) & np.uint64(255))
    rest = n - 64 * full
    first = 64 * full * k
    for v in range(k):
        for u in range(rest):
            bit = _bit(lanes, first + v * rest + u)
            packed[64 * full + u, v >> 3] |= np.uint8(bit << np.uint64(v & 7))
    for i in range(n):
        x = values[i]
        if x >= 0:
            mask = np.uint8(1 << (x & 7))
            if len(coins):
                packed[i, x >> 3] &= ~mask
                packed[i, x >> 3] |= np.uint8(_bit(coins, i) << np.uint64(x & 7))
            else:
                packed[i, x >> 3] ^= mask


def count_unary(
    lanes: Words, values: NDArray[np.int64], n_values: int, coins: Words | None = None
) -> NDArray[np.int64]:
    """Column sums of the bits of `pack_unary`, without making its rows."""
    counts = np.zeros(n_values, dtype=np.int64)
    _count(lanes, values, _NONE if coins is None else coins, counts)
    return counts


def pack_unary(lanes: Words, values: NDArray[np.int64], n_values: int, coins: Words | None = None) -> Bytes:
    """One row of packed bits per user: those of its lanes, but for the user's own value.

    Parameters
    ----------
    lanes : array of uint64
        `lane_words` of them.
    values : array of int64
        Each user's own value; -1 for none.
    n_values : int
    coins : array of uint64, optional
        Lanes of what the users send for their own value, 64 users in a word. Default: the contrary of the drawn bit.
    """
    packed = np.zeros((len(values), -(-n_values // 8)), dtype=np.uint8)
    _pack(lanes, values, _NONE if coins is None else coins, n_values, np.empty(64, np.uint64), packed)
    return packed


@kernel
def _add_packed(packed: Bytes, spread: Words, eights: Words, counts: NDArray[np.int64]) -> None:
    n, n_bytes = packed.shape
    for start in range(0, n, 255):  # a counter of one byte holds 255
        eights[:] = 0
        for i in range(start, min(start + 255, n)):
            for b in range(n_bytes):
                eights[b] += spread[packed[i, b]]
        for v in range(len(counts)):
            counts[v] += np.int64((eights[v >> 3] >> np.uint64(8 * (v & 7))) & np.uint64(255))


def count_packed(packed: Bytes, n_values: int) -> NDArray[np.int64]:
    """Column sums of packed rows.

    >>> count_packed(np.array([[0b101], [0b100]], dtype=np.uint8), 3)
    array([1, 0, 2])
    """
    counts = np.zeros(n_values, dtype=np.int64)
    _add_packed(np.ascontiguousarray(packed), _SPREAD, np.empty(packed.shape[1], np.uint64), counts)
    return counts


def padding_is_zero(packed: Bytes, n_values: int) -> NDArray[np.bool_]:
    """Which rows have zeros behind the last value."""
    spare = -n_values % 8
    return packed[:, -1] >> (8 - spare) == 0 if spare else np.ones(len(packed), dtype=bool)

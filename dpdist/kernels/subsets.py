"""Uniform subsets of a given size, as packed bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import inlined_kernel, kernel

_SLAB = 1 << 15
FEW = 128
"""Up to so many items, a subset is kept in two words: looking at one of them does not wait for memory."""
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)


@inlined_kernel
def _below(words: Any, at: Any, n: Any, wanted: Any) -> Any:
    """A uniform number below n, and the place behind the words that it took.

    The few words that would make some numbers likelier are passed over (Lemire 2019). Of those from ``at`` on there are
    ``wanted``, and there have to be as many afterwards but one; -1 where there are not.
    """
    while True:
        product = np.uint64(words[at]) * n
        at += 1
        low = product & _LOW
        if low >= n or low >= (_ONE << np.uint64(32)) % n:
            return product >> np.uint64(32), at
        if at + wanted > len(words):
            return np.uint64(0), np.int64(-1)


@kernel
def _draw_few(
    words: NDArray[np.uint32], sizes: NDArray[np.int64], without: Any, added: Any, k: int, packed: Any, first: int
) -> tuple[int, int]:
    """`_draw` for up to `FEW` items: of those but the excluded one, which gets its place when all are drawn."""
    used = 0
    n_bytes = packed.shape[1]
    for i in range(first, len(sizes)):
        own = without[i]
        items = k - 1 if own >= 0 else k
        at = used
        if at + sizes[i] > len(words):
            return i, used
        low, high = np.uint64(0), np.uint64(0)
        for last in range(items - sizes[i], items):
            item, at = _below(words, at, np.uint64(last + 1), items - last)
            if at < 0:
                return i, used
            part = high if item >= np.uint64(64) else low
            item = np.uint64(last) if (part >> (item & np.uint64(63))) & _ONE else item
            bit = _ONE << (item & np.uint64(63))
            low |= np.uint64(0) if item >= np.uint64(64) else bit
            high |= bit if item >= np.uint64(64) else np.uint64(0)
        if own >= 0:
            bit = _ONE << np.uint64(own & 63)
            below = bit - _ONE
            if own < 64:
                high = (high << _ONE) | (low >> np.uint64(63))
                low = (low & below) | ((low & ~below) << _ONE)
                low |= bit if added[i] else np.uint64(0)
            else:
                high = (high & below) | ((high & ~below) << _ONE)
                high |= bit if added[i] else np.uint64(0)
        for b in range(min(8, n_bytes)):
            packed[i, b] = np.uint8(low >> np.uint64(8 * b))
        for b in range(8, n_bytes):
            packed[i, b] = np.uint8(high >> np.uint64(8 * (b - 8)))
        used = at
    return len(sizes), used


@kernel
def _draw(
    words: NDArray[np.uint32], sizes: NDArray[np.int64], without: Any, added: Any, k: int, packed: Any, first: int
) -> tuple[int, int]:
    """Draw for the users from ``first`` on, as far as the words go; the number of users done and of words used."""
    used = 0
    for i in range(first, len(sizes)):
        own = without[i]
        skip = own if own >= 0 else k
        items = k - 1 if own >= 0 else k
        at = used
        if at + sizes[i] > len(words):
            return i, used
        packed[i, :] = 0
        for last in range(items - sizes[i], items):
            found, at = _below(words, at, np.uint64(last + 1), items - last)
            if at < 0:
                return i, used
            item = np.int64(found)
            item += np.int64(item >= skip)
            if (packed[i, item >> 3] >> (item & 7)) & 1:
                item = last + np.int64(last >= skip)
            packed[i, item >> 3] |= np.uint8(1 << (item & 7))
        if own >= 0 and added[i]:
            packed[i, own >> 3] |= np.uint8(1 << (own & 7))
        used = at
    return len(sizes), used


def random_subsets(
    draw: Callable[[int], NDArray[np.uint64]],
    k: int,
    sizes: NDArray[np.int64],
    without: NDArray[np.int64],
    added: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """One uniform subset of ``{0 ... k - 1}`` per row, as packed bits (Floyd's algorithm; Bentley and Floyd 1987).

    Parameters
    ----------
    draw : callable
        The next words of a source of uniform 64-bit words.
    k : int
        Less than 2**31.
    sizes : array of int64
        Of the subsets.
    without : array of int64
        An item that is not in the subset of the row; -1 for none.
    added : array of bool, optional
        Where that item joins the subset after it was drawn.
    """
    packed = np.empty((len(sizes), -(-k // 8)), dtype=np.uint8)
    added = np.zeros(len(sizes), dtype=np.bool_) if added is None else added
    draw_rows = _draw_few if k <= FEW else _draw
    done, rest = 0, np.empty(0, dtype=np.uint32)
    while done < len(sizes):
        most = int(sizes.max())
        wanted = max(min((len(sizes) - done) * most // 2, _SLAB), most // 2) + 8
        more = draw(wanted).view(np.uint32)
        rest = np.concatenate([rest, more]) if rest.size else more
        done, used = draw_rows(rest, sizes, without, added, k, packed, done)
        rest = rest[used:]
    return packed

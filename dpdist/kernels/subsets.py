"""Uniform subsets of a given size, as packed bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import kernel

_SLAB = 1 << 15


@kernel
def _draw(
    words: NDArray[np.uint32], k: int, sizes: NDArray[np.int64], without: NDArray[np.int64], packed: Any, first: int
) -> tuple[int, int]:
    """Draw for the users from ``first`` on, as far as the words go; the number of users done and of words used."""
    used = 0
    for i in range(first, len(sizes)):
        skip = without[i]
        items = k - 1 if skip >= 0 else k
        at = used
        packed[i, :] = 0
        for last in range(items - sizes[i], items):
            # a uniform number in [0, last]: the few words that would make some numbers likelier are passed over
            # (Lemire 2019)
            n = np.uint64(last + 1)
            while True:
                if at == len(words):
                    return i, used
                product = np.uint64(words[at]) * n
                at += 1
                low = product & np.uint64(0xFFFFFFFF)
                if low >= n or low >= (np.uint64(1) << np.uint64(32)) % n:
                    break
            item: Any = np.int64(product >> np.uint64(32))
            if skip >= 0 and item >= skip:
                item += 1
            if (packed[i, item >> 3] >> (item & 7)) & 1:
                item = last + 1 if skip >= 0 and last >= skip else last
            packed[i, item >> 3] |= np.uint8(1 << (item & 7))
        used = at
    return len(sizes), used


def random_subsets(
    draw: Callable[[int], NDArray[np.uint64]], k: int, sizes: NDArray[np.int64], without: NDArray[np.int64]
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
    """
    packed = np.empty((len(sizes), -(-k // 8)), dtype=np.uint8)
    done, rest = 0, np.empty(0, dtype=np.uint32)
    while done < len(sizes):
        most = int(sizes.max())
        wanted = max(min((len(sizes) - done) * most // 2, _SLAB), most // 2) + 8
        rest = np.concatenate([rest, draw(wanted).view(np.uint32)])
        done, used = _draw(rest, k, sizes, without, packed, done)
        rest = rest[used:]
    return packed

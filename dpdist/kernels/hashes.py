"""A universal family of hash functions, and how many of many reports support each of many values.

``h(x) = floor(g ((a x + b) mod p) / 2^31)`` with ``p = 2^31 - 1``, and a, b the halves of a random word (31 bits of
each): for two values below 2^30, ``(a x + b) mod p`` takes any pair of values with the same chance up to 2**-30 (Carter
and Wegman 1979). A larger value has two digits ``x = x_1 2^30 + x_0`` and the polynomial ``a^2 x_1 + a x_0 + b``, which
is uniform, and agrees with that of another value for at most two of all a. (Digits of 31 bits would not do: p is 0.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]

PRIME = 2**31 - 1
SMALL = 2**30
"""Smaller values have one digit."""
LARGEST = SMALL**2 - 1
"""The largest value that can be hashed."""
_DIGIT = np.uint64(SMALL - 1)
_P = np.uint64(PRIME)
_P32 = np.uint32(PRIME)
_CHUNK = 1024  # users whose hash values stay in the first cache


@inlined_kernel
def _reduce(z: Any) -> Any:
    """``z mod p`` for ``z < 2^63``: 2^31 is 1 modulo p."""
    z = (z & _P) + (z >> np.uint64(31))
    z = (z & _P) + (z >> np.uint64(31))
    return z - _P if z >= _P else z


@inlined_kernel
def _position(seed: Any, x: Any) -> Any:
    """The hash value in [0, p), before it is put into one of g cells."""
    a = _reduce(seed & _P)
    b = (seed >> np.uint64(32)) & _P
    inner = _reduce(a * (x >> np.uint64(30))) + (x & _DIGIT)
    return _reduce(a * _reduce(inner) + b)


@kernel
def _hash(seeds: Words, values: NDArray[np.int64], g: int, out: Any) -> None:
    for i in range(len(values)):
        x = values[i]
        out[i] = -1 if x < 0 else np.int64((_position(seeds[i], np.uint64(x)) * np.uint64(g)) >> np.uint64(31))


@kernel
def _step(hashes: Any, steps: Any, lows: Any, widths: Any) -> int:
    """How many hash values lie in their cell; they become those of the next value."""
    support = np.uint32(0)
    for i in range(len(lows)):
        h = hashes[i]
        support += np.uint32(np.uint32(h - lows[i]) < widths[i])
        after = np.uint32(h + steps[i])
        hashes[i] = min(after, np.uint32(after - _P32))
    return int(support)


@kernel
def _support_range(seeds: Words, low: Any, width: Any, scratch: Any, counts: NDArray[np.int64]) -> None:
    """``h(v)`` for v = 0, 1, ... by repeated addition of a."""
    hashes, steps = scratch[0], scratch[1]
    for start in range(0, len(seeds), _CHUNK):
        lows = low[start : start + _CHUNK]
        widths = width[start : start + _CHUNK]
        m = len(lows)
        for i in range(m):
            hashes[i] = np.uint32(_reduce((seeds[start + i] >> np.uint64(32)) & _P))
            steps[i] = np.uint32(_reduce(seeds[start + i] & _P))
        for v in range(len(counts)):
            counts[v] += _step(hashes, steps, lows, widths)


@kernel
def _support_values(seeds: Words, low: Any, width: Any, values: Words, counts: NDArray[np.int64]) -> None:
    for i in range(len(seeds)):
        for j in range(len(values)):
            h = np.uint32(_position(seeds[i], values[j]))
            counts[j] += np.int64(np.uint32(h - low[i]) < width[i])


def hash_values(seeds: Words, values: NDArray[np.int64], g: int) -> NDArray[np.int64]:
    """``h(x)`` in [0, g) of each value under its own seed; -1 for -1."""
    out = np.empty(len(values), dtype=np.int64)
    _hash(seeds, values, g, out)
    return out


def cell_starts(g: int) -> NDArray[np.int64]:
    """The smallest number of [0, p) in each of the g cells, and p."""
    starts = -(-(np.arange(g + 1, dtype=np.int64) << 31) // g)
    return np.minimum(starts, PRIME)


def support(
    seeds: Words, cells: NDArray[Any], g: int, n_values: int, values: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """For how many of the pairs (seed, cell) the hash value of v is the cell.

    Parameters
    ----------
    seeds, cells : arrays of shape (n,)
    g : int
    n_values : int
        v = 0 ... n_values - 1, at most `SMALL` of them.
    values : array of int64, optional
        Other values to look at.
    """
    starts = cell_starts(g)
    cells = np.asarray(cells, dtype=np.int64)
    low, width = starts[cells].astype(np.uint32), np.diff(starts)[cells].astype(np.uint32)
    counts = np.zeros(n_values if values is None else len(values), dtype=np.int64)
    if values is None:
        _support_range(seeds, low, width, np.empty((2, _CHUNK), np.uint32), counts)
    else:
        _support_values(seeds, low, width, values.astype(np.uint64), counts)
    return counts

"""Randomised responses to symbols (bytes): which answers are replaced, and by which symbol.

A response is any symbol, each as likely, with probability r, and the answer with probability ``1 - r``. Whether it is
replaced is a bit of `dpdist.kernels.bernoulli`, by which symbol a byte. Both are drawn for every answer: how many words
that takes depends on what has been drawn only, never on answers. It is about .08 words for the bit and an eighth of one
for the byte.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bernoulli import bernoulli_lanes
from dpdist.kernels.symbol_counts import OPEN, Symbols

Words = NDArray[np.uint64]

_SLAB = 1 << 18  # answers whose bits and bytes are drawn at a time: they stay in the cache


def uniform_symbols(draw: Callable[[int], Words], n: int, k: int) -> Symbols:
    """``n`` independent symbols below k, each exactly as likely.

    The product of a byte and k has the symbol in its upper half; where the lower one is below ``256 mod k``, the byte
    is one too many of its symbol, and another is drawn (Lemire 2019).

    >>> uniform = np.random.default_rng(0)
    >>> found = uniform_symbols(lambda n: uniform.integers(0, 2**64, size=n, dtype=np.uint64), 3000, 3)
    >>> (np.bincount(found) / 3000).round(1).tolist()
    [0.3, 0.3, 0.3]
    """
    drawn = draw(-(-n // 8)).astype("<u8", copy=False).view(np.uint8)[:n]
    products = drawn * np.uint16(k)
    symbols = (products >> 8).astype(np.uint8)
    if 256 % k:
        again = np.flatnonzero((products & 0xFF) < 256 % k)
        if len(again):
            symbols[again] = uniform_symbols(draw, len(again), k)
    return symbols


def symbol_responses(
    answers: Symbols, draw: Callable[[int], Words], threshold: int, k: int, mask: bool = False
) -> Symbols:
    """The responses to answers, in their shape.

    Parameters
    ----------
    answers : array of uint8
        Symbols below k; any other byte is a null answer, whose response is any symbol, each as likely.
    draw : callable
        The next words of a source of uniform 64-bit words.
    threshold : int
        ``2**53`` times the chance that an answer is replaced.
    k : int
        Number of symbols, from 1 to 254.
    mask : bool
        Whether the response to `dpdist.kernels.symbol_counts.OPEN` is itself.
    """
    flat = np.ascontiguousarray(answers).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, len(flat), _SLAB):
        own = flat[start : start + _SLAB]
        replaced = bernoulli_lanes(draw, -(-len(own) // 64), threshold).astype("<u8", copy=False).view(np.uint8)
        chosen = np.unpackbits(replaced, count=len(own), bitorder="little") | (own >= k)
        if mask:
            chosen &= own != OPEN
        symbols = uniform_symbols(draw, len(own), k)
        out[start : start + _SLAB] = own ^ ((own ^ symbols) & -chosen)  # -1 has all bits: no branch for a processor
    return out.reshape(answers.shape)

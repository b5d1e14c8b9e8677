"""Independent random bits of one probability, 64 at a time.

A lane is one of the 64 bits of a word. ``U < t`` is decided for 64 uniform numbers at once by comparing their binary
digits with those of t, the leading ones first, so that every random word decides half of the lanes that are left. After
five words, two of 64 lanes are left on average; they go on one by one, with a byte each for the next eight digits. So
64 bits of any probability take about five words and a quarter, where a number per bit would need 64. How many are
drawn depends on what has been drawn only, never on data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

DIGITS = 53
"""Probabilities are multiples of ``2**-DIGITS``."""
_TOGETHER = 5  # digits that are compared for all lanes at once; whole bytes are left
_USUAL = 6  # lanes of a word that are left at most, but for one word in 200
_SLAB = 8192  # words of lanes that are drawn at a time: what they are made of stays in the cache


@inlined_kernel
def ones(word: Any) -> Any:
    """Number of bits that are 1; compilers know this form and emit one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel
def _compare(words: Words, digits: Words, lanes: Words, undecided: Words) -> int:
    """The leading digits of all lanes; how many lanes are left undecided.

    ``digits[j]`` has all bits of the j-th binary digit of the probability. ``words`` has a row for each digit.
    """
    left = np.uint64(0)
    n = len(lanes)
    for i in range(n):
        same = np.uint64(0xFFFFFFFFFFFFFFFF)
        below = np.uint64(0)
        for j in range(_TOGETHER):
            # a lane stays undecided while its digit is the probability's own
            still = same & (words[j * n + i] ^ ~digits[j])
            below |= (same ^ still) & digits[j]
            same = still
        lanes[i] = below
        undecided[i] = same
        left += ones(same)
    return int(left)


@kernel
def _finish(drawn: Bytes, digits: Bytes, lanes: Words, undecided: Words, agreed: Any) -> tuple[int, int]:
    """Decide the lanes that are left, one after another, until the bytes are used up.

    How many lanes are left, and in how many digits the first of them agrees so far (``agreed``, at the next call): it
    goes on from there. To start it again at its first digit would be to reject, among the lanes that a buffer ends in,
    those that agree: their bits would be biased, and the joint law of a report no longer epsilon-private.

    The usual lanes of a word are decided by a byte each without a branch, of which a processor could guess none; lanes
    behind them, and words of which a byte agrees, take the loop that does the same.
    """
    at = 0
    left = np.uint64(0)
    first = digits[0]
    for i in range(len(lanes)):
        rest = undecided[i]
        if agreed == 0 and at + _USUAL < len(drawn):
            below = np.uint64(0)
            agree = np.uint64(0)
            now = rest
            here = at
            for _ in range(_USUAL):
                lane = now & (~now + np.uint64(1))  # none, once no lane is left
                below |= lane * np.uint64(drawn[here] < first)
                agree |= lane * np.uint64(drawn[here] == first)
                here += int(now != 0)
                now ^= lane
            if agree == 0:
                lanes[i] |= below
                rest = now
                at = here
        while rest and at < len(drawn):
            lane = rest & (~rest + np.uint64(1))
            while agreed < len(digits) and at < len(drawn) and drawn[at] == digits[agreed]:
                agreed += 1
                at += 1
            if agreed < len(digits):
                if at == len(drawn):
                    break
                lanes[i] |= lane * np.uint64(drawn[at] < digits[agreed])
                at += 1
            agreed = 0
            rest ^= lane
        undecided[i] = rest
        left += ones(rest)
    return int(left), agreed


def bernoulli_lanes(draw: Callable[[int], Words], n_words: int, threshold: int) -> Words:
    """``n_words`` words of 64 independent bits, each 1 with probability ``threshold / 2**53`` exactly.

    Parameters
    ----------
    draw : callable
        The next words of a source of uniform 64-bit words.
    n_words : int
    threshold : int
        From 0 to 2**53 - 1.

    Examples
    --------
    >>> uniform = np.random.default_rng(0)
    >>> lanes = bernoulli_lanes(lambda n: uniform.integers(0, 2**64, size=n, dtype=np.uint64), 1000, 2**53 // 5)
    >>> round(float(np.bitwise_count(lanes).mean()) / 64, 2)
    0.2
    """
    if not 0 <= threshold < 1 << DIGITS:
        raise ValueError(f"threshold must be a whole number of 2**-{DIGITS} below 1, got {threshold}")
    together = [-(threshold >> (DIGITS - 1 - j) & 1) for j in range(_TOGETHER)]
    leading = np.array(together, dtype=np.int64).view(np.uint64)
    rest = (threshold & (1 << (DIGITS - _TOGETHER)) - 1).to_bytes((DIGITS - _TOGETHER) // 8, "big")
    following = np.frombuffer(rest, dtype=np.uint8)
    lanes = np.empty(n_words, dtype=np.uint64)
    for start in range(0, n_words, _SLAB):
        slab = lanes[start : start + _SLAB]
        undecided = np.empty_like(slab)
        left, agreed = _compare(draw(_TOGETHER * len(slab)), leading, slab, undecided), 0
        while left:
            # a lane in 256 needs a second byte
            drawn = draw((left + left // 128) // 8 + 1).astype("<u8", copy=False).view(np.uint8)
            left, agreed = _finish(drawn, following, slab, undecided, agreed)
    return lanes

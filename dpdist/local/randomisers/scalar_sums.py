"""The exact law of the sum of many reports about few different numbers: binomial splits instead of users.

Of ``n`` users with one number, binomially many send a sign, and of these binomially many the positive one. The others
send a cell: multinomially many one of the band, one below or one above it, where all cells are alike. The sum of m
numbers that are uniform below ``2**b`` is ``sum_j 2**j B_j`` with independent ``B_j ~ Binomial(m, 1/2)``, because the
digits of such a number are independent fair coins. Any other length is cut into powers of two, by its binary digits,
between which m is split. Coins of one digit are thrown together for all numbers, so that ``k`` numbers cost about
``100 k`` draws however many users there are. Chances are quotients of the integers of `ScalarLaw`, as float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.scalar_reports import CELLS, WORDS, ScalarLaw

Counts = NDArray[np.int64]
_DIGITS = CELLS.bit_length() - 1


def sum_of_reports(values: NDArray[np.float64], counts: Counts, law: ScalarLaw, generator: np.random.Generator) -> int:
    """A draw from the law of the sum of the reports of ``counts[i]`` users with the number ``values[i]``.

    Examples
    --------
    >>> from dpdist.kernels.scalar_reports import sign_law
    >>> total = sum_of_reports(np.array([1.0]), np.array([10**9]), sign_law(1.0), np.random.default_rng(0))
    >>> round(total / 10**9 / sign_law(1.0).slope, 2)
    1.0
    """
    signs = generator.binomial(counts, min(1.0, law.signs / WORDS)) if law.signs < WORDS else counts
    total = 0
    if law.signs:
        half = law.signs // 2
        threshold = half + (values * float(half - law.least)).astype(np.int64)
        chance = np.clip(threshold, law.least, law.signs - law.least) / law.signs
        positive = generator.binomial(signs, chance)
        total += law.jump * (2 * int(positive.sum()) - int(signs.sum()))
    if law.signs < WORDS:
        total += _sum_of_cells(values, counts - signs, law, generator)
    return total


def _sum_of_cells(values: NDArray[np.float64], counts: Counts, law: ScalarLaw, generator: np.random.Generator) -> int:
    rest = CELLS - law.band
    start = np.clip(rest // 2 + np.rint(values * (rest // 2)).astype(np.int64), 0, rest)
    above = np.full(start.shape, law.band) + start
    more = WORDS - law.signs - law.band * law.inside - rest * law.outside  # cells of the rest with one word more
    low = np.minimum(more, start)
    firsts = np.stack([np.zeros_like(start), start, above, np.zeros_like(start), above], axis=1)
    lengths = np.stack([start, np.full(start.shape, law.band), rest - start, low, more - low], axis=1)
    each = np.array([law.outside, law.inside, law.outside, 1, 1], dtype=np.float64)
    words = lengths * each
    split = generator.multinomial(counts, words / words.sum(axis=1, keepdims=True))
    cells = int((split * firsts).sum()) + _sum_of_uniforms(split.ravel(), lengths.ravel(), generator)
    return 2 * cells - (CELLS - 1) * int(counts.sum())


def _sum_of_uniforms(counts: Counts, lengths: Counts, generator: np.random.Generator) -> int:
    """Of ``counts[i]`` integers that are uniform in {0, ..., lengths[i] - 1}."""
    total, left = 0, counts.copy()
    coins = np.zeros(_DIGITS + 1, dtype=np.int64)
    for digit in range(_DIGITS, -1, -1):
        has = (lengths >> digit) & 1 == 1
        if not has.any():
            continue
        remaining = lengths & ((1 << (digit + 1)) - 1)
        here = np.zeros_like(left)
        here[has] = generator.binomial(left[has], (1 << digit) / remaining[has])
        offset = (lengths >> (digit + 1)) << (digit + 1)
        total += int((here * offset).sum())
        coins[:digit] += here.sum()
        left -= here
    return total + sum(int(n) << j for j, n in enumerate(generator.binomial(coins, 0.5)))

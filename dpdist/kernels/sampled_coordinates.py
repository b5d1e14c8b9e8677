"""Reports about sampled coordinates: which ones, and the reports about them, drawn and added up in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.kernels.compiled import kernel
from dpdist.kernels.scalar_reports import CELLS, WORDS


@kernel
def distinct_coordinates(words: Any, size: int, drawn: Any) -> None:
    """As many different coordinates below ``size`` per row as there are words (Floyd; Bentley 1987).

    Parameters
    ----------
    words : array of uint64, shape (m, k)
    size : int
    drawn : array of int64, shape (m, k)
    """
    m, k = words.shape
    at: Any
    for user in range(m):
        for i in range(k):
            last = size - k + i
            at = np.int64(((words[user, i] >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32))
            for earlier in range(i):
                if drawn[user, earlier] == at:
                    at = last
                    break
            drawn[user, i] = at


@kernel
def sampled_sum(
    drawn: Any,
    values: Any,
    words: Any,
    signs: int,
    least: int,
    jump: int,
    band: int,
    inside: int,
    outside: int,
    total: Any,
) -> None:
    """Add every user's reports to ``total``: sums, then counts.

    Parameters
    ----------
    drawn : array of int64, shape (m, k)
        The coordinates.
    values : array of float64, shape (m, k)
        What the user has there.
    words : array of uint64, shape (m, k)
        What the reports are drawn with.
    signs, least, jump, band, inside, outside : int
        The `dpdist.kernels.scalar_reports.ScalarLaw`; bit for bit what `scalar_reports` draws.
    total : array of int64, shape (2 d,)
    """
    m, k = drawn.shape
    d = len(total) // 2
    threshold: Any
    start: Any
    cell: Any
    half, rest, in_band = signs // 2, CELLS - band, band * inside
    slope = float(half - least)
    for user in range(m):
        for i in range(k):
            at = drawn[user, i]
            value = values[user, i]
            w = np.int64(words[user, i] >> np.uint64(2))
            if w < signs:
                threshold = half + np.int64(value * slope)
                threshold = min(max(threshold, least), signs - least)
                report = jump if w < threshold else -jump
            else:
                w -= signs
                start = rest // 2 + np.int64(np.rint(value * (rest // 2)))
                start = min(max(start, 0), rest)
                if w < in_band:
                    cell = start + w // inside
                else:
                    cell = (w - in_band) // outside
                    if cell >= rest:
                        cell = w - in_band - rest * outside
                    if cell >= start:
                        cell += band
                report = 2 * cell - (CELLS - 1)
            total[at] += report
            total[d + at] += 1


assert WORDS == 2**62, "a word is shifted by two bits"

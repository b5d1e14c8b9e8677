"""Rows of categories as words of bits, and what a word says of sets of its bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.kernels.compiled import kernel


@kernel
def bit_words(X: Any, levels: Any, widths: Any, words: Any, known: Any) -> None:
    """The codes of a row's columns, one after another in one word.

    A column of two levels is 1 above a half; one of more holds a whole number below its levels, and the row is null
    where it does not, as where an entry is not finite.

    Parameters
    ----------
    X : array of numbers, shape (m, p)
    levels, widths : array of int64, shape (p,)
        Number of levels, and of bits, of each column.
    words : array of uint64, shape (m,)
    known : array of bool, shape (m,)
    """
    m, p = X.shape
    for i in range(m):
        word = np.uint64(0)
        shift = np.uint64(0)
        bad = 0
        for j in range(p):
            x = np.float64(X[i, j])
            bad += not abs(x) < np.inf
            code = np.uint64(x > 0.5)
            if levels[j] > 2:
                inside = x >= 0.0 and x < levels[j]
                whole = np.uint64(x) if inside else np.uint64(0)
                bad += not (inside and np.float64(whole) == x)
                code = whole
            word |= code << shift
            shift += np.uint64(widths[j])
        words[i] = word
        known[i] = not bad


@kernel
def parities_at(words: Any, known: Any, masks: Any, drawn: Any, out: Any) -> None:
    """``(-1)^(number of bits that word and mask share)``; 0 for a null row.

    Parameters
    ----------
    words : array of uint64, shape (m,)
    known : array of bool, shape (m,)
    masks : array of uint64, shape (M,)
    drawn : array of int64, shape (m, k)
        Which masks are asked of each row.
    out : array of float64, shape (m, k)
    """
    m, k = drawn.shape
    for i in range(m):
        for c in range(k):
            shared = words[i] & masks[drawn[i, c]]
            for half in (32, 16, 8, 4, 2, 1):
                shared ^= shared >> np.uint64(half)
            out[i, c] = (1.0 - 2.0 * np.float64(shared & np.uint64(1))) if known[i] else 0.0


@kernel
def conjunctions_at(words: Any, known: Any, masks: Any, drawn: Any, out: Any) -> None:
    """1 where a word has all bits of the mask, else -1; 0 for a null row. Parameters as of `parities_at`."""
    m, k = drawn.shape
    for i in range(m):
        for c in range(k):
            mask = masks[drawn[i, c]]
            holds = 1.0 if words[i] & mask == mask else -1.0
            out[i, c] = holds if known[i] else 0.0

"""Words of bits, parities and conjunctions against plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.parities import bit_words, conjunctions_at, parities_at

rng = np.random.default_rng(0)


def test_words_hold_the_codes_of_columns_and_null_rows_are_known():
    levels, widths = np.array([2, 3, 8, 2]), np.array([1, 2, 3, 1])
    X = np.column_stack([rng.integers(0, k, 500) for k in levels]).astype(np.float64)
    X[0, 0], X[1, 1], X[2, 2], X[3, 1], X[4, 3] = np.nan, 3.0, 0.5, -1.0, np.inf
    words, known = np.empty(500, np.uint64), np.empty(500, np.bool_)
    bit_words(X, levels, widths, words, known)
    assert not known[:5].any() and known[5:].all()
    for row, word in zip(X[5:], words[5:], strict=True):
        a, b, c, d = (int(x) for x in row)
        assert int(word) == a | b << 1 | c << 3 | d << 6


@pytest.mark.parametrize("kernel", [parities_at, conjunctions_at])
def test_values_are_those_of_single_bits(kernel):
    words = rng.integers(0, 2**64, 300, dtype=np.uint64)
    masks = np.concatenate([np.uint64(1) << np.arange(64, dtype=np.uint64), words[:20], words[:20] & words[1:21]])
    known, drawn = rng.random(300) < 0.9, rng.integers(0, len(masks), (300, 3))
    out = np.empty((300, 3))
    kernel(words, known, masks, drawn, out)
    for i in range(300):
        for c in range(3):
            word, mask = int(words[i]), int(masks[drawn[i, c]])
            parity = 1 - 2 * ((word & mask).bit_count() % 2)
            holds = 1 if word & mask == mask else -1
            assert out[i, c] == (parity if kernel is parities_at else holds) * bool(known[i])

"""Population counts add up what plain products do, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.bit_planes import (
    LARGEST,
    column_counts,
    column_sums,
    n_words,
    pack_words,
    planes,
    row_sums,
    words_of,
)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 64), (64, 65), (65, 63), (130, 200)])
def test_sums_over_bits_are_those_of_plain_products(n, m):
    rng = np.random.default_rng(n * 1000 + m)
    bits = rng.integers(0, 2, (n, m))
    words = pack_words(bits)
    assert words.shape == (n, n_words(m))
    for numbers in (rng.integers(-LARGEST, LARGEST + 1, m), np.full(m, LARGEST), np.full(m, -LARGEST)):
        sums, counts = row_sums(words, numbers)
        assert np.array_equal(sums, bits @ numbers) and np.array_equal(counts, bits.sum(axis=1))
    numbers = rng.integers(-LARGEST, LARGEST + 1, n)
    sums, counts = column_sums(words, numbers, m)
    assert np.array_equal(sums, numbers @ bits) and np.array_equal(counts, bits.sum(axis=0))
    assert np.array_equal(column_counts(words, m), bits.sum(axis=0))


def test_numbers_of_more_bits_would_not_do():
    words = pack_words(np.ones((1, 1), bool))
    assert row_sums(words, np.array([LARGEST]))[0] == LARGEST
    assert row_sums(words, np.array([4 * LARGEST]))[0] != 4 * LARGEST, "the largest number is what it says"
    assert planes(np.array([0])).shape == (16, 1)


def test_packed_bytes_and_words_hold_the_same_bits():
    bits = np.random.default_rng(0).integers(0, 2, (5, 83))
    assert np.array_equal(words_of(np.packbits(bits, axis=1, bitorder="little")), pack_words(bits))

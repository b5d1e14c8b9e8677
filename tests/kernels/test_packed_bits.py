"""Rows of packed bits against rows of whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.packed_bits import count_packed, count_unary, lane_words, pack_unary, padding_is_zero


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 200, 256])
@pytest.mark.parametrize("k", [1, 2, 7, 8, 63, 64, 65, 130])
@pytest.mark.parametrize("with_coins", [False, True])
def test_packed_rows_are_the_lanes_with_own_bits(n, k, with_coins):
    rng = np.random.default_rng(n * 1000 + k)
    lanes = rng.integers(0, 2**64, size=lane_words(n, k), dtype=np.uint64)
    values = rng.integers(-1, k, size=n)
    coins = rng.integers(0, 2**64, size=-(-n // 64), dtype=np.uint64) if with_coins else None
    stream = np.unpackbits(lanes.view(np.uint8), bitorder="little")
    full = n // 64 * 64
    whole = stream[: full * k].reshape(-1, k, 64).transpose(0, 2, 1).reshape(full, k)
    last = stream[full * k : n * k].reshape(k, n - full).T
    expected = np.concatenate([whole, last])
    for i, x in enumerate(values):
        if x >= 0:
            expected[i, x] = 1 - expected[i, x] if coins is None else int(coins[i // 64]) >> (i % 64) & 1
    packed = pack_unary(lanes, values, k, coins)
    np.testing.assert_array_equal(packed, np.packbits(expected, axis=1, bitorder="little"))
    np.testing.assert_array_equal(count_unary(lanes, values, k, coins), expected.sum(axis=0))
    np.testing.assert_array_equal(count_packed(packed, k), expected.sum(axis=0))
    assert padding_is_zero(packed, k).all()
    if k % 8:
        packed[0, -1] |= 128
        assert not padding_is_zero(packed, k)[0]


def test_counts_beyond_one_byte():
    packed = np.full((1000, 2), 255, dtype=np.uint8)
    assert count_packed(packed, 16).tolist() == [1000] * 16
    assert count_packed(packed[:0], 16).tolist() == [0] * 16

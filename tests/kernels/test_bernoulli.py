"""Random bits against plain Python, word by word."""

from __future__ import annotations

import math
from itertools import chain, repeat

import numpy as np
import pytest

from dpdist.kernels import bernoulli
from dpdist.kernels.bernoulli import DIGITS, bernoulli_lanes


def source(seed):
    rng = np.random.default_rng(seed)
    return lambda n: rng.integers(0, 2**64, size=n, dtype=np.uint64)


THRESHOLDS = [0, 1, 2**48, 2**52, 2**53 // 3, 2**53 - 1, 12345678901234, (2**53 >> 5) * 7]


def plain_lanes(draw, n_words, threshold, slab):
    """Every lane's digits written out: five together, then bytes."""
    out = []
    for start in range(0, n_words, slab):
        n = min(slab, n_words - start)
        first = [int(w) for w in draw(5 * n)]
        heads = [[sum(((first[j * n + i] >> b) & 1) << (4 - j) for j in range(5)) for b in range(64)] for i in range(n)]
        top, rest = threshold >> 48, (threshold & (2**48 - 1)).to_bytes(6, "big")
        bits = {(i, b): heads[i][b] < top for i in range(n) for b in range(64)}
        left = [(i, b) for i in range(n) for b in range(64) if heads[i][b] == top]
        agreed = 0
        while left:
            drawn = b"".join(int(w).to_bytes(8, "little") for w in draw((len(left) + len(left) // 128) // 8 + 1))
            for byte in drawn:
                if left and byte != rest[agreed]:
                    bits[left.pop(0)] = byte < rest[agreed]
                    agreed = 0
                elif left:
                    agreed += 1
                    if agreed == 6:
                        bits[left.pop(0)], agreed = False, 0
        out += [sum(bits[i, b] << b for b in range(64)) for i in range(n)]
    return np.array(out, dtype=np.uint64)


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_lanes_are_comparisons_of_binary_numbers(threshold, monkeypatch):
    monkeypatch.setattr(bernoulli, "_SLAB", 40)
    for seed, n in ((0, 1), (1, 7), (2, 100)):
        found = bernoulli_lanes(source(seed), n, threshold)
        np.testing.assert_array_equal(found, plain_lanes(source(seed), n, threshold, slab=40))


def test_lanes_where_most_digits_agree(monkeypatch):
    """Bytes that are mostly those of the threshold, so that buffers end within a lane all the time."""
    monkeypatch.setattr(bernoulli, "_SLAB", 40)

    def mostly_ties(seed):
        rng = np.random.default_rng(seed)

        def draw(n):
            words = rng.integers(0, 2**64, size=n, dtype=np.uint64)
            return np.where(rng.random(8 * n) < 0.7, np.uint8(0x55), words.view(np.uint8)).view(np.uint64)

        return draw

    for seed in range(20):
        found = bernoulli_lanes(mostly_ties(seed), 9, 2**53 // 3)
        np.testing.assert_array_equal(found, plain_lanes(mostly_ties(seed), 9, 2**53 // 3, slab=40))


def test_equal_digits_to_the_end_are_not_below():
    """Words that agree with the threshold in every digit, and in every digit but the last."""
    threshold = 2**53 // 3
    digits = [threshold >> (DIGITS - 1 - j) & 1 for j in range(5)]
    tail = (threshold & (2**48 - 1)).to_bytes(6, "big")

    def draw_with(last):
        supply = chain([digits], repeat(tail[:5] + bytes([last])))

        def draw(n):
            given = next(supply)
            if isinstance(given, list):
                return np.array([-digit for digit in given], dtype=np.int64).view(np.uint64)
            return np.frombuffer((given * (2 * n))[: 8 * n], dtype=np.uint64)

        return draw

    assert int(bernoulli_lanes(draw_with(tail[5]), 1, threshold)[0]) & 1 == 0
    assert int(bernoulli_lanes(draw_with(tail[5] - 1), 1, threshold)[0]) & 1 == 1
    assert int(bernoulli_lanes(draw_with(tail[5] + 1), 1, threshold)[0]) & 1 == 0


@pytest.mark.parametrize("threshold", [t for t in THRESHOLDS if 2**40 < t < 2**53 - 2**40])
def test_frequency_of_ones_and_independence_of_neighbours(threshold):
    n, p = 20_000, threshold / 2**53
    lanes = bernoulli_lanes(source(3), n, threshold)
    bits = np.unpackbits(lanes.view(np.uint8)).astype(float)
    sd = math.sqrt(p * (1 - p) / bits.size)
    assert abs(bits.mean() - p) < 6 * sd
    centred = bits - p
    for lag in (1, 8, 64, 4096):
        assert abs((centred[lag:] * centred[:-lag]).mean()) < 6 * p * (1 - p) / math.sqrt(bits.size - lag)


def test_few_words_are_drawn():
    drawn = 0
    inner = source(4)

    def counted(n):
        nonlocal drawn
        drawn += n
        return inner(n)

    bernoulli_lanes(counted, 10_000, 2**53 // 7)
    assert drawn < 5.4 * 10_000


@pytest.mark.parametrize("threshold", [-1, 2**53])
def test_impossible_thresholds(threshold):
    with pytest.raises(ValueError, match="threshold"):
        bernoulli_lanes(source(0), 1, threshold)

"""Random bits, packed rows, hashes and subsets against plain Python, word by word."""

from __future__ import annotations

import math
from itertools import chain, combinations, repeat

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import chi2

from dpdist.kernels import bernoulli
from dpdist.kernels.bases import fwht
from dpdist.kernels.bernoulli import DIGITS, bernoulli_lanes
from dpdist.kernels.hashes import LARGEST, PRIME, SMALL, cell_starts, hash_values, support
from dpdist.kernels.packed_bits import count_packed, count_unary, lane_words, pack_unary, padding_is_zero
from dpdist.kernels.subsets import random_subsets


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


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_walsh_hadamard_transform(size):
    v = np.random.default_rng(size).integers(-9, 9, size=size)
    np.testing.assert_array_equal(fwht(v), hadamard(size) @ v)
    np.testing.assert_array_equal(fwht(fwht(v)), size * v)


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 2)])
def test_no_transform_of_other_lengths(shape):
    with pytest.raises(ValueError, match="power of two"):
        fwht(np.zeros(shape))


def plain_hash(seed, x, g):
    a, b = (seed & PRIME) % PRIME, seed >> 32 & PRIME
    return ((a * (a * (x >> 30) + (x & SMALL - 1)) + b) % PRIME) * g >> 31


EDGES = [0, PRIME, PRIME << 32, (PRIME - 1) | PRIME << 32, (PRIME << 32) | PRIME, 2**64 - 1, 1, 1 << 32]


@pytest.mark.parametrize("g", [2, 3, 4, 55, 65536])
def test_hashes_are_the_polynomial(g):
    rng = np.random.default_rng(g)
    seeds = np.concatenate([rng.integers(0, 2**64, size=200, dtype=np.uint64), np.array(EDGES, dtype=np.uint64)])
    for top in (100, SMALL, 2**40, LARGEST + 1):
        values = rng.integers(0, top, size=len(seeds))
        values[:3] = 0, top - 1, -1
        found = hash_values(seeds, values, g)
        expected = [-1 if x < 0 else plain_hash(int(s), int(x), g) for s, x in zip(seeds, values, strict=True)]
        np.testing.assert_array_equal(found, expected)


def test_supporters_by_brute_force():
    rng = np.random.default_rng(5)
    n, k, g = 2500, 40, 5
    seeds = np.concatenate([rng.integers(0, 2**64, size=n - 8, dtype=np.uint64), np.array(EDGES, dtype=np.uint64)])
    cells = rng.integers(0, g, size=n)
    expected = [sum(plain_hash(int(s), v, g) == c for s, c in zip(seeds, cells, strict=True)) for v in range(k)]
    np.testing.assert_array_equal(support(seeds, cells, g, k), expected)
    some = np.array([3, 17, 3, 39])
    np.testing.assert_array_equal(support(seeds, cells, g, 0, some), np.array(expected)[some])


def test_a_small_copy_of_the_family_is_pairwise_uniform():
    """Over all (a, b) modulo a small prime, two values take every pair of positions equally often."""
    p = 31
    for x, y in ((0, 1), (3, 30)):
        pairs = np.array([((a * x + b) % p) * p + (a * y + b) % p for a in range(p) for b in range(p)])
        assert (np.bincount(pairs, minlength=p * p) == 1).all()


@pytest.mark.parametrize("g", [2, 3, 7, 1000])
def test_cells_tile_the_positions(g):
    starts = cell_starts(g)
    assert starts[0] == 0 and starts[-1] == PRIME
    positions = np.unique(np.concatenate([starts[:-1], starts[1:] - 1]))
    np.testing.assert_array_equal(positions * g >> 31, np.searchsorted(starts, positions, side="right") - 1)


SUBSETS = [(6, 2, -1), (6, 3, 0), (6, 2, 5), (6, 2, 3), (4, 4, -1), (5, 0, 2), (9, 3, 8)]


@pytest.mark.parametrize(("k", "w", "without"), SUBSETS)
def test_all_subsets_are_equally_frequent(k, w, without):
    n = 60_000
    packed = random_subsets(source(k + w), k, np.full(n, w), np.full(n, without))
    members = np.unpackbits(packed, axis=1, bitorder="little")
    assert (members.sum(axis=1) == w).all()
    assert without < 0 or not members[:, without].any()
    cells = [sum(1 << i for i in subset) for subset in combinations([i for i in range(k) if i != without], w)]
    code = members[:, :k].astype(np.int64) @ (1 << np.arange(k))
    counts = np.bincount(code, minlength=1 << k)[cells]
    assert counts.sum() == n
    expected = n / len(cells)
    assert ((counts - expected) ** 2 / expected).sum() <= chi2.isf(1e-7, max(len(cells) - 1, 1))


def test_biased_words_are_passed_over():
    """For n = 3, only the word 0 is one too many of 2**32; it must not be used."""
    supply = np.array([0, 0, 0, 7 << 61], dtype=np.uint64)
    packed = random_subsets(lambda n: np.resize(supply, n), 3, np.array([1]), np.array([-1]))
    assert packed.tolist() == [[1 << (7 * 3 >> 3)]]

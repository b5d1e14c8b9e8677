"""Hash values and their supporters against plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.hashes import LARGEST, PRIME, SMALL, cell_starts, hash_values, support


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

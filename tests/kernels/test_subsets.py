"""Random subsets: uniform, and those that Floyd's algorithm draws in plain Python from the same words."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from dpdist.kernels.subsets import random_subsets


def source(seed):
    rng = np.random.default_rng(seed)
    return lambda n: rng.integers(0, 2**64, size=n, dtype=np.uint64)


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


def plain_subset(words, k, size, without):
    """Floyd's algorithm, with numbers that are passed over where they would be likelier than others (Lemire)."""
    items = [item for item in range(k) if item != without]
    chosen = set()
    for last in range(len(items) - size, len(items)):
        n = last + 1
        product = next(words) * n
        while product % 2**32 < 2**32 % n:
            product = next(words) * n
        number = product >> 32
        chosen.add(items[last] if items[number] in chosen else items[number])
    return chosen


@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 63, 64, 65, 100, 127, 128, 129, 130])
def test_subsets_are_those_of_the_plain_algorithm(k):
    rng = np.random.default_rng(k)
    without = rng.integers(-1, k, 50)
    sizes = rng.integers(0, k - (without >= 0) + 1)
    added = rng.random(50) < 0.5
    packed = random_subsets(source(k), k, sizes, without, added)
    assert (random_subsets(source(k), k, sizes, without)[~added] == packed[~added]).all()
    draw = source(k)
    halves = (int(half) for _ in range(10**6) for half in draw(1).view(np.uint32))
    for row, size, skip, joined in zip(packed, sizes, without, added, strict=True):
        members = np.flatnonzero(np.unpackbits(row, bitorder="little"))
        more = {int(skip)} if joined and skip >= 0 else set()
        assert set(members.tolist()) == plain_subset(halves, k, int(size), int(skip)) | more

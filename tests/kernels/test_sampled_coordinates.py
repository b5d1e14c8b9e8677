"""Sampled coordinates against Floyd's algorithm in plain Python, and sums of reports against reports one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.sampled_coordinates import distinct_coordinates, sampled_sum
from dpdist.kernels.scalar_reports import cell_law, mixed_law, scalar_reports, sign_law


def floyd(words, size):
    drawn = []
    for i, word in enumerate(words):
        last = size - len(words) + i
        number = (int(word) >> 32) * (last + 1) >> 32
        drawn.append(last if number in drawn else number)
    return drawn


@pytest.mark.parametrize("k, size", [(1, 1), (1, 9), (3, 3), (3, 5), (8, 9), (2, 2**31 - 1)])
def test_coordinates_are_those_of_the_plain_algorithm(k, size):
    rng = np.random.default_rng(size % 1000)
    words = rng.integers(0, 2**64, (200, k), dtype=np.uint64)
    words[0], words[1], words[2] = 0, 2**64 - 1, np.uint64(2**63)
    for rows in (words, words[:0], words[:1]):
        drawn = np.full(rows.shape, -1)
        distinct_coordinates(rows, size, drawn)
        assert drawn.tolist() == [floyd(row, size) for row in rows]
        assert all(len(set(row)) == k and 0 <= min(row) <= max(row) < size for row in drawn.tolist())


@pytest.mark.parametrize("law", [sign_law(1.0), cell_law(0.3), mixed_law(2.0, 0.4)], ids=["sign", "cell", "mixed"])
@pytest.mark.parametrize("k", [1, 3])
def test_sums_are_those_of_the_reports_one_by_one(law, k):
    rng = np.random.default_rng(k)
    n, d = 300, 7
    drawn = np.array([rng.permutation(d)[:k] for _ in range(n)])
    values = rng.choice([-1.0, 1.0, 0.0, -0.0, 5e-324, 0.3, -1 / 3, 1 - 2**-53, 1.5, -1.2], (n, k))
    words = rng.integers(0, 2**64, (n, k), dtype=np.uint64)
    words[0], words[1] = 0, 2**64 - 1
    for m in (0, 1, n):
        total = np.arange(2 * d)
        sampled_sum(drawn[:m], values[:m], words[:m], *law, total)
        expected = list(range(2 * d))
        for at, value, word in zip(drawn[:m].ravel(), values[:m].ravel(), words[:m].ravel(), strict=True):
            expected[at] += int(scalar_reports(np.array([value]), np.array([word]), law)[0])
            expected[d + at] += 1
        assert total.tolist() == expected

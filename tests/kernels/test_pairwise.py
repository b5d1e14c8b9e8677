"""Sums over all pairs of rows, against the double loop, and the norm that a row can move them by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import toeplitz

from dpdist.kernels.pairwise import N_BINS, bin_width, binned_rows, opposite_pairs, pair_grid, row_grid

rng = np.random.default_rng(0)
X, y = rng.normal(size=(400, 5)) / 3, rng.choice([-1.0, 1.0], 400, p=[0.8, 0.2])
W = np.array([0.5, -0.7, 0.2, 0.0, 0.3])


def pairs(X, y, w, row_norm=1.0):
    return opposite_pairs(*binned_rows(X, y, w, row_norm), bin_width(w, row_norm), len(X)) * pair_grid(row_norm)


def double_loop(X, y, w):
    X = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    apart = X[y > 0][:, None] - X[y < 0]
    return np.einsum("ij,ijk->k", 1 / (1 + np.exp(2 * apart @ w)), apart)


@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0])
def test_the_sum_is_that_of_the_double_loop_but_for_bins(scale):
    exact = double_loop(X, y, scale * W)
    assert np.linalg.norm(pairs(X, y, scale * W) - exact) < (1 + scale) * 1e-3 * np.linalg.norm(exact)


def test_parts_add_up_to_the_whole_in_any_order():
    whole = binned_rows(X, y, W, 1.0)
    parts = [binned_rows(X[a : a + 37], y[a : a + 37], W, 1.0) for a in range(0, 400, 37)]
    assert np.array_equal(whole, sum(parts[::-1]))
    assert np.array_equal(whole, binned_rows(np.asfortranarray(X), y, W, 1.0))


@pytest.mark.filterwarnings("error")  # a warning would tell that the row is there
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_row_and_a_foreign_label_add_nothing(bad):
    rows, labels = X.copy(), y.copy()
    rows[3, 2], labels[5] = bad, bad
    kept = np.delete(np.arange(400), [3, 5])
    assert np.array_equal(binned_rows(rows, labels, W, 1.0), binned_rows(X[kept], y[kept], W, 1.0))


@pytest.mark.parametrize("d", [1, 7, 64, 65, 131])
def test_rows_of_any_width_are_added_as_one_by_one(d):
    """Vectors, what is left of them, and more columns than registers hold; a block of rows and single ones."""
    some = np.random.default_rng(d)
    rows, labels, w = some.normal(size=(70, d)) / np.sqrt(d), some.choice([-1.0, 1.0, 0.0], 70), some.normal(size=d)
    rows[::9] *= 1e250  # set aside
    table = binned_rows(rows, labels, w, 1.0)
    expected = np.zeros_like(table)
    for x, label in zip(rows, labels, strict=True):
        if label:
            largest = max(1.0, abs(x).max())
            x = x / largest * min(largest, (1 - 1e-12) / np.linalg.norm(x / largest))
            place = min(int(np.floor(x @ w / bin_width(w, 1.0))) + N_BINS // 2, N_BINS - 1)
            expected[0 if label > 0 else 1, place] += [1, *np.trunc(x / row_grid(1.0)).astype(int)]
    assert np.array_equal(table[..., 0], expected[..., 0]) and abs(table - expected).max() <= 2


def test_long_short_and_extreme_rows_stay_within_their_norm():
    for scale in (1e-320, 1e-200, 1e-30, 1.0, 1e30, 1e200, 1e307):
        table = binned_rows(X[:1] * scale, np.ones(1), W, 1.0)
        sums = table[0, :, 1:].sum(axis=0)
        assert table[0, :, 0].sum() == 1 and sum(int(v) ** 2 for v in sums) <= round(1 / row_grid(1.0)) ** 2
    single = binned_rows(X.astype(np.float32), y, W, 1.0)
    assert abs(single[..., 1:].sum(axis=1) - binned_rows(X, y, W, 1.0)[..., 1:].sum(axis=1)).max() < 800


def test_sums_of_very_many_rows_are_exact():
    """Limbs against Python integers, at counts that a billion rows have."""
    n = 10**9
    positive, negative = (rng.integers(-(2**20) * n // 2000, 2**20 * n // 2000, size=(N_BINS, 3)) for _ in range(2))
    for table in (positive, negative):
        table[:, 0] = rng.multinomial(n // 2, np.full(N_BINS, 1 / N_BINS))
    from dpdist.kernels.pairwise import _shares

    ahead = _shares(0.01)
    shares = toeplitz(ahead[N_BINS - 1 :], ahead[N_BINS - 1 :: -1]).astype(object)
    first = (shares @ negative[:, 0].astype(object)) @ positive[:, 1:].astype(object)
    second = (shares.T @ positive[:, 0].astype(object)) @ negative[:, 1:].astype(object)
    assert opposite_pairs(positive, negative, 0.01, n).tolist() == (first - second).tolist()


def test_one_positive_row_among_negative_ones_attains_the_bound():
    """It scores far below the others, and turns round: every pair moves by twice the norm of a row."""
    n, w = 50, np.array([40.0, 0.0])
    rest = np.tile([0.9, 0.0], (n - 1, 1))
    labels = np.array([1.0] + [-1.0] * (n - 1))
    one, other = (pairs(np.vstack([[0.0, side], rest]), labels, w) for side in (1.0, -1.0))
    assert 0.999 < np.linalg.norm(one - other) / (2 * (n - 1)) <= 1

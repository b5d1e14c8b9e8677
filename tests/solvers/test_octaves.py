"""Where sizes are cut, from counts of them in octaves."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.octaves import middle_size, scale_of_labels, scale_of_residuals, scale_of_rows, sizes_of_counts


def octaves(sizes, longest, n=12):
    """What is released of them, without noise."""
    return np.histogram(np.minimum(sizes, 4 * longest), [*(longest * 2.0 ** np.arange(-n, 1)), np.inf])[0][::-1] * 1.0


def test_the_scale_is_where_noise_matters_least():
    """For rows of one norm it is that norm; the noise of empty counts is not taken for rows."""
    norms = 10 * 2.0 ** -np.arange(13)
    for j in range(1, 13):
        counts = np.zeros(13)
        counts[j] = 1_000
        assert 0.5 * norms[j - 1] <= scale_of_rows(counts, 20.0, 10.0, 3.0) <= norms[j - 1]
        noisy = counts + 19 * np.random.default_rng(j).choice([-1, 1], 13)
        assert 0.5 * norms[j - 1] <= scale_of_rows(noisy, 20.0, 10.0, 3.0) <= norms[j - 1]
    assert scale_of_rows(np.array([1_000.0, 0, 0]), 1.0, 10.0, 3.0) == 10.0
    assert scale_of_rows(np.zeros(13), 20.0, 10.0, 3.0) == 3.0
    # a few long rows do not make it long, half of them do
    assert scale_of_rows(np.array([10.0, 0, 0, 0, 1_000]), 1.0, 16.0, 3.0) < 2.0
    assert scale_of_rows(np.array([500.0, 0, 0, 0, 500]), 1.0, 16.0, 3.0) == 16.0


def test_counts_of_nothing_but_noise_leave_what_is_public():
    noisy = 19 * np.random.default_rng(0).choice([-1, 1], 13)
    assert middle_size(noisy, 20.0, 8.0, 1_000) == 0.0
    assert scale_of_labels(noisy, 20.0, 8.0, 1_000, 0.1) == 8.0
    assert scale_of_residuals(noisy, 20.0, 8.0, 1_000, 0.1) == 0.0
    assert scale_of_residuals(octaves(np.ones(1_000), 8.0), 130.0, 8.0, 1_000, 0.1) == 0.0


@pytest.mark.parametrize("rule", [scale_of_labels, scale_of_residuals])
def test_the_less_noise_costs_the_more_is_kept(rule):
    counts = octaves(np.abs(np.random.default_rng(1).normal(size=20_000)), 16.0)
    found = [rule(counts, 1.0, 16.0, 20_000, cost) for cost in (1e-9, 1e-5, 1e-3, 1e-1)]
    assert found == sorted(found, reverse=True) and found[0] > 3.0 and 0.4 < found[-1] < 1.6


def test_rare_labels_are_not_taken_for_outliers():
    """One residual in twenty is 1, the others are next to nothing: two medians would leave nothing of the former."""
    sizes = np.where(np.arange(20_000) % 20 == 0, 1.0, 0.05)
    assert scale_of_residuals(octaves(sizes, 2.0), 1.0, 2.0, 20_000, 1e-4) > 0.5
    assert scale_of_labels(octaves(sizes, 2.0), 1.0, 2.0, 20_000, 1e-4) > 0.5


def test_at_least_half_of_the_residuals_are_not_cut():
    sizes = np.abs(np.random.default_rng(2).standard_t(2, size=20_000))
    found = scale_of_residuals(octaves(sizes, 64.0, 20), 1.0, 64.0, 20_000, 100.0)
    assert np.mean(sizes <= 1.2 * found) > 0.5


def test_sizes_stand_for_all_that_were_counted():
    counts = np.array([3.0, 8.0, 4.0])
    sizes, rows = sizes_of_counts(counts, 8.0)
    assert rows.sum() == 15.0 and sizes[0] == 8.0 and rows[0] == 3.0
    assert rows[(sizes > 4.0) & (sizes < 8.0)].sum() == 8.0 and rows[sizes < 4.0].sum() == 4.0

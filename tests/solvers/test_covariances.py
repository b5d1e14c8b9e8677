"""Thresholded covariances, and the nearest matrix that rows of a bounded norm can have."""

import numpy as np

from dpdist.solvers.covariances import largest_of, shrink_diagonal, threshold_entries
from dpdist.solvers.spectral import psd_floor


def test_a_diagonal_of_pure_noise_becomes_its_mean_and_a_clear_one_stays():
    rng = np.random.default_rng(0)
    noisy = 1 + 0.1 * rng.normal(size=400)
    shrunken = shrink_diagonal(noisy, 0.1)
    assert np.ptp(shrunken) < 0.3 * np.ptp(noisy) and abs(shrunken.mean() - noisy.mean()) < 1e-12
    clear = np.arange(1.0, 50.0)
    assert np.allclose(shrink_diagonal(clear, 1e-6), clear)
    assert np.array_equal(shrink_diagonal(np.full(5, -1.0), 0.1), np.zeros(5))
    assert np.array_equal(shrink_diagonal(np.array([2.0, 1.0]), 0.5), [2.0, 1.0])  # below 3 columns: never spread


def test_shrinking_is_nearer_to_the_truth_on_average():
    rng, better = np.random.default_rng(1), 0.0
    for _ in range(200):
        truth = 1 + 0.05 * rng.normal(size=30)
        noisy = truth + 0.1 * rng.normal(size=30)
        better += ((noisy - truth) ** 2).sum() - ((shrink_diagonal(noisy, 0.1) - truth) ** 2).sum()
    assert better / 200 > 0.1


def test_no_entry_of_noise_is_kept_and_no_clear_one_is_lost():
    rng, p, n, s = np.random.default_rng(2), 60, 10_000, 0.004
    E = np.triu(rng.normal(size=(p, p)) * np.sqrt(1 / n + s**2), 1)
    S = np.eye(p) + E + E.T
    S[0, 1] = S[1, 0] = 0.2
    kept = threshold_entries(S, np.ones(p), n, s)
    assert np.count_nonzero(np.triu(kept, 1)) == 1 and kept[0, 1] == 0.2 and np.array_equal(kept.diagonal(), np.ones(p))
    assert np.count_nonzero(np.triu(threshold_entries(S, np.ones(p), n, s, multiple=0.5), 1)) > 20  # it could fail
    softened = threshold_entries(S, np.ones(p), n, s, soft=True)
    assert np.isclose(softened[0, 1], 0.2 - largest_of(p) * np.sqrt(1 / n + s**2))
    assert threshold_entries(np.ones((1, 1)), np.array([2.0]), n, s).tolist() == [[2.0]]


def test_the_trace_is_capped_by_the_nearest_matrix():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    A = (A + A.T) / 2
    X = psd_floor(A, trace_max=1.0)
    assert np.linalg.eigvalsh(X)[0] > -1e-12 and np.trace(X) < 1 + 1e-12
    for _ in range(50):
        B = rng.normal(size=(6, 6))
        B = B @ B.T
        Y = B / np.trace(B) * rng.random()
        assert ((A - X) * (Y - X)).sum() <= 1e-9
    small = np.diag([0.1, 0.2])
    assert np.allclose(psd_floor(small, trace_max=1.0), small) and not psd_floor(-np.eye(2), trace_max=1.0).any()

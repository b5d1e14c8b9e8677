"""The mean over all sizes is the one that its formula says, and leaves little where releases say little."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.prior_sizes import SIZES, weighed_by_size


def problem(seed, d=5):
    rng = np.random.default_rng(seed)
    turn = np.eye(d)
    turn[-1, :-1] = rng.normal(size=d - 1)
    reached = np.eye(d) - 0.2 * rng.normal(size=(d, d)) / d
    root = rng.normal(size=(d, d))
    slopes = np.append(np.ones(d - 1), 0.0)
    return rng.normal(size=d), reached, root @ root.T / d, turn, rng.uniform(1, 4, d), slopes, 0.6


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_mean_of_the_posterior_means_by_their_likelihood(seed):
    moved, reached, noise, turn, prior, slopes, tied = problem(seed)
    kept, size = weighed_by_size(moved, reached, noise, turn, prior, slopes, tied)
    gains, logs = [], []
    for s in SIZES:
        factors = np.where(slopes > 0, s, 1 - tied + s**2 * tied)
        P = (turn * (factors * prior)) @ turn.T
        C = reached @ P @ reached.T + noise
        gains.append(P @ reached.T @ np.linalg.inv(C))
        logs.append(-(np.linalg.slogdet(C)[1] + moved @ np.linalg.solve(C, moved)) / 2)
    share = np.exp(np.array(logs) - max(logs))
    share /= share.sum()
    assert kept == pytest.approx(np.tensordot(share, gains, 1), abs=1e-8)
    assert size == pytest.approx(share @ SIZES**2 / (share @ SIZES))


def test_without_noise_all_is_kept_and_in_noise_little():
    moved, reached, noise, *rest = problem(3)
    exact, _ = weighed_by_size(moved, reached, 1e-9 * noise, *rest)
    assert exact @ reached == pytest.approx(np.eye(len(moved)), abs=1e-5)
    hidden, size = weighed_by_size(moved, reached, 1e6 * np.eye(len(moved)), *rest)
    assert np.abs(hidden).max() < 1e-4 and size == pytest.approx((SIZES**2).mean() / SIZES.mean(), rel=1e-2)

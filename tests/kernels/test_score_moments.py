"""Gradients of all pairs from moments of places: against every pair, and against the bound of what is left."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.kernels.score_moments import (
    largest_derivatives,
    mean_gradient_error,
    mean_pair_gradient,
    moment_grid,
    score_moments,
)

N, D = 200, 5


def by_pairs(X, y, w, row_norm):
    """In extended precision, of rows that are clipped and truncated."""
    Z = X / np.maximum(np.linalg.norm(X, axis=1) / row_norm / (1 - 1e-12), 1.0)[:, None]
    Z = (np.trunc(Z * 2**16 / row_norm) * row_norm / 2**16).astype(np.longdouble)
    s, P, M = Z @ w, y == 1, y == -1
    k = 1 / (1 + np.exp(2 * (s[P][:, None] - s[M])))
    return -4 / np.longdouble(len(y) * (len(y) - 1)) * (k.sum(axis=1) @ Z[P] - k.sum(axis=0) @ Z[M])


def rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * rng.choice([0.1, 1.0, 10.0], size=(N, 1))
    return X, rng.choice([-1.0, 1.0, 1.0, 0.0], size=N)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 8.0, 50.0, 120.0])
@pytest.mark.parametrize("row_norm", [1.0, 4.0])
def test_gradients_are_those_of_all_pairs_within_the_bound(size, row_norm):
    for seed in range(3):
        X, y = rows(seed)
        w = np.random.default_rng(seed).normal(size=D)
        w *= size / row_norm / np.linalg.norm(w)
        found = mean_pair_gradient(*score_moments(X, y, w, row_norm), w, row_norm, N)
        apart = float(np.linalg.norm(found - by_pairs(X, y, w, row_norm)))
        assert apart <= mean_gradient_error(N, D, row_norm, size / row_norm) < 1e-4 * row_norm
    assert mean_gradient_error(N, D, row_norm, 1e4) == np.inf


def test_sums_do_not_depend_on_order_and_bad_rows_add_nothing():
    X, y = rows(0)
    X[3, 1], X[4, 2] = np.nan, np.inf
    w, order = np.ones(D), np.random.default_rng(1).permutation(N)
    whole = score_moments(X, y, w, 1.0)
    parts = score_moments(X[order][:77], y[order][:77], w, 1.0) + score_moments(X[order][77:], y[order][77:], w, 1.0)
    assert np.array_equal(whole, parts)
    good = np.isfinite(X).all(axis=1) & (abs(y) == 1)
    assert np.array_equal(whole, score_moments(X[good], y[good], w, 1.0))
    assert (whole[:, 0, 0].sum(axis=1) == np.array([(y[good] == 1).sum(), (y[good] == -1).sum()]) * 2**22).all()
    assert abs(whole[:, 0, 1:] * moment_grid(1.0)).sum() <= N * D


def test_the_derivatives_are_those_of_the_share_of_a_pair():
    t, h = np.linspace(-4, 4, 4001, dtype=np.longdouble), 2e-3
    values = 1 / (1 + np.exp(2 * t))
    for m, bound in enumerate(largest_derivatives()[:4]):
        step = np.longdouble(t[1] - t[0])
        found = np.abs(np.diff(values, m) / step**m).max()
        assert float(found) <= bound <= float(found) * (1 + h)

"""Least squares from noisy second moments."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.least_squares import first_posterior, improved


def problem(seed=0, n=5000, d=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 0.8 ** np.arange(d) / 3
    w = rng.normal(0.0, 0.5, d)
    y = X @ w + 0.1 * rng.normal(size=n)
    return X, y, w


def posterior(joint, noise, n, constant):
    return first_posterior(
        joint, noise, label_scale=0.7, label_bound=1.0, n_rows=n, row_norm=1.0, constant=constant, ridge=0.0
    )


def fitted(X, y, noise, seed=0):
    rng, d = np.random.default_rng(seed), X.shape[1]
    joint = np.column_stack([X, 0.7 * y])
    E = np.triu(rng.normal(0.0, noise, (d + 1, d + 1)), 1)
    joint = joint.T @ joint + E + E.T + np.diag(rng.normal(0.0, np.sqrt(2) * noise, d + 1))
    first = posterior(joint, noise, len(X), constant=0.0)
    gradient = X.T @ (X @ first.point - y) + rng.normal(0.0, noise, d)
    return first, improved(first, gradient, noise)


def test_without_noise_it_is_least_squares():
    X, y, _ = problem()
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    first, second = fitted(X, y, 1e-7)
    assert first.point == pytest.approx(exact, abs=1e-3) and second.point == pytest.approx(exact, abs=1e-5)
    assert first.residuals(len(X)) == pytest.approx(np.std(y - X @ exact), rel=0.01)


def test_the_gradient_mends_what_the_moment_left():
    X, y, _ = problem()
    exact, H = np.linalg.lstsq(X, y, rcond=None)[0], X.T @ X
    errors = np.array([[(p.point - exact) @ H @ (p.point - exact) for p in fitted(X, y, 5.0, s)] for s in range(60)])
    assert errors[:, 1].mean() < 0.7 * errors[:, 0].mean()
    stated = np.mean([np.sum(fitted(X, y, 5.0, s)[1].spread * H) for s in range(20)])
    assert 1 / 3 < errors[:, 1].mean() / stated < 3


@pytest.mark.parametrize("noise", [1e-12, 1e-6, 1e-3, 1.0])
def test_copies_of_a_column_and_next_to_no_noise_leave_everything_solvable(noise):
    X, y, _ = problem()
    X[:, 1] = X[:, 0]
    X[:, 2] = 0.0
    _, second = fitted(X, y, noise)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    assert np.mean((X @ second.point - X @ exact) ** 2) < (1e-2 if noise == 1e-12 else 1e-3) * np.var(y)


def test_noise_alone_is_shrunk_away():
    X, y, _ = problem(n=50)
    constant = np.mean(y**2)
    worse = [np.mean((y - X @ fitted(X, y, 1e4, s)[0].point) ** 2) / constant for s in range(40)]
    assert np.median(worse) < 1.05


@pytest.mark.parametrize("noise", [10.0, 30.0, 100.0, 300.0])
def test_where_the_size_is_in_doubt_the_stated_error_is_not_next_to_nothing(noise):
    """The most likely size was 0 in many draws: then nothing was learned, and the stated error was that of nothing."""
    X, y, _ = problem(n=2000, d=20)
    exact, H = np.linalg.lstsq(X, y, rcond=None)[0], X.T @ X
    fits = [fitted(X, y, noise, s)[1] for s in range(30)]
    errors = np.array([(p.point - exact) @ H @ (p.point - exact) for p in fits])
    stated = np.array([np.sum(p.spread * p.moment) for p in fits])
    assert errors.mean() < 1.2 * exact @ H @ exact
    assert 1 / 6 < errors.mean() / stated.mean() < 4 and np.quantile(errors / stated, 0.9) < 30


@pytest.mark.parametrize("mean", [-0.8, 0.0, 0.1])
def test_a_constant_is_found_beside_the_slopes(mean):
    X, y, _ = problem()
    Z, rng = np.column_stack([X, np.full(len(X), 0.3)]), np.random.default_rng(0)
    y = y + mean
    E = np.triu(rng.normal(0.0, 3.0, (10, 10)), 1)
    joint = np.column_stack([Z, 0.7 * y])
    found = posterior(joint.T @ joint + E + E.T, 3.0, len(X), constant=0.3)
    assert 0.3 * found.point[-1] == pytest.approx(mean, abs=0.02)

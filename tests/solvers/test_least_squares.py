"""Least squares from noisy second moments."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.solvers.least_squares import bias_of_cut, first_posterior, improved, shown_of_bias


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
    assert first.residuals == pytest.approx(np.std(y - X @ exact), rel=0.01)


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


def test_where_nothing_is_seen_any_part_of_the_labels_variance_may_be_left():
    """Rows far from 0, labels far below their bound: half of their variance is expected to be left, of half squares."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(3000, 6)) / 8 + 0.3, np.full(3000, 0.5)])
    y = (X[:, :6] - 0.3) @ rng.normal(0.0, 1.0, 6)
    y = 0.1 + 0.2 * (y + 0.5 * y.std() * rng.normal(size=len(y))) / y.std()
    stated, joint = [], np.column_stack([X, 0.7 * y])
    for _ in range(30):
        E = np.triu(rng.normal(0.0, 40.0, (8, 8)), 1)
        E += E.T + np.diag(rng.normal(0.0, 56.0, 8))
        E[-1, -1] = 0.0  # of the labels' squares: their variance is known
        stated.append(posterior(joint.T @ joint + E, 40.0, len(X), constant=0.5).excess / len(X))
    assert np.var(y) / 12 < np.median(stated) < np.var(y)


@pytest.mark.parametrize("mean", [-0.8, 0.0, 0.1])
def test_a_constant_is_found_beside_the_slopes(mean):
    X, y, _ = problem()
    Z, rng = np.column_stack([X, np.full(len(X), 0.3)]), np.random.default_rng(0)
    y = y + mean
    E = np.triu(rng.normal(0.0, 3.0, (10, 10)), 1)
    joint = np.column_stack([Z, 0.7 * y])
    found = posterior(joint.T @ joint + E + E.T, 3.0, len(X), constant=0.3)
    assert 0.3 * found.point[-1] == pytest.approx(mean, abs=0.02)


def test_what_is_known_before_remains_where_a_cut_may_move_the_gradient():
    X, y, _ = problem(n=50_000)
    X = np.column_stack([X, np.full(len(X), 0.5)])
    y = y + 0.3 * (np.random.default_rng(1).random(len(X)) < 0.04)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    joint = np.column_stack([X, 0.7 * y])
    first = posterior(joint.T @ joint, 0.1, len(X), constant=0.5)
    cut = 2.5 * first.residuals
    gradient = X.T @ np.clip(X @ first.point - y, -cut, cut)
    bias = bias_of_cut(first, cut, 0.5)
    most = first.residuals / 10 * 0.5 * len(X)  # of the intercept's part, and of that of linear functions of rows
    assert bias[-1, -1] == pytest.approx(most**2 / 3 * (1 + 1 / 9), rel=1e-3)
    found, misled = (improved(first, gradient, 0.1, counted).point for counted in (bias, None))
    assert abs(found[-1] - exact[-1]) < 2e-4 < 1e-3 < abs(misled[-1] - exact[-1])
    np.testing.assert_allclose(bias_of_cut(first, cut, 0.0), len(X) * (most / len(X) / 0.5) ** 2 / 27 * first.moment)


def test_slopes_follow_the_first_release_where_skewness_follows_the_rows():
    """Events of 5 % that rows make more or less likely: with a gradient of cut residuals alone slopes are too small."""
    rng, w = np.random.default_rng(0), np.array([0.08, -0.04, 0.03, 0.05])
    X = np.column_stack([rng.uniform(-0.5, 0.5, (200_000, 3)), np.ones(200_000)])
    y = (rng.random(len(X)) < X @ w).astype(float)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    joint = np.column_stack([X, 0.7 * y])
    first = posterior(joint.T @ joint, 10.0, len(X), constant=1.0)
    cut = 2.5 * first.residuals
    gradient = X.T @ np.clip(X @ first.point - y, -cut, cut)
    found, misled = (improved(first, gradient, 10.0, counted).point for counted in (bias_of_cut(first, cut, 1.0), None))
    assert 0.95 < found[:3] @ exact[:3] / (exact[:3] @ exact[:3]) < 1.05
    assert misled[:3] @ exact[:3] / (exact[:3] @ exact[:3]) < 0.85


@pytest.mark.parametrize(("errors", "least", "most"), [("symmetric", 0.0, 0.1), ("events", 0.5, 1.0)])
def test_standard_errors_count_as_much_of_a_cut_as_the_gradient_shows(errors, least, most):
    """The point is the same; symmetric errors lose nothing by being cut, and events of 5 % what was foreseen."""
    rng, n = np.random.default_rng(3), 100_000
    X = np.column_stack([rng.uniform(-0.5, 0.5, (n, 3)), np.full(n, 0.5)])
    drawn = {"symmetric": 0.2 * rng.standard_t(5, n), "events": (rng.random(n) < 0.05).astype(float)}[errors]
    y = X @ [0.5, -0.2, 0.0, 0.2] + drawn
    joint = np.column_stack([X, 0.7 * y])
    first = posterior(joint.T @ joint, 3.0, n, constant=0.5)
    cut = 2.5 * first.residuals
    gradient = X.T @ np.clip(X @ first.point - y, -cut, cut)
    shown = shown_of_bias(first, gradient, 3.0, cut, 0.5)
    assert least <= shown <= most and shown_of_bias(first, gradient, 3.0, cut, 0.0) == 1.0
    bias = bias_of_cut(first, cut, 0.5)
    found, whole = (improved(first, gradient, 3.0, bias, share) for share in (shown, 1.0))
    np.testing.assert_array_equal(found.point, whole.point)
    assert found.excess == whole.excess and np.array_equal(whole.stated, whole.left_by_noise)
    assert np.all(np.diag(found.stated) <= np.diag(whole.stated))


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_noise_of_a_matrix_that_is_well_known_counts_in_full(noise):
    """Rows alike in all directions, labels that they explain: what is off is the matrix's noise times the solution."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10)) / 20
    y = X @ rng.normal(0.0, 3.0, 10) + 0.05 * rng.normal(size=20_000)
    exact, H = np.linalg.lstsq(X, y, rcond=None)[0], X.T @ X
    fits = [fitted(X, y, noise, s) for s in range(30)]
    for stage in range(2):
        errors = np.mean([(p.point - exact) @ H @ (p.point - exact) for p in (fit[stage] for fit in fits)])
        stated = np.mean([np.sum(fit[stage].spread * H) for fit in fits])
        assert 1 / 3 < errors / stated < 3

"""Quadratic problems on the l1 ball, and choosing among estimates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpdist.solvers.linear import fista, prox_l1_ball, quadratic_l1, recover_l1
from dpdist.solvers.robust import median_select


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def on_two_halves(gradient_at, value, d, radius, penalty=0.0):
    """The minimum of ``value(w) + penalty ||w||_1`` over the l1 ball by a solver for smooth problems, w = u - v."""

    def whole(z):
        w = z[:d] - z[d:]
        return value(w) + penalty * z.sum(), np.concatenate([gradient_at(w), -gradient_at(w)]) + penalty

    inside = {"type": "ineq", "fun": lambda z: radius - z.sum(), "jac": lambda z: -np.ones(2 * d)}
    limits = [] if radius is None else [inside]
    found = minimize(
        whole, np.full(2 * d, 0.01), jac=True, bounds=[(0, None)] * (2 * d), constraints=limits, method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    return found.x[:d] - found.x[d:], found.fun


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("radius", [None, 0.5, 3.0])
@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_prox_against_a_general_solver(d, radius, threshold):
    v = rng(d).normal(size=d) * 2
    ours = prox_l1_ball(v, threshold, radius)
    theirs, _ = on_two_halves(lambda w: w - v, lambda w: ((w - v) ** 2).sum() / 2, d, radius, threshold)
    assert np.abs(ours - theirs).max() < 1e-5


def kkt_residual(Q, b, w, radius, penalty):
    """How far w is from where the gradient is balanced: 0 at a solution."""
    gradient = Q @ w - b
    level = np.abs(gradient).max()
    if radius is None or np.abs(w).sum() < radius * (1 - 1e-9):
        level = penalty
    active = w != 0
    slack = np.maximum(np.abs(gradient) - level, 0).max()
    return max(slack, np.abs(gradient[active] + level * np.sign(w[active])).max(initial=0.0), penalty - level)


@pytest.mark.parametrize("radius", [None, 0.4, 1.0])
@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("d", [4, 40])
def test_quadratic_reaches_the_optimum(d, radius, penalty):
    A = rng(1).normal(size=(3 * d, d))
    Q, b = A.T @ A / (3 * d), rng(2).normal(size=d)
    w = quadratic_l1(Q, b, radius, penalty, n_rounds=3000)
    assert radius is None or np.abs(w).sum() <= radius * (1 + 1e-12)
    assert kkt_residual(Q, b, w, radius, penalty) < 1e-6


def test_without_curvature_nothing_is_divided_by_zero():
    assert np.isfinite(quadratic_l1(np.zeros((3, 3)), np.zeros(3), radius=1.0)).all()


@pytest.mark.parametrize(("p", "d"), [(40, 120), (60, 20)])
def test_recovery_of_a_sparse_vector(p, d):
    A = rng(0).normal(size=(p, d)) / np.sqrt(p)
    z = np.zeros(d)
    z[[1, d // 2, d - 1]] = 0.5, -0.3, 0.2
    assert np.abs(recover_l1(A, A @ z, radius=1.0, n_rounds=3000) - z).max() < 1e-4
    noisy = recover_l1(A, A @ z + 0.01 * rng(1).normal(size=p), radius=1.0)
    assert np.linalg.norm(noisy - z) < 0.1 and np.abs(noisy).sum() <= 1 + 1e-12


def test_fista_is_faster_than_its_bound():
    """``f(w_k) - f* <= 2 L ||w*||^2 / (k + 1)^2``, on the worst function there is (Nesterov 2004, section 2.1.2)."""
    d, k = 101, 50
    Q = (2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)) / 4
    b = np.zeros(d)
    b[0] = 0.25
    best = np.linalg.solve(Q, b)
    w = fista(lambda w: Q @ w - b, lambda v, step: v, 1.0, np.zeros(d), n_rounds=k, tolerance=0.0)
    gap = (w @ Q @ w / 2 - b @ w) - (best @ Q @ best / 2 - b @ best)
    assert 0 <= gap <= 2 * (best @ best) / (k + 1) ** 2


@pytest.mark.parametrize("order", [1, 2])
def test_median_select_ignores_a_third_that_is_wrong(order):
    for seed in range(20):
        random = rng(seed)
        points = random.normal(size=(31, 4)) / 10
        points[random.permutation(31)[:10]] += random.normal(size=4) * 10.0 ** random.integers(0, 8)
        near = np.sort(np.linalg.norm(points, ord=order, axis=1))[20]
        assert np.linalg.norm(median_select(points, order), ord=order) <= 3 * near
    assert (median_select(points[:1]) == points[0]).all()


def test_median_select_by_hand():
    points = np.array([[0.0], [1.0], [1.5], [9.0], [10.0]])
    # distances to the third nearest (self included): 1.5, 1, 1.5, 7.5, 8.5
    assert median_select(points)[0] == 1.0

"""What all gradients say together: exact for a quadratic, and those from far away count little."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from dpdist.solvers.joint_gradients import Seen, joint

RNG = np.random.default_rng(5)
D, N = 5, 1000
SQUARES = np.cov(RNG.normal(size=(D, 3 * D)))
HESSIAN = N * SQUARES / 4
TRUTH = RNG.normal(size=D)
PRIOR = 4 * np.eye(D)


def answers(points, stds, rng, hessian=HESSIAN, truth=TRUTH):
    return [
        Seen(v, hessian @ (v - truth) + s * rng.normal(size=D), np.full(D, s**2))
        for v, s in zip(points, stds, strict=True)
    ]


def together(seen, around=TRUTH, error=0.0, spread=None, squares=0 * SQUARES):
    spread = 1e-6 * np.eye(D) if spread is None else spread
    return joint(seen, HESSIAN, error, squares, PRIOR, np.zeros(D), around, spread)


def test_gradients_of_a_quadratic_are_as_good_as_one_with_the_whole_budget():
    """The posterior of normal errors: precisions add up, whatever made the points what they are."""
    points, stds = RNG.normal(size=(4, D)), np.array([9.0, 6.0, 5.0, 4.0])
    seen = answers(points, stds, RNG)
    found = together(seen)
    precision = HESSIAN @ HESSIAN * np.sum(stds**-2.0) + np.linalg.inv(PRIOR)
    told = sum(HESSIAN @ (HESSIAN @ s.point - s.gradient) / std**2 for s, std in zip(seen, stds, strict=True))
    assert found.point == pytest.approx(np.linalg.solve(precision, told))
    assert found.noise + found.shrinkage @ np.linalg.inv(precision) == pytest.approx(np.linalg.inv(precision))


def test_the_noise_that_is_stated_is_the_noise_there_is():
    stds, rng = np.array([60.0, 50.0, 40.0]), np.random.default_rng(1)
    errors = []
    for _ in range(1500):
        point, seen = np.zeros(D), []
        for std in stds:  # the next point follows from the last answer
            seen += answers([point], [std], rng)
            point = point - 0.7 * np.linalg.solve(HESSIAN, seen[-1].gradient)
        found = together(seen)
        errors.append(found.point - TRUTH + found.shrinkage @ TRUTH)
    assert np.cov(np.transpose(errors)) == pytest.approx(found.noise, abs=0.15 * np.abs(found.noise).max())


def test_where_curvature_changes_a_gradient_from_afar_counts_little_and_near_ones_fully():
    """Rows with a logistic loss: what is left is near the noise of the last gradients, not the bias of the first."""
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(20_000, D))
    w = np.array([2.0, -1.0, 0.5, 0.0, 0.0])
    y = np.where(rng.random(len(Z)) < expit(Z @ w), 1.0, -1.0)

    def gradient(v):
        return -Z.T @ (y * expit(-y * (Z @ v)))

    best = w.copy()
    for _ in range(20):
        u = expit(Z @ best)
        hessian = (Z * (u * (1 - u))[:, None]).T @ Z
        best -= np.linalg.solve(hessian, gradient(best))
    far, near = np.zeros(D), [best + 0.01, best - 0.01, best]
    std, squares = 20.0, Z.T @ Z / len(Z)
    off = []
    for _ in range(200):
        seen = [Seen(v, gradient(v) + std * rng.normal(size=D), np.full(D, std**2)) for v in (far, *near)]
        found = joint(seen, hessian, 0.0, squares, PRIOR, far, best, 1e-4 * np.eye(D))
        off.append(found.point - best)
    lost = np.mean([v @ hessian @ v for v in off]) / (std**2 * np.trace(np.linalg.inv(hessian)))
    assert 0.8 / 3 < lost < 1.3 / 3
    naive = joint(seen, hessian, 0.0, 0 * squares, PRIOR, far, best, 1e-4 * np.eye(D)).point - best
    assert naive @ hessian @ naive > 20 * lost * std**2 * np.trace(np.linalg.inv(hessian))


def test_an_error_of_the_hessian_counts_by_the_distance():
    near, far = answers([TRUTH, TRUTH + 5], [5.0, 5.0], RNG)
    found = together([near, far], error=3.0)
    gains = [np.linalg.norm(gain) for gain in found.gains]
    assert gains[1] < 0.1 * gains[0]
    alike = together([near, far])
    assert np.linalg.norm(alike.gains[0] - alike.gains[1]) < 1e-9 * gains[0]

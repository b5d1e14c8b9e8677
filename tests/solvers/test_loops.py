"""Loops solve the problems they should, exactly as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.constraints import ElasticNet, L1Ball, L2Ball, hard_threshold, proximal
from dpdist.solvers.loops import (
    SHORTEST,
    drive,
    frank_wolfe,
    hard_threshold_descent,
    nesterov_momentum,
    prox_gradient,
)

HESSIAN = np.diag([1.0, 0.5, 0.02])
OPTIMUM = np.array([1.0, -2.0, 3.0])


def counted_gradient():
    asked = []

    def oracle(w):
        asked.append(w.copy())
        return HESSIAN @ (w - OPTIMUM)

    return oracle, asked


def identity(v, step):
    return v


@pytest.mark.parametrize("n_rounds", [1, 7, 50])
def test_number_of_gradients_is_public(n_rounds):
    oracle, asked = counted_gradient()
    drive(prox_gradient(np.zeros(3), identity, 1.0, n_rounds), oracle)
    assert len(asked) == n_rounds
    assert not asked[0].any()


def test_plain_descent_converges_on_the_curved_coordinates():
    oracle, _ = counted_gradient()
    w = drive(prox_gradient(np.zeros(3), identity, 1.0, 60), oracle)
    assert np.allclose(w[:2], OPTIMUM[:2], atol=1e-6)
    assert w[2] == pytest.approx(3 * (1 - 0.98**60))


def test_momentum_is_faster_on_the_flat_coordinate():
    oracle, _ = counted_gradient()
    plain = drive(prox_gradient(np.zeros(3), identity, 1.0, 40), oracle)
    momentum = nesterov_momentum(1.0, 0.02, 40)
    fast = drive(prox_gradient(np.zeros(3), identity, 1.0, 40, momentum=momentum), oracle)
    assert abs(fast[2] - 3) < 0.3 * abs(plain[2] - 3)


def test_tail_average_is_the_mean_of_the_last_iterates():
    iterates = []

    def prox(v, step):
        iterates.append(v)
        return v

    oracle, _ = counted_gradient()
    out = drive(prox_gradient(np.zeros(3), prox, 0.7, 9, tail=0.5), oracle)
    assert np.allclose(out, np.mean(iterates[-5:], axis=0))


def test_momentum_is_a_contraction_factor():
    for step in (0.1, 1.0, 50.0):
        for strong in (0.0, 1e-4, 0.5):
            assert 0 <= nesterov_momentum(step, strong, 15) < 1


def test_proximal_descent_solves_a_ridge_problem_in_a_ball():
    target = np.array([3.0, 4.0, 0.0])
    prox = proximal(ElasticNet(1.0), L2Ball(1.0), 3)
    w = drive(prox_gradient(np.zeros(3), prox, 0.5, 200), lambda w: w - target)
    assert np.allclose(w, [0.6, 0.8, 0.0], atol=1e-9)


def test_frank_wolfe_stays_in_the_set_and_converges():
    ball, goal, points = L1Ball(1.0), np.array([0.4, -0.3, 0.0, 0.1]), []

    def vertex(w):
        points.append(w)
        return ball.lmo(w - goal)

    w = drive(frank_wolfe(np.zeros(4), 200), vertex)
    assert len(points) == 200 and not points[0].any()
    assert max(np.abs(p).sum() for p in [*points, w]) <= 1 + 1e-12
    # the classical bound 2 C / (T + 2), with curvature C at most the squared diameter of the ball
    assert np.sum((w - goal) ** 2) / 2 <= 2 * 4 / 202
    averaged = drive(frank_wolfe(np.zeros(4), 200, tail=0.5), lambda w: ball.lmo(w - goal))
    assert np.allclose(averaged, np.mean([*points[101:], w], axis=0))


def test_hard_thresholding_finds_the_sparse_optimum():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 12))
    truth = np.array([1.0, -1.0, 0.5] + [0.0] * 9)
    asked = []

    def step(w):
        asked.append(w)
        return hard_threshold(w - X.T @ (X @ (w - truth)) / 300, 3)

    w = drive(hard_threshold_descent(np.zeros(12), 60, lambda u: u), step)
    assert len(asked) == 60
    assert np.allclose(w, truth, atol=1e-6)
    halved = drive(hard_threshold_descent(np.zeros(12), 1, lambda u: u / 2), lambda w: truth)
    assert np.array_equal(halved, truth / 2)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_a_point_is_picked_by_the_number_of_its_round(momentum):
    first = np.array([3.0, 1.0, -1.0])
    for pick in range(6):
        oracle, asked = counted_gradient()
        picked = drive(prox_gradient(first, identity, 0.7, 6, momentum, 0.5, pick), oracle)
        assert len(asked) == 6, "all rounds are asked, whichever is returned"
        shorter = drive(prox_gradient(first, identity, 0.7, pick, momentum), oracle) if pick else first
        assert np.array_equal(picked, shorter)
        oracle, asked = counted_gradient()
        vertex = drive(frank_wolfe(first, 6, pick=pick), lambda w, ask=oracle: L1Ball(1.0).lmo(ask(w)))
        assert np.array_equal(vertex, asked[pick])


def test_the_shortest_step_is_picked_with_its_own_noise():
    rng, ball = np.random.default_rng(0), L2Ball(1.0)
    gradients, asked = rng.normal(size=(9, 3)), []
    given = iter(gradients)

    def oracle(w):
        asked.append(w)
        return next(given)

    picked = drive(prox_gradient(np.zeros(3), lambda v, step: ball.project(v), 0.3, 9, pick=SHORTEST), oracle)
    moves = [np.linalg.norm(w - ball.project(w - 0.3 * g)) for w, g in zip(asked, gradients, strict=True)]
    assert np.array_equal(picked, asked[int(np.argmin(moves))])
    # of equal steps the first
    oracle, _ = counted_gradient()
    assert np.array_equal(drive(prox_gradient(OPTIMUM, identity, 0.5, 4, pick=SHORTEST), oracle), OPTIMUM)

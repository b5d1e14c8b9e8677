"""Linear systems with noise, the scale of a generalised linear model, and the intermediate gradient method."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from dpdist.constraints import L2Ball
from dpdist.solvers.linear import noise_level, root_scale, wiener_solve
from dpdist.solvers.loops import drive, intermediate_gradient


def test_without_noise_the_system_is_solved_on_the_range_of_the_matrix():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 4))
    S = A @ A.T  # of rank 4
    w = wiener_solve(S, S @ np.ones(6), 0.0, 0.0, 1.0)
    assert np.allclose(S @ w, S @ np.ones(6)) and np.isfinite(w).all()
    assert np.allclose(wiener_solve(-np.eye(3), np.ones(3), 0.0, 0.1, 1.0), 0)


def test_the_noise_aware_solution_is_the_best_of_its_kind():
    """For diagonal S and random w of the assumed size, no other level does better on average."""
    rng = np.random.default_rng(1)
    d, noise, size = 20, 0.05, 2.0
    S = np.diag(np.geomspace(1, 1e-3, d))
    level = noise_level(d, 0.0, noise, size)
    errors = dict.fromkeys((0.25, 1.0, 4.0), 0.0)
    for _ in range(400):
        w = rng.normal(size=d) * size / np.sqrt(d)
        b = S @ w + noise * rng.normal(size=d)
        for factor in errors:
            errors[factor] += float(np.sum((wiener_solve(S, b, 0.0, noise * factor, size) - w) ** 2))
    assert min(errors, key=errors.__getitem__) == 1.0
    assert np.isclose(level**2, d * noise**2 / size**2)
    assert np.isclose(noise_level(d, 0.3, 0.4, 1.0), np.sqrt(d) * 0.5)


def test_the_scale_turns_least_squares_into_logistic_coefficients():
    rng = np.random.default_rng(2)
    w = np.array([0.8, -0.5])
    X = rng.normal(size=(400_000, 2))
    p = expit(X @ w)
    least_squares = np.linalg.solve(X.T @ X, X.T @ p)
    c, found = root_scale(lambda u: expit(u) * expit(-u), X @ least_squares)
    assert found and np.allclose(c * least_squares, w, atol=0.02)
    assert root_scale(lambda u: np.zeros_like(u), X[:, 0]) == (pytest.approx(1e-3), False)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
@pytest.mark.parametrize(("noise", "limit"), [(0.0, 1e-20), (1.0, 0.03), (10.0, 0.3)])
def test_the_intermediate_gradient_method_finds_a_minimum(power, noise, limit):
    rng = np.random.default_rng(3)
    goal = np.array([0.3, -0.3, 0.2, 0.1, 0.0])
    loop = intermediate_gradient(L2Ball(1.0).project, 5, 1000, smoothness=1.0, noise=noise, radius=1.0, power=power)
    points: list[np.ndarray] = []

    def oracle(w: np.ndarray) -> np.ndarray:
        points.append(w)
        return w - goal + noise / np.sqrt(5) * rng.normal(size=5)

    w = drive(loop, oracle)
    assert 0.5 * np.sum((w - goal) ** 2) < limit
    assert len(points) == 1000 and max(np.linalg.norm(p) for p in points) <= 1 + 1e-12


def test_with_power_one_it_is_averaged_dual_averaging():
    g = [np.array([1.0, 0.0]), np.array([-0.5, 0.25]), np.array([0.1, 0.1])]
    answers = iter(g)
    seen: list[np.ndarray] = []

    def oracle(w: np.ndarray) -> np.ndarray:
        seen.append(w)
        return next(answers)

    y = drive(intermediate_gradient(lambda v: v, 2, 3, smoothness=2.0, noise=3.0, radius=1.5, power=1.0), oracle)
    b = [2 + 3 / 1.5 * 2**0.75 * (i + 2) ** 0.5 for i in range(3)]
    assert np.allclose(seen, [[0, 0], -g[0] / b[0], -(g[0] + g[1]) / b[1]])
    steps = [-g[0] / b[0], -(g[0] + g[1]) / b[0], -(g[0] + g[1]) / b[1] - g[2] / b[1]]
    assert np.allclose(y, np.mean(steps, axis=0))


def test_acceleration_pays_where_there_is_no_noise():
    scales = np.geomspace(1, 1e-3, 10)
    goal = np.full(10, 0.3)

    def excess(power: float) -> float:
        loop = intermediate_gradient(lambda v: v, 10, 100, smoothness=1.0, noise=0.0, radius=1.0, power=power)
        w = drive(loop, lambda w: scales * (w - goal))
        return float(scales @ (w - goal) ** 2)

    assert excess(2.0) < 0.3 * excess(1.0)

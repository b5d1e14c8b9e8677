"""The noise level of a linear system, and the intermediate gradient method."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.constraints import L2Ball
from dpdist.solvers.linear import noise_level
from dpdist.solvers.loops import drive, intermediate_gradient


def test_the_level_is_where_directions_should_count_half():
    """For diagonal S and random w of the assumed size, no other level does better on average."""
    rng = np.random.default_rng(1)
    d, noise, size = 20, 0.05, 2.0
    values = np.geomspace(1, 1e-3, d)
    level = noise_level(d, 0.0, noise, size)
    errors = dict.fromkeys((0.25, 1.0, 4.0), 0.0)
    for _ in range(400):
        w = rng.normal(size=d) * size / np.sqrt(d)
        b = values * w + noise * rng.normal(size=d)
        for factor in errors:
            errors[factor] += float(np.sum((values / (values**2 + (factor * level) ** 2) * b - w) ** 2))
    assert min(errors, key=errors.__getitem__) == 1.0
    assert np.isclose(level**2, d * noise**2 / size**2)
    assert np.isclose(noise_level(d, 0.3, 0.4, 1.0), np.sqrt(d) * 0.5)


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

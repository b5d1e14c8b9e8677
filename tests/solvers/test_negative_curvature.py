"""Steps along negative curvature inside a set: where they lead, how far, and when a Hessian is asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.constraints import Box, L1Ball, L2Ball, Simplex
from dpdist.solvers.loops import drive
from dpdist.solvers.negative_curvature import escape_saddles, model_step, project_downhill, quadratic_over_set
from dpdist.solvers.trust_region import Known

SETS = [L2Ball(1.0), L1Ball(1.0), Box(-0.5, 0.25), Simplex(1.0)]


def inside(rng, constraint, size):
    return constraint.project(rng.normal(size=size) / 3)


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_points_stay_in_the_set_and_do_not_go_up(constraint):
    rng = np.random.default_rng(0)
    for _ in range(25):
        size = int(rng.integers(1, 8))
        x, g = inside(rng, constraint, size), rng.normal(size=size) * 10.0 ** rng.integers(-4, 3)
        u = project_downhill(constraint.project, rng.normal(size=size) * 3, x, g)
        H = rng.normal(size=(size, size))
        best, least = quadratic_over_set(H + H.T, g, x, constraint.project, 2.0)
        for point in (u, best):
            np.testing.assert_allclose(constraint.project(point), point, atol=1e-9)
            assert float(g @ (point - x)) <= 1e-12 * np.linalg.norm(g)
        assert least == pytest.approx(float((best - x) @ (H + H.T) @ (best - x))) and least <= 0


@pytest.mark.parametrize(("constraint", "most"), [(L2Ball(1.0), 1.0), (Box(-1.0, 1.0), 4.0)], ids=repr)
def test_what_is_found_is_as_low_as_in_the_ball_inside(constraint, most):
    """The least value in a ball of radius r is r^2 times the lowest curvature; the box lies between two balls."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        H = rng.normal(size=(4, 4))
        H = H + H.T
        lowest = float(np.linalg.eigvalsh(H)[0])
        _, least = quadratic_over_set(H, np.zeros(4), np.zeros(4), constraint.project, 4.0)
        assert most * lowest - 1e-9 <= least <= 0.999 * lowest


def test_a_step_is_as_long_as_a_cubic_bound_allows():
    """``f(t) = -t^2 / 2 + t^4 / 4``: its third derivative is at most 6 up to t = 1."""
    H, way = np.array([[-1.0]]), np.ones(1)
    t = model_step(np.zeros(1), H, way, 6.0)
    assert t == pytest.approx(1 / 3) and -(t**2) / 2 + t**4 / 4 < -0.05
    assert model_step(np.array([-1.0]), H, way, 6.0) > t, "further, where the gradient leads there as well"
    assert model_step(np.zeros(1), H, way, math.inf) == 0.5
    grid = np.linspace(0, 0.5, 10_001)
    for slope, bend, cube in ((-0.3, -0.2, 7.0), (-0.01, -2.0, 30.0)):
        best = grid[np.argmin(slope * grid + bend * grid**2 / 2 + cube * grid**3 / 6)]
        assert model_step(np.array([slope]), np.array([[bend]]), way, cube) == pytest.approx(best, abs=1e-4)


def walk(n_rounds, n_hessians, noise=0.0, **options):
    """``-w_1^2 / 2 + w_2^2 / 2 + w_1^4 / 4`` in a ball, begun at its saddle; what is asked, and the end."""
    asked, rng = [], np.random.default_rng(0)

    def answer(question):
        asked.append(question.kind)
        a, b = question.point
        exact = np.array([a**3 - a, b]) if question.kind == "gradient" else np.diag([3 * a**2 - 1, 1.0])
        return Known(exact + noise * rng.normal(size=exact.shape), noise)

    ball = L2Ball(2.0)
    end = drive(escape_saddles(np.zeros(2), ball.project, 4.0, 0.2, n_rounds, n_hessians, **options), answer)
    return end, asked


def test_the_saddle_is_left_at_once_and_its_minimum_is_found():
    end, asked = walk(40, 5, third=12.0)
    assert abs(end.point[0]) == pytest.approx(1, abs=1e-3) and end.lowest == pytest.approx(1, abs=0.01)
    assert asked[:2] == ["gradient", "hessian"] and asked[-2:] == ["gradient", "hessian"]
    assert asked.count("gradient") == 40 and asked.count("hessian") <= 5


def test_hessians_are_kept_apart_and_the_last_one_is_for_the_end():
    _, asked = walk(40, 4, noise=100.0)  # nothing stands out of the noise
    after = [asked[:k].count("gradient") for k, kind in enumerate(asked) if kind == "hessian"]
    assert after == [1, 11, 21, 40]
    _, asked = walk(7, 1)
    assert asked == [*["gradient"] * 7, "hessian"]


def test_it_ends_early_where_that_is_enough():
    end, asked = walk(400, 5, third=12.0, small=1e-3, enough=-0.1)
    assert end.lowest == pytest.approx(1, abs=0.01) and asked.count("gradient") < 100
    assert walk(60, 5, third=12.0, small=0.0, enough=0.0)[1].count("gradient") == 60, "a saddle is no end"

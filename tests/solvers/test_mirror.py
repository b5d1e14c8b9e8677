"""Mirror maps and mirror descent: the steps against brute force, and the bound on the excess."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import minimize

from dpdist.constraints import Box, L1Ball, L2Ball, Simplex
from dpdist.mirror_maps import Mirror, euclidean_mirror
from dpdist.solvers.loops import drive, mirror_descent


@dataclass(frozen=True)
class Ellipsoid:
    """A set of one's own: ``||w / axes||_2 <= 1``, with the mirror step of the norm that it is the ball of."""

    axes: tuple[float, ...]

    def project(self, v):
        raise NotImplementedError

    def mirror(self, size):
        axes = np.array(self.axes)

        def step(z, g):
            u = z / axes - axes * g
            return axes * u / max(1.0, float(np.linalg.norm(u)))

        return Mirror(2, float(axes.max()), 0.5, float(axes @ axes), np.zeros(size), step, np.asarray)


SETS = {
    "l2": (L2Ball(1.5), L2Ball(1.5).project),
    "l1": (L1Ball(1.5), L1Ball(1.5).project),
    "simplex": (Simplex(2.0), Simplex(2.0).project),
}


@pytest.mark.parametrize("name", SETS)
def test_points_are_in_the_set_and_the_start_is_its_centre(name):
    constraint, project = SETS[name]
    mirror, rng = constraint.mirror(5), np.random.default_rng(0)
    state = mirror.start
    assert np.allclose(mirror.point(state), 0.0 if name != "simplex" else 2.0 / 5)
    for scale in (1e-3, 1.0, 1e3, 1e6):
        state = mirror.step(state, scale * rng.normal(size=5))
        point = mirror.point(state)
        assert np.allclose(project(point), point, atol=1e-9)


def test_entropic_step_minimises_divergence_plus_linear_part():
    rng = np.random.default_rng(1)
    mirror = Simplex(2.0).mirror(4)
    state = mirror.step(mirror.start, rng.normal(size=4) / 3)
    z, g = mirror.point(state), rng.normal(size=4)

    def objective(t):
        w = np.exp(t - t.max())
        w *= 2.0 / w.sum()
        return float(w @ np.log(w / z)) / 2.0 + g @ w  # relative entropy of the weights, which sum to 1

    found = minimize(objective, np.zeros(4), tol=1e-14).x
    w = np.exp(found - found.max())
    assert np.allclose(mirror.point(mirror.step(state, g)), 2.0 * w / w.sum(), atol=1e-5)


@pytest.mark.parametrize("name", SETS)
def test_divergence_bounds_the_distance_from_the_start_to_any_point(name):
    # three-point inequality of mirror descent: for every w, <g, z+ - w> <= V(w, z) - V(w, z+) - V(z+, z); from the
    # start the right-hand side is at most the declared divergence
    constraint, project = SETS[name]
    mirror, rng = constraint.mirror(6), np.random.default_rng(2)
    corners = [project(1e9 * v) for v in [*np.eye(6), *-np.eye(6)]]
    for scale in (0.1, 1.0, 10.0, 1e3):
        g = scale * rng.normal(size=6)
        z = mirror.point(mirror.step(mirror.start, g))
        assert max(g @ (z - w) for w in corners) <= mirror.divergence + 1e-6 * scale


def quadratic(goal, hessian):
    return (lambda w: 0.5 * (w - goal) @ hessian @ (w - goal)), (lambda w: hessian @ (w - goal))


@pytest.mark.parametrize("size", [1, 2, 30])
def test_accelerated_bound_without_noise(size):
    rng = np.random.default_rng(size)
    hessian = np.diag(rng.uniform(0.1, 1.0, size))
    for constraint in (L2Ball(2.0), L1Ball(2.0), Simplex(1.0)):
        value, gradient = quadratic(rng.normal(size=size) * 2, hessian)
        mirror = constraint.mirror(size)
        curvature = mirror.radius**2 * hessian.max()
        x = np.zeros(size)
        for _ in range(5000):
            x = constraint.project(x - gradient(x))
        for n_rounds in (1, 10, 100):
            asked = []

            def counted(w, asked=asked, gradient=gradient):
                asked.append(w)
                return gradient(w)

            w = drive(mirror_descent(mirror, curvature, n_rounds, accelerated=True), counted)
            assert len(asked) == n_rounds
            assert value(w) - value(x) <= 8 * curvature * mirror.divergence / (n_rounds + 1) ** 2
            plain = drive(mirror_descent(mirror, curvature, n_rounds), gradient)
            assert value(plain) - value(x) <= 2 * curvature * mirror.divergence / n_rounds


def test_noise_costs_the_logarithm_of_the_dimension_on_the_l1_ball():
    size, n_rounds, noise = 2000, 60, 0.02
    goal = np.zeros(size)
    goal[:2] = 0.5, -0.5
    ball, curvature = L1Ball(1.0), 1.0
    rng = np.random.default_rng(3)

    def excess(mirror):
        def noisy(w):
            return w - goal + noise * rng.normal(size=size)

        w = drive(mirror_descent(mirror, curvature, n_rounds, accelerated=True), noisy)
        return 0.5 * float((w - goal) @ (w - goal))

    mirror = ball.mirror(size)
    bound = 8 * mirror.divergence / (n_rounds + 1) ** 2 + n_rounds * noise**2 * mirror.width / 6
    assert mirror.width == pytest.approx(2 * math.log(2 * size))
    l1, l2 = excess(mirror), excess(euclidean_mirror(ball.project, np.zeros(size), 1.0))
    assert l1 < bound
    assert l1 < 0.25 * 0.5 * goal @ goal
    assert l2 > l1 / 3


def test_sets_of_ones_own():
    goal = np.array([2.0, 0.3])
    mirror = Ellipsoid((1.0, 3.0)).mirror(2)
    w = drive(mirror_descent(mirror, 9.0, 400, accelerated=True), lambda w: w - goal)
    inside = {"type": "ineq", "fun": lambda w: 1 - w[0] ** 2 - w[1] ** 2 / 9}
    found = minimize(lambda w: (w - goal) @ (w - goal) / 2, np.zeros(2), constraints=inside).x
    assert np.allclose(w, found, atol=1e-3)
    box = Box(0.0, 1.0)
    mirror = euclidean_mirror(box.project, np.full(3, 0.5), math.sqrt(3) / 2)
    w = drive(mirror_descent(mirror, 0.75, 200), lambda w: w - np.array([2.0, 0.25, -1.0]))
    assert np.allclose(w, [1.0, 0.25, 0.0], atol=0.02)


def test_a_free_coordinate_is_not_bounded():
    mirror = L2Ball(0.5).mirror(2).with_free(2.0)
    goal = np.array([3.0, 0.0, 7.0])
    w = drive(mirror_descent(mirror, 4.0 * 1.25, 300, accelerated=True), lambda w: w - goal)
    assert np.allclose(w, [0.5, 0.0, 7.0], atol=0.02)


@pytest.mark.parametrize("name", SETS)
def test_steps_from_another_point_of_the_set(name):
    constraint, project = SETS[name]
    rng, usual = np.random.default_rng(3), constraint.mirror(4)
    start = 0.8 * project(rng.normal(size=4)) if name != "simplex" else np.array([0.1, 0.4, 0.5, 1.0])
    mirror = usual.from_point(start)
    np.testing.assert_allclose(mirror.point(mirror.start), start, atol=1e-12)
    g = rng.normal(size=4) / 3
    ahead = mirror.point(mirror.step(mirror.start, g))
    assert np.allclose(project(ahead), ahead, atol=1e-9) and g @ ahead < g @ start
    for point in map(project, rng.normal(size=(200, 4)) * 5):
        if name == "l2":
            divergence = float((point - start) @ (point - start)) / (2 * mirror.radius**2)
        else:
            weights, first = weights_of(mirror, name, point), np.exp(mirror.start) / np.exp(mirror.start).sum()
            used = weights > 0
            divergence = float(np.sum(weights[used] * np.log(weights[used] / first[used])))
        assert divergence <= mirror.divergence + 1e-12
    goal = project(rng.normal(size=4))
    loop = mirror_descent(mirror, mirror.radius**2, 400, accelerated=True)
    assert np.linalg.norm(drive(loop, lambda w: w - goal) - goal) < 0.02


def weights_of(mirror, name, point):
    """The weights of the vertices that make a point of the border, without any that cancel."""
    weights = point if name == "simplex" else np.concatenate([np.maximum(point, 0), np.maximum(-point, 0)])
    return weights / weights.sum()


def test_a_border_is_never_left_by_multiplying():
    with pytest.raises(ValueError, match="never leave the border"):
        L1Ball(1.0).mirror(2).from_point(np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="never leave the border"):
        Simplex(1.0).mirror(2).from_point(np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="one start"):
        Ellipsoid((1.0, 2.0)).mirror(2).from_point(np.zeros(2))

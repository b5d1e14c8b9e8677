"""The centre of attention: its scale is smooth and large enough, on any points, and what is not is caught."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms import attention as module
from dpdist.privacy.mechanisms.attention import CentreOfAttention, attention
from dpdist.privacy.randomness.bits import SystemBits
from tests.privacy.exhibits.sample_and_aggregate import bounded_by_points, local_bound, mean_of_largest, radii

RADIUS = 2**30
SURE = 1 - 1e-6


def in_ball(points):
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return (points * np.minimum(1, RADIUS / np.maximum(norms, 1))).astype(np.int64)


def clouds(m: int, p: int, rng: np.random.Generator) -> np.ndarray:
    """Points as blocks may give them: one tight cluster or two, spread over many scales, equal, at the edge."""
    direction = np.eye(p)[0] * RADIUS
    kind = rng.integers(6)
    scale = RADIUS * 10.0 ** -rng.uniform(0, 9)
    points = rng.normal(size=(m, p)) * scale
    if kind == 1:
        points += np.where(rng.random(m) < rng.random(), 1, -1)[:, None] * direction
    elif kind == 2:
        points *= 10.0 ** rng.uniform(-6, 3, size=(m, 1))
    elif kind == 3:
        points[:] = 0
    elif kind == 4:
        points = np.where(np.arange(m)[:, None] < m * rng.random(), 0, direction)
    elif kind == 5:
        points[rng.integers(m)] = direction
    return in_ball(points)


def neighbours(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    other = points.copy()
    i = rng.integers(len(points))
    ways = [points[rng.integers(len(points))], -points[i], np.eye(points.shape[1])[0] * RADIUS, 0 * points[i],
            in_ball(rng.normal(size=(1, points.shape[1])) * RADIUS)[0]]  # fmt: skip
    other[i] = ways[rng.integers(len(ways))]
    return other


def reference(points: np.ndarray, diameter: float, beta: float) -> tuple[float, float]:
    """The definition, in plain loops: the smallest radius with t0 points, and S."""
    m, table = len(points), radii(points)
    t0 = (m + 1) // 2 + 1
    bound = 0.0
    for k in range(m + 1):
        t = t0 + 1 + k
        term = diameter if t > m else min(diameter, 2 * sorted(table[:, t - 1])[1 + k])
        bound = max(bound, math.exp(-beta * k) * term)
    return min(table[:, t0 - 1]) if t0 <= m else math.inf, bound


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 30, 300])
def test_the_scale_is_the_one_of_the_definition(m):
    rng = np.random.default_rng(m)
    for _ in range(10):
        points, beta = clouds(m, 3, rng), 10.0 ** rng.uniform(-3, 0)
        centre, bound = attention(points, 2.0 * RADIUS, beta)
        smallest, expected = reference(points, 2.0 * RADIUS, beta)
        assert bound == pytest.approx(expected, rel=1e-8) and bound >= expected * (1 - 1e-12)
        if m > 2:
            assert radii(points)[centre, (m + 1) // 2] == pytest.approx(smallest, rel=1e-12)


def worst_step(bound, n_pairs=1500):
    """The largest |ln S / S'| / beta, and |g - g'| / min(S, S'), over many neighbours."""
    rng = np.random.default_rng(5)
    steepest = furthest = 0.0
    for _ in range(n_pairs):
        m, p = int(rng.integers(1, 25)), int(rng.integers(1, 4))
        beta = 10.0 ** rng.uniform(-2, 0)
        one = clouds(m, p, rng)
        two = neighbours(one, rng)
        scales = [max(bound(points, 2.0 * RADIUS, beta), 1e-300) for points in (one, two)]
        moved = np.linalg.norm(one[attention(one, 2.0 * RADIUS, beta)[0]] - two[attention(two, 2.0 * RADIUS, beta)[0]])
        steepest = max(steepest, abs(math.log(scales[0] / scales[1])) / beta)
        furthest = max(furthest, moved / min(scales))
    return steepest, furthest


def test_the_scale_is_smooth_and_bounds_every_move():
    steepest, furthest = worst_step(lambda *a: attention(*a)[1])
    assert 0.99 < steepest <= 1, "a test that does not come close to the bound proves little"
    assert 0.5 < furthest <= 1


def test_scales_that_are_not_smooth_are_caught():
    assert worst_step(mean_of_largest)[0] > 3
    assert worst_step(local_bound)[0] > 10
    # points that all agree: nothing but the rule for t > m says that they could all be elsewhere
    rng = np.random.default_rng(0)
    same = np.zeros((9, 2), dtype=np.int64)
    assert bounded_by_points(same, 2.0 * RADIUS, 0.1) == 0 < attention(same, 2.0 * RADIUS, 0.1)[1]
    assert bounded_by_points(clouds(9, 2, rng), 2.0 * RADIUS, 0.1) >= 0


def true_delta(epsilon: float, shift: float, ratio: float, p: int) -> float:
    """``P(loss > epsilon) - e^epsilon Q(loss > epsilon)``, exactly, P = N(0, I), Q = N(shift e_1, ratio^2 I).

    The loss is ``p ln(ratio) + |z - shift|^2 / (2 ratio^2) - |z|^2 / 2``: a multiple of a squared distance from one
    point, hence a non-central chi-square under P and under Q.
    """
    a = (1 / ratio**2 - 1) / 2
    centre = shift / (1 - ratio**2)  # of the quadratic a |z - centre|^2
    constant = p * math.log(ratio) + shift**2 / (2 * ratio**2) - a * centre**2
    level = (epsilon - constant) / a
    tail = stats.ncx2.sf if a > 0 else stats.ncx2.cdf
    return tail(level, p, centre**2) - math.exp(epsilon) * tail(level / ratio**2, p, ((centre - shift) / ratio) ** 2)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("p", [1, 3, 30])
def test_the_noise_is_enough_for_any_move_and_change_of_scale_that_is_allowed(epsilon, delta, p):
    mechanism = CentreOfAttention(delta).at(epsilon)
    beta, gamma = mechanism.beta(p), mechanism.gamma(p)
    for step in (-1.0, -0.5, -1e-3, 1e-3, 0.5, 1.0):
        ratio = math.exp(step * beta)
        for moved in (0.0, 0.5, 1.0):
            assert true_delta(epsilon, gamma * moved * min(1.0, ratio), ratio, p) <= delta
    # with nine tenths of the noise it would not be: there is nothing to spare
    assert true_delta(epsilon, gamma / 0.9 * math.exp(-beta), math.exp(-beta), p) > delta


def test_the_noise_is_a_third_of_that_by_the_printed_condition_and_less():
    for p in (1, 3, 10, 100):
        mechanism = CentreOfAttention(1e-6).at(1.0)
        printed = 1.0 / (5 * math.sqrt(2 * math.log((math.exp(0.5) + 1) / 1e-6)))
        assert 4.6 < mechanism.gamma(p) / printed < 6.2


def worst_pair(centre: int, growth: float):
    """One of two points a bound apart, and the bound: the farthest that a neighbour can be."""
    return lambda points, diameter, beta: (centre, (points[1, 0] - points[0, 0]) * math.exp(growth * beta))


@pytest.mark.parametrize("growth", [0.0, 1.0])
def test_the_worst_pair_is_as_private_as_claimed_and_a_fifth_of_the_noise_is_caught(monkeypatch, growth):
    points, delta = np.array([[0], [RADIUS]]), 1e-3

    def audited():
        def release(centre, growth):
            monkeypatch.setattr(module, "attention", worst_pair(centre, growth))
            return -float(CentreOfAttention(delta).at(1.0).release(points, float(RADIUS), SystemBits())[0])

        return audit_two_point(lambda: release(0, growth), lambda: release(1, 0.0), 1000, delta, SURE)

    assert audited().epsilon_lower <= 1.0
    gamma = CentreOfAttention.gamma
    monkeypatch.setattr(CentreOfAttention, "gamma", lambda self, size: 5 * gamma(self, size))
    assert audited().epsilon_lower > 1.0


def two_clusters(n_low: int) -> np.ndarray:
    return np.where(np.arange(11) < n_low, 0, RADIUS)[:, None].astype(np.int64)


def released(points: np.ndarray, epsilon: float = 1.0, delta: float = 1e-3) -> float:
    return abs(float(CentreOfAttention(delta).at(epsilon).release(points, float(RADIUS), SystemBits())[0]))


def test_the_release_is_as_private_as_claimed():
    """8 of 11 points agree, or 7 of them: the local bound is 0 on one side and the diameter on the other."""
    result = audit_two_point(lambda: released(two_clusters(8)), lambda: released(two_clusters(7)), 1000, 1e-3, SURE)
    assert result.epsilon_lower <= 1.0


def test_noise_by_the_local_bound_is_caught(monkeypatch):
    monkeypatch.setattr(module, "attention", lambda points, *rest: (0, local_bound(points, *rest)))
    result = audit_two_point(lambda: released(two_clusters(8)), lambda: released(two_clusters(7)), 1000, 1e-3, SURE)
    assert result.epsilon_lower > 1.0


def test_what_is_released_is_close_where_points_agree_and_on_their_grid():
    rng = np.random.default_rng(0)
    points = in_ball(np.array([5e8, -3e8]) + rng.normal(size=(2200, 2)) * 1000)
    mechanism = CentreOfAttention(1e-6).at(1.0)
    values = np.array([mechanism.release(points, 2.0 * RADIUS, SystemBits()) for _ in range(6)], dtype=float)
    assert np.array_equal(values, np.round(values))
    # the noise has a standard deviation of about 5.8 * 2 * 1180 = 1.4e4: 12 draws leave this range once in 1e7 times
    assert 2e3 < np.sqrt(np.mean((values - [5e8, -3e8]) ** 2)) < 4.3e4


def test_its_plan_and_its_limits():
    plan = calibrate([Item("centre", CentreOfAttention(1e-6))], Budget(1.0, 1e-6))
    assert plan.accountant == "basic" and 1 - 1e-6 < plan.spent.epsilon <= 1 and plan.spent.delta == 1e-6
    mechanism = plan["centre"].mechanism
    assert math.isnan(mechanism.noise_std(1.0))
    with pytest.raises(BudgetError, match="up to epsilon = 1"):
        CentreOfAttention(1e-6).at(1.5).release(np.zeros((3, 1), dtype=int), 1.0, SystemBits())
    with pytest.raises(BudgetError, match="delta in"):
        CentreOfAttention(0.0)
    with pytest.raises(TypeError, match="matrix of integers"):
        mechanism.release(np.zeros(3, dtype=int), 1.0, SystemBits())

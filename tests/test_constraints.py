"""Projections and proximal maps against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpdist.constraints import (
    Box,
    ElasticNet,
    GemanMcClure,
    L1Ball,
    L2Ball,
    Quartic,
    Simplex,
    hard_threshold,
    proximal,
    soft_threshold,
)

SETS = [L2Ball(1.3), L1Ball(1.3), Box(-0.4, 0.7), Simplex(1.0)]


def members(constraint, rng, n=400):
    return [constraint.project(rng.normal(size=4) * 3) for _ in range(n)]


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_projection_is_the_nearest_member(constraint):
    rng = np.random.default_rng(0)
    others = members(constraint, rng)
    for _ in range(50):
        v = rng.normal(size=4) * 2
        p = constraint.project(v)
        assert np.allclose(constraint.project(p), p, atol=1e-12)
        # the variational inequality <v - p, z - p> <= 0 for every member z characterises the projection
        assert max((v - p) @ (z - p) for z in others) <= 1e-10


@pytest.mark.parametrize("constraint", [None, L2Ball(0.8), L1Ball(0.8), Box(-0.3, 0.5)], ids=repr)
@pytest.mark.parametrize("l1_ratio", [0.0, 0.4, 1.0])
def test_proximal_map_of_the_sum_is_exact(constraint, l1_ratio):
    rng = np.random.default_rng(1)
    penalty = ElasticNet(0.7, l1_ratio)
    step_map = proximal(penalty, constraint, 3)
    candidates = [rng.normal(size=3) for _ in range(4000)]
    for _ in range(5):
        v, step = rng.normal(size=3) * 2, 0.6
        w = step_map(v, step)

        def objective(z, v=v, step=step):
            return (z - v) @ (z - v) / (2 * step) + penalty.value(z)

        for z in candidates:
            feasible = z if constraint is None else constraint.project(z)
            assert objective(w) <= objective(feasible) + 1e-12


def test_prox_matches_a_numerical_minimiser():
    penalty = ElasticNet(0.5, 0.3)
    v = np.array([2.0, -1.5, 0.05])
    found = minimize(
        lambda z: (z - v) @ (z - v) / 0.8 + penalty.value(z), np.zeros(3), method="Nelder-Mead", tol=1e-12
    ).x
    assert np.allclose(penalty.prox(v, 0.4), found, atol=1e-5)


def test_the_intercept_is_free():
    step_map = proximal(ElasticNet(10.0, 0.5), L2Ball(0.1), 2)
    assert step_map(np.array([5.0, 5.0, 7.0]), 1.0)[2] == 7.0


def test_l1_is_a_constant_on_the_simplex():
    v = np.array([0.1, 0.9, -0.4])
    assert np.allclose(proximal(ElasticNet(5.0, 1.0), Simplex(), 3)(v, 1.0), Simplex().project(v))


def test_soft_threshold_keeps_signs():
    assert list(soft_threshold(np.array([-2.0, 0.3, 2.0]), 0.5)) == [-1.5, 0.0, 1.5]


@pytest.mark.parametrize("constraint", [L1Ball(1.3), Simplex(2.0)], ids=repr)
def test_vertices_span_the_set_and_minimise_linear_functions(constraint):
    rng = np.random.default_rng(3)
    vertices = [constraint.vertex(i, 4) for i in range(8 if isinstance(constraint, L1Ball) else 4)]
    assert len({tuple(v) for v in vertices}) == len(vertices)
    assert all(np.allclose(constraint.project(v), v) for v in vertices)
    others = members(constraint, rng)
    for _ in range(50):
        g = rng.normal(size=4)
        best = constraint.lmo(g)
        assert any(np.array_equal(best, v) for v in vertices)
        assert g @ best <= min(g @ z for z in [*others, *vertices]) + 1e-12


def test_vertex_numbers_are_those_of_a_signed_selection():
    """A signed selection maximises over -v, then +v: number j stands for -e_j, size + j for e_j."""
    v = np.array([0.1, -3.0, 2.0])
    assert L1Ball(2.0).vertex(int(np.argmax(np.concatenate([-v, v]))), 3).tolist() == [0, -2, 0]


def test_hard_threshold_is_the_nearest_sparse_vector():
    rng = np.random.default_rng(4)
    v = rng.normal(size=6)
    kept = hard_threshold(v, 2)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    assert np.sum((v - kept) ** 2) == pytest.approx(min(np.sum(np.delete(v, p) ** 2) for p in pairs))
    assert hard_threshold(np.array([1.0, -1.0, 1.0]), 2).tolist() == [1, -1, 0]  # ties: the first
    assert hard_threshold(v, 6).tolist() == v.tolist()


@pytest.mark.parametrize("penalty", [GemanMcClure(0.7), Quartic(1.3), Quartic(0.5, radius=2.0)], ids=repr)
def test_smooth_penalties(penalty):
    rng, h = np.random.default_rng(0), 1e-5
    low, high = penalty.curvature_range
    seen = []
    for _ in range(3000):
        w = rng.normal(size=3)
        w *= rng.uniform(0, getattr(penalty, "radius", 3.0)) / np.linalg.norm(w)
        for direction in np.eye(3):
            slope = (penalty.value(w + h * direction) - penalty.value(w - h * direction)) / (2 * h)
            assert slope == pytest.approx(penalty.gradient(w) @ direction, abs=1e-7)
            bend = (penalty.gradient(w + h * direction) - penalty.gradient(w - h * direction)) / (2 * h)
            np.testing.assert_allclose(bend, penalty.hessian(w) @ direction, atol=1e-7)
        seen.append(np.linalg.eigvalsh(penalty.hessian(w))[[0, -1]])
    lowest, highest = np.min(seen), np.max(seen)
    assert low - 1e-9 <= lowest < low + 0.05 * high and high * 0.95 < highest <= high + 1e-9


def test_constants_of_the_geman_mcclure_penalty():
    w = np.linspace(-20, 20, 400_001)
    gradient = GemanMcClure(1.0).gradient(w)
    second = np.gradient(gradient, w)
    assert 0.6495 < abs(gradient).max() < 0.6496
    assert 4.66 < abs(np.gradient(second, w)).max() < 4.67
    assert second.min() == pytest.approx(-0.5, abs=1e-6) and second.max() == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_smooth_penalties_refuse_what_is_no_size(bad):
    for make in (lambda: GemanMcClure(bad), lambda: Quartic(bad), lambda: Quartic(1.0, radius=bad)):
        with pytest.raises(ValueError, match="positive finite number"):
            make()

"""Proximal steps in a metric, against a solver of quadratic programs and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from dpdist.constraints import Box, ElasticNet, L2Ball, proximal
from dpdist.solvers.metric_steps import in_metric


def metric(d=6, condition=1e3, seed=0):
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    return (vectors * np.geomspace(1.0, condition, d)) @ vectors.T


def test_a_ridge_has_a_closed_form():
    M, v = metric(), np.random.default_rng(1).normal(size=6)
    found = in_metric(proximal(ElasticNet(2.0), None, 6), M)(v, 0.5)
    assert found == pytest.approx(np.linalg.solve(M / 0.5 + 2.0 * np.eye(6), M @ v / 0.5), abs=1e-5)


@pytest.mark.parametrize("penalty", [None, ElasticNet(0.5, 1.0), ElasticNet(1.0, 0.5)])
@pytest.mark.parametrize("constraint", [L2Ball(0.7), Box(-0.2, 0.4)])
def test_no_point_of_the_set_is_better(penalty, constraint):
    M, rng = metric(), np.random.default_rng(2)
    v = rng.normal(size=6)

    def value(w):
        own = 0.0 if penalty is None else penalty.value(w)
        return own + (w - v) @ M @ (w - v) / 2

    found = in_metric(proximal(penalty, constraint, 6), M)(v, 1.0)
    assert found == pytest.approx(constraint.project(found), abs=1e-9)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(200):
            assert value(found) <= value(constraint.project(found + size * rng.normal(size=6))) + 1e-6


def test_a_box_agrees_with_another_solver():
    M, v = metric(condition=100.0), np.random.default_rng(3).normal(size=6)
    found = in_metric(proximal(None, Box(-0.3, 0.3), 6), M)(v, 1.0)
    root = np.linalg.cholesky(M).T
    assert found == pytest.approx(scipy.optimize.lsq_linear(root, root @ v, (-0.3, 0.3), tol=1e-12).x, abs=1e-5)

"""The variance-reduced loops: what they ask for, how often, and that they solve what they should."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.constraints import ElasticNet, L2Ball, proximal
from dpdist.solvers.loops import drive, variance_reduced

HESSIAN = np.diag([1.0, 0.5, 0.1])
OPTIMUM = np.array([1.0, -2.0, 3.0])
KINDS = {
    "svrg": {"restart": True},
    "svrg++": {},
    "katyusha": {"momentum": 0.5, "growth": 1.05},
}


def exact(asked=None):
    def oracle(points):
        x, snapshot = points
        if asked is not None:
            asked.append(points)
        return HESSIAN @ (x - OPTIMUM) if snapshot is None else HESSIAN @ (x - snapshot)

    return oracle


def identity(v, step):
    return v


@pytest.mark.parametrize("kind", KINDS)
def test_questions_are_public(kind):
    asked = []
    drive(variance_reduced(np.zeros(3), identity, 1.0, (2, 4, 1), **KINDS[kind]), exact(asked))
    assert [s is None for _, s in asked] == [True, False, False, True, *[False] * 4, True, False]
    assert not asked[0][0].any()
    snapshots = [x for x, s in asked if s is None]
    current = iter(snapshots)
    for _, s in asked:
        if s is None:
            snapshot = next(current)
        else:
            assert np.array_equal(s, snapshot)
    # the points where nothing has to be asked: the first of all, and the first of every epoch with restarts
    same = [np.array_equal(x, s) for x, s in asked if s is not None]
    assert same == [True, False, kind == "svrg", False, False, False, kind == "svrg"]


@pytest.mark.parametrize("kind", KINDS)
def test_exact_answers_converge(kind):
    x = drive(variance_reduced(np.zeros(3), identity, 0.7, (20,) * 40, **KINDS[kind]), exact())
    assert np.allclose(x, OPTIMUM, atol=2e-4)


def test_exact_differences_make_svrg_plain_descent():
    x, iterates = np.zeros(3), []
    for _ in range(6):
        x = x - 0.7 * HESSIAN @ (x - OPTIMUM)
        iterates.append(x)
    found = drive(variance_reduced(np.zeros(3), identity, 0.7, (6,)), exact())
    assert np.allclose(found, np.mean(iterates, axis=0))


def test_weights_of_late_iterates_grow_without_overflow():
    iterates = []

    def prox(v, step):
        iterates.append(v)
        return v

    found = drive(variance_reduced(np.zeros(3), prox, 0.7, (5,), growth=1.5), exact())
    assert np.allclose(found, np.average(iterates, axis=0, weights=1.5 ** np.arange(5)))
    late = drive(variance_reduced(np.zeros(3), identity, 0.7, (2000,), growth=10.0), exact())
    assert np.isfinite(late).all() and np.allclose(late, OPTIMUM)


def test_penalty_and_constraint():
    target = np.array([3.0, 4.0, 0.0])
    prox = proximal(ElasticNet(1.0), L2Ball(1.0), 3)

    def oracle(points):
        return points[0] - (target if points[1] is None else points[1])

    for kind in KINDS.values():
        x = drive(variance_reduced(np.zeros(3), prox, 0.5, (20,) * 20, **kind), oracle)
        assert np.allclose(x, [0.6, 0.8, 0.0], atol=1e-6)

"""The graphical lasso, against scikit-learn's, its optimality conditions and its bounds; and its capped form."""

import math

import numpy as np
import pytest
from sklearn.covariance import graphical_lasso

from dpdist.solvers.graphical_lasso import (
    capped_error,
    glasso,
    glasso_capped,
    glasso_gap,
    glasso_objective,
)


def of_pairs(T):
    return np.abs(T).sum() - np.abs(np.diag(T)).sum()


def moment(d, n, rng, correlated=0.4):
    X = rng.normal(size=(n, d))
    X[:, 1:] += correlated * X[:, :-1]
    return X.T @ X / n


@pytest.mark.parametrize("d, n, penalty", [(2, 10, 0.3), (8, 100, 0.1), (20, 15, 0.2), (30, 2000, 0.02)])
def test_at_the_minimum(d, n, penalty):
    S = moment(d, n, np.random.default_rng(d))
    found = glasso(S, penalty)
    T = found.precision
    assert found.gap < 1e-5 and glasso_gap(S, T, penalty) < 1e-5
    assert abs((S * T).sum() + penalty * of_pairs(T) - d) < 1e-3
    values, largest = np.linalg.eigvalsh(T), np.linalg.norm(S, 2)
    assert values[0] >= 1 / (largest + penalty * (d - 1)) - 1e-9
    # the gradient of the smooth part is within the penalty, and at it with the sign where an entry is not 0
    slope, pairs = np.linalg.inv(T) - S, ~np.eye(d, dtype=bool)
    assert np.abs(np.diag(slope)).max() < 1e-2 * penalty  # variances are kept as they are
    assert np.abs(slope).max() < penalty * (1 + 1e-3)
    assert np.abs(slope - penalty * np.sign(T))[(T != 0) & pairs].max() < 1e-2 * penalty


@pytest.mark.parametrize("d, n, penalty", [(6, 200, 0.1), (15, 400, 0.05)])
def test_it_is_as_good_as_scikit_learns(d, n, penalty):
    S = moment(d, n, np.random.default_rng(n))
    _, theirs = graphical_lasso(S, penalty, tol=1e-4, enet_tol=1e-10, max_iter=200)
    ours = glasso(S, penalty).precision
    assert abs(glasso_objective(S, ours, penalty) - glasso_objective(S, theirs, penalty)) < 1e-6
    assert np.linalg.norm(ours - theirs) < 1e-3 * np.linalg.norm(theirs)


def test_blocks_are_solved_one_by_one_with_the_same_answer():
    rng = np.random.default_rng(4)
    S = np.zeros((12, 12))
    S[:5, :5], S[5:9, 5:9], S[9:, 9:] = moment(5, 50, rng), moment(4, 50, rng), np.diag([1.0, 2.0, 0.5])
    S += 0.01  # below the penalty
    order = rng.permutation(12)
    shuffled = S[np.ix_(order, order)]
    T = glasso(shuffled, 0.05).precision
    labels = np.repeat([0, 1, 2, 3, 4], [5, 4, 1, 1, 1])[order]
    assert not T[labels[:, None] != labels].any() and glasso_gap(shuffled, T, 0.05) < 1e-6


def test_a_matrix_without_a_minimiser_is_refused():
    S = np.eye(4) - 2 * np.ones((4, 4)) / 4  # an eigenvalue of -1
    with pytest.raises(ValueError, match=r"no minimiser.*psd_floor"):
        glasso(S, 0.2)
    assert math.isfinite(glasso(S, 2.0).gap)  # a penalty that makes up for it
    assert math.isfinite(glasso(np.ones((3, 3)), 0.1).gap)  # no inverse, but variances that are positive
    for S in (np.diag([1.0, -0.3]), np.diag([1.0, 0.0]), np.array([[0.1, 0.9], [0.9, 0.1]])):
        with pytest.raises(ValueError, match="no minimiser"):
            glasso(S, 0.2)
    for penalty in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="penalty must be a positive number"):
            glasso(np.eye(2), penalty)


def capped_gap(S, W, penalty, cap):
    """Primal minus dual of the capped problem, at the point that the dual point W gives."""
    values, vectors = np.linalg.eigh(W)
    chosen = 1 / np.maximum(values, 1 / cap)
    T = (vectors * chosen) @ vectors.T
    dual = np.where(values >= 1 / cap, 1 + np.log(np.maximum(values, 1e-300)), -math.log(cap) + cap * values).sum()
    return -np.log(chosen).sum() + (S * T).sum() + penalty * of_pairs(T) - dual


def dual_point(S, penalty, cap, n_steps):
    """The dual point of `glasso_capped`, in plain words."""
    W = point = S
    momentum, free = 1.0, penalty * (1 - np.eye(len(S)))
    for _ in range(n_steps):
        values, vectors = np.linalg.eigh(point)
        T = (vectors / np.maximum(values, 1 / cap)) @ vectors.T
        before, W = W, np.clip(point + T / cap**2, S - free, S + free)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point, momentum = W + (momentum - 1) / following * (W - before), following
    return W


@pytest.mark.parametrize("cap", [1.5, 4.0, 50.0])
def test_the_capped_form_is_certified_and_within_its_bound(cap):
    rng, penalty = np.random.default_rng(5), 0.05
    A = rng.normal(size=(12, 12))
    for S in (moment(12, 30, rng), (A + A.T) / 6):  # the second has negative eigenvalues
        exact = glasso_capped(S, penalty, cap, 5000)
        gaps = [capped_gap(S, dual_point(S, penalty, cap, n), penalty, cap) for n in (10, 100, 2000)]
        assert gaps[0] >= gaps[2] and -1e-9 < gaps[2] < 1e-3 * (1 + cap)
        for n_steps in (1, 10, 100, 1000):
            found = glasso_capped(S, penalty, cap, n_steps)
            distance = np.linalg.norm(found - exact)
            assert distance <= capped_error(12, penalty, cap, n_steps, np.linalg.norm(S))
            values = np.linalg.eigvalsh(found)
            assert values[0] > 0 and values[-1] <= cap * (1 + 1e-12)


def test_a_cap_that_does_not_bind_gives_the_graphical_lasso():
    S = moment(10, 500, np.random.default_rng(6))
    T = glasso(S, 0.1).precision
    assert np.linalg.norm(glasso_capped(S, 0.1, 20.0, 5000) - T) < 1e-3


def test_the_solution_moves_by_no_more_than_the_matrix_times_the_square_of_the_cap():
    rng, cap, penalty, worst = np.random.default_rng(7), 2.0, 0.03, 0.0
    for _ in range(60):
        d = 4
        X = rng.normal(size=(3, d)) * rng.choice([0.1, 1.0, 3.0])
        S = X.T @ X / 3
        step = np.outer(v := rng.normal(size=d), v) - np.outer(w := rng.normal(size=d), w)
        step *= rng.choice([1e-3, 0.1])
        moved = glasso_capped(S + step, penalty, cap, 500) - glasso_capped(S, penalty, cap, 500)
        worst = max(worst, np.linalg.norm(moved) / np.linalg.norm(step))
    assert 0.2 * cap**2 < worst <= cap**2 * (1 + 1e-6)

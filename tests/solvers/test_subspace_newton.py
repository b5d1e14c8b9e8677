"""Newton steps in the span of gradients: exact without noise, short with it, at the best constant for rare classes."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.central.linear.loss_curvature import loss_curvature
from dpdist.losses import Logistic
from dpdist.solvers.filtered_newton import Noisy
from dpdist.solvers.loops import drive
from dpdist.solvers.subspace_newton import subspace_newton

LOGISTIC = loss_curvature(Logistic())


def quadratic(eigenvalues, best, std=0.0, hessian_std=0.0, seed=0):
    """What a quadratic answers, and what was asked."""
    rng, asked = np.random.default_rng(seed), []

    def answer(question):
        asked.append(question)
        if question.kind == "gradient":
            noise = std * rng.normal(size=len(best))
            return Noisy(eigenvalues * (question.point - best) + noise, std)
        D = question.directions
        along = D.T @ (eigenvalues[:, None] * D)
        k = len(along)
        matrix = np.zeros((k + 1, k + 1))
        matrix[:k, :k], matrix[k, k] = along, eigenvalues.sum() - np.trace(along)
        E = hessian_std / np.sqrt(2) * rng.normal(size=matrix.shape)
        return Noisy(matrix + (E + E.T) / np.sqrt(2), hessian_std)

    return answer, asked


def steps(d, n_rounds, ridge=0.0):
    return subspace_newton(LOGISTIC, n_features=d, constant=0.0, ridge=ridge, n_rounds=n_rounds)


def excess(eigenvalues, w, best):
    return float(eigenvalues @ (w - best) ** 2) / 2


def test_without_noise_as_many_rounds_as_there_are_eigenvalues_are_exact():
    eigenvalues = np.repeat([1000.0, 30.0, 1.0], 20)
    best = np.random.default_rng(0).normal(size=60)
    found = [drive(steps(60, t), quadratic(eigenvalues, best)[0]) for t in (1, 2, 3)]
    errors = [excess(eigenvalues, w, best) for w in found]
    assert errors[0] > errors[1] > 1.0 and errors[2] < 1e-12


def test_more_rounds_than_features_are_newton_steps_in_all_of_them():
    eigenvalues, best = np.array([5.0, 1.0]), np.array([1.0, -2.0])
    answer, asked = quadratic(eigenvalues, best)
    assert drive(steps(2, 5), answer) == pytest.approx(best)
    assert asked[-1].directions.shape == (2, 2)


def test_a_ridge_is_that_of_the_objective():
    eigenvalues, best = np.array([5.0, 1.0, 3.0]), np.array([1.0, -2.0, 0.5])
    found = drive(steps(3, 6, ridge=2.0), quadratic(eigenvalues, best)[0])
    assert found == pytest.approx(eigenvalues * best / (eigenvalues + 2.0))


def test_noise_is_not_taken_for_a_direction_to_go():
    d = 2000
    still = [drive(steps(d, 6), quadratic(np.ones(d), np.zeros(d), 1.0, 0.1, seed)[0]) for seed in range(5)]
    all_of_it = d / 2  # what a step that trusts one gradient would add
    assert np.mean([w @ w / 2 for w in still]) < 0.05 * all_of_it


@pytest.mark.parametrize("signal", [0.5, 1.0, 3.0])
def test_a_step_along_noise_is_as_long_as_the_best_one(signal):
    """One round on equal eigenvalues: within a few per cent of the best multiple of the released gradient."""
    d, ratios = 3000, []
    for seed in range(5):
        best = signal * np.random.default_rng(seed + 100).normal(size=d)
        answer, asked = quadratic(np.ones(d), best, 1.0, 1e-9, seed)
        found = drive(steps(d, 1), answer)
        b = asked[1].directions[:, 0]
        ratios.append(excess(np.ones(d), found, best) / excess(np.ones(d), (b @ best) * b, best))
    assert 1 - 1e-9 <= np.mean(ratios) < 1.02


@pytest.mark.parametrize("condition", [1.0, 30.0, 1e4])
def test_nothing_diverges_where_curvature_is_nothing_but_noise(condition):
    d = 400
    eigenvalues = np.geomspace(condition, 1.0, d)
    best = np.random.default_rng(5).normal(size=d) / np.sqrt(eigenvalues)
    at_start = excess(eigenvalues, np.zeros(d), best)
    for seed in range(20):
        w = drive(steps(d, 6), quadratic(eigenvalues, best, 2.0, 10 * condition, seed)[0])
        assert excess(eigenvalues, w, best) < 1.2 * at_start


def test_a_rare_class_starts_at_its_best_constant():
    constant, n = 0.5, 10_000
    labels = Noisy(np.array([2 * 0.03 - 1]), 1e-9)  # 3 % positives, and nothing in the slopes
    loop = subspace_newton(LOGISTIC, n_features=3, constant=constant, ridge=0.0, n_rounds=3, labels=labels)

    def answer(question):
        if question.kind == "gradient":
            wanted = 1 / (1 + np.exp(-constant * question.point[-1])) - 0.03
            return Noisy(np.array([0.0, 1e-9, 0.0, n * constant * wanted]), 1e-6)
        k = question.directions.shape[1]
        return Noisy(np.diag([*np.ones(k), 1.0, n * constant**2 / 4]), 1e-6)

    w = drive(loop, answer)
    assert constant * w[-1] == pytest.approx(np.log(0.03 / 0.97), abs=1e-3)

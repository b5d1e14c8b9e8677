"""Dawid and Skene's steps, without privacy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpdist.solvers.dawid_skene import dawid_skene, err_together, objective, one_coin, signal_strength


def crowd(n, m, able, seed, n_classes=2):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_classes, m)
    right = rng.random((n, m)) < np.asarray(able)[:, None]
    return np.where(right, truth, (truth + rng.integers(1, n_classes, (n, m))) % n_classes), truth


@pytest.mark.parametrize("seed", range(5))
def test_a_round_never_makes_the_objective_smaller(seed):
    """Without projection and prior; the control: with an ability too many on its head it does."""
    answers, _ = crowd(15, 60, np.random.default_rng(seed).uniform(0.4, 0.9, 15), seed)
    y, reached = None, []
    for _ in range(12):
        y, p = one_coin(answers, projection=1e-9, n_rounds=1, start=y, prior=0.0)
        reached.append(objective(answers, y, p))
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in itertools.pairwise(reached))
    assert objective(answers, y, np.where(np.arange(15) == 0, 1 - p, p)) < reached[-1]


def test_an_answer_that_is_missing_is_none():
    answers, truth = crowd(60, 300, [0.8] * 60, 0)
    some = np.where(np.random.default_rng(1).random(answers.shape) < 0.5, answers, np.nan)
    y, p = one_coin(some)
    assert np.mean((y > 0.5) != truth) < 0.01 and abs(p.mean() - 0.8) < 0.02


def test_confusion_matrices_are_found():
    answers, truth = crowd(40, 500, [0.7] * 40, 0, n_classes=3)
    y, confusion = dawid_skene(answers, 3)
    assert np.mean(y.argmax(axis=1) != truth) < 0.02
    assert np.abs(confusion.mean(axis=0) - (0.55 * np.eye(3) + 0.15)).max() < 0.03


def test_the_signal_of_random_answers_is_weak_and_that_of_a_crowd_strong():
    """For both numbers of classes; with answers missing it is not taken for stronger than it is (correction 20)."""
    for n_classes in (2, 4):
        noise = np.random.default_rng(0).integers(0, n_classes, (100, 400)).astype(np.uint8)
        answers, _ = crowd(100, 400, [0.7] * 100, 0, n_classes)
        some = np.where(np.random.default_rng(1).random((100, 400)) < 0.1, noise, 255).astype(np.uint8)
        assert signal_strength(noise, n_classes) < 2.5
        assert signal_strength(some, n_classes) < 2.5
        assert signal_strength(answers.astype(np.uint8), n_classes) > 10
    assert signal_strength(np.zeros((1, 5), np.uint8), 2) == 0.0, "one user is like nobody"


def together(answers):
    """What `err_together` says of answers 0 and 1 (NaN: none) and the labels that are found from them."""
    y, _ = one_coin(answers)
    signs = np.where(np.isnan(answers), 0.0, 2 * answers - 1)
    given = np.abs(signs)
    agreements = signs @ (2 * y - 1)
    return err_together(signs.sum(axis=0), signs.T @ agreements, given.sum(axis=0), y, agreements, given.sum(axis=1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "m"), [(40, 400), (150, 1500), (300, 300)])
def test_users_who_err_together_are_told_from_those_who_differ_or_have_hard_tasks(n, m, seed):
    """The control: the same crowd, of which a third says what one of them says, or always yes."""
    rng = np.random.default_rng(seed)
    truth = rng.random(m) < 0.4
    able = np.where(rng.random(n) < 0.2, 0.95, rng.uniform(0.55, 0.7, n))[:, None]

    def crowd_of(right):
        return np.where(rng.random((n, m)) < right, truth, ~truth).astype(float)

    hard = np.where(rng.random(m) < 0.4, 0.52, able)
    says_yes_sooner = np.where(truth, able, 0.75)
    alone = [crowd_of(chance) for chance in (np.broadcast_to(able, (n, m)), hard, says_yes_sooner)]
    few = np.where(rng.random((n, m)) < rng.uniform(0.1, 1.0, (n, 1)), alone[0], np.nan)
    assert not any(together(answers) for answers in [*alone, few])
    third = np.arange(n)[:, None] < n / 3
    leader = np.where(rng.random(m) < 0.6, truth, ~truth)
    usual = crowd_of(rng.uniform(0.6, 0.8, (n, 1)))
    assert together(np.where(third, leader, usual)) and together(np.where(third, 1.0, usual))

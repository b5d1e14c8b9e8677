"""Bets against claims: fair where a claim is true, whoever looks how often; soon over where it is far off."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from dpdist.privacy.audit.sequential import (
    STEPS,
    Bets,
    SequentialAudit,
    counted,
    epsilon_lines,
    mu_lines,
)

MU = 0.896  # of (2, 0.01)


def scores(kind: str, scale: float):
    """Draws of scores of either dataset, at that multiple of what is claimed."""

    def draw(rng: np.random.Generator, which: int, n: int) -> np.ndarray:
        if kind == "gaussian":
            return rng.normal(which * scale * MU, 1, n)
        if kind == "laplace":
            return rng.laplace(which * scale * 2.0, 1, n)
        chance = 1 / (1 + math.exp(-2.0 * scale))  # randomised response
        return ((rng.random(n) < chance) == bool(which)).astype(float)

    return draw


def audit(seed: int, kind: str, scale: float, *, swapped: bool = False, max_runs: int = 500) -> SequentialAudit:
    rng, draw = np.random.default_rng(seed), scores(kind, scale)
    sides = (0, 1) if swapped else (1, 0)
    claim = {"mu": MU, "delta": 0.01} if kind == "gaussian" else {"delta": 0.0}
    found = SequentialAudit(*(draw(rng, side, 30) for side in sides), 2.0, max_runs=max_runs, **claim)
    while found.verdict is None:
        found.add(*(draw(rng, side, 10) for side in sides))
    return found


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "laplace", "response"])
def test_twice_the_loss_is_caught_and_the_claimed_one_passes(kind, swapped):
    for seed in range(5):
        broken, right, silent = (audit(seed, kind, scale, swapped=swapped) for scale in (2.0, 1.0, 0.0))
        assert broken.verdict == "caught" and right.verdict == "passed" and silent.verdict == "passed"
        assert broken.epsilon_lower >= 2.0 or (broken.mu_lower or 0.0) >= MU
        assert right.epsilon_lower < 2.0 and (right.mu_lower or 0.0) < MU


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "response"])
def test_what_leaks_nothing_ends_early(kind):
    runs = [audit(seed, kind, 0.0, max_runs=2000).n_runs for seed in range(5)]
    assert max(runs) <= 600


def test_lines_hold_for_every_event_of_the_law_they_are_of():
    thresholds = np.linspace(-5, 5, 401)
    for mu in (0.1, 0.9, 3.0):
        for a, b in mu_lines(mu):
            gap = norm.sf(thresholds, loc=mu) - a * norm.sf(thresholds) - b
            assert -1e-3 * max(mu, 1) < gap.max() < 1e-12  # tangents: attained, never crossed
    assert mu_lines(0.0).tolist() == [[1.0, 0.0]]


def test_no_gambler_gains_in_the_mean_where_the_claim_is_true():
    """Exactly: expectations over the four outcomes of a pair of runs, for laws at the very edge of the claim."""
    thresholds = np.linspace(-4, 4, 81)
    for mu in (0.3, 1.5):
        p, q = norm.sf(thresholds, loc=mu), norm.sf(thresholds)
        check_fair([mu_lines(mu)], p, q)
    for epsilon, delta in ((0.5, 0.0), (2.0, 0.01)):
        q = np.linspace(0, 1, 101)
        p = np.minimum(np.minimum(math.exp(epsilon) * q + delta, 1 - (1 - q - delta) / math.exp(epsilon)), 1)
        check_fair([epsilon_lines(epsilon, delta)], p, q)
    with pytest.raises(AssertionError):
        check_fair([epsilon_lines(0.5, 0.0)], p, q)


def check_fair(lines, p: np.ndarray, q: np.ndarray) -> None:
    bets = Bets(lines, math.log(1e6), np.zeros((2, 2, len(p)), dtype=np.int64))
    law = np.array([[(1 - p) * (1 - q), (1 - p) * q], [p * (1 - q), p * q]])
    for x in (law, law.transpose(1, 0, 2)):
        for each in (x, x[::-1, ::-1]):
            assert (np.exp(bets._log_gains[0]) @ each.reshape(4, -1)).max() <= 1 + 1e-12


def contradictions(scale: float) -> np.ndarray:
    """How many of 150 audits of 80 % confidence contradict their claim of epsilon, or of mu, at any of 30 looks."""
    wrong = np.zeros(2)
    for seed in range(150):
        rng, draw = np.random.default_rng(seed), scores("gaussian", scale)
        trial = [draw(rng, side, 20) for side in (1, 0)]
        found = SequentialAudit(*trial, 2.0, 0.01, mu=MU, max_runs=10**6, confidence=0.8)
        for _ in range(30):
            found.add(draw(rng, 1, 10), draw(rng, 0, 10))
        wrong += [bets.contradicted[which] for bets, which in found._claims]
    return wrong


def test_claims_are_wronged_no_more_often_than_stated_although_looked_at_all_the_time():
    """20 % of 150 may be wrong at some time; 60 would happen with a chance of 1e-7, and do where the claim is false."""
    assert contradictions(1.0).max() < 60 < contradictions(1.3)[1]


def test_a_bound_needs_all_smaller_numbers_contradicted():
    found = audit(0, "laplace", 2.0)
    bets = found._bets[0]
    bets.contradicted[:] = True
    bets.contradicted[STEPS // 2] = False
    assert found.epsilon_lower == pytest.approx(2.0 * (STEPS // 2 - 1) / STEPS)


def test_pairs_are_counted():
    one, other, thresholds = np.array([0.0, 1.0, 2.0]), np.array([2.0, 0.0, 2.0]), np.array([0.5, 1.5])
    counts = counted(one, other, thresholds)
    for i, j, event in itertools.product((0, 1), (0, 1), range(2)):
        expected = sum(
            (x >= thresholds[event]) == i and (y >= thresholds[event]) == j for x, y in zip(one, other, strict=True)
        )
        assert counts[i, j, event] == expected


def test_runs_end_it():
    found = audit(1, "laplace", 1.4, max_runs=40)
    assert found.verdict == "passed" and found.n_runs <= 40


def test_discrete_scores_and_one_value_only():
    same = SequentialAudit(np.zeros(10), np.zeros(10), 1.0, 0.0, max_runs=1000)
    while same.verdict is None:
        same.add(np.zeros(10), np.zeros(10))
    assert same.verdict == "passed" and same.epsilon_lower == 0.0
    apart = SequentialAudit(np.zeros(10), np.ones(10), 1.0, 0.0, max_runs=1000)
    while apart.verdict is None:
        apart.add(np.zeros(10), np.ones(10))
    assert apart.verdict == "caught" and apart.n_runs < 100

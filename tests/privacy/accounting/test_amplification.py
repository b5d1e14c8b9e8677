"""Shuffled reports: the fast bound against a sum over everything, and what is said about it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpdist.errors import BudgetError
from dpdist.privacy.accounting import amplification
from dpdist.privacy.accounting.amplification import shuffle_delta, shuffle_epsilon


def summed(local_epsilon, n, epsilon):
    """The hockey-stick distance of the two laws, cell by cell."""
    E = math.exp(local_epsilon)
    total = 0.0
    for c in range(n):
        a = np.arange(c + 2)
        one_less, same = binom.pmf(a - 1, c, 0.5), binom.pmf(a, c, 0.5)
        p, q = (E * one_less + same) / (1 + E), (one_less + E * same) / (1 + E)
        total += binom.pmf(c, n - 1, 2 / (E + 1)) * np.maximum(p - math.exp(epsilon) * q, 0).sum()
    return total


@pytest.mark.parametrize("local_epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 2, 3, 30, 300])
def test_the_bound_is_the_distance(local_epsilon, n):
    for share in (0.0, 0.1, 0.5, 0.9):
        numbers = (local_epsilon, n, share * local_epsilon)
        exact, found = summed(*numbers), shuffle_delta(*numbers)
        assert exact <= found * (1 + 1e-9) + 1e-300
        assert found <= exact * (1 + 1e-6) + 1e-15


def test_runs_of_copies_lose_little_and_never_promise_more(monkeypatch):
    exact = summed(1.0, 800, 0.1)
    for steps, loss in ((40, 1.5), (200, 1.1)):
        monkeypatch.setattr(amplification, "_STEPS", steps)
        assert exact * (1 + 1e-6) < shuffle_delta(1.0, 800, 0.1) <= loss * exact


def test_published_numbers():
    assert shuffle_epsilon(1.0, 2000, 1e-6).epsilon == pytest.approx(0.103, abs=5e-4)


def test_more_users_hide_more_and_one_hides_nothing():
    found = [shuffle_epsilon(2.0, n, 1e-8).epsilon for n in (1, 10**3, 10**5, 10**7, 10**9)]
    assert found == sorted(found, reverse=True)
    assert 2.0 - 1e-6 < found[0] <= 2.0
    # about the root of the number of users
    assert 8 < found[3] / found[4] < 13


def test_the_two_messages_of_randomised_response_stay_below():
    """Shuffled binary randomised response is a count; its exact distance must not exceed the bound."""
    n, local, epsilon = 500, 1.0, 0.2
    p = math.exp(local) / (1 + math.exp(local))
    counts = np.arange(n + 1)
    for ones in (0, 250, 499):
        of_ones, of_zeros = binom.pmf(np.arange(ones + 1), ones, p), binom.pmf(np.arange(n - ones), n - 1 - ones, 1 - p)
        others = np.convolve(of_ones, of_zeros)
        zero = np.convolve(others, [p, 1 - p])[: counts.size]
        one = np.convolve(others, [1 - p, p])[: counts.size]
        for a, b in ((zero, one), (one, zero)):
            assert np.maximum(a - math.exp(epsilon) * b, 0).sum() <= shuffle_delta(local, n, epsilon)


def test_the_assumption_is_always_said():
    found = shuffle_epsilon(1.0, 1000, 1e-6)
    assert found.assumption == "shuffle model assumed"
    assert "shuffle model assumed" in str(found) and "1-LDP" in str(found)


@pytest.mark.parametrize("wrong", [(0.0, 10, 0.1), (1.0, 0, 0.1), (1.0, 10, 0.0), (math.nan, 10, 0.1), (1.0, 2.5, 0.1)])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(BudgetError):
        shuffle_epsilon(*wrong)

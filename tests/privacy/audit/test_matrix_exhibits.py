"""Printed noise for second moments is caught, where ours passes. Confidence 1 - 1e-6, everything seeded."""

from __future__ import annotations

import math

import pytest

from dpdist.privacy.accounting.closed_forms import gdp_delta, gdp_mu
from tests.privacy.exhibits import matrices
from tests.privacy.exhibits.table import EXHIBITS, audit, epsilon_bound


@pytest.mark.parametrize("name", ["m2-two-sided-wishart", "dp-adassp"])
def test_the_exhibits_of_the_table(name):
    found = audit(next(e for e in EXHIBITS if e.id == name))
    assert found["ours"] <= found["epsilon"] < 3 * found["epsilon"] < found["printed"]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_violation_of_the_one_sided_wishart_is_as_computed(epsilon):
    n = 40_000
    below = [(matrices.one_sided(epsilon, which, n) < -1e-9).mean() for which in (0, 1)]
    expected = -math.expm1(-epsilon / 3)
    assert below[0] == 0.0 and abs(below[1] - expected) < 5.5 * math.sqrt(expected / n)


def test_the_printed_gaussian_noise_is_too_small_where_it_is_used():
    """Rows e1 and e2: entries 11 and 22 change by 1 each, so that the sensitivity is sqrt(2)."""
    for (epsilon, delta), true in {(1, 1e-4): 1.6e-4, (2, 1e-4): 5.0e-4, (1, 1e-6): 9.3e-6, (4, 1e-5): 5.8e-4}.items():
        std = matrices.printed_gaussian_std(epsilon, delta)
        assert gdp_delta(epsilon, math.sqrt(2) / std) == pytest.approx(true, rel=0.05)
        assert gdp_delta(epsilon, math.sqrt(2) / (math.sqrt(2) / gdp_mu(epsilon, delta))) <= delta * (1 + 1e-9)


def test_a_k_norm_of_the_wrong_shape_is_caught():
    epsilon, n = 1.0, 200_000
    ours = epsilon_bound(matrices.k_norm(3, 0, n, epsilon), matrices.k_norm(3, 1, n, epsilon), 0.0)
    wrong = epsilon_bound(matrices.k_norm(2, 0, n, epsilon), matrices.k_norm(2, 1, n, epsilon), 0.0)
    assert ours <= epsilon < wrong

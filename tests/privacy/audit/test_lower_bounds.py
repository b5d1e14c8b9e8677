"""Lower bounds: the printed formula, its limits, its order of growth."""

from __future__ import annotations

import math

import pytest

from dpdist.errors import BudgetError
from dpdist.privacy.audit.lower_bounds import (
    local_cost,
    local_sparse_lower_bound,
    lower_bound,
    sparse_mean_lower_bound,
    sparse_regression_rates,
)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_formula(epsilon, delta):
    radius, members, n, share = 0.7, 50, 100, 0.02
    e = math.exp(-epsilon * math.ceil(n * share))
    exact = (members - 1) * (e / 2 - delta * (1 - e) / (1 - math.exp(-epsilon))) / (1 + (members - 1) * e)
    assert lower_bound(radius, math.log(members), n, share, epsilon, delta) == pytest.approx(
        radius**2 * max(0.0, exact), rel=1e-12
    )


def test_no_overflow_and_no_negative_bound():
    assert lower_bound(1.0, 1e6, 10**9, 1e-4, 1.0, 0.0) == pytest.approx(0.5)
    assert lower_bound(1.0, 10.0, 10**9, 1.0, 1.0, 0.0) == 0.0
    assert lower_bound(1.0, 10.0, 10**9, 1.0, 1.0, 1e-6) == 0.0
    assert lower_bound(1.0, 0.0, 10, 0.5, 1.0, 0.0) == 0.0
    assert lower_bound(1.0, math.log(2), 10, 0.0, 1.0, 1e-6) == pytest.approx(0.25)  # no contamination: a coin
    with pytest.raises(BudgetError):
        lower_bound(1.0, 10.0, 10, 2.0, 1.0, 0.0)
    with pytest.raises(BudgetError):
        sparse_mean_lower_bound(100, 5, 5, 1.0, 1.0, 0.0)


def test_the_order_of_sparse_means():
    """tau s min(s ln(d/s), ln(1/delta)) / (n epsilon), with a constant below 1/16 (half of the radius squared)."""

    def bound(n=10**5, d=300, s=5, tau=1.0, epsilon=1.0, delta=1e-6):
        return sparse_mean_lower_bound(n, d, s, tau, epsilon, delta)[0]

    order = 5 * min(2.5 * math.log(295 / 2.5), math.log(1e6)) / 1e5
    assert order / 200 < bound() < order / 16
    assert bound(tau=3.0) == pytest.approx(3 * bound())
    assert bound(n=10**6) == pytest.approx(bound() / 10, rel=0.1)
    assert bound(epsilon=0.1) == pytest.approx(10 * bound(), rel=0.15)
    assert bound(delta=0.0) >= bound() > bound(delta=1e-3) > 0
    assert bound(d=30_000, delta=0.0) > bound(delta=0.0)


def test_private_means_stay_above_it():
    """`peel` with T = 1 reaches 1.2e-3 on 1e5 rows with these numbers; nothing private can go below the bound."""
    assert sparse_mean_lower_bound(10**5, 500, 5, 2.0, 1.0, 1e-6)[0] < 1.2e-3


def test_local_bounds():
    d, n, epsilon = 64, 10**6, 0.5
    assert local_sparse_lower_bound(n, d, epsilon) == pytest.approx(
        d * math.log(d) ** 2 / (8 * n * epsilon**2 * math.log(2 * d))
    )
    one, many = (local_sparse_lower_bound(n, d, epsilon, interactive=asked) for asked in (False, True))
    assert many == pytest.approx(4 * d / (27 * n * epsilon**2)) and many < one
    assert local_sparse_lower_bound(1, d, epsilon) == 1.0
    assert local_cost(0.0, 0.02) == pytest.approx(0.2, rel=0.02)  # rho = epsilon^2 / 2
    with pytest.raises(BudgetError):
        local_cost(-1.0, 0.0)
    with pytest.raises(BudgetError):
        local_sparse_lower_bound(n, 1, epsilon)


def test_rates_of_sparse_regression():
    at = sparse_regression_rates(10**6, 64, 4, 1.0, 1e-6, noise=0.1)
    assert at["one-report"] > at["interactive"] > at["labels"] == at["non-private"]
    more = sparse_regression_rates(4 * 10**6, 64, 4, 1.0, 1e-6, noise=0.1)
    assert all(more[name] == pytest.approx(at[name] / 2, rel=0.01) for name in at if name != "central")
    wide = sparse_regression_rates(10**6, 6400, 4, 1.0, noise=0.1)
    assert wide["interactive"] == pytest.approx(10 * at["interactive"])
    assert wide["labels"] < 2 * at["labels"]  # labels hardly feel the dimension
    assert "central" not in wide
    with pytest.raises(BudgetError):
        sparse_regression_rates(10, 5, 6, 1.0)

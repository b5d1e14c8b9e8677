"""The privacy loss of a Wishart matrix as noise: against simulation, and against the printed degrees of freedom."""

import math

import numpy as np
import pytest

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.approximate_wishart import added_delta, extra_degrees, removed_delta, replaced_delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "needed", "printed"),
    [(0.5, 1e-2, 24, 336), (1.0, 1e-2, 12, 84), (1.0, 1e-5, 45, 181), (0.5, 1e-5, 117, 722)],
)
def test_far_fewer_degrees_are_enough_than_were_printed(epsilon, delta, needed, printed):
    assert extra_degrees(epsilon, delta) == needed
    assert math.ceil(14 / epsilon**2 * math.log(4 / delta)) == pytest.approx(printed, abs=1)
    assert replaced_delta(needed, epsilon) <= delta < replaced_delta(needed - 1, epsilon)


@pytest.mark.parametrize(("q", "epsilon"), [(12, 1.0), (6, 0.3), (30, 0.5)])
def test_the_quadrature_is_the_simulation(q, epsilon):
    rng, n = np.random.default_rng(q), 2_000_000
    t = rng.chisquare(q + 1, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        added = np.where(t > 1, (q - 1) / 2 * np.log1p(-1 / t) + 0.5, -np.inf)
    removed = (q - 1) / 2 * np.log1p(1 / t) - 0.5
    for found, ratio in ((added_delta(q, epsilon), added), (removed_delta(q, epsilon), removed)):
        simulated = np.maximum(0.0, -np.expm1(epsilon + ratio))
        assert abs(found - simulated.mean()) < 6 * simulated.std() / math.sqrt(n) + 1e-9


def test_the_simulation_has_the_law_of_whole_matrices():
    """``v' N^-1 v`` for a Wishart matrix with d + q degrees of freedom is one over chi-squared with q + 1."""
    d, q, n = 3, 5, 20_000
    G = np.random.default_rng(0).standard_normal((n, d, d + q))
    N = G @ G.transpose(0, 2, 1)
    t = 1 / np.linalg.inv(N)[:, 0, 0]
    assert abs(t.mean() - (q + 1)) < 0.15 and abs(t.var() - 2 * (q + 1)) < 0.7


def test_limits():
    assert removed_delta(12, 0.5) == 0.0 < removed_delta(12, 0.3)
    assert added_delta(12, 0.0) > added_delta(12, 1.0) > added_delta(12, 5.0) > 0
    for epsilon, delta in ((0.0, 0.1), (1.0, 0.0), (math.nan, 0.1)):
        with pytest.raises(BudgetError, match="needs epsilon > 0"):
            extra_degrees(epsilon, delta)
    with pytest.raises(BudgetError, match="more than 1,000,000"):
        extra_degrees(1e-4, 1e-9)

"""Rankings by one noisy minimiser over all pairs: how good, how private, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpdist import Dataset, PairwiseRanker
from dpdist.central import PairOutput
from dpdist.errors import DpdistError
from dpdist.kernels.score_moments import mean_pair_gradient, score_moments
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.queries.pair_minimum import PairMinimum
from tests.central.pairs.test_ranking import BOUNDS, GENERATED, X, Y, best, risk

LABELS = np.where(Y == 1, 1.0, -1.0)


@pytest.fixture(scope="module")
def fitted():
    return PairwiseRanker("output", **BOUNDS).fit(GENERATED.dataset)


def minimise(query, X, y):
    return query.explore(lambda w: query.summarise({"X": X, "y": y}, w, None), None, None, None)


def test_the_minimiser_is_found_to_its_tolerance():
    """The gradient at the end point, by every pair, is as small as the distance from the minimiser allows."""
    Z, n = np.trunc(X[:500] * (1 - 1e-12) * 2**16) / 2**16, 500
    query = PairMinimum(1.0, n, X.shape[1], 0.2, 40)
    w = minimise(query, X[:500], LABELS[:500])
    s, P, M = Z @ w, LABELS[:500] == 1, LABELS[:500] == -1
    k = 1 / (1 + np.exp(2 * (s[P][:, None] - s[M])))
    gradient = -4 / (n * (n - 1)) * (k.sum(axis=1) @ Z[P] - k.sum(axis=0) @ Z[M]) + 0.2 * w
    assert np.linalg.norm(gradient) <= query.curvature * query.tolerance < 1e-4
    assert np.linalg.norm(w) <= query.farthest


def test_rows_at_two_ends_attain_the_curvature_and_the_pull_that_the_solver_counts_on():
    n, ridge = 40, 0.1
    X, y = np.repeat([[1.0], [-1.0]], n // 2, axis=0), np.repeat([1.0, -1.0], n // 2)
    query = PairMinimum(1.0, n, 1, ridge, 40)

    def gradient(w):
        return mean_pair_gradient(*score_moments(X, y, np.array([w]), 1.0), np.array([w]), 1.0, n)[0]

    slope = (gradient(1e-3) - gradient(-1e-3)) / 2e-3
    assert 0.999 * (query.curvature - ridge) < slope <= query.curvature - ridge
    pull = max(-gradient(w) * w for w in np.linspace(0.1, 1.0, 200))
    assert 0.999 * ridge * query.farthest**2 < pull <= ridge * query.farthest**2


def test_a_ranking_is_as_good_as_without_privacy(fitted):
    metrics = GENERATED.metrics(fitted)
    assert metrics["error"] <= 0.03 and np.linalg.norm(fitted.coef_) <= 1 + 1e-9
    assert fitted.n_iter_ == fitted.plan_["minimum"].passes


def test_the_noise_is_that_of_half_the_bound_of_any_pair_loss(fitted):
    ridge = PairwiseRanker("output", **BOUNDS).decided(10_000, 20).ridge
    std = 8 / (ridge * 10_000) / gdp_mu(1.0, 1e-6)
    assert std < fitted.releases_[0].noise_std < 1.02 * std, "2 G / (alpha n), G = 4 R, and the tolerance"


@pytest.mark.slow
def test_the_excess_is_within_its_band_and_below_that_of_doubled_noise(monkeypatch):
    least, ridge = risk(best()), PairwiseRanker("output", **BOUNDS).decided(10_000, 20).ridge

    def excess():
        seeds = [{**BOUNDS, "random_state": seed} for seed in range(5)]
        found = [PairwiseRanker(PairOutput(ridge=ridge), **s).fit(GENERATED.dataset) for s in seeds]
        return float(np.mean([risk(model.coef_) for model in found])) - least

    ours = excess()
    assert 0 < ours <= 0.13
    monkeypatch.setattr(PairMinimum, "exact_sensitivity", property(lambda q: 16 * q.row_norm / (q.ridge * q.n_rows)))
    assert ours <= 0.88 * excess()


def test_results_do_not_depend_on_partitions():
    model = PairwiseRanker(PairOutput(ridge=0.3), **BOUNDS)
    parts = [Dataset.from_arrays(X=X[:2000], y=Y[:2000], partition_rows=n, dataset_id="parts") for n in (2000, 333)]
    assert np.array_equal(*[model.fit(part).coef_ for part in parts])


def test_the_default_penalty_is_where_penalty_and_noise_cost_least():
    method = PairwiseRanker("output", **BOUNDS).decided(20_000, 10)
    assert method.ridge == pytest.approx((128 * 10 / (20_000 * gdp_mu(1.0, 1e-6)) ** 2) ** (1 / 3))
    costs = [
        replace(method, ridge=method.ridge * factor, n_rounds=None)._with_rounds()._cost() for factor in (0.7, 1.4)
    ]
    assert min(costs) > method._cost()


@pytest.mark.parametrize("n", [2, 10**7, 10**10])
def test_any_number_of_rows_has_a_default(n):
    query = PairwiseRanker("output", **BOUNDS).decided(n, 20).query
    assert 0 < query.sensitivity(Neighbours.REPLACE_ONE) < math.inf


def test_bad_settings_are_refused_before_a_row_is_read():
    for solver, n, says in (
        (PairOutput(100, ridge=1e-9), 10**6, "too weak for 1000000 rows"),
        (PairOutput(ridge=1e-9), 10**6, "more than 100000 passes"),
        (PairOutput(), 1, "1 row makes no pair"),
        ("output", 99, "for 99 rows, and there are 98"),
    ):
        method = PairwiseRanker(solver, **BOUNDS)
        with pytest.raises(DpdistError, match=says):
            if n == 99:
                method.decided(99, 3).query.check_rows(98)
            method.plan(n, 3)
    with pytest.raises(DpdistError, match="ridge must be a positive"):
        PairOutput(ridge=0.0)


EPSILON, DELTA, N = 4.0, 1e-2, 20
QUERY = PairMinimum(1.0, N, 2, 20.0, 12)
BITS = StreamBits(np.random.Generator(np.random.Philox(0)))


def moved(side):
    """One positive row among negative ones of norm 0: at a strong penalty every pair has the weight 1/2."""
    rows, labels = np.zeros((N, 2)), -np.ones(N)
    rows[0], labels[0] = (0.0, side), 1.0
    return QUERY.statistic(minimise(QUERY, rows, labels))


def test_an_audit_passes_and_catches_noise_for_one_pair_of_a_row(monkeypatch):
    claimed, (one, grid), (other, _) = gdp_mu(EPSILON, DELTA), moved(-1.0), moved(1.0)

    def found():
        units = QUERY.sensitivity(Neighbours.REPLACE_ONE) / grid
        mechanism = Gaussian().at(claimed)
        runs = [lambda total=total: float(mechanism.release(total, units, BITS)[1]) for total in (one, other)]
        return audit_two_point(*runs, 1000, DELTA, 1 - 1e-6).mu_lower

    assert 0.2 * claimed < found() <= claimed
    monkeypatch.setattr(PairMinimum, "exact_sensitivity", property(lambda q: 8 / q.ridge / q.n_rows**2))
    assert found() > claimed

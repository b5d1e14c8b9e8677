"""Means of smooth functions from one report of every user: exact without noise, and as near as they say with it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KernelDensity

from dpdist import Ledger
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.local import DensityQueries, Survey
from dpdist.local.density.density_queries import TrigonometricQueries
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.statistics.cosines import Cosines, frequencies
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.cosine_series import cosine_series

rng = np.random.default_rng(0)


def fitted(X, degree=None, seed=0, **options):
    method = "trigonometric" if degree is None else TrigonometricQueries(degree=degree)
    low, high = options.pop("low", -1.0), options.pop("high", 1.0)
    options = {"epsilon": 1.0, "ledger": Ledger(":memory:"), "random_state": seed, **options}
    return DensityQueries(low, high, method, **options).fit(X)


# -- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p, degree", [(1, 8), (2, 5), (3, 4)])
def test_values_are_products_of_cosines(p, degree):
    X = rng.uniform(-3.0, 7.0, size=(300, p))
    statistic = Cosines(p, -1.0, 5.0, degree)
    theta = np.arccos(np.clip((np.clip(X, -1, 5) - 2) / 3, -1, 1))
    definition = np.array([np.cos(r * theta).prod(axis=1) for r in frequencies(p, degree)]).T
    of_tickets = np.repeat(definition, statistic.n_tickets, axis=1)
    np.testing.assert_allclose(statistic.values({"X": X}), of_tickets, atol=1e-12)
    assert len(definition.T) == degree**p - 1 and (statistic.n_tickets >= 1).all()
    few = rng.integers(0, statistic.size, (300, 2))
    np.testing.assert_array_equal(
        statistic.values_at({"X": X}, few), np.take_along_axis(statistic.values({"X": X}), few, axis=1)
    )
    by_one = np.concatenate([statistic.values_at({"X": X[i : i + 1]}, few[i : i + 1]) for i in range(300)])
    np.testing.assert_array_equal(by_one, statistic.values_at({"X": X}, few))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_record_that_is_not_finite_gives_zeros_and_any_other_stays_in_the_box(bad, dtype):
    X = np.array([[0.1, bad], [bad, bad], [1e30, -1e30], [-0.0, 1e-30]], dtype)
    values = Cosines(2, -1.0, 1.0, 6).values({"X": X})
    assert not values[:2].any() and (np.abs(values) <= 1).all() and values[2:].any(axis=1).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 1.3, 4.0, 12.0])
def test_the_ratio_of_any_two_reports_is_bounded_by_counting_words(epsilon):
    """One bit up to 1.2 for each cosine and a hybrid above: k reports of epsilon / k each, of values in [-1, 1]."""
    method = DensityQueries(-1.0, 1.0, epsilon=epsilon).decided(10**6, 1)
    randomiser = method.randomiser
    law, k = randomiser.law, randomiser.k
    assert (law.units == 1) == (epsilon / k <= 1.2)
    odds = (law.signs - law.least) / law.least if law.signs else 1.0
    if law.outside:
        odds = max(odds, law.inside / law.outside)
    assert odds**k <= np.exp(epsilon)


def test_noise_for_half_of_the_range_is_caught():
    """With noise for numbers in [0, 1], as the source has it, two records differ by e^(2 epsilon)."""
    epsilon = 1.0
    printed = 2.0 / epsilon / 2  # scale of Laplace noise for a range of length 1, where the length is 2
    one, other = (value + rng.laplace(scale=printed, size=200_000) for value in (-1.0, 1.0))
    assert (one < -1.0).mean() / (other < -1.0).mean() > np.exp(1.5 * epsilon)
    law = SampleCoordinates(1, epsilon, 1, "one-bit").law
    assert (law.signs - law.least) / law.least <= np.exp(epsilon)


# -- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_series_follow_smooth_functions_to_the_end(p):
    def smooth(u):
        return np.exp(u.sum(axis=1) / 2) / (2 + u[:, 0])

    points, degree = rng.uniform(-1, 1, (100, p)), 16
    series = cosine_series(smooth, p, degree).ravel()
    angles = np.arccos(points)
    basis = [np.cos(r * angles).prod(axis=1) for r in np.ndindex(*(degree,) * p)]
    np.testing.assert_allclose(series @ basis, smooth(points), atol=1e-5 if p > 2 else 1e-8)


def test_without_noise_a_query_is_the_mean_of_the_function():
    X = rng.uniform(10, 20, (20_000, 2))
    model = fitted(X, 8, low=10.0, high=20.0)
    statistic = model._queries.statistic
    values = statistic.of_features(statistic.values({"X": X}).mean(axis=0)) / statistic.n_tickets
    model.estimates_ = values
    assert abs(model.query(lambda x: x[:, 0] * x[:, 1] / 400) - (X[:, 0] * X[:, 1] / 400).mean()) < 1e-12
    at = np.array([[12.0, 17.0]])
    exact = np.exp(-((X - at) ** 2).sum(axis=1) / 32).mean() / (32 * np.pi)
    assert abs(model.density(at, 4.0)[0] / exact - 1) < 1e-3


def test_estimates_are_unbiased_and_their_errors_as_stated():
    """2e5 users, 35 products: within 5 standard errors, which fails by chance with 2e-5, and the seed is fixed."""
    X = rng.uniform(-1, 1, (200_000, 2)) ** 3
    model = fitted(X, 6, seed=1)
    statistic = model._queries.statistic
    exact = statistic.of_features(statistic.values({"X": X}).mean(axis=0)) / statistic.n_tickets
    z = (model.estimates_ - exact) / model._queries.stds(model.n_reports_)
    assert np.abs(z).max() < 5 and 0.6 < np.sqrt(np.mean(z**2)) < 1.4


def test_errors_are_in_their_band():
    errors = []
    for seed in range(5):
        generated = PROBLEMS["clusters"].generate({"n": 100_000, "random_state": seed})
        model = fitted(generated.dataset, 8, seed)
        errors.append(generated.metric(model).error(model))
    assert np.mean(errors) <= 0.008
    assert generated.metric(model).trivial() > 0.06


@pytest.mark.parametrize(
    "n, p, degree", [(10_000, 1, 6), (100_000, 1, 10), (100_000, 2, 7), (10**9, 1, 16), (5000, 3, 2)]
)
def test_the_degree_follows_public_numbers(n, p, degree):
    assert DensityQueries(-1.0, 1.0, epsilon=1.0).decided(n, p).degree == degree


def test_reports_do_not_depend_on_chunks_and_the_question_is_published_whole():
    from dpdist import Dataset

    X = rng.uniform(-1, 1, (9000, 2))
    found = []
    for partition in (9000, 700):
        dataset = Dataset.from_arrays(X=X, partition_rows=partition, row_order="arrival")
        found.append(fitted(dataset, seed=4).estimates_)
    np.testing.assert_array_equal(*found)
    survey = Survey(DensityQueries(-1.0, 1.0, epsilon=2.0).protocol(50_000, 2))
    other = Survey(DensityQueries(-1.0, 1.0, TrigonometricQueries(degree=5), epsilon=2.0).protocol(50_000, 2))
    assert Survey.from_json(survey.to_json()) == survey and survey.fingerprint != other.fingerprint


# -- wrong inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters, columns, error, says", [
    ({"low": None}, 1, MissingBound, "low is missing"),
    ({"low": 1.0, "high": 1.0}, 1, BudgetError, "low must lie below high"),
    ({"high": np.inf}, 1, BudgetError, "high must be a number"),
    ({"low": 0.0, "high": 5e-324}, 1, BudgetError, "low must lie below high"),
    ({"method": TrigonometricQueries(degree=10**9)}, 2, BudgetError, "a degree of at most 1000"),
    ({}, 4, DataError, "at most 3 columns"),
    ({"epsilon": -1.0}, 1, BudgetError, "epsilon"),
    ({"method": "cosine"}, 1, BudgetError, "choose one of"),
    ({"method": TrigonometricQueries(degree=16)}, 2, BudgetError, "255 products .* degree=3 fits, or 78600 users"),
    ({"method": TrigonometricQueries(degree=16)}, 3, BudgetError, "4095 products .*; degree=2 fits, or"),
    ({"delta": 1e-6}, 1, BudgetError, "pure guarantee"),
    ({"fidelity": "sum"}, 1, BudgetError, "exact law of the sum"),
])  # fmt: skip
def test_wrong_parameters_are_refused_before_anything_is_charged(parameters, columns, error, says):
    ledger = Ledger(":memory:")
    with pytest.raises(error, match=says):
        DensityQueries(**{"low": -1.0, "high": 1.0, "ledger": ledger, **parameters}).fit(np.zeros((2000, columns)))
    assert ledger.accounts() == []
    with pytest.raises(BudgetError, match="degree"):
        TrigonometricQueries(degree=1)


@pytest.mark.parametrize("function", [
    lambda x: x, lambda x: 1.0, lambda x: np.full(len(x), np.nan), lambda x: ["a"] * len(x), lambda x: x[:3, 0],
])  # fmt: skip
def test_functions_that_give_something_else_are_refused(function):
    model = fitted(rng.uniform(-1, 1, (2000, 1)))
    with pytest.raises(DataError, match="the function must give"):
        model.query(function)
    with pytest.raises(DataError, match=r"float64 of shape .* not all of them finite"):
        model.query(lambda x: 1 / (x[:, 0] * 0 + np.inf) + np.inf)
    with pytest.raises(DataError, match=r"complex128 of shape \(\d+,\) for m = \d+$"):
        model.query(lambda x: x[:, 0] * 1j)
    with pytest.raises(DataError, match="a query is a function of points"):
        model.query("x")


def test_the_line_without_privacy_is_that_of_scikit_learn():
    generated = PROBLEMS["clusters"].generate({"n": 2000, "d": 2, "random_state": 0})
    X = generated.dataset.read(0, 2000)["X"]
    mine = generated.metric(DensityQueries(-1.0, 1.0)).reference(X, None)
    theirs = np.exp(KernelDensity(bandwidth=0.3).fit(X).score_samples(X[:50]))
    np.testing.assert_allclose(mine.density(X[:50], 0.3), theirs, rtol=1e-9)


def test_points_and_bandwidths_are_checked():
    model = fitted(rng.uniform(-1, 1, (2000, 1)))
    before = model.density([[0.0]], 0.3), model.query(lambda x: x[:, 0])
    model.set_params(low=-9.0, high=9.0)  # what is set later is for the next fit
    assert (model.density([[0.0]], 0.3), model.query(lambda x: x[:, 0])) == before
    for points in ([0.1, 0.2], [[0.1, 0.2]], [[np.nan]], [["a"]], None):
        with pytest.raises(DataError, match=r"of shape \(m, 1\)"):
            model.density(points, 0.3)
    with pytest.raises(MissingBound, match="bandwidth"):
        model.density([[0.0]], 0.0)
    with pytest.raises(NotFittedError, match="not fitted"):
        DensityQueries(-1.0, 1.0).query(lambda x: x[:, 0])

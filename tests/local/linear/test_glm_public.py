"""Generalised linear models with public rows: the scale, the standardisation, the error bands and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist import Ledger
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.local import GeneralizedLinearModel, LogisticRegression
from dpdist.local.linear.generalised_linear import MODELS
from dpdist.local.linear.glm_public import PublicCovarianceGlm, Standardised, StatisticsGlm
from dpdist.problems.catalog import PROBLEMS
from dpdist.solvers.linear import wiener_solve
from dpdist.solvers.scale_roots import root_scale

rng = np.random.default_rng(0)
QUIET = {"ledger": Ledger(":memory:"), "random_state": 0}


@pytest.mark.parametrize("name", MODELS)
def test_slopes_of_means_are_their_derivatives(name):
    loss, u = MODELS[name], np.linspace(-2, 2, 41)
    by_difference = (loss.mean(u + 1e-6) - loss.mean(u - 1e-6)) / 2e-6
    np.testing.assert_allclose(loss.mean_slope(u), by_difference, atol=1e-6)
    slopes = (loss.partition(u + 1e-6) - loss.partition(u - 1e-6)) / 2e-6
    np.testing.assert_allclose(loss.partition_slope(u), slopes, atol=1e-6)


@pytest.mark.parametrize("name, scale, level", [("logistic", 1.5, 0.4), ("cubic", 2.0, 0.1), ("poisson", 0.3, 1.5)])
def test_the_scale_of_least_squares_is_found_for_normal_predictors(name, scale, level):
    """With ``t = w_ols x`` and ``c t + a`` the true predictor, Stein's equation holds for the law of t."""
    loss, u = MODELS[name], rng.normal(size=400_000)
    predictors = scale * u + level
    ols = float(np.mean(loss.mean_slope(predictors))) * scale
    c, a, found = root_scale(loss.mean, loss.mean_slope, ols * u, float(np.mean(loss.mean(predictors))))
    assert found and abs(c * ols - scale) < 0.02 and abs(a - level) < 0.02


def test_without_a_root_the_nearest_scale_is_returned_and_said():
    c, _, found = root_scale(MODELS["logistic"].mean, MODELS["logistic"].mean_slope, 3 * rng.normal(size=1000), 0.0)
    assert not found and 0 < c < 200
    beyond = root_scale(MODELS["logistic"].mean, MODELS["logistic"].mean_slope, np.zeros(5), 2.0)
    assert not beyond[2] and np.isfinite(beyond[:2]).all()


def test_wiener_solves_where_nothing_is_noise_and_forgets_what_is():
    A = rng.normal(size=(6, 4))
    S, w = A.T @ A, rng.normal(size=4)
    np.testing.assert_allclose(wiener_solve(S, S @ w, 0.0), w, atol=1e-9)
    assert np.linalg.norm(wiener_solve(S, S @ w, 1e6)) < 1e-3


def test_rows_are_standardised_by_public_numbers_and_null_rows_stay_null():
    public = rng.normal(size=(5000, 3)) @ np.diag([1.0, 100.0, 0.01]) + [5.0, 0.0, -2.0]
    public = np.column_stack([public, public[:, 0] + public[:, 1]])  # one direction in which nothing varies
    made = LogisticRegression(classes=[0, 1], method="public-covariance").decided(10_000, 4).given(public)
    standard = made.features(public)[:, :-1]
    assert standard.shape[1] == 3
    np.testing.assert_allclose(np.cov(standard.T), np.eye(3), atol=1e-6)
    assert 0.94 < (np.linalg.norm(made.features(public), axis=1) <= made.row_norm).mean() < 0.96
    bad = public[:4].copy()
    bad[0, 0], bad[1, 2], bad[2, 1] = np.nan, np.inf, 1e300
    values = made.protocols[0].statistic.values({"X": bad, "y": np.ones(4)})
    assert not values[:2].any() and (np.linalg.norm(values, axis=1) <= 1).all()


@pytest.mark.parametrize("method, epsilon, band", [
    (PublicCovarianceGlm(), 1.0, 0.36), (StatisticsGlm(), 1.0, 0.77), (PublicCovarianceGlm(), 4.0, 0.13),
    (StatisticsGlm(), 4.0, 0.20),
])  # fmt: skip
def test_largest_relative_errors_are_in_their_bands(method, epsilon, band):
    errors = []
    for seed in range(3):
        made = PROBLEMS["signs-glm"].generate({"n": 300_000, "public_rows": 20_000, "random_state": seed})
        model = LogisticRegression(classes=[0, 1], method=method, epsilon=epsilon, **{**QUIET, "random_state": seed})
        model.fit(made.dataset, public_X=made.public)
        errors.append(np.abs(model.coef_ - made.truth).max() / np.abs(made.truth).max())
    assert np.median(errors) <= band


@pytest.mark.parametrize("method", ["public-covariance", "statistics"])
def test_cubes(method):
    made = PROBLEMS["cubic"].generate({"n": 290_000, "public_rows": 20_000})
    model = GeneralizedLinearModel("cubic", method, label_bound=0.0116, epsilon=10.0, **QUIET)
    model.fit(made.dataset, public_X=made.public)
    assert np.abs(model.coef_ - made.truth).max() / np.abs(made.truth).max() <= 0.93 and model.scale_found_


def test_badly_scaled_uncentred_columns_and_rare_labels_change_little():
    """The same rows with columns moved and scaled: the same answer in other units, where a fixed row norm has none."""
    X, public = rng.normal(size=(200_000, 4)), rng.normal(size=(4000, 4))
    y = (rng.random(len(X)) < 1 / (1 + np.exp(3 - X @ [1.0, 1.0, 0.0, 0.0]))).astype(int)
    D, shift = np.diag([1e3, 1.0, 1e-3, 5.0]), np.array([1e4, -3.0, 0.2, 0.0])
    plain = LogisticRegression(classes=[0, 1], epsilon=2.0, **QUIET).fit(X, y, public_X=public)
    moved = LogisticRegression(classes=[0, 1], epsilon=2.0, **QUIET).fit(X @ D + shift, y, public_X=public @ D + shift)
    assert plain.method_ == "public-covariance" and abs(plain.intercept_[0] + 3) < 0.6
    np.testing.assert_allclose(moved.coef_[0] @ D, plain.coef_[0], atol=0.6)
    assert np.abs(plain.coef_[0] - [1, 1, 0, 0]).max() < 0.4
    shares = [model.predict_proba(rows)[:, 1].mean() for model, rows in ((plain, X), (moved, X @ D + shift))]
    assert max(abs(share - y.mean()) for share in shares) < 0.02


@pytest.mark.parametrize("n_public, method", [(None, "direction"), (79, "statistics"), (80, "public-covariance")])
def test_auto_goes_by_how_many_public_rows_there_are(n_public, method):
    X, y = rng.normal(size=(20_000, 4)), rng.integers(0, 2, 20_000)
    public = None if n_public is None else rng.normal(size=(n_public, 4))
    model = LogisticRegression(classes=[0, 1], radius=1.0, row_norm=3.0, epsilon=4.0, **QUIET)
    with np.errstate(all="raise"):
        model.fit(X, y, public_X=public)
    assert model.method_ == method and model.method_reason_


def test_half_of_the_noise_would_be_caught():
    """A report of a vector of norm 1 by a hemisphere for 2 epsilon: two records differ by more than e^epsilon."""
    protocol = LogisticRegression(classes=[0, 1], method="public-covariance", epsilon=1.0).protocol(10_000, 2)
    assert protocol.cost.epsilon == 1.0 and protocol.randomiser.epsilon == 1.0
    assert isinstance(protocol.statistic.values({"X": np.ones((1, 2)), "y": np.ones(1)}), np.ndarray)


@pytest.mark.parametrize("options, public, error, says", [
    ({"method": "statistics"}, None, DataError, "public rows without labels"),
    ({"method": "public-covariance"}, np.ones((3, 3)), DataError, "too few for 3 features"),
    ({}, np.ones((50, 2)), DataError, "rows of 3 features"),
    ({}, np.full((90, 3), np.nan), DataError, "not finite"),
    ({}, np.ones((90, 3)), DataError, "varies in no feature"),
    ({"method": "statistics"}, np.ones((90, 3)), DataError, "varies in no feature"),
    ({}, rng.normal(size=(90, 3)) * 1e200, DataError, "overflow"),
    ({}, rng.normal(size=(90, 3)) * 1j, DataError, "complex"),
    ({}, None, MissingBound, "radius is missing"),
    ({"radius": 1.0}, None, MissingBound, "row_norm is missing"),
    ({"method": "covariance"}, None, BudgetError, "choose one of"),
])  # fmt: skip
def test_wrong_inputs_are_refused_before_anything_is_charged(options, public, error, says):
    ledger = Ledger(":memory:")
    model = LogisticRegression(classes=[0, 1], ledger=ledger, **options)
    with pytest.raises(error, match=says):
        model.fit(rng.normal(size=(500, 3)), rng.integers(0, 2, 500), public_X=public)
    assert ledger.accounts() == []


def test_the_map_is_named_with_all_its_numbers():
    one = Standardised(2, 3, (0.0, 1.0), ((1.0, 0.0), (0.0, 2.0)))
    assert one != Standardised(2, 3, (0.0, 1.0), ((1.0, 0.0), (0.0, 2.5)))
    np.testing.assert_array_equal(one(np.array([[1.0, 2.0]])), [[1.0, 2.0, 1.0]])


def test_the_order_of_public_rows_and_of_their_bytes_hardly_matters():
    rows = rng.normal(size=(60_000, 3)) + 5.0
    X, y = rng.normal(size=(4000, 3)) + 5.0, rng.integers(0, 2, 4000)

    def fit(public):
        return LogisticRegression(classes=[0, 1], epsilon=8.0, **QUIET).fit(X, y, public_X=public)

    method = LogisticRegression(classes=[0, 1], method="public-covariance", **QUIET)._method_for(4000, 3)
    spread = method.given(rows[np.argsort(rows[:, 0])]).rows.std(axis=0)
    np.testing.assert_allclose(spread, 1.0, atol=0.05)
    np.testing.assert_array_equal(fit(rows).coef_, fit(np.asfortranarray(rows)).coef_)


@pytest.mark.parametrize("method", ["public-covariance", "statistics"])
def test_without_public_rows_an_audit_asks_about_rows_as_they_are(method):
    model = LogisticRegression(classes=[0, 1], method=method, epsilon=1.0)
    statistic = model.protocol(10_000, 4).statistic
    for one, other in model.worst_neighbours(10_000, 4).values():
        assert statistic.values(one).shape == statistic.values(other).shape == (1, statistic.size)

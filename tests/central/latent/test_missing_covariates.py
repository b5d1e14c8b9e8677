"""Regression with missing cells: errors in their bands, noise as planned, laws that nobody stated, and bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dpdist import Dataset, LinearRegression, MissingCovariateRegression, MixedRegression, local
from dpdist.central import ClippedEM
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.kernels.latent import MissingCells
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.problems.latent_problems import em
from tests.estimators.quick_oracle import QuickOracle
from tests.kernels.test_latent import drawn

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
GOOD = {"noise_std": 1.0, "radius": 1.5, **BUDGET}


def world(n, d, seed, snr=1.0, rate=0.1):
    b = np.random.default_rng(1000 + seed).normal(size=d)
    b *= snr / np.linalg.norm(b)
    return (*drawn(MissingCells(1.0, rate), n, b, seed), b)


def quick(model, X, y, seed):
    method = model.decided(*X.shape)
    return method.solve(QuickOracle(method, {"X": X, "y": y}, np.random.default_rng(seed)))["coef"]


def errors(n, d, seeds, snr=1.0, rate=0.1, **options):
    found, plain = [], []
    for seed in seeds:
        X, y, b = world(n, d, seed, snr, rate)
        model = MissingCovariateRegression(
            **{"noise_std": 1.0, "radius": 1.25 * snr, "missing_rate": rate, **BUDGET, **options}
        )
        found.append(np.linalg.norm(quick(model, X, y, seed) - b) / snr)
        plain.append(np.linalg.norm(em(MissingCells(1.0), X, y, b) - b) / snr)
    return np.median(found), np.median(plain)


def test_coefficients_are_found():
    found = []
    for seed in range(3):
        X, y, b = world(50_000, 10, seed)
        model = MissingCovariateRegression(ClippedEM(10), **{**GOOD, "radius": 1.25})
        found.append(np.linalg.norm(quick(model, X, y, seed) - b))
    assert np.median(found) <= 0.04


@pytest.mark.parametrize(("snr", "rate"), [(1.0, 0.1), (3.0, 0.1), (3.0, 0.3)])
def test_defaults_are_near_the_algorithm_without_privacy(snr, rate):
    """From 0, which is a start as good as any; also where half of what a label says is hidden."""
    found, plain = errors(20_000, 5, range(4), snr, rate)
    model = MissingCovariateRegression(noise_std=1.0, radius=snr, missing_rate=rate, **BUDGET)
    assert found < 2.5 * plain and 0.3 < found * snr / model.outlook(20_000, 5).predicted_error < 2


def test_the_printed_gradient_is_worse_where_much_is_hidden():
    exact, _ = errors(20_000, 5, range(3), 3.0, 0.3, method=ClippedEM(20))
    printed, _ = errors(20_000, 5, range(3), 3.0, 0.3, method=ClippedEM(20), exact=False)
    assert exact < printed


@pytest.mark.parametrize("noise", [1 / 1.5, 1.0, 1.5])
@pytest.mark.parametrize("law", ["correlated", "scaled", "heavy", "missing where large"])
def test_laws_that_nobody_stated_are_no_worse_than_the_start(law, noise):
    rng, n, d = np.random.default_rng(3), 20_000, 6
    b = np.array([1.0, -0.5, 0.5, 0.25, -0.5, 0.5])
    X = rng.normal(size=(n, d))
    if law == "correlated":
        X = 0.7 * X[:, :1] + np.sqrt(1 - 0.49) * X
    if law == "scaled":
        X *= [3.0, 1.0, 0.3, 1.0, 2.0, 0.5]
    v = rng.standard_t(3, n) / np.sqrt(3) if law == "heavy" else rng.normal(size=n)
    y = X @ b + v
    rate = 0.4 * (np.abs(X) > 1) if law == "missing where large" else 0.15
    X[rng.random(X.shape) < rate] = np.nan
    model = MissingCovariateRegression(noise_std=noise, radius=2.0, **BUDGET)
    assert np.linalg.norm(quick(model, X, y, 0) - b) < np.linalg.norm(b)


@pytest.mark.parametrize("method", ["clip", "truncate", "split"])
def test_every_method_takes_missing_cells(method):
    X, y, _ = world(3000, 4, 2, rate=0.3)
    X = X.copy()
    X[:3], X[3], y[4] = np.nan, np.inf, np.nan
    model = MissingCovariateRegression(method, **GOOD, random_state=0, cluster="threads")
    whole = clone(model).fit(Dataset.from_arrays(X=X, y=y, missing=list("0123")))
    parts = clone(model).fit(Dataset.from_arrays(X=X, y=y, missing=list("0123"), partition_rows=700))
    assert np.array_equal(whole.coef_, parts.coef_) and np.linalg.norm(whole.coef_) <= 1.5 * (1 + 1e-12)


def test_noise_is_what_the_budget_asks_for():
    model = MissingCovariateRegression(ClippedEM(7, clip_norm=2.0), **GOOD)
    line = model.plan(5000, 4)["gradient"]
    noise = line.mechanism.noise_std(model.sensitivities(5000, 4)["gradient"])
    assert noise == pytest.approx(2 * 2.0 * np.sqrt(7 / 0.99) / gdp_mu(1.0, 1e-5), rel=1e-6)


def test_what_a_fitted_one_says():
    X, y, b = world(20_000, 3, 1, rate=0.3)
    model = MissingCovariateRegression(**GOOD, random_state=0).fit(X, y)
    assert np.linalg.norm(model.coef_ - b) < 0.1
    assert np.allclose(model.predict(X[:9]), np.nan_to_num(X[:9]) @ model.coef_)
    t = np.linspace(-60, 60, 40_001)
    density = np.exp(model.score_samples(np.repeat(X[:1], t.size, axis=0), t))
    assert density.sum() * (t[1] - t[0]) == pytest.approx(1.0, abs=1e-6)


def test_missing_rows_help_where_whole_rows_are_few():
    """What others do is to leave out rows with a missing cell: at 10 columns and 30 % nearly all of them."""
    X, y, b = world(20_000, 10, 4, rate=0.3)
    whole = ~np.isnan(X).any(axis=1)
    ours = MissingCovariateRegression(**GOOD, missing_rate=0.3, random_state=0).fit(X, y).coef_
    left = LinearRegression(loss="huber", row_norm=4.0, fit_intercept=False, **BUDGET, random_state=0)
    theirs = left.fit(X[whole], y[whole]).coef_
    assert np.linalg.norm(ours - b) < np.linalg.norm(theirs - b) / 2


def test_a_dataset_that_declares_nothing_is_warned_of():
    X, y, _ = world(500, 3, 0, rate=0.0)
    model = MissingCovariateRegression(**GOOD, random_state=0, cluster="threads")
    with pytest.warns(UserWarning, match="no column of the dataset declares missing cells"):
        model.fit(Dataset.from_arrays(X=X, y=y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(X, y)


@pytest.mark.parametrize("kind", [MissingCovariateRegression, MixedRegression, local.MissingCovariateRegression])
def test_labels_that_are_texts_are_refused_and_not_tried_as_numbers(kind):
    with pytest.raises(DataError, match="y holds strings"):
        kind(**{**GOOD, "delta": 1e-6, "start": [0.5, 0.0, 0.0]}).fit(np.zeros((300, 3)), np.full(300, "yes"))


WRONG = {
    "no sigma": ({"noise_std": None}, "noise_std is missing"),
    "no radius": ({"radius": None}, "radius is missing"),
    "an infinite sigma": ({"noise_std": np.inf}, "noise_std"),
    "a start outside": ({"start": [3.0, 0.0, 0.0]}, "start has norm 3, outside of the ball"),
    "a start that is none": ({"start": [np.nan, 0.0, 0.0]}, "start"),
    "a spectral start": ({"init": "spectral"}, "init='spectral' is for mixtures of two"),
    "steps of a mixture": ({"method": "em"}, "method='em' is for TwoComponentMixture"),
    "a covariance": ({"method": "precondition"}, "method='precondition' is for MixedRegression"),
    "all missing": ({"missing_rate": 1.0}, "missing_rate must"),
    "no delta": ({"delta": 0.0}, "needs delta > 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name):
    changes, text = WRONG[name]
    with pytest.raises((BudgetError, MissingBound), match=text):
        MissingCovariateRegression(**{**GOOD, **changes}).fit(np.zeros((300, 3)), np.zeros(300))


def test_owners_of_several_rows_count_once():
    """The noise of a mean is that of one row per owner, and what an owner's rows are moves no more than that."""
    X, y, b = world(20_000, 3, 5, rate=0.2)
    X, y = np.repeat(X, 4, axis=0), np.repeat(y, 4)  # copies, as ingestion writes them
    grouped = {"unit": "patient", "max_rows_per_unit": 4, "grouped": True, "missing": list("012")}
    model = MissingCovariateRegression(**GOOD, random_state=0, cluster="threads")
    found = model.fit(Dataset.from_arrays(X=X, y=y, **grouped))
    alone = clone(model).fit(Dataset.from_arrays(X=X[::4], y=y[::4], missing=list("012")))
    assert np.linalg.norm(found.coef_ - b) < 2 * np.linalg.norm(alone.coef_ - b) + 0.02
    noise, single = (fit.releases_[-1].noise_std for fit in (found, alone))
    assert noise == pytest.approx(4 * single, rel=1e-6)
    with pytest.raises(BudgetError, match="keep one row per patient"):
        local.MissingCovariateRegression(noise_std=1.0, radius=1.5, epsilon=1.0).fit(
            Dataset.from_arrays(X=X, y=y, **grouped)
        )

"""Mixtures of several components: errors as expected, guarantees as stated, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture as Plain

from dpdist import GaussianMixture
from dpdist.central import MixtureEM
from dpdist.errors import BudgetError, MissingBound
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.problems.latent_problems import matched
from tests.estimators.quick_oracle import QuickOracle

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
CENTRES = np.array([[4.0, 0.0], [-2.0, 3.5], [-2.0, -3.5]])
START = [3.0, 1.0, -3.0, 2.0, -1.0, -3.0]
GOOD = {"row_norm": 7.0, "noise_std": 1.0, "start": START, **BUDGET}


def rows(n, seed, stds=(1.0, 1.0, 1.0), shares=(1 / 3, 1 / 3, 1 / 3)):
    rng = np.random.default_rng(seed)
    which = rng.choice(3, n, p=shares)
    return CENTRES[which] + np.array(stds)[which, None] * rng.normal(size=(n, 2)), which


def quick(model, X, seed):
    method = model.decided(*X.shape)
    return method.solve(QuickOracle(method, {"X": X}, np.random.default_rng(seed)))


def test_centres_are_found_from_a_start_that_leads_there():
    errors = []
    for seed in range(5):
        X, _ = rows(50_000, seed)
        plain = Plain(3, covariance_type="diag", means_init=np.reshape(START, (3, 2))).fit(X)
        assert matched(plain.means_, CENTRES) < 0.05
        errors.append(matched(quick(GaussianMixture(3, **GOOD), X, seed)["means"], CENTRES))
    assert np.median(errors) <= 0.11
    expected = GaussianMixture(3, **GOOD).outlook(50_000, 2).predicted_error
    assert 0.3 < np.median(errors) / expected < 3


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_weights_and_variances_are_found_as_well(covariance_type):
    X, _ = rows(200_000, 0, (0.5, 1.0, 1.5), (0.5, 0.3, 0.2))
    found = quick(GaussianMixture(3, covariance_type=covariance_type, **GOOD), X, 0)
    assert np.allclose(found["weights"], [0.5, 0.3, 0.2], atol=0.02)
    assert np.allclose(np.sqrt(found["covariances"]), np.repeat([[0.5], [1.0], [1.5]], 2, axis=1), rtol=0.1)
    assert covariance_type == "diag" or np.ptp(found["covariances"], axis=1).max() == 0


def test_noise_is_for_the_root_of_six():
    model = GaussianMixture(3, MixtureEM(7), **GOOD)
    noise = model.plan(10_000, 2)["sums"].mechanism.noise_std(model.sensitivities(10_000, 2)["sums"])
    assert noise == pytest.approx(math.sqrt(6 * 7) / gdp_mu(1.0, 1e-6), rel=1e-6)


def test_bad_rows_and_hopeless_settings_leave_finite_answers():
    X, _ = rows(300, 1)
    X[:3] = np.nan
    X[3] = 1e308
    with pytest.warns(UserWarning, match="n_components=3 is more than the noise allows.*take about .* rows or more"):
        model = GaussianMixture(3, **GOOD, random_state=0, cluster="threads").fit(X)
    assert np.isfinite(model.means_).all() and model.covariances_.min() > 0 and model.weights_.sum() == pytest.approx(1)
    assert np.linalg.norm(model.means_, axis=1).max() <= 7.0 * (1 + 1e-12)


def test_what_a_fitted_one_says():
    X, which = rows(50_000, 2)
    model = GaussianMixture(3, **GOOD, random_state=0, cluster="threads").fit(X)
    assert (model.predict(X) == which).mean() > 0.98
    assert np.allclose(model.predict_proba(X[:99]).sum(axis=1), 1)
    plain = Plain(3, covariance_type="diag", means_init=CENTRES).fit(X)
    assert abs(model.score_samples(X).mean() - plain.score_samples(X).mean()) < 0.02
    again = clone(model).set_params(start=np.reshape(START, (3, 2)), method__n_rounds=2).fit(X)
    assert len(again.history_) == 2


WRONG = {
    "no bound": ({"row_norm": None}, "row_norm is missing"),
    "no width": ({"noise_std": None}, "noise_std is missing"),
    "no start": ({"start": None}, "start is missing: pass public centres"),
    "a short start": ({"start": [1.0, 2.0]}, "start must have 6 numbers, 2 for each of the 3 centres, got 2"),
    "a start outside": ({"start": [9.0, 0, 0, 1, 0, -1]}, "start has a centre of norm 9"),
    "two in one place": ({"start": [1.0, 0, 1, 0, 0, -1]}, "two centres in one place"),
    "no components": ({"n_components": 0}, "n_components must be a whole number of at least 1"),
    "other covariances": ({"covariance_type": "full"}, "covariance_type='full' is not known"),
    "no delta": ({"delta": 0.0}, "needs delta > 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name):
    changes, text = WRONG[name]
    with pytest.raises((BudgetError, MissingBound), match=text):
        GaussianMixture(**{"n_components": 3, **GOOD, **changes}).fit(np.zeros((300, 2)))

"""Public weights of classes: the minimiser of the weighted loss, under noise that grows with the larger weight."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as NotPrivate

from dpdist import LinearSVC, LogisticRegression
from dpdist.errors import BudgetError, MissingBound

WEIGHTS = {"no": 1.0, "yes": 5.0}
TERMS = {"classes": ["no", "yes"], "row_norm": 2.0, "delta": 1e-6, "random_state": 0}


@pytest.fixture(scope="module")
def rare():
    """Rows of which a tenth are of the class that matters."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 3)) / 3
    chance = 1 / (1 + np.exp(-(4 * X[:, 0] - 3 * X[:, 1] - 3)))
    return X, np.where(rng.random(len(X)) < chance, "yes", "no")


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
def test_the_fit_is_that_of_scikit_learn_with_the_same_weights(rare, solver):
    X, y = rare
    expected = NotPrivate(C=1e6, class_weight=WEIGHTS).fit(X, y)
    options = {"solver": solver, "solver__n_rounds": 200 if solver == "accelerated" else 2000, "epsilon": 1e4}
    model = LogisticRegression(**TERMS, class_weight=WEIGHTS).set_params(**options).fit(X, y)
    assert np.abs(model.coef_ - expected.coef_).max() < 0.25 and abs(model.intercept_ - expected.intercept_)[0] < 0.15
    plain = NotPrivate(C=1e6).fit(X, y)
    assert abs(plain.intercept_ - expected.intercept_)[0] > 1.0, "weights would not matter"


def test_weights_are_in_the_sensitivity_of_what_is_released():
    def sensitivity(weights):
        model = LogisticRegression(**TERMS, solver="gradient", class_weight=weights)
        return model.sensitivities(10_000, 3)["gradient"]

    assert sensitivity({"yes": 7.0}) == pytest.approx(7.0 * sensitivity(None), rel=1e-6)


def test_a_rare_class_is_found_more_often(rare):
    X, y = rare
    shares = [
        (LinearSVC(**TERMS, epsilon=3.0, class_weight=weights).fit(X, y).predict(X) == "yes").mean()
        for weights in (None, WEIGHTS)
    ]
    assert shares[1] > shares[0] + 0.05


@pytest.mark.parametrize(
    ("weights", "classes", "said"),
    [
        ("balanced", ["no", "yes"], "would read the shares of the classes off the data"),
        ([1, 5], ["no", "yes"], "must be public weights such as"),
        ({"maybe": 2.0}, ["no", "yes"], "'maybe', which is none of the classes"),
        ({"no": 0.0}, ["no", "yes"], r"class_weight\['no'\] must be a positive finite number"),
        ({"no": np.nan}, ["no", "yes"], "must be a positive finite number"),
        ({"a": 2.0}, ["a", "b", "c"], "for two classes, and there are 3"),
    ],
)
def test_other_weights_are_refused(weights, classes, said):
    with pytest.raises((BudgetError, MissingBound), match=said):
        LogisticRegression(**{**TERMS, "classes": classes}, class_weight=weights).plan(1000, 3)

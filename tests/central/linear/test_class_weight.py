"""Public weights of classes: the minimiser of the weighted loss, under noise that grows with the larger weight."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression as NotPrivate

from dpdist import LinearSVC, LogisticRegression
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Logistic, RestLogistic, SmoothedHinge

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


SEVERAL = {"a": 1.0, "b": 6.0, "c": 2.0}


@pytest.mark.parametrize(("kind", "n_rounds"), [(LogisticRegression, 60), (LinearSVC, 300)])
def test_of_several_classes_each_row_has_the_weight_of_its_own(kind, n_rounds):
    """Against what scikit-learn fits of each class against the rest, with the same weights of the rows."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 3)) / 3
    y = np.array(["a", "b", "c"])[(X @ [[3.0, -2.0, 0.0], [0.0, 2.0, -3.0], [0.0, 0.0, 2.0]] + [1.5, -1, 0]).argmax(1)]
    y = np.where(rng.random(len(X)) < 0.2, rng.choice(["a", "b", "c"], len(X)), y)
    terms = {**TERMS, "classes": ["a", "b", "c"], "solver": "preconditioned", "epsilon": 1e4, "alpha": 1e-3}
    found = kind(**terms, class_weight=SEVERAL).set_params(solver__n_rounds=n_rounds).fit(X, y)
    weights = np.vectorize(SEVERAL.get)(y)
    plain = kind(**terms).set_params(solver__n_rounds=n_rounds).fit(X, y)
    for k, label in enumerate(["a", "b", "c"]):
        signs, Z = np.where(y == label, 1.0, -1.0), np.column_stack([X, np.ones(len(X))])
        loss = Logistic() if kind is LogisticRegression else SmoothedHinge()

        def objective(w, Z=Z, signs=signs, loss=loss):
            value = (weights * loss.value(Z @ w, signs)).mean() + 5e-4 * float(w[:3] @ w[:3])
            slope = (weights * loss.derivative(Z @ w, signs)) @ Z / len(Z)
            return value, slope + 1e-3 * np.append(w[:3], 0.0)

        expected = scipy.optimize.minimize(objective, np.zeros(4), jac=True, method="L-BFGS-B", tol=1e-12).x
        fitted = np.append(found.coef_[k], found.intercept_[k])
        assert np.abs(fitted - expected).max() < 0.1
        assert np.abs(np.append(plain.coef_[k], plain.intercept_[k]) - expected).max() > 0.2, "weights would not matter"
    sensitivity = [m.sensitivities(4000, 3)["gradient"] for m in (found, plain)]
    assert sensitivity[0] == pytest.approx(6.0 * sensitivity[1], rel=1e-6)


def test_a_label_cannot_weigh_more_than_the_largest_weight():
    loss = RestLogistic((1.0, 3.0))
    y = np.array([1e300, -1e300, 3.0, -0.5])
    assert np.abs(loss.derivative(np.zeros(4), y)).max() == 0.5 * 3.0
    codes = np.array([0.0, 1.0, np.nan, np.inf, -np.inf, 7.5])
    labels = loss.one_against_rest(codes, 1)
    assert labels[:2].tolist() == [-1.0, 3.0] and np.isnan(labels[2]) and np.abs(labels[3:]).max() <= 3.0


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
        ({"d": 2.0}, ["a", "b", "c"], "'d', which is none of the classes"),
    ],
)
def test_other_weights_are_refused(weights, classes, said):
    with pytest.raises((BudgetError, MissingBound), match=said):
        LogisticRegression(**{**TERMS, "classes": classes}, class_weight=weights).plan(1000, 3)

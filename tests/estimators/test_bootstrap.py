"""How sure fits are by fits to rows of their own law: that it covers, what it costs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpdist import (
    Dataset,
    GaussianMixture,
    Ledger,
    LogisticRegression,
    Mean,
    MissingCovariateRegression,
    MixedRegression,
    load_run,
)
from dpdist.errors import BudgetError, DataError, NoIntervals
from dpdist.estimators.bootstrap import _near, bootstrapped
from dpdist.jobs.job import load_job
from dpdist.jobs.run import run_job
from tests.estimators.quick_oracle import quick_fit

B = np.array([1.0, -0.5, 0.0])
W = np.array([4.0, -3.0, 0.0, 0.4])


def lines(rng, n=1000):
    X = rng.normal(size=(n, 3))
    y = X @ B + rng.normal(size=n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def signs(rng, n=1000):
    X = rng.normal(size=(n, 3))
    return X, rng.choice([-1.0, 1.0], n) * (X @ (2 * B)) + rng.normal(size=n)


def classes(rng, n=1000):
    X = rng.uniform(-1, 1, (n, 3)) / np.sqrt(3)
    return X, (X @ W[:3] + W[3] + rng.logistic(size=n) > 0).astype(int)


def groups(rng, n=1000):
    centres = np.array([[3.0, 0.0], [-3.0, 1.0]])
    return centres[(rng.random(n) < 0.3).astype(int)] + rng.normal(size=(n, 2)), None


def missing(**kwargs):
    known = {"noise_std": 1.0, "radius": 1.5, "missing_rate": 0.2, "epsilon": 4.0, "delta": 1e-6}
    return MissingCovariateRegression(**{**known, **kwargs})


def logistic(**kwargs):
    known = {"classes": [0, 1], "solver": "gradient", "row_norm": 1.0, "epsilon": 16.0, "delta": 1e-6}
    return LogisticRegression(**{**known, **kwargs})


MIXED = MixedRegression(noise_std=1.0, radius=3.0, start=[1.0, 0.0, 0.0], epsilon=4.0, delta=1e-6)
GROUPS = GaussianMixture(2, row_norm=7.0, noise_std=1.0, start=[2, 1, -2, 1], epsilon=100.0, delta=1e-6)


def again(model, X, y, seed):
    """A fit without an engine, of a copy that is made once."""
    other = model.__dict__.setdefault("_again", clone(model))
    return quick_fit(other, X, y, np.random.default_rng(seed))


def fitted(model, draw, seed):
    rng = np.random.default_rng(seed)
    return quick_fit(model, *draw(rng), rng)


@pytest.mark.parametrize(
    ("model", "draw", "truth"),
    [
        (missing(), lines, B),
        (MIXED, signs, 2 * B),
        (GROUPS, groups, np.array([0.7, 0.3, 3.0, 0.0, -3.0, 1.0, 1.0, 1.0, 1.0, 1.0])),
        (logistic(), classes, W),
    ],
    ids=["missing", "mixed", "groups", "classes"],
)
def test_intervals_contain_the_truth(model, draw, truth):
    """5 fits of fixed seeds; the steps of the logistic ones are not at their end, and what they miss is added."""
    z, bare = [], []
    for seed in range(5):
        fit = fitted(model, draw, seed)
        fit.classes_ = np.array([0, 1])
        public = classes(np.random.default_rng(100 + seed))[0] if isinstance(model, LogisticRegression) else None
        known = bootstrapped(fit, 50, public, seed, fit=again)._inferred
        z.append((known.values - truth) / known.errors)
        bare.append((fit._fitted_law().values - truth) / known.errors)
    assert (np.abs(z) < 1.96).mean() > 0.85 and 0.6 < np.std(z) < 1.35
    if isinstance(model, LogisticRegression):
        assert (np.abs(bare) < 1.96).mean() < 0.85


def test_a_bootstrap_is_shown_like_a_summary_costs_nothing_and_repeats(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    X, y = lines(np.random.default_rng(0), 1000)
    model = missing(epsilon=5.0, ledger=ledger, random_state=3).fit(X, y)
    spent, found = ledger.accounts(), model.bootstrap(50)
    assert ledger.accounts() == spent and model.random_state == 3
    assert np.array_equal(found.standard_errors_, model.bootstrap(50).standard_errors_)
    assert not np.array_equal(found.standard_errors_, model.bootstrap(50, random_state=1).standard_errors_)
    np.testing.assert_allclose(found.estimate_ + found.bias_, model.coef_)
    assert found.confidence_intervals().shape == (3, 2) and found.wald_test([1, 1, 0]).degrees_of_freedom == 1
    text = str(found)
    assert "by fits to rows of its own law" in text and " times 50 fits" in text and "noise:" not in text
    with pytest.raises(NoIntervals, match=r"bootstrap\(\) has intervals"):
        model.summary()


def test_a_run_that_was_loaded_can_be_fitted_to_its_own_law(tmp_path):
    place = tmp_path / "run"
    small = [
        "data.n=2000",
        "data.d=3",
        "params.start=[1, 0, 0]",
        "params.random_state=0",
        f"output={place}",
        f"ledger={place}.sqlite",
    ]
    run_job(load_job("dp-em", small))
    assert load_run(place).bootstrap(50).standard_errors_.shape == (3,)


def test_columns_of_public_rows_take_the_place_of_normal_ones():
    """Columns twice as large say twice as much of their coefficient."""
    model = fitted(missing(epsilon=100.0), lines, 0)
    public = np.random.default_rng(1).normal(size=(2000, 3)) * [2.0, 1.0, 1.0]
    known = [bootstrapped(model, 50, rows, 0, fit=again).standard_errors_ for rows in (None, public)]
    assert known[1][0] < 0.85 * known[0][0]


def test_more_parameters_than_fits_tell_of_are_tested_one_by_one():
    found = bootstrapped(fitted(GROUPS, groups, 0), 50, None, 0, fit=again)
    assert found.wald_test(np.eye(4)[:2]).degrees_of_freedom == 2
    found._inferred = found._inferred.__class__(**{**vars(found._inferred), "alone": "test them one by one"})
    with pytest.raises(NoIntervals, match="one by one"):
        found.wald_test(np.eye(4))


@pytest.mark.parametrize(
    ("model", "draw", "kwargs", "error", "says"),
    [
        (missing(), lines, {"n_fits": 10}, BudgetError, "n_fits must be a whole number of at least 50, got 10"),
        (missing(), lines, {"random_state": -1}, BudgetError, "random_state must be a whole number of at least 0"),
        (
            missing(),
            lines,
            {"public_X": np.ones((100, 2))},
            DataError,
            r"\(--public\) has 2 columns, and the model was",
        ),
        (missing(), lines, {"public_X": np.ones((10, 3))}, DataError, "10 rows, too few to show how 3 features vary"),
        (missing(), lines, {"public_X": np.full((100, 3), np.nan)}, DataError, "finite numbers.*contains NaN"),
        (missing(), lines, {"public_X": [["a", "b", "c"]] * 100}, DataError, r"\(--public\) must be rows of finite"),
        (missing(), lines, {"public_X": [1.0, 2.0]}, DataError, r"\(--public\) must be rows of finite"),
        (GROUPS, groups, {"public_X": np.ones((100, 2))}, BudgetError, "has nobody to read it"),
        (logistic(), classes, {}, NoIntervals, r"pass public_X \(--public\), public rows"),
        (logistic(classes=[0, 1, 2]), classes, {}, NoIntervals, "together they are no law of labels"),
        (logistic(class_weight={0: 2.0}), classes, {}, NoIntervals, "odds of another population"),
        (logistic(l1_ratio=1.0, alpha=0.1), classes, {}, NoIntervals, "Without constraint and l1_ratio there would be"),
        (Mean(second_moment=1.0, epsilon=1.0, delta=1e-6), groups, {}, NoIntervals, "does not say how rows come about"),
    ],
)
def test_what_cannot_be_meant_is_refused(model, draw, kwargs, error, says):
    fit = fitted(clone(model), draw, 0)
    if isinstance(model, LogisticRegression):
        fit.classes_ = np.asarray(model.classes)
    with pytest.raises(error, match=says):
        fit.bootstrap(**kwargs)


def test_components_that_fits_lose_now_and_then_have_no_intervals():
    """The control of the law without them: one of 50 may be lost, two are not one standard error."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(50, 2))
    drawn[7, 1] += 30.0
    assert len(_near(drawn)) == 49
    drawn[8, 0] -= 30.0
    with pytest.raises(NoIntervals, match="2 of 50 fits to rows of the fitted law ended far from the others"):
        _near(drawn)
    model = clone(GROUPS).set_params(epsilon=4.0)
    with pytest.raises(NoIntervals, match=r"ended far from the others|do not lead back"):
        bootstrapped(fitted(model, groups, 0), 50, None, 0, fit=again)


def test_an_answer_that_is_mostly_noise_or_a_start_has_no_intervals():
    with pytest.raises(NoIntervals, match=r"do not lead back to what was released|shorter than what rows have to be"):
        bootstrapped(fitted(missing(epsilon=0.02), lines, 0), 50, None, 0, fit=again)
    with pytest.raises(NotFittedError):
        MIXED.__class__().bootstrap()


def test_rows_of_one_owner_are_not_taken_for_independent():
    X, y = lines(np.random.default_rng(0), 2000)
    data = Dataset.from_arrays(X=X, y=y, unit="patient", max_rows_per_unit=2, grouped=True)
    with pytest.raises(NoIntervals, match="rows of one owner may be alike"):
        missing(epsilon=9.0, random_state=0).fit(data).bootstrap()

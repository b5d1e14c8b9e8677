"""Preconditioned gradients: no law of rows makes them diverge, and penalties and sets mean what they mean elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.linear_model

from dpdist import Dataset, Ledger, LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import AcceleratedGradient, ClipNorm, PreconditionedGradient
from dpdist.constraints import Box, ElasticNet, L1Ball, L2Ball
from dpdist.data import Units
from dpdist.errors import BudgetError, MissingBound
from tests.central.linear.test_newton import classes, log_loss
from tests.faults.jobs import at_release, on_file

SIGNS = {"classes": [-1, 1], "delta": 1e-6, "row_norm": 1.0, "cluster": "threads", "solver": "preconditioned"}


@pytest.mark.parametrize("law", ["factors", "counts", "tails"])
def test_it_is_better_than_plain_descent_and_gets_better_with_epsilon(law):
    X, y, margin = classes(law)
    best = np.logaddexp(0, -y * margin).mean()
    errors = {}
    for epsilon in (0.3, 1.0, 10.0):
        fits = [LogisticRegression(epsilon=epsilon, random_state=s, **SIGNS).fit(X, y) for s in range(4)]
        errors[epsilon] = np.mean([log_loss(fit, X, y) for fit in fits]) - best
    plain = LogisticRegression(epsilon=10.0, random_state=0, **{**SIGNS, "solver": "gradient"}).fit(X, y)
    assert errors[10.0] < errors[1.0] < errors[0.3]
    assert errors[10.0] < 0.3 * (log_loss(plain, X, y) - best)


@pytest.mark.parametrize("scales", [np.geomspace(1, 1e-3, 12), np.ones(12)])
@pytest.mark.parametrize("model", [LinearSVC, LogisticRegression])
def test_no_scale_and_no_correlation_makes_it_worse_than_a_constant(model, scales):
    rng = np.random.default_rng(0)
    common = rng.normal(size=(4000, 1)) + 0.01 * rng.normal(size=(4000, 12))
    X = common * scales / np.linalg.norm(scales)
    y = np.where(rng.random(4000) < 0.3 + 0.4 * (common[:, 0] > 0), 1, -1)
    for epsilon in (0.05, 1.0):
        fits = [model(epsilon=epsilon, random_state=s, **SIGNS).fit(X, y) for s in range(4)]
        losses = [log_loss(fit, X, y) for fit in fits]
        assert np.mean(losses) < np.log(2) * 1.05 and np.isfinite(losses).all()


@pytest.mark.filterwarnings("ignore:delta = 0.1:UserWarning")
def test_a_lasso_and_a_ball_are_those_of_the_fit_without_privacy():
    """With an epsilon beyond all noise; the steps are in the metric of the matrix, the solution is not."""
    X, y, _ = classes("factors", n=4000, d=6)
    sure = {**SIGNS, "epsilon": 1e6, "delta": 0.1, "random_state": 0, "solver": PreconditionedGradient(60)}
    lasso = LogisticRegression(alpha=2e-3, l1_ratio=1.0, **sure).fit(X, y)
    plain = sklearn.linear_model.LogisticRegression(
        l1_ratio=1.0, C=1 / (2e-3 * 4000), solver="saga", tol=1e-8, max_iter=5000
    ).fit(X, y)
    assert np.ravel(lasso.coef_) == pytest.approx(np.ravel(plain.coef_), abs=0.03)
    assert np.array_equal(np.abs(np.ravel(lasso.coef_)) < 0.02, np.abs(np.ravel(plain.coef_)) < 0.02)
    for ball in (L2Ball(0.5), L1Ball(0.5), Box(-0.1, 0.1)):
        inside, longer = (
            LogisticRegression(constraint=ball, **{**sure, "solver": solver}, alpha=0.0).fit(X, y)
            for solver in (PreconditionedGradient(60), AcceleratedGradient(200))
        )
        assert np.ravel(inside.coef_) == pytest.approx(ball.project(np.ravel(inside.coef_)), abs=1e-9)
        assert log_loss(inside, X, y) <= log_loss(longer, X, y) + 1e-4


def test_classes_share_the_matrix():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)) / 3
    y = np.argmax(X @ rng.normal(size=(4, 3)) * 4 + rng.gumbel(size=(20_000, 3)), axis=1)
    model = LogisticRegression(epsilon=2.0, random_state=0, **{**SIGNS, "classes": [0, 1, 2]}).fit(X, y)
    counts = {item.name: item.count for item in model.plan_.items}
    assert counts == {"second moment": 1, "gradient": 3 * model.n_iter_}
    assert [release.name for release in model.releases_].count("second moment") == 1
    assert model.score(X, y) > 0.55


def test_shares_add_up_and_the_matrix_is_measured_as_one():
    model = LogisticRegression(epsilon=1.0, **SIGNS)
    assert sum(line.share for line in model._method_for(10_000, 6).lines()) == pytest.approx(1.0)
    found = model.sensitivities(10_000, 6)
    assert found["second moment"] == pytest.approx(np.sqrt(2) * (1 + 1 / 6))
    assert found["gradient"] == pytest.approx(2 * np.sqrt(1 + 1 / 6))


def test_rounds_are_those_of_the_least_predicted_error():
    few, many = (LogisticRegression(epsilon=e, **SIGNS)._method_for(5_000, 40) for e in (0.05, 10.0))
    assert few.n_rounds < many.n_rounds
    for method in (few, many):
        at = {
            t: LogisticRegression(epsilon=method.budget.epsilon, **{**SIGNS, "solver": PreconditionedGradient(t)})
            for t in (3, 8, 30)
        }
        errors = {t: model.outlook(5_000, 40).predicted_error for t, model in at.items()}
        best = LogisticRegression(epsilon=method.budget.epsilon, **SIGNS).outlook(5_000, 40).predicted_error
        assert best <= min(errors.values()) * (1 + 1e-9)
    assert LogisticRegression(epsilon=1.0, **SIGNS, constraint=L2Ball(1.0))._method_for(5_000, 40).n_rounds >= 3


def test_several_rows_of_a_unit_are_decided_on_as_one():
    units = Units("patient", 4, grouped=True)
    model = LogisticRegression(epsilon=1.0, **SIGNS)
    assert model.plan(40_000, 5, units) == model.plan(10_000, 5)
    X, y, _ = classes("tails", n=4_000, d=5)
    data = Dataset.from_arrays(
        X=np.repeat(X, 4, axis=0), y=np.repeat(y, 4), unit="patient", max_rows_per_unit=4, grouped=True
    )
    four = LogisticRegression(epsilon=1.0, random_state=0, **SIGNS).fit(data)
    one = LogisticRegression(epsilon=1.0, random_state=0, **SIGNS).fit(X, y)
    assert four.n_iter_ == one.n_iter_
    assert np.linalg.norm(four.coef_ - one.coef_) < 0.5 * np.linalg.norm(one.coef_) + 0.5


def test_a_run_that_is_killed_goes_on_as_it_was(tmp_path):
    X, y, _ = classes("factors", n=5_000, d=4)
    named = Dataset.from_arrays(X=X, y=y, dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LogisticRegression(epsilon=3.0, **SIGNS, run_id="monday", ledger=ledger)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_release(2, stop):
        model.fit(named)
    before = on_file(tmp_path / "ledger.sqlite")
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert replayed[:3] == [True, True, False] and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(3.0)


def test_squared_and_huber_losses_are_fitted_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) * [0.4, 0.04, 0.4]
    y = X @ [1.0, 5.0, -1.0] + 0.1 * rng.normal(size=20_000)
    common = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "solver": "preconditioned", "random_state": 0}
    squared = LinearRegression(gradient=ClipNorm(1.0), **common).fit(X, y)
    huber = LinearRegression(loss="huber", gradient="norm", **common).fit(X, y)
    assert squared.score(X, y) > 0.9 and huber.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (LogisticRegression(epsilon=1.0, **SIGNS, rows="sample"), BudgetError, "rows='sample'"),
        (LogisticRegression(epsilon=1.0, **SIGNS, gradient="truncate"), BudgetError, "'truncate' is nothing"),
        (LogisticRegression(epsilon=1.0, **{**SIGNS, "delta": 0.0}), BudgetError, "delta > 0"),
        (LogisticRegression(epsilon=1.0, **{**SIGNS, "row_norm": None}), MissingBound, "row_norm is missing"),
        (Minimizer("biweight", solver="preconditioned", epsilon=1.0, delta=1e-6, row_norm=1.0), BudgetError, "convex"),
        (Minimizer("squared", solver="preconditioned", epsilon=1.0, delta=1e-6, row_norm=1.0), MissingBound, "clip"),
        (Minimizer("logistic", ElasticNet(0.1), L2Ball(1.0), solver=PreconditionedGradient(start=[2.0, 0, 0, 0]),
                   epsilon=1.0, delta=1e-6, row_norm=1.0), BudgetError, "outside of the constraint"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_before_a_row_is_read(model, error, says):
    with pytest.raises(error, match=says):
        model.plan(1_000, 3)


def test_too_many_features_for_a_matrix_are_refused_with_what_takes_them():
    with pytest.raises(BudgetError, match=r"1001 features are too many.*solver='subspace'"):
        LogisticRegression(epsilon=1.0, **SIGNS).plan(1_000, 1001)

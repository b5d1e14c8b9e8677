"""Hard thresholding pursuit: finds columns that are correlated, scaled or 0/1, and nothing it releases can run away."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from dpdist import Dataset, Ledger, LinearRegression, LogisticRegression, Minimizer
from dpdist.central import HardThresholding
from dpdist.central.linear import pursuit
from dpdist.central.linear.pursuit import Pursuit
from dpdist.constraints import L2Ball
from dpdist.data import Units
from dpdist.errors import BudgetError, MissingBound
from dpdist.kernels.moments import unpack_symmetric
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.audit.two_point import audit_two_point
from dpdist.queries.column_sums import ColumnGradientSum, ColumnHessianSum, ColumnNormCounts
from dpdist.queries.scaled_rows import PIECE, NormCounts, ScaledGradientSum
from tests.central.linear.test_newton import Replay
from tests.faults.jobs import at_release, on_file

N, D, K = 20_000, 60, 6
OPTIONS = {"solver": HardThresholding(n_nonzero=K), "delta": 1e-6}


def rows(law, rng, n=N, d=D):
    """How often columns are chosen was looked at on factors, blocks and counts; nothing on the other two."""
    if law == "factors":
        return (rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(size=(n, d))) / 1.7, 3.0
    if law == "counts":
        return np.minimum(rng.poisson(np.geomspace(0.1, 3, d), size=(n, d)), 6) * 1.0, 6.0
    if law == "blocks":
        return 0.9 * np.repeat(rng.normal(size=(n, d // 3)), 3, axis=1) + 0.44 * rng.normal(size=(n, d)), 3.0
    if law == "two scales":
        return rng.normal(size=(n, d)) * np.where(np.arange(d) % 2, 1.0, 0.3), 3.0
    return rng.laplace(size=(n, d)) / 2**0.5, 4.0


LAWS = ("factors", "counts", "blocks", "two scales", "peaks")


def table(law, seed=0, n=N, d=D, classes=False):
    rng = np.random.default_rng([LAWS.index(law), seed])
    X, bound = rows(law, rng, n, d)
    w = np.zeros(d)
    w[rng.choice(d, 4, replace=False)] = rng.choice([-1, 1], 4) * rng.uniform(0.7, 1.3, 4)
    u = (X @ w - np.mean(X @ w)) / np.std(X @ w) + 1.0
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * u))).astype(int) if classes else u + 0.5 * rng.standard_t(3, size=n)
    return X, y, u, bound


@pytest.mark.parametrize("law", LAWS)
def test_columns_are_found_whatever_the_law(law):
    """Errors of the mean relative to that of a constant, which is 1; hard thresholding by its step ends at 1e2 to 1e8
    on factors and counts."""
    X, y, u, bound = table(law)
    errors = {}
    for epsilon in (0.1, 1.0, 5.0):
        model = LinearRegression(
            **OPTIONS, epsilon=epsilon, feature_bound=bound, residual_bound=3.0, random_state=0
        ).fit(X, y)
        errors[epsilon] = np.mean((model.predict(X) - u) ** 2)
        assert np.count_nonzero(model.coef_) <= K and model.guarantee_.epsilon <= epsilon
    assert errors[0.1] < 1.1 and errors[1.0] < 0.3 and errors[5.0] < 0.05
    assert errors[5.0] < 1.2 * errors[1.0] < 1.44 * errors[0.1], "more epsilon is never worse"


@pytest.mark.parametrize("law", ("factors", "counts", "two scales"))
def test_classes_too_by_bounded_features_and_by_bounded_rows(law):
    X, y, u, bound = table(law, classes=True)
    y_signs = np.where(y > 0, 1, -1)
    constant = np.logaddexp(0, -y_signs * np.log(y.mean() / (1 - y.mean()))).mean()
    best = np.logaddexp(0, -y_signs * 2 * u).mean()
    long = float(np.quantile(np.linalg.norm(X, axis=1), 0.95))
    for stated in ({"feature_bound": bound}, {"row_norm": long}):
        model = LogisticRegression(classes=[0, 1], **OPTIONS, **stated, epsilon=3.0, random_state=0).fit(X, y)
        loss = np.logaddexp(0, -y_signs * model.decision_function(X)).mean()
        assert loss < best + 0.45 * (constant - best), stated


def test_noise_alone_is_not_taken_for_columns():
    """Labels that nothing explains: as good as the best constant, up to a hundredth of their variance."""
    X, _, _, bound = table("counts")
    y = 2.0 + np.random.default_rng(5).normal(size=N)
    for epsilon in (0.1, 1.0):
        model = LinearRegression(
            **OPTIONS, epsilon=epsilon, feature_bound=bound, residual_bound=4.0, random_state=1
        ).fit(X, y)
        assert np.mean((model.predict(X) - 2.0) ** 2) < 0.08


def test_without_noise_the_columns_and_least_squares_on_them_are_found():
    X, y, _, _ = table("blocks", n=3_000)
    options = {"residual_bound": 50.0, "feature_bound": 10.0, "random_state": 0, "fit_intercept": False}
    model = LinearRegression(**OPTIONS, epsilon=1e9, **options).fit(X, y - 1.0)
    kept = np.flatnonzero(model.coef_)
    short = X[:, kept] * np.minimum(1.0, 10.0)  # rows are scaled down with their labels: the same line, other weights
    direct = np.linalg.lstsq(short, y - 1.0, rcond=None)[0]
    assert len(kept) == K and np.linalg.norm(model.coef_[kept] - direct) < 0.15
    assert np.mean((X @ model.coef_ - y + 1.0) ** 2) < 1.02 * np.mean((short @ direct - y + 1.0) ** 2)


def test_what_is_asked_of_chosen_columns_is_that_of_the_rows_reduced_to_them():
    rng = np.random.default_rng(0)
    X, y = rng.standard_t(2, size=(PIECE + 9, 5)), rng.normal(size=PIECE + 9)
    X[3, 4], X[5, 0], y[6] = np.nan, np.inf, np.nan
    bad = ~np.isfinite(X).all(axis=1)
    part = np.where(bad[:, None], np.nan, X[:, [3, 1]])
    w = np.array([0.3, -0.2, 0.1])
    for mine, plain, state in (
        (ColumnGradientSum(pursuit.Huber(1.0), 2.0, 2.0, constant=0.5, columns=(3, 1)),
         ScaledGradientSum(pursuit.Huber(1.0), 2.0, 2.0, constant=0.5), w),
        (ColumnNormCounts(2.0, columns=(3, 1)), NormCounts(2.0), None),
    ):  # fmt: skip
        for chosen in (None, np.arange(0, len(X), 3)):
            whole = mine.summarise({"X": X, "y": y}, state, chosen)
            assert np.array_equal(whole, plain.summarise({"X": part, "y": y}, state, chosen))
        halves = [mine.summarise({"X": X[s], "y": y[s]}, state, None) for s in (slice(0, 77), slice(77, None))]
        assert np.array_equal(mine.summarise({"X": X, "y": y}, state, None), sum(halves))
    hessian = ColumnHessianSum(pursuit_loss(), 9.0, columns=(3, 1))
    signs = np.where(y > 0, 1.0, -1.0)
    found = unpack_symmetric(hessian.summarise({"X": X, "y": signs}, np.zeros(2), None) * hessian.grid)
    good = X[~bad][:, [3, 1]]
    good = good * np.minimum(1.0, 9.0 / np.linalg.norm(good, axis=1))[:, None]
    assert found == pytest.approx(good.T @ good / 4, rel=1e-3, abs=1.0)


def pursuit_loss():
    return LogisticRegression(classes=[0, 1])._loss()


def test_shares_add_up_and_meet_the_budget():
    for options in ({"feature_bound": 3.0}, {"row_norm": 1.0}):
        for n in (1_000, 10**6):
            model = LinearRegression(**OPTIONS, residual_bound=1.0, **options)
            lines = model._method_for(n, 50).lines()
            assert sum(line.share for line in lines) == pytest.approx(1.0)
            assert 0.98 < model.plan(n, 50).spent.epsilon <= 1.0


def test_how_often_columns_are_chosen_follows_from_public_numbers():
    def decided(n, **options):
        return LinearRegression(**OPTIONS, residual_bound=1.0, **options)._method_for(n, 50)

    assert decided(500, feature_bound=3.0).n_rounds == 1 and decided(10**6, feature_bound=3.0).n_rounds == 3
    assert decided(10**4, feature_bound=3.0).n_rounds == 2
    assert not decided(10**6, feature_bound=3.0).by_norm and decided(10**6, row_norm=1.0).by_norm
    assert not decided(10**6, row_norm=10.0, feature_bound=0.5).by_norm
    with pytest.warns(UserWarning, match="does not stand out of the noise"):
        X, y, _, bound = table("peaks", n=500)
        LinearRegression(**OPTIONS, residual_bound=1.0, feature_bound=bound, random_state=0).fit(X, y)
    assert decided(10**6, feature_bound=3.0).warnings() == ()


def test_what_was_stated_for_descents_is_theirs():
    def kind(**options):
        stated = {"feature_bound": 3.0, "residual_bound": 1.0, "delta": 1e-6, **options}
        return type(Minimizer("squared", **stated).decided(1_000, 20)).__name__

    assert kind(solver=HardThresholding(n_nonzero=3)) == "Pursuit"
    for options in ({"gradient": "residual"}, {"solver": HardThresholding(n_nonzero=3, step_size=0.1)}, {"delta": 0.0},
                    {"solver": HardThresholding(n_nonzero=3, start=[0.0] * 21)}, {"rows": "split"},
                    {"constraint": L2Ball(1.0)}):  # fmt: skip
        assert kind(**{"solver": HardThresholding(n_nonzero=3), **options}) == "PeelingDescent", options


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"n_nonzero": 99}, BudgetError, "n_nonzero=99 exceeds the number of features, 20"),
        ({"feature_bound": None}, MissingBound, "feature_bound is missing"),
        ({"residual_bound": None}, MissingBound, "residual_bound is missing"),
        ({"loss": "biweight"}, BudgetError, "and biweight is none of them"),
        ({"constraint": L2Ball(1.0)}, BudgetError, "leave out the constraint"),
        ({"delta": 0.0}, BudgetError, "delta > 0"),
        ({"rows": "sample"}, BudgetError, "rows='sample'"),
    ],
)
def test_what_is_refused(options, error, words):
    stated = {"n_nonzero": 3, "loss": "squared", "feature_bound": 1.0, "residual_bound": 1.0, "delta": 1e-6, **options}
    solver = HardThresholding(n_nonzero=stated.pop("n_nonzero"))
    with pytest.raises(error, match=words):
        Minimizer(solver=solver, gradient="scale-rows", **stated).plan(1_000, 20)


def test_the_answer_is_a_function_of_releases_and_public_numbers():
    X, y, _, bound = table("counts", n=4_000)
    model = LinearRegression(**OPTIONS, feature_bound=bound, residual_bound=3.0, random_state=3).fit(X, y)
    assert (model.solver_, model.gradient_, model.n_iter_) == ("iht", "scale-rows", 2)
    replayed = model._method_for(*X.shape).solve(Replay(model))
    assert np.array_equal(model.coef_, replayed["solutions"][0][:-1])
    assert model.expected_error_ == replayed["expected_error"] > 0


def test_a_run_that_ends_between_two_choices_goes_on_as_it_was(tmp_path):
    X, y, _, bound = table("peaks", n=4_000)
    named = Dataset.from_arrays(X=X, y=y, dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LinearRegression(
        **OPTIONS, feature_bound=bound, residual_bound=3.0, epsilon=3.0, run_id="monday", ledger=ledger
    )

    def stop() -> None:
        raise KeyboardInterrupt

    for reached in (2, 6):  # after the first choice; after the second
        with pytest.raises(KeyboardInterrupt), at_release(reached, stop):
            model.fit(named)
    before = on_file(tmp_path / "ledger.sqlite")
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert sum(replayed) == len(before) and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(3.0)


def test_wild_numbers_change_nothing_visible():
    X, y, _, bound = table("counts", n=3_000)
    options = {**OPTIONS, "feature_bound": bound, "residual_bound": 3.0, "random_state": 0}
    model = LinearRegression(**options).fit(X, y)
    for wild in (np.nan, np.inf, -1e308, 5e-324):
        other, labels = X.copy(), y.copy()
        other[7] = labels[8] = wild
        again = LinearRegression(**options).fit(other, labels)
        assert again.plan_ == model.plan_ and again.n_iter_ == model.n_iter_
        assert np.isfinite(again.coef_).all() and np.abs(again.predict(X)).max() < 100


def test_several_rows_of_a_unit_pay_for_all_of_them():
    units = Units("patient", 4, grouped=True)
    model = LinearRegression(**OPTIONS, feature_bound=3.0, residual_bound=1.0)
    assert model.plan(40_000, 9, units) == model.plan(10_000, 9)
    assert model.sensitivities(40_000, 9, units)["columns 1"] == pytest.approx(
        4 * model.sensitivities(10_000, 9)["columns 1"]
    )


def test_several_classes_have_columns_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 30))
    y = np.argmax(X[:, :3] + 0.3 * rng.normal(size=(30_000, 3)), axis=1)
    solver = HardThresholding(n_nonzero=3)
    model = LogisticRegression(
        classes=[0, 1, 2], solver=solver, feature_bound=3.0, epsilon=2.0, delta=1e-6, random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.8 and (np.count_nonzero(model.coef_, axis=1) <= 3).all()


def one_column() -> tuple[Any, Any]:
    """A row that alone has a column and a label of any size, and other ones in its place."""
    X, y = np.zeros((2, 40, 2)), np.zeros((2, 40))
    X[0, 0], X[1, 0], y[:, 0] = (1e6, 0), (0, 1e6), (1e12, -1e12)
    return X, y


def one_label() -> tuple[Any, Any]:
    """A row that alone has both columns, whichever is chosen, and a label of any size, or the opposite."""
    X, y = np.zeros((2, 40, 2)), np.zeros((2, 40))
    X[:, 0], y[:, 0] = 1e6, (1e12, -1e12)
    return X, y


def audit(pair: Any) -> float:
    """How many times the claimed mu is found."""
    X, y = pair()

    def seen(side: int) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LinearRegression(
                solver=HardThresholding(n_nonzero=1), feature_bound=1.0, residual_bound=1.0, epsilon=2.0, delta=0.01,
                fit_intercept=False,
            ).fit(X[side], y[side])  # fmt: skip
        choice, _, _, *gradients = (release.value for release in model.releases_)
        return float(-np.sign(choice).sum() / 2 - sum(g.sum() for g in gradients) / 20)

    found = audit_two_point(lambda: seen(0), lambda: seen(1), 110, 0.01, 1 - 1e-6)
    assert found.mu_lower is not None
    return found.mu_lower / gdp_mu(2.0, 0.01)


@pytest.mark.parametrize("pair", [one_column, one_label])
def test_a_fit_is_as_private_as_claimed(pair):
    assert audit(pair) <= 1


def test_a_gradient_that_is_not_bounded_is_caught(monkeypatch):
    summarise = ColumnGradientSum.summarise
    monkeypatch.setattr(ColumnGradientSum, "summarise", lambda self, *rest: 200 * summarise(self, *rest))
    assert audit(one_label) > 1


def test_it_says_what_it_is():
    method = LinearRegression(**OPTIONS, feature_bound=3.0, residual_bound=1.0)._method_for(10**5, 40)
    assert isinstance(method, Pursuit) and method.reason == "as asked for"
    near, far = (
        LinearRegression(**OPTIONS, feature_bound=3.0, residual_bound=1.0).outlook(n, 40).predicted_error
        for n in (10**4, 10**6)
    )
    assert 0 < far < near / 20

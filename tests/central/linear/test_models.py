"""What the estimators do with their parameters, end to end."""

from __future__ import annotations

import math
import re
import warnings

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import minimize

from dpdist import Budget, Dataset, Ledger, LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import AcceleratedGradient, ClipNorm, GradientDescent, Sample
from dpdist.central.linear.gradient_descent import MAX_FEATURES_FOR_SMOOTHNESS
from dpdist.constraints import Box, ElasticNet, L1Ball, L2Ball, Simplex
from dpdist.errors import BudgetError, DataError, MissingBound
from dpdist.losses import Huber
from dpdist.problems.linear_problems import linear, logit, multiclass
from tests.central.linear.objects import objects

BASE = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "random_state": 0, "cluster": "threads"}
PRECISE = {**BASE, "epsilon": 1e4, "solver": AcceleratedGradient(n_rounds=60)}


@pytest.fixture(scope="module")
def rows():
    data, _ = logit(20_000, 5, random_state=3)
    return data.read(0, data.n_rows)


@pytest.fixture(scope="module")
def classes4():
    data, truth = multiclass(100_000, 10, 4, random_state=0)
    return data, data.read(0, data.n_rows), truth


def logistic(**options):
    return LogisticRegression(**{"classes": [0, 1], **BASE, **objects(**{"n_rounds": 4, **options})})


def bits(model):
    return np.concatenate([r.value for r in model.releases_])


def names(model):
    return [r.name for r in model.releases_]


# -- more than two classes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_one_against_the_rest_divides_the_budget(classes4, kind):
    data, rows, truth = classes4
    model = kind(classes=range(4), solver="gradient", **BASE).fit(data)
    n_rounds = model.n_iter_
    assert model.plan_["gradient"].count == 4 * n_rounds == len(model.history_)
    assert names(model) == ["smoothness"] + ["gradient"] * 4 * n_rounds
    assert model.guarantee_.n_releases == 1 + 4 * n_rounds
    assert (model.guarantee_.epsilon, model.guarantee_.delta) <= (1.0, 1e-6)
    # the mu of one problem's gradients is half of what it would be alone
    alone = kind(classes=range(2), solver=GradientDescent(n_rounds), **BASE).plan(data.n_rows, 10)
    ratio = model.plan_["gradient"].mechanism.strength / alone["gradient"].mechanism.strength
    assert ratio == pytest.approx(1 / 2, rel=1e-6)

    best = np.mean(np.argmax(rows["X"] @ truth.T, axis=1) == rows["y"])
    assert best - 0.02 < model.score(rows["X"], rows["y"]) <= best + 0.005
    assert model.coef_.shape == (4, 10) and model.intercept_.shape == (4,)
    assert model.decision_function(rows["X"]).shape == (data.n_rows, 4)


def test_probabilities_sum_to_one(classes4, rows):
    data, four, _ = classes4
    for model, X in ((logistic(classes=range(4)).fit(data), four["X"]), (logistic().fit(**rows), rows["X"])):
        for scale in (1.0, 1e4):  # large scores, where every probability but one rounds to 0
            p = model.predict_proba(scale * X[:1000])
            assert p.min() >= 0 and np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
            assert np.isfinite(model.predict_log_proba(scale * X[:1000])).all()
        likely = model.classes_[np.argmax(model.predict_proba(X), axis=1)]
        assert np.array_equal(likely, model.predict(X))


def test_labels_keep_their_names_and_order(rows):
    words = np.where(rows["y"] == 1, "b", "a")
    model = logistic(classes=["b", "a"]).fit(rows["X"], words)
    assert model.classes_.tolist() == ["b", "a"]
    opposite = logistic(classes=["a", "b"]).fit(rows["X"], words)
    assert np.array_equal(opposite.coef_, logistic().fit(**rows).coef_)
    assert np.mean(model.predict(rows["X"]) == opposite.predict(rows["X"])) > 0.95  # other noise, same labels


def test_undeclared_labels_count_as_empty_rows(rows):
    y = rows["y"].copy()
    y[:100] = 7
    empty = rows["X"].copy()
    empty[:100] = np.nan
    assert np.array_equal(
        bits(logistic(step_size=1.0).fit(rows["X"], y)), bits(logistic(step_size=1.0).fit(empty, rows["y"]))
    )


# -- where rows come from ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"rows": Sample(0.1)}], ids=["all", "sample"])
def test_arrays_dask_and_partitions_give_the_same_bits(rows, options):
    reference = bits(logistic(**options).fit(**rows))
    chunked = {name: da.from_array(array, chunks=(3000, *array.shape[1:])) for name, array in rows.items()}
    assert np.array_equal(bits(logistic(**options).fit(**chunked)), reference)
    for partition_rows in (999, 4096, 20_000):
        dataset = Dataset.from_arrays(partition_rows=partition_rows, **rows)
        assert np.array_equal(bits(logistic(**options).fit(dataset)), reference)


def test_single_precision_rows_are_used_as_they_are(rows):
    X = rows["X"].astype(np.float32)
    model = logistic().fit(X, rows["y"])
    assert np.array_equal(bits(model), bits(logistic().fit(X.astype(np.float64), rows["y"])))
    assert model.coef_.dtype == np.float64
    halves, integers, booleans = X.astype(np.float16), (10 * X).astype(np.int16), X > 0
    for array in (halves, integers, booleans):
        same = logistic().fit(array.astype(np.float64), rows["y"])
        assert np.array_equal(bits(logistic().fit(array, rows["y"])), bits(same))


# -- the guarantee ----------------------------------------------------------------------------------------------------


def test_add_or_remove_one(rows):
    dataset = Dataset.from_arrays(**rows)
    options = {**BASE, "random_state": None, "neighbours": "add-or-remove-one", "n_public": 15_000}
    options["solver"] = "gradient"
    model = LogisticRegression(classes=[0, 1], ledger=Ledger(":memory:"), **options).fit(dataset)
    text = model.guarantee_.text
    assert text.startswith("Adding or removing all data of any one row changes the probability of any outcome")
    assert "e^1 = 2.718, up to 1e-06" in text and not model.guarantee_.simulation
    assert model.score(**rows) > 0.75
    # one sum factor instead of two, and nothing follows the true number of rows
    assert model.releases_[1].sensitivity == pytest.approx(math.hypot(1, 1 / math.sqrt(5)))
    assert model.plan_ == model.plan(123, 5)
    fewer = LogisticRegression(classes=[0, 1], ledger=Ledger(":memory:"), **options)
    fewer.fit(rows["X"][:-1], rows["y"][:-1])
    assert fewer.plan_ == model.plan_
    assert [r.noise_std for r in fewer.releases_] == [r.noise_std for r in model.releases_]
    assert [r.sensitivity for r in fewer.releases_] == [r.sensitivity for r in model.releases_]


def test_replace_one_is_the_default_and_a_seed_is_a_simulation(rows):
    assert "This is a simulation" in logistic().fit(**rows).guarantee_.text
    model = logistic(random_state=None).fit(**rows)
    assert model.guarantee_.text.startswith("Replacing all data of any one row by any other changes")
    assert not np.array_equal(bits(model), bits(logistic(random_state=None).fit(**rows)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_size": 1.0},
        {"n_rounds": None, "solver": "gradient"},
        {"n_rounds": None, "solver": "accelerated"},
        {"rows": "sample", "n_rounds": 20},
        {"neighbours": "add-or-remove-one", "n_public": 1000},
        {"n_public": 30_000, "n_rounds": None, "solver": "gradient"},
        {"classes": [0, 1, 2]},
    ],
    ids=str,
)
def test_the_plan_can_be_had_before_the_data(rows, options):
    model = logistic(**options)
    plan = model.plan(*rows["X"].shape)
    assert plan == model.fit(**rows).plan_
    assert model.guarantee_.n_releases == len(model.releases_) == plan.n_releases
    assert plan.spent.epsilon <= 1.0 and plan.spent.delta <= 1e-6
    assert len(model.history_) == plan["gradient"].count == names(model).count("gradient")


def test_what_was_spent_is_what_was_asked(rows):
    ledger = Ledger(":memory:")
    dataset = Dataset.from_arrays(**rows)
    ledger.set_limit(dataset.id, Budget(2.0, 1e-5))
    logistic(ledger=ledger).fit(dataset)
    (run,) = ledger.history(dataset.id)
    assert run.epsilon == pytest.approx(1.0, rel=1e-6) and run.delta == 1e-6
    assert [r.name for r in run.releases] == ["smoothness"] + ["gradient"] * 4


# -- step sizes -------------------------------------------------------------------------------------------------------


def test_a_given_step_size_saves_the_release_of_the_smoothness(rows):
    assert names(logistic().fit(**rows)) == ["smoothness"] + ["gradient"] * 4
    model = logistic(step_size=2.0).fit(**rows)
    assert names(model) == ["gradient"] * 4
    # the first step is the given one: history holds where gradients were asked, releases what came back
    step = model.history_[1] / -(model.releases_[0].value / len(rows["y"]))
    assert np.allclose(step[:5], 2.0 / (1 + 2.0 * 1e-4)) and step[5] == pytest.approx(2.0)


def test_wide_data_goes_without_the_smoothness():
    wide = np.random.default_rng(0).normal(size=(50, MAX_FEATURES_FOR_SMOOTHNESS + 1)) / 50
    y = np.arange(50) % 2
    assert names(logistic(n_rounds=2).fit(wide, y)) == ["gradient"] * 2
    assert names(logistic(n_rounds=2).fit(wide[:, :50], y)) == ["smoothness"] + ["gradient"] * 2


# -- what is fitted ---------------------------------------------------------------------------------------------------


def test_the_intercept_is_learned(rows):
    rng = np.random.default_rng(5)
    X = rows["X"]
    y = (X @ [1.0, 0, 0, 0, -1.0] + 1.5 + 0.3 * rng.logistic(size=len(X)) > 0).astype(int)
    with_one, without = (logistic(fit_intercept=f, n_rounds=40).fit(X, y) for f in (True, False))
    assert with_one.intercept_[0] > 1 and without.intercept_[0] == 0
    assert with_one.score(X, y) > without.score(X, y) + 0.1
    assert len(with_one.history_[0]) == 6 and len(without.history_[0]) == 5
    target = X @ [1.0, 0, 0, 0, -1.0] + 0.7
    model = LinearRegression(loss="huber", **BASE).fit(X, target)
    assert model.intercept_ == pytest.approx(0.7, abs=0.1)
    assert isinstance(model.intercept_, float) and model.coef_.shape == (5,)


@pytest.mark.parametrize("noise", ["gaussian", "t3"])
def test_linear_regression(noise):
    data, truth = linear(50_000, 10, noise=noise, random_state=2)
    rows = data.read(0, data.n_rows)
    for options in ({"loss": "huber"}, {"loss": Huber(0.5)}, {"gradient": ClipNorm(2.0)}):
        model = LinearRegression(**options, **BASE).fit(data)
        assert np.linalg.norm(model.coef_ - truth) < 0.2
        assert model.score(rows["X"], rows["y"]) > 0.8


def test_large_budgets_find_the_minimum(rows):
    """Every loss against a general-purpose optimiser."""
    X, signs = rows["X"], 2.0 * rows["y"] - 1
    models = [
        (LogisticRegression(classes=[0, 1], alpha=0.01, **PRECISE), rows["y"]),
        (LinearSVC(classes=[0, 1], alpha=0.01, **PRECISE), rows["y"]),
        (LinearRegression(loss="huber", alpha=0.01, **PRECISE), signs),
        (LinearRegression(gradient=ClipNorm(5.0), alpha=0.01, **PRECISE), signs),
        (Minimizer("smoothed-hinge", ElasticNet(0.01), **PRECISE), signs),
    ]
    for model, y in models:
        model.fit(X, y)
        loss = model._loss()

        def objective(v, loss=loss):
            return loss.value(X @ v[:5] + v[5], signs).mean() + 0.005 * v[:5] @ v[:5]

        found = objective(np.append(model.coef_, model.intercept_))
        best = minimize(objective, np.zeros(6), method="BFGS").fun
        assert best - 1e-9 < found < best + 1e-4


@pytest.mark.parametrize(
    ("constraint", "size"),
    [
        (L2Ball(0.5), lambda w: np.linalg.norm(w) - 0.5),
        (L1Ball(0.5), lambda w: np.abs(w).sum() - 0.5),
        (Box(-0.1, 0.2), lambda w: max(-0.1 - w.min(), w.max() - 0.2)),
        (Simplex(), lambda w: max(-w.min(), abs(w.sum() - 1))),
    ],
    ids=lambda v: type(v).__name__ if not callable(v) else "",
)
def test_constraints_hold(rows, constraint, size):
    model = logistic(constraint=constraint, n_rounds=20).fit(**rows)
    assert -0.01 < size(model.coef_[0]) < 1e-12  # reached, as the unconstrained solution lies outside
    sampled = logistic(constraint=constraint, n_rounds=20, rows=Sample(0.1)).fit(**rows)
    assert size(sampled.coef_[0]) < 1e-12  # a mean of points of a convex set


def test_the_l1_penalty_gives_zeros(rows):
    X = np.column_stack([rows["X"], 0.3 * np.random.default_rng(0).normal(size=(20_000, 15)) / 4])
    lasso = logistic(alpha=0.05, l1_ratio=1.0, n_rounds=20).fit(X, rows["y"])
    ridge = logistic(alpha=0.05, n_rounds=20).fit(X, rows["y"])
    assert np.count_nonzero(lasso.coef_) < 6 and np.all(lasso.coef_[0, 5:] == 0)
    assert np.count_nonzero(lasso.coef_) > 0 and np.count_nonzero(ridge.coef_) == 20


def test_solvers_and_combinations(rows):
    auto, gradient = (logistic(solver=solver, n_rounds=None).fit(**rows) for solver in ("auto", "newton"))
    assert auto.solver_ == "newton" and np.array_equal(auto.coef_, gradient.coef_)
    assert logistic(solver="accelerated").fit(**rows).solver_ == "accelerated"
    last, mean = (logistic(combine=c).fit(**rows) for c in ("last", "tail-average"))
    assert np.array_equal(bits(last), bits(mean))
    # iterates 3 and 4; of 4 the last gradient is not asked, so it is twice the mean minus iterate 3
    assert np.allclose(2 * mean.coef_[0] - mean.history_[3][:5], last.coef_[0])


def test_clipping_is_applied(rows):
    """Rows of norm 1 clipped to 0.1: the same as rows divided by ten, and a tighter clip_norm means less noise."""
    model = logistic(row_norm=0.1).fit(**rows)
    shrunk = logistic(row_norm=0.1).fit(0.1 * rows["X"], rows["y"])
    assert np.allclose(bits(model)[1:], bits(shrunk)[1:], rtol=1e-9, atol=1e-7)
    clipped = logistic(clip_norm=0.2).fit(**rows)
    assert clipped.releases_[1].sensitivity == 0.4
    assert clipped.releases_[1].noise_std < logistic().fit(**rows).releases_[1].noise_std / 5


# -- what is printed and warned ---------------------------------------------------------------------------------------


def test_the_log_tells_counts_and_names_only(rows, caplog, capsys):
    with caplog.at_level("INFO", logger="dpdist"):
        logistic().fit(**rows)
    expected = [f"release {i} of 5: {'smoothness' if i == 1 else 'gradient'}" for i in range(1, 6)]
    assert caplog.messages == expected and capsys.readouterr() == ("", "")


def test_a_fit_warns_of_nothing_and_a_large_delta_once(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logistic(solver="newton").fit(**rows)
    with pytest.warns(UserWarning) as caught:
        logistic(solver="newton", delta=1e-3).fit(**rows)
    assert [(w.category, w.filename) for w in caught] == [(UserWarning, __file__)]
    assert re.match("delta = 0.001 is not below 1/n_rows = 5e-05", str(caught[0].message))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n_public": -5}, BudgetError, "n_public must be a whole number"),
        ({"step_size": 0.0}, MissingBound, "step_size must be a positive"),
        ({"classes": [0, 0]}, MissingBound, "different labels"),
        ({"classes": ["a", "b"]}, DataError, "no label could ever match"),
        ({"ledger": ":memory:"}, BudgetError, "would forget"),
    ],
    ids=lambda v: str(v) if isinstance(v, dict) else "",
)
def test_refusals(rows, options, error, match):
    with pytest.raises(error, match=match):
        logistic(**options).fit(**rows)

"""Newton steps and sufficient statistics: how good they are, what they see, what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.linear_model
from scipy.special import expit
from sklearn.base import clone

from dpdist import Dataset, Ledger, LinearRegression, LogisticRegression, Minimizer
from dpdist.central import ClipLabel, ClipNorm, Newton, SufficientStatistics
from dpdist.central.linear.newton import mean_label
from dpdist.constraints import ElasticNet, L2Ball
from dpdist.data import Units
from dpdist.errors import BudgetError, MissingBound
from dpdist.privacy.mechanisms.norms import FROBENIUS
from tests.faults.jobs import at_release, on_file

SIGNS = {"classes": [-1, 1], "delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}
REALS = {"delta": 1e-6, "row_norm": 1.0, "gradient": ClipLabel(1.0), "cluster": "threads"}
CLIPPED = {**REALS, "gradient": ClipNorm(1.0)}


def table(law, n=20_000, d=8, seed=0):
    """Rows of laws that no constant of the methods was chosen on."""
    rng = np.random.default_rng(seed)
    if law == "factors":  # few common causes
        X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + 0.3 * rng.normal(size=(n, d))
    elif law == "counts":  # skewed, not centred, mostly 0
        X = rng.poisson(rng.uniform(0.1, 2.0, d), (n, d)).astype(float)
    else:  # heavy tails, unequal scales
        X = rng.standard_t(4, size=(n, d)) * np.geomspace(1.0, 0.1, d)
    X = X / np.quantile(np.linalg.norm(X, axis=1), 0.9)
    X = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    w = rng.normal(size=d)
    margin = (X - X.mean(axis=0)) @ w
    return X, margin / margin.std(), rng


def classes(law, **size):
    X, margin, rng = table(law, **size)
    margin = 1.8 * margin - 0.7
    return X, np.where(rng.random(len(X)) < expit(margin), 1, -1), margin


def numbers(law, **size):
    X, margin, rng = table(law, **size)
    return X, np.clip(0.2 * margin + 0.1 + 0.1 * rng.laplace(size=len(X)), -1, 1)


def log_loss(model, X, y):
    return np.logaddexp(0, -y * model.decision_function(X)).mean()


@pytest.mark.parametrize("law", ["factors", "counts", "tails"])
def test_the_default_beats_plain_descent_and_a_constant_and_gets_better_with_epsilon(law):
    X, y, margin = classes(law)
    best = np.logaddexp(0, -y * margin).mean()
    share = np.mean(y == 1)
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share)) - best
    errors = {}
    for epsilon in (0.1, 0.5, 2.0):
        fits = [LogisticRegression(epsilon=epsilon, random_state=s, **SIGNS).fit(X, y) for s in range(4)]
        assert epsilon < 0.5 or all(fit.solver_ == "newton" for fit in fits)
        errors[epsilon] = np.mean([log_loss(fit, X, y) for fit in fits]) - best
    plain = LogisticRegression(epsilon=2.0, random_state=0, solver="gradient", **SIGNS).fit(X, y)
    assert errors[2.0] < errors[0.5] < errors[0.1] < constant
    assert errors[2.0] < 0.03 * constant and errors[2.0] < 0.3 * (log_loss(plain, X, y) - best)


def test_rows_in_two_heaps_are_told_apart():
    """Nearly all rows have no curvature left at such margins: by the last Hessian all gradients together may say next
    to nothing (in one fit of three), and the end of the loop has to stand."""
    losses = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.choice([-1, 1], size=13_000)
        X = 0.12 * rng.normal(size=(13_000, 10)) + 0.2 * y[:, None] * np.tile([1.0, -1.0], 5)
        fit = LogisticRegression(epsilon=10.0, random_state=seed, **{**SIGNS, "row_norm": 1.3}).fit(X, y)
        assert fit.solver_ == "newton"
        losses.append(log_loss(fit, X, y))
    assert max(losses) < 0.01


@pytest.mark.parametrize("solver", ["newton", "gradient", "objective"])
def test_a_bound_three_times_too_small_costs_little_as_long_rows_are_weighed_or_bounded_in_predictions_too(solver):
    X, y, margin = classes("counts")
    best = np.logaddexp(0, -y * margin).mean()
    share = np.mean(y == 1)
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share)) - best
    fits = [LogisticRegression(epsilon=2.0, random_state=s, **SIGNS, solver=solver).fit(3 * X, y) for s in range(3)]
    assert fits[0].clipped_to_ == (None if solver == "newton" else 1.0)
    assert np.mean([log_loss(fit, 3 * X, y) for fit in fits]) - best < (0.02 if solver == "newton" else 0.5) * constant


@pytest.mark.parametrize("law", ["counts", "tails", "factors"])
def test_rows_of_which_most_are_longer_than_their_bound_do_not_bias_the_fit(law):
    """Shortened rows would: what is lost to them here is .003 to .02, whatever the budget."""
    X, y, _ = classes(law, n=60_000)
    X = X / np.median(np.linalg.norm(X, axis=1))
    optimum = sklearn.linear_model.LogisticRegression(C=1e6, max_iter=500).fit(X, y)
    model = LogisticRegression(epsilon=10.0, random_state=0, **SIGNS).fit(X, y)
    assert log_loss(model, X, y) - log_loss(optimum, X, y) < 5e-4


def test_labels_and_rows_beyond_their_bounds_leave_least_squares_better_than_a_constant():
    X, y = numbers("counts")
    fits = [LinearRegression(epsilon=1.0, random_state=s, **REALS).fit(3 * X, y) for s in range(3)]
    assert np.mean([np.mean((y - fit.predict(3 * X)) ** 2) for fit in fits]) < 0.7 * np.var(y)


@pytest.mark.parametrize("law", ["factors", "counts", "tails"])
def test_least_squares_is_near_the_fit_without_privacy(law):
    X, y = numbers(law)
    Z = np.column_stack([X, np.ones(len(X))])
    best = np.mean((y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]) ** 2)
    errors = {}
    for epsilon in (0.3, 1.0, 5.0):
        fits = [LinearRegression(epsilon=epsilon, random_state=s, **REALS).fit(X, y) for s in range(4)]
        assert all(fit.solver_ == "sufficient-statistics" for fit in fits)
        errors[epsilon] = np.mean([np.mean((y - fit.predict(X)) ** 2) for fit in fits]) / best
    assert errors[5.0] < errors[1.0] < errors[0.3] < np.var(y) / best
    assert errors[1.0] < 1.05 and errors[5.0] < 1.005


def test_least_squares_of_rows_that_are_far_shorter_than_their_bound_lose_little():
    X, y = numbers("counts", n=10_000)
    left = []
    for scale in (1.0, 0.2):
        fits = [LinearRegression(epsilon=0.5, random_state=s, **REALS).fit(scale * X, y) for s in range(4)]
        assert [release.name for release in fits[0].releases_] == ["row norms", "labels", "second moment", "gradient"]
        left.append(np.mean([np.var(y - fit.predict(scale * X)) for fit in fits]))
    assert left[1] < 1.1 * left[0] < 0.8 * np.var(y)


def test_labels_of_rows_beyond_their_bound_are_counted_as_they_are():
    """Long rows are scaled down with their labels, and labels are cut before that."""
    X, y = numbers("counts", n=10_000)
    left, longer = [], 4 * X
    for scale in (1.0, 4.0):
        bounds = {**REALS, "row_norm": REALS["row_norm"] * scale}
        fits = [LinearRegression(epsilon=0.5, random_state=s, **bounds).fit(longer, y) for s in range(4)]
        method = fits[0]._method_for(*X.shape)
        counted = method._labels.summarise({"X": longer, "y": y}, np.zeros(X.shape[1]), None)
        sizes = np.abs(y)
        assert counted[1] == np.sum((sizes > method._bounds[1] / 2) & (sizes <= method._bounds[1]))
        left.append(np.mean([np.var(y - fit.predict(longer)) for fit in fits]))
    assert left[0] < 1.5 * left[1]


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_where_data_are_scarce_steps_stay_at_the_best_constant(share):
    X, _, rng = table("factors", n=5_000, d=20)
    y = np.where(rng.random(5_000) < share, 1, -1)
    share = np.mean(y == 1)
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    fits = [LogisticRegression(epsilon=0.05, random_state=s, **SIGNS).fit(X, y) for s in range(6)]
    assert np.mean([log_loss(fit, X, y) for fit in fits]) < constant + 0.05


def test_a_rare_class_stays_rare_where_rows_are_longer_than_their_bound():
    """Weighed rows do not tell its share: their weights add up to fewer than there are."""
    rng = np.random.default_rng(5)
    X = rng.laplace(size=(10_000, 6)) / 2
    y = np.where(rng.random(10_000) < 0.04, 1, -1)
    assert np.mean(np.minimum(1, 1 / np.linalg.norm(X, axis=1)) ** 2) < 0.7
    for seed in range(3):
        fit = LogisticRegression(epsilon=0.3, random_state=seed, **SIGNS).fit(X, y)
        assert [release.name for release in fit.releases_][:2] == ["second moment", "classes"]
        assert abs(expit(fit.decision_function(X)).mean() - 0.04) < 0.02


@pytest.mark.parametrize("target", [None, 0, 3])
def test_counts_of_classes_tell_their_mean_and_its_noise(target):
    """Also where a third of the rows has no class; all classes cost as much as two."""
    rng, shares = np.random.default_rng(0), np.array([0.7, 0.3] if target is None else [0.5, 0.2, 0.2, 0.1])
    problem = SimpleNamespace(n_rows=1000)
    for there in (1.0, 0.67):
        found = []
        for _ in range(2000):
            released = 1000 * there * shares + 10 * rng.normal(size=len(shares))
            oracle = SimpleNamespace(once=lambda name, find: find(), ask=lambda name, r=released: r, noise_std=10.0)
            found.append(mean_label(problem, oracle, target))
        values = np.array([each.value[0] for each in found])
        assert abs(values.mean() - (2 * shares[1 if target is None else target] - 1)) < 0.1 * (1 - there) + 0.01
        assert there < 1 or values.std() == pytest.approx(found[0].std, rel=0.2)


def test_where_data_are_scarce_least_squares_stays_near_the_mean_of_the_labels():
    X, _, rng = table("factors", n=5_000, d=20)
    y = np.clip(0.4 + 0.2 * rng.normal(size=5_000), -1, 1)
    fits = [LinearRegression(epsilon=0.05, random_state=s, **REALS).fit(X, y) for s in range(6)]
    assert np.mean([np.mean((y - fit.predict(X)) ** 2) for fit in fits]) < 1.3 * np.var(y)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_error_that_is_stated_after_the_fit_is_the_error_there_is(epsilon):
    X, y, _ = classes("tails", n=30_000)
    optimum = sklearn.linear_model.LogisticRegression(C=1e6, max_iter=500).fit(X, y)
    best = log_loss(optimum, X, y)
    fits = [LogisticRegression(epsilon=epsilon, random_state=s, **SIGNS).fit(X, y) for s in range(8)]
    measured = np.mean([log_loss(fit, X, y) - best for fit in fits])
    assert 1 / 3 < np.mean([fit.expected_error_ for fit in fits]) / measured < 3


def test_the_first_gradient_costs_a_quarter_and_matrices_are_measured_as_matrices():
    model = LogisticRegression(epsilon=3.0, **SIGNS)
    found = model.sensitivities(50_000, 6)
    radius = 1 + 1 / 6
    assert found["gradient 1"] == pytest.approx(found["gradient 2"] / 2)
    assert found["second moment"] == found["hessian"] == pytest.approx(np.sqrt(2) * radius / 4)
    method = model._method_for(50_000, 6)
    assert all(line.mechanism.norm == FROBENIUS for line in method.lines() if line.name in ("second moment", "hessian"))
    assert sum(line.share for line in method.lines()) == pytest.approx(1.0)


class Replay:
    """An oracle that answers with what another run released."""

    def __init__(self, model):
        self.answers, self.asked, self.noise_std = iter(model.releases_), [], 0.0
        self.found, self.plan = {}, model.plan_

    def once(self, name, find):
        if name not in self.found:
            self.found[name] = find()
        return self.found[name]

    def ask(self, name, state=None, query=None):
        release = next(self.answers)
        assert release.name == name
        self.asked.append(state)
        self.noise_std = release.noise_std
        return release.value

    def visit(self, point):
        return point


@pytest.mark.parametrize("epsilon", [0.03, 1.0])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_the_answer_is_a_function_of_releases_and_public_numbers(kind, epsilon):
    """The method sees no rows: the same releases give the same answer to the last bit."""
    X, y, _ = classes("counts", n=5_000)
    options = SIGNS if kind is LogisticRegression else REALS
    model = kind(epsilon=epsilon, random_state=3, **options).fit(X, y)
    method = model._method_for(*X.shape)
    replayed = method.solve(Replay(model))
    w = replayed["solutions"][0]
    assert np.array_equal(np.ravel(model.coef_), w[:-1])
    assert kind is not LogisticRegression or not np.any(model.history_[0])  # and no point is changed afterwards
    assert model.expected_error_ == replayed["expected_error"]


def test_a_run_that_ends_between_a_hessian_and_its_gradient_goes_on_as_it_was(tmp_path):
    X, y, _ = classes("factors", n=20_000, d=4)
    named = Dataset.from_arrays(X=X, y=y, dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LogisticRegression(epsilon=3.0, **SIGNS, run_id="monday", ledger=ledger)
    assert [r.name for r in model.plan(20_000, 4).items][:2] == ["second moment", "hessian"]

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_release(3, stop):  # second moment, gradient 1, hessian
        model.fit(named)
    before = on_file(tmp_path / "ledger.sqlite")
    assert len(before) == 3
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert [release.name for release in model.releases_][:4] == ["second moment", "gradient 1", "hessian", "gradient 2"]
    assert replayed[:4] == [True] * 3 + [False] and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(3.0)


def test_classes_share_one_second_moment():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 4)) / 3
    y = np.argmax(X @ rng.normal(size=(4, 3)) * 4 + rng.gumbel(size=(30_000, 3)), axis=1)
    model = LogisticRegression(classes=[0, 1, 2], epsilon=2.0, delta=1e-6, row_norm=1.0, random_state=0).fit(X, y)
    counts = {item.name: item.count for item in model.plan_.items}
    assert counts["second moment"] == 1 and counts["gradient 1"] == 3
    assert model.score(X, y) > 0.9 * np.mean(y == np.argmax(X @ model.coef_.T, axis=1)) > 0.5


def test_a_null_row_and_wild_numbers_change_nothing_visible():
    X, y, _ = classes("tails", n=3_000)
    model = LogisticRegression(epsilon=1.0, random_state=0, **SIGNS)
    plan = model.fit(X, y).plan_
    for wild in (np.nan, np.inf, -1e308, 5e-324):
        other = X.copy()
        other[7] = wild
        again = LogisticRegression(epsilon=1.0, random_state=0, **SIGNS).fit(other, y)
        assert again.plan_ == plan and again.solver_reason_ == model.solver_reason_ and again.n_iter_ == model.n_iter_
        assert np.isfinite(again.coef_).all()


@pytest.mark.parametrize("hessians", [False, True])
def test_rows_with_a_label_that_is_no_class_count_as_little_as_empty_ones(hessians):
    X, y, _ = classes("counts", n=3_000)
    other = np.arange(3_000) % 3 == 0
    model = Minimizer(
        "logistic", epsilon=1.0, delta=1e-6, row_norm=1.0, solver=Newton(hessians=hessians), random_state=0
    )
    labelled = clone(model).fit(X, np.where(other, 7, y))
    empty = clone(model).fit(np.where(other[:, None], np.nan, X), y)
    assert all(np.array_equal(a.value, b.value) for a, b in zip(labelled.releases_, empty.releases_, strict=True))
    assert np.array_equal(labelled.coef_, empty.coef_)


def test_one_hot_columns_that_add_up_to_the_constant_work():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 5, 20_000)
    X = np.eye(5)[group]
    y = np.where(rng.random(20_000) < np.array([0.1, 0.3, 0.5, 0.7, 0.9])[group], 1, -1)
    model = LogisticRegression(epsilon=1.0, random_state=0, **SIGNS).fit(X, y)
    assert expit(model.decision_function(np.eye(5))) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.05)


def test_several_rows_of_a_unit_pay_for_all_of_them():
    units = Units("patient", 4, grouped=True)
    model = LogisticRegression(epsilon=1.0, **SIGNS)
    assert model.plan(40_000, 5, units) == model.plan(10_000, 5)
    four, one = model.sensitivities(40_000, 5, units), model.sensitivities(10_000, 5)
    assert {name: value / one[name] for name, value in four.items()} == pytest.approx(dict.fromkeys(one, 4))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (LogisticRegression(epsilon=1.0, **SIGNS, solver="newton", constraint=L2Ball(1.0)), "leave out the constraint"),
        (LogisticRegression(epsilon=1.0, **SIGNS, solver="newton", alpha=0.1, l1_ratio=0.5), "l1_ratio=0"),
        (LogisticRegression(epsilon=1.0, **SIGNS, solver="newton", rows="sample"), "rows='sample'"),
        (Minimizer("squared", solver="newton", epsilon=1.0, delta=1e-6, row_norm=1.0), "two classes"),
        (Minimizer("logistic", solver="sufficient-statistics", epsilon=1.0, **REALS), "squared loss"),
        (LinearRegression(epsilon=1.0, **REALS, solver=SufficientStatistics(n_rounds=7)), "a fit decides n_rounds"),
        (
            LinearRegression(epsilon=1.0, **{**REALS, "gradient": ClipNorm(1.0)}, solver=SufficientStatistics()),
            "'label'",
        ),
        (LinearRegression(epsilon=1.0, **REALS, solver="gradient"), "'label' is nothing that solver='gradient'"),
        (LogisticRegression(epsilon=1.0, **SIGNS, gradient=ClipLabel(1.0)), "for the squared loss"),
        (LinearRegression(epsilon=1.0, **{**REALS, "delta": 0.0}, solver="sufficient-statistics"), "delta > 0"),
        (
            Minimizer("squared", ElasticNet(1.0, 1.0), solver="sufficient-statistics", epsilon=1.0, **REALS),
            "l1_ratio=0",
        ),
    ],
)
def test_what_they_cannot_do_is_refused_before_a_row_is_read(model, says):
    with pytest.raises(BudgetError, match=says):
        model.plan(1_000, 3)


def test_the_bound_that_is_missing_is_named():
    model = LinearRegression(epsilon=1.0, delta=1e-6, row_norm=1.0, solver="sufficient-statistics")
    with pytest.raises(MissingBound, match="label_bound is missing"):
        model.plan(1_000, 3)


def test_hessians_are_asked_where_they_stand_out_of_their_noise():
    few = LogisticRegression(epsilon=0.1, **SIGNS)._method_for(5_000, 20)
    many = LogisticRegression(epsilon=1.0, **SIGNS)._method_for(500_000, 20)
    assert (few.hessians, few.rounds, many.hessians, many.rounds) == (False, 6, True, 7)
    forced = LogisticRegression(epsilon=0.1, **SIGNS, solver=Newton(hessians=True, n_rounds=3))._method_for(5_000, 20)
    assert [line.name for line in forced.lines()] == [
        "second moment",
        "hessian",
        "gradient 1",
        "gradient 2",
        "gradient 3",
    ]

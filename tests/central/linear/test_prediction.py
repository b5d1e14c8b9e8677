"""What is said of the error before a fit: true of rows of other laws, the same for neighbours, and in words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.linear_model
from scipy.special import expit
from sklearn.base import clone

from dpdist import LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import AcceleratedGradient, ClipLabel, ClipNorm, GradientDescent
from dpdist.central.linear.automatic import MOST_PASSES, compared
from dpdist.central.linear.normal_rows import Rows, descent, perturbed, response
from dpdist.central.linear.prediction import rows_before_a_fit
from dpdist.constraints import L1Ball, L2Ball
from dpdist.data import Units
from dpdist.losses import Logistic, SmoothedHinge, Squared

SIGNS = {"classes": [-1, 1], "delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}
REALS = {"delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}


def rows(law, n, d, rng):
    if law == "groups":  # four far groups of rows
        X = rng.normal(size=(4, d))[rng.integers(0, 4, n)] + 0.4 * rng.normal(size=(n, d))
    else:  # skewed and never negative, of unequal scales
        X = np.exp(0.8 * rng.normal(size=(n, d))) * np.geomspace(1, 0.05, d)
    X = X / (1.3 * np.quantile(np.linalg.norm(X, axis=1), 0.95))
    X = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    u = (X - X.mean(axis=0)) @ (rng.normal(size=d) / X.std(axis=0))
    return X, u / u.std()


def excess(make, law, n, d, seeds=3):
    """Mean excess of the log-loss over the fit without privacy, on rows that no fit has seen."""
    rng = np.random.default_rng(5)
    X, u = rows(law, n + 20_000, d, rng)
    y = np.where(rng.random(len(u)) < expit(2 * u - 0.5), 1, -1)

    def loss(model):
        return np.logaddexp(0, -y[n:] * (X[n:] @ model.coef_[0] + model.intercept_)).mean()

    best = loss(sklearn.linear_model.LogisticRegression(C=1e4, max_iter=500).fit(X[:n], y[:n]))
    return np.mean([loss(make(seed).fit(X[:n], y[:n])) for seed in range(seeds)]) - best


@pytest.mark.parametrize("law", ["groups", "skewed"])
@pytest.mark.parametrize("solver", ["newton", "gradient", AcceleratedGradient(n_rounds=30), "objective"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_range_contains_the_error(law, solver, epsilon):
    def make(seed):
        return LogisticRegression(**SIGNS, solver=solver, epsilon=epsilon, random_state=seed, alpha=1e-3)

    look = make(0).outlook(5000, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measured = excess(make, law, 5000, 8)
    assert look.low < measured < look.high
    assert look.low < look.predicted_error < look.high and look.unknown in str(look)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_range_of_least_squares_contains_its_error(epsilon):
    rng = np.random.default_rng(0)
    X, u = rows("groups", 25_000, 8, rng)
    y = np.clip(0.2 * u + 0.1 + 0.2 * rng.laplace(size=len(u)), -1, 1)
    Z = np.column_stack([X, np.ones(len(X))])
    best = np.mean((y - Z @ np.linalg.lstsq(Z[:5000], y[:5000], rcond=None)[0])[5000:] ** 2)
    options = {**REALS, "epsilon": epsilon, "gradient": ClipLabel(1.0)}
    fits = [LinearRegression(**options, random_state=s).fit(X[:5000], y[:5000]) for s in range(4)]
    measured = np.mean([np.mean((y - fit.predict(X))[5000:] ** 2) for fit in fits]) - best
    look = fits[0].outlook(5000, 8)
    assert look.low < measured / 2 < look.high


def one(moments, weights):
    return Rows(np.array([moments]), np.array([weights]), np.ones(len(moments)), 0.0, np.zeros(1))


def test_gradients_on_normal_rows_end_where_they_are_expected():
    """The recursion against the loop itself, on a million normal rows, with noise that matters."""
    rng = np.random.default_rng(0)
    moments, w = np.array([1.0, 0.3, 0.05]), np.array([1.0, -2.0, 3.0])
    Z = rng.normal(size=(200_000, 3)) * np.sqrt(moments)
    chance = expit(Z @ w)

    def loss(w):
        return np.mean(np.logaddexp(0, Z @ w) - chance * (Z @ w))

    found = []
    for _ in range(60):
        at = before = np.zeros(3)
        for _ in range(12):
            y = at + 0.3 * (at - before)
            gradient = Z.T @ (expit(Z @ y) - chance) / len(Z) + 0.03 * rng.normal(size=3)
            before, at = at, y - 3.0 * gradient
        found.append(loss(at) - loss(w))
    asked = {"noise": 0.03, "step": np.array([3.0]), "momentum": np.array([0.3]), "ridge": 0.0, "rounds": 12, "tail": 0}
    expected = descent(one(moments, w**2), response(Logistic()), **asked)[0]
    assert expected == pytest.approx(np.mean(found), rel=0.15)


def test_a_perturbed_minimiser_of_squares_has_the_error_of_the_closed_form():
    moments, weights = np.array([1.0, 0.2]), np.array([0.5, 2.0])
    found = perturbed(one(moments, weights), response(Squared()), term=0.1, ridge=0.3, noise=0.05)
    shrunk = (0.3 / (moments + 0.3)) ** 2 * weights + (0.1 / (moments + 0.3)) ** 2 + 0.05**2
    assert found == pytest.approx([(moments * shrunk).sum() / 2])


@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge()])
@pytest.mark.parametrize("size", [0.5, 3.0])
def test_the_excess_is_that_of_the_loss(loss, size):
    """Mean losses at normal predictors, by plain sums, against what a table of curvatures says of them."""
    z = np.random.default_rng(0).normal(size=(400_000, 2))
    best, reached, spread = size * z[:, 0], 0.6, 0.4
    other = reached * best + spread * z[:, 1]
    told = response(loss)

    def even(u):
        return float(np.mean(loss.value(u, 1.0) + loss.value(u, -1.0)) / 2)

    slope = told.slope(np.array([size**2]))[0]
    expected = even(other) - even(best) - slope * (reached - 1) * size**2
    found = told.excess(one([size**2], [1.0]), np.array([[reached]]), np.array([[(spread / size) ** 2]]))
    assert found == pytest.approx([expected], rel=0.05, abs=2e-3)


def test_directions_that_are_alike_are_counted():
    for d in (1, 2, 3, 39, 41, 5000):
        found = rows_before_a_fit(d, 2.0, 0.5, None)
        assert found.counts.sum() == d + 1 and len(found.counts) <= 41
        lengths = found.sum(found.moments) - 0.25
        assert set(np.round(lengths / 4, 6)) == {1.0, 0.3, 0.05}
        assert set(np.round(found.squares / 1.25, 6)) == {0.25, 4.0, 36.0}


def test_hopeless_fits_warn_before_anything_is_charged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 30))
    model = LogisticRegression(**SIGNS, epsilon=0.02, random_state=0)
    look = model.outlook(200, 30)
    assert look.n_needed > 200 and look.epsilon_needed > 0.02
    with pytest.warns(UserWarning, match=f"no better than ignoring the data: take n_rows >= {look.n_needed:,} or"):
        model.fit(X, np.where(X[:, 0] > 0, 1, -1))
    enough = LogisticRegression(**SIGNS, epsilon=look.epsilon_needed).outlook(200, 30)
    more = model.outlook(look.n_needed, 30)
    assert not enough.warnings and not more.warnings
    assert np.median([more.predicted_error, enough.predicted_error]) < look.predicted_error


HOPELESS = {
    "one minimiser": LogisticRegression(**SIGNS, solver="output", alpha=1e-2, epsilon=0.1),
    "a set": LogisticRegression(**SIGNS, constraint=L2Ball(5.0), epsilon=0.1),
    "vertices": LogisticRegression(classes=[-1, 1], feature_bound=1.0, constraint=L1Ball(5.0), epsilon=0.1, delta=1e-6),
    "vertices, real labels": LinearRegression(
        feature_bound=1.0, residual_bound=1.0, constraint=L1Ball(5.0), epsilon=0.1, delta=1e-6
    ),
    "robust": LinearRegression(loss="huber", row_norm=1.0, epsilon=0.02, delta=1e-6),
    "robust, any size": LinearRegression(second_moment=2.0, epsilon=0.02, delta=1e-6),
    "trimmed": LinearRegression(second_moment=1.0, gradient="trim", epsilon=0.1, delta=1e-6),
}


@pytest.mark.parametrize("kind", HOPELESS)
def test_what_the_outlook_warns_of_is_said_before_the_charge_by_every_solver(kind):
    """Those without a range as well; the same for other rows of that size, and nothing where rows are enough."""
    model, rng, said = clone(HOPELESS[kind]).set_params(random_state=0), np.random.default_rng(1), []
    foretold = model.outlook(100, 30).warnings
    assert "ignoring the data: take n_rows >= " in foretold[0]
    for scale in (0.1, 1.0):
        X = scale * rng.normal(size=(100, 30))
        with pytest.warns(UserWarning, match="ignoring the data: take n_rows") as caught:
            model.fit(X, np.sign(X[:, 0]))
        said.append([str(each.message) for each in caught if "ignoring" in str(each.message)])
    assert said[0] == said[1] == [text for text in foretold if "ignoring" in text]
    assert not model.outlook(10_000_000, 30).warnings


def test_a_fit_that_another_solver_would_beat_says_which():
    asked = {**SIGNS, "solver": GradientDescent(n_rounds=2)}
    model = LogisticRegression(**asked, epsilon=8.0, random_state=0)
    (warning,) = model.outlook(2000, 3).warnings
    assert "solver='newton' is expected to come clearly closer" in warning and "with 2 rounds" in warning
    X = np.random.default_rng(0).normal(size=(2000, 3))
    with pytest.warns(UserWarning, match="clearly closer"):
        model.fit(X, np.where(X[:, 0] > 0, 1, -1))
    (warning,) = LinearSVC(**asked).outlook(50_000, 20).warnings
    assert "solver=AcceleratedGradient(n_rounds=" in warning
    assert not LogisticRegression(**SIGNS).outlook(50_000, 20).warnings


def test_neighbours_are_told_the_same():
    """Nothing that is said or chosen before the charge looks at a row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = np.where(X[:, 0] > 0, 1, -1)
    other, labels = X.copy(), y.copy()
    other[0], labels[0] = 1e9, -y[0]
    told = []
    for rows_, signs in ((X, y), (other, labels), (np.zeros_like(X), np.ones_like(y))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = LogisticRegression(**SIGNS, epsilon=0.05, random_state=0).fit(rows_, signs)
        told.append((model.solver_, model.solver_reason_, model.plan_, [str(each.message) for each in caught]))
    assert told[0] == told[1] == told[2] and told[0][3]


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**SIGNS, constraint=L2Ball(1.0)),
        LogisticRegression(**SIGNS, rows="sample"),
        Minimizer("logistic", second_moment=1.0, gradient="truncate", delta=1e-6),
    ],
    ids=["set", "sample", "truncate"],
)
def test_there_is_no_range_where_none_is_known(model):
    look = model.outlook(10_000, 5)
    assert look.low is look.high is None and look.predicted_error > 0


def test_the_reason_lists_what_was_compared_and_the_least_is_taken():
    model = LogisticRegression(**SIGNS, alpha=1e-2)
    problem = model._problem(model._public(10_000, 5))
    found = compared(problem, None)
    assert {each.solver.name for each in found} == {"newton", "objective", "gradient", "accelerated"}
    assert all(each.passes <= MOST_PASSES for each in found)
    chosen = model.decided(10_000, 5)
    least = min(each.prediction.typical for each in found)
    (taken,) = [each for each in found if each.solver.name == chosen.name]
    assert taken.prediction.typical <= 1.05 * least
    assert all(each.shown in chosen.reason for each in found)


@pytest.mark.parametrize(
    ("model", "n", "d", "solver"),
    [
        (LogisticRegression(**SIGNS), 100_000, 2500, "subspace"),  # no matrix is affordable
        (LogisticRegression(**SIGNS, epsilon=10.0), 100_000, 50, "newton"),
    ],
    ids=["wide", "plenty"],
)
def test_auto_leaves_newton_where_another_is_better(model, n, d, solver):
    assert model.decided(n, d).name == solver


def test_what_candidates_read_is_not_read_by_the_one_that_is_taken():
    with pytest.warns(UserWarning, match="second_moment=2.0 has nobody to read it"):
        LogisticRegression(**SIGNS, second_moment=2.0).plan(10_000, 5)


def test_a_loss_without_a_hash_is_compared_as_well():
    class Unhashable(SmoothedHinge):
        __hash__ = None

    assert Minimizer(Unhashable(), delta=1e-6, row_norm=1.0).decided(10_000, 5).reason.count("passes") > 1


def test_units_of_several_rows_are_told_what_one_row_of_each_is():
    units = Units("patient", 4, grouped=True)
    model = LogisticRegression(**SIGNS)
    four, single = model.outlook(40_000, 5, units), model.outlook(10_000, 5)
    assert (four.low, four.high, four.unknown) == (single.low, single.high, single.unknown)


def test_clips_and_labels_have_scales_of_their_own():
    """A range for real labels grows with the square of what bounds them."""
    for make in (
        lambda b: LinearRegression(**REALS, gradient=ClipLabel(b)),
        lambda b: LinearRegression(**REALS, gradient=ClipNorm(b), alpha=0.0),
    ):
        small, large = make(1.0).outlook(10_000, 5), make(3.0).outlook(10_000, 5)
        assert (large.low / small.low, large.high / small.high) == pytest.approx((9.0, 9.0), rel=1e-6)

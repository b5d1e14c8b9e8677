"""Mirror steps for losses that are not convex: rounds and steps from public and released numbers, l1 penalties."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import LinearRegression, LogisticRegression, Minimizer
from dpdist.central import MirrorDescent
from dpdist.constraints import Box, ElasticNet, GemanMcClure, L1Ball, L2Ball, Simplex
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Biweight, SquaredProbability
from dpdist.problems.catalog import PROBLEMS

N, D = 20_000, 200
COMMON = {"delta": 1e-6, "cluster": "threads", "fit_intercept": False, "random_state": 0}
SPARSE = {**COMMON, "epsilon": 4.0, "row_norm": math.sqrt(D), "feature_bound": 1.0, "constraint": L1Ball(1.0)}


def law(name, n=N, d=D, seed=0):
    """Rows with entries in [-1, 1] that no rule was made with, and a sparse truth of l1 norm 0.9."""
    rng = np.random.default_rng(seed)
    w = np.zeros(d)
    w[rng.permutation(d)[:5]] = rng.choice([-1, 1], 5) * rng.random(5)
    X = {
        "zero or one": lambda: (rng.random((n, d)) < rng.uniform(0.02, 0.98, d)).astype(float),
        "mostly one": lambda: (rng.random((n, d)) < 0.95).astype(float),
        "correlated": lambda: np.tanh(0.8 * rng.standard_normal((n, 1)) + 0.6 * rng.standard_normal((n, d))),
        "a tenth": lambda: rng.uniform(-0.1, 0.1, (n, d)),
    }[name]()
    return X, w * (0.9 / np.abs(w).sum()), rng


@pytest.mark.parametrize("name", ["zero or one", "mostly one", "correlated", "a tenth"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_never_worse_than_the_start_on_rows_of_any_kind(name, epsilon):
    X, w, rng = law(name)
    truth = 1 / (1 + np.exp(-X @ w))
    y = np.where(rng.random(N) < truth, 1, -1)
    model = Minimizer("glm-squared", solver=MirrorDescent(), **{**SPARSE, "epsilon": epsilon}).fit(X, y)
    excess = np.mean((1 / (1 + np.exp(-X @ model.coef_)) - truth) ** 2)
    trivial = np.mean((0.5 - truth) ** 2)
    assert excess < (1.1 if name == "a tenth" else 0.9) * trivial, "there is no signal in rows that are a tenth as long"


def test_steps_of_twenty_times_the_theory_whatever_the_rows_are_end_above_the_start():
    X, w, rng = law("mostly one")
    truth = 1 / (1 + np.exp(-X @ w))
    y = np.where(rng.random(N) < truth, 1, -1)
    printed = MirrorDescent(20, step_size=20 / (4 * SquaredProbability().curvature_bound))
    model = Minimizer("glm-squared", solver=printed, **{**SPARSE, "feature_bound": None}).fit(X, y)
    assert np.mean((1 / (1 + np.exp(-X @ model.coef_)) - truth) ** 2) > 2 * np.mean((0.5 - truth) ** 2)


def test_rounds_follow_from_public_numbers():
    def rounds(n, epsilon=1.0, loss="glm-squared"):
        return Minimizer(loss, solver="mirror", **{**SPARSE, "epsilon": epsilon})._method_for(n, D).n_rounds

    method = Minimizer("glm-squared", solver="mirror", **{**SPARSE, "epsilon": 1.0})._method_for(60_000, D)
    noise = 2 * SquaredProbability().derivative_bound * math.sqrt(D) / (60_000 * method.problem.mu)
    assert method.n_rounds == math.ceil(SquaredProbability().curvature_bound / (4 * noise)), "W = 2 D on an l1 ball"
    assert (rounds(100), rounds(10**8)) == (10, 200)
    assert rounds(10_000) < rounds(10_000, 2.0) < rounds(20_000, 2.0)
    given = Minimizer("glm-squared", solver=MirrorDescent(7), **SPARSE)._method_for(N, D)
    assert given.n_rounds == 7 and given.tag == "StationaryMirror"


@pytest.mark.filterwarnings("ignore:delta = 0.1")
def test_an_l1_penalty_makes_coefficients_sparse_and_is_that_of_the_objective():
    """Without noise the minimum of loss plus penalty is found, where proximal steps find it as well."""
    X, w, rng = law("correlated", 2000, 8)
    y = X @ w + 0.1 * rng.standard_normal(2000)
    quiet = {**COMMON, "epsilon": 1e9, "delta": 0.1, "row_norm": math.sqrt(8), "constraint": L1Ball(1.0)}
    loss, penalty = Biweight(2.0), ElasticNet(0.05, 0.9)

    def objective(v):
        return loss.value(X @ v, y).mean() + penalty.value(v)

    mirror, bound = MirrorDescent(100), {"feature_bound": 1.0}
    tilted = LinearRegression(loss=loss, alpha=0.05, l1_ratio=0.9, solver=mirror, **bound, **quiet).fit(X, y)
    proximal = LinearRegression(loss=loss, alpha=0.05, l1_ratio=0.9, solver="gradient", **quiet).fit(X, y)
    free = LinearRegression(loss=loss, alpha=0.0, solver=mirror, **bound, **quiet).fit(X, y)
    assert objective(tilted.coef_) == pytest.approx(objective(proximal.coef_), abs=1e-5)
    assert objective(tilted.coef_) < objective(free.coef_) - 1e-4
    assert np.abs(tilted.coef_).sum() < 0.95 * np.abs(free.coef_).sum() and np.sum(np.abs(tilted.coef_) < 1e-3) >= 2


def test_a_random_iterate_is_drawn_before_the_rows_are_read():
    X, w, rng = law("zero or one", 3000, 10)
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-X @ w)), 1, -1)
    options = {**COMMON, "epsilon": 1.0, "row_norm": math.sqrt(10), "feature_bound": 1.0, "constraint": L1Ball(1.0)}
    model = Minimizer("glm-squared", solver=MirrorDescent(12, combine="random"), **options).fit(X, y)
    at = [k for k, point in enumerate(model.history_) if np.array_equal(point, model.coef_)]
    other = Minimizer("glm-squared", solver=MirrorDescent(12, combine="random"), **options).fit(X[::-1], -y)
    assert len(at) == 1 and np.array_equal(other.history_[at[0]], other.coef_)
    mean = Minimizer("glm-squared", solver=MirrorDescent(12, combine="tail-average"), **options).fit(X, y)
    last = Minimizer("glm-squared", solver=MirrorDescent(12), **options).fit(X, y)
    np.testing.assert_allclose(mean.coef_, np.mean([*mean.history_[7:], last.coef_], axis=0), atol=1e-12)


@pytest.mark.parametrize("constraint", [L2Ball(1.0), Simplex(1.0)], ids=repr)
def test_other_sets_and_an_intercept(constraint):
    X, w, rng = law("correlated", 20_000, 6)
    u = X @ np.abs(w) + 0.3
    y = np.where(rng.random(20_000) < 1 / (1 + np.exp(-2 * u)), 1, -1)
    options = {**COMMON, "epsilon": 2.0, "row_norm": math.sqrt(6), "constraint": constraint, "fit_intercept": True}
    model = Minimizer("sigmoid", solver="mirror", **options).fit(X, y)
    value = np.mean(1 / (1 + np.exp(y * model.decision_function(X))))
    start = np.full(6, 1 / 6) if constraint == Simplex(1.0) else np.zeros(6)
    assert (
        value < np.mean(1 / (1 + np.exp(y * (X @ start))))
        and np.linalg.norm(constraint.project(model.coef_) - model.coef_) < 1e-9
    )


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"constraint": None}, MissingBound, "bounded set"),
        ({"constraint": Box(0.0, 1.0)}, BudgetError, "must have a method 'mirror'"),
        ({"penalty": ElasticNet(0.1, 0.5), "constraint": L2Ball(1.0)}, BudgetError, "constraint=L1Ball"),
        ({"penalty": ElasticNet(0.1, 0.5), "constraint": Simplex(1.0)}, BudgetError, "constraint=L1Ball"),
        ({"penalty": GemanMcClure(0.1)}, BudgetError, "proximal step"),
        ({"row_norm": None}, MissingBound, "row_norm is missing"),
        ({"delta": 0.0}, BudgetError, "delta > 0"),
        ({"rows": "sample"}, BudgetError, "rows='sample'"),
        ({"loss": "logistic", "solver": MirrorDescent(combine="last")}, BudgetError, "for losses that are not convex"),
        ({"solver": MirrorDescent(start=[2.0, 0, 0])}, BudgetError, "outside of the constraint"),
    ],
)
def test_what_is_refused_before_a_row_is_read(options, error, match):
    usual = {**COMMON, "epsilon": 1.0, "row_norm": 1.0, "constraint": L1Ball(1.0), "solver": "mirror"}
    with pytest.raises(error, match=match):
        Minimizer(**{"loss": "sigmoid", **usual, **options}).fit(np.zeros((500, 3)), np.ones(500))


def test_words_that_mirror_steps_cannot_do():
    with pytest.raises(BudgetError, match="use 'last' or 'random'"):
        MirrorDescent(combine="min-noisy")
    model = LogisticRegression(classes=[0, 1], solver=MirrorDescent(combine="random"), row_norm=1.0, epsilon=1.0,
                               delta=1e-6, constraint=L1Ball(1.0))  # fmt: skip
    with pytest.raises(BudgetError, match="for losses that are not convex"):
        model.plan(1000, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "loss", "epsilon", "band"),
    [
        ("bounded-glm", "glm-squared", 1.0, 0.0032),
        ("bounded-glm", "glm-squared", 4.0, 0.0006),
        ("bounded-robust", Biweight(2.0), 1.0, 0.0094),
        ("bounded-robust", Biweight(2.0), 4.0, 0.0026),
    ],
)
def test_bands(problem, loss, epsilon, band, record_property):
    """Spec 03, section 13, "EG" at 20 000 x 200: .0016, .0003, .0047 and .0013, of which twice is a bug."""
    found = []
    for seed in range(5):
        generated = PROBLEMS[problem].generate({"n": N, "d": D, "shape": "cube", "n_nonzero": 5, "random_state": seed})
        model = Minimizer(loss, solver="mirror", **{**SPARSE, "epsilon": epsilon, "random_state": seed})
        found.append(generated.metric(model.fit(generated.dataset)).error(model))
    record_property("excess", found)
    assert np.mean(found) <= band, found

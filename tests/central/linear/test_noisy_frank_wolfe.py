"""Frank-Wolfe along released gradients: its steps, its plan, what it refuses, and how close it comes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import LinearRegression, Minimizer
from dpdist.central import FrankWolfe, GradientDescent
from dpdist.constraints import Box, ElasticNet, GemanMcClure, L1Ball, L2Ball, Simplex
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Biweight, SquaredProbability
from dpdist.problems.catalog import PROBLEMS

COMMON = {"epsilon": 1.0, "delta": 1e-6, "cluster": "threads", "random_state": 0, "fit_intercept": False}
NOISY = {**COMMON, "solver": "frank-wolfe", "gradient": "norm", "row_norm": 1.0}
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 4)) / 4
Y = X @ [0.5, -0.25, 0.0, 0.1] + 0.1 * rng.normal(size=500)


@pytest.mark.parametrize("constraint", [L2Ball(0.5), Box(-0.25, 0.5), L1Ball(0.5), Simplex(0.75)])
def test_without_noise_it_goes_to_the_farthest_point(constraint):
    solver, loss = FrankWolfe(7, start=constraint.project(np.full(4, 0.1))), Biweight(1.0)
    quiet = {**NOISY, "epsilon": 1e9, "delta": 0.1, "solver": solver, "constraint": constraint, "alpha": 0.01}
    model = LinearRegression(loss=loss, **quiet).fit(X, Y)
    decided = model._method_for(*X.shape)
    diameter = {L2Ball: 1.0, Box: 1.5, L1Ball: 1.0, Simplex: 1.5}[type(constraint)]
    step = math.sqrt(2 * loss.value_bound / (1.01 * 7)) / diameter
    assert decided.step == pytest.approx(min(1.0, step))
    short = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    w = np.array(solver.start)
    for _ in range(7):
        g = loss.derivative(short @ w, Y) @ short / 500 + 0.01 * w
        w = w + decided.step * (constraint.lmo(g) - w)
    np.testing.assert_allclose(model.coef_, w, atol=1e-4)


def test_the_farthest_point_has_the_least_product():
    points = rng.normal(size=(200, 3))
    for constraint in (L2Ball(0.7), Box(-0.2, 0.9), L1Ball(0.7), Simplex(0.7)):
        for g in (*rng.normal(size=(20, 3)), np.zeros(3), np.array([1e-300, 0.0, 0.0])):
            v = constraint.lmo(g)
            np.testing.assert_allclose(constraint.project(v), v, atol=1e-12)
            assert g @ v <= min(g @ constraint.project(p) for p in points) + 1e-12


def test_sets_without_few_vertices_are_taken_by_their_gradient():
    by_itself = Minimizer("sigmoid", constraint=L2Ball(1.0), **{**NOISY, "gradient": "auto"})
    assert type(by_itself._method_for(1000, 4)).__name__ == "NoisyFrankWolfe"
    chosen = Minimizer("sigmoid", constraint=L1Ball(1.0), **{**COMMON, "solver": "frank-wolfe", "feature_bound": 1.0})
    assert type(chosen._method_for(1000, 4)).__name__ == "FrankWolfe"


def test_rounds_and_noise_follow_from_public_numbers():
    """``T = D n mu sqrt(2 M F) / (4 G width)``, and noise of ``2 G sqrt(T) / (n mu)`` in the mean."""
    model = Minimizer(SquaredProbability(), constraint=L2Ball(1.0), **NOISY)
    method, loss = model._method_for(2000, 20), SquaredProbability()
    rounds = 2 * 2000 * method.problem.mu * math.sqrt(2 * loss.curvature_bound)
    rounds /= 4 * loss.derivative_bound * math.sqrt(20)
    assert method.n_rounds == math.ceil(rounds)
    plan = model.plan(2000, 20)
    noise = plan["gradient"].mechanism.noise_std(2 * loss.derivative_bound)
    expected = 2 * loss.derivative_bound * math.sqrt(method.n_rounds) / method.problem.mu
    assert noise == pytest.approx(expected, rel=1e-6)
    assert model._method_for(20_000, 20).n_rounds == 200
    assert model._method_for(100, 20).n_rounds == 10


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"constraint": None}, MissingBound, "bounded set"),
        ({"row_norm": None}, MissingBound, "row_norm is missing"),
        ({"delta": 0}, BudgetError, "delta > 0"),
        ({"fit_intercept": True}, BudgetError, "constant column"),
        ({"rows": "sample"}, BudgetError, "rows='sample'"),
        ({"penalty": ElasticNet(0.1, 1.0)}, BudgetError, "ridge penalties only"),
        ({"penalty": GemanMcClure(0.1)}, BudgetError, "proximal step"),
        ({"solver": FrankWolfe(start=[2.0, 0, 0, 0])}, BudgetError, "outside of the constraint"),
        ({"gradient": "coordinate", "feature_bound": 1.0, "row_norm": None}, BudgetError, "gradient='norm'"),
    ],
)
def test_what_is_refused_before_a_row_is_read(options, error, match):
    with pytest.raises(error, match=match):
        Minimizer("sigmoid", **{"constraint": L2Ball(1.0), **NOISY, **options}).fit(X, np.sign(Y))


def gap(problem, seed, model, **data):
    generated = PROBLEMS[problem].generate({"random_state": seed, **data})
    model.set_params(random_state=seed).fit(generated.dataset)
    metric = generated.metric(model)
    return metric.error(model), metric.trivial()


BANDS = {
    "nc-dp-fw-l2": ("bounded-glm", {"n": 100_000}, "glm-squared", FrankWolfe(), L2Ball(1.0), "norm", 0.0004),
    "projected": ("bounded-glm", {"n": 100_000}, "glm-squared", GradientDescent(), L2Ball(1.0), "norm", 0.0001),
    "robreg-fw-l2": ("bounded-robust", {"n": 100_000}, Biweight(2.0), FrankWolfe(), L2Ball(1.0), "norm", 0.00105),
    "nc-dp-fw-l1": ("bounded-glm", {"n": 20_000, "d": 200, "shape": "cube", "n_nonzero": 5}, "glm-squared",
                    FrankWolfe(), L1Ball(1.0), "coordinate", 0.0011),
    "robreg-fw-l1": ("bounded-robust", {"n": 100_000, "d": 200, "shape": "cube", "n_nonzero": 5}, Biweight(2.0),
                     FrankWolfe(), L1Ball(1.0), "coordinate", 0.0012),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BANDS)
def test_bands(name, record_property):
    """Spec 03, section 13, at epsilon 1: excess of the population, mean of five seeds."""
    problem, data, loss, solver, constraint, gradient, band = BANDS[name]
    bound = {"row_norm": 1.0} if gradient == "norm" else {"feature_bound": 1.0}
    options = {**COMMON, **bound, "constraint": constraint, "gradient": gradient, "solver": solver}
    found = [gap(problem, seed, Minimizer(loss, **options), **data) for seed in range(5)]
    record_property("excess, trivial", found)
    assert np.mean(found, axis=0)[0] <= band, found


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_never_worse_than_the_start_on_other_rows(scale):
    other = np.random.default_rng(5)
    rows = scale * other.normal(size=(5000, 6)) @ np.triu(np.full((6, 6), 0.5))
    u = rows @ [1.0, -0.5, 0, 0, 0.3, 0]
    y = u + 0.1 * other.standard_t(2, size=5000)
    loss = Biweight(2.0 * scale)
    options = {**NOISY, "row_norm": 3 * scale, "constraint": L2Ball(2.0)}
    model = Minimizer(loss, **options).fit(rows, y)
    assert loss.value(model.predict(rows), y).mean() < loss.value(np.zeros(5000), y).mean()

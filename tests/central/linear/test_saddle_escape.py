"""Gradient steps on a set that leave saddles along released curvature: plans, escapes, certificates, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist import Dataset, Minimizer
from dpdist.central import ClipNorm, SaddleEscape
from dpdist.constraints import Box, ElasticNet, GemanMcClure, L1Ball, L2Ball
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Biweight, Sigmoid
from tests.central.linear.test_second_order import COMMON, PLAIN, saddle


def test_it_leaves_the_saddle_where_it_begins():
    for seed in range(2):
        error, model = saddle(SaddleEscape(50), 20_000, seed)
        assert error < 1e-4 < 0.02497
        assert model.smallest_curvature_ > 0.1 and model.certified_ is False, "nothing was declared to be wanted"
        asked = [release.name for release in model.releases_]
        assert asked[:3] == ["smoothness", "gradient", "hessian"] and asked[-1] == "hessian"


def test_gradients_and_ten_hessians_pay_alike():
    options = {**PLAIN, "constraint": L2Ball(3.0)}
    model = Minimizer("sigmoid", solver=SaddleEscape(30), **options)
    plan, sensitivities, mu = model.plan(5000, 4), model.sensitivities(5000, 4), model._method_for(5000, 4).problem.mu
    assert [plan[name].count for name in ("gradient", "hessian")] == [30, 10]
    assert [plan[name].share for name in ("smoothness", "gradient", "hessian")] == [0.005, 0.495, 0.5]
    assert sensitivities["hessian"] == pytest.approx(2 * Sigmoid().curvature_bound)
    noise = plan["hessian"].mechanism.noise_std(sensitivities["hessian"])
    assert noise == pytest.approx(sensitivities["hessian"] * math.sqrt(2 * 10) / mu, rel=1e-6)
    few = Minimizer("sigmoid", solver=SaddleEscape(30, n_hessians=2), **options).plan(5000, 4)
    assert few["hessian"].count == 2
    fitted = model.fit(np.random.default_rng(0).normal(size=(400, 4)) / 2, np.where(np.arange(400) % 3, 1, -1))
    names = [release.name for release in fitted.releases_]
    assert names.count("gradient") == 30 and 1 <= names.count("hessian") <= 10


def test_a_certificate_is_made_where_it_tells():
    error, model = saddle(SaddleEscape(200, curvature_target=0.15), 20_000, 0, d=5, epsilon=500.0)
    assert model.certified_ is True and error < 1e-4 and len(model.history_) < 200
    vague = Minimizer("sigmoid", solver=SaddleEscape(curvature_target=0.01), constraint=L2Ball(1.0), **PLAIN)
    assert not vague._method_for(2000, 5).curved.tells(0.01)


def test_a_saddle_is_not_certified():
    """It has not begun to move, with rows and budget that tell."""
    short = SaddleEscape(2, step_size=1e-6, n_hessians=1, curvature_target=0.15)
    _, model = saddle(short, 4000, 0, d=5, epsilon=500.0)
    assert model._method_for(4000, 5).curved.tells(0.15)
    assert model.certified_ is False and model.smallest_curvature_ == pytest.approx(-0.316, abs=0.03)


@pytest.mark.parametrize("constraint", [L1Ball(1.0), Box(-0.5, 0.5)], ids=repr)
@pytest.mark.parametrize("law", ["correlated", "scaled", "zero or one"])
def test_never_worse_than_the_start(law, constraint):
    rng = np.random.default_rng(3)
    n, d = 6000, 6
    X = {
        "correlated": rng.normal(size=(n, d)) @ np.triu(np.full((d, d), 0.3)),
        "scaled": 3 * rng.normal(size=(n, d)) / np.sqrt(d),
        "zero or one": (rng.random((n, d)) < [0.5, 0.1, 0.9, 0.3, 0.02, 0.5]).astype(float),
    }[law]
    u = X @ [1.0, -1.0, 0.5, 0.0, 2.0, 0.0]
    signs = np.where(u + rng.logistic(size=n) / 3 > np.median(u), 1, -1)
    for loss, y in ((Sigmoid(), signs), (Biweight(2.0), u + 0.1 * rng.standard_t(2, size=n))):
        for n_rows in (300, n):
            options = {**PLAIN, "constraint": constraint, "solver": SaddleEscape(30)}
            model = Minimizer(loss, **options).fit(X[:n_rows], y[:n_rows])
            value = loss.value(model._linear_predictor(X), y).mean()
            assert value < loss.value(np.zeros(n), y).mean() + 1e-9
            assert np.allclose(constraint.project(model.coef_), model.coef_, atol=1e-12)


@pytest.mark.parametrize(
    ("solver", "options", "error", "match"),
    [
        (SaddleEscape(), {"constraint": None}, MissingBound, "bounded set"),
        (SaddleEscape(), {"delta": 0}, BudgetError, "delta > 0"),
        (SaddleEscape(1), {}, BudgetError, "n_rounds=1 would return the start"),
        (SaddleEscape(), {"penalty": ElasticNet(0.1, 1.0)}, BudgetError, "asks for Hessians"),
        (SaddleEscape(), {"row_norm": None}, MissingBound, "row_norm is missing"),
        (SaddleEscape(), {"rows": "sample"}, BudgetError, "rows='all'"),
        (SaddleEscape(), {"fit_intercept": True}, BudgetError, "constant column"),
        (SaddleEscape(start=[2.0, 0, 0]), {}, BudgetError, "outside of the constraint"),
        (SaddleEscape(), {"gradient": "truncate"}, BudgetError, "gradient='truncate'"),
        (SaddleEscape(), {"loss": "negative-square"}, MissingBound, "clip_norm is missing"),
    ],
)
def test_what_is_refused_before_a_row_is_read(solver, options, error, match):
    usual = {**COMMON, "fit_intercept": False, "constraint": L2Ball(1.0), "penalty": GemanMcClure(0.1)}
    with pytest.raises(error, match=match):
        Minimizer(**{"loss": "sigmoid", "solver": solver, **usual, **options}).fit(np.zeros((500, 3)), np.ones(500))


def test_a_set_of_unknown_size_is_refused():
    class Halfspace:
        def project(self, v):
            return np.minimum(v, 1.0)

    with pytest.raises(BudgetError, match="how large"):
        Minimizer("sigmoid", solver="saddle-escape", constraint=Halfspace(), **PLAIN).plan(500, 3)


def test_no_hessian_at_all_is_refused():
    with pytest.raises(BudgetError, match="n_hessians"):
        SaddleEscape(n_hessians=0)
    with pytest.raises(MissingBound, match="curvature_target"):
        SaddleEscape(curvature_target=-1.0)


def test_what_it_does_not_read_is_refused_and_what_it_cannot_ask_is_not_paid_for():
    with pytest.raises(TypeError, match="SaddleEscape has no parameter 'combine'"):
        SaddleEscape(combine="random")
    model = Minimizer("sigmoid", solver=SaddleEscape(3, n_hessians=50), constraint=L2Ball(1.0), **PLAIN)
    assert model.plan(500, 3)["hessian"].count == 3


def test_longer_rows_and_rows_that_are_no_numbers_change_nothing_that_is_told():
    X, y = np.random.default_rng(0).normal(size=(400, 3)) / 3, np.where(np.arange(400) % 3, 1.0, -1.0)
    X[:4] = [[1e300] * 3, [np.nan] * 3, [np.inf] * 3, [-1e-310] * 3]
    options = {**PLAIN, "constraint": L2Ball(1.0), "gradient": ClipNorm(0.25), "solver": SaddleEscape(8)}
    model = Minimizer("sigmoid", **options).fit(Dataset.from_arrays(X=X, y=y))
    assert np.isfinite(model.coef_).all() and np.isfinite(model.smallest_curvature_)


@pytest.mark.slow
def test_band_from_the_saddle(record_property):
    """Spec 03, section 13: gap 1e-4 with 200 000 rows; here with 20 000, in all of 10 seeds."""
    found = [saddle(SaddleEscape(50), 20_000, seed)[0] for seed in range(10)]
    record_property("gaps", found)
    assert np.mean(found) <= 1e-4 and max(found) < 0.01

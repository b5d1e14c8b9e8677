"""What ``solver="auto"`` takes, from public numbers, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpdist import Dataset, LinearRegression, LogisticRegression, Minimizer
from dpdist.central.solvers import SOLVERS, automatic, course
from dpdist.constraints import ElasticNet, L1Ball, L2Ball
from dpdist.data import Units, synthetic

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0}
SIGNS = {"classes": [0, 1], **BUDGET}
CUT = {"epsilon": 1.0, "feature_bound": 2.0, "residual_bound": 1.0}


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (LogisticRegression(**SIGNS), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2), "objective"),
        (LogisticRegression(**SIGNS, alpha=1e-2, l1_ratio=0.5), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, n_rounds=5), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, clip_norm=0.1), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, rows="sample"), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, constraint=L2Ball(1.0)), "gradient"),
        (LinearRegression(**BUDGET, alpha=1e-2, clip_norm=1.0), "gradient"),
        (LinearRegression(**BUDGET, alpha=1e-2, loss="huber"), "objective"),
        (Minimizer("squared", n_nonzero=3, **BUDGET), "iht"),
        (Minimizer("squared", constraint=L1Ball(1.0), gradient="truncate", **BUDGET), "frank-wolfe"),
        (Minimizer("squared", ElasticNet(1e-2), gradient="residual", **BUDGET), "frank-wolfe"),
    ],
)
def test_the_choice_follows_from_public_numbers(model, solver):
    chosen, why = automatic(model._problem(10_000, 5))
    assert chosen == solver and chosen in SOLVERS and why


def test_a_fit_tells_the_choice_and_the_reason():
    data, _ = synthetic.logit(5_000, 4)
    model = LogisticRegression(**SIGNS, alpha=1e-2, random_state=0).fit(data)
    assert model.solver_ == "objective" and f"{model.n_iter_} passes" in model.solver_reason_
    assert LogisticRegression(**SIGNS, solver="accelerated", random_state=0).fit(data).solver_reason_ == "asked for"


def test_a_unit_of_several_rows_gets_a_method_that_is_proved_for_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 3))
    data = Dataset.from_arrays(X=X, y=(X[:, 0] > 0).astype(int), unit="patient", max_rows_per_unit=3, grouped=True)
    model = LogisticRegression(**SIGNS, alpha=1e-2, random_state=0).fit(data)
    assert model.solver_ == "gradient"
    assert model.plan(3_000, 3, data.schema.units) == model.plan_ != model.plan(3_000, 3)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**SIGNS),
        LogisticRegression(**SIGNS, solver="accelerated-mirror", constraint=L1Ball(3.0)),
        LogisticRegression(**SIGNS, solver="svrg"),
        LogisticRegression(**SIGNS, solver="output", alpha=1e-2),
        LinearRegression(epsilon=1.0, delta=1e-6, second_moment=2.0, gradient="truncate"),
        Minimizer("squared", n_nonzero=3, second_moment=2.0, gradient="truncate", epsilon=1.0, delta=1e-6),
        Minimizer("squared", constraint=L1Ball(1.0), solver="frank-wolfe", gradient="residual", rows="split", **CUT),
    ],
    ids=lambda model: f"{model.solver} {model.gradient}",
)
def test_several_rows_of_each_unit_are_decided_on_as_one(model):
    """A sum of k times the rows with k times the noise: rounds, steps, scales and the outlook are those of one row."""
    units = Units("patient", 4, grouped=True)
    one, four = course(model._problem(10_000, 5)), course(model._problem(40_000, 5, units))
    assert (four.problem.n_rows, four.problem.rows_per_unit) == (40_000, 4)
    assert replace(four, problem=one.problem) == one
    assert model.plan(40_000, 5, units) == model.plan(10_000, 5)
    assert model.outlook(40_000, 5, units).predicted_error == model.outlook(10_000, 5).predicted_error
    for name, sensitivity in model.sensitivities(40_000, 5, units).items():
        if name != "minimum":  # whose penalty is that of four times the rows
            assert sensitivity == pytest.approx(4 * model.sensitivities(10_000, 5)[name], rel=1e-6)

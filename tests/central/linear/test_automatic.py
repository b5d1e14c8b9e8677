"""What ``solver="auto"`` takes, from public numbers, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpdist import Dataset, Ledger, LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.central import AcceleratedGradient, ClipLabel, ClipNorm, HardThresholding
from dpdist.central.linear.automatic import SOLVERS, automatic
from dpdist.constraints import ElasticNet, L1Ball, L2Ball, Simplex
from dpdist.data import Units
from dpdist.errors import LedgerError
from dpdist.problems import linear_problems as synthetic
from tests.faults.jobs import at_release, on_file

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0}
BOUNDS = {"feature_bound": 2.0, "residual_bound": 1.0}
SIGNS = {"classes": [0, 1], **BUDGET}
CUT = {"epsilon": 1.0, "feature_bound": 2.0, "residual_bound": 1.0}


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (LogisticRegression(**SIGNS), "newton"),
        (LogisticRegression(**SIGNS, alpha=1e-5), "newton"),
        (LinearSVC(**SIGNS), "accelerated"),
        (LinearSVC(**SIGNS, alpha=1e-2), "accelerated"),
        (LinearRegression(**BUDGET, gradient=ClipLabel(2.0)), "sufficient-statistics"),
        (LogisticRegression(**SIGNS, alpha=1e-2, l1_ratio=0.5), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, gradient=ClipNorm(0.1)), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, rows="sample"), "gradient"),
        (LogisticRegression(**SIGNS, alpha=1e-2, constraint=L2Ball(1.0)), "gradient"),
        (LinearRegression(**BUDGET, alpha=1e-2, gradient=ClipNorm(1.0)), "gradient"),
        (LinearRegression(**BUDGET, loss="huber"), "robust-newton"),
        (LinearRegression(**BUDGET, alpha=1e-2, loss="huber"), "robust-newton"),
        (LinearRegression(**BUDGET, loss="huber", gradient="norm"), "accelerated"),
        (LinearRegression(loss="huber", delta=1e-6, second_moment=2.0), "robust-newton"),
        (LinearRegression(loss="squared", delta=1e-6, second_moment=2.0, residual_bound=1.0), "robust-newton"),
        (LinearRegression(loss="squared", delta=1e-6, second_moment=2.0), "robust-newton"),
        (LinearRegression(loss="huber", delta=1e-6, second_moment=2.0, gradient="truncate"), "gradient"),
        (LinearRegression(loss="huber", delta=1e-6, second_moment=2.0, constraint=L2Ball(1.0)), "gradient"),
        (LinearRegression(loss="huber", delta=1e-6, second_moment=2.0, rows="sample"), "gradient"),
        (Minimizer("squared", constraint=L1Ball(1.0), gradient="truncate", **BUDGET), "frank-wolfe"),
        (Minimizer("squared", ElasticNet(1e-2), gradient="residual", **BUDGET), "frank-wolfe"),
        (
            Minimizer("squared", constraint=L1Ball(1.0), feature_bound=2.0, residual_bound=1.0, delta=1e-6),
            "frank-wolfe",
        ),
        (LogisticRegression(classes=[0, 1], constraint=Simplex(1.0), delta=1e-6, feature_bound=2.0), "frank-wolfe"),
        (LogisticRegression(**SIGNS, constraint=L1Ball(1.0), feature_bound=2.0), "gradient"),
    ],
)
def test_the_choice_follows_from_public_numbers(model, solver):
    found = automatic(model._problem(model._public(10_000, 5)))
    assert found.name == solver and isinstance(found, SOLVERS[solver]) and found.reason


def test_a_fit_tells_the_choice_and_the_reason():
    data, _ = synthetic.logit(5_000, 4)
    model = LinearSVC(**SIGNS, alpha=1e-2, random_state=0).fit(data)
    assert f"{model.solver_} in " in model.solver_reason_
    assert LogisticRegression(**SIGNS, solver="accelerated", random_state=0).fit(data).solver_reason_ == "as asked for"


def test_a_unit_of_several_rows_gets_a_method_that_is_proved_for_it():
    X = np.random.default_rng(0).normal(size=(6_000, 3))
    data = Dataset.from_arrays(X=X, y=(X[:, 0] > 0) * 1.0, unit="patient", max_rows_per_unit=3, grouped=True)
    model = LinearSVC(**SIGNS, alpha=1e-2, random_state=0).fit(data)
    assert model.plan(6_000, 3, data.schema.units) == model.plan_
    assert "objective" in model.decided(6_000, 3).reason and "objective" not in model.solver_reason_


def test_the_outlook_is_that_of_the_method_that_units_of_several_rows_get():
    asked, units = {"alpha": 1e-2, **SIGNS}, Units("patient", 3, grouped=True)
    chosen = LinearSVC(**asked).decided(30_000, 5, units)
    assert "objective" not in chosen.reason, "one row of a unit is all that its linear term hides"
    alike = LinearSVC(**asked, solver=AcceleratedGradient(n_rounds=chosen.n_rounds)).outlook(10_000, 5)
    assert LinearSVC(**asked).outlook(30_000, 5, units) == alike


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**SIGNS),
        LogisticRegression(**SIGNS, solver="accelerated-mirror", constraint=L1Ball(3.0)),
        LogisticRegression(**SIGNS, solver="svrg"),
        LogisticRegression(**SIGNS, solver="output", alpha=1e-2),
        LinearRegression(epsilon=1.0, delta=1e-6, second_moment=2.0, gradient="truncate"),
        Minimizer(
            "squared",
            solver=HardThresholding(n_nonzero=3),
            second_moment=2.0,
            gradient="truncate",
            epsilon=1.0,
            delta=1e-6,
        ),
        Minimizer("squared", constraint=L1Ball(1.0), solver="frank-wolfe", gradient="residual", rows="split", **CUT),
    ],
    ids=lambda model: f"{model.solver} {model.gradient}",
)
def test_several_rows_of_each_unit_are_decided_on_as_one(model):
    """A sum of k times the rows with k times the noise: rounds, steps, scales and the outlook are those of one row."""
    units = Units("patient", 4, grouped=True)
    one, four = model._method_for(10_000, 5), model._method_for(40_000, 5, units)
    assert (four.problem.n_rows, four.public.units) == (40_000, units)
    assert replace(four, public=one.public, statement=one.statement, reason=one.reason) == one
    assert model.plan(40_000, 5, units) == model.plan(10_000, 5)
    assert model.outlook(40_000, 5, units).predicted_error == model.outlook(10_000, 5).predicted_error
    for name, sensitivity in model.sensitivities(40_000, 5, units).items():
        if name != "minimum":  # whose penalty is that of four times the rows
            assert sensitivity == pytest.approx(4 * model.sensitivities(10_000, 5)[name], rel=1e-6)


def test_a_newer_version_goes_on_with_a_run_only_where_it_decides_alike(tmp_path, monkeypatch):
    """Interrupted in the middle, upgraded, resumed: no release of one rule is mixed with those of another."""
    data, _ = synthetic.logit(2_000, 4)
    named = Dataset.from_arrays(**data.read(0, 2_000), dataset_id="survey")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    model = LogisticRegression(**SIGNS, constraint=L2Ball(5.0), run_id="monday", ledger=ledger, cluster="threads")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_release(3, stop):
        model.fit(named)
    planned, before = ledger.run("monday").library, on_file(tmp_path / "ledger.sqlite")
    monkeypatch.setattr("dpdist.privacy.ledger.resumption.library", lambda: "99.1")
    with monkeypatch.context() as newer:
        newer.setattr("dpdist.central.linear.minimizer.automatic", lambda problem, stated: AcceleratedGradient())
        with pytest.raises(LedgerError, match=f"with dpdist {planned}, which planned it: this is dpdist 99.1"):
            model.fit(named)
    assert on_file(tmp_path / "ledger.sqlite") == before, "nothing was drawn"
    with at_release(99, stop) as replayed:
        model.fit(named)
    assert replayed[:4] == [True] * 3 + [False] and before.items() <= on_file(tmp_path / "ledger.sqlite").items()
    assert ledger.spent("survey").epsilon == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "solver", "gradient"),
    [
        ({"constraint": L1Ball(1.0), **BOUNDS}, "frank-wolfe", "residual"),
        ({"constraint": Simplex(1.0), **BOUNDS}, "frank-wolfe", "residual"),
        ({"solver": HardThresholding(n_nonzero=2), **BOUNDS}, "iht", "scale-rows"),
        ({"solver": HardThresholding(n_nonzero=2), "row_norm": 1.0, "gradient": ClipNorm(1.0)}, "iht", "norm"),
        ({"solver": "frank-wolfe", "constraint": L1Ball(1.0), **BOUNDS}, "frank-wolfe", "residual"),
        ({"row_norm": 1.0, "gradient": ClipNorm(1.0)}, "gradient", "norm"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_fit_needs_the_bounds_of_its_choice_only_and_tells_what_auto_became(options, solver, gradient):
    """Single features and residuals that are bounded need no ``row_norm``."""
    X = np.random.default_rng(0).normal(size=(2_000, 5))
    model = Minimizer("squared", epsilon=1.0, delta=1e-6, random_state=0, cluster="threads", **options)
    model.fit(X, X[:, 0] / 2)
    assert (model.solver_, model.gradient_) == (solver, gradient) and np.isfinite(model.coef_).all()


def test_auto_chooses_by_the_bounds_that_are_declared():
    sparse = {"loss": "logistic", "solver": HardThresholding(n_nonzero=2), "delta": 1e-6}
    rows = Minimizer(**sparse, row_norm=1.0)._method_for(10_000, 5)
    features = Minimizer(**sparse, feature_bound=1.0)._method_for(10_000, 5)
    assert rows.by_norm and not features.by_norm
    sparse["gradient"] = "norm"
    assert Minimizer(**sparse, row_norm=1.0)._method_for(10_000, 5).problem.gradient.name == "norm"


SIGNED = {"loss": "logistic", "constraint": L2Ball(5.0)}
NUMBERS = {"loss": "squared", "gradient": "residual", "feature_bound": 1.0, "residual_bound": 2.0}
FITTED = {
    **dict.fromkeys(SOLVERS, SIGNED),
    "frank-wolfe": {**NUMBERS, "row_norm": None, "constraint": L1Ball(1.0)},
    "newton": {"loss": "logistic"},
    "subspace": {"loss": "logistic"},
    "output": {"loss": "logistic"},
    "objective": {"loss": "logistic"},
    "sufficient-statistics": {"loss": "squared", "gradient": ClipLabel(2.0)},
    "robust-newton": {"loss": "huber", "second_moment": 1.0},
    "langevin": {"loss": "logistic"},
    "net": {**SIGNED, "delta": 0},
    "mirror": {**SIGNED, "loss": "sigmoid"},
    "saddle-escape": {**SIGNED, "loss": "sigmoid", "fit_intercept": False},
}
TWO = {
    "n_rounds": (3, 4),
    "step_size": (0.3, 0.7),
    "combine": ("last", "random"),
    "start": ((0.1, 0.0, 0.0, 0.0), (0.0, 0.2, 0.0, 0.0)),
    "n_nonzero": (1, 2),
    "n_inner": (5, 6),
    "batch_rate": (0.05, 0.2),
    "hessians": (True, False),
    "certify": (None, "local-minimum"),
    "curvature_target": (1e-9, 1e9),
    "inverse_temperature": (1e6, 3e6),
    "cooling": (2.0, 5.0),
    "radius": (0.1, 0.25),
    "shrink": (0.4, 0.9),
    "n_hessians": (1, 3),
    "sandwich": (False, True),
    "accuracy": (0.6, 0.9),
}
"""Two values of every parameter of a solver."""
SHORT = {"n_nonzero": 2, "n_rounds": 3}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in SOLVERS for field in SOLVERS[name].parameters()])
def test_a_solver_reads_what_it_has(name, field):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3)) / 3
    kind, options = SOLVERS[name], {"penalty": ElasticNet(1e-2), "delta": 1e-6, "row_norm": 1.0, **FITTED[name]}
    short = {key: value for key, value in SHORT.items() if key in kind.parameters()}
    if field == "curvature_target" and "certify" in kind.parameters():
        short["certify"] = "local-minimum"
    found = []
    for value in TWO[field]:
        if field == "start" and not options.get("fit_intercept", True):
            value = value[:-1]
        model = Minimizer(**options, solver=kind(**{**short, field: value}), epsilon=5.0, random_state=0)
        model.fit(X, np.where(X[:, 0] > 0, 1.0, -1.0))
        found.append(np.append(model.coef_, getattr(model, "certified_", 0)))
    assert not np.allclose(*found, rtol=1e-6, atol=0)

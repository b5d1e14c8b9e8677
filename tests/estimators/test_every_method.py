"""What holds for every registered method and for every estimator."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from dpdist.jobs import job_data as inputs
from dpdist.jobs.job import load_job
from dpdist.jobs.planning import checked
from dpdist.jobs.registry import ESTIMATORS, METHODS, estimator_class

PIPELINES = Path(__file__).parents[2] / "pipelines"
MOST_PARAMETERS = 21  # of two classes: those of `Minimizer`, of a penalty, classes and their weights
"""Of the signature of an estimator: `LogisticRegression`, all of whose parameters several methods share."""
FOLLOW_FROM_RELEASES = {name: {"difference"} for name in ("dp-svrg", "dp-svrgpp", "dp-katyusha")}
FOLLOW_FROM_RELEASES["dp-adassp"] = {"gradient"}
FOLLOW_FROM_RELEASES["dp-newton-scaled"] = {"second moment", "residuals", "gradient"}
FOLLOW_FROM_RELEASES["dp-htp"] = {
    f"{line}{t}" for line in ("row norms", "second moment", "gradient") for t in ("", " 1", " 2", " 3")
}
"""Lines whose bound is a function of what was released before; all others have a sensitivity beforehand."""
NO_FORMULA = {"saa-nrs", "trim-mean-ss"}
"""Noise that follows the rows; nothing public says how large it is (of `trim-mean-ss`: without a second moment)."""


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_plan_sensitivities_and_an_outlook(name):
    job = load_job(PIPELINES / f"{name}.yaml")
    size = inputs.size(job)
    model, plan = checked(job, size)
    assert plan == model.plan(size.n_rows, size.n_features) and plan.n_releases >= 1
    assert plan.spent.epsilon <= job.epsilon and plan.spent.delta <= job.delta
    sensitivities = model.sensitivities(size.n_rows, size.n_features)
    assert set(sensitivities) == {item.name for item in plan.items} - FOLLOW_FROM_RELEASES.get(name, set())
    assert all(value > 0 for value in sensitivities.values())
    look = model.outlook(size.n_rows, size.n_features)
    assert len(look.what) > 20, "what is measured, and under which assumptions, is said in words"
    assert (look.predicted_error is None) == (name in NO_FORMULA)
    assert str(look).startswith("no formula predicts" if name in NO_FORMULA else "predicted error")
    assert look.predicted_error is None or look.predicted_error > 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_signature_is_longer_than_it_is(name):
    parameters = inspect.signature(estimator_class(name)).parameters
    assert len(parameters) <= MOST_PARAMETERS, list(parameters)
    assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())


def test_the_longest_signature_is_the_one_that_is_stated():
    assert max(len(inspect.signature(estimator_class(name)).parameters) for name in ESTIMATORS) == MOST_PARAMETERS

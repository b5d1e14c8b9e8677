"""Every method can be named, built and run by its example; every example belongs to a method."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dpdist.errors import DpdistError
from dpdist.jobs.job import load_job, make_estimator
from dpdist.jobs.registry import ALIASES, ESTIMATORS, METHODS, OWNED_BY_OTHER_KEYS, TABLES, estimator_class

PIPELINES = Path(__file__).parents[2] / "pipelines"


def test_every_method_has_its_pipeline_and_every_pipeline_its_method():
    assert {path.stem for path in PIPELINES.glob("*.yaml")} == set(METHODS)


def test_no_name_stands_for_two_methods():
    """In tables that are written apart, a second row would take the place of the first in silence."""
    names = [name for table in TABLES for method in table.METHODS for name in (method.id, *method.aliases)]
    assert len(names) == len(set(names)) == len(METHODS) + len(ALIASES)


@pytest.mark.parametrize("name", METHODS)
def test_the_pipeline_is_a_job_of_its_method_that_leaves_nothing_behind(name):
    method = METHODS[name]
    job = load_job(PIPELINES.parent / method.pipeline)
    assert job.method is method
    assert job.output is None and job.ledger is None
    assert "generate" in job.data and job.data["store"] is None
    text = (PIPELINES / f"{name}.yaml").read_text()
    assert f"dpdist run {method.pipeline}" in text, "an example says how it is run"
    assert "random_state" not in (yaml.safe_load(text)["params"] or {}), "an example is no simulation"


@pytest.mark.parametrize("name", METHODS)
def test_the_entry_describes_its_estimators(name):
    method = METHODS[name]
    assert method.id == name and method.title and method.spec and method.source and method.estimators
    for estimator in method.estimators:
        model = estimator_class(estimator)(**method.parameters)
        assert {key: model.get_params()[key] for key in method.parameters} == dict(method.parameters)
        assert set(method.parameters).isdisjoint(OWNED_BY_OTHER_KEYS)
    assert method.summary["pipeline"] == f"pipelines/{name}.yaml"


@pytest.mark.filterwarnings("ignore:(coefficients below|the noise in the coefficients):UserWarning")  # few users
@pytest.mark.parametrize("name", METHODS)
def test_the_outputs_are_fitted_attributes(name):
    job = load_job(PIPELINES / f"{name}.yaml", ["data.n=2000", "params.random_state=0"])
    from dpdist.jobs import job_data as inputs

    dataset, generated = inputs.load(job)
    model = make_estimator(job).fit(dataset, **inputs.beside(job, generated))
    assert all(hasattr(model, output) for output in METHODS[name].outputs)


def test_parameters_that_make_two_methods_differ():
    """Two ids with the same estimators and parameters would be one method with two names."""
    seen = {
        (m.estimators[0], tuple(sorted((k, repr(v)) for k, v in m.parameters.items())), m.needs)
        for m in METHODS.values()
    }
    assert len(seen) == len(METHODS)


def test_an_unknown_estimator_is_named():
    with pytest.raises(DpdistError, match=r"no estimator is called 'Logistic'.*LogisticRegression"):
        estimator_class("Logistic")
    assert all(isinstance(estimator_class(name), type) for name in ESTIMATORS)

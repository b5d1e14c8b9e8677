"""``method: auto``: the estimator decides, and plan and result say which method it became."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.json_schema import schema
from dpdist.jobs.method_parameters import fixed_parameters
from dpdist.jobs.planning import plan_job
from dpdist.jobs.registry import ESTIMATORS, METHODS, automatic, estimator_class
from dpdist.jobs.run import run_job
from tests.cli.command import call

JOB = jsonschema.Draft202012Validator(schema("job"))

LOGIT = {
    "method": "auto",
    "estimator": "LogisticRegression",
    "data": {"generate": "logit", "n": 5000, "d": 4},
    "params": {"classes": [0, 1], "row_norm": 1.0, "random_state": 0},
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
BOX = {
    "method": "auto",
    "estimator": "local.Mean",
    "data": {"generate": "box", "n": 5000, "d": 4},
    "params": {"domain": "box", "low": -1.0, "high": 1.0},
    "budget": {"epsilon": 1.0},
}


@pytest.fixture
def load(tmp_path):
    def job(content, *settings):
        (tmp_path / "auto.yaml").write_text(json.dumps(content))
        return load_job(tmp_path / "auto.yaml", settings)

    return job


ANOTHER = {"ht-dp-fw-robreg": "ht-dp-fw", "ldp-avg-1d": "hybrid"}
"""The first is the second with another loss; the other leaves the law of its reports to the estimator."""


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_fixes_is_recognised(name):
    job = load_job(name)
    params = {**fixed_parameters(job.method, estimator_class(job.estimator)), **job.params}
    free = replace(job, method=automatic(job.estimator), params=params)
    assert plan_job(free)["id"] == ANOTHER.get(name, name)


def test_a_run_says_what_it_became_and_is_the_same_as_that_method(load, tmp_path, capsys):
    automatic_ = run_job(load(LOGIT, f"output={tmp_path / 'auto'}"))
    named = run_job(load({**LOGIT, "method": automatic_["id"]}, f"output={tmp_path / 'named'}"))
    assert automatic_["id"] == "dp-newton" and automatic_["asked"]["method"] == "auto"
    assert automatic_["title"] == METHODS["dp-newton"].title and "the least error" in automatic_["reason"]
    assert named["reason"] is None
    assert automatic_["metrics"] == named["metrics"] and automatic_["released"]["arrays"] == named["released"]["arrays"]
    jsonschema.Draft202012Validator(schema("run")).validate(json.loads(json.dumps(automatic_)))
    assert run_job(load(LOGIT, f"output={tmp_path / 'other'}"), dry_run=True)["id"] == "dp-newton"
    said = call(capsys, "plan", tmp_path / "auto.yaml")
    assert "Method     dp-newton: " in said.out and "Chosen     the least error that is expected" in said.out


@pytest.mark.parametrize(
    ("job", "settings", "became"),
    [
        (LOGIT, (), "dp-newton"),
        (LOGIT, ("estimator=LinearSVC", "params.alpha=0.01"), "obj-pert"),
        (LOGIT, ("estimator=LinearSVC",), "dp-agd"),
        (LOGIT, ("params.rows=sample",), "dp-sgd"),
        (LOGIT, ("params.solver=svrg",), "dp-svrg"),
        (LOGIT, ("params.solver={FrankWolfe: {n_rounds: 7}}", "params.constraint={L1Ball: 1.0}",
                 "params.gradient=residual", "params.feature_bound=1.0", "params.row_norm=null"), "residual-clip-fw"),
        (BOX, (), "coord-sampling"),
        (BOX, ("params.domain=interval", "data.d=1"), "hybrid"),
        (BOX, ("params.domain=interval", "data.d=1", "params.method=laplace"), "auto"),
    ],
)  # fmt: skip
def test_what_it_becomes(load, job, settings, became):
    record = plan_job(load(job, *settings))
    assert record["id"] == became and record["reason"]
    assert became != "auto" or record["title"] == "What the estimator chose (laplace)"


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_any_estimator_can_choose(load, estimator):
    job = load({**LOGIT, "estimator": estimator, "data": {"path": "rows.zarr"}, "params": {}})
    assert job.method.id == "auto" and job.method.outputs and job.estimator == estimator
    JOB.validate(json.loads(json.dumps(job.asked)))


@pytest.mark.parametrize(
    ("wrong", "key", "text"),
    [
        ({"estimator": None}, "estimator", "missing; method: auto needs to know what to fit"),
        ({"estimator": "LogisticRegressio"}, "estimator", "did you mean 'LogisticRegression'"),
        ({"method": "autom"}, "method", "did you mean 'auto'"),
    ],
)
def test_a_job_that_says_too_little(load, wrong, key, text):
    with pytest.raises(JobError) as error:
        load({**LOGIT, **wrong})
    (problem,) = error.value.problems
    assert problem.key == key and text in problem.text
    assert not JOB.is_valid({**LOGIT, **wrong})


def test_public_rows_are_no_public_number(load):
    data = {"generate": "sparse-design", "n": 5000, "d": 4, "public_rows": 100}
    with pytest.raises(JobError, match=r"data.public_rows: method: auto goes by public numbers only"):
        load({**BOX, "estimator": "local.SparseRegression", "params": {}, "data": data})
    stored = {"path": "rows.zarr", "public": "others.zarr"}
    with pytest.raises(JobError, match=r"data.public: method: auto goes by public numbers only"):
        load({**BOX, "estimator": "local.SparseRegression", "params": {}, "data": stored})


def test_what_only_the_estimator_knows_names_its_key(load):
    with pytest.raises(JobError, match=r"budget.delta: .*needs delta > 0"):
        plan_job(load(LOGIT, "budget.delta=0"))


def test_an_audit_says_what_it_became(load, tmp_path, capsys):
    load(BOX)
    found = json.loads(call(capsys, "audit", tmp_path / "auto.yaml", "--runs", "50", "--json").out)
    assert found["id"] == "coord-sampling" and not found["contradicted"]
    load(LOGIT)
    found = json.loads(call(capsys, "audit", tmp_path / "auto.yaml", "--runs", "50", "--json").out)
    assert found["id"] == "dp-newton" and not found["contradicted"], "the best for the few rows of an audit"

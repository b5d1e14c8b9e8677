"""The published JSON Schemas agree with what is read and written."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from dpdist.cli.schema import command
from dpdist.errors import DpdistError
from dpdist.jobs.job import load_job
from dpdist.jobs.json_schema import NAMES, schema
from dpdist.jobs.registry import ALIASES, METHODS
from dpdist.jobs.run import run_job
from dpdist.jobs.sections import KEYS
from dpdist.jobs.yaml_lines import parse
from dpdist.losses import LOSSES
from dpdist.problems.catalog import PROBLEMS
from tests.jobs.test_job import BROKEN, GOOD, STARTS, TEXT, with_

PIPELINES = sorted((Path(__file__).parents[2] / "pipelines").glob("*.yaml"))
JOB = jsonschema.Draft202012Validator(schema("job"))
RUN = jsonschema.Draft202012Validator(schema("run"))

ONLY_THE_LOADER_KNOWS = {
    "field out of range",  # ranges of losses, penalties and constraints are in their classes
    "no round",  # those of solvers as well
    "unknown way to combine",
    "too large for a number",  # JSON numbers have no largest one
    "nan in a start",  # and no NaN
    "field of a solver that is not chosen",  # what auto takes is not known before
}


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas_and_are_printed(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))
    printed = CliRunner().invoke(command, [name])
    assert printed.exit_code == 0 and json.loads(printed.stdout) == schema(name)


def test_an_unknown_schema_is_refused():
    assert CliRunner().invoke(command, ["jobs"]).exit_code == 2
    with pytest.raises(DpdistError, match="expected one of: job, run"):
        schema("jobs")


def test_the_job_schema_knows_what_there_is():
    properties = schema("job")["properties"]
    assert properties["method"]["enum"] == [*METHODS, *ALIASES, "auto"]
    assert set(properties) == set(KEYS)
    generators = {
        definition["properties"]["generate"]["const"]
        for name, definition in schema("job")["$defs"].items()
        if name.startswith("data-")
    }
    assert generators == set(PROBLEMS)
    for method in METHODS.values():
        budget = {"epsilon": 1.0, "delta": 0.0 if method.guarantee == "epsilon" else 1e-6}
        good = {**GOOD, "budget": budget}
        for estimator in method.estimators:
            assert JOB.is_valid({**good, "method": method.id, "estimator": estimator, "params": {}})
            for fixed, value in method.parameters.items():
                job = {**good, "method": method.id, "estimator": estimator, "params": {fixed: value}}
                assert not JOB.is_valid(job)
    for loss in LOSSES:
        assert JOB.is_valid({**GOOD, "estimator": "Minimizer", "params": {"loss": loss}})


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.name)
def test_pipelines_are_jobs(path):
    job = load_job(path)
    JOB.validate(parse(path.read_text(), path.name, []).plain())
    JOB.validate(json.loads(json.dumps(job.asked)))
    assert path.stem == job.method.id


def test_every_method_has_a_pipeline():
    assert {path.stem for path in PIPELINES} == set(METHODS)


@pytest.mark.parametrize("job", [*STARTS, with_(params__row_norm="1e0"), with_(budget__delta="1e-6")])
def test_both_accept_good_jobs(tmp_path, job):
    JOB.validate(job)
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    load_job(tmp_path / "job.yaml")


@pytest.mark.parametrize("name", BROKEN)
def test_the_schema_refuses_what_the_loader_refuses(name):
    assert JOB.is_valid(BROKEN[name][0]) == (name in ONLY_THE_LOADER_KNOWS)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """What a run writes."""
    place = tmp_path_factory.mktemp("run")
    (place / "job.yaml").write_text(TEXT)
    printed = run_job(load_job(place / "job.yaml", [f"output={place / 'out'}"]))
    written = json.loads((place / "out" / "run.json").read_text())
    assert json.loads(json.dumps(printed)) == written
    return written


def test_a_run_is_as_published(record):
    RUN.validate(record)
    assert set(record) == set(schema("run")["properties"])


def test_runs_of_every_kind_are_as_published(record):
    private = copy.deepcopy(record)
    private["dataset"]["n_rows"] = None
    private["dataset"]["arrays"]["X"]["shape"][0] = None
    private["metrics"] = None
    private["budget"]["limit"] = {"epsilon": 3.0, "delta": 1e-5}
    RUN.validate(private)
    started = {key: record[key] for key in schema("run")["required"]}
    started |= {"status": "started", "budget": {"ledger": record["budget"]["ledger"]}}
    RUN.validate(started)


def _set(record, *keys, value):
    *above, last = keys
    for key in above:
        record = record[key]
    record[last] = value


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("format",), "dpdist-run/2"),
        (("status",), "running"),
        (("started",), "yesterday"),
        (("seconds",), -1.0),
        (("rounds",), 1.5),
        (("guarantee", "relation"), "replace"),
        (("guarantee", "epsilon"), "1"),
        (("metrics", "sum"), 3.0),
        (("dataset", "mean"), 0.5),
        (("dataset", "n_rows"), 0),
        (("releases", 0, "value"), [1.0]),
        (("releases", 0, "noise_std"), -1.0),
        (("plan", "items"), []),
        (("asked", "password"), "x"),
        (("budget", "ledger"), 3),
        (("released", "arrays", "coef"), [1.0]),
        (("environment", "python"), 3.11),
        (("residuals",), [1.0]),
    ],
)
def test_a_run_with_something_else_is_refused(record, keys, value):
    changed = copy.deepcopy(record)
    _set(changed, *keys, value=value)
    assert not RUN.is_valid(changed)


def test_a_run_without_a_part_is_refused(record):
    for key in record:
        assert not RUN.is_valid({k: v for k, v in record.items() if k != key}), key
    for key in ("before", "after", "limit"):
        changed = copy.deepcopy(record)
        del changed["budget"][key]
        assert not RUN.is_valid(changed)

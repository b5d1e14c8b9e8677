"""Job files: what is accepted, and that everything wrong is reported with its key, its place and the nearest name."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import re
import string

import jsonschema
import pytest
import yaml

from dpdist.constraints import Box, ElasticNet, GemanMcClure, L2Ball, Quartic, Simplex
from dpdist.errors import BudgetError, DataError, DpdistError, MissingBound
from dpdist.jobs.job import JobError, load_job, locating, make_estimator
from dpdist.jobs.json_schema import schema
from dpdist.jobs.registry import ALIASES, METHODS
from dpdist.losses import Huber, Logistic
from dpdist.problems.catalog import PROBLEMS

GOOD = {
    "method": "dp-gd",
    "data": {"generate": "logit", "n": 1000, "d": 5, "random_state": 0},
    "params": {"classes": [0, 1], "row_norm": 1.0, "alpha": 1e-4},
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
TEXT = """\
method: dp-gd
data:
  generate: logit
  n: 1000
  d: 5
params:
  classes: [0, 1]
  row_norm: 1.0
budget:
  epsilon: 1.0
  delta: 1e-6
"""


@pytest.fixture
def load(tmp_path):
    """Load a job given as text or as plain values."""

    def load_(job, *settings):
        path = tmp_path / "job.yaml"
        path.write_text(job if isinstance(job, str) else yaml.safe_dump(job, sort_keys=False))
        return load_job(path, settings)

    return load_


@pytest.fixture
def problems(load):
    """What is wrong with a job: ``[(key, where, text)]``."""

    def problems_(job, *settings):
        with pytest.raises(JobError) as error:
            load(job, *settings)
        assert error.value.problems
        for problem in error.value.problems:
            assert f"{problem}" in str(error.value)
        return [(p.key, p.where, p.text) for p in error.value.problems]

    return problems_


def with_(**changes):
    """`GOOD` with dotted keys (``__`` for the dot) set, or left out if the value is `DELETE`."""
    job = copy.deepcopy(GOOD)
    for name, value in changes.items():
        *above, last = name.split("__")
        section = job
        for part in above:
            section = section[part]
        if value is DELETE:
            del section[last]
        else:
            section[last] = value
    return job


DELETE = object()


# --- what is accepted ------------------------------------------------------------------------------------------------


def test_a_job_is_read(load):
    job = load(TEXT)
    assert job.method is METHODS["dp-gd"]
    assert (job.estimator, job.epsilon, job.delta) == ("LogisticRegression", 1.0, 1e-6)
    assert job.data == {**PROBLEMS["logit"].parameters, "generate": "logit", "n": 1000, "d": 5}
    assert job.params == {"classes": [0, 1], "row_norm": 1.0}
    assert job.ledger is None and job.cluster is None and job.output is None
    assert job.asked["budget"] == {"epsilon": 1.0, "delta": 1e-6}
    assert list(job.asked) == [
        "method",
        "estimator",
        "data",
        "params",
        "budget",
        "ledger",
        "journal",
        "cluster",
        "output",
    ]
    assert json.loads(json.dumps(job.asked, allow_nan=False)) == job.asked


def test_a_job_makes_its_estimator(load):
    job = load(with_(params__constraint={"L2Ball": 10}))
    model = make_estimator(job, run_id="monday")
    assert type(model).__name__ == "LogisticRegression"
    wanted = {"solver": "gradient", "rows": "all", "epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "run_id": "monday"}
    assert {name: model.get_params()[name] for name in wanted} == wanted
    assert model.constraint == L2Ball(10.0)
    assert model.plan(1000, 5).n_releases > 1


NEEDED = {
    "n_groups": 9,
    "link": "wave",
    "label_moment": [1.5, 2.0],
    "second_moment": 40.0,
    "n_nonzero": 5,
    "n_classes": 4,
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_job(load, method):
    pure = METHODS[method].guarantee == "epsilon"
    for estimator in METHODS[method].estimators:
        job = load(
            {
                "method": method,
                "estimator": estimator,
                "data": {"path": "rows.zarr"},
                "params": {name: NEEDED[name] for name in METHODS[method].needs},
                "budget": {"epsilon": 1} if pure else {"epsilon": 1, "delta": 1e-6},
            }
        )
        assert type(make_estimator(job)).__name__ == estimator.rpartition(".")[2]


@pytest.mark.parametrize("version", [1, 1.0, None])
def test_a_job_of_this_version(load, version):
    assert load({**GOOD, "version": version}).asked == load(GOOD).asked


@pytest.mark.parametrize(
    ("version", "fix"),
    [
        (2, "got 2; install a newer dpdist"),
        (0, "got 0; write version: 1"),
        ("1", "got '1'; write version: 1"),
        (True, "got true"),
        ([1], "got a list"),
    ],
)
def test_a_job_of_another_version_is_refused_as_a_whole(load, version, fix):
    with pytest.raises(JobError) as error:
        load({**GOOD, "version": version, "method": "of-tomorrow", "data": {"source": "elsewhere"}})
    (problem,) = error.value.problems
    assert problem.key == "version" and "reads version 1 of the format of jobs" in problem.text and fix in problem.text


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_a_method_by_its_other_name(load, alias, name):
    pure = METHODS[name].guarantee == "epsilon"
    budget = {"epsilon": 1} if pure else {"epsilon": 1, "delta": 1e-6}
    job = load({"method": alias, "data": {"path": "rows.zarr"}, "budget": budget})
    assert job.method is METHODS[name] and job.asked["method"] == name


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs])
def test_what_makes_a_method_itself_has_to_be_given(load, name):
    for needed in METHODS[name].needs:
        with pytest.raises(JobError, match=rf"params\.{needed}: missing; {name} needs it"):
            load({"method": name, "data": {"generate": "box"}, "budget": {"epsilon": 1}})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1e-6", 1e-6),
        ("1.0e-6", 1e-6),
        ("1.0E-6", 1e-6),
        ("'1e-6'", 1e-6),
        ("+.5e-5", 0.5e-5),
        ("0.000_001", 1e-6),
    ],
)
def test_numbers_are_numbers_in_every_notation(load, written, read):
    job = load(TEXT.replace("1e-6", written))
    assert job.delta == read and job.asked["budget"]["delta"] == read


def test_whole_numbers_may_be_written_as_powers_of_ten(load):
    job = load(TEXT.replace("1000", "1e3"))
    assert job.data["n"] == 1000 and isinstance(job.data["n"], int)
    job = load(with_(params__solver={"n_rounds": 12.0}, params__row_norm=2))
    n_rounds = job.params["solver"].n_rounds
    assert n_rounds == 12 and isinstance(n_rounds, int)
    assert isinstance(job.params["row_norm"], float)


def test_a_start_is_a_list_of_numbers_in_every_notation(load):
    job = load(TEXT.replace("row_norm: 1.0", "row_norm: 1.0\n  solver: {start: [0.25, 1e-3, -2]}"))
    assert job.params["solver"].start == (0.25, 1e-3, -2.0)
    json.dumps(job.asked)
    assert load(with_(params__solver={"start": None})).params["solver"].start is None


@pytest.mark.parametrize(
    ("estimator", "params", "read"),
    [
        ("Minimizer", {"loss": {"Huber": {"threshold": 2}}}, Huber(2.0)),
        ("Minimizer", {"loss": {"Huber": 2}}, Huber(2.0)),
        ("Minimizer", {"loss": {"Huber": {}}}, Huber()),
        ("Minimizer", {"loss": {"Logistic": None}}, Logistic()),
        ("Minimizer", {"loss": "smoothed-hinge"}, "smoothed-hinge"),
        ("Minimizer", {"penalty": {"ElasticNet": {"alpha": 0.1, "l1_ratio": 0.5}}}, ElasticNet(0.1, 0.5)),
        ("Minimizer", {"penalty": {"ElasticNet": "1e-3"}}, ElasticNet(1e-3)),
        ("Minimizer", {"penalty": None}, None),
        ("Minimizer", {"penalty": {"GemanMcClure": 0.1}}, GemanMcClure(0.1)),
        ("Minimizer", {"penalty": {"Quartic": {"alpha": 1, "radius": 2}}}, Quartic(1.0, 2.0)),
        ("LinearSVC", {"constraint": {"Box": {"low": 0, "high": math.inf}}}, Box(0.0, math.inf)),
        ("LinearSVC", {"constraint": {"Simplex": None}}, Simplex()),
    ],
)
def test_objects(load, estimator, params, read):
    job = load({**GOOD, "data": {"path": "rows.zarr"}, "estimator": estimator, "params": params})
    assert job.params == {next(iter(params)): read}
    again = load(job.asked)  # infinity is no JSON: the text .inf is read as the same number
    assert again.params == job.params and again.asked == job.asked


@pytest.mark.parametrize(
    ("cluster", "read"),
    [
        ("threads", "threads"),
        ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786"),
        ("tls://scheduler:8786", "tls://scheduler:8786"),
        ({"workers": 2}, {"workers": 2, "threads_per_worker": 1, "memory_limit": "auto"}),
        (
            {"workers": 2, "threads_per_worker": 4, "memory_limit": "2GiB"},
            {"workers": 2, "threads_per_worker": 4, "memory_limit": "2GiB"},
        ),
        (None, None),
    ],
)
def test_clusters(load, cluster, read):
    assert load({**GOOD, "cluster": cluster}).cluster == read


def test_stored_data_and_secrets(load):
    options = {"endpoint": "http://s3", "secret": "hush", "client_kwargs": {"aws_session_TOKEN": "hush"}, "anon": False}
    data = {
        "path": "s3://user:hush@bucket/rows.zarr?sig=hush",
        "arrays": {"X": "features", "y": "label"},
        "id": "survey",
        "storage_options": options,
    }
    job = load({**GOOD, "data": data})
    assert job.data == data
    assert "hush" not in json.dumps(job.asked) and "hush" not in repr(job)
    assert job.asked["data"]["storage_options"]["endpoint"] == "http://s3"


def test_names_that_yaml_takes_for_truth_are_names_when_quoted(load):
    stored = "data={path: x.zarr}"
    assert load(TEXT.replace("[0, 1]", "['no', \"yes\"]"), stored).params["classes"] == ["no", "yes"]
    assert load(TEXT.replace("[0, 1]", "[false, true]"), stored).params["classes"] == [False, True]
    assert load(with_(params__fit_intercept=False)).params["fit_intercept"] is False
    assert load(TEXT.replace("row_norm: 1.0", "fit_intercept: no")).params["fit_intercept"] is False


# --- overrides -------------------------------------------------------------------------------------------------------


def test_settings_override_any_key(load):
    job = load(
        TEXT,
        "data.n=2e3",
        "budget.epsilon=0.5",
        "params.random_state=3",
        "params.constraint={L2Ball: 2}",
        "estimator=LinearSVC",
        "cluster.workers=3",
        "output=runs/a=b",
    )
    assert (job.data["n"], job.epsilon, job.params["random_state"]) == (2000, 0.5, 3)
    assert job.params["constraint"] == L2Ball(2.0)
    assert job.estimator == "LinearSVC" and job.cluster["workers"] == 3 and job.output == "runs/a=b"
    assert load(TEXT, "params.constraint.L2Ball.radius=2").params["constraint"] == L2Ball(2.0)
    assert load(TEXT, "data={path: x.zarr}").data == {"path": "x.zarr"}
    assert load({**GOOD, "output": "x"}, "output=null").output is None


@pytest.mark.parametrize(
    ("setting", "key", "text"),
    [
        ("budget.epsilon=one", "budget.epsilon", "expected a number, got 'one'"),
        ("budget.epsilon=", "budget.epsilon", "missing"),
        ("buget.epsilon=1", "buget", "did you mean 'budget'?"),
        ("params.row_nrm=1", "params.row_nrm", "did you mean 'row_norm'?"),
        ("method.id=dp-gd", "method", "it is 'dp-gd' (line 1) and has no keys"),
        ("data.n.x=1", "data.n", "has no keys"),
        ("params.classes=[1, 2", "", "not YAML"),
        ("params.classes=[no, yes]", "params.classes", "quote it: 'no'"),
        ("data.n", "", "expected key=value"),
        ("=3", "", "expected key=value"),
        ("data..n=3", "", "expected key=value"),
    ],
)
def test_a_wrong_setting_is_named(problems, setting, key, text):
    found = problems(TEXT, setting)
    assert found[0][0] == key and text in found[0][2]
    assert found[0][1] == f"--set {setting}"


def test_secrets_in_settings_are_not_shown(problems):
    for setting in ("data.storage_options.secret=hush", "data.pass=hush", "data.storage_options.x.y=[hush"):
        text = str(problems(TEXT, setting, "data.password=hush", "data.path=s3://me:hush@there"))
        assert "hush" not in text.replace("data.pass=hush", "")


# --- everything wrong, at once ---------------------------------------------------------------------------------------


def test_all_problems_at_once_in_the_order_of_the_file(problems):
    text = """\
methd: dp-gd
method: dp-gd
estimator: LogisticRegresion
data:
  generate: logitt
budget:
  epsilon: 0
  delta: 2
cluster: localhost:8786
output: 2026
"""
    assert [found[:2] for found in problems(text, "ledger=[1]")] == [
        ("methd", "line 1"),
        ("estimator", "line 3"),
        ("data.generate", "line 5"),
        ("budget.epsilon", "line 7"),
        ("budget.delta", "line 8"),
        ("cluster", "line 9"),
        ("output", "line 10"),
        ("ledger", "--set ledger=[1]"),
    ]


def test_the_message_of_one_and_of_several(load, tmp_path):
    with pytest.raises(JobError) as error:
        load(TEXT.replace("dp-gd", "dp-gdd"))
    path = tmp_path / "job.yaml"
    assert str(error.value).startswith(f"{path}, line 1: method: unknown method 'dp-gdd'; did you mean 'dp-gd'?")
    with pytest.raises(JobError) as error:
        load(TEXT.replace("dp-gd", "dp-gdd").replace("epsilon", "epsilom"))
    first, *rest = str(error.value).splitlines()
    assert first == f"{path}: 3 problems"
    assert rest[1].startswith("  line 9: budget.epsilon: missing")
    assert rest[2].startswith("  line 10: budget.epsilom: unknown key; did you mean 'epsilon'?")
    assert isinstance(error.value, DpdistError)


BROKEN = {
    "no method": (with_(method=DELETE), "method", "missing"),
    "unknown method": (with_(method="dp-gdd"), "method", "did you mean 'dp-gd'?"),
    "method is a number": (with_(method=3), "method", "expected a text, got 3"),
    "method is a list": (with_(method=["dp-gd"]), "method", "got a list"),
    "unknown estimator": (
        {**GOOD, "estimator": "LogisticRegresion"},
        "estimator",
        "did you mean 'LogisticRegression'?",
    ),
    "unknown key": ({**GOOD, "ouput": "x"}, "ouput", "did you mean 'output'?"),
    "dotted key": ({**GOOD, "data.n": 3}, "data.n", "in the file write a: {b: ...}"),
    "no data": (with_(data=DELETE), "data", "missing; write data: {generate"),
    "data is a path": (with_(data="rows.zarr"), "data", "got 'rows.zarr'; write data: {generate: logit, n: 10"),
    "data is empty": (with_(data={}), "data", "expected generate"),
    "two sources": (with_(data__path="rows.zarr"), "data.path", "together with data.generate (line 3)"),
    "unknown generator": (with_(data__generate="logitt"), "data.generate", "did you mean 'logit'?"),
    "unknown key of a generator": (with_(data__sgnal=3), "data.sgnal", "did you mean 'signal'?"),
    "no rows": (with_(data__n=0), "data.n", "must be an integer >= 1, got 0"),
    "half a row": (with_(data__n=0.5), "data.n", "expected a whole number, got 0.5"),
    "too many rows": (with_(data__n=10**300), "data.n", "up to 2**53"),
    "rows in words": (with_(data__n="many"), "data.n", "expected a whole number, got 'many'"),
    "true features": (with_(data__d=True), "data.d", "expected a whole number, got true"),
    "negative seed": (with_(data__random_state=-1), "data.random_state", "must be an integer >= 0"),
    "generator text": (with_(data__dtype=8), "data.dtype", "expected a text, got 8; to mean a text, quote it"),
    "unknown key of a store": (with_(data={"path": "x", "array": {}}), "data.array", "did you mean 'arrays'?"),
    "path is empty": (with_(data={"path": " "}), "data.path", "empty"),
    "arrays is a list": (with_(data={"path": "x", "arrays": ["X"]}), "data.arrays", "keys with values"),
    "array is a number": (with_(data={"path": "x", "arrays": {"X": 3}}), "data.arrays.X", "expected a text, got 3"),
    "array is null": (with_(data={"path": "x", "arrays": {"X": None}}), "data.arrays.X", "expected a text, got null"),
    "params is a list": (with_(params=[1]), "params", "expected keys with values, got a list"),
    "unknown parameter": (with_(params__row_nrm=1), "params.row_nrm", "did you mean 'row_norm'?"),
    "parameter of the budget": (with_(params__epsilon=1), "params.epsilon", "budget.epsilon sets it"),
    "fixed parameter": (with_(params__solver="gradient"), "params.solver", "the method dp-gd fixes it at 'gradient'"),
    "number in words": (with_(params__row_norm="one"), "params.row_norm", "expected a number or null, got 'one'"),
    "number is true": (with_(params__row_norm=True), "params.row_norm", "expected a number or null, got true"),
    "number is a mapping": (with_(params__row_norm={"a": 1}), "params.row_norm", "got the mapping {a}"),
    "null is no number": (with_(params__l1_ratio=None), "params.l1_ratio", "expected a number, got null"),
    "half a round": (
        with_(params__solver={"n_rounds": 2.5}),
        "params.solver.n_rounds",
        "expected a whole number or null, got 2.5",
    ),
    "no round": (with_(params__solver={"n_rounds": 0}), "params.solver.n_rounds", "n_rounds must be a whole number"),
    "unknown way to combine": (with_(params__solver={"combine": "first"}), "params.solver.combine", "'tail-average'"),
    "words in a start": (
        with_(params__solver={"start": [0.1, "left"]}),
        "params.solver.start",
        "expected a number, got 'left'",
    ),
    "nan in a start": (
        with_(params__solver={"start": [0.1, float("nan")]}),
        "params.solver.start",
        ".nan is not a number that can be used",
    ),
    "a name with parameters": (
        with_(params__solver={"gradient": {"n_rounds": 3}}),
        "params.solver.gradient",
        "with parameters it is written GradientDescent: {...}",
    ),
    "a start that is a number": (
        with_(params__solver={"start": 0.5}),
        "params.solver.start",
        "expected a list of numbers or null, got 0.5",
    ),
    "parameter of a solver": (with_(params__n_rounds=3), "params.n_rounds", "write solver: {n_rounds: 3}"),
    "parameter of a gradient": (
        with_(params__clip_norm=0.5),
        "params.clip_norm",
        "it belongs to gradient; write gradient: {clip_norm: 0.5}",
    ),
    "parameter of another solver": (
        with_(params__solver={"batch_rate": 0.5}),
        "params.solver.batch_rate",
        "GradientDescent has no parameter 'batch_rate'; it belongs to Katyusha, SVRG, SVRGPlusPlus. It has",
    ),
    "another solver": (
        with_(params__solver={"SVRG": {}}),
        "params.solver.SVRG",
        "the method fixes its kind at GradientDescent; write {GradientDescent: ...}, or choose another method",
    ),
    "misspelled field of a solver": (
        with_(params__solver={"GradientDescent": {"n_rouds": 3}}),
        "params.solver.GradientDescent.n_rouds",
        "did you mean 'n_rounds'?",
    ),
    "too large for a number": (with_(params__row_norm=10**350), "params.row_norm", "expected a number"),
    "truth in quotes": (with_(params__fit_intercept="true"), "params.fit_intercept", "expected true or false"),
    "truth is a number": (with_(params__fit_intercept=1), "params.fit_intercept", "expected true or false, got 1"),
    "classes is a text": (with_(params__classes="ab"), "params.classes", "expected a list"),
    "nested classes": (with_(params__classes=[0, [1]]), "params.classes", "it holds a list"),
    "a class is null": (with_(params__classes=[0, None]), "params.classes", "it holds null"),
    "unknown constraint": (
        with_(params__constraint={"L2Bal": 1}),
        "params.constraint.L2Bal",
        "unknown constraint 'L2Bal'; did you mean 'L2Ball'?",
    ),
    "penalty as constraint": (
        with_(params__constraint={"ElasticNet": 1}),
        "params.constraint.ElasticNet",
        "ElasticNet is a penalty, not a constraint",
    ),
    "constraint is a text": (with_(params__constraint="L2Ball"), "params.constraint", "such as {L2Ball: 10.0}"),
    "two constraints": (with_(params__constraint={"L2Ball": 1, "L1Ball": 1}), "params.constraint", "one name"),
    "unknown field": (
        with_(params__constraint={"L2Ball": {"radus": 1}}),
        "params.constraint.L2Ball.radus",
        "did you mean 'radius'?",
    ),
    "field of a solver that is not chosen": (
        with_(method="auto", estimator="LogisticRegression", params__solver={"n_rounds": 3}),
        "params.solver.n_rounds",
        "write {GradientDescent: {n_rounds: 3}}",
    ),
    "misspelt field of a solver": (
        with_(params__solver={"n_round": 3}),
        "params.solver.n_round",
        "did you mean 'n_rounds'? It has",
    ),
    "missing field": (with_(params__constraint={"Box": 1}), "params.constraint.Box.high", "write Box: {low: ..., high"),
    "field in words": (
        with_(params__constraint={"L2Ball": {"radius": "big"}}),
        "params.constraint.L2Ball.radius",
        "expected a number, got 'big'",
    ),
    "field out of range": (
        with_(params__constraint={"L2Ball": -1}),
        "params.constraint.L2Ball",
        "radius must be a pos",
    ),
    "unknown loss": (
        {**GOOD, "estimator": "Minimizer", "params": {"loss": "hubber"}},
        "params.loss",
        "unknown loss 'hubber'; did you mean 'huber'?",
    ),
    "a loss without fields": (
        {**GOOD, "estimator": "Minimizer", "params": {"loss": {"Squared": 3}}},
        "params.loss.Squared",
        "takes no value",
    ),
    "no budget": (with_(budget=DELETE), "budget", "missing; write budget: {epsilon"),
    "budget is empty": (with_(budget={}), "budget.epsilon", "missing"),
    "budget is a number": (with_(budget=1.0), "budget", "expected keys with values, got 1.0; write budget: {epsilon"),
    "a decimal comma": (with_(budget__epsilon=0, budget__5=None), "budget.5", "a number has a point and no comma"),
    "a parameter of another estimator": (
        with_(params__loss="huber"),
        "params.loss",
        "LogisticRegression has no such parameter; dp-gd fits LogisticRegression where the job names no estimator, and "
        "LinearRegression, Minimizer would read it: write estimator: LinearRegression",
    ),
    "a parameter that another estimator has": (
        with_(estimator="LogisticRegression", params__loss="huber"),
        "params.loss",
        "LogisticRegression has no such parameter; there are: alpha",
    ),
    "no epsilon": (with_(budget__epsilon=DELETE), "budget.epsilon", "missing"),
    "epsilon is zero": (with_(budget__epsilon=0), "budget.epsilon", "positive finite number"),
    "epsilon is negative": (with_(budget__epsilon=-1.0), "budget.epsilon", "positive finite number"),
    "epsilon is true": (with_(budget__epsilon=True), "budget.epsilon", "expected a number, got true"),
    "delta is missing": (with_(budget__delta=DELETE), "budget.delta", "missing; dp-gd needs a delta above 0"),
    "delta is zero": (with_(budget__delta=0), "budget.delta", "needs a delta above 0"),
    "delta is one": (with_(budget__delta=1.0), "budget.delta", "at least 0 and below 1"),
    "delta is negative": (with_(budget__delta=-1e-6), "budget.delta", "at least 0 and below 1"),
    "delta is auto": (with_(budget__delta="auto"), "budget.delta", "expected a number, got 'auto'"),
    "unknown part of the budget": (with_(budget__detla=1e-6), "budget.detla", "did you mean 'delta'?"),
    "cluster without scheme": ({**GOOD, "cluster": "host:8786"}, "cluster", "did you mean 'tcp://host:8786'?"),
    "cluster is a word": ({**GOOD, "cluster": "thread"}, "cluster", "expected threads"),
    "cluster is a number": ({**GOOD, "cluster": 4}, "cluster", "or {workers: 2}, got 4"),
    "no workers": ({**GOOD, "cluster": {"threads_per_worker": 2}}, "cluster.workers", "missing"),
    "zero workers": ({**GOOD, "cluster": {"workers": 0}}, "cluster.workers", "at least 1, got 0"),
    "unknown part of the cluster": (
        {**GOOD, "cluster": {"workers": 1, "memry_limit": 1}},
        "cluster.memry_limit",
        "did you mean 'memory_limit'?",
    ),
    "memory in words": ({**GOOD, "cluster": {"workers": 1, "memory_limit": "lots"}}, "cluster.memory_limit", "2GiB"),
    "output is a number": ({**GOOD, "output": 2026}, "output", "quote it: '2026'"),
    "ledger is empty": ({**GOOD, "ledger": ""}, "ledger", "empty"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_refused(problems, name):
    job, key, text = BROKEN[name]
    found = problems(job)
    assert [k for k, _, _ in found].count(key) == 1, found
    assert any(k == key and text in t for k, _, t in found), found
    assert all(re.fullmatch("line [0-9]+", where) for _, where, _ in found)


def test_a_good_job_is_not_among_the_broken(load):
    load(GOOD)
    assert json.dumps(GOOD) not in {json.dumps(job) for job, _, _ in BROKEN.values()}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("010", "leave out the leading zero"),
        ("1:30", "is not a number that can be used"),
        ("0x10", "is not a number that can be used"),
        ("0b11", "is not a number that can be used"),
        (".nan", "is not a number that can be used"),
        ("9" * 5000, "is not a number that can be used"),
    ],
)
def test_numbers_that_readers_of_yaml_disagree_about(problems, written, text):
    for old in ("1000", "1.0\n  delta", "[0, 1]"):
        new = old.replace("1000", written).replace("1.0", written).replace("0, 1", f"0, {written}")
        ((_, _, message),) = problems(TEXT.replace(old, new))
        assert text in message and len(message) < 200


@pytest.mark.parametrize("words", ["no, yes", "off, on", "Yes, No", "true, no"])
def test_words_that_yaml_takes_for_truth(problems, words):
    found = problems(TEXT.replace("0, 1", words))
    assert {(key, where) for key, where, _ in found} == {("params.classes", "line 7")}
    word = words.split(", ")[words.startswith("true")]
    assert f"to mean the word, quote it: '{word}'" in found[0][2]


# --- files that are no jobs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "where", "text"),
    [
        ("", "line 1", "the file is empty"),
        ("# only a comment\n", "line 1", "the file is empty"),
        ("- method\n", "line 1", "expected keys with values (method, estimator"),
        ("x,y\nSmith,2\n", "line 1", "got other text"),
        ("method: dp-gd\ndata: {generate: logit\n", "line 3, column 1", "not YAML"),
        ("method: dp-gd\n\tdata: 3\n", "line 2, column 1", "not YAML"),
        ("method: dp-gd\nmethod2 dp\nbudget: 3", "line 3, column 1", "not YAML"),
        ("a: &x {}\nb: *x\n", "line 2, column 4", "the alias *x is not read"),
        ("a: &x [*x]\n", "line 1, column 8", "the alias *x is not read"),
        ("method: !!python/object/apply:os.system ['true']\n", "line 1, column 9", "the tag"),
        ("method: !!str dp-gd\n", "line 1, column 9", "the tag"),
        ("method: dp-gd\n---\nmethod: dp-sgd\n", "line 2, column 1", "single document"),
        ("method: dp-gd\nx: a\x07b\n", "line 2", "is not allowed"),
        ("a: " + "[" * 20_000, "line 1", "nested too deeply"),
        (b"method: dp-gd\noutput: caf\xe9\n", "line 2", "byte 0xe9 is not UTF-8"),
        (b"PK\x03\x04\xff", "line 1", "not UTF-8"),
        (b"x: " + b"y" * 1_100_000, "the job file", "a job is a short YAML file"),
    ],
    ids=lambda value: str(value)[:25],
)
def test_files_that_are_no_jobs(tmp_path, content, where, text):
    path = tmp_path / "job.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(JobError) as error:
        load_job(path)
    (problem,) = error.value.problems
    assert problem.where == where and text in problem.text
    assert str(path) in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "nightly.yaml").write_text(TEXT)
    with pytest.raises(JobError, match=r"nightyl\.yaml, the job file: not found.*did you mean .*nightly\.yaml"):
        load_job(tmp_path / "nightyl.yaml")
    with pytest.raises(JobError, match=r"not found .* check the path"):
        load_job(tmp_path / "no" / "such.yaml")
    with pytest.raises(JobError, match="this is a directory"):
        load_job(tmp_path)
    with pytest.raises(JobError, match="cannot be read"):
        load_job("job\0.yaml")
    if os.geteuid() != 0:  # root may read everything
        (tmp_path / "nightly.yaml").chmod(0)
        with pytest.raises(JobError, match="cannot be read"):
            load_job(tmp_path / "nightly.yaml")


def test_utf8_with_a_mark_of_order_is_read(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + f"{TEXT}output: café\n".encode())
    assert load_job(path).output == "café"


def test_repeated_keys_are_refused(problems):
    found = problems(TEXT.replace("  d: 5\n", "  d: 5\n  n: 3\n"))
    assert found == [("data.n", "line 6", "this key is given twice (first: line 4)")]


# --- what the estimator says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "key", "where"),
    [
        ("  classes: [0, 1]", "params.row_norm", "line 6"),
        ("  row_norm: 1", "params.classes", "line 6"),
        ("  classes: [0, 1]\n  row_norm: -1", "params.row_norm", "line 8"),
        ("  row_norm: 1\n  classes: [0]", "params.classes", "line 8"),
        ("  row_norm: 1\n  classes: [0, 1]\n  neighbours: add", "params.neighbours", "line 9"),
        ("  row_norm: 1\n  classes: [0, 1]\n  neighbours: add-or-remove-one", "params.neighbours", "line 9"),
        ("  row_norm: 1\n  classes: [0, 1]\n  l1_ratio: 2", "params.l1_ratio", "line 9"),
    ],
)
def test_errors_of_the_estimator_get_key_and_line(load, params, key, where):
    job = load(TEXT.replace("  classes: [0, 1]\n  row_norm: 1.0", params), "data={path: x.zarr}")
    with pytest.raises(JobError) as error, locating(job):
        make_estimator(job).plan(1000, 5)
    (problem,) = error.value.problems
    assert (problem.key, problem.where) == (key, where)
    assert isinstance(error.value.__cause__, MissingBound | BudgetError)


def test_errors_of_the_estimator_name_the_setting(load):
    job = load(TEXT, "params.row_norm=-1")
    with pytest.raises(JobError) as error, locating(job):
        make_estimator(job).plan(1000, 5)
    assert error.value.problems[0].where == "--set params.row_norm=-1"


@pytest.mark.parametrize(
    ("params", "advised"),
    [
        (
            "  row_norm: 1.0",
            "with gradient: {ClipNorm: {clip_norm: ...}}; or bound the labels, with gradient: {ClipLabel:",
        ),
        ("  row_norm: 1.0\n  gradient: label", "with gradient: {ClipLabel: {label_bound: ...}}"),
    ],
)
def test_advice_of_an_estimator_is_written_as_in_a_job(load, params, advised):
    job = load(
        TEXT.replace("  classes: [0, 1]\n  row_norm: 1.0", params),
        "estimator=LinearRegression",
        "method=auto",
        "data={path: x.zarr}",
    )
    with pytest.raises(JobError) as error, locating(job):
        make_estimator(job).plan(1000, 5)
    (problem,) = error.value.problems
    assert advised in problem.text and "=Clip" not in problem.text


def test_errors_about_other_keys_and_about_none(load):
    job = load(TEXT)
    for message, key, where in (
        ("data.n must be an integer", "data.n", "line 4"),
        ("params.classes is [0, 2], but", "params.classes", "line 7"),
        ("data.labels must be", "data.labels", "line 2"),
        ("gradients need delta > 0: pass delta", "budget.delta", "line 11"),
        ("with this many rows n_public is too small", "params.n_public", "line 6"),
    ):
        with pytest.raises(JobError) as error, locating(job):
            raise DataError(message)
        assert [(p.key, p.where) for p in error.value.problems] == [(key, where)]
    with pytest.raises(DataError, match="no array"), locating(job):
        raise DataError("no array 'Z'")
    with pytest.raises(KeyError), locating(job):
        raise KeyError("row_norm")


# --- any file at all -------------------------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2.5,
    1e300,
    math.inf,
    -math.inf,
    "",
    "x",
    "no",
    "1e-6",
    "threads",
    [],
    {},
    [1, 2],
]
VALUES += [10**40, {"L2Ball": 1}, {"a": {"b": 1}}, "tcp://h:1", {"workers": 1}, ["a", None], {"Huber": "x"}, "logit"]
STARTS = [
    GOOD,
    {
        **GOOD,
        "estimator": "Minimizer",
        "data": {"generate": "linear", "n": 1000, "noise": "t3"},
        "params": {"loss": {"Huber": {"threshold": 1}}, "penalty": {"ElasticNet": 1}},
    },
    {**GOOD, "data": {"path": "a", "arrays": {"X": "f"}, "storage_options": {"k": [1, {"z": None}]}}},
    {**GOOD, "cluster": {"workers": 2, "memory_limit": "1GB"}, "ledger": "l", "output": "o", "estimator": "LinearSVC"},
]


def _places(value):
    """All ``(container, key)`` inside plain values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield value, key
        yield from _places(below)


def _mutate(rng, job):
    job = copy.deepcopy(job)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(job))
        if not places:
            return job
        container, key = rng.choice(places)
        what = rng.randrange(4)
        if what == 0:
            del container[key]
        elif what == 1 and isinstance(container, dict):  # a typo
            letters = list(str(key))
            letters[rng.randrange(len(letters))] = rng.choice(string.ascii_lowercase)
            container["".join(letters)] = container.pop(key)
        elif what == 2:
            other, name = rng.choice(places)
            container[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else None)
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
    return job


def test_mutated_jobs_are_read_or_refused_and_the_schema_takes_all_that_are_read(load):
    check = jsonschema.Draft202012Validator(schema("job"))
    rng = random.Random(20260131)
    outcomes = {True: 0, False: 0}
    for trial in range(1500):
        job = _mutate(rng, STARTS[trial % len(STARTS)])
        try:
            read = load(job)
        except JobError as error:
            assert all(p.text and re.fullmatch("line [0-9]+", p.where) for p in error.problems)
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        assert check.is_valid(job), (job, next(check.iter_errors(job)).message)
        make_estimator(read)
        assert check.is_valid(json.loads(json.dumps(read.asked, allow_nan=False)))
    assert min(outcomes.values()) > 100, outcomes


def test_mutated_text_is_read_or_refused(load):
    rng = random.Random(20260131)
    letters = string.printable + "é☃\x00\x85\u2028"
    text = yaml.safe_dump(STARTS[1])
    for _ in range(400):
        mutated = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(mutated))
            mutated[at : at + rng.randrange(3)] = rng.choice(letters)
        setting = "".join(rng.choice("data.npms=[]{}:,'\"!&*1e-") for _ in range(rng.randrange(12)))
        try:
            load("".join(mutated), *([f"data.{setting}"] if rng.random() < 0.3 else []))
        except JobError as error:
            assert error.problems

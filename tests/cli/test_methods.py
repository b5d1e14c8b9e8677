"""``dpdist methods``."""

from __future__ import annotations

import json

import pytest

from dpdist.jobs.registry import METHODS
from tests.cli.command import call


def test_the_table_names_every_method(capsys):
    said = call(capsys, "methods")
    assert said.code == 0 and said.err == ""
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)
    assert all(method.title in line for method, line in zip(METHODS.values(), lines[1:], strict=True))


def test_json_is_one_object_with_everything_of_an_entry(capsys):
    entries = json.loads(call(capsys, "methods", "--json").out)["methods"]
    assert [entry["id"] for entry in entries] == list(METHODS)
    wanted = {
        "needs",
        "aliases",
        "id",
        "title",
        "trust",
        "guarantee",
        "estimators",
        "parameters",
        "outputs",
        "spec",
        "source",
        "pipeline",
    }
    assert all(set(entry) == wanted for entry in entries)


@pytest.mark.parametrize("name", METHODS)
def test_details_list_the_parameters_that_a_job_can_set(name, capsys):
    said = call(capsys, "methods", name)
    assert said.code == 0 and METHODS[name].pipeline in said.out and METHODS[name].spec in said.out
    found = json.loads(call(capsys, "methods", name, "--json").out)
    assert list(found["estimator_parameters"]) == list(METHODS[name].estimators)
    for estimator, parameters in found["estimator_parameters"].items():
        names = {parameter["name"] for parameter in parameters}
        assert names.isdisjoint({"epsilon", "delta", "ledger", "cluster", "run_id", *METHODS[name].parameters})
        undescribed = [parameter["name"] for parameter in parameters if not parameter["what"]]
        assert not undescribed, f"{estimator}: no description of {undescribed} in the docstrings"
        assert all(parameter["takes"] for parameter in parameters)


def test_details_of_a_parameter_come_from_the_docstrings(capsys):
    out = call(capsys, "methods", "dp-gd").out
    assert "row_norm: a number or null" in out and "longer rows less" in out
    assert "l1_ratio: a number, default 0.0" in out and "alpha: a number or null" in out


def test_one_form_is_asked_for(capsys):
    said = call(capsys, "methods", "dp-gd", "--job", "--json")
    assert said.code == 2 and "--job prints YAML" in said.err and not said.out


def test_another_name_of_a_method(capsys):
    said = call(capsys, "methods", "mean-dp")
    assert said.code == 0 and said.out.startswith("Method       catoni-mean") and "mean-dp" in said.out
    assert json.loads(call(capsys, "methods", "dp-iht-peeling", "--json").out)["id"] == "residual-clip-iht"


def test_an_id_that_is_a_part_of_methods(capsys):
    said = call(capsys, "methods", "peeling")
    assert said.code == 0 and "no method of its own" in said.out and "residual-clip-iht" in said.out
    found = json.loads(call(capsys, "methods", "shrink", "--json").out)
    assert found["methods"] == ["ht-private-lasso", "ht-dp-iht"] and found["settings"] == {"params.gradient": "shrink"}
    for words in (("methods", "peeling", "--job"), ("run", "peeling"), ("plan", "peeling")):
        said = call(capsys, *words)
        assert said.code == 2 and "no method of its own, a part of residual-clip-iht" in said.err


def test_the_job_of_a_method_is_printed(capsys):
    said = call(capsys, "methods", "mean-dp", "--job")
    assert said.code == 0 and "\nmethod: catoni-mean\n" in said.out and said.out.startswith("#")
    assert call(capsys, "methods", "--job").code == 2


def test_a_mistyped_method_is_answered_with_the_nearest(capsys):
    said = call(capsys, "methods", "dp-gdd")
    assert said.code == 2 and said.out == ""
    assert "no method 'dp-gdd'" in said.err and "did you mean 'dp-gd'" in said.err

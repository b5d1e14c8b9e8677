"""Which file a name means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpdist.errors import DpdistError
from dpdist.jobs import shipped
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.registry import ALIASES, METHODS
from tests.cli.command import call

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [*METHODS, *ALIASES])
def test_the_name_of_a_method_is_its_job(name):
    path = shipped.job_file(name)
    assert path == PIPELINES / f"{ALIASES.get(name, name)}.yaml" and path.is_file()
    assert shipped.job_file(METHODS[ALIASES.get(name, name)].pipeline) == path, "as it is listed"


def test_a_file_wins_over_a_name_and_a_directory_does_not(empty):
    (empty / "dp-gd").mkdir()
    assert shipped.job_file("dp-gd") == PIPELINES / "dp-gd.yaml"
    (empty / "oue").write_text((PIPELINES / "krr.yaml").read_text())
    assert load_job("oue").method.id == "krr" and load_job(PIPELINES / "oue.yaml").method.id == "oue"
    (empty / "pipelines").mkdir()
    (empty / "pipelines" / "dp-gd.yaml").write_text((PIPELINES / "dp-agd.yaml").read_text())
    assert load_job("pipelines/dp-gd.yaml").method.id == "dp-agd"


def test_names_that_are_nothing():
    with pytest.raises(DpdistError, match=r"nor a method 'dp-gdd'; did you mean 'dp-gd'\? Near it are"):
        load_job("dp-gdd")
    with pytest.raises(DpdistError, match="nor a method ''; 'dpdist methods' lists all"):
        load_job("")
    with pytest.raises(JobError, match=r"dp-gdd.yaml, the job file: not found"):
        load_job("dp-gdd.yaml")
    with pytest.raises(JobError, match=r"pipelines/dp-gdd.yaml, the job file: not found"):
        load_job("pipelines/dp-gdd.yaml")
    with pytest.raises(DpdistError, match=r"nor a figure 'exp-5.55'; did you mean 'exp-5.5'\?"):
        shipped.figure_file("exp-5.55")


def test_a_package_without_its_files_says_so(empty, monkeypatch):
    monkeypatch.setattr(shipped, "_PACKAGE", empty / "site-packages" / "dpdist")
    with pytest.raises(DpdistError, match="has no folder pipelines, which comes with dpdist: install it again"):
        load_job("dp-gd")


def test_every_command_that_takes_a_job_takes_a_name(capsys):
    assert json.loads(call(capsys, "plan", "mean-dp", "--json").out)["id"] == "catoni-mean"
    record = json.loads(call(capsys, "run", "dp-gd", "--set", "data.n=2000", "--json", "--quiet").out)
    assert record["id"] == "dp-gd" and record["metrics"]["trivial_error"] > 0
    said = call(capsys, "submit", "dp-gd")
    assert said.code == 2 and "file" not in said.err
    assert call(capsys, "doctor", "dp-gd").code == 0
    assert not json.loads(call(capsys, "audit", "krr", "--runs", "50", "--json").out)["contradicted"]

"""``dpdist plan``: from public numbers, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import call

PIPELINE = Path(__file__).parents[2] / "pipelines" / "dp-sgd.yaml"


def test_the_plan_for_people(capsys):
    said = call(capsys, "plan", PIPELINE)
    assert said.code == 0 and said.err == ""
    for part in (
        "dp-sgd",
        "100,000 rows, 50 features",
        "201, in 5 passes",
        "epsilon 0.99999, delta 1e-06",
        "Poisson(rate=0.02)",
        "Replacing all data of any one row",
        "Predicted error",
    ):
        assert part in " ".join(said.out.split()), part
    assert "Warning" not in said.out


def test_one_json_object(capsys):
    plan = json.loads(call(capsys, "plan", PIPELINE, "--json").out)
    assert plan["format"] == "dpdist-plan/1"
    assert [item["count"] for item in plan["plan"]["items"]] == [1, 200]
    assert plan["guarantee"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert "budget" not in plan and "memory" not in plan, "no ledger is opened and no cluster is asked"


def test_other_sizes_of_data(capsys):
    job = ("plan", PIPELINE.with_name("dp-gd.yaml"), "--json")
    big = json.loads(call(capsys, *job, "--n-rows", 10**7).out)
    small = json.loads(call(capsys, *job, "--n-rows", 1000, "--n-features", 5).out)
    assert big["data"] == {**big["data"], "n_rows": 10**7, "n_features": 50}
    assert small["data"] == {**small["data"], "n_rows": 1000, "n_features": 5}
    assert big["outlook"]["predicted_error"] < small["outlook"]["predicted_error"]


def test_data_that_does_not_exist_needs_both_sizes(capsys, tmp_path):
    (tmp_path / "job.yaml").write_text(
        "{method: dp-gd, data: {path: nowhere.zarr}, params: {classes: [0, 1], row_norm: 1}, "
        "budget: {epsilon: 1, delta: 1.0e-8}}"
    )
    assert call(capsys, "plan", tmp_path / "job.yaml", "--n-rows", 10**6, "--n-features", 50).code == 0
    said = call(capsys, "plan", tmp_path / "job.yaml", "--n-rows", 10**6)
    assert said.code == 2 and "nowhere.zarr" in said.err


def test_a_hopeless_job_is_told_what_it_would_take(capsys):
    job = PIPELINE.with_name("dp-gd.yaml")
    said = call(capsys, "plan", job, "--set", "data.n=100", "--set", "budget.epsilon=0.01")
    assert said.code == 0
    warning = "even on rows that suit it this fit is expected to be no better than ignoring the data: take n_rows >="
    assert f"Warning: {warning}" in " ".join(said.out.split())


def test_a_job_that_is_wrong(capsys):
    said = call(capsys, "plan", PIPELINE, "--set", "budget.epsilom=1")
    assert said.code == 2 and "epsilom" in said.err and "epsilon" in said.err and said.out == ""
    said = call(capsys, "plan", PIPELINE, "--n-rows", 0)
    assert said.code == 2 and "--n-rows" in said.err

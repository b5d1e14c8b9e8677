"""Jobs of the local model: what they plan, what they record, and what their report says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from dpdist.errors import DataError
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.planning import plan_job
from dpdist.jobs.registry import METHODS
from dpdist.jobs.run import run_job
from dpdist.local.mean.columns import Mean
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.frequency_problems import categories, codes
from tests.cli.command import call

PIPELINES = Path(__file__).parents[2] / "pipelines"
LOCAL = [name for name, method in METHODS.items() if method.trust == "local"]


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)))


@pytest.mark.parametrize("name", ["oue", "ldp-iht", "ldp-gauss", "label-ldp-iht"])
def test_the_report_says_who_is_trusted_and_what_is_protected(name, tmp_path):
    job = load_job(PIPELINES / f"{name}.yaml", ["data.n=5000", f"output={tmp_path}/out"])
    record = run_job(job)
    held = record["guarantee"]
    assert held["model"] == "local" and "In the local model" in held["text"] and not record["simulation"]
    assert (held["delta"] > 0) == (name == "ldp-gauss")
    page = text_of((tmp_path / "out" / "report.html").read_text())
    assert "nobody (local model)" in page and "whoever collects the reports needs no trust" in page
    assert "those who keep them know them all the same" in page
    assert ("suspects the label" in page) == (name == "label-ldp-iht")
    # no exact sum was ever made, and the noise of a report is not that of their sum
    assert all(release["noise_std"] is None and release["sensitivity"] is None for release in record["releases"])
    assert "Noise against signal" not in page


def test_the_plan_predicts_the_standard_error(capsys):
    path = PIPELINES / "duchi-1d.yaml"
    record = plan_job(load_job(path))
    [line] = record["plan"]["items"]
    protocol = Mean("interval", "one-bit", low=-1.0, high=1.0, epsilon=1.0).protocol(100_000, 1)
    assert line["noise_std"] == protocol.noise_std
    assert line["standard_error"] == pytest.approx(protocol.noise_std / np.sqrt(100_000))
    said = call(capsys, "plan", path)
    assert (
        said.code == 0 and "Standard error" in said.out and "0.00684" in said.out and "In the local model" in said.out
    )


def test_rounds_have_a_group_of_users_each(capsys):
    record = plan_job(load_job(PIPELINES / "ldp-iht.yaml"))
    lines = record["plan"]["items"]
    assert len(lines) > 1 and record["passes"] == pytest.approx(1.0), "every row is read once"
    for line in lines:
        assert line["standard_error"] == pytest.approx(line["noise_std"] / np.sqrt(100_000 / len(lines)))
    assert record["guarantee"]["epsilon"] == 2.0


@pytest.mark.parametrize("name", LOCAL)
def test_every_method_has_a_plan(name):
    record = plan_job(load_job(PIPELINES / f"{name}.yaml"))
    assert (
        record["guarantee"]["model"] == "local"
        and record["guarantee"]["epsilon"] <= record["asked"]["budget"]["epsilon"]
    )
    assert all(line["standard_error"] > 0 for line in record["plan"]["items"])


def test_methods_are_listed_as_local(capsys):
    said = json.loads(call(capsys, "methods", "--json").out)["methods"]
    trust = {entry["id"]: (entry["trust"], entry["guarantee"]) for entry in said}
    assert trust["oue"] == ("local", "epsilon per report") and trust["dp-gd"][0] == "central"
    assert trust["ldp-gauss"] == ("local", "(epsilon, delta) per report")
    alias = call(capsys, "methods", "ldp-vec-gauss").out
    assert "ldp-gauss: " in alias and "Also called  ldp-vec-gauss" in alias
    assert re.search(r"^To be set +label_moment$", call(capsys, "methods", "nldp-sparse-lr-heavy").out, re.M)


def test_public_rows_of_a_store(tmp_path):
    problem = PROBLEMS["sphere-l1"].generate({"n": 60_000, "d": 10, "public_rows": 3000})
    rows = problem.dataset.read(0, 60_000)
    Dataset.from_arrays(tmp_path / "users.zarr", **rows)
    Dataset.from_arrays(tmp_path / "others.zarr", X=problem.public)
    (tmp_path / "job.yaml").write_text(
        f"""
        method: l1-linreg-pubcov
        data: {{path: {tmp_path}/users.zarr, public: {tmp_path}/others.zarr}}
        params: {{l1_radius: 4.0, row_norm: 1.0, label_bound: 1.0, random_state: 0}}
        budget: {{epsilon: 4.0}}
        ledger: {tmp_path}/ledger.sqlite
        output: {tmp_path}/out
        """
    )
    record = run_job(load_job(tmp_path / "job.yaml"))
    assert record["status"] == "done" and record["budget"]["after"]["epsilon"] == 4.0
    assert not np.array_equal(problem.public[:100], rows["X"][:100])


@pytest.mark.parametrize("place, says", [
    ("nowhere.zarr", "cannot open a Zarr group at .*nowhere.zarr"),
    ("users.zarr/X", "a group that holds the arrays, not a single array"),
    ("job.yaml", "job.yaml is a file, and a stored dataset is expected"),
    ("labels.zarr", "'X'"),
    ("narrow.zarr", "rows of 3 features, got shape"),
    ("few.zarr", "too few for 3 features"),
    ("holes.zarr", "not finite"),
    ("users.zarr", "users.zarr is not public: it is the protected dataset"),
])  # fmt: skip
def test_public_rows_that_are_none_are_refused_before_anything_is_charged(tmp_path, place, says):
    rows = np.random.default_rng(0).normal(size=(400, 3))
    Dataset.from_arrays(tmp_path / "users.zarr", X=rows, y=np.sign(rows[:, 0]))
    Dataset.from_arrays(tmp_path / "labels.zarr", y=rows[:, 0])
    Dataset.from_arrays(tmp_path / "narrow.zarr", X=rows[:, :2])
    Dataset.from_arrays(tmp_path / "few.zarr", X=rows[:2])
    Dataset.from_arrays(tmp_path / "holes.zarr", X=np.where(rows > 2, np.nan, rows))
    (tmp_path / "job.yaml").write_text(
        f"""
        method: nldp-glm-pubcov
        estimator: local.LogisticRegression
        data: {{path: {tmp_path}/users.zarr, public: {tmp_path}/{place}}}
        params: {{classes: [-1, 1]}}
        budget: {{epsilon: 4.0}}
        ledger: {tmp_path}/ledger.sqlite
        output: {tmp_path}/out
        """
    )
    with pytest.raises(DataError, match=says):
        run_job(load_job(tmp_path / "job.yaml"))
    assert Ledger(tmp_path / "ledger.sqlite").accounts() == []


def test_generated_categories_have_the_frequencies_they_tell():
    data, truth = categories(200_000, n_categories=7, exponent=0.7)
    found = np.bincount(data.read(0, 200_000)["X"].ravel().astype(int), minlength=7) / 200_000
    assert truth.sum() == pytest.approx(1) and np.abs(found - truth).max() < 6 * np.sqrt(0.25 / 200_000)
    data, (names, frequencies) = codes(100_000, n_bits=40, n_codes=20)
    assert len(np.unique(names)) == 20 and names.max() < 2**40
    found = np.array([(data.read(0, 100_000)["X"] == name).mean() for name in names])
    assert np.abs(found - frequencies).max() < 6 * np.sqrt(0.25 / 100_000)


@pytest.mark.parametrize(
    ("method", "problem", "message"),
    [
        ("oue", "box", "means of columns, and oue (local.Histogram) gives frequencies of categories"),
        ("duchi-1d", "categories", "frequencies of categories, and duchi-1d (local.Mean) gives means of columns"),
        ("heavy-hitters", "categories", "and heavy-hitters (local.HeavyHitters) gives frequent codes"),
        ("oue", "logit", "predicted classes, and oue (local.Histogram) gives frequencies of categories"),
        ("ldp-iht", "box", "means of columns, and ldp-iht (local.SparseRegression) gives predicted numbers"),
        ("krr-rff-gram", "hard-instance", "coefficients of a regression, and krr-rff-gram (local.KernelRidge) gives"),
        ("dp-gd", "linear", "and dp-gd (LogisticRegression) gives probabilities of classes or predicted classes"),
    ],
)
def test_a_method_is_asked_only_for_what_it_answers(tmp_path, method, problem, message):
    delta = "" if METHODS[method].guarantee == "epsilon" else ", delta: 1.0e-6"
    (tmp_path / "job.yaml").write_text(
        f"method: {method}\ndata:\n  generate: {problem}\nbudget: {{epsilon: 1{delta}}}\n"
    )
    with pytest.raises(JobError) as error:
        load_job(tmp_path / "job.yaml")
    assert f"line 3: data.generate: the problem '{problem}' judges" in str(error.value)
    assert message in str(error.value)


def test_a_number_that_problem_and_method_share_has_to_agree():
    with pytest.raises(JobError, match=r"params\.n_categories is 100, but the problem 'categories' has 9"):
        load_job(PIPELINES / "oue.yaml", ["data.n_categories=9"])

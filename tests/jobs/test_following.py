"""What a job makes of the second moment that it releases: several answers, one charge, all checked beforehand."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dpdist import Dataset, GraphicalLasso, Ledger, SecondMoment
from dpdist.cli import main
from dpdist.engine.progress import Charged, watching
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.json_schema import schema
from dpdist.jobs.planning import plan_job
from dpdist.jobs.run import run_job
from dpdist.jobs.yaml_lines import parse
from dpdist.runs.directory import RunDirectory

JOB = jsonschema.Draft202012Validator(schema("job"))
RUN = jsonschema.Draft202012Validator(schema("run"))
THREE = (
    "{pca-central: {n_components: 2, gap: 0.1}, cov-threshold-dp: null, glasso-cov-perturb: {method: {multiple: 0.5}}}"
)
TEXT = """
method: m2-goe
data: {{path: {place}/rows.zarr, arrays: {{X: features}}}}
params: {{row_norm: 2.0}}
then: {then}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
ledger: {place}/ledger.sqlite
output: {place}/out
"""


@pytest.fixture
def job(tmp_path):
    """``job(then, *settings)`` loads a job on stored rows."""
    X = np.random.default_rng(0).normal(size=(4000, 5)) * [1.0, 0.6, 0.3, 0.2, 0.2]
    Dataset.from_arrays(tmp_path / "rows.zarr", features=X, partition_rows=500)
    path = tmp_path / "job.yaml"

    def load(then=THREE, *settings):
        path.write_text(TEXT.format(place=tmp_path, then=then))
        return load_job(path, settings)

    return load


def spent(place):
    ledger = Ledger(place / "ledger.sqlite")
    try:
        return ledger.spent(Dataset.open(place / "rows.zarr").account).epsilon
    finally:
        ledger.close()


def arrays(place):
    group = zarr.open_group(place / "out" / "released.zarr", mode="r")
    return {name: group[name][...] for name in group.array_keys()}


def test_one_second_moment_and_three_estimators_are_charged_once(job, tmp_path):
    record = run_job(job())
    RUN.validate(record)
    RUN.validate(json.loads((tmp_path / "out" / "run.json").read_text()))
    assert spent(tmp_path) == pytest.approx(1.0) and len(record["releases"]) == 1
    assert [made["id"] for made in record["then"]] == ["pca-central", "cov-threshold-dp", "glasso-cov-perturb"]
    found = arrays(tmp_path)
    assert found.keys() == record["released"]["arrays"].keys()
    values, vectors = np.linalg.eigh(found["second_moment"])
    np.testing.assert_allclose(found["pca-central.explained_variance"], values[:-3:-1])
    np.testing.assert_allclose(np.abs(found["pca-central.components"]), np.abs(vectors[:, :-3:-1].T), atol=1e-8)
    assert found["cov-threshold-dp.covariance"].shape == found["glasso-cov-perturb.precision"].shape == (5, 5)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "at no further cost" in page and "glasso-cov-perturb.precision" in page
    assert RUN.is_valid(run_job(job(), resume=True)) and spent(tmp_path) == pytest.approx(1.0)


def test_what_follows_is_what_the_estimators_make_of_the_same_release(job, tmp_path):
    run_job(job(THREE, "params.random_state=3"))
    moment = SecondMoment("goe", row_norm=2.0, epsilon=1.0, delta=1e-6, random_state=3)
    rows = Dataset.open(tmp_path / "rows.zarr").select(X="features")
    fitted = moment.fit(rows)
    found = arrays(tmp_path)
    np.testing.assert_array_equal(found["second_moment"], fitted.second_moment_)
    again = GraphicalLasso().set_params(method="covariance", method__multiple=0.5).fit(fitted)
    np.testing.assert_array_equal(found["glasso-cov-perturb.precision"], again.precision_)


def test_a_run_that_broke_off_after_its_charge_makes_all_of_one_release(job, tmp_path):
    def breaks(event):
        if isinstance(event, Charged):
            raise KeyboardInterrupt

    with watching(breaks), pytest.raises(KeyboardInterrupt):
        run_job(job())
    assert spent(tmp_path) == pytest.approx(1.0)
    record = run_job(job(THREE, "cluster={workers: 1}"), resume=True)
    assert record["status"] == "done" and len(record["then"]) == 3 and spent(tmp_path) == pytest.approx(1.0)


def test_what_is_thought_of_later_is_made_of_the_release_that_was_paid_for(job, tmp_path):
    """After a run was killed, and after it was done; whatever follows, the release is the one on file."""

    def breaks(event):
        if isinstance(event, Charged):
            raise KeyboardInterrupt

    with watching(breaks), pytest.raises(KeyboardInterrupt):
        run_job(job())
    one = run_job(job("{pca-central: {n_components: 3}}"), resume=True)
    first = arrays(tmp_path)
    assert [made["id"] for made in one["then"]] == ["pca-central"] and len(first["pca-central.components"]) == 3
    more = run_job(job("{pca-central: {n_components: 1}, cov-noisy: {}}"), resume=True)
    second = arrays(tmp_path)
    assert more["run_id"] == one["run_id"] and more["releases"] == one["releases"]
    assert more["asked"]["then"] == {"pca-central": {"n_components": 1}, "cov-noisy": {}}
    assert second.keys() == {
        "second_moment", "pca-central.components", "pca-central.explained_variance", "cov-noisy.covariance"
    }  # fmt: skip
    np.testing.assert_array_equal(first["second_moment"], second["second_moment"])
    np.testing.assert_allclose(first["pca-central.components"][:1], second["pca-central.components"])
    none = run_job(job("{}"), resume=True)
    assert none["then"] == [] and arrays(tmp_path).keys() == {"second_moment"}
    assert spent(tmp_path) == pytest.approx(1.0)
    RUN.validate(none)


def test_results_that_change_are_never_half_of_one_run_and_half_of_another(job, tmp_path, monkeypatch):
    done = run_job(job())

    def breaks(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "finish", breaks)
    with pytest.raises(KeyboardInterrupt):
        run_job(job("{cov-noisy: null}"), resume=True)
    monkeypatch.undo()
    half = json.loads((tmp_path / "out" / "run.json").read_text())
    RUN.validate(half)
    assert half["status"] == "started" and half["run_id"] == done["run_id"]
    again = run_job(job("{cov-noisy: null}"), resume=True)
    assert again["status"] == "done" and again["releases"] == done["releases"]
    assert spent(tmp_path) == pytest.approx(1.0)


def test_a_dry_run_says_what_follows_and_charges_nothing(job, tmp_path):
    loaded = job()
    dry, plan = run_job(loaded, dry_run=True), plan_job(loaded)
    assert dry["then"] == plan["then"] and dry["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert dry["then"][0]["outlook"]["predicted_error"] > 0
    shown = CliRunner().invoke(main, ["run", loaded.source, "--dry-run"])
    assert "Then pca-central, at no further cost" in shown.stdout and shown.exit_code == 0
    assert not (tmp_path / "ledger.sqlite").exists()


def test_overrides_reach_what_follows(job):
    assert job("{pca-central: null}", "then.pca-central.n_components=4").then[0].params == {"n_components": 4}
    assert job("null").then == job("{}").then == ()
    assert "then" not in job("null").asked and job().asked["then"]["cov-threshold-dp"] == {}


@pytest.mark.parametrize(
    ("then", "settings", "match"),
    [
        ("{pca: null}", [], r"then\.pca: no method of this name .*pca-central"),
        ("{pca-ldp: null}", [], r"then\.pca-ldp: no method of this name"),
        ("{dp-gd: null}", [], r"then\.dp-gd: no method of this name"),
        ("{pca-central: 3}", [], r"then\.pca-central: expected keys with values"),
        ("[pca-central]", [], r"then: expected keys with values"),
        ("{pca-central: {n_component: 3}}", [], r"then\.pca-central\.n_component: PCA has no such parameter"),
        ("{pca-central: {row_norm: 2.0}}", [], r"row_norm: it is of the release, and params\.row_norm sets it"),
        ("{pca-central: {epsilon: 2.0}}", [], r"not a key of then\.pca-central: budget\.epsilon sets it"),
        ("{spca-fps: {refit: false}}", [], "the method spca-fps fixes it at True"),
        ("{pca-central: null}", ["method=pca-central"], "then: PCA releases no second moment"),
        ("{pca-central: null}", ["method=mean-clip-dp"], "method"),
    ],
)
def test_what_cannot_follow_is_refused_by_loader_and_schema(then, settings, match, job, tmp_path):
    with pytest.raises(JobError, match=match):
        job(then, *settings)
    tree = parse((tmp_path / "job.yaml").read_text(), "job.yaml", []).plain()
    tree |= dict(setting.split("=") for setting in settings)
    assert not JOB.is_valid(tree)


def test_the_schema_takes_what_the_loader_takes(job, tmp_path):
    loaded = job()
    JOB.validate(parse((tmp_path / "job.yaml").read_text(), "job.yaml", []).plain())
    JOB.validate(json.loads(json.dumps(loaded.asked)))


@pytest.mark.parametrize(
    ("then", "match"),
    [
        ("{pca-central: {n_components: 9}}", r"then\.pca-central\.n_components.* exceeds the number of columns, 5"),
        ("{spca-fps: {multiple: -1}}", r"then\.spca-fps\.multiple.* must be a positive"),
        ("{glasso-output-capped: {method: {cap: 4.0}}}", r"then\.glasso-output-capped.* noise on the solution"),
    ],
)
def test_what_cannot_be_made_of_the_release_is_refused_before_it_is_charged(then, match, job, tmp_path):
    with pytest.raises(JobError, match=match):
        run_job(job(then))
    assert not (tmp_path / "ledger.sqlite").exists() and not (tmp_path / "out").exists()


def test_generated_rows_judge_the_answers_that_they_know(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        """
        method: m2-goe
        data: {generate: spiked-unit, n: 3000, d: 8, n_components: 2}
        params: {row_norm: 1.0}
        then: {pca-central: {n_components: 2}, cov-noisy: null, glasso-cov-perturb: null}
        budget: {epsilon: 1.0, delta: 1.0e-6}
        """
    )
    components, covariance, precision = run_job(load_job(path))["then"]
    for judged in (components["metrics"], covariance["metrics"]):
        assert judged["error"] < judged["trivial_error"] / 10
    assert precision["metrics"] is None
    with pytest.raises(JobError, match=r"then\.pca-central\.n_components: is 3, but the problem"):
        load_job(path, ["then.pca-central.n_components=3"])

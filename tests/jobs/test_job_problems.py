"""Jobs on generated problems: those that no pipeline shows are run, and what a generator does not read is named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dpdist.errors import DataError
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.run import run_job

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.fixture
def load(tmp_path):
    def load_(method, data, params):
        text = f"method: {method}\ndata: {data}\nparams: {params}\nbudget: {{epsilon: 1.0, delta: 1.0e-6}}\n"
        (tmp_path / "job.yaml").write_text(text)
        return load_job(tmp_path / "job.yaml")

    return load_


@pytest.mark.parametrize(
    ("method", "data", "params", "share"),
    [
        ("dp-gd", "{generate: rcv1-like, d: 100}", "{classes: [0, 1], row_norm: 1.0, random_state: 0}", 0.8),
        ("sparse-mean-ht", "{generate: spiky-sparse}", "{n_nonzero: 5, second_moment: 1.0, random_state: 0}", 0.15),
    ],
)
def test_a_job_learns_something_of_the_problem(load, method, data, params, share):
    metrics = run_job(load(method, data, params))["metrics"]
    assert 0 < metrics["nonprivate_error"] < metrics["error"] < share * metrics["trivial_error"] < math.inf


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{generate: spikey-sparse}", "data.generate: unknown generator 'spikey-sparse'; did you mean 'spiky-sparse'"),
        (
            "{generate: box, exponent: 2}",
            "data.exponent: box does not read it, categories and codes read it; box reads n",
        ),
        (
            "{generate: box, n_bits: 2}",
            "data.n_bits: box does not read it, codes reads it; box reads n, d, random_state",
        ),
        ("{generate: box, randomstate: 2}", "data.randomstate: unknown key; did you mean 'random_state'"),
    ],
)
def test_what_a_generator_does_not_read_is_named_with_who_does(load, data, message):
    with pytest.raises(JobError) as error:
        load("catoni-mean", data, "{second_moment: 1.0}")
    assert f"line 2: {message}" in str(error.value)


def test_a_correlation_that_no_row_would_have_is_refused():
    job = load_job(PIPELINES / "nldp-ols.yaml", ["data.design=sign"])
    with pytest.raises(DataError, match=r"design='sign' does not read correlation, 0\.3: design='gaussian' reads it"):
        run_job(job)

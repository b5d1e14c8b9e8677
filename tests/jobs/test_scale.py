"""The cost model says what it is meant to say, and the plan shows what follows from it."""

from __future__ import annotations

import itertools
import json

import pytest

from dpdist.jobs.job import load_job
from dpdist.jobs.planning import plan_job
from dpdist.jobs.scale import (
    WORTH_IT,
    Machine,
    Work,
    is_resident,
    load_seconds,
    round_seconds,
    run_seconds,
    suggested_threads,
    suggestion,
)
from tests.cli.command import call

BIG = Work(10**11, 408 * 10**11, 408 * 10**11 // 2**25, 50, 30)


def test_rows_dominate_until_tasks_do():
    stay = [round_seconds(BIG, 2**i, Machine(), resident=True) for i in range(24)]
    best = stay.index(min(stay))
    assert all(a > b for a, b in itertools.pairwise(stay[: best + 1]))
    assert all(a <= b for a, b in itertools.pairwise(stay[best:]))
    # the best number of threads, in closed form
    machine = Machine()
    exact = (BIG.nbytes / machine.memory / (machine.task + 16 * 50 / machine.link)) ** 0.5
    assert 0.4 < 2**best / exact < 2.5


def test_a_thousand_workers_and_1e11_rows():
    """40 TB: read in minutes; streamed, every pass costs as much; no scheduler is the bottleneck."""
    machine = Machine()
    assert not is_resident(BIG, 1000, machine)
    assert load_seconds(BIG, 1000) == pytest.approx(408e11 / (1000 * machine.store), rel=0.1)
    assert round_seconds(BIG, 1000) == pytest.approx(load_seconds(BIG, 1000), rel=0.1)
    assert 1000 * machine.task < 0.05 * round_seconds(BIG, 1000)


@pytest.mark.parametrize("n_rows", [10, 10**4, 10**6, 10**9, 10**11])
@pytest.mark.parametrize("size", [1, 50, 10**5])
def test_what_is_suggested_is_nearly_the_best(n_rows, size):
    nbytes = 8 * n_rows * (size + 1)
    found = suggestion(n_rows, nbytes, size, 30)
    partitions = -(-n_rows // found["partition_rows"])
    work = Work(n_rows, nbytes, partitions, size, 30)
    fastest = min(run_seconds(work, 2**i) for i in range(partitions.bit_length()))
    assert 1 <= found["threads"] <= partitions and 1 <= found["partition_rows"] <= n_rows
    assert run_seconds(work, suggested_threads(work)) <= WORTH_IT * fastest
    assert found["partition_rows"] * nbytes / n_rows <= 64 * 2**20 or found["partition_rows"] == 1
    json.dumps(found)


@pytest.mark.parametrize(("nbytes", "verdict"), [(2**15, "small"), (2**25, "good"), (2**30, "large"), (None, None)])
def test_partitions_that_are_there_are_judged(nbytes, verdict):
    assert suggestion(10**8, 10**11, 50, 10, nbytes)["partitions_are"] == verdict


@pytest.fixture
def job(tmp_path):
    text = {
        "method": "dp-gd",
        "data": {"path": "nowhere.zarr"},
        "params": {"classes": [0, 1], "row_norm": 1.0},
        "budget": {"epsilon": 1.0, "delta": 1e-12},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(text))
    return tmp_path / "job.yaml"


def test_the_plan_shows_it(job, capsys):
    said = call(capsys, "plan", job, "--n-rows", 10**9, "--n-features", 50)
    assert said.code == 0 and "\nSuggested  82,241 rows a partition; " in said.out and "worker threads with" in said.out
    small = call(capsys, "plan", job, "--n-rows", 1000, "--n-features", 5, "--set", "budget.delta=1e-6")
    assert "1 thread is enough" in small.out


def test_a_private_number_of_rows_is_not_told_by_it(job):
    settings = ["params.neighbours=add-or-remove-one", "params.n_public=1000000"]
    plans = [plan_job(load_job(job, settings), n_rows=n, n_features=50)["scale"] for n in (10**6, 5 * 10**6)]
    assert plans[0] == plans[1]

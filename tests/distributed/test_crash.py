"""kill -9 of the coordinator at 50 random instants: nothing is paid twice, and the answer is the uninterrupted one."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.errors import BudgetExceeded
from tests.distributed.crash_job import N_ROUNDS, fit, report_and_fit
from tests.processes import PROCESSES

KILLS = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5)) / 2
    path = tmp_path_factory.mktemp("crash") / "rows.zarr"
    Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), partition_rows=2000)
    return str(path)


def test_fifty_kills(store, tmp_path):
    path = str(tmp_path / "ledger.sqlite")
    expected = fit(store, path, "uninterrupted")
    started = time.perf_counter()
    fit(store, path, "again")
    duration = time.perf_counter() - started
    rng = np.random.default_rng(1)
    dataset, interrupted = Dataset.open(store).id, 0
    for i in range(KILLS):
        here, there = PROCESSES.Pipe()
        job = PROCESSES.Process(target=report_and_fit, args=(store, path, f"run-{i}", there))
        job.start()
        assert here.recv() == "warm"
        instant = rng.uniform(0, 1.2 * duration)
        time.sleep(instant)
        job.kill()
        job.join()
        finished = here.poll() and here.recv() == "done"
        if finished:
            duration = min(duration, instant)  # the machine was busier when it was timed
        ledger = Ledger(path)
        before = {r.run_id: len(r.releases) for r in ledger.history(dataset)}.get(f"run-{i}", 0)
        interrupted += not finished
        assert before == N_ROUNDS + 1 or not finished
        assert np.array_equal(fit(store, path, f"run-{i}"), expected)
        runs = [r for r in ledger.history(dataset) if r.run_id == f"run-{i}"]
        assert len(runs) == 1, "the run is charged once"
        assert [r.index for r in runs[0].releases] == list(range(N_ROUNDS + 1)), "each release is on file once"
        ledger.close()
    assert interrupted > KILLS / 4, "the kills must come in the middle of runs"


def test_a_resumed_run_needs_no_budget_and_a_new_one_is_refused(store, tmp_path):
    path = str(tmp_path / "ledger.sqlite")
    ledger = Ledger(path)
    ledger.set_limit(Dataset.open(store).id, Budget(1.0, 1e-6))
    first = fit(store, path, "monday")
    assert np.array_equal(fit(store, path, "monday"), first)
    with pytest.raises(BudgetExceeded):
        fit(store, path, "tuesday")

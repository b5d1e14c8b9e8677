"""kill -9 in the middle of a round of reports: it is resumed under its charge, and nobody's report is a second one."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from dpdist import Budget, Dataset, Ledger
from dpdist.errors import BudgetExceeded
from tests.distributed.survey_job import fit, people
from tests.processes import PROCESSES


def told(ledger: str) -> int:
    """How many values were ever released."""
    with closing(sqlite3.connect(ledger, timeout=30)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM dpdist_values").fetchone()[0])


@pytest.mark.parametrize("name", ["marginals", "surface"])
def test_a_round_that_is_killed_goes_on_under_its_charge(name, tmp_path):
    store, path = people(str(tmp_path / "people.zarr"), name), str(tmp_path / "ledger.sqlite")
    undisturbed, heard = fit(name, people(str(tmp_path / "others.zarr"), name), path, "calm")
    assert heard > 10 and told(path) == 1
    dataset, ledger = Dataset.open(store).id, Ledger(path)
    ledger.set_limit(dataset, Budget(1.0))

    job = PROCESSES.Process(target=fit, args=(name, store, path, "struck", heard // 2))
    job.start()
    job.join(120)
    assert job.exitcode == -signal.SIGKILL, "the process must die in the middle of the round"
    assert [run.run_id for run in ledger.history(dataset)] == ["struck"] and told(path) == 1, "charged, and not told"

    with pytest.raises(BudgetExceeded):
        fit(name, store, path, "another")
    resumed, asked = fit(name, store, path, "struck")
    assert asked == heard and np.array_equal(resumed, undisturbed), "the same report of everybody"
    again, asked = fit(name, store, path, "struck")
    assert asked == 0 and np.array_equal(again, undisturbed), "what is on file is not asked again"
    runs = ledger.history(dataset)
    assert [(run.run_id, len(run.releases)) for run in runs] == [("struck", 1)] and told(path) == 2, "charged once"
    ledger.close()

"""The job of every method is killed at a step of its account-keeping, goes on, and releases what it had released."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

from dpdist import Ledger
from dpdist.jobs.registry import METHODS
from tests.jobs.recorded import N_ROWS, PIPELINES
from tests.runs import nights

FEW = ("dp-sgd", "saa-nrs", "ldp-iht")


def kill_and_resume(folder: Path, method: str, instant: float) -> None:
    """Seeded, so that a run that was killed can be compared with one that was not, to the last bit."""
    job = yaml.safe_load((PIPELINES / f"{method}.yaml").read_text())
    job["data"]["n"] = min(job["data"].get("n", N_ROWS), N_ROWS)
    job["params"] = {**job.get("params", {}), "random_state": 7}
    (folder / "job.yaml").write_text(yaml.safe_dump({**job, "cluster": "threads"}))
    code, said = nights.night(folder, "whole")
    assert code == 0, said
    before = len(nights.used(folder))
    code, said = nights.night(folder, "killed", 1 + int(instant * nights.steps(folder)))
    assert code == -9, said
    code, said = nights.night(folder, "killed")
    assert code == 0, said
    assert arrays(folder / "killed") == arrays(folder / "whole")
    record = json.loads((folder / "killed" / "run.json").read_text())
    with closing(Ledger.existing(folder / "killed" / "ledger.sqlite")) as ledger:
        (account,) = ledger.accounts()
        (run,) = ledger.history(account)
        assert run.run_id == record["run_id"] and len(run.releases) == len(record["releases"])
    seen: dict[str, str] = {}
    for run_id, release, value in nights.used(folder)[before:]:
        assert run_id == record["run_id"] and seen.setdefault(release, value) == value


def arrays(output: Path) -> dict[str, bytes]:
    group = zarr.open_group(output / "released.zarr", mode="r")
    return {name: np.asarray(array).tobytes() for name, array in group.arrays()}


@pytest.mark.parametrize("method", FEW)
def test_a_killed_job_releases_what_it_had_released(method, tmp_path):
    kill_and_resume(tmp_path, method, random.Random(method).random())


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in METHODS if method not in FEW])
def test_every_killed_job_releases_what_it_had_released(method, tmp_path):
    kill_and_resume(tmp_path, method, random.Random(method).random())

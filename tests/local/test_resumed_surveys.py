"""Killed while its users report, a survey goes on under its charge, and nobody's answer is another one."""

from __future__ import annotations

import dask
import numpy as np
import pytest

from dpdist import Dataset, Ledger, local
from tests import processes

N = 16_000
PROGRAM = """
import os, sys
import dask
from dpdist.local.survey.reports import Reports
from tests.local.test_resumed_surveys import fit

name, ledger, folder = sys.argv[1:]
asked, blocks = Reports.summarise_at, []

def asked_or_dead(query, first, block, state, rows):
    found = asked(query, first, block, state, rows)
    blocks.append(first)
    if len(blocks) == 2:
        print(*blocks, flush=True)
        os.kill(os.getpid(), 9)
    return found

Reports.summarise_at = asked_or_dead
with dask.config.set(num_workers=1):
    fit(name, ledger, folder)
"""


def fit(name: str, ledger: object, folder: object) -> np.ndarray:
    given = {"epsilon": 1.0, "ledger": Ledger(ledger), "run_id": "one", "cluster": "threads", "random_state": 3}
    data = Dataset.open(folder)
    if name == "tables":
        return local.Marginals(2, **given).fit(data).estimates_
    if name == "surface":
        return local.RiskSurface("absolute", low=0.0, high=1.0, **given).fit(data).surface_
    return local.DensityQueries(0.0, 1.0, **given).fit(data).estimates_


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("users") / "rows.zarr"
    X = np.random.default_rng(0).integers(0, 2, (N, 3)).astype(np.float64)
    Dataset.from_arrays(place, X=X, partition_rows=N // 4)
    return place


@pytest.mark.parametrize("name", ["tables", "surface", "densities"])
def test_a_survey_killed_among_its_reports_is_charged_once_and_the_same_when_it_goes_on(name, folder, tmp_path):
    whole, struck = fit(name, tmp_path / "whole.sqlite", folder), tmp_path / "struck.sqlite"
    code, said = processes.run(PROGRAM, name, str(struck), str(folder))
    assert code == -9, said
    assert len(set(said.split())) == 2, "two blocks of users had answered"
    account = Dataset.open(folder).account
    assert Ledger.existing(struck).spent(account).epsilon == 1.0
    with dask.config.set(num_workers=2):
        assert np.array_equal(fit(name, struck, folder), whole)
    assert Ledger.existing(struck).spent(account).epsilon == 1.0

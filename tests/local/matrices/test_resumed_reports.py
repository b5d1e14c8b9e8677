"""Killed while its users report, a second moment goes on under its charge and is what it would have been."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import dask
import numpy as np
import pytest

from dpdist import Dataset, Ledger, local
from tests import processes

N, D = 40_000, 5
PROGRAM = """
import os, sys
import dask
from dpdist.local.statistics.second_moments import Products
from tests.local.matrices.test_resumed_reports import fit

name, ledger, folder = sys.argv[1:]
values, blocks = Products.values, []

def values_or_death(products, block, state=None):
    blocks.append(len(block["X"]))
    if len(blocks) == 4:
        print(*blocks, flush=True)
        os.kill(os.getpid(), 9)
    return values(products, block, state)

Products.values = values_or_death
with dask.config.set(num_workers=2):
    fit(name, ledger, folder)
"""


def fit(name: str, ledger: object, folder: object) -> np.ndarray:
    given = {
        "row_norm": 1.0, "epsilon": 1.0, "ledger": ledger, "run_id": "one", "cluster": "threads", "random_state": 3
    }  # fmt: skip
    data = Dataset.open(folder)
    if name == "PCA":
        return local.PCA(2, **given).fit(data).components_
    return local.SecondMoment(name, **given, **({"delta": 1e-6} if name == "goe" else {})).fit(data).second_moment_


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("users") / "rows.zarr"
    X = np.random.default_rng(0).normal(size=(N, D)) * np.linspace(1.0, 0.2, D) / 2
    Dataset.from_arrays(place, X=X, partition_rows=N // 4)
    return place


@pytest.mark.parametrize("name", ["PCA", "goe"])
def test_a_release_killed_among_its_reports_is_charged_once_and_the_same_when_it_goes_on(name, folder, tmp_path):
    whole = fit(name, tmp_path / "whole.sqlite", folder)
    struck = tmp_path / "struck.sqlite"
    code, said = processes.run(PROGRAM, name, str(struck), str(folder))
    assert code == -9, said
    asked = sum(map(int, said.split()))
    assert 0 < asked < N, "of four blocks two threads have at least two behind them, and others wait"

    def account() -> tuple[str, int, int]:
        """What is charged, the number of its releases, and of their values that are kept."""
        with closing(Ledger.existing(struck)) as ledger, closing(sqlite3.connect(struck)) as file:
            (charged,) = ledger.history(*ledger.accounts())
            ((kept,),) = file.execute("SELECT count(*) FROM dpdist_values")
            return charged.run_id, len(charged.releases), kept

    assert account() == ("one", 1, 0)
    with dask.config.set(num_workers=1):  # the killed process had two
        resumed = fit(name, struck, folder)
    assert np.array_equal(resumed, whole) and account() == ("one", 1, 1)
    assert np.array_equal(fit(name, struck, folder), whole) and account() == ("one", 1, 1)

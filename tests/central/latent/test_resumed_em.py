"""A fit that is killed in a round, or between charge and journal, is paid for once and ends where it would have."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from dpdist import Ledger
from tests import processes

PROGRAM = """
import os, sys
import numpy as np
from dpdist import Dataset, MissingCovariateRegression, MixedRegression
from dpdist.central import ClippedEM
from dpdist.queries.latent_sums import LatentGradientSum
from dpdist.privacy.ledger.paid_run import PaidRun

folder, dies, cells = sys.argv[1:]
asked = []
def watched(self, *args):
    asked.append(1)
    if dies == "in a round" and len(asked) == 3:
        os.kill(os.getpid(), 9)
    return explore(self, *args)
explore, LatentGradientSum.explore = LatentGradientSum.explore, watched
if dies == "before the journal":
    PaidRun.commit = lambda *args, **kwargs: os.kill(os.getpid(), 9)
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 3))
y = rng.choice([-1.0, 1.0], 2000) * (X @ [2.0, -1.0, 0.0]) + rng.normal(size=2000)
kind, keys, missing = MixedRegression, {"init": "spectral"}, ()
if cells == "missing cells":
    X[rng.random(X.shape) < 0.2] = np.nan
    kind, keys, missing = MissingCovariateRegression, {}, ("0", "1", "2")
data = Dataset.from_arrays(X=X, y=y, account="killed", dataset_id="killed", missing=missing)
model = kind(
    ClippedEM(4), noise_std=1.0, radius=3.0, epsilon=1.0, delta=1e-6, cluster="threads",
    ledger=folder + "/ledger.sqlite", run_id="one", **keys,
).fit(data)
np.savez(folder + "/found.npz", coef=model.coef_, asked=len(asked), path=model.history_)
"""


@pytest.mark.parametrize(
    ("dies", "cells"),
    [("in a round", "all cells"), ("before the journal", "all cells"), ("in a round", "missing cells")],
)
def test_a_killed_fit_goes_on_under_its_charge(dies, cells, tmp_path):
    def run(dies: str) -> int:
        return processes.run(PROGRAM, str(tmp_path), dies, cells)[0]

    assert run(dies) == -9 and not (tmp_path / "found.npz").exists()
    assert run("no") == 0
    first = dict(np.load(tmp_path / "found.npz"))
    assert first["asked"] == (2 if dies == "in a round" else 4), "what was released is not asked again"
    assert run("no") == 0
    again = dict(np.load(tmp_path / "found.npz"))
    assert again["asked"] == 0 and all(np.array_equal(first[name], again[name]) for name in ("coef", "path"))
    with closing(Ledger.existing(tmp_path / "ledger.sqlite")) as ledger:
        (account,) = ledger.accounts()
        (charged,) = ledger.history(account)
        assert len(charged.releases) == (6 if cells == "all cells" else 5) and charged.run_id == "one"

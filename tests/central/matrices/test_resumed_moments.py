"""A killed release is paid for once, and what is made of it when it goes on is what it would have been."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from dpdist import Ledger
from tests import processes

PROGRAM = """
import os, sys
import dask
import numpy as np
from dpdist import PCA, Dataset, GraphicalLasso, SecondMoment, SparseCovariance
from dpdist.privacy.ledger.paid_run import PaidRun

folder, workers, dies = sys.argv[1:]
if dies == "yes":
    PaidRun.commit = lambda *args, **kwargs: os.kill(os.getpid(), 9)  # charged, and not journalled
X = np.random.default_rng(0).normal(size=(4000, 6)) * [0.4, 0.3, 0.1, 0.1, 0.1, 0.1]
data = Dataset.from_arrays(X=X, account="killed", dataset_id="killed", partition_rows=300)
with dask.config.set(num_workers=int(workers)):
    moment = SecondMoment(
        row_norm=1.0, epsilon=1.0, delta=1e-6, ledger=folder + "/ledger.sqlite", run_id="one", cluster="threads",
        random_state=3,
    ).fit(data)
made = [PCA(2).fit(moment).components_, SparseCovariance().fit(moment).covariance_]
np.savez(folder + "/found.npz", moment.second_moment_, *made, GraphicalLasso().fit(moment).precision_)
"""


def test_a_killed_release_is_charged_once_and_ends_with_three_estimators(tmp_path):
    """It goes on with another number of workers, and is what it would have been: bit for bit."""
    struck, whole = tmp_path / "struck", tmp_path / "whole"

    def run(folder: Path, workers: int, dies: str = "no") -> int:
        folder.mkdir(exist_ok=True)
        return processes.run(PROGRAM, str(folder), str(workers), dies)[0]

    assert run(struck, 3, "yes") == -9 and not (struck / "found.npz").exists()
    assert run(struck, 1) == 0
    first = dict(np.load(struck / "found.npz"))
    assert run(struck, 2) == 0  # once more: what was released stays what it was
    assert run(whole, 2) == 0
    for folder in (struck, whole):
        again = dict(np.load(folder / "found.npz"))
        assert len(first) == 4 and all(np.array_equal(first[name], again[name]) for name in first)
    with closing(Ledger.existing(struck / "ledger.sqlite")) as ledger:
        (account,) = ledger.accounts()
        (charged,) = ledger.history(account)
        assert len(charged.releases) == 1 and charged.run_id == "one"

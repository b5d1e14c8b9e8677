"""The job that the crash test kills: a small private fit under a seed, from a store, on a ledger file."""

from __future__ import annotations

from multiprocessing.connection import Connection

import numpy as np

from dpdist import Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent

N_ROUNDS = 12


def fit(store: str, ledger: str, run_id: str) -> np.ndarray:
    book = Ledger(ledger)
    model = LogisticRegression(
        classes=[0, 1],
        epsilon=1.0,
        delta=1e-6,
        row_norm=1.0,
        solver=GradientDescent(n_rounds=N_ROUNDS),
        random_state=4,
        run_id=run_id,
        ledger=book,
        cluster="threads",
    ).fit(Dataset.open(store))
    book.close()
    return np.concatenate([release.value for release in model.releases_])


def report_and_fit(store: str, ledger: str, run_id: str, here: Connection) -> None:
    fit(store, ledger, f"warm-{run_id}")
    here.send("warm")
    fit(store, ledger, run_id)
    here.send("done")

"""The rounds that the test of killed surveys strikes: fits in the local model, from a store, on a ledger file."""

from __future__ import annotations

import os
import signal
from unittest import mock

import numpy as np

from dpdist import Dataset, Ledger
from dpdist.engine import pieces, progress
from dpdist.local import Marginals, RiskSurface
from dpdist.local.local_estimator import LocalEstimator

PARTITION = 4096
N = 16 * PARTITION


def estimator(name: str, **options: object) -> LocalEstimator:
    """Of the users of `people`."""
    if name == "marginals":
        return Marginals(order=2, epsilon=1.0, **options)  # type: ignore[arg-type]
    return RiskSurface("welsch", low=0.0, high=1.0, epsilon=1.0, **options)  # type: ignore[arg-type]


def people(path: str, name: str) -> str:
    """Where the users of a survey are stored."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (N, 6)).astype(np.uint8) if name == "marginals" else rng.random((N, 1))
    Dataset.from_arrays(path, X=X, partition_rows=PARTITION)
    return path


def fit(name: str, store: str, ledger: str, run_id: str, strike_after: int = 0) -> tuple[np.ndarray, int]:
    """The released sums, and how often users were heard; kill -9 of this process in the middle if that is asked for."""
    heard = 0

    def hear(event: progress.Event) -> None:
        nonlocal heard
        heard += isinstance(event, progress.Asked)
        if strike_after and heard == strike_after:
            os.kill(os.getpid(), signal.SIGKILL)

    book = Ledger(ledger)
    with mock.patch.object(pieces, "LONG", PARTITION), progress.watching(hear):
        model = estimator(name, random_state=4, run_id=run_id, ledger=book, cluster="threads")
        model.fit(Dataset.open(store))  # type: ignore[attr-defined]
    book.close()
    return np.concatenate([release.value for release in model.releases_]), heard

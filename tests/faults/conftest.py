"""The folder where all that is written can be found, the undisturbed releases, and what holds at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dpdist import Dataset, Ledger
from tests.faults import jobs
from tests.faults.scan import Secrets


@pytest.fixture(scope="session")
def secrets() -> Secrets:
    return jobs.secrets(4)


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The releases of a run that nothing disturbs, on one thread of this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ledger = Ledger(folder / "ledger.sqlite")
    values = jobs.run(jobs.write(folder / "rows.zarr"), ledger, "run")
    ledger.close()
    return values


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run waits for, in a hurry; the order of things is the same."""
    for name, seconds in {"CONNECT": 4.0, "ANSWER": 4.0, "NOTICE": 2.0, "PATIENCE": 15.0}.items():
        monkeypatch.setattr(f"dpdist.engine.waits.{name}", seconds)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with the dataset in rows.zarr and our own log in logs/client.log, down to the last detail."""
    jobs.write(tmp_path / "rows.zarr")
    (tmp_path / "logs").mkdir()
    handler = logging.FileHandler(tmp_path / "logs" / "client.log")
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield tmp_path
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


@pytest.fixture
def healthy(place: Path, expected: np.ndarray, secrets: Secrets) -> Callable[..., None]:
    """The account, the noise and the silence are as if nothing had happened."""

    def check(values: np.ndarray | None, ledger: Path | None = None) -> None:
        path = ledger or place / "ledger.sqlite"
        book = Ledger(path)
        (charge,) = book.history(Dataset.open(str(place / "rows.zarr")).id)
        assert charge.charge.epsilon <= 1.0 + 1e-9, "paid once"
        assert [release.index for release in charge.releases] == list(range(jobs.N_ROUNDS)), "each on file once"
        book.close()
        if values is not None:
            assert np.array_equal(values, expected), "the noise is the one and only"
            assert sorted(jobs.on_file(path).values()) == sorted(value.tobytes() for value in expected)
        assert secrets.found_in(place, skip=[place / "rows.zarr"]) == []

    return check

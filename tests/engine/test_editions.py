"""A dataset that is written again under its id is another version of it: no run goes on across versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.data import ingest
from dpdist.engine import workers
from dpdist.errors import DataError, LedgerError
from dpdist.kernels.truncation import HardClip
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.robust_sums import ColumnSum

OLD_RELEASE = "6c049004f8af75e370b7a64e09cc6801e39b89991d1c5c68f0a14ba62babd9e1"
X = np.random.default_rng(0).normal(size=(200, 3))


def by_arrays(place: Path, rows: np.ndarray) -> None:
    Dataset.from_arrays(place / "rows.zarr", X=rows, dataset_id="survey", partition_rows=50)


def by_ingestion(place: Path, rows: np.ndarray) -> None:
    np.save(place / "X.npy", rows)
    ingest(place / "X.npy", place / "rows.zarr", dataset_id="survey", partition_rows=50)


WRITERS = {"from_arrays": by_arrays, "ingest": by_ingestion}


def run(ledger: Ledger, dataset: Dataset, n_releases: int = 3, run_id: str = "monday") -> list[list[float]]:
    with Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": np.asarray}, ledger=ledger, run_id=run_id) as coordinator:
        plan = coordinator.plan([Item("sum", Gaussian(), count=3)])
        return [coordinator.release(ColumnSum(HardClip(1.0), 3), plan["sum"]).tolist() for _ in range(n_releases)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("n_released", [1, 3])
def test_no_run_goes_on_when_its_dataset_was_written_again(writer, n_released, tmp_path, ledger, monkeypatch):
    """Neither one that was cut off nor one that is finished; it is noticed before a row is read."""
    WRITERS[writer](tmp_path, X)
    first = run(ledger, Dataset.open(tmp_path / "rows.zarr"), n_released)
    history = ledger.history("survey")
    shutil.rmtree(tmp_path / "rows.zarr")
    WRITERS[writer](tmp_path, -X)
    again = Dataset.open(tmp_path / "rows.zarr")
    assert again.id == "survey"

    def read(*arguments: Any) -> None:
        raise AssertionError("rows are read")

    with monkeypatch.context() as patch:
        patch.setattr(workers.LocalThreads, "place", read)
        with pytest.raises(LedgerError, match=r"'monday' was begun .* on another version of the dataset 'survey'"):
            run(ledger, again)
    assert ledger.history("survey") == history
    assert run(ledger, again, run_id="tuesday") != first


@pytest.mark.parametrize("writer", WRITERS)
def test_a_copy_of_a_store_is_the_same_version(writer, tmp_path, ledger):
    WRITERS[writer](tmp_path, X)
    first = run(ledger, Dataset.open(tmp_path / "rows.zarr"), 1)
    shutil.copytree(tmp_path / "rows.zarr", tmp_path / "copy.zarr")
    shutil.rmtree(tmp_path / "rows.zarr")
    assert run(ledger, Dataset.open(tmp_path / "copy.zarr"))[:1] == first
    assert len(ledger.history("survey")) == 1


def forget_edition(place: Path) -> None:
    """What dpdist wrote before stores had one."""
    attributes = json.loads((place / "zarr.json").read_text())
    del attributes["attributes"]["dpdist"]["edition"]
    (place / "zarr.json").write_text(json.dumps(attributes))


def test_older_stores_and_their_runs_stay_readable(tmp_path, ledger):
    """With the ids of releases that they always had."""
    by_arrays(tmp_path, X)
    forget_edition(tmp_path / "rows.zarr")
    old = Dataset.open(tmp_path / "rows.zarr")
    assert old.schema.edition is None
    first = run(ledger, old, 1)
    (record,) = ledger.history("survey")
    assert [release.release_id for release in record.releases] == [OLD_RELEASE]
    assert run(ledger, old)[:1] == first
    shutil.rmtree(tmp_path / "rows.zarr")
    by_arrays(tmp_path, X)  # the same rows even: who could tell without looking at them
    with pytest.raises(LedgerError, match="another version"):
        run(ledger, Dataset.open(tmp_path / "rows.zarr"))


def test_editions_are_random_and_public(tmp_path):
    editions = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        by_arrays(tmp_path / name, X)
        editions.add(Dataset.open(tmp_path / name / "rows.zarr").schema.edition)
    assert len(editions) == 2 and all(len(edition) == 32 for edition in editions)
    assert Dataset.open(tmp_path / "a" / "rows.zarr").select(Z="X").schema.edition in editions
    assert Dataset.from_arrays(X=X, dataset_id="survey").schema.edition is None


def test_a_damaged_edition_is_refused(tmp_path):
    by_arrays(tmp_path, X)
    text = (tmp_path / "rows.zarr" / "zarr.json").read_text()
    edition = Dataset.open(tmp_path / "rows.zarr").schema.edition
    (tmp_path / "rows.zarr" / "zarr.json").write_text(text.replace(f'"{edition}"', "7"))
    with pytest.raises(DataError, match="edition"):
        Dataset.open(tmp_path / "rows.zarr")


def test_another_plan_is_refused_before_a_row_is_read(tmp_path, ledger, monkeypatch):
    by_arrays(tmp_path, X)
    dataset = Dataset.open(tmp_path / "rows.zarr")
    run(ledger, dataset, 1)
    monkeypatch.setattr(workers.LocalThreads, "place", None)
    with (
        Coordinator(dataset, Budget(1.0, 1e-6), arrays={"X": np.asarray}, ledger=ledger, run_id="monday") as other,
        pytest.raises(LedgerError, match="different plan"),
    ):
        other.plan([Item("sum", Gaussian(), count=4)])

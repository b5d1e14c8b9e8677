"""Dask arrays: read in place, written to Zarr, each stored piece computed once; nothing of Dask is imported."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from dpdist.data import Dataset
from dpdist.errors import DataError

N, D = 1000, 3
X = np.random.default_rng(4).standard_normal((N, D))
Y = np.arange(N)


def lazy() -> dict[str, da.Array]:
    return {"X": da.from_array(X, chunks=((300, 0, 450, 250), (2, 1))), "y": da.from_array(Y, chunks=170)}


def test_in_place() -> None:
    data = Dataset.from_arrays(**lazy())
    assert not data.in_memory
    assert data.partitions == [(0, 1000)]
    np.testing.assert_array_equal(data.read(250, 800)["X"], X[250:800])
    data.verify()
    again = pickle.loads(pickle.dumps(data.source("X")))
    np.testing.assert_array_equal(again.read(0, N), X)
    by_rows = Dataset.from_arrays(partition_rows=333, **lazy())
    assert by_rows.partitions == [(0, 333), (333, 666), (666, 999), (999, 1000)]


def test_partitions_follow_large_chunks() -> None:
    data = Dataset.from_arrays(X=da.zeros((10**6, 50), chunks=((600_000, 1000, 1000, 398_000), 50)))
    assert data.partitions == [(0, 600_000), (600_000, 602_000), (602_000, 10**6)]


@pytest.mark.parametrize("partition_rows", [None, 1, 64, 300, 999, 5000])
def test_written(tmp_path: Path, partition_rows: int | None) -> None:
    data = Dataset.from_arrays(tmp_path / "d", partition_rows=partition_rows, X=lazy()["X"][:50], y=lazy()["y"][:50])
    np.testing.assert_array_equal(data.read(0, 50)["X"], X[:50])
    data = Dataset.from_arrays(tmp_path / "e", partition_rows=max(partition_rows or 0, 50), **lazy())
    np.testing.assert_array_equal(data.read(0, N)["X"], X)
    np.testing.assert_array_equal(data.read(0, N)["y"], Y)


def test_each_chunk_is_computed_once_when_written(tmp_path: Path) -> None:
    computed = []

    def note(block: np.ndarray) -> np.ndarray:
        computed.append(len(block))
        return block

    array = da.from_array(X, chunks=(300, D)).map_blocks(note, dtype=X.dtype, meta=X[:0])
    Dataset.from_arrays(tmp_path, X=array, partition_rows=128)
    assert computed == [300, 300, 300, 100]


def test_and_back_to_dask(tmp_path: Path) -> None:
    Dataset.from_arrays(tmp_path, partition_rows=256, **lazy())
    array = da.from_zarr(str(tmp_path / "X"))
    assert array.chunks[0] == (256, 256, 256, 232)
    np.testing.assert_array_equal(array.compute(scheduler="synchronous"), X)


def test_refusals() -> None:
    unknown = da.from_array(Y, chunks=100)
    with pytest.raises(DataError, match="compute_chunk_sizes"):
        Dataset.from_arrays(X=unknown[unknown > 10])
    with pytest.raises(DataError, match="complex"):
        Dataset.from_arrays(X=da.zeros((4, 2), dtype=complex))
    lying = da.from_array(X, chunks=(300, D)).map_blocks(lambda block: block[:-1], dtype=X.dtype, meta=X[:0])
    with pytest.raises(DataError, match="rows 0:300"):
        Dataset.from_arrays(X=lying).verify()

    def fail(block: np.ndarray) -> np.ndarray:
        raise ValueError(f"bad value {block[0, 0]}")

    broken = Dataset.from_arrays(X=da.from_array(X, chunks=(300, D)).map_blocks(fail, dtype=X.dtype, meta=X[:0]))
    with pytest.raises(DataError, match="ValueError") as caught:
        broken.read(0, 10)
    assert "bad value" not in str(caught.value) and caught.value.__context__ is None


def test_dask_is_not_imported_by_the_data_modules() -> None:
    import dpdist.data

    folder = Path(dpdist.data.__file__).parent
    for module in folder.glob("*.py"):
        assert "import dask" not in module.read_text() and "from dask" not in module.read_text()

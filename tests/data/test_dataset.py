"""In-memory datasets: properties, views, ids, and one clear error for each thing that cannot be a dataset."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from dpdist.data import ArraySpec, Dataset
from dpdist.data.sources import aligned_rows, merge_boundaries, regular_boundaries
from dpdist.errors import DataError
from dpdist.privacy.randomness.streams import block_size

RNG = np.random.default_rng(0)
SECRET = 987654.321


def make(n: int = 1000, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    return RNG.standard_normal((n, d)), RNG.integers(0, 2, n).astype("i1")


def test_in_place_is_zero_copy_and_described() -> None:
    X, y = make()
    data = Dataset.from_arrays(X=X, y=y, partition_rows=300, unit="patient", max_rows_per_unit=3, row_order="permuted")
    assert data.in_memory and data.n_rows == 1000
    assert data.arrays == {"X": ArraySpec("float64", (1000, 5)), "y": ArraySpec("int8", (1000,))}
    assert data.partitions == [(0, 300), (300, 600), (600, 900), (900, 1000)]
    assert data.nbytes == X.nbytes + y.nbytes
    assert data.partition_bytes == 300 * 41
    assert (data.schema.unit, data.schema.max_rows_per_unit, data.schema.row_order) == ("patient", 3, "permuted")
    block = data.read(100, 250)
    assert np.shares_memory(block["X"], X) and np.shares_memory(block["y"], y)
    np.testing.assert_array_equal(block["X"], X[100:250])
    data.verify()


def test_reads_are_native_and_contiguous() -> None:
    X = np.asfortranarray(make()[0]).astype(">f4", order="K")
    data = Dataset.from_arrays(X=X)
    block = data.source("X").read(10, 20)
    assert data.arrays["X"].dtype == "float32"
    assert block.dtype == np.float32 and block.dtype.isnative and block.flags.c_contiguous
    np.testing.assert_array_equal(block, X[10:20])


def test_default_partitions_are_about_16_mib_and_whole_stream_blocks() -> None:
    data = Dataset.from_arrays(X=np.zeros((100_000, 50)))
    assert data.partitions == [(0, 40960), (40960, 81920), (81920, 100_000)]
    for width in (1, 3, 50, 500, 512, 1000, 2047, 5000, 100_000, 3_000_000):
        rows = aligned_rows(8 * width)
        assert rows % block_size(width) == 0
        assert rows == 1 or rows * 8 * width <= 64 * 2**20


def test_merging_keeps_every_row_once_and_the_target_size() -> None:
    for n, rows, row_bytes in [(1000, 7, 8), (10**6, 1000, 400), (10**6, 10**5, 400), (5, 5, 10**9), (1, 1, 1)]:
        merged = merge_boundaries(regular_boundaries(n, rows), row_bytes)
        assert [a for a, _ in merged] == [0, *(b for _, b in merged[:-1])] and merged[-1][1] == n
        for start, stop in merged:
            assert start % rows == 0
            assert stop - start <= rows or (stop - start) * row_bytes <= 16 * 2**20
        for (a, _), (_, c) in itertools.pairwise(merged):
            assert (c - a) * row_bytes > 16 * 2**20 or c - a > rows


def test_ids_are_random_and_kept_by_views() -> None:
    X, y = make()
    first, second = Dataset.from_arrays(X=X, y=y), Dataset.from_arrays(X=X, y=y)
    assert first.id != second.id and len(first.id) == 32
    view = first.select(features="X", label="y")
    assert view.id == first.id and list(view.arrays) == ["features", "label"]
    np.testing.assert_array_equal(view.read(3, 9)["label"], y[3:9])
    assert Dataset.from_arrays(X=X, dataset_id="study-1").id == "study-1"
    assert first.select(y="y").n_rows == 1000


def test_pickle_keeps_everything() -> None:
    X, y = make()
    data = pickle.loads(pickle.dumps(Dataset.from_arrays(X=X, y=y, partition_rows=100)))
    assert len(data.partitions) == 10
    np.testing.assert_array_equal(data.read(0, 1000)["X"], X)


def test_labels_may_be_strings_or_booleans() -> None:
    X, _ = make(4)
    for labels in (["a", "bb", "a", "c"], [True, False, True, True], [1.5, 2, 3, 4]):
        data = Dataset.from_arrays(X=X, y=np.array(labels))
        assert data.read(1, 3)["y"].tolist() == labels[1:3]


def test_repr_shows_no_values() -> None:
    # a random id could hold the digits by chance
    data = Dataset.from_arrays(X=np.full((7, 2), SECRET), y=np.full(7, "secret-label"), dataset_id="rows")
    text = repr(data) + repr(data.schema)
    assert "float64 (7, 2)" in text and data.id in text
    assert "987654" not in text and "secret-label" not in text


X4 = np.full((4, 2), SECRET)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"X": X4, "y": np.zeros(3)}, "different numbers of rows"),
        ({}, "at least one array"),
        ({"X": X4.astype(object)}, "dtype object"),
        ({"X": X4.astype(str)}, "expected real numbers"),
        ({"X": X4, "y": np.array(["a", None, "b", "c"], dtype=object)}, r"astype\(str\)"),
        ({"X": X4.astype("complex128")}, "complex"),
        ({"X": X4.astype("longdouble")}, "at most 8 bytes"),
        ({"X": X4, "t": np.zeros(4, "M8[s]")}, "dtype datetime64"),
        ({"X": X4[:0]}, "at least one row"),
        ({"X": X4[:, :0]}, "at least one row"),
        ({"X": X4[:, :, None]}, "3 dimensions"),
        ({"X": np.array(SECRET)}, "0 dimensions"),
        ({"X": X4.tolist()}, "NumPy or a Dask array"),
        ({"X": np.ma.masked_array(X4, X4 > 0)}, "masked"),
    ],
)
def test_what_cannot_be_a_dataset(arrays: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        Dataset.from_arrays(**arrays)  # type: ignore[arg-type]
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partition_rows": 0}, "partition_rows"),
        ({"partition_rows": 2.5}, "partition_rows"),
        ({"dataset_id": ""}, "id"),
        ({"unit": ""}, "unit"),
        ({"max_rows_per_unit": 0}, "max_rows_per_unit"),
        ({"row_order": "sorted"}, "row_order"),
    ],
)
def test_bad_options(options: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Dataset.from_arrays(X=X4, **options)


def test_missing_names_and_rows() -> None:
    data = Dataset.from_arrays(X=X4)
    for call in (lambda: data.source("y"), lambda: data.select(X="features"), lambda: data.verify(["z"])):
        with pytest.raises(DataError, match="no array"):
            call()
    for start, stop in [(0, 5), (-1, 2), (3, 3), (4, 3)]:
        with pytest.raises(DataError, match="do not exist"):
            data.read(start, stop)
    with pytest.raises(DataError, match="at least one array"):
        data.select()

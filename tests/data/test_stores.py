"""Zarr stores: our own, and those that zarr, xarray and tensorstore write in every format."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import GZip as GZip2
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

from dpdist.data import Dataset
from dpdist.errors import DataError
from tests.data.helpers import put

N, D = 1000, 6
RNG = np.random.default_rng(2)
X = RNG.standard_normal((N, D))
Y = RNG.integers(0, 2, N).astype("i1")


def check(data: Dataset, features: np.ndarray = X, labels: np.ndarray = Y) -> None:
    data.verify()
    assert data.partitions[0][0] == 0 and data.partitions[-1][1] == N
    blocks = [data.read(*rows) for rows in data.partitions]
    np.testing.assert_array_equal(np.concatenate([block["X"] for block in blocks]), features)
    np.testing.assert_array_equal(np.concatenate([block["y"] for block in blocks]), labels)
    odd = data.read(123, 789)
    np.testing.assert_array_equal(odd["X"], features[123:789])
    assert odd["X"].dtype.isnative and odd["X"].flags.c_contiguous


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("partition_rows", [None, 300, 4096])
def test_own_store_round_trip(tmp_path: Path, compression: Any, partition_rows: int | None) -> None:
    place = tmp_path / "data.zarr"
    written = Dataset.from_arrays(
        place, X=X, y=Y, partition_rows=partition_rows, compression=compression, row_order="arrival"
    )
    check(written)
    opened = Dataset.open(place)
    check(opened)
    assert opened.id == written.id and not opened.in_memory
    assert opened.schema == written.schema and opened.schema.complete
    attributes = json.loads((place / "zarr.json").read_text())["attributes"]["dpdist"]
    assert attributes["id"] == written.id and attributes["n_rows"] == N and attributes["row_order"] == "arrival"
    assert attributes["arrays"]["X"] == {"dtype": "float64", "shape": [N, D]}
    group = zarr.open_group(place, mode="r")
    assert group["X"].chunks == (min(N, partition_rows or N), D)
    assert group["y"].chunks == (min(N, partition_rows or N),)


def test_chunks_of_a_written_store_are_16_mib_of_whole_rows(tmp_path: Path) -> None:
    data = Dataset.from_arrays(tmp_path / "d", X=np.zeros((50_000, 50)), y=np.zeros(50_000, "i1"))
    assert zarr.open_group(tmp_path / "d", mode="r")["X"].chunks == (40960, 50)
    assert data.partitions == [(0, 40960), (40960, 50_000)]
    # Zero chunks are written too: only then is a missing file known to be damage.
    assert sorted(p.name for p in (tmp_path / "d/X/c").iterdir()) == ["0", "1"]
    data.verify()


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", ">f4", "i1", "u2", "i4", "i8", "bool"])
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    features = (X * 3).astype(dtype)
    data = Dataset.from_arrays(tmp_path / "own", X=features, y=Y, partition_rows=300)
    check(data, features)
    for zarr_format in (2, 3):
        group = zarr.open_group(tmp_path / f"v{zarr_format}", mode="w", zarr_format=zarr_format)
        native = features if zarr_format == 2 else features.astype(features.dtype.newbyteorder("="))
        put(group, "X", native, chunks=(128, D))
        put(group, "y", Y, chunks=(500,))
        check(Dataset.open(tmp_path / f"v{zarr_format}"), features)


def test_big_endian_bytes_in_format_3(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    put(group, "X", X, chunks=(100, D), serializer=zarr.codecs.BytesCodec(endian="big"))
    put(group, "y", Y)
    check(Dataset.open(tmp_path))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_string_labels(tmp_path: Path) -> None:
    labels = np.array(["no", "yes"])[Y.astype(int)]
    own = Dataset.from_arrays(tmp_path / "own", X=X, y=labels, partition_rows=300)
    check(Dataset.open(tmp_path / "own"), labels=labels)
    assert own.arrays["y"].dtype == "str"


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": None},
        {"compressors": [ZstdCodec(level=3)]},
        {"compressors": [BloscCodec(cname="lz4", shuffle="shuffle")]},
        {"compressors": [GzipCodec(level=1)]},
        {"compressors": [BloscCodec(cname="zstd"), Crc32cCodec()]},
        {"compressors": None, "chunks": (50, D), "shards": (200, D)},
        {"compressors": [ZstdCodec()], "chunks": (50, 3), "shards": (400, D)},
        {"chunks": (100, 2)},
        {"chunks": (N, D)},
        {"chunks": (7, D)},
        {"order": "F"},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
    ids=lambda options: "+".join(options),
)
def test_foreign_format_3(tmp_path: Path, options: dict[str, Any]) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(group, "X", X, **{"chunks": (200, D), **options})
    put(group, "y", Y, chunks=(300,))
    check(Dataset.open(tmp_path))


@pytest.mark.parametrize(
    "options", [{}, {"compressors": None}, {"compressors": GZip2()}, {"order": "F"}, {"chunks": (64, 4)}], ids=str
)
def test_foreign_format_2(tmp_path: Path, options: dict[str, Any]) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=2)
    put(group, "X", X, **{"chunks": (200, D), **options})
    put(group, "y", Y, chunks=(300,))
    check(Dataset.open(tmp_path))


def test_partitions_follow_shards_unless_they_are_huge(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w")
    small = group.create_array("small", shape=(10**6, 50), chunks=(1000, 50), shards=(80_000, 50), dtype="f8")
    huge = group.create_array("huge", shape=(10**6, 50), chunks=(10_000, 50), shards=(500_000, 50), dtype="f8")
    tiny = group.create_array("tiny", shape=(10**6, 50), chunks=(1000, 50), dtype="f8")
    assert small.shards and huge.shards and not tiny.shards
    data = Dataset.open(tmp_path)
    assert data.select(X="small").partitions[:2] == [(0, 80_000), (80_000, 160_000)]
    assert data.select(X="huge").partitions[:2] == [(0, 40_000), (40_000, 80_000)]
    assert data.select(X="tiny").partitions[:2] == [(0, 41_000), (41_000, 82_000)]
    assert data.select(X="tiny").partition_bytes == 41_000 * 400


def test_chunks_too_large_for_a_worker(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w")
    group.create_array("X", shape=(10**7, 100), chunks=(10**7, 1), dtype="f8")
    with pytest.raises(DataError, match="Rechunk along axis 0"):
        Dataset.open(tmp_path)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [[0, D], [100, 0]])
def test_chunks_without_rows_or_columns_are_refused(zarr_format: Any, chunks: list[int], tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "odd", zarr_format=zarr_format).create_array("X", data=X, chunks=(100, D))
    path = tmp_path / "odd" / "X" / {2: ".zarray", 3: "zarr.json"}[zarr_format]
    metadata = json.loads(path.read_text())
    if zarr_format == 2:
        metadata["chunks"] = chunks
    else:
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = chunks
    path.write_text(json.dumps(metadata))
    with pytest.raises(DataError):
        Dataset.open(tmp_path / "odd", dataset_id="odd")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_xarray_stores(tmp_path: Path, zarr_format: Any) -> None:
    xarray = pytest.importorskip("xarray")
    place = tmp_path / "x.zarr"
    frame = xarray.Dataset(
        {"X": (("row", "feature"), X), "y": (("row",), Y)},
        coords={"feature": list("abcdef"), "user": (("row",), np.arange(N)), "created": 20_000},
    )
    frame.chunk(row=256).to_zarr(place, zarr_format=zarr_format)
    data = Dataset.open(place)
    check(data)
    assert sorted(data.arrays) == ["X", "user", "y"]
    # xarray consolidates metadata; the id must not hide behind an old copy of it.
    assert Dataset.open(place).id == data.id
    assert xarray.open_zarr(place).attrs["dpdist"]["id"] == data.id


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_packed_values_are_refused(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    frame = xarray.Dataset({"X": (("row", "feature"), X)})
    frame.to_zarr(tmp_path / "x", zarr_format=2, encoding={"X": {"dtype": "i2", "scale_factor": 0.01}})
    with pytest.raises(DataError, match="packed"):
        Dataset.open(tmp_path / "x")


@pytest.mark.parametrize("driver", ["zarr", "zarr3", "sharded"])
def test_tensorstore_stores(tmp_path: Path, driver: str) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    zarr.open_group(tmp_path, mode="w", zarr_format=2 if driver == "zarr" else 3)
    for name, values in (("X", X), ("y", Y)):
        rest = list(values.shape[1:])
        metadata: dict[str, Any] = {"shape": list(values.shape)}
        if driver == "zarr":
            metadata |= {"dtype": values.dtype.str, "chunks": [200, *rest]}
        else:
            metadata |= {"data_type": values.dtype.name}
            rows = 400 if driver == "sharded" else 200
            metadata["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [rows, *rest]}}
            inner = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip"}]
            if driver == "sharded":
                shard = {"chunk_shape": [50, *rest], "codecs": inner, "index_codecs": [inner[0], {"name": "crc32c"}]}
                inner = [{"name": "sharding_indexed", "configuration": shard}]
            metadata["codecs"] = inner
        spec = {
            "driver": "zarr" if driver == "zarr" else "zarr3",
            "kvstore": {"driver": "file", "path": str(tmp_path / name)},
            "metadata": metadata,
        }
        tensorstore.open(spec, create=True).result()[...] = values
    check(Dataset.open(tmp_path))


def test_tensorstore_reads_what_we_write(tmp_path: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    for compression in ("none", "zstd"):
        Dataset.from_arrays(tmp_path / compression, X=X, partition_rows=300, compression=compression)
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / compression / "X")}}
        np.testing.assert_array_equal(tensorstore.open(spec).result()[...].read().result(), X)


def foreign(place: Any) -> None:
    group = zarr.open_group(place, mode="w")
    put(group, "X", X, chunks=(200, D))
    put(group, "y", Y, chunks=(300,))


def test_foreign_id_is_random_and_persists(tmp_path: Path) -> None:
    for name in ("a", "b"):
        foreign(tmp_path / name)
    first, other = Dataset.open(tmp_path / "a"), Dataset.open(tmp_path / "b")
    assert first.id != other.id
    assert Dataset.open(str(tmp_path / "a")).id == first.id
    assert Dataset.open(tmp_path / "a", arrays=["X"]).id == first.id
    assert not first.schema.complete and first.schema.row_order == "unknown"
    foreign(tmp_path / "c")
    assert Dataset.open(tmp_path / "c", dataset_id="mine").id == "mine" == Dataset.open(tmp_path / "c").id
    with pytest.raises(DataError, match="already has the id"):
        Dataset.open(tmp_path / "c", dataset_id="yours")


def test_read_only_stores_need_an_id(tmp_path: Path) -> None:
    foreign(tmp_path / "a")
    read_only = LocalStore(tmp_path / "a", read_only=True)
    for place in (read_only, zarr.open_group(tmp_path / "a", mode="r")):
        with pytest.raises(DataError, match="pass dataset_id"):
            Dataset.open(place)
    data = Dataset.open(read_only, dataset_id="census-1")
    assert data.id == "census-1"
    check(data)
    Dataset.from_arrays(tmp_path / "own", X=X, y=Y, dataset_id="own-1")
    assert Dataset.open(LocalStore(tmp_path / "own", read_only=True)).id == "own-1"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_other_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(Dataset.from_arrays(MemoryStore(), X=X, y=Y, partition_rows=300))
    with ZipStore(tmp_path / "d.zip", mode="w") as archive:
        Dataset.from_arrays(archive, X=X, partition_rows=300, dataset_id="zipped", y=Y)
    with ZipStore(tmp_path / "d.zip", mode="r") as archive:
        check(Dataset.open(archive))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = Dataset.from_arrays("memory://some-dataset", X=X, y=Y, partition_rows=300)
        assert Dataset.open("memory://some-dataset").id == written.id
        check(written)
    nested = zarr.open_group(tmp_path / "nested", mode="w").create_group("inner")
    written = Dataset.from_arrays(nested, X=X, y=Y)
    check(Dataset.open(tmp_path / "nested/inner"))
    monkeypatch.chdir(tmp_path)
    check(Dataset.open("nested/inner"))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    foreign(tmp_path / "a")
    for place, why in [
        (tmp_path / "nothing", "nothing of that name.*dpdist ingest"),
        (tmp_path / "a" / "X", "not a single"),
    ]:
        for named in (place, str(place)):
            with pytest.raises(DataError, match=f"cannot open a Zarr group.*{why}"):
                Dataset.open(named)
    with pytest.raises(DataError, match=r"no arrays \['z'\]"):
        Dataset.open(tmp_path / "a", arrays=["X", "z"])
    group = zarr.open_group(tmp_path / "b", mode="w")
    with pytest.raises(DataError, match="at least one array"):
        Dataset.open(tmp_path / "b")
    put(group, "X", X)
    put(group, "centres", X[:10])
    with pytest.raises(DataError, match="different numbers of rows"):
        Dataset.open(tmp_path / "b")
    assert Dataset.open(tmp_path / "b", arrays=["X"]).n_rows == N
    for bad in (X.astype("complex64"), X[:, :, None]):
        put(zarr.open_group(tmp_path / "c", mode="w"), "X", bad)
        with pytest.raises(DataError):
            Dataset.open(tmp_path / "c")


def test_writing_never_replaces_anything(tmp_path: Path) -> None:
    Dataset.from_arrays(tmp_path / "a", X=X)
    for place in (tmp_path / "a", zarr.open_group(tmp_path / "a")):
        with pytest.raises(DataError, match=r"already stored|not an empty"):
            Dataset.from_arrays(place, X=X)
    with pytest.raises(DataError, match="compression"):
        Dataset.from_arrays(tmp_path / "b", X=X, compression="lzma")  # type: ignore[arg-type]


def test_messages_hide_credentials() -> None:
    with pytest.raises(DataError) as caught:
        Dataset.open("noscheme://user:hunter2@host/data?signature=abc")
    assert "hunter2" not in str(caught.value) and "signature" not in str(caught.value)


def test_changed_or_unfinished_stores(tmp_path: Path) -> None:
    foreign(tmp_path / "a")
    Dataset.open(tmp_path / "a")
    group = zarr.open_group(tmp_path / "a", mode="r+")
    for name, array in group.arrays():
        array.resize((N + 1, *array.shape[1:]))
        assert name in "Xy"
    with pytest.raises(DataError, match="not those the dataset id was given to"):
        Dataset.open(tmp_path / "a")
    with pytest.raises(DataError, match="not those the dataset id was given to"):
        Dataset.open(tmp_path / "a", arrays=["y"])

    class Stop(Exception):
        pass

    class Breaks(np.ndarray):
        def __getitem__(self, rows: Any) -> Any:
            if isinstance(rows, slice) and rows.start == 600:
                raise Stop
            return super().__getitem__(rows)

    with pytest.raises(DataError, match="rows 600:900"):
        Dataset.from_arrays(tmp_path / "b", X=X.view(Breaks), partition_rows=300)
    with pytest.raises(DataError, match="never finished"):
        Dataset.open(tmp_path / "b")
    for attribute, says in [({"version": 9}, "version 9"), ({"version": 1, "id": "a"}, "damaged"), (3, "version None")]:
        group.update_attributes({"dpdist": attribute})
        with pytest.raises(DataError, match=says):
            Dataset.open(tmp_path / "a")

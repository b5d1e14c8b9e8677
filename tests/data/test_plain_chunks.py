"""Rows that are read as they stand in files: the same as Zarr reads, wherever that is possible, and nowhere else."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

from dpdist import Dataset
from dpdist.data.plain_chunks import PART_BYTES, Buffers, PlainChunks
from dpdist.data.sources import ZarrSource
from dpdist.kernels.fingerprints import Key, fingerprint

RNG = np.random.default_rng(5)
N, D = 1000, 7
OTHER = "big" if sys.byteorder == "little" else "little"
KEY = Key.of(RNG.bytes(Key.BYTES))


def seen(part: np.ndarray, before: int, more: bool) -> int:
    return fingerprint(part, KEY, before, more)


def stored(place: Any, values: np.ndarray, **options: Any) -> ZarrSource:
    options = {"chunks": (300, *values.shape[1:]), "compressors": None, "zarr_format": 3} | options
    array = zarr.create_array(place, shape=values.shape, dtype=values.dtype, **options)
    array[:] = values
    return ZarrSource("X", zarr.open_array(place, mode="r"))


PLAIN: dict[str, dict[str, Any]] = {
    "raw": {},
    "checksum": {"compressors": [Crc32cCodec()]},
    "format 2": {"zarr_format": 2},
    "one chunk": {"chunks": (N, D)},
    "larger chunk": {"chunks": (5 * N, D)},
}
OTHERS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": [ZstdCodec()]},
    "zstd and checksum": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "two checksums": {"compressors": [Crc32cCodec(), Crc32cCodec()]},
    "format 2, compressed": {"zarr_format": 2, "compressors": "auto"},
    "format 2, by columns": {"zarr_format": 2, "order": "F"},
    "cut by columns": {"chunks": (300, 3)},
    "shards": {"chunks": (100, D), "shards": (300, D)},
    "other byte order": {"serializer": BytesCodec(endian=OTHER)},
    "transposed": {"filters": [TransposeCodec(order=(1, 0))]},
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint16", "bool"])
@pytest.mark.parametrize("layout", PLAIN)
def test_rows_are_those_that_zarr_reads(layout, dtype, tmp_path):
    values = (RNG.normal(size=(N, D)) * 50).astype(dtype)
    source = stored(tmp_path / "a", values, **PLAIN[layout])
    for start, stop in ((0, 300), (300, 600), (900, N), (310, 311)):
        found = source.as_stored(start, stop, Buffers().empty, seen)
        assert found is not None
        rows, number = found
        assert rows.dtype == values.dtype and (rows == source.read(start, stop)).all()
        assert number == fingerprint(values[start:stop], KEY)


@pytest.mark.parametrize("layout", OTHERS)
def test_what_zarr_has_to_decode_is_left_to_it(layout, tmp_path):
    values = RNG.normal(size=(N, D))
    source = stored(tmp_path / "a", values, **OTHERS[layout])
    assert source.as_stored(0, 100, Buffers().empty, seen) is None
    assert (source.read(0, 100) == values[:100]).all()


def test_what_is_in_no_file_of_its_own_is_left_to_zarr(tmp_path):
    values = RNG.normal(size=(N, D))
    assert stored(MemoryStore(), values).as_stored(0, 100, Buffers().empty, seen) is None
    source = stored(tmp_path / "a", values)
    assert source.as_stored(299, 301, Buffers().empty, seen) is None, "two chunks"
    labels = zarr.create_array(tmp_path / "b", shape=(3,), dtype=str, chunks=(3,), compressors=None)
    labels[:] = np.array(["a", "b", "c"])
    assert PlainChunks.of(labels) is None
    swapped = np.dtype("f8").newbyteorder("S")
    old = zarr.create_array(tmp_path / "c", shape=(3, 1), dtype=swapped, zarr_format=2, compressors=None)
    assert PlainChunks.of(old) is None, "format 2 has the byte order in the type"


def test_a_file_that_is_short_long_or_gone_is_left_to_zarr(tmp_path):
    values = RNG.normal(size=(N, D))
    source = stored(tmp_path / "a", values, compressors=[Crc32cCodec()])
    chunk = tmp_path / "a" / "c" / "1" / "0"
    whole = chunk.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", b""):
        chunk.write_bytes(damaged)
        assert source.as_stored(300, 600, Buffers().empty, seen) is None
    chunk.unlink()
    assert source.as_stored(300, 600, Buffers().empty, seen) is None
    assert source.as_stored(0, 300, Buffers().empty, seen) is not None


def test_large_chunks_are_looked_at_in_parts(tmp_path):
    values = RNG.normal(size=(3 * PART_BYTES // 8 + 5, 1))
    source = stored(tmp_path / "a", values, chunks=values.shape)
    parts = []

    def look(part: np.ndarray, before: int, more: bool) -> int:
        parts.append((part.size, more))
        return seen(part, before, more)

    found = source.as_stored(0, len(values), Buffers().empty, look)
    assert found is not None and found[1] == fingerprint(values, KEY)
    assert parts == [(PART_BYTES, True)] * 3 + [(40, False)]


def test_memory_is_used_again_only_when_nobody_holds_it():
    buffers = Buffers()
    first = buffers.empty(800).view(np.float64).reshape(10, 10)
    first[:] = 1.0
    part, place = first[3:5, 1:], first.ctypes.data
    del first
    other = buffers.empty(800)
    other[:] = 0
    assert (part == 1.0).all(), "a view of a view still holds it"
    del part
    assert buffers.empty(400).ctypes.data == place
    assert buffers.empty(8000).size == 8000
    copy = pickle.loads(pickle.dumps(buffers))
    assert not copy._owners


def test_a_source_of_a_written_dataset_is_plain_after_a_journey(tmp_path: Path):
    X = RNG.normal(size=(N, D))
    for compression, plain in (("none", True), ("zstd", False)):
        data = Dataset.from_arrays(tmp_path / compression, X=X, y=np.arange(N), compression=compression)  # type: ignore[arg-type]
        source = pickle.loads(pickle.dumps(data.source("X")))
        assert (source.as_stored(0, N, Buffers().empty, seen) is not None) == plain

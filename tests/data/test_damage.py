"""Damaged files: one DataError that names array and rows, from reading and from verifying, and never a value."""

from __future__ import annotations

import shutil
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from dpdist.data import Dataset, verify_rows
from dpdist.errors import DataError
from tests.data.helpers import put

N, D, ROWS = 1000, 4, 200
SECRET = 987654.321
X = np.full((N, D), SECRET)
X[:, 1:] = np.random.default_rng(3).standard_normal((N, D - 1))


def flip(path: Path, position: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 0x10
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(8))


def ragged(path: Path) -> None:
    """The last chunk as a writer leaves it that does not pad: fewer rows than the metadata say."""
    path.write_bytes(path.read_bytes()[: ROWS // 2 * D * 8])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def test_a_disk_that_does_not_read_is_not_called_damage(tmp_path: Path) -> None:
    """Who reads there gets EIO from the kernel."""
    data = Dataset.from_arrays(tmp_path / "rows.zarr", X=X, partition_rows=ROWS)
    chunk = tmp_path / "rows.zarr/X/c/2/0"
    chunk.unlink()
    chunk.symlink_to("/proc/self/mem")
    with pytest.raises(DataError, match=r"rows 390:610 cannot be read \(Input/output error\): check the disk"):
        data.read(390, 610)


def refused(data: Dataset, decoding_fails: bool = True, rows: str = "rows 400:600") -> None:
    calls = [lambda: data.verify(), lambda: verify_rows(data.source("X"), 590, 610)]
    if decoding_fails:
        calls.append(lambda: data.read(390, 610))
    for call in calls:
        with pytest.raises(DataError) as caught:
            call()
        report = "".join(traceback.format_exception(caught.value))
        assert "array 'X'" in str(caught.value) and "are damaged" in str(caught.value)
        assert "987654" not in report and "During handling" not in report
        assert caught.value.__cause__ is None and caught.value.__context__ is None
    with pytest.raises(DataError, match=rows):
        data.verify()
    with pytest.raises(DataError, match=rows):
        verify_rows(data.source("X"), 400, 410)
    # The other partitions are still fine.
    verify_rows(data.source("X"), 0, 400)
    verify_rows(data.source("X"), 600, N)
    data.verify(["y"])


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("damage", [flip, truncate, lengthen, ragged, empty, Path.unlink])
def test_own_stores(tmp_path: Path, compression: Any, damage: Any) -> None:
    data = Dataset.from_arrays(tmp_path, X=X, y=np.arange(N), partition_rows=ROWS, compression=compression)
    data.verify()
    damage(tmp_path / "X/c/2/0")
    refused(data)
    refused(Dataset.open(tmp_path))


@pytest.mark.parametrize("position", np.linspace(0, 0.999, 12))
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_flipped_bit_anywhere_in_an_own_chunk_is_found(tmp_path: Path, compression: Any, position: float) -> None:
    data = Dataset.from_arrays(tmp_path, X=X, partition_rows=ROWS, compression=compression)
    flip(tmp_path / "X/c/2/0", position)
    with pytest.raises(DataError, match="rows 400:600"):
        data.verify()


FOREIGN: list[tuple[dict[str, Any], list[Any]]] = [
    ({"compressors": None}, [truncate, lengthen, ragged, empty]),
    ({"compressors": [ZstdCodec(checksum=True)]}, [flip, truncate, empty]),
    ({"compressors": [GzipCodec()]}, [flip, truncate, empty]),
    ({"compressors": [BloscCodec()]}, [truncate, lengthen, empty, lambda path: flip(path, 0)]),
    ({"compressors": None, "filters": None, "chunks": (50, D), "shards": (ROWS, D)}, [truncate, empty]),
    ({"compressors": [Crc32cCodec()], "chunks": (50, D), "shards": (ROWS, D)}, [flip, truncate]),
]


@pytest.mark.parametrize(("options", "damage"), [(options, one) for options, many in FOREIGN for one in many])
def test_foreign_stores(tmp_path: Path, options: dict[str, Any], damage: Any) -> None:
    group = zarr.open_group(tmp_path, mode="w")
    put(group, "X", X, **{"chunks": (ROWS, D), **options})
    put(group, "y", np.arange(N))
    data = Dataset.open(tmp_path)
    data.verify()
    damage(tmp_path / "X/c/2/0")
    # Zarr reads an empty shard, and blosc a frame of the wrong length, without complaint.
    silent = "shards" in options or isinstance((options["compressors"] or [None])[0], BloscCodec)
    refused(data, decoding_fails=not silent)


@pytest.mark.parametrize("damage", [truncate, lengthen, empty])
def test_foreign_format_2(tmp_path: Path, damage: Any) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=2)
    put(group, "X", X, chunks=(ROWS, D))
    put(group, "y", np.arange(N))
    damage(tmp_path / "X/2.0")
    refused(Dataset.open(tmp_path), decoding_fails=False)


def test_missing_chunks_of_foreign_stores_are_fill_values(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w")
    put(group, "X", X, chunks=(ROWS, D))
    (tmp_path / "X/c/2/0").unlink()
    data = Dataset.open(tmp_path)
    data.verify()
    np.testing.assert_array_equal(data.read(400, 600)["X"], 0)


def test_a_lost_label_chunk_is_found(tmp_path: Path) -> None:
    data = Dataset.from_arrays(tmp_path, X=X, y=np.arange(N), partition_rows=ROWS)
    (tmp_path / "y/c/4").unlink()
    with pytest.raises(DataError, match=r"array 'y', rows 800:1000 .*missing"):
        data.verify()


def test_damage_does_not_tell_a_private_number_of_rows(tmp_path):
    """Where an owner may have any number of rows up to a bound: a lost chunk, a wrong range."""
    said = []
    for n in (50, 53):
        place = tmp_path / f"{n}.zarr"
        X = np.ones((n, 2))
        Dataset.from_arrays(place, X=X, unit="pid", max_rows_per_unit=3, partition_rows=64, dataset_id="same")
        shutil.rmtree(place / "X" / "c" / "0")
        told = []
        for work in (lambda d: d.verify(), lambda d: d.read(0, 99)):
            with pytest.raises(DataError) as error:
                work(Dataset.open(place))
            told.append(str(error.value))
        said.append(told)
    assert said[0] == said[1] and "some rows" in said[0][0]

"""Stores of messages of one length, such as reports of users: one row of bytes each.

A message of another length than expected is a row of zeros, which no message is, so that it can still be counted.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from dpdist.data.dataset import Dataset
from dpdist.data.dataset_schema import ATTRIBUTE, ArraySpec, Schema, new_id
from dpdist.data.growing import GrowingGroup
from dpdist.data.sources import Source, ZarrSource, aligned_rows, zarr_arrays
from dpdist.data.stores import open_to_read, resolved, shown
from dpdist.errors import DataError

NAME = "reports"
"""Of the array in a Zarr group, and of the column of a Parquet file that has several."""

Bytes = NDArray[np.uint8]


def write_messages(path: str | os.PathLike[str], batches: Iterable[Bytes]) -> int:
    """Write batches of rows of equal length to a new Zarr group, in constant memory; returns their number."""
    store: GrowingGroup | None = None
    spec = ArraySpec("uint8", (1, 1))
    for batch in batches:
        if (
            not isinstance(batch, np.ndarray)
            or batch.dtype != np.uint8
            or batch.ndim != 2
            or (store is not None and batch.shape[1:] != spec.shape[1:])
        ):
            raise DataError("messages must come in batches of bytes (uint8) with rows of one length")
        if store is None:
            spec = ArraySpec("uint8", (aligned_rows(batch.shape[1]), batch.shape[1]))
            store = GrowingGroup(Path(resolved(path)), {NAME: spec}, "none")
            store.begin()
        with _whole(store):
            store.append({NAME: batch})
    if store is None or store.n_rows == 0:
        raise DataError("there is no message to write")
    schema = Schema(new_id(), {NAME: spec}, unit="report", row_order="arrival")
    with _whole(store):
        return store.finish(schema, {}).n_rows


@contextlib.contextmanager
def _whole(store: GrowingGroup) -> Iterator[None]:
    """Leave nothing of a store that cannot be written to its end, so that the same command can be given again."""
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            store.delete()
        error.filename = error.filename or str(store.place)
        raise


def open_messages(location: str | os.PathLike[str], length: int) -> Dataset:
    """The messages in a Zarr array of bytes, a group with such an array, or one or several Parquet files.

    Parameters
    ----------
    location : path or URL
        Of a Zarr array (n, length) of uint8, of a group that has one named "reports" (or a single one), of a Parquet
        file with a binary column (named "reports", if there are several), or of a directory of such files; of a text
        file (.hex, .txt) with one message per line in hexadecimal digits; any other file holds messages one after
        another.
    length : int
        Of a message; those of another one become zeros. (In Zarr, where all have one length, the rows are as they are.)
    """
    path = Path(os.path.expanduser(location)) if "://" not in str(location) else None
    if path is not None and not path.exists():
        raise DataError(f"{path}: there is no such file or directory; check where the reports are")
    if path is not None and path.is_file() and path.suffix not in (".parquet", ".pq"):
        return Dataset.from_arrays(dataset_id=NAME, reports=_flat_file(path, length))
    if path is not None and not any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zarray")):
        files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
        if not files:
            raise DataError(f"{path} has neither Zarr metadata nor a Parquet file; expected a store of reports")
        source: Source = ParquetMessages(files, length)
    else:
        source = _zarr_source(location)
    return Dataset({NAME: source}, Schema("reports", {NAME: source.spec}, unit="report"), shown(location))


def _flat_file(path: Path, length: int) -> Bytes:
    """Messages of a text file, or one after another; what is left at the end is a message of another length."""
    content = path.read_bytes()
    if path.suffix in (".hex", ".txt"):
        messages = [_from_hex(line) for line in content.split(b"\n") if line.strip()]
        content = b"".join(message if len(message) == length else bytes(length) for message in messages)
    if len(content) % length:
        content = content[: len(content) // length * length] + bytes(length)
    if not content:
        raise DataError(f"{path} is empty; expected reports")
    return np.frombuffer(content, np.uint8).reshape(-1, length)


def _from_hex(line: bytes) -> bytes:
    try:
        return bytes.fromhex(line.decode("ascii"))
    except ValueError:
        return b""


def _zarr_source(location: Any) -> Source:
    try:
        place = open_to_read(location, opener=zarr.open)
    except DataError:
        raise
    except Exception as error:
        problem = type(error).__name__
        raise DataError(f"{shown(location)} cannot be opened as Zarr ({problem}); expected reports there") from None
    complete = False
    if isinstance(place, zarr.Group):
        if ATTRIBUTE in place.attrs:
            complete = Schema.from_attributes(place.attrs[ATTRIBUTE], shown(location)).complete
        arrays = zarr_arrays(place, shown(location))
        if NAME not in arrays and len(arrays) != 1:
            raise DataError(f"{shown(location)} has the arrays {sorted(arrays)}; expected one named {NAME!r}")
        place = arrays.get(NAME) or next(iter(arrays.values()))
    if place.dtype != np.uint8 or place.ndim != 2:
        raise DataError(f"{shown(location)}: reports are rows of bytes (uint8), got {place.dtype} of {place.ndim} axes")
    return ZarrSource(NAME, place, complete)


class ParquetMessages(Source):
    """A binary column of Parquet files, read by row groups."""

    def __init__(self, files: Sequence[Path], length: int) -> None:
        self.name = NAME
        self._length = length
        self._groups: list[tuple[Path, int, str]] = []
        self._edges = [0]
        for file in files:
            metadata, column = _describe(file)
            for group in range(metadata.num_row_groups):
                if n := metadata.row_group(group).num_rows:
                    self._groups.append((file, group, column))
                    self._edges.append(self._edges[-1] + n)
        self.spec = ArraySpec.of(NAME, np.dtype(np.uint8), (self._edges[-1], length))

    def boundaries(self) -> list[int]:
        return list(self._edges)

    def _read(self, start: int, stop: int) -> Bytes:
        rows = np.empty((stop - start, self._length), np.uint8)
        first, last = bisect.bisect_right(self._edges, start) - 1, bisect.bisect_left(self._edges, stop)
        for (file, group, column), (low, high) in zip(
            self._groups[first:last], itertools.pairwise(self._edges[first : last + 1]), strict=True
        ):
            with pq.ParquetFile(file) as opened:
                table = opened.read_row_group(group, columns=[column])
            done = low
            for chunk in table.column(0).chunks:
                a, b = max(start, done), min(stop, done + len(chunk))
                if a < b:
                    rows[a - start : b - start] = _rows(chunk.slice(a - done, b - a), self._length)
                done += len(chunk)
            assert done == high
        return rows


def _describe(file: Path) -> tuple[Any, str]:
    """Metadata of a file, and the name of its column of messages."""
    try:
        with pq.ParquetFile(file) as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{file} cannot be read as Parquet ({type(error).__name__}); expected a store of reports"
        ) from None
    binary = [f.name for f in schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)]
    binary += [f.name for f in schema if pa.types.is_fixed_size_binary(f.type)]
    if NAME not in binary and len(binary) != 1:
        raise DataError(f"{file} has the binary columns {binary}; expected one, or one named {NAME!r}")
    return metadata, NAME if NAME in binary else binary[0]


def _rows(chunk: Any, length: int) -> Bytes:
    """The messages of an Arrow array; zeros for nulls and those of another length."""
    chunk = chunk.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = chunk.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    fits = (np.diff(offsets) == length) & ~np.asarray(chunk.is_null().to_numpy(zero_copy_only=False), bool)
    if fits.all():
        return data[offsets[0] : offsets[-1]].reshape(-1, length)
    rows = np.zeros((len(chunk), length), np.uint8)
    rows[fits] = data[offsets[:-1][fits][:, None] + np.arange(length)]
    return rows

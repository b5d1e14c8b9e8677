"""Rows from arrays that are stored already: NumPy files and Zarr groups."""

from __future__ import annotations

import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data.dataset_schema import ATTRIBUTE, Schema, shown_dtype
from dpdist.data.ingestion_spec import IngestionSpec, listed, near
from dpdist.data.readers import Batch, Position, Reader, file_identity
from dpdist.data.rows import array_rows
from dpdist.data.sources import ZarrSource, aligned_rows, merge_boundaries, zarr_arrays
from dpdist.data.stores import open_to_read, resolved, shown
from dpdist.errors import DataError


class ArrayReader(Reader):
    """``X`` and perhaps ``y`` and the owners of the rows, from arrays of the same length. A position is: 0, row."""

    def __init__(
        self, name: str, arrays: dict[str, RowArray], spec: IngestionSpec, columns: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.named = bool(columns)
        X, label = self._roles(arrays, spec)
        if len(X.shape) != 2:
            raise DataError(f"the features in {name} have {len(X.shape)} dimensions; expected 2, rows x columns")
        lengths = {array.shape[0] for array in self.arrays.values()}
        if len(lengths) > 1:
            raise DataError(f"the arrays in {name} have different numbers of rows; expected one entry per row in each")
        self.layout = spec.array_layout(X.shape[1], columns, label)
        for role, array in self.arrays.items():
            text = role == "unit" or (role == "y" and self.layout.text_label)
            if array.dtype.kind not in ("UTfiub" if role == "unit" else "UT" if text else "fiub"):
                hint = "give --label-type str or --label-levels" if role == "y" and not text else "convert it first"
                raise DataError(
                    f"the array for {role} in {name} has dtype {shown_dtype(array.dtype)}; expected "
                    f"{'text' if text else 'real numbers'}: {hint}"
                )
        self.bytes_total = sum(array.dtype.itemsize * int(np.prod(array.shape)) for array in self.arrays.values())
        self.stored_bytes = X.shape[0] * self.layout.row_bytes

    def _roles(self, arrays: dict[str, RowArray], spec: IngestionSpec) -> tuple[RowArray, str | None]:
        if len(spec.features) > 1:
            raise DataError("--features of an array source names its one 2-d array (default X)")
        label = spec.label or ("y" if "y" in arrays else None)
        wanted = {"X": spec.features[0] if spec.features else "X", "y": label, "unit": spec.unit}
        self.arrays: dict[str, RowArray] = {}
        for role, array in wanted.items():
            if array is None:
                continue
            if array not in arrays:
                raise DataError(
                    f"there is no array {array!r} in {self.name}{near(array, list(arrays))}; it has "
                    + listed(sorted(arrays)).replace("columns", "arrays")
                )
            if role != "X" and len(arrays[array].shape) != 1:
                raise DataError(f"array {array!r} in {self.name} is not 1-d; expected one entry per row")
            arrays[array].check()
            self.arrays[role] = arrays[array]
        return self.arrays["X"], label

    def batches(self, position: Position | None) -> Iterator[Callable[[], Batch]]:
        _, start = position or [0, 0]
        n_rows = self.arrays["X"].shape[0]
        for first, last in self.arrays["X"].pieces():
            if last > start:
                blocks = {role: array.read(first, last) for role, array in self.arrays.items()}
                yield partial(self._batch, blocks, [0, last], self.bytes_total * last // n_rows)

    def _batch(self, blocks: dict[str, NDArray[Any]], position: Position, bytes_done: int) -> Batch:
        return Batch(array_rows(blocks, self.layout), position, self.name, bytes_done)

    def identity(self) -> list[Any]:
        return [[role, *array.identity()] for role, array in self.arrays.items()]


@dataclass
class RowArray(ABC):
    """An array on disk that is read by row range, forwards."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @abstractmethod
    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start:stop``."""

    @abstractmethod
    def identity(self) -> list[Any]:
        """Plain JSON that changes when the array does."""

    def check(self) -> None:  # noqa: B027 (most arrays can)
        """Raise if it cannot be read by rows."""

    def pieces(self) -> list[tuple[int, int]]:
        """Row ranges to read at a time."""
        rows = aligned_rows(max(1, self.dtype.itemsize * int(np.prod(self.shape[1:]))))
        return [(start, min(start + rows, self.shape[0])) for start in range(0, self.shape[0], rows)]


@dataclass
class NpyArray(RowArray):
    """A ``.npy`` file, or a member of an ``.npz`` archive, read as a stream: a map of it would count as memory."""

    path: Path
    member: str | None
    fortran: bool
    offset: int
    _stream: IO[bytes] | None = field(default=None, repr=False)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        if self._stream is None:
            self._stream = _open_npy(self.path, self.member)
        if self.fortran and len(self.shape) == 2:
            columns = [self._span(j * self.shape[0] + start, stop - start) for j in range(self.shape[1])]
            return np.stack(columns, axis=1)
        width = int(np.prod(self.shape[1:]))
        return self._span(start * width, (stop - start) * width).reshape(stop - start, *self.shape[1:])

    def check(self) -> None:
        if self.fortran and self.member is not None and len(self.shape) == 2:
            raise DataError(
                f"{self.member} in {self.path.name} is stored column by column, which an archive cannot read by rows: "
                "save it with numpy.save, or as numpy.ascontiguousarray(X)"
            )

    def _span(self, first: int, count: int) -> NDArray[Any]:
        assert self._stream is not None
        self._stream.seek(self.offset + first * self.dtype.itemsize)
        data = self._stream.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise DataError(f"{self.path.name} is shorter than its header says; it was cut. Write it again")
        return np.frombuffer(data, self.dtype)

    def identity(self) -> list[Any]:
        return [*file_identity(self.path), self.member]


@dataclass
class ZarrRows(RowArray):
    """An array of a Zarr group."""

    source: ZarrSource
    place: str

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.source.read(start, stop)

    def pieces(self) -> list[tuple[int, int]]:
        return merge_boundaries(self.source.boundaries(), self.source.spec.row_bytes)

    def identity(self) -> list[Any]:
        files = [path.stat() for path in sorted(Path(self.place).rglob("*")) if path.is_file()]
        newest = max((status.st_mtime_ns for status in files), default=0)
        spec = self.source.spec
        return [shown(self.place), spec.dtype, list(spec.shape), sum(f.st_size for f in files), len(files), newest]


def numpy_reader(path: Path, spec: IngestionSpec) -> ArrayReader:
    """Reader of ``X.npy``, or of an ``.npz`` archive with ``X`` and ``y``."""
    if not zipfile.is_zipfile(path):
        return ArrayReader(path.name, {"X": _npy(path, None)}, spec)
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
    return ArrayReader(path.name, {name.removesuffix(".npy"): _npy(path, name) for name in members}, spec)


def _npy(path: Path, member: str | None) -> NpyArray:
    try:
        with _open_npy(path, member) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(version)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = header(stream)
            array = NpyArray(dtype, shape, path, member, fortran, stream.tell())
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise DataError(f"{path.name} is not a file that numpy.save or numpy.savez wrote; check it") from None
    return array


def _open_npy(path: Path, member: str | None) -> IO[bytes]:
    # The opened member keeps the archive open.
    return open(path, "rb") if member is None else zipfile.ZipFile(path).open(member)


def zarr_reader(place: str, spec: IngestionSpec) -> ArrayReader:
    """Reader of a Zarr group, whoever wrote it."""
    try:
        group = open_to_read(place)
    except DataError:
        raise
    except Exception as error:
        problem = type(error).__name__
    else:
        found = zarr_arrays(group, shown(group))
        attributes = group.attrs.get(ATTRIBUTE)
        known = Schema.from_attributes(attributes, shown(group)) if attributes is not None else None
        complete = known is not None and known.complete
        arrays: dict[str, RowArray] = {}
        for name, array in found.items():
            if array.ndim in (1, 2):
                source = ZarrSource(name, array, complete)
                dtype = np.dtype("U") if source.spec.dtype == "str" else np.dtype(source.spec.dtype)
                arrays[name] = ZarrRows(dtype, source.spec.shape, source, str(resolved(place)))
        features = spec.features[0] if spec.features else "X"
        columns = known.columns.get(features, ()) if known is not None else ()
        return ArrayReader(os.path.basename(place.rstrip("/")), arrays, spec, columns)
    raise DataError(f"cannot open a Zarr group at {shown(place)} ({problem}); check the path, or give --format")

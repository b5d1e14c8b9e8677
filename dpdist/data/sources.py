"""Readers of one array each: small picklable objects that a worker calls with a row range.

Every reader keeps one contract: ``read(start, stop)`` returns a C-contiguous array in native byte order with exactly
``stop - start`` rows, or raises one `DataError` that names the array and the rows. Exceptions of codecs and of user
graphs may quote data, so they are replaced, not chained.
"""

from __future__ import annotations

import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from zarr.storage import LocalStore, MemoryStore, ZipStore

from dpdist.data.dataset_schema import ArraySpec
from dpdist.data.integrity import chunk_problem
from dpdist.data.mapped_files import MappedFiles
from dpdist.data.plain_chunks import Empty, PlainChunks, Seen
from dpdist.data.stores import from_store
from dpdist.data.texts import counted
from dpdist.errors import DataError
from dpdist.privacy.randomness.streams import block_size

MiB = 2**20
TARGET_BYTES = 16 * MiB
"""Size of a partition: large enough that a task and a seek cost little, small enough for many to fit in memory."""
MAX_SHARD_BYTES = 128 * MiB
MAX_CHUNK_BYTES = 1024 * MiB


def aligned_rows(row_bytes: int) -> int:
    """Rows of a partition of about 16 MiB (64 MiB for wide rows): a multiple of the stream block of that width.

    Whole stream blocks, so that no two tasks have to draw the same block of random numbers.

    Examples
    --------
    >>> aligned_rows(50 * 8), aligned_rows(10_000 * 8)
    (40960, 512)
    """
    block = block_size(max(1, row_bytes // 8))
    return max(1, TARGET_BYTES // (row_bytes * block)) * block


class Source(ABC):
    """One array of a dataset, readable by row range; ``spec`` is its public shape and dtype.

    ``remote``: in a store that answers late, so that several reads at once are faster than one after another.
    ``counted``: how many rows there are is public (`dpdist.data.units.Units.counted`).
    """

    name: str
    spec: ArraySpec
    remote = False
    counted = True
    first = 0
    """The number of its first row: of a stretch of a longer stream, see `Dataset.stretch`."""
    plain_files: Path | None = None
    """Where rows stand in files as they are used (`as_stored`, `mapped`)."""

    @abstractmethod
    def _read(self, start: int, stop: int) -> np.ndarray:
        """Return the rows as they come from the storage."""

    @abstractmethod
    def boundaries(self) -> list[int]:
        """Row indices ``[0, ..., n_rows]`` between which rows are stored, and best read, together."""

    def _verify(self, start: int, stop: int) -> np.ndarray:
        """Return the rows after every check that the storage allows."""
        return self._read(start, stop)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop``, C-contiguous and in native byte order (a view where that needs no copy)."""
        return self._guarded(self._read, start, stop)

    def verify(self, start: int, stop: int) -> np.ndarray:
        """Read rows ``start:stop`` with every check that the storage allows; `DataError` if they are damaged."""
        return self._guarded(self._verify, start, stop)

    def as_stored(self, start: int, stop: int, empty: Empty, seen: Seen) -> tuple[np.ndarray, int] | None:
        """Rows as they stand on the disk, unchecked, and the number that ``seen`` gives them; counted from its first.

        For whoever has verified them and compares them with what they were. None where only `read` can have them.
        """
        return None

    def mapped(self, start: int, stop: int, files: MappedFiles) -> np.ndarray | None:
        """Rows where they are in memory already, to be used until ``files`` end; None where they have to be read."""
        return None

    def _guarded(self, reader: Callable[[int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        first, last = self.first, self.first + self.spec.n_rows
        if not first <= start < stop <= last:
            raise DataError(
                f"rows {start}:{stop} of array {self.name!r} do not exist; expected {first} <= start < stop <= "
                f"{last if self.counted else 'the number of rows, which is private'}"
            )
        rows = self.location(start, stop)
        try:
            block = np.asarray(from_store(lambda: reader(start - first, stop - first), f"{rows} cannot be read"))
        except DataError:
            raise
        except Exception as error:
            problem, number = type(error).__name__, getattr(error, "errno", None)
        else:
            if block.dtype.kind != "T":
                block = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("="))
            if self.spec.accepts(block, stop - start):
                return block
            problem, number = "decoded to another shape or dtype than the metadata says", None
        # Raised outside the handler, so that the original exception (which may quote data) is not attached.
        if number is not None:
            fix = "check the disk or the connection, and who may read there"
            raise DataError(f"{rows} cannot be read ({os.strerror(number)}): {fix}")
        raise damaged(rows, problem)

    def location(self, start: int, stop: int) -> str:
        """Which rows, for a message; where their number is private, not between which numbers they stand."""
        which = f"rows {start}:{stop}" if self.counted else "some rows"
        return f"array {self.name!r}, {which}"


def damaged(rows: str, problem: str) -> DataError:
    """The one error for rows that are there and cannot be decoded; never contains a value."""
    return DataError(
        f"{rows} are damaged ({problem}): restore the chunk from a copy, or write the dataset again; Dataset.verify() "
        "checks every chunk."
    )


class NumpySource(Source):
    """An array in memory; reads are zero-copy slices when it is C-ordered and native."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        if isinstance(array, np.ma.MaskedArray):
            raise DataError(f"array {name!r} is masked; expected a plain array. Fill it or drop the masked rows first.")
        self.name = name
        self.array = array
        self.spec = ArraySpec.of(name, array.dtype, array.shape)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return self.array[start:stop]

    def boundaries(self) -> list[int]:
        return regular_boundaries(self.spec.n_rows, aligned_rows(self.spec.row_bytes))


class DaskSource(Source):
    """A Dask array, computed slice by slice in the calling thread (a worker must not wait for its own scheduler).

    The array is recognised by its protocol, so this module does not import Dask.
    """

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.array = array
        if any(math.isnan(length) for lengths in array.chunks for length in lengths):
            raise DataError(
                f"array {name!r} is a Dask array with unknown chunk sizes; expected known row counts. Call "
                "compute_chunk_sizes() on it first."
            )
        self.spec = ArraySpec.of(name, array.dtype, array.shape)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.array[start:stop].compute(scheduler="synchronous"))

    def boundaries(self) -> list[int]:
        return list(dict.fromkeys([0, *itertools.accumulate(self.array.chunks[0])]))


class ZarrSource(Source):
    """A Zarr array of any format and codec. Pickles as store location and path; opened again at the first read.

    Parameters
    ----------
    name : str
    array : zarr.Array
    complete : bool
        The writer stored every chunk, so a chunk that does not exist is damage. Zarr itself reads a missing chunk
        as fill values, which is right for stores that leave out empty chunks.
    """

    def __init__(self, name: str, array: zarr.Array, complete: bool = False) -> None:
        if any("pickle" in codec for codec in _codecs(array.metadata)):
            raise DataError(
                f"array {name!r} holds pickled objects; reading them would run whatever code its writer put there, so "
                "it is not read. Write the values as numbers or strings."
            )
        self.name = name
        self.complete = complete
        self._store, self._path = array.store, array.path
        self.remote = not isinstance(array.store, LocalStore | MemoryStore | ZipStore)
        self._opened: zarr.Array | None = counted(array)
        if array.attrs.get("scale_factor") is not None or array.attrs.get("add_offset") is not None:
            raise DataError(
                f"array {name!r} holds packed values (scale_factor/add_offset attributes); expected plain numbers. "
                "Decode it first, for example by writing it again without an encoding."
            )
        self.spec = ArraySpec.of(name, array.dtype, array.shape)
        try:
            chunks, shards = array.chunks, array.shards
        except NotImplementedError:
            chunks, shards = (), None
        if not chunks or 0 in chunks or 0 in (shards or ()):
            raise DataError(f"array {name!r} has no regular chunk grid; expected equal chunks of rows. Rechunk it.")
        self._grid = shards or chunks
        row_bytes = self.spec.row_bytes
        read_by_shard = shards is not None and shards[0] * row_bytes <= MAX_SHARD_BYTES
        self._plain = PlainChunks.of(array)
        self.plain_files = None if self._plain is None else self._plain.place
        self._unit_rows = int(self._grid[0] if read_by_shard else chunks[0])
        if min(self._unit_rows, self.spec.n_rows) * row_bytes > MAX_CHUNK_BYTES:
            raise DataError(
                f"array {name!r} is stored in chunks of {self._unit_rows} rows, {self._unit_rows * row_bytes // MiB} "
                f"MiB each; expected at most {MAX_CHUNK_BYTES // MiB} MiB, better about 16. Rechunk along axis 0."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def array(self) -> zarr.Array:
        """The Zarr array, opened in this process when it is first needed."""
        if self._opened is None:
            # "r+" opens what exists, like "r", but does not ask a writable store for a read-only copy of itself.
            mode: Literal["r", "r+"] = "r" if self._store.read_only else "r+"
            self._opened = counted(zarr.open_array(store=self._store, path=self._path, mode=mode))
        return self._opened

    def _read(self, start: int, stop: int) -> np.ndarray:
        if not self.complete:
            return np.asarray(self.array[start:stop])
        if not self.remote:
            self._check_chunks(start, stop, lengths=False)
            return np.asarray(self.array[start:stop])
        with ThreadPoolExecutor(1) as other:  # both at once: the store is waited for once
            checked = other.submit(self._check_chunks, start, stop, lengths=False)
            rows = np.asarray(self.array[start:stop])
            checked.result()
        return rows

    def as_stored(self, start: int, stop: int, empty: Empty, seen: Seen) -> tuple[np.ndarray, int] | None:
        return None if self._plain is None else self._plain.read(start, stop, empty, seen)

    def mapped(self, start: int, stop: int, files: MappedFiles) -> np.ndarray | None:
        return None if self._plain is None else self._plain.mapped(start, stop, files)

    def _verify(self, start: int, stop: int) -> np.ndarray:
        self._check_chunks(start, stop, lengths=True)
        return np.asarray(self.array[start:stop])

    def _check_chunks(self, start: int, stop: int, lengths: bool) -> None:
        if found := chunk_problem(self.array, self._grid, start, stop, complete=self.complete, lengths=lengths):
            start, stop, problem = found
            raise damaged(self.location(start, stop), problem)

    def boundaries(self) -> list[int]:
        return regular_boundaries(self.spec.n_rows, self._unit_rows)


def _codecs(metadata: Any) -> list[str]:
    """Names of the codecs of an array, in either format; where one has others inside, with theirs."""
    if hasattr(metadata, "codecs"):
        return [str(codec.to_dict()) for codec in metadata.codecs]
    return [str(getattr(codec, "codec_id", "")) for codec in (*(metadata.filters or ()), metadata.compressor)]


def zarr_arrays(group: zarr.Group, location: str) -> dict[str, zarr.Array]:
    """The arrays of a group, by name; `DataError` where one of them is nothing that Zarr can read."""
    try:
        return from_store(lambda: dict(group.arrays()), f"{location} cannot be read")
    except DataError:
        raise
    except Exception as error:
        problem = type(error).__name__
    raise DataError(
        f"an array of the Zarr group at {location} cannot be opened ({problem}): it holds Python objects, or its "
        "metadata names a type or a codec that is not known here. Write it as numbers or strings, or take it out "
        "of the group."
    )


def source_for(name: str, array: Any) -> Source:
    """Wrap a NumPy or Dask array."""
    if isinstance(array, np.ndarray):
        return NumpySource(name, array)
    if hasattr(array, "__dask_graph__") and hasattr(array, "chunks"):
        return DaskSource(name, array)
    raise DataError(
        f"array {name!r} is a {type(array).__module__}.{type(array).__name__}; expected a NumPy or a Dask array. "
        "Convert it with numpy.asarray, or with to_dask_array(lengths=True) for a Dask frame."
    )


def regular_boundaries(n_rows: int, rows: int) -> list[int]:
    """``[0, rows, 2 rows, ..., n_rows]``."""
    return [*range(0, n_rows, rows), n_rows]


def merge_boundaries(boundaries: list[int], row_bytes: int) -> list[tuple[int, int]]:
    """Join consecutive stored pieces into partitions of at most about 16 MiB (one piece at least)."""
    merged: list[tuple[int, int]] = []
    start = 0
    for stop, following in zip(boundaries[1:], [*boundaries[2:], None], strict=True):
        if following is None or (following - start) * row_bytes > TARGET_BYTES:
            merged.append((start, stop))
            start = stop
    return merged


def verify_rows(source: Source, start: int, stop: int) -> None:
    """Read (decode) every stored piece that holds rows ``start:stop`` once; `DataError` names the first bad one.

    A plain function of picklable arguments, so that an engine can map it over partitions before any budget is
    charged. It finds what decoding can find: missing chunks of a complete store, truncated or overlong ones, failed
    checksums, broken compression. A flipped bit in a chunk without checksum (raw, blosc, zstd as zarr writes them) may
    pass for data; stores written by `Dataset.from_arrays` carry checksums.
    """
    for first, last in _pieces(source, start, stop):
        source.verify(first, last)


def _pieces(source: Source, start: int, stop: int) -> Iterator[tuple[int, int]]:
    for first, last in itertools.pairwise(source.first + edge for edge in source.boundaries()):
        if last > start and first < stop:
            yield first, last

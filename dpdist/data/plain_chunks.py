"""Rows of a local store as they stand in its files: uncompressed chunks are read straight into the memory they need.

A chunk that is stored as it is used (whole rows in this machine's byte order, perhaps with a checksum behind them)
needs one copy out of the operating system's cache, which leaves the rows in the processor's cache. Zarr makes several,
each into fresh memory, and forms the checksum, which together takes several times as long as a gradient. Nothing is
checked here but the length of the file, so this is for rows that were verified before and are compared with what they
were (`dpdist.engine.unchanged`).

Where the system keeps writers away from the file meanwhile, rows are not even copied (`dpdist.data.mapped_files`).
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.storage import LocalStore

from dpdist.data.mapped_files import MappedFiles

Empty = Callable[[int], NDArray[np.uint8]]
"""Makes room for so many bytes."""
Seen = Callable[[NDArray[np.uint8], int, bool], int]
"""The number that stands for bytes, given that of the bytes before them (1 at first) and whether more will come."""
PART_BYTES = 2**19
"""Bytes that are looked at while they are in the second-level cache of the processor that copied them."""
LEAST_MAPPED = 2**18
"""Fewer bytes are sooner copied."""
CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class PlainChunks:
    """The chunks of one array, each a file of ``rows`` whole rows and ``tail`` bytes."""

    place: Path
    metadata: Any
    dtype: np.dtype[Any]
    rows: int
    row_shape: tuple[int, ...]
    tail: int

    @classmethod
    def of(cls, array: zarr.Array) -> PlainChunks | None:
        """Those of an array; None where Zarr has to read: remote, sharded, compressed, cut by columns, other bytes."""
        if not isinstance(array.store, LocalStore) or array.shards is not None or array.chunks[1:] != array.shape[1:]:
            return None
        tail = _tail(array.metadata)
        if tail is None or array.dtype.kind not in "biuf" or not array.dtype.isnative or 0 in array.shape:
            return None
        place = Path(array.store.root) / array.path
        return cls(place, array.metadata, array.dtype, array.chunks[0], array.shape[1:], tail)

    def read(self, start: int, stop: int, empty: Empty, seen: Seen) -> tuple[NDArray[Any], int] | None:
        """A copy of rows ``start:stop`` and their number; None if they are in several chunks, or of another file."""
        part = self._part(start, stop)
        if part is None:
            return None
        path, first, n_bytes, size = part
        rows = empty(n_bytes)
        try:
            with open(path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size != size:
                    return None
                file.seek(first)
                number, done = 1, 0
                while done < rows.size:
                    block = rows[done : done + PART_BYTES]
                    if file.readinto(block.data) != block.size:
                        return None
                    done += block.size
                    number = seen(block, number, done < rows.size)
        except OSError:  # whoever reads it with all checks says what is wrong
            return None
        return self._rows(rows), number

    def mapped(self, start: int, stop: int, files: MappedFiles) -> NDArray[Any] | None:
        """Rows ``start:stop`` where they are, until ``files`` end; None where they have to be read."""
        part = self._part(start, stop)
        if part is None or part[2] < LEAST_MAPPED or not self._is_here(part[0]):
            return None
        found = files.part(*part)
        return None if found is None else self._rows(found)

    def _is_here(self, path: Path) -> bool:
        """Whether a file is on the file system of the array: a link, or a mount below it, may lead to another one."""
        try:
            return os.stat(path).st_dev == os.stat(self.place).st_dev
        except OSError:
            return False

    def _part(self, start: int, stop: int) -> tuple[Path, int, int, int] | None:
        """The file with these rows, where they begin and how many bytes they are, and the size of the whole."""
        chunk, first = divmod(start, self.rows)
        if stop > (chunk + 1) * self.rows:
            return None
        row_bytes = math.prod(self.row_shape) * self.dtype.itemsize
        path = self.place / self.metadata.encode_chunk_key((chunk, *(0 for _ in self.row_shape)))
        return path, first * row_bytes, (stop - start) * row_bytes, self.rows * row_bytes + self.tail

    def _rows(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        return data.view(self.dtype).reshape(-1, *self.row_shape)


def _tail(metadata: Any) -> int | None:
    """Bytes behind the values of a chunk; None if it holds anything but values in row order and a checksum."""
    if not hasattr(metadata, "codecs"):
        plain = metadata.compressor is None and not metadata.filters and metadata.order == "C"
        return 0 if plain else None
    values, *others = metadata.codecs
    if not isinstance(values, BytesCodec) or getattr(values.endian, "value", sys.byteorder) != sys.byteorder:
        return None
    checksum = len(others) == 1 and isinstance(others[0], Crc32cCodec)
    return CHECKSUM_BYTES if checksum else None if others else 0


class Buffers:
    """Memory that is used again as soon as nobody holds an array of it: fresh pages cost more than copying into them.

    A copy that is sent elsewhere has none.

    >>> buffers = Buffers()
    >>> first = buffers.empty(100)
    >>> place = first.ctypes.data
    >>> buffers.empty(100).ctypes.data == place
    False
    >>> del first
    >>> buffers.empty(50).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self._owners: list[NDArray[np.uint8]] = []
        self._asked = threading.Lock()

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        return Buffers, ()

    def empty(self, size: int) -> NDArray[np.uint8]:
        """So many bytes, with whatever they hold."""
        with self._asked:  # every array made of an owner refers to it, and only here an unused one comes into use
            unused = [i for i in range(len(self._owners)) if sys.getrefcount(self._owners[i]) == _UNUSED]
            for i in unused:
                if self._owners[i].size >= size:
                    return self._owners[i][:size]
            for i in reversed(unused):  # too small
                del self._owners[i]
            self._owners.append(np.empty(size, np.uint8))
            return self._owners[-1][:size]


_ONE: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)]
_UNUSED = sys.getrefcount(_ONE[0])
"""References to an owner that only a list knows, as they are counted."""

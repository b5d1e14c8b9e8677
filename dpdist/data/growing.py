"""A group on a local disk that grows by rows: its partitions are written when full, its length is known at the end.

What it leaves is what `dpdist.data.writing.write_group` makes of the same rows. Until `GrowingGroup.finish` the group
is marked unfinished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from numpy.typing import NDArray

from dpdist.data.dataset_schema import ATTRIBUTE, ArraySpec, Schema, new_id
from dpdist.data.writing import Compression, chunk_codec, create_arrays, new_group
from dpdist.errors import DataError


class GrowingGroup:
    """Rows go in with `append`; the last ones, which do not fill a partition yet, are the `carry`.

    Parameters
    ----------
    place : Path
    partition : mapping of str to ArraySpec
        The arrays of one full partition.
    compression : {"none", "zstd"}
    """

    def __init__(self, place: Path, partition: Mapping[str, ArraySpec], compression: Compression) -> None:
        self.place = place
        self._partition = dict(partition)
        self._rows = next(iter(self._partition.values())).n_rows
        self._codec = chunk_codec(compression)
        self._buffers: dict[str, NDArray[Any]] = {
            name: np.empty(spec.shape, object if spec.dtype == "str" else spec.dtype)
            for name, spec in self._partition.items()
        }
        self._filled = 0
        self._stored = 0
        self._arrays: dict[str, zarr.Array] = {}
        self._unsynced: set[Path] = set()

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._stored + self._filled

    def begin(self) -> None:
        """Create the group."""
        self._group = new_group(self.place)

    def delete(self) -> None:
        """Delete the unfinished group, its mark last: what a crash leaves of it is still known to be unfinished."""
        if not self.place.is_dir():
            return
        for path in self.place.iterdir():
            if path.name != "zarr.json":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.place / "zarr.json").unlink(missing_ok=True)
        self.place.rmdir()

    def resume(self, stored: int, carry: Mapping[str, bytes]) -> None:
        """Go on after ``stored`` rows on the disk and the carry of that moment; what came later is written again."""
        for leftover in self.place.rglob("*.partial"):  # of a file that zarr was about to write
            leftover.unlink()
        if not stored:
            self.delete()
            self.begin()
        else:
            try:
                self._group = zarr.open_group(self.place, mode="r+")
                self._arrays = {name: self._array(name) for name in self._partition}
            except (OSError, KeyError, ValueError) as error:
                raise DataError(
                    f"the unfinished output {self.place} is damaged ({type(error).__name__}); start again with "
                    "--restart (restart=True)"
                ) from None
        self._stored = stored
        for name, buffer in self._buffers.items():
            rows: Any = (
                json.loads(carry[name])
                if buffer.dtype == object
                else np.frombuffer(carry[name], buffer.dtype).reshape(-1, *buffer.shape[1:])
            )
            buffer[: len(rows)] = rows
            self._filled = len(rows)

    def _array(self, name: str) -> zarr.Array:
        array = self._group[name]
        if not isinstance(array, zarr.Array):
            raise KeyError(name)
        return array.with_config({"write_empty_chunks": True})

    def append(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add rows; partitions that become full are written."""
        done, n_rows = 0, len(next(iter(rows.values())))
        while done < n_rows:
            count = min(n_rows - done, self._rows - self._filled)
            for name, buffer in self._buffers.items():
                buffer[self._filled : self._filled + count] = rows[name][done : done + count]
            self._filled += count
            done += count
            if self._filled == self._rows:
                self._write()

    def carry(self) -> dict[str, bytes]:
        """Rows that are in no chunk yet."""
        return {
            name: json.dumps(buffer[: self._filled].tolist()).encode()
            if buffer.dtype == object
            else buffer[: self._filled].tobytes()
            for name, buffer in self._buffers.items()
        }

    @property
    def stored(self) -> int:
        """Rows in chunks."""
        return self._stored

    def sync(self) -> None:
        """Return when everything that was written is on the disk."""
        for path in sorted(self._unsynced, key=lambda path: -len(path.parts)):  # files before their directories
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._unsynced.clear()

    def finish(self, schema: Schema, attributes: Mapping[str, Any]) -> Schema:
        """Write the rest; describe the group in its attributes, which ends the mark that it is unfinished."""
        if self._filled:
            self._write()
        specs = {name: replace(s, shape=(self._stored, *s.shape[1:])) for name, s in self._partition.items()}
        rows = min(self._rows, self._stored)
        schema = replace(schema, arrays=specs, complete=True, partition_rows=rows, edition=new_id())
        self.sync()
        self._group.update_attributes({ATTRIBUTE: schema.to_attributes(), **attributes})
        self._note(self.place / "zarr.json")
        self.sync()
        return schema

    def _write(self) -> None:
        start, stop = self._stored, self._stored + self._filled
        if not self._arrays:
            specs = {name: replace(s, shape=(stop, *s.shape[1:])) for name, s in self._partition.items()}
            self._arrays = create_arrays(self._group, specs, stop, self._codec)
        for name, array in self._arrays.items():
            if array.shape[0] < stop:
                array.resize((stop, *array.shape[1:]))
            array[start:stop] = self._buffers[name][: self._filled]
            chunk = array.metadata.encode_chunk_key((start // self._rows, *(0 for _ in array.shape[1:])))
            self._note(self.place / name / chunk)
            self._note(self.place / name / "zarr.json")
        self._stored, self._filled = stop, 0

    def _note(self, path: Path) -> None:
        """Remember a file, and its directories up to the one that holds the group, for the next `sync`."""
        self._unsynced.add(path)
        self._unsynced.update(parent for parent in path.parents if parent.is_relative_to(self.place.parent))


def kind_of(place: Path) -> Literal["free", "unfinished", "taken"]:
    """Whether a place is empty, holds an unfinished dataset of ours, or something else that is not ours to touch."""
    if not os.path.lexists(place):
        return "free"
    if not place.is_dir():
        return "taken"
    if not any(name for name in os.listdir(place) if not name.endswith(".partial")):
        return "free"
    attribute = attribute_at(place)
    return "unfinished" if attribute is not None and attribute.get("unfinished") else "taken"


def attribute_at(place: Path, name: str = ATTRIBUTE) -> dict[str, Any] | None:
    """An attribute of the group at a place, empty if it has none; None if there is no group."""
    try:
        attribute: Any = zarr.open_group(place, mode="r").attrs.get(name)
    except Exception:
        return None
    return attribute if isinstance(attribute, dict) else {}


def id_at(place: Path) -> str | None:
    """Id of the finished dataset at a place."""
    return (attribute_at(place) or {}).get("id")


def schema_at(place: Path) -> Schema:
    """Schema of the finished dataset at a place."""
    return Schema.from_attributes(attribute_at(place), str(place))

"""Where the results of a run are kept: a folder, or the objects below an address; a few files, each read as a whole.

What both promise: a file is made only if there is none, and replaced as a whole, so that a reader never sees half of
one. Arrays are no single file. In a folder they are written aside and renamed. A store can't rename; there every object
is put with the very bytes it had if the same arrays are written again, so a reader of arrays that were complete finds
them complete at any moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore

from dpdist.data.stores import zarr_arguments
from dpdist.errors import DpdistError, Unavailable
from dpdist.objects import Objects, StoreError, StoreUnavailable, is_object_store, patiently

Arrays = Mapping[str, NDArray[Any]]


class ResultStoreError(DpdistError):
    """A place that cannot be used: in words why, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"{why}: {fix}")
        self.why, self.fix = why, fix


class ResultStoreUnavailable(ResultStoreError, Unavailable):
    """A place that was away for longer than it is waited for."""


class ResultStore(Protocol):
    """What a run needs of the place of its results. Every method raises `ResultStoreError` when it cannot be used."""

    def names(self) -> list[str]:
        """Of what is there, or of some of it where there is much; none if there is no such place yet."""

    def read(self, name: str) -> bytes | None:
        """A file; None if there is none."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, and the place, unless there is such a file: whether it was made."""

    def replace(self, name: str, data: bytes) -> None:
        """Make a file, or replace it as a whole."""

    def write_arrays(self, name: str, arrays: Arrays) -> None:
        """Make a Zarr group, or replace it."""

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """A Zarr group; raises whatever Zarr raises, too."""

    def discard(self, names: Sequence[str]) -> None:
        """Remove files, and the place if it was made here and holds nothing else."""

    def shown(self, name: str) -> str | Path:
        """Where a file is."""


def result_store(location: str | os.PathLike[str]) -> ResultStore:
    """The place that a path or an address means; nothing is made there."""
    if is_object_store(location):
        return ObjectResults(str(location))
    return Folder(location)


class Folder:
    """A directory. A file is written aside, flushed to the disk and renamed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._made: list[Path] = []

    def names(self) -> list[str]:
        """Of all files."""
        with _explained():
            try:
                return os.listdir(self._path)
            except FileNotFoundError:
                return []

    def read(self, name: str) -> bytes | None:
        """A file; None if there is none."""
        with _explained():
            try:
                return (self._path / name).read_bytes()
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, and the directories above it, unless there is such a file."""
        try:
            with _explained():
                for folder in (*reversed(self._path.parents), self._path):
                    if not folder.exists():
                        folder.mkdir(exist_ok=True)
                        self._made.append(folder)
                try:
                    self._write(name, data, exclusive=True)
                except FileExistsError:
                    return False
                return True
        except ResultStoreError:
            self._remove_made()
            raise

    def replace(self, name: str, data: bytes) -> None:
        """Make a file, or replace it as a whole."""
        with _explained():
            self._write(name, data)

    def write_arrays(self, name: str, arrays: Arrays) -> None:
        """Make a Zarr group aside, and rename it."""
        with _explained():
            aside, final = self._path / f".{name}", self._path / name
            shutil.rmtree(aside, ignore_errors=True)
            _fill(zarr.open_group(aside, mode="w", zarr_format=3), arrays)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(aside, final)

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """A Zarr group."""
        return _arrays(self._path / name)

    def discard(self, names: Sequence[str]) -> None:
        """Remove files, and the directories that were made for them."""
        with _explained():
            for name in names:
                (self._path / name).unlink(missing_ok=True)
        self._remove_made()

    def shown(self, name: str) -> Path:
        """The path of a file."""
        return self._path / name

    def _remove_made(self) -> None:
        with contextlib.suppress(OSError):  # somebody else has put a file there
            for folder in reversed(self._made):
                folder.rmdir()

    def _write(self, name: str, data: bytes, exclusive: bool = False) -> None:
        aside = self._path / f".{name}.{secrets.token_hex(4)}"
        try:
            with open(aside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if exclusive:
                _link(aside, self._path / name)
            else:
                os.replace(aside, self._path / name)
        finally:
            with contextlib.suppress(OSError):
                aside.unlink()
        _flush(self._path)


class ObjectResults:
    """The objects below an address in an object store that enforces put-if-absent, which is tried out."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._objects = Objects(self._url)

    def names(self) -> list[str]:
        """Of the first objects, down to the first slash."""
        with _explained():
            return sorted({key.partition("/")[0] for key in self._objects.listed(most=100)})

    def read(self, name: str) -> bytes | None:
        """An object; None if there is none."""
        with _explained():
            return self._objects.get(name)

    def create(self, name: str, data: bytes) -> bool:
        """Make an object unless there is one."""
        with _explained():
            # of a request that was sent again, because its answer was lost, the first one may have made the object
            return self._objects.claim(name, data) or self._objects.get(name) == data

    def replace(self, name: str, data: bytes) -> None:
        """Make an object, or replace it as a whole."""
        with _explained():
            self._objects.put(name, data)

    def write_arrays(self, name: str, arrays: Arrays) -> None:
        """Put what the group is made of, what describes it last; then delete what another version may have left."""
        kept: dict[str, Any] = {}
        _fill(zarr.open_group(MemoryStore(kept), mode="w", zarr_format=3), arrays)
        with _explained():
            for key in sorted(kept, key=lambda key: (key.endswith("zarr.json"), -key.count("/"), key)):
                self._objects.put(f"{name}/{key}", kept[key].to_bytes())
            old = [key for key in self._objects.listed(name) if key.removeprefix(f"{name}/") not in kept]
            self._objects.delete(old)

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """A Zarr group."""
        try:
            return patiently(lambda: _arrays(f"{self._url}/{name}"))
        except StoreError as error:
            raise _result_store_error(error) from None

    def discard(self, names: Sequence[str]) -> None:
        """Delete objects."""
        with _explained():
            self._objects.delete([*names])

    def shown(self, name: str) -> str:
        """The address of an object."""
        return f"{self._url}/{name}"


def as_json(record: Mapping[str, Any]) -> bytes:
    """A record as the bytes of a file for people and programs."""
    return (json.dumps(record, indent=2, allow_nan=False) + "\n").encode()


def _fill(group: zarr.Group, arrays: Arrays) -> None:
    for name, values in arrays.items():
        group.create_array(name, data=values, chunks=values.shape or "auto", compressors=None)


def _arrays(location: str | Path) -> dict[str, NDArray[Any]]:
    group = zarr.open_group(**zarr_arguments(location), mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}


def _result_store_error(error: StoreError) -> ResultStoreError:
    kind = ResultStoreUnavailable if isinstance(error, StoreUnavailable) else ResultStoreError
    return kind(error.why, error.fix)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise _result_store_error(error) from None
    except OSError as error:
        raise ResultStoreError(error.strerror or type(error).__name__, "") from None


def _link(aside: Path, name: Path) -> None:
    """Give the file its name, unless that is taken: of two runs that start here at once, one goes on."""
    try:
        os.link(aside, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the last one gets the name, and no charge is made twice
        os.replace(aside, name)


def _flush(folder: Path) -> None:
    """Make the renaming durable, where directories can be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""Where arrays are stored: paths, addresses and Zarr's own stores, and how what is read there is waited for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from dpdist.errors import DataError, DataUnavailable
from dpdist.objects import (
    Objects,
    StoreError,
    StoreUnavailable,
    from_the_store,
    is_object_store,
    object_store,
    patiently,
)

Location = str | os.PathLike[str] | Store | zarr.Group
Result = TypeVar("Result")


class ZarrObjects(ObjectStore[Any]):
    """An object store for Zarr, which would take whatever answers in its place for an array's bytes."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """What an object holds; None if there is none."""
        if byte_range is not None:  # a page is no part of an object, which obstore says
            return await super().get(key, prototype, byte_range)
        try:
            answer = from_the_store(key, await self.store.get_async(key))
        except FileNotFoundError:
            return None
        return prototype.buffer.from_bytes(await answer.bytes_async())


def resolved(store: Location) -> Any:
    """Make a local path absolute, so that a source that is sent elsewhere still finds it; pass all else through."""
    if isinstance(store, str) and ("://" in store or "::" in store):
        return store
    if isinstance(store, str | os.PathLike):
        return Path(os.path.abspath(os.path.expanduser(store)))
    return store


def zarr_arguments(store: Location, storage_options: dict[str, Any] | None = None) -> dict[str, Any]:
    """A location as the arguments of ``zarr.open_group``: object stores by obstore, all else by Zarr's own ways."""
    if is_object_store(store):
        return {"store": ZarrObjects(object_store(str(store), storage_options))}
    return {"store": resolved(store), "storage_options": storage_options}


def shown(store: object) -> str:
    """Name a location in messages, without the user names, keys and signatures that a URL may carry."""
    text = str(store.store_path) if isinstance(store, zarr.Group) else str(store)
    return re.sub(r"\?.*$", "", re.sub(r"//[^/@]*@", "//", text))


def from_store(work: Callable[[], Result], what: str) -> Result:
    """Return what `work` reads of a store, or writes to it as often as it takes; `what` cannot be done, if it can't.

    Raises
    ------
    DataUnavailable
        Where an object store stays away for longer than it is waited for.
    DataError
        Where it refuses. All else that `work` raises passes.
    """
    try:
        return patiently(work)
    except StoreError as error:
        kind = DataUnavailable if isinstance(error, StoreUnavailable) else DataError
        raise kind(f"{what}: {error}") from None


def open_to_read(
    location: Location, storage_options: dict[str, Any] | None = None, opener: Callable[..., Any] = zarr.open_group
) -> Any:
    """A Zarr group (or what `opener` opens), to read it; raises what Zarr raises, or as `from_store`.

    A table, which is no group, is refused with how to make one of it.
    """
    what = f"{shown(location)} cannot be read"
    if opener is zarr.open_group and isinstance(location, str | os.PathLike):
        place = os.fspath(location)
        if os.path.isfile(os.path.expanduser(place)) and not place.endswith(".zip"):
            raise DataError(
                f"{place} is a file, and a stored dataset is expected: 'dpdist ingest {place} DEST --features ...' "
                "makes one of a table, and asks for what is public about it (in Python, fit(X, y) takes rows too)"
            )
    try:
        return from_store(lambda: opener(**zarr_arguments(location, storage_options), mode="r"), what)
    except FileNotFoundError:
        if is_object_store(location):  # Zarr takes a bucket that is not there for an empty one
            from_store(lambda: Objects(str(location), storage_options).listed(most=1), what)
        raise

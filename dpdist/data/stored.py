"""Where a dataset is stored: reading and writing its Zarr group, and whether that is still the same dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr

from dpdist.data.dataset_schema import ATTRIBUTE, Schema
from dpdist.data.stores import Location, from_store, open_to_read, resolved, shown, zarr_arguments
from dpdist.errors import DataError, DataUnavailable


@dataclass(frozen=True)
class Stored:
    """Where a dataset is stored: a path, a URL, a zarr store or a zarr group, and the options that belong to it."""

    store: Location
    options: dict[str, Any] | None

    def read(self) -> zarr.Group:
        """Open the group as it is now, to read it; `DataError` where there is none."""
        try:
            if isinstance(self.store, zarr.Group):
                place = self.store.store_path
                return from_store(lambda: zarr.open_group(place, mode="r"), f"{shown(self.store)} cannot be read")
            return open_to_read(self.store, self.options)
        except DataError:
            raise
        except Exception as error:
            problem = type(error).__name__
        place = resolved(self.store)
        if isinstance(place, Path) and not place.exists():
            raise DataError(
                f"cannot open a Zarr group at {shown(self.store)}: there is nothing of that name. Check the path (from "
                "the current folder, if it is relative); 'dpdist ingest' makes a dataset of a table"
            )
        raise DataError(
            f"cannot open a Zarr group at {shown(self.store)} ({problem}); expected a group that holds the arrays, not "
            "a single array. Check the path, the permissions and the storage options."
        )

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Set one attribute of the group as it is now; raises whatever the store raises, once it was waited for."""

        def work() -> None:
            if isinstance(self.store, zarr.Group):
                group = zarr.open_group(self.store.store_path, mode="r+")
            else:
                group = zarr.open_group(**zarr_arguments(self.store, self.options), mode="r+")
            group.update_attributes({name: dict(value)})

        from_store(work, "nothing can be written to the store")


def row_arrays(found: Mapping[str, zarr.Array]) -> list[str]:
    """Drop scalars and dimension coordinates (named like their only dimension): they label axes, not rows."""
    names = []
    for name, array in sorted(found.items()):
        dimensions: Any = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
        if array.ndim > 0 and list(dimensions or ()) != [name]:
            names.append(name)
    return names


def keep_id(stored: Stored, schema: Schema, must: bool) -> Schema:
    """Write the id into a store without one, so that the next opening finds it; refuse if it ``must`` be but can't."""
    try:
        stored.write(ATTRIBUTE, schema.to_attributes())
        # Read again: of two processes that open the store for the first time, the last writer's id holds.
        written = stored.read().attrs.get(ATTRIBUTE)
    except DataUnavailable:
        raise
    except Exception as error:
        problem = str(error) if isinstance(error, DataError) else type(error).__name__
    else:
        return Schema.from_attributes(written, shown(stored.store))
    if not must:
        return schema
    raise DataError(
        f"the store {shown(stored.store)} has no dataset id and none can be written to it ({problem}). The privacy "
        "ledger needs a stable id: pass dataset_id=..., the same one every time, or open the dataset once with write "
        "access."
    )


def check_unchanged(known: Schema, schema: Schema, dataset_id: str | None, account: str | None, location: str) -> None:
    """Refuse arrays, an id or an account that are not those with which the dataset was made."""
    if dataset_id not in (None, known.id):
        raise DataError(
            f"the dataset at {location} already has the id {known.id!r}, not {dataset_id!r}; leave dataset_id out"
        )
    if account not in (None, known.pays_from):
        raise DataError(
            f"the dataset at {location} pays from the account {known.pays_from!r}, not {account!r}; leave account out: "
            "what was spent stays where it is"
        )
    changed = [name for name, spec in schema.arrays.items() if known.arrays.get(name, spec) != spec]
    if changed or known.n_rows != schema.n_rows:
        raise DataError(
            f"the arrays at {location} are not those the dataset id was given to (changed: {changed or 'row count'}). "
            "Restore them, or write the new rows to a new dataset with an id of its own."
        )

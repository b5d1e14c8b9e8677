"""`Dataset`: row-aligned named arrays with a public schema, read by row range."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.data.dataset_schema import ATTRIBUTE, ArraySpec, RowOrder, Schema, new_id
from dpdist.data.folds import Fold, split_slots
from dpdist.data.sources import (
    NumpySource,
    Source,
    ZarrSource,
    merge_boundaries,
    regular_boundaries,
    source_for,
    verify_rows,
    zarr_arrays,
)
from dpdist.data.stored import Stored, check_unchanged, keep_id, row_arrays
from dpdist.data.stores import Location, shown
from dpdist.data.units import OF_ONE_ROW, ROWS
from dpdist.data.writing import Compression, ForwardReader, write_group
from dpdist.errors import DataError, MissingBound
from dpdist.html import card, facts, records
from dpdist.privacy.budget import Neighbours


class Dataset:
    """Row-aligned arrays (2-d ``X``, 1-d ``y`` ...) cut into partitions of consecutive rows.

    Made by `Dataset.open` (Zarr, by whoever wrote it) or `Dataset.from_arrays` (NumPy and Dask). It holds readers and a
    public `Schema`, no values, and pickles as such; rows are read by range and only when asked for.

    Examples
    --------
    >>> import numpy as np
    >>> data = Dataset.from_arrays(X=np.zeros((10, 3)), y=np.arange(10), dataset_id="example", partition_rows=4)
    >>> data
    Dataset(id='example', n_rows=10, partitions=3, in memory)
      X: float64 (10, 3)
      y: int64 (10,)
    >>> data.partitions
    [(0, 4), (4, 8), (8, 10)]
    >>> data.read(4, 6)["y"]
    array([4, 5])
    >>> [(fold.start, fold.stop) for fold in data.split(2)]
    [(0, 5), (5, 10)]
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        schema: Schema,
        location: str,
        anonymous: bool = False,
        stored: Stored | None = None,
        stream: tuple[int, int] | None = None,
    ) -> None:
        self._sources = dict(sources)
        for source in self._sources.values():
            source.counted = schema.units.counted
        self._schema = schema
        self._location = location
        self._anonymous = anonymous
        self._stored = stored
        self._first, self._n_rows = stream or (0, schema.n_rows)

    @classmethod
    def open(
        cls,
        store: Location,
        *,
        arrays: Iterable[str] | None = None,
        dataset_id: str | None = None,
        account: str | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> Dataset:
        """Open a Zarr group (format 2 or 3, sharded or not, any codec that zarr knows).

        Parameters
        ----------
        store : path, URL, zarr store or zarr group
            URLs go to zarr (fsspec).
        arrays : iterable of str, optional
            Names of the arrays that belong together. By default those the dataset was written with, or else all
            arrays of the group except dimension coordinates and scalars.
        dataset_id : str, optional
            The stable public name of a dataset in a store without one; never a hash of the content. A store that dpdist
            did not write gets this id, or a random one, at its first opening. It is kept in the group attributes; a
            read-only store needs it given every time. Open it once before several processes share it.
        account : str, optional
            The account of such a dataset, kept beside its id: see `from_arrays`.
        storage_options : dict, optional
            Passed to zarr together with a URL.

        Raises
        ------
        DataError
            When the group cannot be opened, its arrays do not form a dataset, or no stable id can be had.
        """
        group = Stored(store, storage_options).read()
        found = zarr_arrays(group, shown(group))
        attributes = group.attrs.get(ATTRIBUTE)
        known = None if attributes is None else Schema.from_attributes(attributes, shown(group))
        names = list(arrays) if arrays is not None else list(known.arrays) if known else row_arrays(found)
        missing = [name for name in names if name not in found]
        if missing:
            raise DataError(f"no arrays {missing} in {shown(group)}; it holds {sorted(found)}")
        complete = known is not None and known.complete
        sources = {name: ZarrSource(name, found[name], complete) for name in names}
        specs = {name: source.spec for name, source in sources.items()}
        if known is None:
            schema = Schema(id=new_id() if dataset_id is None else dataset_id, arrays=specs, account=account)
            schema = keep_id(Stored(store, storage_options), schema, must=dataset_id is None)
        else:
            schema = replace(known, arrays=specs)
            check_unchanged(known, schema, dataset_id, account, shown(group))
        return cls(sources, schema, shown(group), stored=Stored(store, storage_options))

    @classmethod
    def from_arrays(
        cls,
        store: Location | None = None,
        *,
        partition_rows: int | None = None,
        dataset_id: str | None = None,
        account: str | None = None,
        unit: str = "row",
        max_rows_per_unit: int | None = None,
        grouped: bool = False,
        row_order: RowOrder = "unknown",
        missing: Iterable[str] = (),
        compression: Compression = "none",
        storage_options: dict[str, Any] | None = None,
        **arrays: Any,
    ) -> Dataset:
        """Make a dataset of NumPy or Dask arrays, in place or (``store`` given) written to a new Zarr v3 group.

        In place NumPy arrays are not copied and Dask arrays are computed when read. Writing goes partition by partition
        in constant memory; see `dpdist.data.writing.write_group` for the layout and the codecs.

        Parameters
        ----------
        store : path, URL, zarr store or empty zarr group, optional
        partition_rows : int, optional
            Rows per partition; by default about 16 MiB of the widest array, a multiple of 4096 (less if rows are wide).
        dataset_id : str, optional
            By default random, so the same arrays given twice are two datasets with a budget each: pass the id of
            the dataset to go on with its account, and with its runs.
        account : str, optional
            A name that all data about the same people share: copies that were ingested again, several tables, arrays
            of several sessions. What is learned from any of them is charged to this one account of the ledger. By
            default the dataset has an account of its own, called like its id.
        unit, max_rows_per_unit : str, int
            The privacy unit and how many rows it may own, which has to be said of anything but a row.
        grouped : bool
            Whether the rows come unit by unit, exactly ``max_rows_per_unit`` for each (`dpdist.data.units`).
            Otherwise the number of rows is private where a unit may own several, and only sums can be had, divided by
            a declared ``n_public``.
        row_order : {"arrival", "permuted", "unknown"}
            How the order of the rows came about; it must not depend on private values for `split` to be sound.
        missing : iterable of str
            Numbers of the columns of X, as text, in which NaN is an empty cell that is part of the record. Only
            estimators that are made for that take such a dataset; a row with an infinite entry is a null row there.
        compression : {"none", "zstd"}
            Of a written store.
        **arrays
            ``X=..., y=...``: 2-d real numbers; 1-d real numbers, booleans or strings.

        Raises
        ------
        MissingBound
            A unit without ``max_rows_per_unit``.
        DataError
            Arrays that do not form a dataset, or cannot be written.
        """
        sources = {name: source_for(name, array) for name, array in arrays.items()}
        schema = Schema(
            id=new_id() if dataset_id is None else dataset_id,
            arrays={name: source.spec for name, source in sources.items()},
            unit=unit,
            max_rows_per_unit=ROWS.max_rows if max_rows_per_unit is None else max_rows_per_unit,
            grouped=grouped,
            row_order=row_order,
            partition_rows=partition_rows,
            account=account,
            missing=tuple(missing),
        )
        if unknown := [column for column in missing if str(column) not in schema.missing]:
            raise DataError(
                f"missing={unknown!r}: there is no such column; arrays have no names of columns, so expected numbers "
                "from '0' on"
            )
        if max_rows_per_unit is None and unit not in OF_ONE_ROW:
            raise MissingBound(
                f"{unit!r} may own several rows: declare how many at most with max_rows_per_unit=, and do not read it "
                "off the data; max_rows_per_unit=1 says that each has one row"
            )
        if store is None:
            return cls(sources, schema, "in place", anonymous=dataset_id is None and account is None)
        readers = {name: ForwardReader(source) for name, source in sources.items()}
        group = write_group(
            store,
            schema,
            lambda start, stop: {name: reader.read(start, stop) for name, reader in readers.items()},
            compression=compression,
            storage_options=storage_options,
        )
        return cls.open(group)

    @property
    def id(self) -> str:
        """Random public id."""
        return self._schema.id

    @property
    def account(self) -> str:
        """The account of the ledger that pays: by default one of the same name as the id."""
        return self._schema.pays_from

    @property
    def schema(self) -> Schema:
        """All that is public about the dataset."""
        return self._schema

    @property
    def n_rows(self) -> int:
        """Number of rows; not for showing where they are not `dpdist.data.units.Units.counted`.

        Of a `stretch` that of the whole stream.
        """
        return self._n_rows

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        """Shape and dtype of each array."""
        return dict(self._schema.arrays)

    @property
    def in_memory(self) -> bool:
        """Whether all arrays are NumPy arrays of this process."""
        return all(isinstance(source, NumpySource) for source in self._sources.values())

    @property
    def remote(self) -> bool:
        """Whether an array is in a store that answers late, as object stores do: then more is read ahead."""
        return any(source.remote for source in self._sources.values())

    @property
    def anonymous(self) -> bool:
        """Whether id and account are random and kept nowhere: nobody can name them when the object is gone."""
        return self._anonymous

    @property
    def nbytes(self) -> int:
        """Decoded size of all arrays."""
        return self._schema.n_rows * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return sum(spec.row_bytes for spec in self._schema.arrays.values())

    @property
    def partitions(self) -> list[tuple[int, int]]:
        """Row ranges ``(start, stop)`` to read at a time, in order.

        They are those the dataset was made with; in stores of others the chunks or shards of the widest array, where
        tiny neighbours are joined to about 16 MiB and shards above 128 MiB are cut at their inner chunks.
        """
        if self._schema.partition_rows is not None:
            edges = regular_boundaries(self._schema.n_rows, self._schema.partition_rows)
            found = list(itertools.pairwise(edges))
        else:
            widest = max(self._sources.values(), key=lambda source: source.spec.row_bytes)
            found = merge_boundaries(widest.boundaries(), widest.spec.row_bytes)
        return [(self._first + start, self._first + stop) for start, stop in found]

    @property
    def partition_bytes(self) -> int:
        """Decoded size of the largest partition, all arrays together."""
        return self._row_bytes * max(stop - start for start, stop in self.partitions)

    @property
    def location(self) -> str:
        """Where it is stored, without user names and keys; ``"in place"`` for arrays."""
        return self._location

    def note(self, name: str, public: Mapping[str, Any]) -> bool:
        """Keep a public note in the store, beside the schema; False where the store cannot be written, or is none."""
        try:
            if self._stored is None:
                return False
            self._stored.write(name, public)
        except Exception:
            return False
        return True

    def noted(self, name: str) -> Any:
        """Return the note of that name as it is stored now, None if there is none."""
        return None if self._stored is None else self._stored.read().attrs.get(name)

    def source(self, name: str) -> Source:
        """Return the picklable reader of one array."""
        if name not in self._sources:
            raise DataError(f"no array {name!r}; this dataset has {sorted(self._sources)}")
        return self._sources[name]

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Rows ``start:stop`` of every array."""
        return {name: source.read(start, stop) for name, source in self._sources.items()}

    def select(self, **names: str) -> Dataset:
        """View with the arrays renamed, ``select(X="features", y="label")``: the same rows, id and account."""
        sources = {new: self.source(old) for new, old in names.items()}
        stream = self._first, self._n_rows
        return Dataset(sources, self._schema.select(names), self._location, self._anonymous, self._stored, stream)

    def stretch(self, first: int, n_rows: int) -> Dataset:
        """View of these rows as those from number ``first`` on of a stream of ``n_rows``: no others can be read.

        Examples
        --------
        >>> import numpy as np
        >>> piece = Dataset.from_arrays(X=np.arange(6.0).reshape(3, 2), dataset_id="clicks").stretch(10, 100)
        >>> piece.n_rows, piece.partitions, piece.read(11, 12)["X"].tolist()
        (100, [(10, 13)], [[2.0, 3.0]])
        """
        sources = {name: copy.copy(source) for name, source in self._sources.items()}
        for source in sources.values():
            source.first = first
        return Dataset(sources, self._schema, self._location, self._anonymous, self._stored, (first, n_rows))

    def need(self, start: int, stop: int) -> None:
        """Refuse to go on without rows that are asked: of a stream, of which this is a `stretch`."""
        first, last = self._first, self._first + self._schema.n_rows
        if not first <= start < stop <= last:
            raise DataError(
                f"the next release reads the rows {start} to {stop} of the stream, and those from {first} to {last} "
                f"are here: pass the rows from number {start} on, with first={start}. Nothing was charged for that"
            )

    def split(self, n_folds: int, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> list[Fold]:
        """Cut the row positions into ``n_folds`` disjoint ranges for parallel composition; see `Fold`.

        Raises
        ------
        BudgetError
            For `Neighbours.ADD_OR_REMOVE_ONE`, under which positions shift, and where a unit's rows may stand anywhere.
        """
        self._schema.units.need_counted("folds are ranges of rows")
        return split_slots(self.n_rows, n_folds, neighbours, self._schema.max_rows_per_unit)

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Read every stored chunk of the arrays (all, or ``names``) once; `DataError` names the first bad one."""
        for name in self._sources if names is None else names:
            verify_rows(self.source(name), 0, self.n_rows)

    def __repr__(self) -> str:
        where = "in memory" if self.in_memory else self._location
        size = f"{self.n_rows}, partitions={len(self.partitions)}" if self._schema.units.counted else "private"
        account = "" if self.account == self.id else f", account={self.account!r}"
        lines = [f"Dataset(id={self.id!r}{account}, n_rows={size}, {where})"]
        for name, spec in self._schema.arrays.items():
            rows, *rest = self._schema.shown_shape(name)
            lines.append(f"  {name}: {spec.dtype} ({', '.join(map(str, [rows, *rest]))}{'' if rest else ','})")
        if self._schema.missing:
            lines.append(f"  empty cells are values in: {', '.join(self._schema.missing)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        schema = self._schema
        public = [
            ("rows", self.n_rows if schema.units.counted else "private"),
            ("account", self.account),
            ("privacy unit", str(schema.units)),
            ("row order", schema.row_order),
            ("partitions", len(self.partitions) if schema.units.counted else "private"),
            ("stored", "in memory" if self.in_memory else self._location),
            *([("empty cells are values in", ", ".join(schema.missing))] if schema.missing else []),
        ]
        arrays = [
            {
                "array": name,
                "dtype": spec.dtype,
                "shape": " x ".join(map(str, schema.shown_shape(name))),
                "columns": ", ".join(schema.columns.get(name, ())) or None,
            }
            for name, spec in schema.arrays.items()
        ]
        return card(f"Dataset {self.id}", facts(public, "Public description"), records(arrays, "Arrays"))

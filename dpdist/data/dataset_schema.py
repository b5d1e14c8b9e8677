"""The public description of a dataset: names, shapes, dtypes, the privacy unit, the row order and a random id.

Everything in a `Schema` is public under replace-one; nothing in it is computed from a value. It is stored as the group
attribute ``"dpdist"`` of the Zarr group that holds the arrays. The one exception is the number of rows where units may
own several of them and the rows do not come unit by unit (`dpdist.data.units`): it tells how many rows somebody has, so
nothing shows it and nothing is computed with it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np

from dpdist.data.encoding import Encoding
from dpdist.data.units import Units
from dpdist.errors import DataError
from dpdist.privacy.budget import check_account

ATTRIBUTE = "dpdist"
VERSION = 1
RowOrder = Literal["arrival", "permuted", "unknown"]
_STRING_ROW_BYTES = 16


@dataclass(frozen=True)
class ArraySpec:
    """Name-free description of one array: ``dtype`` (``"float64"``, ``"int8"``, ``"str"`` ...) and ``shape``.

    Examples
    --------
    >>> ArraySpec.of("X", np.dtype(">f4"), (1000, 50))
    ArraySpec(dtype='float32', shape=(1000, 50))
    """

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArraySpec:
        """Describe an array, or raise the one `DataError` that says why its rows cannot be used."""
        shape = tuple(int(length) for length in shape)
        if len(shape) not in (1, 2):
            raise DataError(
                f"array {name!r} has {len(shape)} dimensions; expected 1 (one value per row) or 2 (rows x features). "
                "Reshape it so that every row is one record."
            )
        if 0 in shape:
            raise DataError(
                f"array {name!r} has shape {shape}; expected at least one row and one column. Check the selection "
                "that produced it."
            )
        if dtype.kind == "c":
            raise DataError(
                f"array {name!r} has the complex dtype {dtype}; expected real numbers. Store the real and the "
                "imaginary parts as separate columns."
            )
        if dtype.kind in "UT" and len(shape) == 1:
            return cls("str", shape)
        if dtype.kind in "fiub" and dtype.itemsize <= 8:
            return cls(dtype.newbyteorder("=").name, shape)
        allowed = "real numbers of at most 8 bytes" + (", booleans or strings" if len(shape) == 1 else " or booleans")
        raise DataError(
            f"array {name!r} has dtype {shown_dtype(dtype)}; expected {allowed}. Convert it first, for example with "
            f".astype({'str' if len(shape) == 1 else 'float'})."
        )

    @property
    def n_rows(self) -> int:
        """Length of axis 0."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one decoded row (strings count as 16 bytes)."""
        itemsize = _STRING_ROW_BYTES if self.dtype == "str" else np.dtype(self.dtype).itemsize
        return itemsize * math.prod(self.shape[1:])

    def accepts(self, block: np.ndarray, n_rows: int) -> bool:
        """Whether a block that was read has the promised dtype and the shape of ``n_rows`` rows."""
        kind_fits = block.dtype.kind in "UT" if self.dtype == "str" else block.dtype == np.dtype(self.dtype)
        return bool(kind_fits and block.shape == (n_rows, *self.shape[1:]))


@dataclass(frozen=True)
class Schema:
    """What everybody may know about a dataset.

    Parameters
    ----------
    id : str
        Random, given once. Never a hash of the content: a content hash tells a dataset from its neighbour with
        certainty, so it could not be public.
    arrays : mapping of str to ArraySpec
        All with the same number of rows.
    unit : str
        What one privacy unit is: ``"row"``, or the name of the owner ("patient", "household") of several rows.
    max_rows_per_unit : int
        Public bound on the rows of one unit.
    grouped : bool
        Whether the rows come unit by unit, ``max_rows_per_unit`` for each; see `dpdist.data.units`.
    row_order : {"arrival", "permuted", "unknown"}
        How the stored order came about. Positional folds need an order that does not depend on private values.
    complete : bool
        Every chunk file exists (also all-zero ones), so a missing one is corruption and not a fill value.
    partition_rows : int or None
        Rows of a partition, fixed at ingestion; None where the partitions follow from how the arrays are stored.
    columns : mapping of str to tuple of str
        Public names of the columns of an array (one name for a 1-d array); empty where nobody named them.
    edition : str or None
        Random, drawn by our writers whenever rows are written: under one id, other rows have another edition. A copy
        of a store has its edition. None for rows of others, rows in memory, and stores of earlier releases.
    account : str, optional
        Who pays for what is learned from the dataset: an account of the privacy ledger that all data about the same
        people share. By default one of its own, called like its id.
    missing : tuple of str
        Columns in which an empty cell (NaN) is part of a record and not a fault; where nobody named columns, their
        numbers. A row of such a dataset that is null has an infinite cell.
    encoding : Encoding, optional
        How the columns of a table became those of ``X`` and ``y``, where `dpdist.data.ingestion` wrote them.
    """

    id: str
    arrays: Mapping[str, ArraySpec]
    unit: str = "row"
    max_rows_per_unit: int = 1
    grouped: bool = False
    row_order: RowOrder = "unknown"
    complete: bool = False
    partition_rows: int | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    edition: str | None = None
    account: str | None = None
    missing: tuple[str, ...] = ()
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        if not self.arrays:
            raise DataError("a dataset needs at least one array; pass for example X=... and y=...")
        # Views and openings with some of the arrays keep the names of those.
        named = {name: tuple(self.columns[name]) for name in self.arrays if name in self.columns}
        object.__setattr__(self, "columns", named)
        for name, names in named.items():
            width = math.prod(self.arrays[name].shape[1:])
            if len(names) != width or not all(isinstance(column, str) for column in names):
                raise DataError(f"array {name!r} has {width} columns; expected as many column names (strings)")
        there = {column for name in self.arrays for column in self.column_names(name)}
        object.__setattr__(self, "missing", tuple(str(column) for column in self.missing if str(column) in there))
        lengths = {name: spec.n_rows for name, spec in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise DataError(
                f"the arrays have different numbers of rows ({listed}); expected one entry per row in each. "
                "Align them, or open only those that belong together with arrays=[...]."
            )
        if not (isinstance(self.id, str) and self.id and self.id.isprintable()):
            raise DataError("the dataset id must be a non-empty printable string; leave it out to get a random one")
        if self.account is not None:
            check_account(self.account)
        if not (isinstance(self.unit, str) and self.unit):
            raise DataError('unit must name the privacy unit, for example "row" or "patient"')
        whole = isinstance(self.max_rows_per_unit, int) and not isinstance(self.max_rows_per_unit, bool)
        if not (whole and self.max_rows_per_unit >= 1):
            raise DataError(f"max_rows_per_unit must be an integer >= 1, got {self.max_rows_per_unit!r}")
        if not isinstance(self.grouped, bool):
            raise DataError(f"grouped must be True or False, got {self.grouped!r}")
        if self.grouped and self.n_rows % self.max_rows_per_unit:
            raise DataError(
                f"there are {self.n_rows} rows; grouped=True says that they come unit by unit, "
                f"{self.max_rows_per_unit} for each, so expected a multiple of it. Fill up units that own fewer rows "
                "with copies of them or with null rows (NaN)"
            )
        if self.partition_rows is not None and not (isinstance(self.partition_rows, int) and self.partition_rows >= 1):
            raise DataError(f"partition_rows must be an integer >= 1, got {self.partition_rows!r}")
        if not (self.edition is None or (isinstance(self.edition, str) and self.edition)):
            raise DataError(f"the edition of a dataset must be a non-empty string or missing, got {self.edition!r}")
        if self.row_order not in get_args(RowOrder):
            raise DataError(f"row_order must be one of {get_args(RowOrder)}, got {self.row_order!r}")

    @property
    def pays_from(self) -> str:
        """The name of the account."""
        return self.id if self.account is None else self.account

    @property
    def n_rows(self) -> int:
        """Number of rows: public under replace-one, but see `dpdist.data.units.Units.counted`."""
        return next(iter(self.arrays.values())).n_rows

    @property
    def units(self) -> Units:
        """The privacy unit, how many rows it may own and where these stand."""
        return Units(self.unit, self.max_rows_per_unit, self.grouped)

    def column_names(self, array: str) -> tuple[str, ...]:
        """Of an array; of a matrix whose columns have no names their numbers, of a column without one nothing."""
        if array in self.columns:
            return self.columns[array]
        shape = self.arrays[array].shape
        return tuple(map(str, range(shape[1]))) if len(shape) == 2 else ()

    def shown_shape(self, name: str) -> tuple[int | str, ...]:
        """Shape of an array, with a word in place of a number of rows that is private."""
        rows, *rest = self.arrays[name].shape
        return (rows if self.units.counted else "private", *rest)

    def select(self, names: Mapping[str, str]) -> Schema:
        """Schema of a view whose arrays are called ``new`` for each ``{new: old}``."""
        return replace(
            self,
            arrays={new: self.arrays[old] for new, old in names.items()},
            columns={new: self.columns[old] for new, old in names.items() if old in self.columns},
            encoding=self.encoding if names.get("X") == "X" and names.get("y", "y") == "y" else None,
        )

    def to_attributes(self) -> dict[str, Any]:
        """Plain JSON for the group attributes."""
        return {
            "version": VERSION,
            "id": self.id,
            "unit": self.unit,
            "max_rows_per_unit": self.max_rows_per_unit,
            "grouped": self.grouped,
            "n_rows": self.n_rows,
            "row_order": self.row_order,
            "complete": self.complete,
            "partition_rows": self.partition_rows,
            "arrays": {name: {"dtype": spec.dtype, "shape": list(spec.shape)} for name, spec in self.arrays.items()},
            "columns": {name: list(names) for name, names in self.columns.items()},
            "edition": self.edition,
            "account": self.account,
            **({"missing": list(self.missing)} if self.missing else {}),
            "encoding": None if self.encoding is None else self.encoding.to_attributes(),
        }

    @classmethod
    def from_attributes(cls, attributes: object, location: str) -> Schema:
        """Read back what `to_attributes` wrote; `DataError` if it is unfinished, newer or damaged."""
        stored = cast("dict[str, Any]", attributes) if isinstance(attributes, dict) else {}
        if stored.get("unfinished"):
            raise DataError(
                f"the dataset at {location} was never finished: the process that wrote it stopped early. "
                "Run the same ingestion again to continue it; anything else: delete it and write it again."
            )
        if stored.get("version") != VERSION:
            raise DataError(
                f"the {ATTRIBUTE!r} attribute at {location} has version {stored.get('version')!r}; this release of "
                f"dpdist reads version {VERSION}. Upgrade dpdist, or restore the attribute."
            )
        try:
            arrays = {
                str(name): ArraySpec(str(spec["dtype"]), tuple(map(int, spec["shape"])))
                for name, spec in stored["arrays"].items()
            }
            return cls(
                id=stored["id"],
                arrays=arrays,
                unit=stored["unit"],
                max_rows_per_unit=stored["max_rows_per_unit"],
                grouped=bool(stored.get("grouped", False)),
                row_order=stored["row_order"],
                complete=bool(stored["complete"]),
                partition_rows=stored["partition_rows"],
                columns={str(name): tuple(names) for name, names in stored.get("columns", {}).items()},
                edition=stored.get("edition"),
                account=stored.get("account"),
                missing=tuple(stored.get("missing", ())),
                encoding=Encoding.from_attributes(stored["encoding"]) if stored.get("encoding") else None,
            )
        except (KeyError, TypeError, AttributeError) as error:
            problem = type(error).__name__
        raise DataError(
            f"the {ATTRIBUTE!r} attribute at {location} is damaged ({problem}); expected the fields that dpdist "
            "writes. Restore it from a copy: the privacy ledger needs the id in it."
        )


def shown_dtype(dtype: np.dtype[Any]) -> str:
    """A dtype for messages: without the width of strings, which tells how long the longest one is.

    >>> shown_dtype(np.array(["no", "undecided"]).dtype)
    'str'
    """
    return {"U": "str", "T": "str", "S": "bytes"}.get(dtype.kind, str(dtype))


def new_id() -> str:
    """Return a random id of a dataset or of an edition (122 random bits, from the operating system)."""
    return uuid.uuid4().hex

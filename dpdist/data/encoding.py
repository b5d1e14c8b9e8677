"""How the columns of a table became those of ``X`` and ``y``: public decisions that travel with dataset, run and model.

An ingestion maps a number linearly to [-1, 1], and a category to one column of 0 and 1 per level. Whoever has a fitted
model has a table again, in dollars and years: the same decisions turn its rows into those of ``X``, and coefficients
and predictions back into the units of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.data.ingestion_spec import KEEP, IngestionSpec, Layout, listed
from dpdist.data.rows import Rows, as_kind, table_rows
from dpdist.errors import DataError

_SHOWN_ROWS = 5


@dataclass(frozen=True)
class Encoding:
    """What an ingestion declared of the columns that it used.

    Parameters
    ----------
    spec : IngestionSpec
        With every feature by its name, in the order of ``X``.

    Examples
    --------
    >>> spec = IngestionSpec(features=("age", "town"), levels={"town": ("A", "B")}, ranges={"age": (0.0, 100.0)})
    >>> known = Encoding(spec)
    >>> known.names
    ('age', 'town=A', 'town=B')
    >>> known.encode(pa.table({"town": ["B", "A"], "age": [25, 50]}))
    array([[-0.5,  0. ,  1. ],
           [ 0. ,  1. ,  0. ]])
    >>> known.described()["age"]
    'from 0 to 100, as -1 to 1'
    """

    spec: IngestionSpec

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """What a layout says of features and label; owners and bad rows are no matter of a model."""
        return cls(replace(layout.spec, features=layout.columns, unit=None, max_rows=None, on_bad="stop"))

    @classmethod
    def from_attributes(cls, stored: Mapping[str, Any]) -> Self:
        """Read back what `to_attributes` wrote."""
        return cls(IngestionSpec.from_attributes(stored))

    def to_attributes(self) -> dict[str, Any]:
        """Plain JSON."""
        return self.spec.to_attributes()

    @cached_property
    def layout(self) -> Layout:
        """The columns that are read, and what becomes of them."""
        others = () if self.spec.label is None else (self.spec.label,)
        return self.spec.layout((*self.spec.features, *others), "the table")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of ``X``."""
        return self.layout.names

    @property
    def label(self) -> str | None:
        """Name of the column that became ``y``."""
        return self.spec.label

    def encode(self, table: Any) -> NDArray[Any]:
        """Rows of ``X``, of a table (pandas, polars, Arrow) with at least the columns that were used.

        Raises
        ------
        DataError
            For columns that are missing, and for rows that have a value which ingestion would call bad. It names
            columns and rows, not values. Unlike ``fit``, this is no private computation: whoever asks has the rows.
        """
        rows = self.encoded(table)
        if (bad := rows.bad) is not None:
            places = ", ".join(map(str, np.flatnonzero(bad)[:_SHOWN_ROWS]))
            raise DataError(
                f"{int(bad.sum()):,} rows cannot be made into rows of X (of the positions {places}, ...): "
                f"{'; '.join(sorted(rows.tally()))}. Leave them out, repair them, or ingest with --missing, which says "
                "what empty cells stand for"
            )
        return rows.X

    def encoded(self, table: Any) -> Rows:
        """Rows of ``X``, and which of them are bad and why."""
        features = replace(self.layout, label=None)
        columns = _columns(table, list(features.kinds))
        typed = {name: _typed(columns[name], kind, name) for name, kind in features.kinds.items()}
        return table_rows(pa.table(typed), features, [])

    @cached_property
    def to_original(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For every column of ``X``, a and b with ``x = a v + b``, v in the units of the table."""
        scale, shift = np.ones(len(self.names)), np.zeros(len(self.names))
        for name, column in self.layout.numbers:
            if name in self.spec.ranges:
                scale[column], shift[column] = _scale(self.spec.ranges[name])
        return scale, shift

    @property
    def label_scale(self) -> tuple[float, float]:
        """A and b with ``y = a t + b``, t the label in the units of the table."""
        if self.label is not None and self.label in self.spec.ranges:
            return _scale(self.spec.ranges[self.label])
        return 1.0, 0.0

    def label_in_units(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels, or predictions of them, in the units of the table."""
        scale, shift = self.label_scale
        return (y - shift) / scale if (scale, shift) != (1.0, 0.0) else y

    def described(self) -> dict[str, str]:
        """In words, for every column of the table that has a declaration."""
        found = {}
        for name in (*self.spec.features, *([] if self.label is None else [self.label])):
            levels = self.spec.label_levels if name == self.label else self.spec.levels.get(name, ())
            words = []
            if name in self.spec.ranges:
                low, high = self.spec.ranges[name]
                words.append(f"from {low:g} to {high:g}, as -1 to 1")
            if levels:
                words.append(f"{len(levels)} levels: {', '.join(levels)}")
                if name in self.spec.reference:
                    words.append(f"against {self.spec.reference[name]}, which has no column")
            if name in self.spec.missing:
                stands_for = self.spec.missing[name]
                own = name in self.layout.indicators
                rest = "stay empty" if stands_for == KEEP else f"count as {stands_for}"
                words.append(f"empty cells {'have a column of their own' if own else rest}")
            if words:
                found[name] = "; ".join(words)
        return found


def _scale(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    return 2.0 / (high - low), -2.0 * low / (high - low) - 1.0


def _columns(table: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if hasattr(table, "to_arrow"):  # polars
        table = table.to_arrow()
    available = [str(name) for name in (table.column_names if isinstance(table, pa.Table) else table.columns)]
    missing = [name for name in names if name not in available]
    if missing:
        raise DataError(
            f"the table has no column {', '.join(map(repr, missing))}, which the model reads; expected "
            f"{listed(names)}, got {listed(available)}"
        )
    if isinstance(table, pa.Table):
        return {name: table.column(name) for name in names}
    return {name: table[name] for name in names}


def _typed(column: Any, kind: str, name: str) -> Any:
    try:
        found = column if isinstance(column, pa.ChunkedArray) else pa.Array.from_pandas(column)
        return as_kind(found, kind)
    except (pa.ArrowException, TypeError, ValueError):
        pass
    raise DataError(f"column {name!r} cannot be read as {'numbers' if kind == 'number' else 'texts'}: convert it first")

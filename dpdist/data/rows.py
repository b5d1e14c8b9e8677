"""From columns of a source to rows of ``X`` and ``y``, and which of them are bad and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from dpdist.data.ingestion_spec import Layout

Mask = NDArray[np.bool_]
Problem = tuple[Mask, str]
_UNKNOWN, _ABSENT = -1, -2
"""In place of the number of a level: none that was declared; an empty cell, which a column of its own tells."""
EMPTY = pacsv.ConvertOptions().null_values
"""Texts that stand for an empty cell: of numbers, and of categories that have no such level."""
_PIECE = 8192
"""Rows that are interleaved at a time: a piece of X stays in the cache while its columns are filled one by one."""


@dataclass
class Rows:
    """Rows on their way into the store.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,), or None
    unit : pyarrow array of str, or None
        Null where it is missing.
    problems : list of (mask, text)
        Which rows are bad and why; of several reasons the first counts. The texts name columns, never values.
    """

    X: NDArray[Any]
    y: NDArray[Any] | None
    unit: pa.Array | None
    problems: list[Problem] = field(default_factory=list)
    null: float = np.nan
    """What the entries of a null row are: infinite where NaN is a missing cell."""

    @property
    def bad(self) -> Mask | None:
        """Rows with a problem; None if there are none."""
        return np.logical_or.reduce([mask for mask, _ in self.problems]) if self.problems else None

    def blame(self, row: int) -> str:
        """Why a bad row is bad."""
        return next(text for mask, text in self.problems if mask[row])

    def tally(self) -> Counter[str]:
        """How many rows are bad for which reason."""
        counts: Counter[str] = Counter()
        seen = np.zeros(len(self.X), bool)
        for mask, text in self.problems:
            counts[text] += int(np.count_nonzero(mask & ~seen))
            seen |= mask
        return +counts

    def make_null(self, rows: Mask) -> None:
        """Turn rows into null rows, which the kernels count as contributing zero.

        A NaN in X or a NaN label makes a row null; the empty text is in no list of classes.
        """
        self.X[rows] = self.null
        if self.y is not None:
            self.y = np.array(self.y)  # the column of a table may be read-only
            self.y[rows] = "" if self.y.dtype.kind == "O" else np.nan

    def _add(self, mask: Mask, text: str) -> None:
        if mask.any():
            self.problems.append((mask, text))


def table_rows(table: pa.Table, layout: Layout, problems: list[Problem]) -> Rows:
    """Rows of a table whose columns are float64 or strings (null: missing, or a problem that is already known)."""
    rows = Rows(
        np.empty((table.num_rows, layout.width), layout.spec.dtype), None, None, list(problems), null_of(layout)
    )
    start = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in table.select([name for name, _ in layout.numbers]).to_batches(max_chunksize=_PIECE):
            out = rows.X[start : start + piece.num_rows]
            for (name, column), values in zip(layout.numbers, piece.columns, strict=True):
                found, instead = values.to_numpy(zero_copy_only=False), layout.filled(name)
                if instead is not None:
                    gone = np.isnan(found)
                    found = np.where(gone, instead, found)
                    if name in layout.indicators:
                        out[:, layout.indicators[name]] = gone
                out[:, column] = _scaled(found, name, layout)
            start += piece.num_rows
    for name, first, levels in layout.categories:
        codes = _codes(table.column(name), levels)
        width = len(levels) - (name in layout.spec.reference)
        rows.X[:, first : first + width] = 0.0
        if (stands_for := layout.spec.missing.get(name)) is not None:
            gone = _empty(table.column(name)) & (codes < 0)
            if name in layout.indicators:
                rows.X[:, layout.indicators[name]] = gone
            codes[gone] = _ABSENT if name in layout.indicators else levels.index(stands_for)
        known = np.flatnonzero((codes >= 0) & (codes < width))
        rows.X[known, first + codes[known]] = 1.0
        _check_levels(rows, table.column(name), codes, name)
    if layout.label is not None:
        values = table.column(layout.label)
        if layout.text_label:
            rows.y = values.to_numpy(zero_copy_only=False)
            if layout.spec.label_levels:
                _check_levels(rows, values, _codes(values, layout.spec.label_levels), layout.label)
            else:
                rows._add(_missing(values), f"{layout.label} is missing")
        else:
            rows.y = _scaled(values.to_numpy(), layout.label, layout)
    for name in layout.kinds:
        if layout.kinds[name] == "number" and table.column(name).null_count and name not in layout.spec.missing:
            rows._add(_mask(pc.is_null(table.column(name))), f"{name} is missing")
    if layout.spec.unit is not None:
        rows.unit, absent = _units(table.column(layout.spec.unit).combine_chunks())
        rows._add(absent, f"{layout.spec.unit} is missing")
    _check_finite(rows, layout)
    return rows


def array_rows(arrays: Mapping[str, NDArray[Any]], layout: Layout) -> Rows:
    """Rows of arrays ``X``, ``y`` and ``unit`` (the latter two where there are any)."""
    with np.errstate(over="ignore", invalid="ignore"):
        X = arrays["X"]
        if layout.spec.ranges:
            X = X.astype(np.float64)
            for name, column in layout.numbers:
                X[:, column] = _scaled(X[:, column], name, layout)
        rows = Rows(np.array(X, layout.spec.dtype, order="C"), None, None, null=null_of(layout))
    if "y" in arrays and layout.label is not None:
        y = arrays["y"]
        if layout.text_label:
            values = pa.chunked_array([pa.array(y.astype(object), pa.string())])
            rows.y = values.to_numpy(zero_copy_only=False)
            if layout.spec.label_levels:
                _check_levels(rows, values, _codes(values, layout.spec.label_levels), layout.label)
            else:
                rows._add(_missing(values), f"{layout.label} is missing")
        else:
            rows.y = _scaled(y.astype(np.float64), layout.label, layout)
    if "unit" in arrays and layout.spec.unit is not None:
        unit = arrays["unit"]
        values = pa.array(unit.astype(object) if unit.dtype.kind in "UT" else unit, from_pandas=True)
        rows.unit, absent = _units(values.cast(pa.string()))
        rows._add(absent, f"{layout.spec.unit} is missing")
    _check_finite(rows, layout)
    return rows


def null_of(layout: Layout) -> float:
    """What the entries of a null row are."""
    return np.inf if layout.kept else np.nan


def as_kind(column: Any, kind: str) -> Any:
    """An Arrow column as float64 ("number") or as strings ("text"), of which a NaN is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind == "text" and pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column.cast(pa.float64() if kind == "number" else pa.string(), safe=False)


def _scaled(values: NDArray[Any], name: str, layout: Layout) -> NDArray[Any]:
    """``2 (v - lo) / (hi - lo) - 1``, which is exactly -1 and 1 at the bounds; what is infinite stays so, and bad."""
    if name not in layout.spec.ranges:
        return values
    low, high = layout.spec.ranges[name]
    scaled = 2.0 * (values - low) / (high - low) - 1.0
    return np.where(np.isfinite(values), np.clip(scaled, -1.0, 1.0), scaled) if layout.spec.clip else scaled


def _codes(values: pa.ChunkedArray, levels: tuple[str, ...]) -> NDArray[np.int64]:
    found = pc.index_in(values, value_set=pa.array(levels, pa.string()))
    return np.array(pc.fill_null(found, _UNKNOWN).to_numpy(), dtype=np.int64)


def _check_levels(rows: Rows, values: pa.ChunkedArray, codes: NDArray[np.int64], name: str) -> None:
    unknown = codes == _UNKNOWN
    if unknown.any():
        rows._add(_empty(values) & unknown, f"{name} is missing")
        rows._add(unknown, f"{name} is not one of the declared levels")


def _empty(values: pa.ChunkedArray) -> Mask:
    """Null, or a text that stands for it."""
    return _mask(pc.or_kleene(pc.is_null(values), pc.is_in(values, value_set=pa.array(EMPTY, pa.string()))))


def _missing(values: pa.ChunkedArray | pa.Array) -> Mask:
    """Null or empty text; an owner, or a label without declared levels, may be called NA."""
    return _mask(pc.fill_null(pc.equal(values, ""), True))


def _units(values: pa.Array) -> tuple[pa.Array, Mask]:
    absent = _missing(values)
    return (pc.if_else(pa.array(absent), pa.scalar(None, pa.string()), values) if absent.any() else values), absent


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)


def _check_finite(rows: Rows, layout: Layout) -> None:
    """Find NaN and infinite values; the sum of a block is finite only if all of it is, and costs one fast pass."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(rows.X.sum()):
            for name, column in layout.numbers:
                values = rows.X[:, column]
                wrong = np.isinf(values) if name in layout.kept else ~np.isfinite(values)
                rows._add(wrong, f"{name} is not a finite {layout.spec.dtype} number")
        if rows.y is not None and rows.y.dtype.kind == "f" and not np.isfinite(rows.y.sum()):
            rows._add(~np.isfinite(rows.y), f"{layout.label} is not a finite number")

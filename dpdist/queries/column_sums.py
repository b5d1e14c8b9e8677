"""Sums over a few columns of the rows, which an earlier release chose: public numbers of columns, any rows.

Each row is reduced to its entries in those columns by itself, and what is asked of the reduced rows is bounded for any
of them: the sensitivities are those of the queries that they inherit from. A row that is not finite in all of its
columns counts nowhere, as in sums over whole rows. No columns at all are a column of zeros, so that what is left is the
constant feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.grid import add_units, fits_int64
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import HessianSum
from dpdist.queries.scaled_rows import NormCounts, ScaledGradientSum, ScaledMomentSum, pieces


class _OfColumns(Query):
    """Before a query of rows: reduces a few rows at a time, and adds up what is asked of them; exactly."""

    columns: tuple[int, ...]

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        wide = not fits_int64(len(block["X"]), self.row_units)
        total: NDArray[Any] | None = None
        for X, y in pieces(block, rows):
            part = np.array(X[:, list(self.columns)] if self.columns else np.zeros((len(X), 1)), dtype=np.float64)
            part[~np.isfinite(X).all(axis=1)] = np.nan
            total = add_units(total, super().summarise({"X": part, "y": y}, state, None), wide)  # type: ignore[safe-super]
        assert total is not None
        return total


@dataclass(frozen=True)
class ColumnNormCounts(_OfColumns, NormCounts):
    """`NormCounts` of rows reduced to ``columns``."""

    tag: ClassVar[str] = "ColumnNormCounts"

    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnMomentSum(_OfColumns, ScaledMomentSum):
    """`ScaledMomentSum` of rows reduced to ``columns``; ``n_features`` counts these and the constant feature."""

    tag: ClassVar[str] = "ColumnMomentSum"

    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnGradientSum(_OfColumns, ScaledGradientSum):
    """`ScaledGradientSum` of rows reduced to ``columns``."""

    tag: ClassVar[str] = "ColumnGradientSum"

    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnHessianSum(_OfColumns, HessianSum):
    """`HessianSum` of rows reduced to ``columns``, for labels of two classes."""

    tag: ClassVar[str] = "ColumnHessianSum"

    columns: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnClassGradientSum(_OfColumns, GradientSum):
    """`GradientSum` of rows reduced to ``columns``, for labels of two classes, which are not scaled."""

    tag: ClassVar[str] = "ColumnClassGradientSum"

    columns: tuple[int, ...] = ()

"""Sums over rows that are scaled down as a whole: features, constant feature and label by one factor.

For a row ``z = (x, constant)`` longer than ``row_norm`` the factor is ``k = row_norm / |z|``, else 1. The relation
``y = <z, w>`` holds for ``(k z, k y)`` as it does for ``(z, y)``, so that no coordinate is distorted. Each row is
mapped by itself, and what is asked of the scaled ones is bounded for any rows: the sensitivities are those of
`dpdist.queries.gradient_sums.GradientSum` and `dpdist.queries.moment_sums.SecondMomentSum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.clip import check_bound, row_norms
from dpdist.kernels.grid import add_units, fits_int64
from dpdist.privacy.budget import Neighbours
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import ROOT2, SecondMomentSum

PIECE = 2**12
"""Rows that are copied at a time."""


class _OfScaledRows(Query):
    """Before a query of bounded rows: scales a few rows at a time, and adds up what is asked of them; exactly."""

    row_norm: float
    constant: float

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        wide = not fits_int64(len(block["X"]), self.row_units)
        total: NDArray[Any] | None = None
        for X, y in pieces(block, rows):
            if self.constant:
                X = np.column_stack([X, np.full(len(X), self.constant)])
            X, y = bounded_rows(X, y, row_norm=self.row_norm, scale_labels=True)
            total = add_units(total, super().summarise({"X": X, "y": y}, state, None), wide)  # type: ignore[safe-super]
        assert total is not None
        return total


@dataclass(frozen=True)
class ScaledGradientSum(_OfScaledRows, GradientSum):
    """``sum_i clip(l'(<k z, w>, k y) k z)``: a `GradientSum` of scaled rows, ``2 clip_norm`` under replace-one.

    ``row_norm`` bounds a row with its ``constant`` feature; ``intercept`` stays 0.
    """

    tag: ClassVar[str] = "ScaledGradientSum"

    constant: float = 0.0


@dataclass(frozen=True)
class ScaledMomentSum(_OfScaledRows, SecondMomentSum):
    """``sum_i k^2 z z'``, packed: a `SecondMomentSum` of scaled rows, ``sqrt(2) row_norm^2`` under replace-one.

    ``row_norm`` bounds a row with its ``constant`` feature, which ``n_features`` counts; ``intercept`` stays 0.
    """

    tag: ClassVar[str] = "ScaledMomentSum"

    constant: float = 0.0


class OneCount(Query):
    """A row counts once at most: adding or removing one moves one number by 1, replacing one moves two of them."""

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def grid(self) -> float:
        return 1.0

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not Neighbours.REPLACE_ONE:
            return 1.0
        return {1: 2.0, 2: ROOT2, math.inf: 1.0}[self.norm if norm is None else norm]

    def plain_bound(self, norm: float) -> float:
        return 1.0


@dataclass(frozen=True)
class NormCounts(OneCount):
    """How many rows are longer than ``longest``, and how many have a norm in each of the octaves below it.

    The first number is that of rows beyond ``longest``, the next that of norms in ``(longest / 2, longest]``, and so
    on; still shorter rows, and those that are not finite, are not counted.

    Parameters
    ----------
    longest : float
        Public.
    octaves : int, default 12
    """

    tag: ClassVar[str] = "NormCounts"

    longest: float
    octaves: int = 12

    def __post_init__(self) -> None:
        check_bound(self.longest, "longest")

    @property
    def size(self) -> int | None:
        return self.octaves + 1

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        edges = self.longest * 2.0 ** np.arange(-self.octaves, 1)
        counts = np.zeros(self.octaves + 2, dtype=np.int64)
        for X, y in pieces(block, rows):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                sizes = self._sizes(X, y, state)
            counts += np.bincount(np.searchsorted(edges, sizes[sizes >= 0]), minlength=len(counts))
        return counts[:0:-1]

    def _sizes(self, X: NDArray[Any], y: NDArray[Any], state: Any) -> NDArray[np.float64]:
        """What is counted of each row; NaN for none."""
        X = np.asarray(X, dtype=np.float64)
        return row_norms(X[np.isfinite(X).all(axis=1)])


@dataclass(frozen=True)
class ResidualCounts(NormCounts):
    """The same of the sizes of residuals ``|<k z, w> - k y|`` of scaled rows; the state is w.

    Parameters
    ----------
    longest, octaves
        Of residuals, as of norms.
    row_norm : float
        Bounds a row with its constant feature.
    constant : float
    """

    tag: ClassVar[str] = "ResidualCounts"

    row_norm: float = 1.0
    constant: float = 0.0

    def _sizes(self, X: NDArray[Any], y: NDArray[Any], state: Any) -> NDArray[np.float64]:
        if self.constant:
            X = np.column_stack([X, np.full(len(X), self.constant)])
        X, y = bounded_rows(X, y, row_norm=self.row_norm, scale_labels=True)
        # a row has the same bits alone and in company
        products = X * state if len(X) != 1 else np.repeat(X * state, 2, axis=0)
        found: NDArray[np.float64] = np.abs(np.einsum("ij->i", products)[: len(X)] - y)
        return found


def pieces(block: Block, rows: NDArray[np.int64] | None) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Rows and labels, a few at a time; once at least."""
    X, y = block["X"], block["y"]
    for start in range(0, max(1, len(X) if rows is None else len(rows)), PIECE):
        part: Any = slice(start, start + PIECE) if rows is None else rows[start : start + PIECE]
        yield X[part], y[part]

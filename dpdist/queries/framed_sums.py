"""Sums over rows in a public frame, and the sizes of columns that make one.

A frame follows from earlier releases (`dpdist.kernels.whitened_rows.Frame`). Each row is mapped by itself, and what is
asked of the mapped rows is bounded for any of them: the sensitivities are those of the queries that they inherit from,
at the norm to which mapped rows are clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.clip import check_bound
from dpdist.kernels.grid import add_units, fits_int64
from dpdist.kernels.whitened_rows import Frame, framed_rows, size_counts
from dpdist.privacy.budget import Neighbours
from dpdist.queries.moment_sums import SecondMomentSum
from dpdist.queries.pair_sums import PairSum
from dpdist.queries.scaled_rows import pieces


@dataclass(frozen=True)
class ColumnSizeCounts(Query):
    """How many entries of each column have a size in each octave below ``row_norm``.

    A row counts once in a column at most: replacing it moves ``2 d`` numbers by 1.

    Parameters
    ----------
    n_features : int
    row_norm : float
        Public bound of the norm of a row, enforced by clipping.
    octaves : int, default 16
    """

    tag: ClassVar[str] = "ColumnSizeCounts"

    n_features: int
    row_norm: float
    octaves: int = 16

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")

    @property
    def bound(self) -> float:
        return math.sqrt(self.n_features) * (1 + 2.0**-50)

    @property
    def grid(self) -> float:
        return 1.0

    @property
    def size(self) -> int:
        return self.n_features * self.octaves

    @property
    def row_units(self) -> int:
        return 1

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        moved = self.n_features * (2 if neighbours is Neighbours.REPLACE_ONE else 1)
        root = math.sqrt(moved) * (1 + 2.0**-50)
        return {1: float(moved), 2: root, math.inf: 1.0}[self.norm if norm is None else norm]

    def plain_bound(self, norm: float) -> float:
        return self.sensitivity(Neighbours.ADD_OR_REMOVE_ONE, norm)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X = block["X"] if rows is None else block["X"][rows]
        return size_counts(X, self.row_norm, self.octaves).ravel()


class _OfFramedRows(Query):
    """Before a query of rows: maps a few rows at a time, and adds up what is asked of them; exactly."""

    whole_norm: float

    def _summed(self, block: Block, frame: Frame, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        wide = not fits_int64(len(block["X"]), self.row_units)
        total: NDArray[Any] | None = None
        for X, y in pieces(block, rows):
            Z, labels = framed_rows(X, y, self.whole_norm, frame)
            total = add_units(total, super().summarise({"X": Z, "y": labels}, state, None), wide)  # type: ignore[safe-super]
        assert total is not None
        return total


@dataclass(frozen=True)
class FramedMomentSum(_OfFramedRows, SecondMomentSum):
    """`SecondMomentSum` of rows in the frame that is the state.

    ``whole_norm`` bounds a row as it comes, ``row_norm`` a mapped one. A null row is mapped like one of zeros.
    """

    tag: ClassVar[str] = "FramedMomentSum"

    whole_norm: float = 1.0

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        return self._summed(block, state, None, rows)


@dataclass(frozen=True)
class Placed:
    """A point, for scores of rows in a frame."""

    frame: Frame
    point: NDArray[np.float64]


@dataclass(frozen=True)
class FramedPairSum(_OfFramedRows, PairSum):
    """`PairSum` of rows in a frame; the state is a `Placed`.

    ``whole_norm`` bounds a row as it comes, ``row_norm`` a mapped one.
    """

    tag: ClassVar[str] = "FramedPairSum"

    whole_norm: float = 1.0

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        return self._summed(block, state.frame, state.point, rows)

    def point(self, state: Any) -> NDArray[np.float64]:
        found: NDArray[np.float64] = state.point
        return found

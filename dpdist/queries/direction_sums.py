"""Sums over the coordinates of rows along a few public directions.

Each row is turned into its coordinates and what is left of its length, by itself, and is as long as before; what is
asked of such rows is bounded for any of them, so that sensitivities are those of the queries that they inherit from,
whatever the directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block
from dpdist.kernels.along_directions import coordinates
from dpdist.kernels.grid import add_units, fits_int64
from dpdist.queries.moment_sums import HessianSum
from dpdist.queries.scaled_rows import pieces


@dataclass(frozen=True)
class Along:
    """Orthonormal directions, as columns, and a point in their span by its coordinates (then the constant's weight)."""

    directions: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class DirectionHessianSum(HessianSum):
    """`HessianSum` of the rows' coordinates along the k directions of the state, an `Along`.

    The matrix has k + 1 rows, and one for the constant feature: the last but that is for what is left of a row's
    length, so that its diagonal entry is the trace of the Hessian in all other directions together.
    """

    tag: ClassVar[str] = "DirectionHessianSum"

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[Any]:
        k = state.directions.shape[1]
        weights = np.concatenate([state.weights[:k], [0.0], state.weights[k:]])
        wide = not fits_int64(len(block["X"]), self.row_units)
        total: NDArray[Any] | None = None
        for X, y in pieces(block, rows):
            along = {"X": coordinates(X, state.directions), "y": y}
            total = add_units(total, super().summarise(along, weights, None), wide)
        assert total is not None
        return total

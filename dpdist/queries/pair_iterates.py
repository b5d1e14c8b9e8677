"""Points of online descents over pairs, for noise behind the last row: all of a stream, or means of many short streams.

The descents run inside the release, on exact gradients that nobody sees (`dpdist.kernels.pair_chains`). How far one row
moves their points follows from convexity and a public penalty alone (`dpdist.privacy.accounting.contraction`), with
``G = 4 R``: a row of one class that is replaced by another of it moves the mean over the past by ``4 R max(k, k')`` at
most, and by as much if its class changes (as in `dpdist.queries.pair_sums`), half of what holds for any pair loss.
Rounding of the descent is part of the sensitivity (`dpdist.kernels.pair_chains.chain_error`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.clip import check_bound
from dpdist.kernels.grid import power_grid, to_units
from dpdist.kernels.pair_chains import chain_error, pair_chain
from dpdist.privacy.accounting.contraction import Moves, OnlinePath
from dpdist.privacy.budget import Neighbours

Floats = NDArray[np.float64]

GRID_BITS = 24


@dataclass(frozen=True)
class PairDescent(Query):
    """Descents over consecutive rows, ``online.n_rows`` of them each.

    Parameters
    ----------
    row_norm : float
        Public bound R of the norm of a row, enforced by clipping.
    radius : float
        Of the ball of the points.
    n_features : int
    online : OnlinePath
        Steps and pasts, for pairs of smoothness ``4 R^2``.
    """

    is_sum: ClassVar[bool] = False
    whole_blocks: ClassVar[bool] = True

    row_norm: float
    radius: float
    n_features: int
    online: OnlinePath

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        check_bound(self.radius, "radius")
        if self.online.smoothness < 4 * self.row_norm**2:
            raise BudgetError(
                f"pairs of rows of norm {self.row_norm:g} have a smoothness of {4 * self.row_norm**2:g}, and the steps "
                f"are for {self.online.smoothness:g}"
            )

    @property
    def moves(self) -> Moves:
        """Of one row, in exact arithmetic."""
        return self.online.moves(4 * self.row_norm, 2 * self.radius)

    @property
    @abstractmethod
    def moved(self) -> float:
        """The most by which a row moves the statistic, with all rounding but that of the grid."""

    @property
    def bound(self) -> float:
        return self.moved / 2

    @property
    def grid(self) -> float:
        return power_grid(self.moved, GRID_BITS)

    @property
    def align(self) -> int:
        return self.online.n_rows

    def plain_bound(self, norm: float) -> float:
        return math.inf  # a sample of rows would be another stream

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "a stream has an order, and adding or removing a row moves all rows behind it: streams are private for "
                "replace-one"
            )
        assert self.size is not None
        # one unit for truncation and one for the float that is truncated, on either neighbour
        return (self.moved + 4 * math.sqrt(self.size) * self.grid) * (1 + 1e-12)

    def points(self, block: Block) -> Floats:
        """Of one descent, behind every row."""
        path = self.online
        return pair_chain(block["X"], block["y"], path.steps, path.ridge, self.radius, self.row_norm, path.past)

    @property
    def _errors(self) -> Floats:
        path = self.online
        return chain_error(path.steps, path.ridge, self.radius, self.row_norm, self.n_features)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)


@dataclass(frozen=True)
class OnlinePoints(PairDescent):
    """All points of one stream behind its first step, each over how far a row moves it at most.

    Of the whole vector a row moves the Euclidean norm by `Moves.together` at most: one release of it, with one level of
    noise, is one of every point with noise in proportion to its own sensitivity.
    """

    tag: ClassVar[str] = "OnlinePoints"

    @property
    def size(self) -> int:
        return (self.online.n_rows - self.online.burn_in) * self.n_features

    @property
    def scales(self) -> Floats:
        """What the points are divided by."""
        return self.moves.each[self.online.burn_in :]

    @property
    def moved(self) -> float:
        rounding = 2 * float(np.linalg.norm(self._errors[self.online.burn_in :] / self.scales))
        return self.moves.together + rounding

    @property
    def row_units(self) -> int:
        return math.ceil(2 * self.radius / float(self.scales.min()) / self.grid) + 2

    def check_rows(self, n_rows: int | None) -> None:
        if n_rows != self.online.n_rows:
            raise BudgetError(
                f"the plan is for a stream of {self.online.n_rows} rows, and there are {n_rows}: plan for those that "
                "there are"
            )

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        burn_in, n = self.online.burn_in, self.online.n_rows
        if first or len(block["y"]) != n:
            raise ValueError(f"a stream of {n} rows is read as a whole")
        return to_units((self.points(block)[burn_in:] / self.scales[:, None]).ravel(), self.grid)


@dataclass(frozen=True)
class ChainMeans(PairDescent):
    """The sum over streams of ``online.n_rows`` consecutive rows of the mean of the second half of their points.

    A row is in one stream, whose mean it moves by `Moves.tail` at most. Rows behind the last complete stream do not
    count.
    """

    tag: ClassVar[str] = "ChainMeans"

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def moved(self) -> float:
        return self.moves.tail + 2 * float(self._errors.max())

    @property
    def row_units(self) -> int:
        return math.ceil(2 * self.radius / self.grid) + 2

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        n, total = self.online.n_rows, np.zeros(self.n_features, dtype=np.int64)
        if first % n:
            raise ValueError(f"a range begins at row {first}, which is not a multiple of {n}")
        for start in range(0, len(block["y"]) // n * n, n):
            points = self.points({name: values[start : start + n] for name, values in block.items()})
            total += to_units(points[self.online.tail :].mean(axis=0), self.grid)
        return total

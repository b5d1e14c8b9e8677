"""Robust sums of columns and of gradients: bounded coordinate by coordinate, or trimmed."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels import order_statistics
from dpdist.kernels.coordinate_gradients import coordinate_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.truncation import ScalarMap
from dpdist.losses import Block as LossBlock
from dpdist.losses import Loss
from dpdist.queries.bounded_sums import MappedSum
from dpdist.queries.gradient_sums import one_against_rest


def _ones_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = 1.0


class _Identity(Loss):
    """``l(u, y) = u``: its gradient is the row itself."""

    name, labels, derivative_bound, curvature_bound = "identity", "real", 1.0, 0.0
    block: ClassVar[LossBlock | None] = staticmethod(_ones_block)

    def value(self, u: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(u, dtype=np.float64)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        return np.ones(np.shape(u))


@dataclass(frozen=True)
class ColumnSum(MappedSum):
    """Sum of the rows with every entry bounded by a map: ``sum_i f(x_ij)``."""

    tag: ClassVar[str] = "ColumnSum"

    bounded: ScalarMap
    n_features: int

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X, labels, w = block["X"], np.zeros(len(block["X"])), np.zeros(self.n_features)
        return coordinate_gradient(X, labels, w, _Identity(), self.bounded, grid=self.grid, rows=rows)


@dataclass(frozen=True)
class _Trimmed(Query):
    """What is left of a sum without the largest and smallest entries of every coordinate, and its smooth bound.

    Attributes
    ----------
    n_rows : int
        The number of rows; it has to be the true one, which is public under replace-one.
    n_trimmed : int
        How many entries are left out at either end; fewer than ``n_rows / 2``.
    limit : float
        Entries are cut at it, to either side.
    t : float
        Smoothness of the bound.
    """

    norm: ClassVar[float] = math.inf
    is_sum: ClassVar[bool] = False

    n_rows: int
    n_trimmed: int
    limit: float
    t: float

    @abc.abstractmethod
    def _extremes(self, block: Block, state: Any) -> NDArray[np.int64]:
        """The extremes summary of a block."""

    @property
    def bound(self) -> float:
        return self.limit

    @property
    def grid(self) -> float:
        return grid_for(self.limit)

    @property
    def smoothness(self) -> float | None:
        return self.t

    def check_rows(self, n_rows: int | None) -> None:
        if n_rows is None:
            raise BudgetError(
                f"{type(self).__name__} leaves out a part of the rows, and how many there are of this dataset is "
                "private: use a query that sums all of them, or data with a public number of rows"
            )
        if n_rows != self.n_rows or n_rows <= 2 * self.n_trimmed:
            raise BudgetError(
                f"a mean that leaves out {self.n_trimmed} entries at either end was planned for {self.n_rows} rows, "
                f"and there are {n_rows}: do not pass n_public under replace-one"
            )

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        summary = self._extremes(block, state)
        ones = np.ones((len(block["X"]), 1), dtype=np.int64)
        return np.vstack([order_statistics.extremes(ones, self.n_trimmed, 1), summary])

    def combine(self, total: NDArray[Any] | None, summary: NDArray[Any], wide: bool) -> NDArray[Any]:
        return order_statistics.merge(total, summary, wide)

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Trimmed sums, and their smooth bounds in ``2**-SMOOTH_BITS`` units."""
        summary = total[1:]
        self.check_rows(int(total[0, 0]))
        bounds = order_statistics.smooth_bounds(summary, self.t, order_statistics.units_in(self.limit, self.grid))
        sums = order_statistics.trimmed_sums(summary)
        return np.stack([sums.astype(object), bounds]), self.grid


@dataclass(frozen=True)
class TrimmedColumnSum(_Trimmed):
    """Trimmed sums of columns."""

    tag: ClassVar[str] = "TrimmedColumnSum"

    n_features: int

    @property
    def size(self) -> int | None:
        return self.n_features

    def _extremes(self, block: Block, state: Any) -> NDArray[np.int64]:
        return order_statistics.column_extremes(block["X"], self.n_trimmed, self.limit, self.grid)


@dataclass(frozen=True)
class TrimmedGradientSum(_Trimmed):
    """Trimmed sums of the coordinates of loss gradients of a generalised linear model at ``state``."""

    tag: ClassVar[str] = "TrimmedGradientSum"

    loss: Loss
    n_features: int
    intercept: float = 0.0
    target: int | None = None

    @property
    def size(self) -> int | None:
        return self.n_features + (self.intercept > 0)

    def _extremes(self, block: Block, state: Any) -> NDArray[np.int64]:
        return order_statistics.gradient_extremes(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            state,
            self.loss,
            m=self.n_trimmed,
            bound=self.limit,
            grid=self.grid,
            intercept=self.intercept,
        )

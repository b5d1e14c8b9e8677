"""The mean loss at many public points at once, for a choice among them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.clip import check_bound
from dpdist.kernels.grid import grid_for
from dpdist.kernels.value_sums import loss_table
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits
from dpdist.queries.gradient_sums import one_against_rest


@dataclass(frozen=True)
class Net:
    """Public points, and a public number that each of them costs."""

    points: NDArray[np.float64]
    costs: NDArray[np.float64]


@dataclass(frozen=True)
class LossTable(Query):
    """Scores ``-costs_k - sum_i l(<x_i, w_k>, y_i)`` of public points; the state is a `Net`.

    Each value is clamped: to ``[0, bound]`` for a loss with a `Loss.value_bound` of at most ``G reach``, where both
    relations move a score by ``bound``; else ``l(w) - l(0)`` to ``[-G reach, G reach]``, which replacing a row moves by
    twice that. G is the bound of a gradient and ``reach`` that of the norm of a point: without that factor there would
    be too little noise wherever it exceeds 1/2 (seed 000, Theorem 4.2.4). For mechanisms that compare scores only,
    since what is the same for all points is left out.

    Parameters
    ----------
    loss : Loss
    row_norm : float
        Rows are clipped to it.
    reach : float
        Bound of the norm of a point, the weight of the constant feature included.
    n_points : int
    intercept : float, default 0
        Value of the constant feature.
    target : int, optional
        The class that counts as +1 when labels are class numbers.
    """

    tag: ClassVar[str] = "LossTable"

    norm: ClassVar[float] = math.inf
    is_sum: ClassVar[bool] = False

    loss: Loss
    row_norm: float
    reach: float
    n_points: int
    intercept: float = 0.0
    target: int | None = None

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        check_bound(self.reach, "reach")
        if not math.isfinite(self.bound):
            raise BudgetError(
                f"neither values nor derivatives of the loss {self.loss.name!r} have a bound: use another loss"
            )
        check_bound(self.bound, f"the bound of what a row adds, for the loss {self.loss!r},")

    @property
    def centred(self) -> bool:
        """Whether values are differences to that at 0."""
        return 2 * self._steepest < self.loss.value_bound

    @property
    def _steepest(self) -> float:
        return self.loss.lipschitz(math.hypot(self.row_norm, self.intercept)) * self.reach

    @property
    def bound(self) -> float:
        return self._steepest if self.centred else self.loss.value_bound

    @property
    def grid(self) -> float:
        return grid_for(self.bound)

    @property
    def size(self) -> int | None:
        return self.n_points

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        twice = self.centred and neighbours is Neighbours.REPLACE_ONE
        return (2 if twice else 1) * self.bound * self._conversion(self.norm if norm is None else norm)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X, y = block["X"], one_against_rest(block["y"], self.target, self.loss)
        if rows is not None:
            X, y = X[rows], y[rows]
        low = -self.bound if self.centred else 0.0
        return loss_table(
            X, y, state.points, self.loss, row_norm=self.row_norm, low=low, high=self.bound, grid=self.grid,
            intercept=self.intercept, centred=self.centred,
        )  # fmt: skip

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        # Python integers: neither the costs nor their difference to an int64 need fit
        costs = np.array([int(v) for v in np.rint(state.costs / self.grid)], dtype=object)
        units: NDArray[Any] = -costs - ask(state).astype(object)
        return units.astype(np.int64) if max(abs(v) for v in units) < 2**62 else units

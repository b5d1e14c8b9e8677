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

    A row adds what is at most ``bound`` in size: ``l(w) - V/2``, where V is the `Loss.value_bound`, or ``l(w) - l(0)``
    where ``G reach`` is less than V/2. G is the bound of a gradient and ``reach`` that of the norm of a point: without
    that factor there would be too little noise wherever it exceeds 1/2 (seed 000, Theorem 4.2.4).

    Replacing a row moves a score by ``2 bound`` at most, adding or removing one by ``bound``: half of what it does to
    ``l(w)`` in ``[0, V]`` itself. What is taken off is the same for all points, so that for mechanisms that compare
    scores only the choice is the same. (They tell ``max_k d_k - min_k d_k`` of two neighbours and no more, d the
    difference of their scores; it is at most V where d lies in ``[0, V]``, and twice the size of ``d - V/2``.) A row
    that is no numbers adds 0 to all scores, which is within the bound as well.

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
        """Whether values are differences to that at 0, and not to half of their bound."""
        return self._steepest < self.loss.value_bound / 2

    @property
    def _steepest(self) -> float:
        return self.loss.lipschitz(math.hypot(self.row_norm, self.intercept)) * self.reach

    @property
    def bound(self) -> float:
        return min(self._steepest, self.loss.value_bound / 2)

    @property
    def grid(self) -> float:
        return grid_for(self.bound)

    @property
    def size(self) -> int | None:
        return self.n_points

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        times = 2 if neighbours is Neighbours.REPLACE_ONE else 1
        return times * self.bound * self._conversion(self.norm if norm is None else norm)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X, y = block["X"], one_against_rest(block["y"], self.target, self.loss)
        if rows is not None:
            X, y = X[rows], y[rows]
        return loss_table(
            X, y, state.points, self.loss, row_norm=self.row_norm, bound=self.bound, grid=self.grid,
            intercept=self.intercept, centred=self.centred,
        )  # fmt: skip

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        # Python integers: neither the costs nor their difference to an int64 need fit
        costs = np.array([int(v) for v in np.rint(state.costs / self.grid)], dtype=object)
        units: NDArray[Any] = -costs - ask(state).astype(object)
        return units.astype(np.int64) if max(abs(v) for v in units) < 2**62 else units

"""How curved a loss is at a public point, in one number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError
from dpdist.identity import ADDED
from dpdist.kernels.clip import check_bound
from dpdist.kernels.grid import grid_for
from dpdist.kernels.hessians import glm_curvature
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.queries.gradient_sums import one_against_rest


@dataclass(frozen=True)
class CurvatureSum(Query):
    """``sum_i l''(<x_i, w>, y_i)``, each clamped to the range [lo, hi] that the loss declares; the state is w.

    A row that contributes nothing (an entry or a label that is no number) counts as curvature 0. Adding or removing a
    row moves the sum by ``max(hi, -lo)``, replacing one by ``max(hi, 0) - min(lo, 0)``.

    Parameters
    ----------
    loss : Loss
        With a second derivative whose range is bounded.
    row_norm : float
        Rows are clipped to it, as for the gradient.
    intercept : float, default 0
        Value of the constant feature.
    target : int, optional
        The class that counts as +1 when labels are class numbers.
    weighed : bool, default False
        Rows keep their length, and those longer than ``row_norm`` count by the square of its ratio to their norm: all
        sums are then those of one weighted loss, whose minimiser is not biased (`dpdist.kernels.block_pass.weigh`).
    """

    tag: ClassVar[str] = "CurvatureSum"

    loss: Loss
    row_norm: float
    intercept: float = 0.0
    target: int | None = None
    weighed: bool = field(default=False, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise BudgetError(f"the second derivative of the loss {self.loss.name!r} has no bound: use another loss")

    @property
    def bound(self) -> float:
        low, high = self.loss.curvature_range
        return max(high, -low)

    @property
    def grid(self) -> float:
        return grid_for(self.bound)

    @property
    def size(self) -> int | None:
        return 1

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        low, high = self.loss.curvature_range
        if neighbours is Neighbours.REPLACE_ONE:
            # truncation moves each of the two by less than a unit of the grid, towards 0
            return max(high, 0.0) - min(low, 0.0)
        return self.bound

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return glm_curvature(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            state,
            self.loss,
            row_norm=self.row_norm,
            grid=self.grid,
            intercept=self.intercept,
            rows=rows,
            weighed=self.weighed,
        )

"""What the methods for smooth losses ask of a partition besides gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.kernels.differences import glm_difference
from dpdist.kernels.grid import grid_for
from dpdist.kernels.squares import square_sums
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.queries.bounded_sums import ClippedSum
from dpdist.queries.gradient_sums import one_against_rest


@dataclass(frozen=True)
class GradientDifference(ClippedSum):
    """Sum of clipped differences of loss gradients at two public points, ``clip((l'(<x, w>, y) - l'(<x, v>, y)) x)``.

    Rows are clipped to ``row_norm`` first and the constant feature ``intercept`` (if positive) is appended; each row's
    difference is clipped to ``clip_norm``: l2-sensitivity ``2 clip_norm`` under replace-one, for any input. The state
    is the pair ``(w, v)``.

    ``clip_norm`` follows from the two points, hence from earlier releases. It is no part of the query's name: a run
    that is resumed on a machine where it differs in the last bit still finds the released value.
    """

    tag: ClassVar[str] = "GradientDifference"

    loss: Loss
    row_norm: float
    clip_norm: float = field(repr=False, metadata={"named": False})
    intercept: float = 0.0
    target: int | None = None

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        w, v = state
        return glm_difference(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            w,
            v,
            self.loss,
            row_norm=self.row_norm,
            clip_norm=self.clip_norm,
            grid=self.grid,
            intercept=self.intercept,
            rows=rows,
        )


@dataclass(frozen=True)
class LargestSquareSum(Query):
    """``max_j sum_i x_ij^2`` over clipped rows (`private_l1_smoothness`): how curved a loss can be in the l1 norm.

    For a loss with ``l'' <= h``, ``h`` times this bounds every entry of the Hessian of the sum. Each square lies in
    ``[0, bound^2]``, so a replaced row moves each sum, and hence the largest, by at most ``bound^2``: that is the
    sensitivity under both relations (seed 000, section 3.1.4).

    ``feature_bound`` cuts entries, for this statistic only.
    """

    tag: ClassVar[str] = "LargestSquareSum"

    is_sum = False

    row_norm: float
    feature_bound: float

    @property
    def bound(self) -> float:
        return self.feature_bound**2

    @property
    def grid(self) -> float:
        return grid_for(self.bound)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return square_sums(block["X"], self.row_norm, self.feature_bound)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return self.bound

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return np.array([total.max()]), self.grid

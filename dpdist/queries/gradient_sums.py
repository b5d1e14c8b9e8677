"""What the linear models ask of a partition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block, Query
from dpdist.identity import ADDED
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.moments import moment_grid, second_moment, unpack_symmetric
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.queries.bounded_sums import ClippedSum


def one_against_rest(y: NDArray[np.float64], target: int | None, loss: Loss) -> NDArray[np.float64]:
    """Class numbers as what the loss takes, +1 for ``target``; labels as they are if there is no target."""
    return y if target is None else loss.one_against_rest(y, target)


@dataclass(frozen=True)
class At:
    """Where a gradient is asked, and a public vector that is added to that of every row before it is bounded."""

    w: NDArray[np.float64]
    shift: NDArray[np.float64] | None = None


def place_of(state: Any) -> At:
    """The state of a gradient, which may be given as the point alone."""
    return state if isinstance(state, At) else At(state)


@dataclass(frozen=True)
class GradientSum(ClippedSum):
    """Sum of clipped loss gradients ``clip(l'(<x, w>, y) x)`` of a generalised linear model.

    Rows are clipped to ``row_norm`` first, the constant feature ``intercept`` (if positive) is appended, and each
    row's gradient is clipped to ``clip_norm``: l2-sensitivity ``2 clip_norm`` under replace-one, for any input.
    ``target`` chooses the class that counts as +1 when labels are class numbers (one against the rest). With a state
    ``At(w, shift)`` it is the sum of ``clip(l'(<x, w>, y) x + shift)``, as sensitive; empty rows add nothing.

    ``weighed``: rows keep their length, and those longer than ``row_norm`` count by the square of its ratio to their
    norm, ``q = min(1, row_norm / |x|)^2``. That is the gradient of one weighted loss, whose minimiser is not biased as
    that of shortened rows is; ``q |l'| |(x, intercept)|`` is below the same bound, which the clip enforces.
    """

    tag: ClassVar[str] = "GradientSum"

    loss: Loss
    row_norm: float
    clip_norm: float
    intercept: float = 0.0
    target: int | None = None
    weighed: bool = field(default=False, kw_only=True, metadata=ADDED)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        place = place_of(state)
        return glm_gradient(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            place.w,
            self.loss,
            row_norm=self.row_norm,
            clip_norm=self.clip_norm,
            grid=self.grid,
            intercept=self.intercept,
            rows=rows,
            shift=place.shift,
            weighed=self.weighed,
        )


@dataclass(frozen=True)
class LargestEigenvalue(Query):
    """The largest eigenvalue of ``sum x x'`` over clipped rows (`private_lmax`): how steep a smooth loss can be.

    Replacing a row changes the matrix by ``vv' - ww'``, whose eigenvalues lie in ``[-r^2, r^2]``, so by Weyl's
    inequality the sensitivity is ``r^2`` under both relations, ``r`` the norm of a row with its constant feature
    (seed 000, section 3.1, as corrected). The eigenvalue is not a sum: what the floating-point solver may be off is
    added, twice, and the value is rounded to a grid of its own. It is capped at the declared ``n_rows`` times
    ``r^2``, which also bounds that error when the true number of rows is private and larger.
    """

    tag: ClassVar[str] = "LargestEigenvalue"

    is_sum = False

    n_features: int
    row_norm: float
    n_rows: int
    intercept: float = 0.0

    @property
    def bound(self) -> float:
        return self.row_norm**2 + self.intercept**2

    @property
    def grid(self) -> float:
        return moment_grid(self._radius)

    @property
    def _radius(self) -> float:
        return math.hypot(self.row_norm, self.intercept)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return second_moment(block["X"], self.row_norm, intercept=self.intercept)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return self.bound + 2 * (self._solver_error + grid_for(self.bound))

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        matrix = unpack_symmetric(total.astype(np.float64)) * self.grid
        largest = float(np.linalg.eigvalsh(matrix)[-1])
        grid = grid_for(self.bound)
        return np.array([int(min(largest, self.n_rows * self.bound) / grid)], dtype=object), grid

    @property
    def _solver_error(self) -> float:
        # Symmetric eigenvalue solvers are backward stable with a constant of order d^1.5 u times the norm; d^2 leaves
        # room. Below the cap the norm is at most twice the cap; above it the capped value is exact.
        d = self.n_features + 1
        return d**2 * 2.0**-52 * 2 * self.n_rows * self.bound

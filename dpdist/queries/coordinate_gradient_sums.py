"""Gradient sums whose coordinates are bounded one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.kernels.coordinate_gradients import CoordinateMap, coordinate_gradient
from dpdist.losses import Loss
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits
from dpdist.queries.bounded_sums import MappedSum
from dpdist.queries.gradient_sums import one_against_rest, place_of


@dataclass(frozen=True)
class CoordinateGradientSum(MappedSum):
    """Sum of loss gradients of which every coordinate is bounded (`dpdist.kernels.coordinate_gradients`).

    No row moves a coordinate by more than twice ``bounded.bound`` under replace-one. The state is the point or, unless
    the map is a `Residual`, `dpdist.queries.gradient_sums.At`.
    """

    tag: ClassVar[str] = "CoordinateGradientSum"

    loss: Loss
    bounded: CoordinateMap
    n_features: int
    intercept: float = 0.0
    target: int | None = None

    @property
    def size(self) -> int | None:
        return self.n_features + (self.intercept > 0)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        place = place_of(state)
        return coordinate_gradient(
            block["X"],
            one_against_rest(block["y"], self.target, self.loss),
            place.w,
            self.loss,
            self.bounded,
            grid=self.grid,
            intercept=self.intercept,
            rows=rows,
            shift=place.shift,
        )


@dataclass(frozen=True)
class State:
    """Where a gradient is asked, and the public vector that its sum is subtracted from."""

    w: NDArray[np.float64]
    anchor: NDArray[np.float64]


@dataclass(frozen=True)
class Shifted(Query):
    """A public vector minus a sum: ``anchor - sum_i g_i(w)``, which is as sensitive as the sum.

    A gradient step is ``(step / n) (anchor - sum)`` with ``anchor = w n / step``, so that a mechanism which selects by
    size can look at the point after the step. The anchor is rounded to the grid of the sum, so everything stays in
    integers.
    """

    tag: ClassVar[str] = "Shifted"

    norm: ClassVar[float] = math.inf
    is_sum: ClassVar[bool] = False

    gradient: CoordinateGradientSum

    @property
    def bound(self) -> float:
        return self.gradient.bound

    @property
    def grid(self) -> float:
        return self.gradient.grid

    @property
    def size(self) -> int | None:
        return self.gradient.size

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.gradient.summarise(block, state.w, rows)

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        # Python integers: neither the anchor nor the difference of two int64 need fit
        anchor = np.array([int(v) for v in np.rint(state.anchor / self.grid)], dtype=object)
        units: NDArray[Any] = anchor - ask(state).astype(object)
        return units.astype(np.int64) if max(abs(v) for v in units) < 2**62 else units

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return self.gradient.sensitivity(neighbours, norm)

"""Losses for two classes of which one counts more, by public weights.

The loss of a row with label y is ``c_y l(u, y)``: the weight depends on the row's label, and multiplies value and all
derivatives. Bounds grow by the larger weight, and with them the noise: with weights 1 and 10 it is ten times that of
weights 1, beside ten times the signal of one class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpdist.losses.convex import Logistic, SmoothedHinge
from dpdist.losses.loss import LARGEST_EXPONENT, Block, Floats, Loss, fast_exp


def _logistic_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    negative, positive = params[0], params[1]
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        out[i] = -y[i] * (positive if y[i] > 0 else negative) * ((e if margin > 0 else 1.0) / (1.0 + e))


def _logistic_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    negative, positive = params[0], params[1]
    for i in range(n):
        size = abs(u[i] * y[i])
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        out[i] = (positive if y[i] > 0 else negative) * (e / ((1.0 + e) * (1.0 + e)))


def _hinge_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    negative, positive, width = params[0], params[1], params[2]
    for i in range(n):
        m = 1.0 - u[i] * y[i]
        m = m if m < width else width
        out[i] = -y[i] * (positive if y[i] > 0 else negative) * ((m if m > 0.0 else 0.0) / width)


def _hinge_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    negative, positive, width = params[0], params[1], params[2]
    for i in range(n):
        m = 1.0 - u[i] * y[i]
        out[i] = (positive if y[i] > 0 else negative) / width if (m > 0.0) & (m < width) else 0.0


@dataclass(frozen=True)
class _ClassWeighted(Loss):
    """``c_y l(u, y)`` of a loss ``l`` for labels -1 and +1, with the weights ``negative`` and ``positive``."""

    negative: float
    positive: float

    labels: ClassVar[Literal["signs", "real"]] = "signs"

    def __post_init__(self) -> None:
        for name, weight in (("negative", self.negative), ("positive", self.positive)):
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError(f"{name} must be a positive finite weight, got {weight}")

    @property
    def unweighted(self) -> Loss:
        """The loss ``l``."""
        raise NotImplementedError

    @property
    def largest(self) -> float:
        """The larger weight."""
        return max(self.negative, self.positive)

    @property
    def derivative_bound(self) -> float:
        return self.largest * self.unweighted.derivative_bound

    @property
    def curvature_bound(self) -> float:
        return self.largest * self.unweighted.curvature_bound

    @property
    def third_bound(self) -> float:
        return self.largest * self.unweighted.third_bound

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self._weight(y) * self.unweighted.value(u, y)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self._weight(y) * self.unweighted.derivative(u, y)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self._weight(y) * self.unweighted.second_derivative(u, y)

    def _weight(self, y: ArrayLike) -> Floats:
        return np.where(np.asarray(y) > 0, self.positive, self.negative)


@dataclass(frozen=True)
class WeightedLogistic(_ClassWeighted):
    """The logistic loss, times the weight of the label's class.

    >>> loss = WeightedLogistic(1.0, 3.0)
    >>> float(loss.derivative(0.0, -1.0)), float(loss.derivative(0.0, 1.0)), loss.derivative_bound
    (0.5, -1.5, 3.0)
    """

    tag: ClassVar[str] = "WeightedLogistic"

    name: ClassVar[str] = "weighted-logistic"
    block: ClassVar[Block | None] = staticmethod(_logistic_block)
    second_block: ClassVar[Block | None] = staticmethod(_logistic_second_block)

    @property
    def unweighted(self) -> Loss:
        return Logistic()


@dataclass(frozen=True)
class WeightedHinge(_ClassWeighted):
    """The smoothed hinge loss, times the weight of the label's class.

    >>> float(WeightedHinge(2.0, 1.0).derivative(5.0, -1.0))
    2.0
    """

    width: float = 0.5

    tag: ClassVar[str] = "WeightedHinge"

    name: ClassVar[str] = "weighted-hinge"
    block: ClassVar[Block | None] = staticmethod(_hinge_block)
    second_block: ClassVar[Block | None] = staticmethod(_hinge_second_block)

    @property
    def unweighted(self) -> Loss:
        return SmoothedHinge(self.width)


def weighted(loss: Loss, negative: float, positive: float) -> Loss:
    """The loss, with these weights of the labels -1 and +1.

    >>> weighted(Logistic(), 1.0, 2.0)
    WeightedLogistic(negative=1.0, positive=2.0)
    """
    if isinstance(loss, Logistic):
        return WeightedLogistic(negative, positive)
    if isinstance(loss, SmoothedHinge):
        return WeightedHinge(negative, positive, loss.width)
    raise ValueError(f"there are no class weights for the loss {loss.name!r}")

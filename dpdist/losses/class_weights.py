"""Losses for classes of which some count more, by public weights.

The loss of a row with label y is ``c_y l(u, y)``: the weight depends on the row's label, and multiplies value and all
derivatives. Bounds grow by the largest weight, and with them the noise: with weights 1 and 10 it is ten times that of
weights 1, beside ten times the signal of one class.

Of several classes, each is fitted against all others, whose rows keep the weights of their own classes: there labels
are ``+-c``, of which the sign says whether a row is of the class (`RestLogistic`, `RestHinge`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


class _Weighted(Loss):
    """A loss ``l``, times a weight that is at most `largest`."""

    @property
    def unweighted(self) -> Loss:
        """The loss ``l``."""
        raise NotImplementedError

    @property
    def largest(self) -> float:
        """The largest weight."""
        raise NotImplementedError

    @property
    def derivative_bound(self) -> float:
        return self.largest * self.unweighted.derivative_bound

    @property
    def curvature_bound(self) -> float:
        return self.largest * self.unweighted.curvature_bound

    @property
    def third_bound(self) -> float:
        return self.largest * self.unweighted.third_bound


@dataclass(frozen=True)
class _ClassWeighted(_Weighted):
    """``c_y l(u, y)`` of a loss ``l`` for labels -1 and +1, with the weights ``negative`` and ``positive``."""

    negative: float
    positive: float

    labels: ClassVar[Literal["signs", "real"]] = "signs"

    def __post_init__(self) -> None:
        for name, weight in (("negative", self.negative), ("positive", self.positive)):
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError(f"{name} must be a positive finite weight, got {weight}")

    @property
    def largest(self) -> float:
        return max(self.negative, self.positive)

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


def _rest_logistic_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    largest = params[0]
    for i in range(n):
        weight = abs(y[i])
        weight = weight if weight < largest else largest
        margin = u[i] if y[i] > 0 else -u[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        slope = weight * ((e if margin > 0 else 1.0) / (1.0 + e))
        out[i] = -slope if y[i] > 0 else slope


def _rest_hinge_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    largest, width = params[0], params[1]
    for i in range(n):
        weight = abs(y[i])
        weight = weight if weight < largest else largest
        m = 1.0 - (u[i] if y[i] > 0 else -u[i])
        m = m if m < width else width
        slope = weight * ((m if m > 0.0 else 0.0) / width)
        out[i] = -slope if y[i] > 0 else slope


@dataclass(frozen=True)
class _RestWeighted(_Weighted):
    """``|y| l(u, sign y)``, with ``|y|`` cut at the largest of the weights of the classes, which are public.

    It has no second derivative by which solvers could tell the curvature at 0: that depends on the shares of classes.
    """

    weights: tuple[float, ...]

    labels: ClassVar[Literal["signs", "real"]] = "real"  # signs times weights

    def __post_init__(self) -> None:
        if not self.weights or not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise ValueError(f"weights must be positive finite numbers, got {self.weights}")

    @property
    def largest(self) -> float:
        return max(self.weights)

    def one_against_rest(self, codes: Floats, target: int) -> Floats:
        """Class numbers as signs times the weights of their classes."""
        places = np.clip(np.where(np.isnan(codes), 0.0, codes), 0, len(self.weights) - 1).astype(np.int64)
        return super().one_against_rest(codes, target) * np.asarray(self.weights)[places]

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self._weight(y) * self.unweighted.value(u, np.sign(y))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self._weight(y) * self.unweighted.derivative(u, np.sign(y))

    def _weight(self, y: ArrayLike) -> Floats:
        return np.minimum(np.abs(np.asarray(y, dtype=np.float64)), self.largest)


@dataclass(frozen=True)
class RestLogistic(_RestWeighted):
    """The logistic loss of one class against the rest, times the weight that a label carries.

    >>> loss = RestLogistic((1.0, 3.0))
    >>> loss.derivative(0.0, [-1.0, 3.0, 50.0]).tolist(), loss.derivative_bound
    ([0.5, -1.5, -1.5], 3.0)
    """

    tag: ClassVar[str] = "RestLogistic"

    name: ClassVar[str] = "rest-logistic"
    block: ClassVar[Block | None] = staticmethod(_rest_logistic_block)

    @property
    def unweighted(self) -> Loss:
        return Logistic()

    @property
    def params(self) -> Floats:
        return np.array([self.largest])


@dataclass(frozen=True)
class RestHinge(_RestWeighted):
    """The smoothed hinge loss of one class against the rest, times the weight that a label carries.

    >>> float(RestHinge((2.0, 1.0)).derivative(5.0, -2.0))
    2.0
    """

    width: float = 0.5

    tag: ClassVar[str] = "RestHinge"

    name: ClassVar[str] = "rest-hinge"
    block: ClassVar[Block | None] = staticmethod(_rest_hinge_block)

    @property
    def unweighted(self) -> Loss:
        return SmoothedHinge(self.width)

    @property
    def params(self) -> Floats:
        return np.array([self.largest, self.width])


def against_rest(loss: Loss, weights: Sequence[float]) -> Loss:
    """The loss of each of several classes against all others, with these weights of the classes.

    >>> against_rest(Logistic(), [1.0, 4.0, 2.0])
    RestLogistic(weights=(1.0, 4.0, 2.0))
    """
    if isinstance(loss, Logistic):
        return RestLogistic(tuple(weights))
    if isinstance(loss, SmoothedHinge):
        return RestHinge(tuple(weights), loss.width)
    raise ValueError(f"there are no class weights for the loss {loss.name!r}")


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

"""Losses that are convex in the predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpdist.losses.loss import LARGEST_EXPONENT, Block, Floats, Loss, fast_exp


def _logistic_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        out[i] = -y[i] * ((e if margin > 0 else 1.0) / (1.0 + e))


def _logistic_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        size = abs(u[i] * y[i])
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        out[i] = e / ((1.0 + e) * (1.0 + e))


def _squared_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = u[i] - y[i]


def _one_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = 1.0


def _huber_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        residual = u[i] - y[i]
        residual = residual if residual < threshold else threshold
        out[i] = residual if residual > -threshold else -threshold


def _huber_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        out[i] = 1.0 if abs(u[i] - y[i]) <= threshold else 0.0


def _residual_square_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        size = abs(u[i] - y[i])
        small = min(size, threshold)
        slope = small * small * (size - small * (2.0 / 3.0))
        out[i] = slope if u[i] > y[i] else -slope


def _residual_square_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        small = min(abs(u[i] - y[i]), threshold)
        out[i] = small * small


def _smoothed_hinge_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    width = params[0]
    for i in range(n):
        m = 1.0 - u[i] * y[i]
        m = m if m < width else width
        out[i] = -y[i] * ((m if m > 0.0 else 0.0) / width)


def _smoothed_hinge_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    width = params[0]
    for i in range(n):
        m = 1.0 - u[i] * y[i]
        out[i] = 1.0 / width if (m > 0.0) & (m < width) else 0.0


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-y u))`` for labels -1 and +1; ``|l'| <= 1``, ``l'' <= 1/4``.

    >>> loss = Logistic()
    >>> float(loss.derivative(0.0, 1.0)), loss.lipschitz(2.0), loss.smoothness(2.0)
    (-0.5, 2.0, 1.0)
    """

    tag: ClassVar[str] = "Logistic"

    name: ClassVar[str] = "logistic"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    block: ClassVar[Block | None] = staticmethod(_logistic_block)
    second_block: ClassVar[Block | None] = staticmethod(_logistic_second_block)
    derivative_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25
    third_bound: ClassVar[float] = 0.0962250448649377  # 1 / (6 sqrt(3)), rounded up

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.logaddexp(0.0, -np.multiply(y, u))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.asarray(y) * expit(-np.clip(np.multiply(y, u), -LARGEST_EXPONENT, LARGEST_EXPONENT))

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        e = np.exp(-np.minimum(np.abs(np.multiply(y, u)), LARGEST_EXPONENT))
        return np.asarray(e / ((1.0 + e) * (1.0 + e)))


@dataclass(frozen=True)
class Squared(Loss):
    """``(u - y)**2 / 2``; the derivative is not bounded, so a gradient needs a declared clip norm; ``l'' = 1``.

    >>> float(Squared().value(3.0, 1.0)), float(Squared().derivative(3.0, 1.0))
    (2.0, 2.0)
    """

    tag: ClassVar[str] = "Squared"

    name: ClassVar[str] = "squared"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    block: ClassVar[Block | None] = staticmethod(_squared_block)
    second_block: ClassVar[Block | None] = staticmethod(_one_block)
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0
    curvature_range: ClassVar[tuple[float, float]] = (1.0, 1.0)
    third_bound: ClassVar[float] = 0.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return 0.5 * np.subtract(u, y) ** 2

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(np.subtract(u, y), dtype=np.float64)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.ones(np.broadcast(u, y).shape)


@dataclass(frozen=True)
class Huber(Loss):
    """``s**2 / 2`` for ``|s| <= c`` and ``c |s| - c**2 / 2`` beyond, ``s = u - y``; ``|l'| <= c``, ``l'' <= 1``.

    The default ``c = 1.345`` has 95 % efficiency for standard normal noise (Huber 1964).

    >>> float(Huber(1.0).derivative(5.0, 1.0)), float(Huber(1.0).value(5.0, 1.0))
    (1.0, 3.5)
    """

    tag: ClassVar[str] = "Huber"

    threshold: float = 1.345
    name: ClassVar[str] = "huber"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    block: ClassVar[Block | None] = staticmethod(_huber_block)
    second_block: ClassVar[Block | None] = staticmethod(_huber_second_block)
    curvature_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be a positive number, got {self.threshold!r}; try 1.345 noise deviations")

    @property
    def derivative_bound(self) -> float:
        return self.threshold

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        size = np.abs(np.subtract(u, y))
        small = np.minimum(size, self.threshold)
        return small * (size - 0.5 * small)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.clip(np.subtract(u, y), -self.threshold, self.threshold)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.where(np.abs(np.subtract(u, y)) <= self.threshold, 1.0, 0.0)


@dataclass(frozen=True)
class ResidualSquares(Loss):
    """The loss whose curvature is the squared residual, ``l'' = min(|s|, c)**2``, ``s = u - y``.

    ``s**4 / 12`` for ``|s| <= c``, a parabola beyond. Its Hessian ``sum min(|s|, c)**2 x x'`` is the sum of squares of
    the gradients of least squares with residuals cut at c: by how much these vary from row to row (White 1980).

    >>> float(ResidualSquares(2.0).second_derivative(4.0, 1.0)), float(ResidualSquares(2.0).second_derivative(1.5, 1.0))
    (4.0, 0.25)
    """

    tag: ClassVar[str] = "ResidualSquares"

    threshold: float
    name: ClassVar[str] = "residual-squares"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    block: ClassVar[Block | None] = staticmethod(_residual_square_block)
    second_block: ClassVar[Block | None] = staticmethod(_residual_square_second_block)
    derivative_bound: ClassVar[float] = np.inf

    def __post_init__(self) -> None:
        if not 0 < self.threshold < np.inf:
            raise ValueError(f"threshold must be a positive number, got {self.threshold!r}; try 4 noise deviations")

    @property
    def curvature_bound(self) -> float:
        return self.threshold**2

    @property
    def third_bound(self) -> float:
        return 2 * self.threshold

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        size = np.abs(np.subtract(u, y))
        small = np.minimum(size, self.threshold)
        far = size - small
        return np.asarray(small**4 / 12 + far * small**3 / 3 + far**2 * small**2 / 2)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        s = np.subtract(u, y)
        size = np.abs(s)
        small = np.minimum(size, self.threshold)
        return np.asarray(np.sign(s) * small**2 * (size - small * (2 / 3)))

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.minimum(np.abs(np.subtract(u, y)), self.threshold) ** 2


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """Hinge loss ``max(0, 1 - y u)`` whose corner is a parabola of width ``h`` below 1; ``|l'| <= 1``, ``l'' <= 1/h``.

    With ``m = 1 - y u``: 0 for ``m <= 0``, ``m**2 / (2 h)`` for ``m <= h``, ``m - h/2`` beyond.

    >>> float(SmoothedHinge(0.5).value(-1.0, 1.0)), SmoothedHinge(0.5).smoothness(1.0)
    (1.75, 2.0)
    """

    tag: ClassVar[str] = "SmoothedHinge"

    width: float = 0.5
    name: ClassVar[str] = "smoothed-hinge"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    block: ClassVar[Block | None] = staticmethod(_smoothed_hinge_block)
    second_block: ClassVar[Block | None] = staticmethod(_smoothed_hinge_second_block)
    derivative_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.width < np.inf:
            raise ValueError(f"width must be a positive number, got {self.width!r}; try 0.5")

    @property
    def curvature_bound(self) -> float:
        return 1.0 / self.width

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        m = 1.0 - np.multiply(y, u)
        inside = np.clip(m, 0.0, self.width)
        return inside * inside / (2 * self.width) + np.maximum(m - self.width, 0.0)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.asarray(y) * (np.clip(1.0 - np.multiply(y, u), 0.0, self.width) / self.width)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        m = 1.0 - np.multiply(y, u)
        return np.where((m > 0.0) & (m < self.width), 1.0 / self.width, 0.0)

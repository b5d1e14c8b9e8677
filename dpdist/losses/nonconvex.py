"""Losses that are not convex: redescending ones for gross errors, bounded ones for labels, and a saddle.

Constants of seed 003, section 0.3, as corrected (the ranges of ``l''`` are checked on a grid by the tests); every bound
is rounded up, and the ends of every range away from 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpdist.losses.loss import LARGEST_EXPONENT, Block, Floats, Loss, fast_exp

_THRESHOLDS = 1e-60, 1e60  # they have to be squared
_ROOM = 1 + 2.0**-48  # for the rounding of l'
_FARTHEST = 26.0  # exp(-26**2) is a normal number, and no bound is attained there
_SQUARABLE = 2.0**400  # as far out as Cauchy's pull is computed


def _biweight_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        residual = u[i] - y[i]
        residual = residual if residual < threshold else threshold
        residual = residual if residual > -threshold else -threshold
        share = residual / threshold
        weight = 1.0 - share * share
        out[i] = residual * (weight * weight)


def _biweight_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        residual = u[i] - y[i]
        residual = residual if residual < threshold else threshold
        residual = residual if residual > -threshold else -threshold
        share = residual / threshold
        square = share * share
        out[i] = (1.0 - square) * (1.0 - 5.0 * square)


def _sigmoid_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        size = abs(u[i] * y[i])
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        out[i] = -y[i] * (e / ((1.0 + e) * (1.0 + e)))


def _sigmoid_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        curvature = e * (1.0 - e) / ((1.0 + e) * (1.0 + e) * (1.0 + e))
        out[i] = curvature if margin > 0.0 else -curvature


def _squared_probability_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        wrong = (e if margin > 0.0 else 1.0) / (1.0 + e)
        right = (1.0 if margin > 0.0 else e) / (1.0 + e)
        out[i] = -2.0 * y[i] * (wrong * wrong * right)


def _squared_probability_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin)
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        wrong = (e if margin > 0.0 else 1.0) / (1.0 + e)
        right = (1.0 if margin > 0.0 else e) / (1.0 + e)
        out[i] = 2.0 * (wrong * wrong * right) * (2.0 - 3.0 * wrong)


def _welsch_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        share = (u[i] - y[i]) / threshold
        share = share if share < _FARTHEST else _FARTHEST
        share = share if share > -_FARTHEST else -_FARTHEST
        out[i] = threshold * share * fast_exp(-share * share)


def _welsch_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        share = (u[i] - y[i]) / threshold
        share = share if share < _FARTHEST else _FARTHEST
        share = share if share > -_FARTHEST else -_FARTHEST
        square = share * share
        out[i] = (1.0 - 2.0 * square) * fast_exp(-square)


def _cauchy_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        share = (u[i] - y[i]) / threshold
        share = share if share < _SQUARABLE else _SQUARABLE
        share = share if share > -_SQUARABLE else -_SQUARABLE
        out[i] = threshold * share / (1.0 + share * share)


def _cauchy_second_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    threshold = params[0]
    for i in range(n):
        share = (u[i] - y[i]) / threshold
        part = 1.0 / (1.0 + share * share)
        out[i] = (2.0 * part - 1.0) * part


def _negative_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = -u[i]


def _minus_one_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    for i in range(n):
        out[i] = -1.0


@dataclass(frozen=True)
class Redescending(Loss):
    """A loss of ``s = u - y`` whose pull falls again beyond a threshold, so that gross errors in the labels count less.

    Its curvature is largest, 1, where the label is met.
    """

    threshold: float
    labels: ClassVar[Literal["signs", "real"]] = "real"
    convex: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not _THRESHOLDS[0] <= self.threshold <= _THRESHOLDS[1]:
            advice = f"try {fields(self)[0].default} noise deviations"
            raise ValueError(
                f"threshold must be a positive number between 1e-60 and 1e60, got {self.threshold!r}; {advice}"
            )


@dataclass(frozen=True)
class Biweight(Redescending):
    """Tukey's biweight ``c**2/6 (1 - (1 - (s/c)**2)**3)`` for ``|s| <= c``, ``c**2/6`` beyond, ``s = u - y``.

    Not convex: residuals beyond ``c`` have no pull at all, so gross errors in the labels are ignored.
    ``|l'| <= 16 c / (25 sqrt(5))`` (at ``s = c / sqrt(5)``), ``-0.8 <= l'' <= 1``. The default ``c = 4.685`` has 95 %
    efficiency for standard normal noise (Beaton and Tukey 1974); take 4.685 times a public guess of the noise.

    >>> loss = Biweight(2.0)
    >>> float(loss.derivative(5.0, 1.0)), round(loss.derivative_bound, 4), round(float(loss.value(5.0, 1.0)), 4)
    (0.0, 0.5724, 0.6667)
    """

    tag: ClassVar[str] = "Biweight"

    threshold: float = 4.685
    name: ClassVar[str] = "biweight"
    block: ClassVar[Block | None] = staticmethod(_biweight_block)
    second_block: ClassVar[Block | None] = staticmethod(_biweight_second_block)
    curvature_range: ClassVar[tuple[float, float]] = (-0.8, 1.0)

    @property
    def derivative_bound(self) -> float:
        return 16 * self.threshold / (25 * math.sqrt(5)) * _ROOM

    @property
    def third_bound(self) -> float:
        return 8 / self.threshold

    @property
    def value_bound(self) -> float:
        return self.threshold**2 / 6 * _ROOM

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        share = np.clip(np.subtract(u, y) / self.threshold, -1.0, 1.0)
        weight = 1.0 - share * share
        return self.threshold**2 / 6 * (1 - weight * weight * weight)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        residual = np.clip(np.subtract(u, y), -self.threshold, self.threshold)
        share = residual / self.threshold
        weight = 1.0 - share * share
        return residual * (weight * weight)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        square = np.clip(np.subtract(u, y) / self.threshold, -1.0, 1.0) ** 2
        return np.asarray((1.0 - square) * (1.0 - 5.0 * square))


@dataclass(frozen=True)
class Sigmoid(Loss):
    """``1 / (1 + exp(y u))`` for labels -1 and +1: the probability of a wrong answer, a smooth 0-1 loss.

    Bounded, hence hardly moved by rows that are far on the wrong side. ``|l'| <= 1/4``, ``|l''| <= 1 / (6 sqrt(3))``,
    ``|l'''| <= 1/8``.

    >>> float(Sigmoid().value(0.0, 1.0)), float(Sigmoid().derivative(0.0, -1.0))
    (0.5, 0.25)
    """

    tag: ClassVar[str] = "Sigmoid"

    name: ClassVar[str] = "sigmoid"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    convex: ClassVar[bool] = False
    block: ClassVar[Block | None] = staticmethod(_sigmoid_block)
    second_block: ClassVar[Block | None] = staticmethod(_sigmoid_second_block)
    derivative_bound: ClassVar[float] = 0.25 * _ROOM
    curvature_bound: ClassVar[float] = 0.0962250448649377
    curvature_range: ClassVar[tuple[float, float]] = (-0.0962250448649377, 0.0962250448649377)
    third_bound: ClassVar[float] = 0.125
    value_bound: ClassVar[float] = 1.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(expit(-np.multiply(y, u)))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        e = _decay(u, y)
        return -np.asarray(y) * (e / ((1.0 + e) * (1.0 + e)))

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        e = _decay(u, y)
        curvature = e * (1.0 - e) / ((1.0 + e) * (1.0 + e) * (1.0 + e))
        return np.where(np.multiply(y, u) > 0, curvature, -curvature)


@dataclass(frozen=True)
class SquaredProbability(Loss):
    """``(s(u) - t)**2`` with the logistic ``s`` and ``t`` = 1 for the label +1, 0 for -1: a generalised linear model
    by least squares (Brier score).

    It is ``q**2`` for the probability ``q = s(-y u)`` of the other label. ``|l'| <= 8/27``,
    ``-0.1203 <= l'' <= 0.1541`` (at ``q = (15 +- sqrt(33)) / 24``), ``|l'''| <= 0.2021``.

    >>> float(SquaredProbability().value(0.0, 1.0)), float(SquaredProbability().derivative(0.0, 1.0))
    (0.25, -0.25)
    """

    tag: ClassVar[str] = "SquaredProbability"

    name: ClassVar[str] = "glm-squared"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    convex: ClassVar[bool] = False
    block: ClassVar[Block | None] = staticmethod(_squared_probability_block)
    second_block: ClassVar[Block | None] = staticmethod(_squared_probability_second_block)
    derivative_bound: ClassVar[float] = 8 / 27 * _ROOM
    curvature_bound: ClassVar[float] = 0.1540585701203506
    curvature_range: ClassVar[tuple[float, float]] = (-0.1202044034546839, 0.1540585701203506)
    third_bound: ClassVar[float] = 0.2020230091675115
    value_bound: ClassVar[float] = 1.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(expit(-np.multiply(y, u)) ** 2)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        wrong, right = self._chances(u, y)
        return -2.0 * np.asarray(y) * (wrong * wrong * right)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        wrong, right = self._chances(u, y)
        return 2.0 * (wrong * wrong * right) * (2.0 - 3.0 * wrong)

    def _chances(self, u: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
        e, good = _decay(u, y), np.multiply(y, u) > 0
        return np.where(good, e, 1.0) / (1.0 + e), np.where(good, 1.0, e) / (1.0 + e)


@dataclass(frozen=True)
class Welsch(Redescending):
    """``c**2/2 (1 - exp(-(s/c)**2))``, ``s = u - y``: gross errors in the labels have no pull at all.

    ``|l'| <= c / sqrt(2 e)``, ``-2 exp(-3/2) <= l'' <= 1``, ``|l'''| <= 1.9518 / c``. The default ``c = 2.985`` has
    95 % efficiency for standard normal noise (Holland and Welsch 1977); take 2.985 times a public guess of the noise.

    >>> round(Welsch(1.0).derivative_bound, 4), float(Welsch(1.0).value(100.0, 0.0))
    (0.4289, 0.5)
    """

    tag: ClassVar[str] = "Welsch"

    threshold: float = 2.985
    name: ClassVar[str] = "welsch"
    block: ClassVar[Block | None] = staticmethod(_welsch_block)
    second_block: ClassVar[Block | None] = staticmethod(_welsch_second_block)
    curvature_range: ClassVar[tuple[float, float]] = (-0.4462603202968597, 1.0)

    @property
    def derivative_bound(self) -> float:
        return self.threshold / math.sqrt(2 * math.e) * _ROOM

    @property
    def third_bound(self) -> float:
        return 1.951783072769952 / self.threshold

    @property
    def value_bound(self) -> float:
        return self.threshold**2 / 2

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(-(self.threshold**2) / 2 * np.expm1(-(self._share(u, y) ** 2)))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        share = self._share(u, y)
        return np.asarray(self.threshold * share * np.exp(-share * share))

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        square = self._share(u, y) ** 2
        return np.asarray((1.0 - 2.0 * square) * np.exp(-square))

    def _share(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.clip(np.subtract(u, y) / self.threshold, -_FARTHEST, _FARTHEST)


@dataclass(frozen=True)
class Cauchy(Redescending):
    """``c**2/2 log(1 + (s/c)**2)``, ``s = u - y``: the further off a label is, the weaker is its pull.

    ``|l'| <= c / 2``, ``-1/8 <= l'' <= 1``, ``|l'''| <= 1.4572 / c``. The default ``c = 2.385`` has 95 % efficiency for
    standard normal noise (Holland and Welsch 1977); take 2.385 times a public guess of the noise.

    >>> round(Cauchy(2.0).lipschitz(1.0), 12), float(Cauchy(2.0).derivative(3.0, 1.0))
    (1.0, 1.0)
    """

    tag: ClassVar[str] = "Cauchy"

    threshold: float = 2.385
    name: ClassVar[str] = "cauchy"
    block: ClassVar[Block | None] = staticmethod(_cauchy_block)
    second_block: ClassVar[Block | None] = staticmethod(_cauchy_second_block)
    curvature_range: ClassVar[tuple[float, float]] = (-0.125, 1.0)

    @property
    def derivative_bound(self) -> float:
        return self.threshold / 2 * _ROOM

    @property
    def third_bound(self) -> float:
        return 1.457106781186548 / self.threshold

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(self.threshold**2 * np.log(np.hypot(1.0, np.subtract(u, y) / self.threshold)))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        share = np.clip(np.subtract(u, y) / self.threshold, -_SQUARABLE, _SQUARABLE)
        return np.asarray(self.threshold * share / (1.0 + share * share))

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        share = np.subtract(u, y) / self.threshold
        part = 1.0 / (1.0 + share * share)
        return np.asarray((2.0 * part - 1.0) * part)


@dataclass(frozen=True)
class NegativeSquare(Loss):
    """``-u**2 / 2``, whatever the label: with a quartic penalty a strict saddle at 0 whose minima are the first
    principal component and its opposite.

    Not bounded, so a gradient needs a declared clip norm (``r**2`` times the norm of the parameter suffices);
    ``l'' = -1``.

    >>> float(NegativeSquare().derivative(2.0, 0.0)), NegativeSquare().curvature_range
    (-2.0, (-1.0, -1.0))
    """

    tag: ClassVar[str] = "NegativeSquare"

    name: ClassVar[str] = "negative-square"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    convex: ClassVar[bool] = False
    block: ClassVar[Block | None] = staticmethod(_negative_block)
    second_block: ClassVar[Block | None] = staticmethod(_minus_one_block)
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0
    curvature_range: ClassVar[tuple[float, float]] = (-1.0, -1.0)
    third_bound: ClassVar[float] = 0.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(-0.5 * np.multiply(u, u)) + np.zeros_like(y, dtype=np.float64)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return np.asarray(np.negative(u), dtype=np.float64) + np.zeros_like(y, dtype=np.float64)

    def second_derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.ones(np.broadcast(u, y).shape)


def _decay(u: ArrayLike, y: ArrayLike) -> Floats:
    """``exp(-|y u|)``."""
    return np.asarray(np.exp(-np.minimum(np.abs(np.multiply(y, u)), LARGEST_EXPONENT)))

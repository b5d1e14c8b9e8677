"""Smooth generalised linear losses: ``l(u, y) = -y h1(u) + h2(u)``, u the linear predictor.

The label enters linearly. So the gradient ``(h2'(u) - y h1'(u)) x`` needs polynomials of u only where h1' and h2' are
replaced by some, and the mean of ``y x`` tells a good deal by itself (seed 001, definitions 2 and 3, section 4.1).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.losses import LARGEST_EXPONENT, Loss

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GeneralisedLinear(Loss):
    """The negative log-likelihood of an exponential family: h1 the natural parameter, h2 the log-partition function.

    Slopes are all that gradients need; ``mean`` is ``E[y | u]``, where the loss has no slope.
    """

    @abstractmethod
    def natural(self, u: ArrayLike) -> Floats:
        """h1."""

    @abstractmethod
    def natural_slope(self, u: ArrayLike) -> Floats:
        """h1'."""

    @abstractmethod
    def partition(self, u: ArrayLike) -> Floats:
        """h2."""

    @abstractmethod
    def partition_slope(self, u: ArrayLike) -> Floats:
        """h2'."""

    def mean(self, u: ArrayLike) -> Floats:
        """``E[y | u] = h2'(u) / h1'(u)``."""
        return self.partition_slope(u) / self.natural_slope(u)

    @abstractmethod
    def mean_slope(self, u: ArrayLike) -> Floats:
        """The derivative of the mean."""

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self.partition(u) - np.asarray(y) * self.natural(u)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return self.partition_slope(u) - np.asarray(y) * self.natural_slope(u)


@dataclass(frozen=True)
class LogisticModel(GeneralisedLinear):
    """``h1 = u/2``, ``h2 = u/2 + log(1 + e^-u)`` for labels -1 and +1: `dpdist.losses.Logistic` in this form.

    >>> round(float(LogisticModel().value(0.3, -1.0)), 6) == round(float(np.log1p(np.exp(0.3))), 6)
    True
    """

    tag: ClassVar[str] = "LogisticModel"

    name: ClassVar[str] = "logistic"
    labels: ClassVar[Literal["signs", "real"]] = "signs"
    derivative_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25

    def natural(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64) / 2

    def natural_slope(self, u: ArrayLike) -> Floats:
        return np.full_like(u, 0.5, dtype=np.float64)

    def partition(self, u: ArrayLike) -> Floats:
        return np.asarray(u) / 2 + np.logaddexp(0.0, -np.asarray(u, dtype=np.float64))

    def partition_slope(self, u: ArrayLike) -> Floats:
        return np.tanh(np.asarray(u, dtype=np.float64) / 2) / 2

    def mean_slope(self, u: ArrayLike) -> Floats:
        return np.asarray((1 - np.tanh(np.asarray(u, dtype=np.float64) / 2) ** 2) / 2)


@dataclass(frozen=True)
class SquaredModel(GeneralisedLinear):
    """``h1 = u``, ``h2 = u^2 / 2``: half of the squared error, up to ``y^2 / 2``."""

    tag: ClassVar[str] = "SquaredModel"

    name: ClassVar[str] = "squared"
    labels: ClassVar[Literal["signs", "real"]] = "real"
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0

    def natural(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64)

    def natural_slope(self, u: ArrayLike) -> Floats:
        return np.ones_like(u, dtype=np.float64)

    def partition(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64) ** 2 / 2

    def partition_slope(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64)

    def mean_slope(self, u: ArrayLike) -> Floats:
        return np.ones_like(u, dtype=np.float64)


@dataclass(frozen=True)
class PoissonModel(SquaredModel):
    """``h1 = u``, ``h2 = e^u``, for counts; declare the largest count that should matter."""

    tag: ClassVar[str] = "PoissonModel"

    name: ClassVar[str] = "poisson"
    curvature_bound: ClassVar[float] = np.inf

    def partition(self, u: ArrayLike) -> Floats:
        return np.asarray(np.exp(np.clip(u, -LARGEST_EXPONENT, LARGEST_EXPONENT)))

    def partition_slope(self, u: ArrayLike) -> Floats:
        return self.partition(u)

    def mean_slope(self, u: ArrayLike) -> Floats:
        return self.partition(u)


@dataclass(frozen=True)
class CubicModel(SquaredModel):
    """``h1 = u``, ``h2 = u^4 / 12``: labels whose mean is ``u^3 / 3`` (seed 000, section 5.2.4)."""

    tag: ClassVar[str] = "CubicModel"

    name: ClassVar[str] = "cubic"
    curvature_bound: ClassVar[float] = np.inf

    def partition(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64) ** 4 / 12

    def partition_slope(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64) ** 3 / 3

    def mean_slope(self, u: ArrayLike) -> Floats:
        return np.asarray(u, dtype=np.float64) ** 2


MODELS: Mapping[str, GeneralisedLinear] = MappingProxyType(
    {model.name: model for model in (LogisticModel(), SquaredModel(), PoissonModel(), CubicModel())}
)
"""What a loss can be called by name."""

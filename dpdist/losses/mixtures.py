"""Losses of models whose signs were lost: minus the log-likelihood of two symmetric components, times sigma^2.

By Fisher's identity the gradient of such a likelihood is the one that an EM algorithm takes with the sign of a row
replaced by its posterior mean, ``tanh(a)`` (seed 000, (7.45) and (7.47), where the factor 2 in the weight is missing,
so that the truth is no fixed point). They are no losses of a regression, and are not offered by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpdist.losses.loss import LARGEST_EXPONENT, Block, Floats, Loss, fast_exp


def _two_centres_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    double = 2.0 / (params[0] * params[0])
    for i in range(n):
        size = abs(u[i]) * double
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        t = (1.0 - e) / (1.0 + e)
        out[i] = -t if u[i] > 0.0 else t


def _two_lines_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    double = 2.0 / (params[0] * params[0])
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin) * double
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        t = (1.0 - e) / (1.0 + e)
        out[i] = u[i] - y[i] * (t if margin > 0.0 else -t)


def log_cosh(a: ArrayLike) -> Floats:
    """``log cosh a`` without overflow.

    >>> log_cosh([0.0, 1.0, -1e300]).round(4)
    array([0.000e+000, 4.338e-001, 1.000e+300])
    """
    return np.logaddexp(a, -np.asarray(a, dtype=np.float64)) - math.log(2)


@dataclass(frozen=True)
class _Symmetric(Loss):
    noise_std: float
    labels: ClassVar[Literal["signs", "real"]] = "real"
    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.noise_std < np.inf:
            raise ValueError(f"noise_std must be a positive number, got {self.noise_std!r}")


@dataclass(frozen=True)
class TwoCentres(_Symmetric):
    """``-sigma^2 log cosh(u / sigma^2)`` with ``u = <x, w>``: rows around w or -w; labels are not read.

    With ``||w||^2 / 2`` for every row it is minus the log-likelihood of equal normal components, times ``sigma^2``.
    ``|l'| = |tanh(u / sigma^2)| <= 1`` and ``-1 / sigma^2 <= l'' <= 0``.

    >>> loss = TwoCentres(2.0)
    >>> float(loss.derivative(1e300, 0.0)), loss.curvature_range
    (-1.0, (-0.25, 0.0))
    """

    tag: ClassVar[str] = "TwoCentres"
    name: ClassVar[str] = "two-centres"
    derivative_bound: ClassVar[float] = 1.0
    block: ClassVar[Block | None] = staticmethod(_two_centres_block)

    @property
    def curvature_bound(self) -> float:
        return 1 / self.noise_std**2

    @property
    def curvature_range(self) -> tuple[float, float]:
        return -self.curvature_bound, 0.0

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        square = self.noise_std**2
        return -square * log_cosh(np.asarray(u) / square)

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        return -np.tanh(np.asarray(u) / self.noise_std**2)


def _signed_labels_block(u: Any, y: Any, params: Any, out: Any, n: int) -> None:
    double = 2.0 / (params[0] * params[0])
    for i in range(n):
        margin = u[i] * y[i]
        size = abs(margin) * double
        size = size if size < LARGEST_EXPONENT else LARGEST_EXPONENT
        e = fast_exp(-size)
        t = (1.0 - e) / (1.0 + e)
        out[i] = -y[i] * (t if margin > 0.0 else -t)


@dataclass(frozen=True)
class SignedLabels(_Symmetric):
    """``-sigma^2 log cosh(y u / sigma^2)``: `TwoLines` without the square, whose derivative is minus the signed label.

    >>> SignedLabels(1.0).derivative([-3.0, 3.0], 3.0).round(3)
    array([ 3., -3.])
    """

    tag: ClassVar[str] = "SignedLabels"
    name: ClassVar[str] = "signed-labels"
    derivative_bound: ClassVar[float] = math.inf
    curvature_bound: ClassVar[float] = math.inf
    block: ClassVar[Block | None] = staticmethod(_signed_labels_block)

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        square = self.noise_std**2
        return np.asarray(-square * log_cosh(np.multiply(y, u) / square))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        u, y = np.asarray(u, dtype=np.float64), np.asarray(y, dtype=np.float64)
        return np.asarray(-y * np.tanh(y * u / self.noise_std**2))


@dataclass(frozen=True)
class TwoLines(_Symmetric):
    """``u^2 / 2 - sigma^2 log cosh(y u / sigma^2)``: labels around ``u = <x, w>`` or around ``-u``.

    ``l' = u - y tanh(y u / sigma^2)``, at most ``|u| + |y|``, without a bound; contributions have to be bounded.

    >>> loss = TwoLines(1.0)
    >>> loss.derivative([3.0, -3.0], 3.0).round(3) + 0.0
    array([0., 0.])
    """

    tag: ClassVar[str] = "TwoLines"
    name: ClassVar[str] = "two-lines"
    derivative_bound: ClassVar[float] = math.inf
    curvature_bound: ClassVar[float] = math.inf
    block: ClassVar[Block | None] = staticmethod(_two_lines_block)

    def value(self, u: ArrayLike, y: ArrayLike) -> Floats:
        u, square = np.asarray(u, dtype=np.float64), self.noise_std**2
        return np.asarray(u * u / 2 - square * log_cosh(np.multiply(y, u) / square))

    def derivative(self, u: ArrayLike, y: ArrayLike) -> Floats:
        u, y = np.asarray(u, dtype=np.float64), np.asarray(y, dtype=np.float64)
        return np.asarray(u - y * np.tanh(y * u / self.noise_std**2))

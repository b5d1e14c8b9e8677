"""Losses with a public range, for `dpdist.local.surfaces.risk_surface.RiskSurface`: any shape, convex or not."""

from __future__ import annotations

import math
import numbers
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import check_between, check_bound
from dpdist.kernels.clip import clip_l2
from dpdist.method import Choice, by_name

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SurfaceLoss(Choice):
    """A loss of a record at a parameter, whose values lie in a public range whatever the record is."""

    parameter = "loss"

    labelled: ClassVar[bool] = False
    """Whether a record has a label."""

    @abstractmethod
    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        """The range of the values, for parameters in ``[low, high]``; values outside are moved to its ends."""

    @abstractmethod
    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        """One value for each row of w and X (and y)."""


@dataclass(frozen=True)
class WelschLocation(SurfaceLoss):
    """``1 - exp(-|x - w|^2 / (2 scale^2))``: a location that far records cannot move; not convex.

    Parameters
    ----------
    scale : float, default 0.35
    """

    tag, name = "WelschLocation", "welsch"

    scale: float = 0.35

    def __post_init__(self) -> None:
        check_bound("scale", self.scale)

    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        return 0.0, 1.0

    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(-np.expm1(-((X - w) ** 2).sum(axis=1) / (2 * self.scale**2)))


@dataclass(frozen=True)
class QuantileLoss(SurfaceLoss):
    """``sum_j max(q (x_j - w_j), (q - 1) (x_j - w_j))``: the q-quantile of every column, the median by default.

    Parameters
    ----------
    q : float in (0, 1), default 0.5
    """

    tag, name = "QuantileLoss", "quantile"

    q: float = 0.5

    def __post_init__(self) -> None:
        check_between("q", self.q, 1e-6, 1 - 1e-6)

    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        return 0.0, n_features * max(self.q, 1 - self.q) * (high - low)

    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        away = X - w
        return np.asarray(np.maximum(self.q * away, (self.q - 1) * away).sum(axis=1))


@dataclass(frozen=True)
class AbsoluteLoss(SurfaceLoss):
    """``sum_j |x_j - w_j|``: the median of every column, and how far records are from it."""

    tag, name = "AbsoluteLoss", "absolute"

    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        return 0.0, n_features * (high - low)

    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        return np.asarray(np.abs(X - w).sum(axis=1))


@dataclass(frozen=True)
class LogisticSurface(SurfaceLoss):
    """``log(1 + exp(-s <w, x>))`` for rows of norm at most ``row_norm``; s is 1 for labels above 0, else -1.

    Parameters
    ----------
    row_norm : float, default 1
    """

    tag, name = "LogisticSurface", "logistic"

    labelled: ClassVar[bool] = True

    row_norm: float = 1.0

    def __post_init__(self) -> None:
        check_bound("row_norm", self.row_norm)

    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        longest = self.row_norm * max(abs(low), abs(high)) * math.sqrt(n_features)
        return 0.0, float(np.logaddexp(0.0, longest))

    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        assert y is not None
        margins = np.where(y > 0, 1.0, -1.0) * (w * clip_l2(X, self.row_norm)).sum(axis=1)
        return np.asarray(np.logaddexp(0.0, -margins))


@dataclass(frozen=True)
class CustomLoss(SurfaceLoss):
    """A loss of your own.

    The number of a record must depend on nothing but that record, or its report would tell of others; a few made-up
    records are tried before anybody is asked. A record for which the function fails counts as the middle of the range.

    Parameters
    ----------
    function : callable
        ``function(w, X)``, or ``function(w, X, y)`` with labels: arrays of m parameters and m records to m numbers.
        Named by `dpdist.identity.tagged`.
    smallest, largest : float
        Public range of its values. Required.
    with_labels : bool
    """

    tag, name = "CustomLoss", "custom"

    function: Callable[..., Any] | None = None
    smallest: float | None = None
    largest: float | None = None
    with_labels: bool = False

    def __post_init__(self) -> None:
        for name in ("smallest", "largest"):
            if not isinstance(getattr(self, name), numbers.Real | None):
                raise BudgetError(f"{name} must be a number, got {getattr(self, name)!r}")
        stated = None not in (self.smallest, self.largest)
        if stated and not -1e60 < float(self.smallest or 0) < float(self.largest or 0) < 1e60:
            raise BudgetError(
                f"a loss has a range: smallest must lie below largest, got {self.smallest!r} and {self.largest!r}"
            )

    @property
    def labelled(self) -> bool:  # type: ignore[override]
        return self.with_labels

    def bounds(self, low: float, high: float, n_features: int) -> tuple[float, float]:
        if not callable(self.function):
            raise BudgetError(f"CustomLoss needs a function of (w, X), got function={self.function!r}")
        if self.smallest is None or self.largest is None:
            raise MissingBound(
                "a loss has a range: pass CustomLoss(function, smallest, largest), the public range of its values; "
                "values outside are moved to its ends"
            )
        return float(self.smallest), float(self.largest)

    def __call__(self, w: Floats, X: Floats, y: Floats | None) -> Floats:
        assert self.function is not None
        return np.asarray(self.function(w, X, y) if self.with_labels else self.function(w, X))


LOSSES = by_name(WelschLocation, AbsoluteLoss, QuantileLoss, LogisticSurface, CustomLoss)

"""Sets and penalties: what the parameter may be, and what it costs.

A constraint knows how to ``project``; a penalty knows its ``value`` and its proximal step. `proximal` joins one of
each into the single map that a proximal-gradient loop applies after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Constraint(Protocol):
    """A convex set of parameters."""

    def project(self, v: Vector) -> Vector:
        """The nearest point of the set."""
        ...


class Penalty(Protocol):
    """A convex function added to the mean loss; public, hence free."""

    @property
    def strong_convexity(self) -> float:
        """The largest a for which ``value(w) - a ||w||^2 / 2`` is convex."""
        ...

    def value(self, w: Vector) -> float:
        """The penalty at w."""
        ...

    def prox(self, v: Vector, step: float) -> Vector:
        """``argmin_w  ||w - v||^2 / (2 step) + value(w)``."""
        ...


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def soft_threshold(v: Vector, threshold: float) -> Vector:
    """Shrink every entry towards 0 by ``threshold``.

    Examples
    --------
    >>> soft_threshold(np.array([3.0, -0.5]), 1.0)
    array([ 2., -0.])
    """
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)


def project_simplex(v: Vector, total: float = 1.0) -> Vector:
    """Euclidean projection on ``{w >= 0, sum w = total}`` by sorting (Held, Wolfe and Crowder 1974).

    Examples
    --------
    >>> project_simplex(np.array([1.0, 0.0]))
    array([1., 0.])
    """
    ordered = np.sort(v)[::-1]
    excess = np.cumsum(ordered) - total
    kept = np.nonzero(ordered * np.arange(1, v.size + 1) > excess)[0][-1]
    return np.maximum(v - excess[kept] / (kept + 1), 0.0)


@dataclass(frozen=True)
class L2Ball:
    """``||w||_2 <= radius``."""

    radius: float

    def __post_init__(self) -> None:
        _check_positive("radius", self.radius)

    def project(self, v: Vector) -> Vector:
        norm = float(np.linalg.norm(v))
        return v if norm <= self.radius else v * (self.radius / norm)


@dataclass(frozen=True)
class L1Ball:
    """``||w||_1 <= radius``."""

    radius: float

    def __post_init__(self) -> None:
        _check_positive("radius", self.radius)

    def project(self, v: Vector) -> Vector:
        size = np.abs(v)
        return v if size.sum() <= self.radius else np.sign(v) * project_simplex(size, self.radius)


@dataclass(frozen=True)
class Box:
    """``low <= w_j <= high`` for every coordinate."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"low must not exceed high, got {self.low!r} and {self.high!r}")

    def project(self, v: Vector) -> Vector:
        return np.clip(v, self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """``w >= 0`` and ``sum w = total``."""

    total: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("total", self.total)

    def project(self, v: Vector) -> Vector:
        return project_simplex(v, self.total)


@dataclass(frozen=True)
class ElasticNet:
    """``alpha (l1_ratio ||w||_1 + (1 - l1_ratio)/2 ||w||_2^2)``, as scikit-learn's ``SGDClassifier`` counts it.

    ``l1_ratio=0`` is ridge, ``l1_ratio=1`` is the lasso penalty.
    """

    alpha: float
    l1_ratio: float = 0.0

    @property
    def strong_convexity(self) -> float:
        return self.alpha * (1 - self.l1_ratio)

    def value(self, w: Vector) -> float:
        l1 = self.alpha * self.l1_ratio * float(np.abs(w).sum())
        return l1 + 0.5 * self.strong_convexity * float(w @ w)

    def prox(self, v: Vector, step: float) -> Vector:
        return soft_threshold(v, step * self.alpha * self.l1_ratio) / (1 + step * self.strong_convexity)


def proximal(
    penalty: Penalty | None, constraint: Constraint | None, n_penalised: int
) -> Callable[[Vector, float], Vector]:
    """The step ``(v, step) -> w`` of penalty plus constraint on the first ``n_penalised`` entries; the rest is free.

    Shrinking first and projecting afterwards is the exact proximal map of the sum for ridge with any convex set, and
    for the l1 penalty with an l2 ball, an l1 ball or a box around 0 (Yu 2013). On the simplex the l1 norm is a
    constant, so there the l1 part is left out.
    """

    def step_map(v: Vector, step: float) -> Vector:
        head = v[:n_penalised]
        if penalty is not None:
            shrinks = not (isinstance(constraint, Simplex) and isinstance(penalty, ElasticNet))
            head = penalty.prox(head, step) if shrinks else head / (1 + step * penalty.strong_convexity)
        if constraint is not None:
            head = constraint.project(head)
        return np.concatenate([head, v[n_penalised:]])

    return step_map

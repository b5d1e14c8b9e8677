"""Sets and penalties: what the parameter may be, and what it costs.

A constraint knows how to ``project``; a penalty knows its ``value`` and its proximal step. `proximal` joins one of
each into the single map that a proximal-gradient loop applies after every step.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dpdist.mirror_maps import Mirror, entropy_mirror, euclidean_mirror

Vector = NDArray[np.float64]


class Constraint(Protocol):
    """A convex set of parameters.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> class NotNegative:
    ...     tag = "NotNegative"  # names what was fitted: never change it
    ...     def project(self, v):
    ...         return np.maximum(v, 0.0)
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, constraint=NotNegative(), fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[0., 4., 0., 0.]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    def project(self, v: Vector) -> Vector:
        """The nearest point of the set."""
        ...


class Penalty(Protocol):
    """A convex function added to the mean loss; public, hence free.

    Examples
    --------
    >>> from dpdist import Minimizer
    >>> class NearOne:
    ...     tag, strong_convexity = "NearOne", 0.1
    ...     def value(self, w):
    ...         return 0.05 * float(((w - 1.0) ** 2).sum())
    ...     def prox(self, v, step):
    ...         return (v + 0.1 * step) / (1 + 0.1 * step)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) / 3
    >>> y = np.where(X[:, 0] + rng.logistic(size=20_000) > 0, 1, -1)
    >>> model = Minimizer("logistic", NearOne(), row_norm=1.0, fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([1. , 0.8])
    """

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


class SmoothPenalty(Protocol):
    """A smooth function added to the mean loss, convex or not: public, hence free and never in a sensitivity.

    One whose range of curvature holds on a ball around 0 only says so by its ``radius``; the constraint then has to
    keep the coefficients in there.

    Examples
    --------
    >>> from dpdist import Minimizer
    >>> class Ridges:
    ...     tag, curvature_range = "Ridges", (0.0, 0.1)
    ...     strengths = np.array([0.0, 0.1])
    ...     def value(self, w):
    ...         return 0.5 * float(self.strengths @ w**2)
    ...     def gradient(self, w):
    ...         return self.strengths * w
    ...     def hessian(self, w):
    ...         return np.diag(self.strengths)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2)) / 3
    >>> y = np.where(X @ [2.0, 2.0] + rng.logistic(size=20_000) > 0, 1, -1)
    >>> model = Minimizer("logistic", Ridges(), row_norm=1.0, fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([1.8, 0.4])
    """

    @property
    def curvature_range(self) -> tuple[float, float]:
        """Between which numbers all eigenvalues of the Hessian lie."""
        ...

    def value(self, w: Vector) -> float:
        """The penalty at w."""
        ...

    def gradient(self, w: Vector) -> Vector:
        """Its gradient."""
        ...

    def hessian(self, w: Vector) -> Vector:
        """Its matrix of second derivatives."""
        ...


def is_proximal(penalty: object) -> TypeGuard[Penalty]:
    """Whether a penalty has a proximal step."""
    return callable(getattr(penalty, "prox", None))


def is_smooth(penalty: object) -> TypeGuard[SmoothPenalty]:
    """Whether a penalty has what a smooth one has.

    >>> is_smooth(GemanMcClure(1.0)), is_smooth(ElasticNet(1.0)), is_smooth(L2Ball(1.0))
    (True, False, False)
    """
    has = [callable(getattr(penalty, name, None)) for name in ("value", "gradient", "hessian")]
    return all(has) and hasattr(penalty, "curvature_range")


def _check_positive(name: str, value: float) -> None:
    if not (isinstance(value, numbers.Real) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def soft_threshold(v: Vector, threshold: float | Vector) -> Vector:
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


def hard_threshold(v: Vector, n_nonzero: int) -> Vector:
    """Keep the ``n_nonzero`` largest entries in absolute value, of equal ones the first; the others become 0.

    Examples
    --------
    >>> hard_threshold(np.array([1.0, -3.0, 1.0, 0.5]), 2)
    array([ 1., -3.,  0.,  0.])
    """
    kept = np.argsort(-np.abs(v), kind="stable")[:n_nonzero]
    sparse = np.zeros_like(v)
    sparse[kept] = v[kept]
    return sparse


@dataclass(frozen=True)
class L2Ball:
    """``||w||_2 <= radius``.

    Examples
    --------
    >>> L2Ball(1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    tag: ClassVar[str] = "L2Ball"

    radius: float

    def __post_init__(self) -> None:
        _check_positive("radius", self.radius)

    def project(self, v: Vector) -> Vector:
        norm = float(np.linalg.norm(v))
        return v if norm <= self.radius else v * (self.radius / norm)

    def lmo(self, g: Vector) -> Vector:
        """The point with the smallest inner product with g; 0 where all are alike."""
        norm = float(np.linalg.norm(g))
        return g * (-self.radius / norm) if norm > 0 else np.zeros_like(g)

    def mirror(self, size: int) -> Mirror:
        """Projected steps from 0."""
        return euclidean_mirror(self.project, np.zeros(size), self.radius)


@dataclass(frozen=True)
class L1Ball:
    """``||w||_1 <= radius``.

    Examples
    --------
    >>> L1Ball(1.0).project(np.array([2.0, 0.2, 0.9]))
    array([1., 0., 0.])
    """

    tag: ClassVar[str] = "L1Ball"

    radius: float

    def __post_init__(self) -> None:
        _check_positive("radius", self.radius)

    def project(self, v: Vector) -> Vector:
        size = np.abs(v)
        return v if size.sum() <= self.radius else np.sign(v) * project_simplex(size, self.radius)

    def vertex(self, index: int, size: int) -> Vector:
        """``-radius e_j`` for ``index = j < size``, ``radius e_j`` for ``size + j``.

        >>> L1Ball(2.0).vertex(4, 3)
        array([0., 2., 0.])
        """
        v = np.zeros(size)
        v[index % size] = -self.radius if index < size else self.radius
        return v

    def lmo(self, g: Vector) -> Vector:
        """The vertex with the smallest inner product with g."""
        return self.vertex(int(np.argmax(np.concatenate([g, -g]))), g.size)

    def mirror(self, size: int) -> Mirror:
        """Entropic steps from 0 on the weights of the ``2 size`` vertices."""

        def weigh(w: Vector) -> Vector:
            spare = max(self.radius - float(np.abs(w).sum()), 0.0) / (2 * size)
            return np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]) + spare

        return entropy_mirror(
            self.radius, 2 * size, lambda u: u[:size] - u[size:], lambda g: np.concatenate([g, -g]), weigh
        )

    def sparse_mirror(self, size: int) -> Mirror:
        """The same with a weight for 0, so that weights of the vertices add up to the l1 norm of the point, or more.

        An l1 penalty then multiplies all of them by one number (`Mirror.shrink`).

        >>> ball = L1Ball(1.0).sparse_mirror(2)
        >>> state = ball.step(ball.start, np.array([-2.0, 0.0]))
        >>> ball.point(state).round(3), ball.point(ball.shrink(state, 3.0)).round(3)
        (array([0.689, 0.   ]), array([0.245, 0.   ]))
        """

        def weigh(w: Vector) -> Vector:
            spare = max(self.radius - float(np.abs(w).sum()), 0.0) / (2 * size + 1)
            return np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0), [0.0]]) + spare

        def shrink(logs: Vector, amount: float) -> Vector:
            return np.append(logs[:-1] - self.radius * amount, logs[-1])

        mirror = entropy_mirror(
            self.radius, 2 * size + 1, lambda u: u[:size] - u[size:-1], lambda g: np.concatenate([g, -g, [0.0]]), weigh
        )
        return replace(mirror, shrink=shrink)


@dataclass(frozen=True)
class Box:
    """``low <= w_j <= high`` for every coordinate.

    Examples
    --------
    >>> Box(-1.0, 2.0).project(np.array([3.0, -4.0, 0.5]))
    array([ 2. , -1. ,  0.5])
    """

    tag: ClassVar[str] = "Box"

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"low must not exceed high, got {self.low!r} and {self.high!r}")

    def project(self, v: Vector) -> Vector:
        return np.clip(v, self.low, self.high)

    def lmo(self, g: Vector) -> Vector:
        """The vertex with the smallest inner product with g.

        >>> Box(-1.0, 2.0).lmo(np.array([0.5, -3.0]))
        array([-1.,  2.])
        """
        return np.where(g > 0, self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """``w >= 0`` and ``sum w = total``.

    Examples
    --------
    >>> Simplex().project(np.array([0.9, 0.5, -0.2])).round(9)
    array([0.7, 0.3, 0. ])
    """

    tag: ClassVar[str] = "Simplex"

    total: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("total", self.total)

    def project(self, v: Vector) -> Vector:
        return project_simplex(v, self.total)

    def vertex(self, index: int, size: int) -> Vector:
        """``total e_index``."""
        v = np.zeros(size)
        v[index] = self.total
        return v

    def lmo(self, g: Vector) -> Vector:
        """The vertex with the smallest inner product with g."""
        return self.vertex(int(np.argmin(g)), g.size)

    def mirror(self, size: int) -> Mirror:
        """Entropic steps from the centre."""
        return entropy_mirror(self.total, size, lambda u: u, lambda g: g, lambda w: np.maximum(w, 0.0))


@dataclass(frozen=True)
class ElasticNet:
    """``alpha (l1_ratio ||w||_1 + (1 - l1_ratio)/2 ||w||_2^2)``, as scikit-learn's ``SGDClassifier`` counts it.

    ``l1_ratio=0`` is ridge, ``l1_ratio=1`` is the lasso penalty.

    Examples
    --------
    >>> lasso = ElasticNet(0.5, l1_ratio=1.0)
    >>> lasso.value(np.array([3.0, -1.5])), lasso.prox(np.array([3.0, -1.5]), step=2.0)
    (2.25, array([ 2. , -0.5]))
    """

    tag: ClassVar[str] = "ElasticNet"

    alpha: float
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.alpha < np.inf and 0 <= self.l1_ratio <= 1):
            raise ValueError(
                f"alpha must be a finite number of at least 0 and l1_ratio lie in [0, 1], got {self.alpha!r} and "
                f"{self.l1_ratio!r}"
            )

    @property
    def strong_convexity(self) -> float:
        return self.alpha * (1 - self.l1_ratio)

    def value(self, w: Vector) -> float:
        l1 = self.alpha * self.l1_ratio * float(np.abs(w).sum())
        return l1 + 0.5 * self.strong_convexity * float(w @ w)

    def prox(self, v: Vector, step: float) -> Vector:
        return soft_threshold(v, step * self.alpha * self.l1_ratio) / (1 + step * self.strong_convexity)


@dataclass(frozen=True)
class GemanMcClure:
    """``alpha sum_j w_j^2 / (1 + w_j^2)``: pulls small entries to 0 and hardly touches large ones; not convex.

    ``|r'| <= 0.6496 alpha`` and ``|r'''| <= 4.67 alpha`` in each coordinate (seed 003, section 0.3).

    >>> float(GemanMcClure(2.0).value(np.array([0.0, 1.0]))), GemanMcClure(2.0).curvature_range
    (1.0, (-1.0, 4.0))
    """

    tag: ClassVar[str] = "GemanMcClure"

    alpha: float

    def __post_init__(self) -> None:
        _check_positive("alpha", self.alpha)

    @property
    def curvature_range(self) -> tuple[float, float]:
        return -self.alpha / 2, 2 * self.alpha

    @property
    def third_bound(self) -> float:
        """How fast the Hessian changes."""
        return 4.67 * self.alpha

    def value(self, w: Vector) -> float:
        return self.alpha * float(np.sum(w * w / (1 + w * w)))

    def gradient(self, w: Vector) -> Vector:
        return 2 * self.alpha * w / (1 + w * w) ** 2

    def hessian(self, w: Vector) -> Vector:
        return np.diag(2 * self.alpha * (1 - 3 * w * w) / (1 + w * w) ** 3)


@dataclass(frozen=True)
class Quartic:
    """``alpha ||w||_2^4 / 4`` on the ball of ``radius``: keeps a saddle from falling for ever.

    >>> float(Quartic(1.0).value(np.array([1.0, 0.0]))), Quartic(1.0, radius=2.0).curvature_range
    (0.25, (0.0, 12.0))
    """

    tag: ClassVar[str] = "Quartic"

    alpha: float
    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("alpha", self.alpha)
        _check_positive("radius", self.radius)

    @property
    def curvature_range(self) -> tuple[float, float]:
        return 0.0, 3 * self.alpha * self.radius**2

    @property
    def third_bound(self) -> float:
        """How fast the Hessian changes on the ball."""
        return 6 * self.alpha * self.radius

    def value(self, w: Vector) -> float:
        return self.alpha / 4 * float(w @ w) ** 2

    def gradient(self, w: Vector) -> Vector:
        return self.alpha * float(w @ w) * w

    def hessian(self, w: Vector) -> Vector:
        return self.alpha * (float(w @ w) * np.eye(w.size) + 2 * np.outer(w, w))


def largest_norm(constraint: Constraint | None, size: int) -> float:
    """A bound of ``||w||_2`` on a set; infinite where none is known.

    >>> largest_norm(Box(-1.0, 0.5), 4), largest_norm(None, 4)
    (2.0, inf)
    """
    if isinstance(constraint, L1Ball | L2Ball):
        return constraint.radius
    if isinstance(constraint, Simplex):
        return constraint.total
    if isinstance(constraint, Box):
        return math.sqrt(size) * max(abs(constraint.low), abs(constraint.high))
    return math.inf


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

"""Projected gradient steps on a bounded set, and steps along negative curvature where gradients say no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.trust_region import Asked, Known, shrunken

Vector = NDArray[np.float64]
Project = Callable[[Vector], Vector]

FARTHEST = 0.5
"""Part of the way to the best point of a quadratic model that a step may go, at most."""
DECAY = 0.5
"""Last part of the rounds over which gradient steps fall to 0."""
_ROUNDS, _STEPS, _HALVINGS = 20, 100, 40
"""Of alternating projections, of projected steps on a quadratic model, and of the search for the border."""
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class End:
    """Where a walk ended, and what was released there: the length of its gradient mapping and its least curvature."""

    point: Vector
    length: float
    lowest: float


def project_downhill(project: Project, v: Vector, x: Vector, g: Vector) -> Vector:
    """A point of the set near v, no farther up along g than x (which is in the set), by alternating projections.

    >>> project_downhill(lambda v: np.clip(v, -1, 1), np.array([3.0, 3.0]), np.zeros(2), np.array([1.0, 1.0])).round(2)
    array([0., 0.])
    """
    square = float(g @ g)
    if square == 0:
        return project(v)
    p, q, u = np.zeros_like(v), np.zeros_like(v), v
    for _ in range(_ROUNDS):  # Boyle and Dykstra 1986
        inside = project(u + p)
        p, before = u + p - inside, inside
        u = inside + q - g * (max(0.0, float(g @ (inside + q - x))) / square)
        q = before + q - u
        if np.abs(u - before).max() <= _TOLERANCE * (1 + np.abs(u).max()):
            break
    inside = project(u)
    # the last bit: x is in the set, so the way to it is
    above = float(g @ (inside - x))
    return inside if above <= 0 else x


def quadratic_over_set(H: Vector, g: Vector, x: Vector, project: Project, diameter: float) -> tuple[Vector, float]:
    """A point u of the set with small ``q(u) = (u - x)' H (u - x)`` and ``<g, u - x> <= 0``, and ``q(u)``.

    Looked for from x both ways along the lowest curvature, as far as the set goes, and from there by projected gradient
    steps: no guarantee that it is the least one, and none is needed, because a step there is as private as any.

    >>> u, least = quadratic_over_set(np.diag([1.0, -1.0]), np.zeros(2), np.zeros(2), lambda v: np.clip(v, -1, 2), 6.0)
    >>> u.round(6), round(least, 6)
    (array([0., 2.]), -4.0)
    """
    e, Q = np.linalg.eigh(H)
    best, least = x, 0.0
    steep = max(float(np.abs(e).max()), 1e-300)
    for side in (1.0, -1.0):
        way = side * diameter * Q[:, 0]
        border = x + _longest(x, way, project) * way
        if float(g @ (border - x)) <= 0 and (value := float((border - x) @ H @ (border - x))) < least:
            best, least = border, value
        u = project_downhill(project, x + way, x, g)
        for _ in range(_STEPS):
            value = float((u - x) @ H @ (u - x))
            if value < least:
                best, least = u, value
            moved = project_downhill(project, u - H @ (u - x) / steep, x, g)
            if np.abs(moved - u).max() <= _TOLERANCE * (1 + np.abs(u).max()):
                break
            u = moved
    return best, least


def _longest(x: Vector, way: Vector, project: Project) -> float:
    """The largest t in [0, 1] for which ``x + t way`` is in the set, to the last bits that a projection has."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        t = (low + high) / 2
        point = x + t * way
        outside = np.abs(project(point) - point).max() > _TOLERANCE * (1 + np.abs(point).max())
        low, high = (low, t) if outside else (t, high)
    return low


def model_step(g: Vector, H: Vector, way: Vector, third: float) -> float:
    """How far to go along ``way``: the least value of ``t <g, way> + t^2 way' H way / 2 + t^3 third |way|^3 / 6``.

    That is a bound of the objective where ``third`` bounds how fast its Hessian changes. `FARTHEST` at most.

    >>> model_step(np.zeros(1), np.array([[-3.0]]), np.ones(1), 60.0)
    0.1
    """
    slope, bend = min(float(g @ way), 0.0), float(way @ H @ way)
    cube = third * float(np.linalg.norm(way)) ** 3
    if not math.isfinite(cube) or cube == 0:
        return FARTHEST
    return min(FARTHEST, (-bend + math.sqrt(bend**2 - 2 * cube * slope)) / cube)


def escape_saddles(
    x0: Vector,
    project: Project,
    diameter: float,
    step: float,
    n_rounds: int,
    n_hessians: int,
    third: float = math.inf,
    small: float = math.inf,
    enough: float = math.inf,
) -> Generator[Asked, Known, End]:
    """Projected gradient steps; where one is short, a Hessian says whether there is a way down.

    A Hessian is asked for where the gradient mapping is at most ``small``, and after one that showed no way down not
    before ``n_rounds / n_hessians`` more rounds; the last one, as the last gradient, is for the point that is returned.
    The edge ``s sqrt(2 d)`` of the noise's spectrum is added to all curvatures, so that steps go only along directions
    that stand out of the noise.

    Parameters
    ----------
    x0 : array
        Public start, in the set.
    project : callable
    diameter : float
        Of the set.
    step : float
        Of gradient steps, which fall to 0 over the last half of the rounds.
    n_rounds, n_hessians : int
        At least 1 each.
    third : float, optional
        Bound on how fast the Hessian changes.
    small : float, optional
    enough : float, optional
        End before the last round at a point whose mapping is at most ``small`` and whose least curvature is at least
        this: a function of released values.

    Yields
    ------
    Asked
        And is sent a `Known`, penalties included.
    """
    x, left, following, apart = x0, n_hessians, 0, math.ceil(n_rounds / n_hessians)
    for t in range(n_rounds):
        gradient = yield Asked("gradient", x)
        length = step * min(1.0, (n_rounds - t) / (DECAY * n_rounds))
        moved = project(x - length * gradient.value)
        mapped = float(np.linalg.norm(moved - x)) / length
        last = t == n_rounds - 1
        if last or (left > 1 and t >= following and mapped <= small):
            hessian = yield Asked("hessian", x)
            lowest, left = float(np.linalg.eigvalsh(hessian.value)[0]), left - 1
            if last or (mapped <= small and lowest >= enough):
                return End(x, mapped, lowest)
            safe = hessian.value + hessian.std * math.sqrt(2 * len(x)) * np.eye(len(x))
            g = shrunken(gradient)
            goal, value = quadratic_over_set(safe, g, x, project, diameter)
            if value < 0:
                moved = x + model_step(g, safe, goal - x, third) * (goal - x)
            else:
                following = t + apart
        x = moved
    raise AssertionError("the last round returns")

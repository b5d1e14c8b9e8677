"""The geometry of bounded sets, as mirror descent needs it: steps by a Bregman divergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Mirror:
    """The geometry of a bounded set, as mirror descent needs it (Nemirovski and Yudin 1983).

    A constraint of your own takes part by having a method ``mirror(size)`` that returns one of these. V is the Bregman
    divergence of the mirror map, with ``V(w, z) >= (||w - z|| / radius)^2 / 2`` on the set.

    Attributes
    ----------
    norm : 1 or 2
        Which norm that is; smoothness is measured in it.
    radius : float
    divergence : float
        ``V(w, start)`` at most.
    width : float
        ``radius^2 E ||b||_*^2`` at most, b standard normal and ``||.||_*`` the dual norm: what noise in the gradient
        costs.
    start : state
        Public; a state is a point, or whatever `point` makes one of.
    step : callable
        ``(state, g)`` to the state of ``argmin_{w in set} V(w, z) + <g, w>``.
    point : callable
        The point of a state.
    at : callable, optional
        A point of the set to its state and ``V(w, point)`` at most: where steps may begin elsewhere.
    shrink : callable, optional
        ``(state, amount)`` to the state of ``argmin_{w in set} V(w, z) + amount ||w||_1``: an l1 penalty after a step.
    """

    norm: int
    radius: float
    divergence: float
    width: float
    start: Any
    step: Callable[[Any, Vector], Any]
    point: Callable[[Any], Vector]
    at: Callable[[Vector], tuple[Any, float]] | None = None
    shrink: Callable[[Any, float], Any] | None = None

    def from_point(self, point: Vector) -> Mirror:
        """The same from another point of the set; `ValueError` where the geometry has no steps from there."""
        if self.at is None:
            raise ValueError("this set has one start, its own")
        start, divergence = self.at(point)
        if not math.isfinite(divergence):
            raise ValueError("steps that multiply weights never leave the border of the set")
        return replace(self, start=start, divergence=divergence)

    def with_free(self, scale: float, start: float = 0.0) -> Mirror:
        """The same for one more coordinate, which is not bounded and moves in steps of ``scale^2 g``."""
        shrink = self.shrink
        return replace(
            self,
            start=(self.start, start),
            step=lambda state, g: (self.step(state[0], g[:-1]), state[1] - scale**2 * float(g[-1])),
            point=lambda state: np.append(self.point(state[0]), state[1]),
            shrink=None if shrink is None else lambda state, amount: (shrink(state[0], amount), state[1]),
        )


def euclidean_mirror(project: Callable[[Vector], Vector], start: Vector, radius: float) -> Mirror:
    """Projected steps, ``V(w, z) = ||w - z||_2^2 / (2 radius^2)``: mirror descent on any set that can be projected on.

    Parameters
    ----------
    project : callable
        The Euclidean projection.
    start : array
        A public point of the set.
    radius : float
        No point of the set is further from ``start``.
    """

    def at(point: Vector) -> tuple[Vector, float]:
        return point, (1 + float(np.linalg.norm(point - start)) / radius) ** 2 / 2

    def step(z: Vector, g: Vector) -> Vector:
        return project(z - radius**2 * g)

    return Mirror(2, radius, 0.5, radius**2 * start.size, start, step, np.asarray, at)


def entropy_mirror(
    radius: float,
    size: int,
    point: Callable[[Vector], Vector],
    lift: Callable[..., Vector],
    weigh: Callable[[Vector], Vector],
) -> Mirror:
    """Multiplicative steps on the weights of ``size`` vertices, kept as logarithms: relative entropy.

    ``weigh`` gives weights that make a point.
    """

    def step(logs: Vector, g: Vector) -> Vector:
        logs = logs - radius * lift(g)
        return logs - logs.max()

    def of(logs: Vector) -> Vector:
        weights = np.exp(logs)
        return point(weights * (radius / weights.sum()))

    def at(start: Vector) -> tuple[Vector, float]:
        weights = weigh(start)
        with np.errstate(divide="ignore"):
            logs = np.log(weights / weights.sum())
        return logs - logs.max(), -float(logs.min())  # the divergence is largest at the vertex of the least weight

    entropy = math.log(max(size, 2))
    return Mirror(1, radius, entropy, radius**2 * 2 * entropy, np.zeros(size), step, of, at)

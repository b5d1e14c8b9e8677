"""Steps that minimise a quadratic model in a ball, whatever the signs of its curvature: the way out of saddles."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_BISECTIONS = 200


@dataclass(frozen=True)
class Asked:
    """What is wanted next: the ``"gradient"`` or the ``"hessian"`` at a public point."""

    kind: str
    point: Vector


@dataclass(frozen=True)
class Known:
    """A released gradient or Hessian, and the standard deviation of its noise (of an entry of the diagonal)."""

    value: Vector
    std: float


def trust_region_step(H: Vector, g: Vector, radius: float, sign: float = 1.0) -> tuple[Vector, float]:
    """``argmin_{|h| <= radius} <g, h> + h'Hh/2``, exactly, and its multiplier.

    With eigenvalues e of H and the multiplier ``lam >= max(0, -e_min)``, ``(H + lam I) h = -g`` and either ``lam = 0``
    or ``|h| = radius`` (More and Sorensen 1983). In the hard case, where g has no part along the lowest curvature, the
    way to the border is that direction, with the given sign.

    Examples
    --------
    >>> trust_region_step(np.diag([1.0, -1.0]), np.zeros(2), 0.5)
    (array([0. , 0.5]), 1.0)
    >>> trust_region_step(np.diag([1.0, 2.0]), np.array([0.5, 1.0]), 3.0)
    (array([-0.5, -0.5]), 0.0)
    """
    e, Q = np.linalg.eigh(H)
    a = Q.T @ g

    def length(lam: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(a == 0, 0.0, a / (e + lam))
        return float(np.linalg.norm(parts))

    if e[0] > 0 and length(0.0) <= radius:
        return -(Q @ (a / e)) + 0.0, 0.0
    least = max(0.0, -float(e[0]))
    scale = max(1.0, float(np.abs(e).max()), float(np.linalg.norm(a)) / radius)
    tiny = 1e-14 * scale
    flat = e + least <= tiny
    if not length(least + tiny) > radius:  # hard: what is left of the ball is filled along the lowest direction
        inner = np.where(flat, 0.0, -a / np.where(flat, 1.0, e + least))
        left = math.sqrt(max(radius**2 - float(inner @ inner), 0.0))
        if least == 0.0 and float(np.abs(a[flat]).max(initial=0.0)) == 0.0:
            left = 0.0  # flat, not curved down: there is nothing to gain
        inner[0] += math.copysign(left, -a[0] if abs(a[0]) > tiny else sign)
        return Q @ inner + 0.0, least
    low, high = least + tiny, least + float(np.linalg.norm(a)) / radius + tiny
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if length(middle) > radius else (low, middle)
    return -(Q @ (a / (e + high))) + 0.0, high


def shrunken(gradient: Known) -> Vector:
    """A released gradient without the part of it that is noise: ``max(0, 1 - d s^2 / |g|^2) g`` (James and Stein 1961).

    >>> shrunken(Known(np.array([3.0, 4.0]), 1.0)), shrunken(Known(np.array([0.3, 0.4]), 1.0))
    (array([2.76, 3.68]), array([0., 0.]))
    """
    g = gradient.value
    return g * max(0.0, 1 - len(g) * gradient.std**2 / max(float(g @ g), 1e-300))


def trust_region(
    x0: Vector,
    radii: Sequence[float],
    signs: Sequence[float],
    project: Callable[[Vector], Vector] = np.asarray,
    enough: float = -1.0,
) -> Generator[Asked, Known, tuple[Vector, float]]:
    """One gradient and one Hessian per round, and an exact step of their model in a ball of a public radius.

    Where the noise is large, the model is made safe with what is public or released: the edge ``s sqrt(2 d)`` of the
    noise's spectrum is added to all curvatures, so that steps go down only along directions that stand out of the
    noise, and the gradient is `shrunken`.

    Parameters
    ----------
    x0 : array
        Public start.
    radii : sequence of float
        Public, one for each round.
    signs : sequence of float
        Which way a saddle is left.
    project : callable, optional
        Onto the set, after every step.
    enough : float, optional
        Stop after a step whose multiplier is at most this: a function of released values.

    Yields
    ------
    Asked
        And is sent a `Known`, penalties included.

    Returns
    -------
    The last point, and the multiplier of its step.
    """
    x, multiplier, d = x0, math.inf, len(x0)
    for radius, sign in zip(radii, signs, strict=True):
        gradient = yield Asked("gradient", x)
        hessian = yield Asked("hessian", x)
        g = shrunken(gradient)
        H = hessian.value + hessian.std * math.sqrt(2 * d) * np.eye(d)
        h, multiplier = trust_region_step(H, g, radius, sign)
        x = project(x + h)
        if multiplier <= enough:
            break
    return x, multiplier

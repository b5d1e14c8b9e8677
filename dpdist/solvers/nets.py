"""Nets: few points of a ball such that none is far from one of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ball_net(size: int, radius: float, n_points: int) -> Floats:
    """At most ``n_points`` points of a cubic grid in the ball, 0 among them, as dense as they can be.

    A point of the ball is within `accuracy_of` of one of them, unless it is as near to the border.

    Parameters
    ----------
    size : int
        Coordinates of a point.
    radius : float
    n_points : int

    Examples
    --------
    >>> ball_net(1, 1.0, 5).ravel()
    array([-1. , -0.5,  0. ,  0.5,  1. ])
    >>> ball_net(2, 1.0, 7831).shape
    (7825, 2)
    """
    steps = _most_steps(size, n_points)
    axis = np.arange(-math.isqrt(steps), math.isqrt(steps) + 1)
    grid = np.array(list(itertools.product(axis, repeat=size)) if size > 1 else axis[:, None], dtype=np.int64)
    inside = grid[(grid**2).sum(axis=1) <= steps]
    return inside * (radius / math.sqrt(max(steps, 1)))


def accuracy_of(size: int, radius: float, n_points: int) -> float:
    """How far a point of the ball is from the net at most, ``spacing sqrt(size) / 2`` (more near the border).

    >>> accuracy_of(1, 1.0, 5)
    0.25
    """
    return radius * math.sqrt(size / max(_most_steps(size, n_points), 1)) / 2


def points_for(size: int, radius: float, accuracy: float) -> int:
    """How many points a net of that accuracy has.

    >>> points_for(1, 1.0, 0.25), points_for(2, 1.0, 0.05)
    (5, 633)
    """
    return _count(size, math.floor(size * (radius / (2 * accuracy)) ** 2 * (1 + 1e-12)))


def _most_steps(size: int, n_points: int) -> int:
    """The largest squared radius, in units of the spacing, of a ball with at most so many grid points."""
    low, high = 0, 1
    while _count(size, high) <= n_points:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _count(size, middle) <= n_points else (low, middle)
    while low and _count(size, low - 1) == _count(size, low):  # the outermost points are on the border
        low -= 1
    return low


def _count(size: int, square: int) -> int:
    """Grid points whose squared norm is at most ``square``."""
    if size == 1:
        return 2 * math.isqrt(square) + 1
    edge = math.isqrt(square)
    return sum((1 if i == 0 else 2) * _count(size - 1, square - i * i) for i in range(edge + 1))

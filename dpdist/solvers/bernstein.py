"""Functions on the unit box from noisy values on a grid: iterated Bernstein operators, and where they are least.

On an axis with the grid ``0, 1/k, ..., 1`` the Bernstein polynomial of values f is ``sum_v f_v b_{v,k}(t)`` with
``b_{v,k}(t) = C(k, v) t^v (1 - t)^(k - v)``. One operator B smooths a lot; with ``sum_{j<h} (I - B)^j`` applied to the
values before, the error for smooth functions falls with ``k^-h`` (Micchelli 1973; seed 000, section 5.1.2), and noise
in the values is hardly amplified.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import scipy
import scipy.special
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STARTS = 8
POINTS = 32
GRIDS = (201, 61, 25, 13)
"""Points of an axis where the least value is looked for first, for 1, 2, ... axes."""


def bernstein_basis(k: int, t: Floats) -> Floats:
    """``b_{v,k}(t)`` for v = 0, ..., k, as the last axis.

    >>> bernstein_basis(2, np.array([0.5])).tolist()
    [[0.25, 0.5, 0.25]]
    """
    v = np.arange(k + 1)
    t = np.asarray(t, dtype=np.float64)[..., None]
    return np.asarray(scipy.special.comb(k, v) * t**v * (1 - t) ** (k - v))


def bernstein_coefficients(values: Floats, iterations: int) -> Floats:
    """Coefficients of the iterated Bernstein polynomial of values on a grid, with an axis for each parameter."""
    for axis in range(values.ndim):
        k = values.shape[axis] - 1
        smoothing = np.eye(k + 1) - bernstein_basis(k, np.arange(k + 1) / k)
        total = power = np.eye(k + 1)
        for _ in range(iterations - 1):
            power = power @ smoothing
            total = total + power
        values = np.moveaxis(np.tensordot(total, values, (1, axis)), 0, axis)
    return values


def bernstein_value(coefficients: Floats, points: Floats) -> Floats:
    """The polynomial at points of the unit box, shape (m, p)."""
    found = np.broadcast_to(coefficients, (len(points), *coefficients.shape))
    for axis in range(points.shape[1]):
        found = np.einsum("mv...,mv->m...", found, bernstein_basis(coefficients.shape[axis] - 1, points[:, axis]))
    return np.asarray(found)


def bernstein_gradient(coefficients: Floats, point: Floats) -> Floats:
    """Of the polynomial, at one point: ``d/dt sum c_v b_{v,k} = k sum (c_{v+1} - c_v) b_{v,k-1}``."""
    slopes = (np.diff(coefficients, axis=axis) * (size - 1) for axis, size in enumerate(coefficients.shape))
    return np.array([bernstein_value(slope, point[None])[0] for slope in slopes])


def averaged_bernstein(coefficients: Floats, radius: float) -> Floats:
    """Coefficients of the mean of the polynomial over balls of a radius: waves of noise that are shorter vanish.

    That is a polynomial of the same degrees; its values at as many points as there are coefficients tell it. A ball is
    ``POINTS`` points that are drawn once, each with its opposite.

    >>> averaged_bernstein(np.array([0.0, 0.5, 1.0]), 0.1).round(9).tolist()
    [0.0, 0.5, 1.0]
    """
    p, generator = coefficients.ndim, np.random.Generator(np.random.Philox(coefficients.ndim))
    ball = generator.standard_normal((POINTS, p))
    ball *= (generator.random(POINTS) ** (1 / p) / np.linalg.norm(ball, axis=1))[:, None]
    ball = radius * np.concatenate([ball, -ball])
    axes = [(1 - np.cos((np.arange(size) + 0.5) * np.pi / size)) / 2 for size in coefficients.shape]
    nodes = np.array(list(itertools.product(*axes)))
    values = sum(bernstein_value(coefficients, nodes + step) for step in ball) / len(ball)
    found = np.reshape(values, coefficients.shape)
    for axis, places in enumerate(axes):
        inverse = np.linalg.inv(bernstein_basis(len(places) - 1, places))
        found = np.moveaxis(np.tensordot(inverse, found, (1, axis)), 0, axis)
    return np.asarray(found)


def minimise_bernstein(coefficients: Floats, ridge: float = 0.0) -> Floats:
    """Where the polynomial, plus ``ridge/2 |t - 1/2|^2``, is least in the unit box: a grid, then descent in the box."""
    p = coefficients.ndim
    axis = np.linspace(0, 1, GRIDS[p - 1])
    points = np.array(list(itertools.product(axis, repeat=p)))
    bases = [bernstein_basis(size - 1, axis) for size in coefficients.shape]
    # the last axis becomes points, and the first of all: in the end all are, in their order
    grid = functools.reduce(lambda c, basis: np.tensordot(basis, c, (1, p - 1)), bases[::-1], coefficients)
    values = grid.ravel() + ridge / 2 * ((points - 0.5) ** 2).sum(axis=1)

    def objective(t: Floats) -> tuple[float, Floats]:
        value = bernstein_value(coefficients, t[None])[0] + ridge / 2 * ((t - 0.5) ** 2).sum()
        return float(value), bernstein_gradient(coefficients, t) + ridge * (t - 0.5)

    tried = [
        scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * p)
        for start in points[np.argsort(values)[:STARTS]]
    ]
    return np.asarray(min(tried, key=lambda found: found.fun).x)

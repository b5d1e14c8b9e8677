"""Newton steps in the span of all gradients that were released so far: curvature without a matrix.

The Hessian of d features is d^2 numbers with their noise. Along k directions it is a matrix of k rows, whose noise is
that of k rows: each round adds the direction of its gradient to those before, asks the Hessian along them, and
minimises in their span. Without noise and for a quadratic these are conjugate gradients, which are as good after k
rounds as any method that reads rows by k gradients; no guess of a spectrum is in it, and no step is longer than what
was measured allows.

A new direction is mostly noise where features are many. How much of its length is above that of the noise is known,
however: with b the released and g the true gradient, ``<b, g> = |b|^2 - d sigma^2`` but for a small error (James and
Stein), and with that the step along b is as long as it should be.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised
from dpdist.solvers.filtered_newton import Noisy
from dpdist.solvers.margins import Curvature
from dpdist.solvers.prior_sizes import shrunken

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

SAFE = 1.0
"""Standard deviations of a curvature's noise that are added to it: a step that is too long costs more than one that is
too short."""


@dataclass(frozen=True)
class Question:
    """What is wanted: the gradient at a point, or the Hessian along directions whose span the point is in.

    ``weights`` are the coordinates of the point along the directions, then the weight of the constant feature.
    """

    kind: Literal["gradient", "hessian"]
    round: int
    directions: Matrix
    weights: Vector

    @property
    def point(self) -> Vector:
        """In all coordinates."""
        k = self.directions.shape[1]
        return np.append(self.directions @ self.weights[:k], self.weights[k:])


def subspace_newton(
    curvature: Curvature,
    *,
    n_features: int,
    constant: float,
    ridge: float,
    n_rounds: int,
    labels: Noisy | None = None,
) -> Generator[Question, Noisy, Vector]:
    """Newton steps from 0.

    Parameters
    ----------
    curvature : Curvature
    n_features : int
    constant : float
        The constant feature; 0 for none.
    ridge : float
        Public ``alpha n_rows``, for all coordinates but the constant one.
    n_rounds : int
        Of a gradient and a Hessian each. The Hessian has one more row and column for all other directions together,
        before that of the constant feature.
    labels : Noisy, optional
        Their mean, with noise: steps begin at the best margin for all rows then, and the first round asks a gradient
        alone.
    """
    directions, weights = np.zeros((n_features, 0)), np.zeros(1 if constant else 0)
    for number in range(n_rounds):
        k, last = directions.shape[1], len(weights) - directions.shape[1]
        gradient = yield Question("gradient", number, directions, weights)
        slopes, std = gradient.value[:n_features], gradient.std
        inside = directions.T @ slopes
        new = slopes - directions @ inside
        new -= directions @ (directions.T @ new)  # again: what rounding left
        size = float(np.linalg.norm(new))
        inside = above_noise(inside + ridge * weights[:k], std, k)
        if k < n_features and size > 0:
            inside = np.append(inside, above_noise(np.array([size]), std, n_features - k))
            directions = np.column_stack([directions, new / size])
            weights = np.insert(weights, k, 0.0)
            k += 1
        constants = gradient.value[n_features:]
        if number == 0 and labels is not None and last and curvature.level is not None:
            weights[-1] = curvature.level(shrunken(float(labels.value[0]), labels.std)).margin / constant
            continue
        released = yield Question("hessian", number, directions, weights)
        matrix = np.delete(np.delete(released.value, k, 0), k, 1)
        constants = above_noise(constants, std, last)
        hessian = denoised(matrix, released.std / math.sqrt(2), floor=0.0) + SAFE * released.std * np.eye(k + last)
        hessian[:k, :k] += ridge * np.eye(k)
        weights = weights - np.linalg.solve(hessian, np.append(inside, constants))
    return Question("gradient", n_rounds, directions, weights).point


def above_noise(values: Vector, std: float, size: int) -> Vector:
    """What of a vector of ``size`` noisy numbers is above their noise, by its length (James and Stein).

    Examples
    --------
    >>> above_noise(np.array([3.0, 4.0]), 1.0, 2).round(2).tolist(), above_noise(np.array([0.5]), 1.0, 1).tolist()
    ([2.76, 3.68], [0.0])
    """
    square = float(values @ values)
    return values * (max(0.0, 1 - size * std**2 / square) if square > 0 else 0.0)

"""Sparse regressions from second moments S = E x x' and b = E x y, exact or noisy: deterministic post-processing.

The lasso is `dpdist.solvers.linear.quadratic_l1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import hard_threshold, soft_threshold
from dpdist.solvers.loops import drive, hard_threshold_descent

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def in_ball(point: Vector, radius: float) -> Vector:
    """The Euclidean projection; keeps zeros."""
    length = math.sqrt(float(point @ point))
    return point if length <= radius else point * (radius / length)


def threshold_gradients(
    gradient: Callable[[Vector], Vector], start: Vector, n_nonzero: int, radius: float, step: float, n_rounds: int
) -> Vector:
    """``theta <- project(hard(theta - step gradient(theta)))``: keep the largest entries, then go into the ball.

    Blumensath and Davies 2009. Thresholding comes first, so that the result is sparse and in the ball.
    """
    loop = hard_threshold_descent(start, n_rounds, lambda u: in_ball(u, radius))
    return drive(loop, lambda theta: hard_threshold(theta - step * gradient(theta), n_nonzero))


def sparse_from_statistics(S: Matrix, b: Vector, n_nonzero: int, radius: float) -> Vector:
    """200 rounds of iterative hard thresholding of ``theta'S theta/2 - b'theta`` with steps ``1 / lambda_max(S)``.

    Parameters
    ----------
    S : array of shape (d, d)
        Symmetric, without negative eigenvalues (`dpdist.solvers.spectral.psd_floor`).
    b : array of shape (d,)
    n_nonzero : int
    radius : float
        Of the Euclidean ball.

    Examples
    --------
    >>> S = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> sparse_from_statistics(S, S @ [0.0, 0.8], n_nonzero=1, radius=1.0).round(6).tolist()
    [0.0, 0.8]
    """
    step = 1.0 / float(np.linalg.eigvalsh(S)[-1])
    return threshold_gradients(lambda theta: S @ theta - b, np.zeros(len(b)), n_nonzero, radius, step, 200)


def refit(S: Matrix, b: Vector, theta: Vector, n_nonzero: int) -> Vector:
    """Least squares on the support of the ``n_nonzero`` largest entries: removes what a penalty has shrunk.

    >>> refit(2 * np.eye(2), np.array([4.0, 0.1]), np.array([1.5, 0.0]), 1).tolist()
    [2.0, 0.0]
    """
    kept = np.flatnonzero(hard_threshold(theta, n_nonzero))
    fitted = np.zeros(len(b))
    fitted[kept] = np.linalg.lstsq(S[np.ix_(kept, kept)], b[kept], rcond=None)[0]
    return fitted


def shrunk(u: Vector, threshold: Vector, n_nonzero: int, radius: float, how: str | None) -> Vector:
    """A dense estimate made sparse.

    Parameters
    ----------
    u : array
    threshold : array
        Of every coordinate, for ``how="soft"``: ``argmin ||theta - u||^2 / 2 + <threshold, |theta|>``.
    how : {"soft", "hard"} or None
        "hard" keeps the ``n_nonzero`` largest entries and goes into the ball; None leaves u as it is.
    """
    if how == "soft":
        return np.asarray(soft_threshold(u, threshold))
    return in_ball(hard_threshold(u, n_nonzero), radius) if how == "hard" else u

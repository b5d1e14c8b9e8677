"""What is done with noisy symmetric matrices."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from dpdist.constraints import project_simplex

Matrix = NDArray[np.float64]


def psd_floor(matrix: Matrix, floor: float = 0.0, trace_max: float | None = None) -> Matrix:
    """The symmetric part, with eigenvalues below ``floor`` moved up to it: the nearest such matrix (Frobenius norm).

    With ``trace_max`` (and ``floor=0``) the nearest one whose trace is not larger either, such as the second moment of
    rows whose norm is at most ``sqrt(trace_max)``.

    Examples
    --------
    >>> psd_floor(np.array([[0.0, 2.0], [0.0, 0.0]]), 0.5).round(9).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    >>> psd_floor(np.diag([3.0, 1.0, -1.0]), trace_max=3.0).tolist()
    [[2.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values = np.maximum(values, floor)
    if trace_max is not None and values.sum() > trace_max:
        values = project_simplex(values, trace_max)
    return (vectors * values) @ vectors.T


def solve_psd(matrix: Matrix, right: Matrix) -> Matrix:
    """``matrix^-1 right`` of a symmetric matrix that is positive but for rounding: never an error, however near 0.

    Eigenvalues below 1e-12 times the largest one count as that.

    Examples
    --------
    >>> solve_psd(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([[2.0], [4.0]])).round(12).tolist()
    [[1.0], [1.0]]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    values = np.maximum(values, max(1e-12 * values[-1], np.finfo(float).tiny))
    found: Matrix = (vectors / values) @ (vectors.T @ right)
    return found


def quadratic_on_ball(matrix: Matrix, linear: Matrix, radius: float) -> Matrix:
    """``argmin w'Mw/2 + <b, w>`` over ``||w|| <= radius``, for M without negative eigenvalues.

    ``-(M + m)^-1 b`` with ``m >= 0``, and ``m > 0`` only where that lies on the sphere.

    >>> quadratic_on_ball(np.diag([1.0, 4.0]), np.array([-1.0, 0.0]), 2.0).round(9).tolist()
    [1.0, 0.0]
    >>> quadratic_on_ball(np.zeros((2, 2)), np.array([3.0, -4.0]), 1.0).round(9).tolist()
    [-0.6, 0.8]
    """
    values, axes = np.linalg.eigh(matrix)
    values, along = np.maximum(values, 0.0), axes.T @ linear
    largest = float(np.linalg.norm(along)) / radius
    if largest == 0:
        return np.zeros_like(linear)

    def excess(m: float) -> float:
        return float(np.linalg.norm(along / (values + m))) - radius

    least = 1e-12 * largest
    m = least if excess(least) <= 0 else scipy.optimize.brentq(excess, least, largest * (1 + 1e-12), xtol=1e-300)
    return np.asarray(-axes @ (along / (values + m)))

"""What is done with noisy symmetric matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def psd_floor(matrix: Matrix, floor: float = 0.0) -> Matrix:
    """The symmetric part, with eigenvalues below ``floor`` moved up to it: the nearest such matrix (Frobenius norm).

    Examples
    --------
    >>> psd_floor(np.array([[0.0, 2.0], [0.0, 0.0]]), 0.5).round(9).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, floor)) @ vectors.T


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

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

"""Sparse covariance matrices from noisy second moments (seed 000, Algorithm 6.2.48, with the threshold made public)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def shrink_diagonal(diagonal: Vector, noise_std: float) -> Vector:
    """Noisy variances, drawn to their mean as far as their spread is what noise alone would give (James and Stein).

    ``m + w (d - m)`` with ``w = max(0, 1 - (p - 3) s^2 / sum (d - m)^2)``, at least 0.

    Parameters
    ----------
    diagonal : array of shape (p,)
    noise_std : float
        s, of the noise in each of them.

    Examples
    --------
    >>> shrink_diagonal(np.array([1.0, 2.0, 3.0, 2.0]), 1.0).tolist()
    [1.5, 2.0, 2.5, 2.0]
    """
    middle = max(float(diagonal.mean()), 0.0)
    spread = float(((diagonal - middle) ** 2).sum())
    kept = max(0.0, 1.0 - (len(diagonal) - 3) * noise_std**2 / spread) if spread > 0 else 0.0
    found: Vector = np.maximum(middle + min(kept, 1.0) * (diagonal - middle), 0.0)
    return found


def largest_of(p: int) -> float:
    """``sqrt(2 log(p (p - 1)))``: about the largest of the entries off the diagonal, where all are noise of size 1.

    >>> round(largest_of(60), 2)
    4.04
    """
    return math.sqrt(2 * math.log(max(p * (p - 1), 2)))


def threshold_entries(
    matrix: Matrix, diagonal: Vector, n_rows: float, noise_std: float, multiple: float = 1.0, soft: bool = False
) -> Matrix:
    """Entries off the diagonal that stand out of noise and sampling together; the others are 0.

    An entry is kept where it is larger in size than ``multiple sqrt(2 log(p (p - 1))) sqrt(d_i d_j / n + s^2)``:
    ``d_i d_j / n`` is the sampling variance of an entry whose true value is 0 (normal rows).

    Parameters
    ----------
    matrix : array of shape (p, p)
    diagonal : array of shape (p,)
        d, which the result has on its diagonal, such as that of `shrink_diagonal`.
    n_rows : float
    noise_std : float
        s, of the noise in an entry off the diagonal.
    multiple : float, default 1
    soft : bool, default False
        Move the entries that are kept towards 0 by the threshold as well.

    Examples
    --------
    >>> S = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.0], [0.1, 0.0, 1.0]])
    >>> threshold_entries(S, np.ones(3), n_rows=100, noise_std=0.1).tolist()
    [[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    levels = multiple * largest_of(len(diagonal)) * np.sqrt(np.outer(diagonal, diagonal) / n_rows + noise_std**2)
    kept = np.where(np.abs(matrix) > levels, matrix, 0.0)
    if soft:
        kept = np.sign(kept) * np.maximum(np.abs(kept) - levels, 0.0)
    np.fill_diagonal(kept, diagonal)
    return kept

"""What a noisy symmetric matrix says of the one without noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Matrix = NDArray[np.float64]


def denoised(matrix: Matrix, noise: float, floor: float | None = None) -> Matrix:
    """The eigenvectors of a noisy matrix with the eigenvalues that the noise has moved brought back.

    For noise of the Gaussian orthogonal ensemble, of standard deviation ``noise`` off the diagonal and
    ``sqrt(2) noise`` on it, the i-th eigenvalue is pushed away from the others; the best ones for the same eigenvectors
    are ``a_i - 2 noise^2 sum_j (a_i - a_j) / ((a_i - a_j)^2 + 4 noise^2)``, the free Hilbert transform of the spectrum
    at the width of the noise (Ledoit and Peche 2011; Bun, Allez, Bouchaud and Potters 2016), made monotone.

    Parameters
    ----------
    matrix : array of shape (d, d)
    noise : float
    floor : float, optional
        The least eigenvalue of the result.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> E = rng.normal(size=(100, 100)); E = (E + E.T) / np.sqrt(2)       # nothing but noise of standard deviation 1
    >>> [round(float(np.linalg.norm(A))) for A in (E, denoised(E, 1.0))]
    [101, 18]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    gaps = values[:, None] - values[None, :]
    if noise > 0:
        values = values - 2 * noise**2 * (gaps / (gaps**2 + 4 * noise**2)).sum(axis=1)
        values = isotonic_regression(values).x
    if floor is not None:
        values = np.maximum(values, floor)
    found: Matrix = (vectors * values) @ vectors.T
    return found

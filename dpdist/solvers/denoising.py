"""What a noisy symmetric matrix says of the one without noise."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

MIXED = 8.0
"""Squared gap of two eigenvalues, relative to the noise's variance, at which half of the noise between their vectors is
left: exact for two that are alike."""
FEW = 10
"""Eigenvalues up to which that is so; among d the noise mixes those that are ``(d / 10)^(1/4)`` times as far apart."""


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
        values = scipy.optimize.isotonic_regression(values).x
    if floor is not None:
        values = np.maximum(values, floor)
    found: Matrix = (vectors * values) @ vectors.T
    return found


def error_covariance(matrix: Matrix, noise: float, squares: Matrix) -> Matrix:
    """Covariance of ``(M - C) w`` for the denoised matrix M of one that is C, and w of second moment ``squares``.

    In the eigenvectors of M the entry i, j of C is noise of variance ``noise^2`` where the eigenvalues are far apart.
    Where they are not, the vectors have turned to where that entry is 0: with the gap g the rest is about
    ``g^2 / (g^2 + 8 noise^2)`` of it, and each of k that are alike has a k-th of the variance ``2 noise^2`` on the
    diagonal. Compared with simulations this is right to 30 % for 10 to 200 eigenvalues, from flat to 1/j.

    Parameters
    ----------
    matrix : array of shape (d, d)
        M, as `denoised` gives it.
    noise : float
        Standard deviation off the diagonal.
    squares : array of shape (d, d)
        ``w w'`` of a known w, or its mean.

    Examples
    --------
    >>> far = error_covariance(np.diag([1.0, 1e6]), 1.0, np.diag([0.0, 1.0]))
    >>> far.round(6).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    seen = vectors.T @ squares @ vectors
    diagonal = np.diag(seen)
    gaps = np.square(values[:, None] - values[None, :])
    apart = gaps / (gaps + max(MIXED * np.sqrt(max(len(values) / FEW, 1.0)) * noise**2, np.finfo(float).tiny))
    np.fill_diagonal(apart, 0.0)
    alike = (1 - apart).sum(axis=1)
    found = noise**2 * apart * seen
    np.fill_diagonal(found, noise**2 * (apart @ diagonal + 2 * diagonal / alike))
    return np.asarray(vectors @ found @ vectors.T)

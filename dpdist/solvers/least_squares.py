"""Least squares from noisy second moments: a normal prior whose size the data tell, and gains for what is noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised
from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

ERROR_OF_MOMENT = 0.2
"""Which part of the second moment's noise counts as error of ``X'X w``; the rest falls where the gain is small."""
ROUNDING = 1e-12
"""Relative noise of a matrix below which floating-point arithmetic is what it is known by."""
PRIORS = np.exp(np.linspace(math.log(1e-6), math.log(1e4), 47))
"""Variances of a coefficient that are compared, in units of (label bound / row norm)^2."""


@dataclass(frozen=True)
class Posterior:
    """Where the solution is, and how far it may be from there.

    Attributes
    ----------
    point : array of shape (d,)
    spread : array of shape (d, d)
    moment : array of shape (d, d)
        The second moment without most of its noise, and the ridge.
    noise : float
        Standard deviation of the noise of an entry of the second moment, off the diagonal.
    squares : float
        Sum of the squared residuals at the point, as released.
    squares_noise : float
        Its standard deviation.
    """

    point: Vector
    spread: Matrix
    moment: Matrix
    noise: float
    squares: float
    squares_noise: float

    def residuals(self, n_rows: float) -> float:
        """Root mean square of the residuals, and what the noise may hide of it."""
        return math.sqrt(max(self.squares + self.squares_noise, self.squares_noise) / n_rows)


def first_posterior(
    joint: Matrix,
    noise: float,
    label_scale: float,
    ridge: Vector,
    prior: Vector,
    constant_prior: Vector,
) -> Posterior:
    """What the second moment of ``(x, label_scale y)`` says of the least squares solution.

    Parameters
    ----------
    joint : array of shape (d + 1, d + 1)
        With noise as of `SymmetricGaussian`.
    noise : float
        Standard deviation off the diagonal.
    label_scale : float
    ridge : array of shape (d,)
    prior : array of shape (d,)
        The unit in which the variance of a coefficient is sought; 0 where it is not.
    constant_prior : array of shape (d,)
        Variances that are not sought: of the constant feature.
    """
    d = len(joint) - 1
    noise = max(noise, ROUNDING * float(np.trace(joint)))
    raw, label = joint[:d, :d], joint[:d, d] / label_scale
    moment = denoised(raw, noise, floor=0.05 * noise) + np.diag(ridge)
    best = (-math.inf, np.zeros(d), np.zeros((d, d)))
    for size in PRIORS:
        variances = size * prior + constant_prior
        variance = _variance(noise / label_scale, noise, np.diag(variances))
        covariance = (moment * variances) @ moment
        covariance += max(variance, ROUNDING * float(np.trace(covariance))) * np.eye(d)
        root = scipy.linalg.cholesky(covariance, lower=True)
        whitened = scipy.linalg.solve_triangular(root, label, lower=True)
        likelihood = -float(np.log(np.diag(root)).sum()) - float(whitened @ whitened) / 2
        if likelihood > best[0]:
            best = (likelihood, variances, root)
    _, variances, root = best
    spread = np.diag(variances)
    gain = scipy.linalg.cho_solve((root, True), moment * variances).T
    point = gain @ label
    spread = _updated(spread, gain, moment, _variance(noise / label_scale, noise, spread))
    length = float(point @ point)
    squares = joint[d, d] / label_scale**2 - 2 * float(point @ label) + float(point @ raw @ point)
    return Posterior(point, spread, moment, noise, squares, math.sqrt(2) * noise * (1 / label_scale**2 + length))


def improved(found: Posterior, gradient: Vector, std: float) -> Posterior:
    """After the noisy gradient of half the squared residuals at the point."""
    variance = _variance(std, found.noise, found.spread)
    seen = found.moment @ found.spread @ found.moment + variance * np.eye(len(gradient))
    gain = solve_psd(seen, found.moment @ found.spread).T
    spread = _updated(found.spread, gain, found.moment, variance)
    return replace(found, point=found.point - gain @ gradient, spread=spread)


def _variance(std: float, noise: float, spread: Matrix) -> float:
    return float(std**2 + (ERROR_OF_MOMENT * noise) ** 2 * np.trace(spread))


def _updated(spread: Matrix, gain: Matrix, moment: Matrix, variance: float) -> Matrix:
    left = np.eye(len(spread)) - gain @ moment
    found = left @ spread @ left.T + variance * gain @ gain.T
    return (found + found.T) / 2

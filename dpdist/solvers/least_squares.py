"""Least squares from noisy second moments: normal priors whose sizes the data weigh, and gains for what is noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised
from dpdist.solvers.filtered_newton import LEAST_LENGTH
from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

ERROR_OF_MOMENT = 0.2
"""Which part of the second moment's noise counts as error of ``X'X w``; the rest falls where the gain is small."""
ROUNDING = 1e-12
"""Relative noise of a matrix below which floating-point arithmetic is what it is known by."""
SLOPES = np.geomspace(1e-6, 1.0, 41)
"""Mean squares of the predictors of rows that are weighed, relative to the square of the label bound: no label is
larger."""
CONSTANTS = np.geomspace(1e-4, 1.0, 9)
"""Those of the constant feature's part."""


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
    *,
    label_scale: float,
    label_bound: float,
    n_rows: float,
    row_norm: float,
    constant: float,
    ridge: float,
) -> Posterior:
    """What the second moment of ``(x, label_scale y)`` says of the least squares solution.

    How large the solution is nobody knows. A normal prior of each of several sizes has its gains; they are averaged by
    how likely the sizes are, given ``X'y``. Where that tells little, no size is taken for granted: the most likely one
    may be next to 0, with gains that leave a signal alone and an error that seems to be nothing.

    Parameters
    ----------
    joint : array of shape (d + 1, d + 1)
        With noise as of `SymmetricGaussian`.
    noise : float
        Standard deviation off the diagonal.
    label_scale, label_bound : float
    n_rows : float
        Public.
    row_norm : float
        Public bound of the norm of a row, without the constant feature.
    constant : float
        The constant feature, last in a row; 0 for none.
    ridge : float
        Public, for all coordinates but the constant one.
    """
    d = len(joint) - 1
    slopes = np.ones(d)
    slopes[d - 1 :] = 0.0 if constant else 1.0
    noise = max(noise, ROUNDING * float(np.trace(joint)))
    raw, label = joint[:d, :d], joint[:d, d] / label_scale
    moment = denoised(raw, noise, floor=0.05 * noise) + ridge * np.diag(slopes)
    lengths = max(float(slopes @ np.diag(raw)), LEAST_LENGTH * n_rows * row_norm**2)
    largest = np.where(slopes > 0, label_bound**2 * n_rows / lengths, (label_bound / constant) ** 2 if constant else 0)
    variances, gain, variance = _weighed(moment, label, noise / label_scale, noise, largest, slopes)
    point, spread = gain @ label, _updated(np.diag(variances), gain, moment, variance)
    length = float(point @ point)
    squares = joint[d, d] / label_scale**2 - 2 * float(point @ label) + float(point @ raw @ point)
    return Posterior(point, spread, moment, noise, squares, math.sqrt(2) * noise * (1 / label_scale**2 + length))


def _weighed(
    moment: Matrix, label: Vector, std: float, noise: float, largest: Vector, slopes: Vector
) -> tuple[Vector, Matrix, float]:
    """Variances of the prior, gain and variance of the noise, each averaged over `SLOPES` and `CONSTANTS`.

    For a size s of the slopes and a variance c of the last coordinate the covariance of the label part is
    ``s M diag(slopes) M + c m m' + r I``, m the column of M that belongs to the constant feature: diagonal in one
    basis for all s, up to a term of rank one.
    """
    kept = largest * slopes
    last = float(largest[-1] * (1 - slopes[-1]))
    values, vectors = np.linalg.eigh((moment * kept) @ moment)
    seen, column = vectors.T @ label, vectors.T @ moment[:, -1]
    sizes, constants = (part.ravel() for part in np.meshgrid(SLOPES, CONSTANTS * last if last else [0.0]))
    noises = std**2 + (ERROR_OF_MOMENT * noise) ** 2 * (sizes * kept.sum() + constants)
    values = np.maximum(values, 0.0)
    noises = np.maximum(noises, ROUNDING * (sizes * values.sum() + constants * (column @ column)))
    spectrum = sizes[:, None] * values + noises[:, None]
    solved = column / spectrum
    joined = solved @ column
    weight = constants / (1 + constants * joined)
    explained = (seen**2 / spectrum).sum(axis=1) - weight * (solved @ seen) ** 2
    likelihood = -(np.log(spectrum).sum(axis=1) + np.log1p(constants * joined) + explained) / 2
    share = np.exp(likelihood - likelihood.max())
    share /= share.sum()
    inverse = np.diag((share * sizes) @ (1 / spectrum)) - (solved.T * (share * sizes * weight)) @ solved
    gain = kept[:, None] * (moment @ (vectors @ inverse @ vectors.T))
    if last:
        gain[-1] = vectors @ ((share * constants * (1 - weight * joined)) @ solved)
    variances = float(share @ sizes) * kept
    variances[-1] += float(share @ constants)
    return variances, gain, float(share @ noises)


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

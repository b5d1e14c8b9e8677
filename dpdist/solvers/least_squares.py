"""Least squares from noisy second moments: normal priors whose sizes the data weigh, and gains for what is noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.denoising import denoised, error_covariance
from dpdist.solvers.filtered_newton import LEAST_LENGTH, counted_rows
from dpdist.solvers.prior_sizes import LEAST_AROUND
from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

ERROR_OF_MOMENT = 0.2
"""Which part of the second moment's noise counts as error of ``X'X w`` before anything is known of w: the rest falls
where the gain is small. Afterwards it counts direction by direction, in full where eigenvalues are far apart."""
ROUNDING = 1e-12
"""Relative noise of a matrix below which floating-point arithmetic is what it is known by."""
SLOPES = np.geomspace(1e-6, 1.0, 41)
"""Mean squares of the predictors of rows that are weighed, relative to the square of the label bound: no label is
larger."""
CONSTANTS = np.geomspace(1e-4, 1.0, 9)
"""Those of the constant feature's part."""
HIDDEN = 0.5
"""Standard deviations of its noise: the sum of squared residuals counts as at least that."""


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
    n_rows : float
        How many rows there are in the sums, by their weights.
    left_by_noise : array of shape (d, d)
        Covariance of what the noise of all releases has left in the point, and what cutting residuals may have.
    stated : array of shape (d, d)
        The same with as much of what cutting may have done as the gradient shows: what standard errors rest on.
    shrinkage : array of shape (d, d)
        What is left of the distance between 0 and the solution.
    prior : array of shape (d, d)
        Second moments of the solution's coordinates, where it explains any part of the labels' variance as likely as
        any other: what the error that is stated rests on. Gains rest on a smaller one, which loses less to a constant.
    """

    point: Vector
    spread: Matrix
    moment: Matrix
    noise: float
    squares: float
    squares_noise: float
    n_rows: float
    left_by_noise: Matrix
    stated: Matrix
    shrinkage: Matrix
    prior: Matrix

    @property
    def excess(self) -> float:
        """Expected excess of half the squared residuals (a sum): noise and shrinkage."""
        left = self.shrinkage @ self.prior @ self.shrinkage.T
        return float(np.sum(self.moment * (self.left_by_noise + left))) / 2

    @property
    def residuals(self) -> float:
        """Root mean square of the residuals, and what the noise may hide of it."""
        return math.sqrt(max(self.squares + self.squares_noise, self.squares_noise) / self.n_rows)

    def least_residuals(self, left_by_noise: Matrix) -> float:
        """Mean square of the residuals at the solution: those at the point of least noisy squares seem smaller.

        By as much as the noise in the point makes them larger, ``tr(H V)``, counted twice in the released sum.
        """
        seen = self.squares + float(np.sum(self.moment * left_by_noise))
        return max(seen, HIDDEN * self.squares_noise) / self.n_rows


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
    n_rows = counted_rows(float(joint[d - 1, d - 1]), math.sqrt(2) * noise, n_rows, constant)
    moment = denoised(raw, noise, floor=0.05 * noise) + ridge * np.diag(slopes)
    lengths = max(float(slopes @ np.diag(raw)), LEAST_LENGTH * n_rows * row_norm**2)
    largest = np.where(slopes > 0, label_bound**2 * n_rows / lengths, (label_bound / constant) ** 2 if constant else 0)
    mean = float(label[-1]) / (constant * n_rows) if constant else 0.0
    squares = (joint[d, d] + math.sqrt(2) * noise) / (label_scale**2 * n_rows) - mean**2
    most = float(np.clip(squares / label_bound**2, SLOPES[0], SLOPES[-1]))
    variances, (size, last), gain = _weighed(moment, label, noise / label_scale, noise, largest, slopes, most)
    usual = _around_mean(joint, noise, n_rows, constant, lengths, size * label_bound**2)
    usual[-1, -1] += last
    point, left = gain @ label, np.eye(d) - gain @ moment
    length = float(point @ point)
    squares = joint[d, d] / label_scale**2 - 2 * float(point @ label) + float(point @ raw @ point)
    squares_noise = math.sqrt(2) * noise * (1 / label_scale**2 + length)
    # what the noise of the matrix makes of the solution acts as the noise of X'y does
    releases = (noise / label_scale) ** 2 * np.eye(d) + error_covariance(moment, noise, np.outer(point, point))
    # and of what the gains leave of it
    unseen = (left * variances) @ left.T
    spread = unseen + gain @ (releases + error_covariance(moment, noise, unseen)) @ gain.T
    of_noise = gain @ (releases + error_covariance(moment, noise, left @ usual @ left.T)) @ gain.T
    return Posterior(
        point,
        (spread + spread.T) / 2,
        moment,
        noise,
        squares,
        squares_noise,
        n_rows,
        of_noise,
        of_noise,
        left,
        usual,
    )


def _weighed(
    moment: Matrix, label: Vector, std: float, noise: float, largest: Vector, slopes: Vector, most: float
) -> tuple[Vector, tuple[float, float], Matrix]:
    """Variances of the prior and gain, both averaged over `SLOPES` and `CONSTANTS`.

    Between them the mean size of the slopes and that of the last coordinate, where slopes explain any part of ``most``
    (of the squared label bound) as likely as any other.

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
    alike = share * np.where(sizes <= most, sizes, 0.0)
    alike = alike / alike.sum() if alike.sum() > 0 else share
    return variances, (float(alike @ sizes), float(alike @ constants)), gain


def _around_mean(joint: Matrix, noise: float, n_rows: float, constant: float, lengths: float, size: float) -> Matrix:
    """Covariance of slopes that are alike, and of the constant feature's part that leaves the mean row where it is.

    With a constant feature the error to expect may not depend on where the origin of the rows is: slopes and the level
    at the mean row are independent, not slopes and the level at 0. The noisy mean is shrunk by what of its length is
    noise. ``size`` is the mean square of the predictors, without the level.
    """
    d = len(joint) - 1
    if not constant:
        return size * n_rows / lengths * np.eye(d)
    mean = joint[: d - 1, d - 1] / (constant * n_rows)
    square = float(mean @ mean)
    kept = max(0.0, 1 - (d - 1) * (noise / (constant * n_rows)) ** 2 / square) if square > 0 else 0.0
    mean = kept * mean
    around = max(lengths / n_rows - float(mean @ mean), LEAST_AROUND * lengths / n_rows)
    turn = np.vstack([np.eye(d - 1), -mean / constant])
    found: Matrix = size / around * turn @ turn.T
    return found


def improved(
    found: Posterior, gradient: Vector, std: float, bias: Matrix | None = None, shown: float = 1.0
) -> Posterior:
    """After the noisy gradient of half the squared residuals at the point.

    ``bias`` is the covariance of what cutting residuals may have added to the gradient beside the noise, `bias_of_cut`:
    where it is the larger one, what was known of that direction before remains. ``shown`` is the part of it that
    standard errors count, `shown_of_bias`.
    """
    d = len(gradient)
    bias = np.zeros((d, d)) if bias is None else bias
    variation = std**2 * np.eye(d) + error_covariance(found.moment, found.noise, found.spread) + bias
    gain = solve_psd(found.moment @ found.spread @ found.moment + variation, found.moment @ found.spread).T
    left = np.eye(d) - gain @ found.moment
    spread = left @ found.spread @ left.T + gain @ variation @ gain.T
    own = std**2 + found.noise**2 * float(np.trace(found.left_by_noise))
    of_noise = left @ found.left_by_noise @ left.T + own * gain @ gain.T
    return replace(
        found,
        point=found.point - gain @ gradient,
        spread=(spread + spread.T) / 2,
        left_by_noise=of_noise + gain @ bias @ gain.T,
        stated=of_noise + shown * gain @ bias @ gain.T,
        shrinkage=left @ found.shrinkage,
    )


def bias_of_cut(found: Posterior, cut: float, constant: float) -> Matrix:
    """By how much residuals that are cut at ``cut`` may move the gradient: its second moments.

    Skewed residuals e of mean 0 have another mean when they are cut, by ``t = E (|e| - cut)_+ <= E e^2 / (4 cut)`` at
    most. If their law is the same at all rows, each adds so much of itself, and with a constant feature, whose products
    tell the sum of the rows, all of it moves the intercept: without this that of rare events would be wrong by many
    standard errors, and the more the more rows there are. Where the skewness follows the rows, ``b(x)`` of mean square
    t^2 adds ``sum x b(x)``, whose square by the inverse second moment M is at most ``n t^2``, that of its projection on
    linear functions; it counts as ``(n t^2 / d) M``, alike in all directions. Of the most that there can be any part is
    as likely as another: a third of its square.
    """
    t = _mean_cut(found, cut)
    bias = found.n_rows * t**2 / len(found.point) * found.moment
    if constant:
        moved = t * found.moment[:, -1] / constant
        bias = bias + np.outer(moved, moved)
    return bias


def shown_of_bias(found: Posterior, gradient: Vector, std: float, cut: float, constant: float) -> float:
    """Which part of `bias_of_cut` the gradient does not speak against: of squares, at most 1.

    Residuals that lose ``t`` on average when they are cut move the gradient by t times the sum of the rows. That
    product is known to what noise and the first solution leave of it, ``1 / (m' S^-1 m)`` for the sum m and their
    covariance S, mostly far better than the most that t can be: errors of a symmetric law show none. The mean square of
    t counts that follows from both. Without a constant feature nothing shows t.

    Examples
    --------
    >>> rng, n = np.random.default_rng(0), 100_000
    >>> x = np.column_stack([rng.uniform(-1, 1, n), np.ones(n)])
    >>> shares = []
    >>> for errors in (rng.normal(size=n) / 5, (rng.random(n) < 0.05) - 0.05):
    ...     joint = np.column_stack([x, errors])
    ...     found = first_posterior(joint.T @ joint, 1.0, label_scale=1.0, label_bound=1.0, n_rows=n, row_norm=1.0,
    ...                             constant=1.0, ridge=0.0)
    ...     cut = 2.5 * found.residuals
    ...     gradient = x.T @ np.clip(x @ found.point - errors, -cut, cut)
    ...     shares.append(round(shown_of_bias(found, gradient, 1.0, cut, 1.0), 2))
    >>> shares
    [0.0, 1.0]
    """
    if not constant:
        return 1.0
    m = found.moment[:, -1] / constant
    error = error_covariance(found.moment, found.noise, found.spread)
    covariance = found.moment @ found.spread @ found.moment + std**2 * np.eye(len(m)) + error
    solved = solve_psd(covariance, m)
    information = float(m @ solved)
    if information <= 0:
        return 1.0
    prior = _mean_cut(found, cut) ** 2
    kept = prior / (prior + 1 / information)
    return min(1.0, ((kept * float(gradient @ solved) / information) ** 2 + kept / information) / prior)


def _mean_cut(found: Posterior, cut: float) -> float:
    """What residuals may lose on average by being cut, its root mean square over all that it may be."""
    return found.residuals**2 / (4 * cut) / math.sqrt(3)

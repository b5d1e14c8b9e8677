"""How large slopes are, by what noisy releases say of them: where little is said, little is left of a step.

Coordinates are those of a normal prior: slopes of one size, and the margin at the mean row, which is independent of
them. The size is nowhere stated. A first gradient tells it roughly (`evidence`), all releases together better
(`weighed_by_size`): a point is then the mean over all sizes, by how likely they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

LEVEL = 0.1
"""Variance of the margin at the mean row around the best one for all rows: slopes move it, and the more (by the same
part of its square) the larger it is."""
LEAST_AROUND = 0.1
"""Of the rows' mean squared length, around their mean, whatever the noisy mean says."""
SOLVABLE = 1e-12
"""Condition to which matrices are kept, so that floating-point solvers find them positive."""
EVIDENCE, SCARCE_EVIDENCE = 1.0, 0.1
"""Precision of the logarithm of the prior's variance; where data are scarce nothing must keep it from shrinking."""
SIZES = np.geomspace(1e-3, 2.0, 61)
"""Variances of the slopes that are weighed, relative to the prior's."""


def shrunken(mean: float, std: float) -> float:
    """A noisy mean of labels, as likely anywhere in [-1, 1] before; never at the ends."""
    most = 1 / (1 + max(std, 1e-9))
    return min(max(mean / (1 + 3 * std**2), -most), most)


def around_mean(
    mean: Vector, constant: float, square: float, noise: float, margin: float, std: float
) -> tuple[Vector, Matrix, float]:
    """Variances of the slopes (of predictors of variance 1) and of the margin at the mean row, the matrix that makes
    coordinates of both, and which part of the latter variance is the slopes' doing.

    The noisy mean is shrunk by what of its length is noise; what the rest of its noise makes of slopes counts as
    variance of the margin there.

    Parameters
    ----------
    mean : array
        Of the rows without the constant feature, with noise of standard deviation ``noise / constant``.
    constant : float
    square : float
        Mean of the rows' squared lengths.
    noise : float
    margin, std : float
        The best margin for all rows, and the standard deviation of what its noise has left.
    """
    d, noises = len(mean), (noise / constant) ** 2
    length = float(mean @ mean)
    kept = max(0.0, 1 - d * noises / length) if length > 0 else 0.0
    mean = kept * mean
    around = max(square - float(mean @ mean), LEAST_AROUND * square)
    moved = LEVEL * (1 + margin**2)
    last = std**2 + moved + kept * noises / around
    turn = np.eye(d + 1)
    turn[-1, :d] = -mean / constant
    return np.append(np.full(d, 1 / around), last / constant**2), turn, moved / last


def evidence(
    g: Vector,
    turned: Matrix,
    prior: Vector,
    slopes: Vector,
    variance: Vector,
    factor_of: Callable[[float], float],
    scarce: bool,
) -> float:
    """By how much the variance of the slopes is larger than was assumed: most likely given the first gradient.

    With a normal prior of standard deviation 1 on its logarithm. It may shrink only where data are scarce.
    ``factor_of`` tells the variance of margins of the one that a linear model sees.
    """
    of_slopes = (turned * (prior * slopes)) @ turned.T
    rest = (turned * (prior * (1 - slopes))) @ turned.T
    rest += np.diag(np.maximum(variance, SOLVABLE * float(np.trace(of_slopes + rest))))
    weights, vectors = scipy.linalg.eigh(of_slopes, rest)
    z = (vectors.T @ g) ** 2
    logs = np.linspace(-5.0, 4.0, 181)
    variances = 1 + np.exp(logs)[:, None] * np.maximum(weights, 0.0)
    likelihood = (
        -0.5 * (np.log(variances) + z / variances).sum(axis=1) - (SCARCE_EVIDENCE if scarce else EVIDENCE) * logs**2 / 2
    )
    factor = factor_of(float(np.exp(logs[int(np.argmax(likelihood))])))
    return factor if scarce else max(1.0, factor)


def made_margins(g: Vector, gain: Matrix, variance: Vector, squares: Matrix) -> float:
    """Standard deviation of the margins that a step makes, without what noise alone is expected to make.

    Examples
    --------
    >>> one, variance = np.eye(2), np.full(2, 4.0)
    >>> made_margins(np.array([3.0, 4.0]), one, variance, one), made_margins(np.array([1.0, 1.0]), one, variance, one)
    (4.123105625617661, 0.0)
    """
    step = gain @ g
    made = float(step @ squares @ step) - float(np.sum(squares * ((gain * variance) @ gain.T)))
    return float(np.sqrt(max(made, 0.0)))


def weighed_by_size(
    moved: Vector, reached: Matrix, noise: Matrix, turn: Matrix, prior: Vector, slopes: Vector, tied: float
) -> tuple[Matrix, float]:
    """What is kept of ``moved``, where any order of `SIZES` is as likely as another, and how large slopes may be.

    With ``moved = reached (w - w_0) + noise`` and a normal prior of w around w_0 the best guess for a size s is
    ``P reached' (reached P reached' + noise)^-1 moved``, P the covariance for that size: s times the slopes', and of
    the margin at the mean row ``s^2`` times the part ``tied``, because what slopes do to it is quadratic in them.
    The size that is returned, for the error that is stated, is the mean where any size is as likely as another: what
    steps leave to a constant may be there all the same.

    Examples
    --------
    >>> one, ones = np.eye(9), np.ones(9)
    >>> def kept(moved):
    ...     return weighed_by_size(moved * ones, one, one, one, 25 * ones, ones, 0.0)
    >>> [[round(float(np.trace(K)) / 9, 2), round(size, 2)] for K, size in (kept(5.0), kept(0.5))]
    [[0.96, 1.21], [0.12, 0.02]]
    """
    free = np.where(slopes > 0, 0.0, (1 - tied) * prior)
    of_slopes = (turn * (prior * slopes)) @ turn.T @ reached.T
    of_level = (turn * free) @ turn.T @ reached.T
    rest = reached @ of_level + noise
    shared = reached @ of_slopes
    rest += np.eye(len(moved)) * max(SOLVABLE * float(np.trace(rest + shared)), np.finfo(float).tiny)
    weights, vectors = scipy.linalg.eigh((shared + shared.T) / 2, (rest + rest.T) / 2)
    margin = np.where(slopes > 0, 0.0, np.sqrt(tied * prior))  # the last coordinate, which turns nothing else
    seen, column = vectors.T @ moved, vectors.T @ (reached @ margin)
    variances = 1 + SIZES[:, None] * np.maximum(weights, 0.0)
    solved = column / variances
    joined = SIZES**2 / (1 + SIZES**2 * (solved @ column))
    explained = (seen**2 / variances).sum(axis=1) - joined * (solved @ seen) ** 2
    likelihood = -(np.log(variances).sum(axis=1) + np.log1p(SIZES**2 * (solved @ column)) + explained) / 2
    share = np.exp(likelihood - likelihood.max())
    share /= share.sum()

    def inverse(power: int) -> Matrix:
        part = share * SIZES**power
        return np.diag(part @ (1 / variances)) - (solved.T * (part * joined)) @ solved

    gain = of_level @ vectors @ inverse(0) + of_slopes @ vectors @ inverse(1)
    gain += np.outer(margin, reached @ margin) @ vectors @ inverse(2)
    return gain @ vectors.T, float(share @ SIZES**2 / (share @ SIZES))

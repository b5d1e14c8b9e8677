"""How far a solution that was made of noisy releases is from the truth: covariances, intervals, tests.

For an estimate that solves ``sum of gradients = 0`` up to noise and shrinkage, in units of sums (no further n),

    Cov = V + G H^-1 J H^-1 G',

V what the noise of the releases has left in it, H the Hessian of the objective, J the variation of the rows' gradients,
G how much of the way to the minimiser was gone (spec 10, sections 5 and 7.6). For the likelihood of a canonical link J
is the Hessian of the loss alone. Where rows count by weights q of at most 1, J has their squares and that Hessian
bounds it: intervals are wider than they have to be, never narrower. All of it follows from releases and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, ndtr, ndtri

from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

SHRUNK = 0.2
"""Largest entry of ``I - G``, from which on intervals are not valid: the solution is pulled to where it began."""
SEEN = 3.0
"""Standard deviations of its noise that a curvature has to be above: two equal columns have none, and seem to in one of
700 fits."""
BIASED = 0.3
"""Standard errors by which a penalty may move a coefficient: intervals of 95 % then cover 93.9 %."""


@dataclass(frozen=True)
class Uncertainty:
    """What is known of the error of one solution.

    Attributes
    ----------
    covariance : array of shape (p, p), or (p,)
        Of the error, over the rows that might have been drawn and over the noise; variances where they alone are known.
    noise : array of shape (p,)
        The part of its diagonal that is due to the noise of privacy.
    invalid : str
        Why no interval made of it is valid; empty if they are.
    weakest : tuple of int
        Of which coordinates that is true most, where it is not of all.
    """

    covariance: Matrix
    noise: Vector
    invalid: str = ""
    weakest: tuple[int, ...] = ()

    def mapped(self, matrix: Matrix) -> Uncertainty:
        """Of the linear map of the solution, with the noise part as if coordinates were independent where they mix."""
        covariance = matrix @ self.covariance @ matrix.T
        return Uncertainty(covariance, np.square(matrix) @ self.noise, self.invalid, self.weakest)


def sandwich(
    noise: Matrix,
    shrinkage: Matrix,
    hessian: Matrix,
    variation: Matrix,
    pull: Vector | None = None,
    hessian_std: float = 0.0,
) -> Uncertainty:
    """``V + G H^-1 J H^-1 G'`` with ``G = I - shrinkage``, and whether shrinkage or a penalty make intervals wrong.

    Parameters
    ----------
    noise : array of shape (p, p)
        V.
    shrinkage : array of shape (p, p)
        ``I - G``: what is left of the distance between start and minimiser.
    hessian, variation : array of shape (p, p)
        H and J, of sums.
    pull : array of shape (p,), optional
        Gradient of the penalty there, which moves the solution by ``H^-1 pull``.
    hessian_std : float
        Of the noise in H along one direction: where H is not above `SEEN` times it, nothing is known of what noise and
        rows do along that direction, and what is stated of it is noise as well.

    Examples
    --------
    >>> found = sandwich(np.eye(1), np.zeros((1, 1)), np.array([[4.0]]), np.array([[4.0]]))
    >>> found.covariance.tolist(), found.noise.tolist(), found.invalid
    ([[1.25]], [1.0], '')
    """
    whole = np.eye(len(hessian))
    inverse = solve_psd(hessian, whole)
    reached = (whole - shrinkage) @ inverse
    covariance = noise + reached @ variation @ reached.T
    moved = np.zeros(len(hessian)) if pull is None else np.abs(inverse @ pull)
    share = float(np.max(moved / np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))))
    curvatures, directions = np.linalg.eigh(hessian)
    flat = directions[:, curvatures < SEEN * hessian_std]
    few = flat if 2 * flat.shape[1] < len(hessian) else flat[:, :0]  # where most are hidden, the reason is the noise
    elsewhere = np.abs(shrinkage - few @ (few.T @ shrinkage))
    left = float(elsewhere.max())
    invalid, weakest = "", tuple[int, ...]()
    if left > SHRUNK:
        weakest = _largest(elsewhere.max(axis=1))
        invalid = (
            f"up to {left:.0%} of a coefficient was left where the fit began, because its signal is not above the "
            "noise, and an interval around the rest would miss the truth more often than it says. With more rows, a "
            "larger epsilon or fewer features there would be one"
        )
    elif flat.size:
        weakest = _largest(np.abs(flat[:, 0]))
        invalid = (
            "along some direction of the coefficients the rows vary by no more than the noise does, so that nobody "
            "knows how sure it is: columns are sums of one another, or nearly constant. Without them, with more rows "
            "or a larger epsilon there would be intervals; where the columns of a category add up to the constant, as "
            "--levels makes them, with a level to compare with (dpdist ingest --reference COLUMN=LEVEL), or with "
            "fit_intercept=False"
        )
    elif share > BIASED:
        weakest = _largest(moved)
        invalid = (
            f"the penalty pulls a coefficient by {share:.2g} standard errors, and an interval around it would miss the "
            "truth more often than it says. With a smaller alpha, or alpha=0, there would be one"
        )
    return Uncertainty((covariance + covariance.T) / 2, np.diag(noise).copy(), invalid, weakest)


def _largest(sizes: Vector, share: float = 0.5, most: int = 4) -> tuple[int, ...]:
    """Positions of those above a share of the largest, the largest first: those to do something about."""
    first = np.argsort(-sizes, kind="stable")[:most]
    return tuple(int(i) for i in first if sizes[i] > share * sizes[first[0]])


def shrunk_to(expected: Matrix, seen: Matrix, std: float) -> Matrix:
    """A variation that was released with noise, nearer to the expected one the less their difference says.

    An eigenvalue v of the difference becomes ``sign(v) sqrt(v^2 - 4 d std^2)``, and 0 where noise makes such a one:
    the best there is for few directions under symmetric noise that has a standard deviation of ``std`` off the diagonal
    and of ``sqrt(2) std`` on it (Gavish and Donoho 2017). No direction varies by less than nothing.

    Examples
    --------
    >>> shrunk_to(np.eye(2), np.diag([4.0, 1.0]), 0.0).tolist(), shrunk_to(np.eye(2), np.diag([4.0, 1.0]), 9.0).tolist()
    ([[4.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    """
    values, vectors = np.linalg.eigh(seen - expected)
    kept = np.sign(values) * np.sqrt(np.maximum(values**2 - 4 * len(values) * std**2, 0.0))
    values, vectors = np.linalg.eigh(expected + (vectors * kept) @ vectors.T)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def quantile(level: float) -> float:
    """How many standard errors to both sides an interval of that level reaches.

    >>> round(quantile(0.95), 3)
    1.96
    """
    return float(ndtri((1 + level) / 2))


def two_sided(z: ArrayLike) -> Vector:
    """The probability that a standard normal number is at least as large in size.

    >>> float(two_sided([1.96])[0].round(3))
    0.05
    """
    return np.asarray(2 * ndtr(-np.abs(z)), dtype=np.float64)


def wald(difference: Vector, covariance: Matrix) -> tuple[float, int, float]:
    """``d' C^-1 d``, the rank of C, and the probability of a chi-squared number that large.

    Directions in which C is nothing but rounding are left out; a difference there is one that cannot be.

    >>> wald(np.array([2.0]), np.array([[1.0]]))[:2]
    (4.0, 1)
    """
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * max(float(values[-1]), np.finfo(float).tiny)
    statistic = float(np.sum((vectors.T @ difference)[kept] ** 2 / values[kept]))
    degrees = int(kept.sum())
    return statistic, degrees, float(chdtrc(degrees, statistic)) if degrees else math.nan

"""All gradients of a loop at once: what each says of the minimiser, by the Hessian that is known at the end.

A gradient g at a point v says ``H v - g = H w* + error``, whichever releases made v what it is. While steps are made,
nobody knows how far v is from the minimiser; the filter discounts each gradient by what there may be. At the end the
points tell. Where they lie within the noise of the last one, their gradients count by their noise alone, and T of
them are as good as one with the whole budget; those from far away count little.

The error of a gradient at a distance D (a matrix: squares, and what is not known of them) has three parts:

* its noise;
* that of the Hessian: ``nu^2 |v - w|^2`` in each coordinate, for entries with noise of standard deviation nu, and a
  small part of that for what is not known of the distance;
* the Hessian has changed on the way. Along it its mean differs by a share of about half the margins that the way
  makes: for the logistic loss ``|l'''| <= l''``, and the mean of a linear change is half of it. As much is counted
  along the way as in all directions together.

With R the sum of these and P the prior's precision the most likely point is ``sum_t K_t (H v_t - g_t)`` plus what the
prior adds, ``K_t = C H R_t^-1``, ``C = (P + sum_t H R_t^-1 H)^-1``. Its error is ``C P`` times the distance from the
prior's centre, and ``sum_t K_t e_t`` of independent e_t: their covariance is exact for a quadratic, for the weights
depend on earlier releases only through distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpdist.solvers.spectral import solve_psd

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

ERROR_OF_HESSIAN = 0.15
"""Which part of a Hessian's noise counts where a distance is not known: the rest of it falls on directions that the
gain does not use."""
CHANGED = 0.5
"""By which share of the margins between two points the mean Hessian between them differs from that at one of them."""
LOOKS = 2
"""How often distances are measured from the point that they have led to."""


class Seen(NamedTuple):
    """A gradient, where it was asked, and the variances of its noise."""

    point: Vector
    gradient: Vector
    variance: Vector


class Joint(NamedTuple):
    """The most likely point, the gain of each gradient, what errors have left in it, and what is left of the way."""

    point: Vector
    gains: list[Matrix]
    noise: Matrix
    shrinkage: Matrix


def joint(
    seen: Sequence[Seen],
    hessian: Matrix,
    error: float,
    squares: Matrix,
    prior: Matrix,
    origin: Vector,
    point: Vector,
    spread: Matrix,
) -> Joint:
    """What all gradients say together.

    Parameters
    ----------
    seen : sequence of Seen
    hessian : array of shape (d, d)
        Of the sum, at the last points.
    error : float
        Standard deviation of the noise of its entries.
    squares : array of shape (d, d)
        Second moment of the rows (a mean): ``d' squares d`` is the mean square of the margins between two points.
    prior, origin : array
        Covariance of the minimiser around the point where the loop began.
    point, spread : array
        What is known so far, and the second moment of its error.

    Examples
    --------
    Two gradients at the minimiser, one at a margin of 2 from it:

    >>> at = np.array([1.0])
    >>> seen = [Seen(0 * at, -100 * at, np.ones(1)), *[Seen(at, e * at, np.ones(1)) for e in (-0.5, 0.5)]]
    >>> one = np.eye(1)
    >>> found = joint(seen, 100 * one, 0.0, 4 * one, 25 * one, 0 * at, at, 1e-4 * one)
    >>> [round(float(gain[0, 0]), 4) for gain in found.gains], round(float(found.noise[0, 0]) * 1e4, 2)
    ([0.0, 0.005, 0.005], 0.5)
    """
    d = len(hessian)
    precision = solve_psd(prior, np.eye(d))
    for _ in range(LOOKS):
        weighted = [solve_psd(_error(s, point, spread, hessian, error, squares), hessian) for s in seen]
        spread = solve_psd(precision + sum(hessian @ weights for weights in weighted), np.eye(d))
        gains = [spread @ weights.T for weights in weighted]
        left = spread @ precision
        point = left @ origin + sum(
            gain @ (hessian @ s.point - s.gradient) for gain, s in zip(gains, seen, strict=True)
        )
    noise = spread - left @ spread
    return Joint(point, gains, (noise + noise.T) / 2, left)


def _error(seen: Seen, point: Vector, spread: Matrix, hessian: Matrix, error: float, squares: Matrix) -> Matrix:
    """Covariance of what a gradient errs by, if the minimiser is around the point."""
    way = seen.point - point
    apart = np.outer(way, way) + spread
    changed = CHANGED**2 * float(np.sum(squares * apart)) / 2
    even = float(np.sum(hessian * apart)) / len(hessian)
    own = np.diag(seen.variance + error**2 * (float(way @ way) + ERROR_OF_HESSIAN**2 * float(np.trace(spread))))
    return np.asarray(own + changed * (hessian @ apart @ hessian + even * hessian))

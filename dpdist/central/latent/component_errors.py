"""How sure the centre of two components is that clipped gradients found.

The model gives the whole law of a row, so that nothing has to be released for it: with ``|b| = r`` known, the part of
a row along b is normal around ``+-r``, and the square of the rest is ``sigma^2`` times a chi-squared number. These two
numbers place a clipped gradient in a plane, and three means over it say everything:

    m = E clip(g)         at the truth: clipping moves the answer by m / A along b,
    V = Var clip(g)       so that rows move it by V / (n A^2),
    A = -dE clip(g)/db    and noise of variance s^2 in each of T steps of size h by the sum of h^2 s^2 (1 - h A)^(2 t),

each of them along b and across (where m is 0). That is the sandwich of an estimating equation, by quadrature instead of
by rows (spec 10, section 5). The shift by clipping is counted as if it were one more standard error, at its largest:
``P(|Z + c| <= 1.96 sqrt(1 + c^2)) >= .95`` for every c.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri

from dpdist.method import Vector
from dpdist.solvers.standard_errors import BIASED, SEEN, Uncertainty

ALONG, ACROSS = 400, 200
"""Equally likely points of the two numbers that a row is."""
BASIS = (
    "Rests on the model: normal rows around b and -b with the stated noise_std in every direction. What clipping moves "
    "is counted; components of another shape or size are not. The sign is that of start."
)


class ClippedLaw(NamedTuple):
    """Of a clipped gradient at the truth: its mean, variances and slopes, along b and across."""

    mean: float
    variances: tuple[float, float]
    slopes: tuple[float, float]


def clipped_law(r: float, sigma: float, clip_norm: float, d: int) -> ClippedLaw:
    """The law for components at distance r from 0.

    Examples
    --------
    >>> law = clipped_law(5.0, 1.0, 100.0, 3)     # far apart and not clipped: as if nothing were hidden
    >>> round(law.variances[1], 2), round(law.slopes[0], 2), round(law.slopes[1], 2), abs(law.mean) < 1e-6
    (1.0, 1.0, 1.0, True)
    """
    y = (r + sigma * ndtri((np.arange(ALONG) + 0.5) / ALONG))[:, None]
    levels = (np.arange(ACROSS) + 0.5) / ACROSS
    q = sigma**2 * 2 * gammaincinv((d - 1) / 2, levels)[None, :] if d > 1 else np.zeros((1, 1))
    across = max(d - 1, 1)
    t = np.tanh(r * y / sigma**2)
    curved = (1 - t * t) / sigma**2
    g = t * y - r
    square = g * g + t * t * q
    cut = square > clip_norm**2
    factor = np.where(cut, clip_norm / np.sqrt(np.maximum(square, np.finfo(float).tiny)), 1.0)
    lost = np.where(cut, 1 / np.maximum(square, np.finfo(float).tiny), 0.0)  # clip(g) does not grow along g itself
    inner = curved * (t * (y * y + q) - r * y)

    def mean(of: Vector) -> float:
        return float(np.broadcast_to(of, square.shape).mean())

    m = mean(factor * g)
    return ClippedLaw(
        m,
        (mean((factor * g) ** 2) - m * m, mean((factor * t) ** 2 * q) / across),
        (
            mean(factor * (1 - curved * y * y + lost * g * (inner * y - g))),
            mean(factor * (1 - curved * q / across + lost * q / across * t * (inner - t))),
        ),
    )


def component_errors(
    b: Vector, sigma: float, clip_norm: float, n_rows: float, step: float, n_rounds: int, noise: float, radius: float
) -> Uncertainty:
    """Of the point after ``n_rounds`` steps of that size, with noise of standard deviation ``noise`` in each gradient.

    Parameters
    ----------
    b : array of shape (d,)
        Where it ended.
    sigma, clip_norm, radius : float
        Public.
    n_rows : float
    step : float
    n_rounds : int
    noise : float
        In a coordinate of the mean gradient.
    """
    length, d = float(np.linalg.norm(b)), len(b)
    if length >= radius * (1 - 1e-9):
        return _invalid(b, "the answer lies on the edge of the ball, with a larger radius there would be one")
    r, parts = length, (0.0, 0.0)
    for _ in range(2):  # noise makes b longer than what it is around
        law = clipped_law(r, sigma, clip_norm, d)
        noises = [_left_by_noise(step * noise, step * slope, n_rounds) for slope in law.slopes]
        drawn = [v / (n_rows * max(slope, 1e-9) ** 2) for v, slope in zip(law.variances, law.slopes, strict=True)]
        parts = (noises[0] + drawn[0], noises[1] + drawn[1])
        r = math.sqrt(max(length**2 - parts[0] - (d - 1) * parts[1], 0.0))
        if min(law.slopes) <= 0 or r**2 < SEEN**2 * max(parts) or 2 * r < length:
            return _invalid(
                b, "the centres are not farther apart than the noise, and a normal law says nothing of them. With more "
                "rows or a larger epsilon there would be one"
            )  # fmt: skip
    left = max(abs(1 - step * slope) for slope in law.slopes) ** n_rounds * 2 * radius
    if left > BIASED * math.sqrt(min(parts)):
        return _invalid(b, f"after {n_rounds} rounds it may be on its way still. With more rounds there would be one")
    u = b / length
    along, across = np.outer(u, u), np.eye(d) - np.outer(u, u)
    moved = (law.mean / law.slopes[0]) ** 2
    covariance = (parts[0] + moved) * along + parts[1] * across
    return Uncertainty(covariance, noises[0] * np.diag(along) + noises[1] * np.diag(across))


def _left_by_noise(noise: float, share: float, n_rounds: int) -> float:
    """Variance that steps leave which take ``share`` of what is left, each with so much noise."""
    kept = (1 - share) ** 2
    return noise**2 * (n_rounds if kept == 1 else (1 - kept**n_rounds) / (1 - kept))


def _invalid(b: Vector, why: str) -> Uncertainty:
    return Uncertainty(np.zeros((len(b), len(b))), np.zeros(len(b)), why)

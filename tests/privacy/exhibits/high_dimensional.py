"""Printed versions of high-dimensional methods that break their guarantee."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from dpdist.kernels.truncation import PHI_BOUND, ROOT2
from dpdist.privacy.mechanisms.selection import select
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import rounded_gaussian

ROOT_TWO_PI = math.sqrt(2 * math.pi)


def peel_with_repeats(
    v: np.ndarray, k: int, sensitivity: float, rho: float, bits: Bits, l2_sensitivity: float
) -> tuple[np.ndarray, np.ndarray]:
    """Peeling that searches all coordinates in every pick, as printed (seed 003, Algorithm 4): ``(indices, values)``.

    Noise and budget are those of `dpdist.privacy.mechanisms.peeling.peel`. The picks are private, whatever they repeat.
    The values are not: they are calibrated to the l2 distance of neighbouring vectors, which bounds the distance of k
    *different* coordinates. One coordinate that is released k times moves sqrt(k) times as far.
    """
    eps0 = math.sqrt(8 * 0.5 * rho / k)
    chosen = np.array([select(abs(v), 2 * sensitivity, eps0, bits) for _ in range(k)])
    scale = min(math.sqrt(k) * sensitivity, l2_sensitivity) / math.sqrt(2 * 0.5 * rho)
    return chosen, v[chosen] + rounded_gaussian(scale, k, bits)


def printed_lasso_range(feature_bound: float, radius: float) -> float:
    """What the printed lasso divides its scores by (seed 003, Algorithm 2): linear in the radius of the ball.

    ``2 Delta = 16 ||W||_1 K^2`` with the diameter ``||W||_1 = 2 radius``, for the sum of full squared losses and scores
    of vertices. The scores move by ``8 K^2 radius (radius + 1)``, because residuals grow with the ball as well: private
    for ``radius <= 3`` only.
    """
    return 32 * radius * feature_bound**2


def literal_smooth_truncation(u: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """``h_beta`` by its closed form, evaluated as it is written (seed 000, equations 3.69 to 3.77).

    The cubes cancel: beyond ``|u| = 1e5`` the result is not even bounded, and 0 gives NaN.
    """
    with np.errstate(all="ignore"):
        b = abs(u) / math.sqrt(beta)
        low, high = (ROOT2 - u) / b, (ROOT2 + u) / b
        f_low, f_high, e_low, e_high = ndtr(-low), ndtr(-high), np.exp(-(low**2) / 2), np.exp(-(high**2) / 2)
        cubic = u - u**3 / 6
        return (
            u * (1 - b**2 / 2) - u**3 / 6
            + PHI_BOUND * (f_low - f_high)
            - cubic * (f_low + f_high)
            + b / ROOT_TWO_PI * (1 - u**2 / 2) * (e_high - e_low)
            + u * b**2 / 2 * (f_low + f_high + (high * e_high + low * e_low) / ROOT_TWO_PI)
            + b**3 / (6 * ROOT_TWO_PI) * ((2 + low**2) * e_low - (2 + high**2) * e_high)
        )  # fmt: skip

"""Printed versions of private EM algorithms that break their guarantee (seed 000, section 7.2, and seed 002)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpdist.kernels.latent import TwoComponents
from dpdist.kernels.truncation import SmoothTruncation
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.privacy.randomness.discrete import rounded_gaussian
from dpdist.queries.latent_sums import LatentCoordinateSum, LatentGradientSum

BUDGET = (1.0, 1e-3)
POINT = np.array([1.0, 0.0])
FAR = np.array([[1e3, 1e6], [1e3, -1e6]])
"""The row in which two neighbours differ: it pulls the point up, or down, as far as its bound lets it."""
N_RUNS = 100_000
Run = Callable[[int], np.ndarray]


def _released(values: Callable[[], tuple[float, ...]], std: float, grid: float) -> Run:
    """Values of either neighbour with Gaussian noise, rounded to the grid; found when they are asked for."""

    def run(which: int) -> np.ndarray:
        bits = StreamBits(np.random.Generator(np.random.Philox(which + 1)))
        noise = np.asarray(rounded_gaussian(Fraction(std / grid), N_RUNS, bits), dtype=float)
        return values()[which] / grid + noise

    return run


def clipped(noise_for: float) -> Run:
    """A sum of gradients of norm 1 at most, with noise for a sensitivity of so many times 1: 2 is right."""
    query = LatentGradientSum(TwoComponents(1.0), 1.0)
    return _released(lambda: _of_far_rows(query), noise_for / gdp_mu(*BUDGET), query.grid)


def _of_far_rows(query: LatentGradientSum | LatentCoordinateSum) -> tuple[float, ...]:
    return tuple(float(query.summarise({"X": row[None]}, POINT, None)[1]) * query.grid for row in FAR)


def printed_budget(epsilon: float, delta: float) -> float:
    """The epsilon-tilde of seed 002, Algorithm 2, as printed: ``sqrt(log 1/delta) + epsilon - sqrt(log 1/delta)``.

    The root should be of the sum; so it is epsilon itself, which is taken for the root of a rho.
    """
    return math.sqrt(math.log(1 / delta)) + epsilon - math.sqrt(math.log(1 / delta))


def truncated(printed: bool) -> Run:
    """A sum of truncated coordinates with the noise ``sensitivity / (sqrt(2) epsilon-tilde)``, or with ours."""
    bounded = SmoothTruncation(3.0, 1.0)
    query = LatentCoordinateSum(TwoComponents(1.0), bounded, 1)
    mu = math.sqrt(2) * printed_budget(*BUDGET) if printed else gdp_mu(*BUDGET)
    return _released(lambda: _of_far_rows(query), 2 * bounded.bound / mu, query.grid)


def literal_part(a: float, scale: float, beta: float, n_rows: int, n_parts: int) -> float:
    """What a row of a part adds to its mean gradient by (23) of seed 002, read literally.

    The truncation is a polynomial and a correction, and the polynomial is averaged over the ``m = n / T`` rows of the
    part, the correction over all n: where they should cancel, a cube of the entry is left.
    """
    u = a / scale
    polynomial = u * (1 - u * u / (2 * beta)) - u**3 / 6
    correction = float(SmoothTruncation(beta).unit(u)) - polynomial
    return scale * (polynomial * n_parts / n_rows + correction / n_rows)


def parts(printed: bool) -> Run:
    """The mean gradient of a part with the noise for its truncated coordinates, of a row far out on either side."""
    n_rows, n_parts, scale, beta = 1000, 10, 1.0, 3.0
    bounded = SmoothTruncation(beta, scale)
    std = 2 * bounded.bound * n_parts / n_rows / gdp_mu(*BUDGET)
    if printed:
        values = [literal_part(sign * 50.0, scale, beta, n_rows, n_parts) for sign in (1.0, -1.0)]
    else:
        values = [float(bounded(sign * 50.0)) * n_parts / n_rows for sign in (1.0, -1.0)]
    return _released(lambda: (values[0], values[1]), std, 2.0**-30)

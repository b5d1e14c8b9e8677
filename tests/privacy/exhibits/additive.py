"""Additive noise as textbooks print it: a standard deviation that is right up to epsilon = 1, and noise in floats."""

from __future__ import annotations

import math

import numpy as np

from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.mechanisms.additive import Laplace
from dpdist.privacy.randomness.bits import StreamBits

CLASSICAL = 6.0, 0.3
"""Beyond epsilon = 1 the printed formula falls short, and clearly where delta is large."""
STEPS = 2.0**-53
"""Uniform numbers are multiples of it."""
UNIT = 2.0**-40
"""Grid of our release."""


def printed_gaussian(which: int, n: int = 1_000_000) -> np.ndarray:
    """``sigma = sqrt(2 ln(1.25 / delta)) / epsilon`` for a sensitivity of 1."""
    epsilon, delta = CLASSICAL
    std = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return which + std * np.random.default_rng(which).standard_normal(n)


def our_gaussian(which: int, n: int = 1_000_000) -> np.ndarray:
    return which + np.random.default_rng(which).standard_normal(n) / gdp_mu(*CLASSICAL)


def float_laplace(which: int, n: int = 100_000) -> np.ndarray:
    """1 where a value 0 with noise ``-+ ln U`` in floats is one that the value 1 never gives (Mironov 2012).

    U is one of 2**53 numbers, so that a value reaches only some of the floats, and another value reaches others.
    """
    rng = np.random.default_rng(which)
    u = (rng.integers(0, 2**53, n) + 1) * STEPS
    released = which + np.where(rng.random(n) < 0.5, 1.0, -1.0) * -np.log(u)
    between = (released > 0) & (released < 1)
    return np.where(between & ~_reached(released, 1.0), 1.0, 0.0)


def _reached(released: np.ndarray, value: float) -> np.ndarray:
    """Whether a value above these can have given them: by the numbers U next to what would have to be drawn."""
    found = np.zeros(len(released), dtype=bool)
    nearest = np.rint(np.exp(-np.abs(value - released)) / STEPS)
    for step in range(-6, 7):
        with np.errstate(divide="ignore", invalid="ignore"):
            found |= value + np.log((nearest + step) * STEPS) == released
    return found


def grid_laplace(which: int, n: int = 100_000) -> np.ndarray:
    """The same value with noise that is exact on a grid."""
    units = np.full(n, int(which / UNIT))
    released = Laplace().at(1.0).release(units, 1 / UNIT, StreamBits(np.random.default_rng(which)))
    return released.astype(np.float64) * UNIT

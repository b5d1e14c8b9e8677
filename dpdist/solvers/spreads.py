"""How far numbers are spread, from noisy counts of their sizes in octaves."""

from __future__ import annotations

import numpy as np
import scipy.special
from numpy.typing import NDArray

Vector = NDArray[np.float64]
STEPS = 12
"""Spreads that are tried in an octave."""
LEAST = 1e-6
"""Of all numbers, in an octave, whatever its noisy count says."""
POWERS = (-12.0, 4.0)
"""Of sizes, that a density may follow."""


def normal_spread(counts: Vector, noise: float, longest: float, total: float) -> float:
    """The standard deviation of normal numbers around 0 whose sizes were counted, by weighted least squares.

    Parameters
    ----------
    counts : array
        Of sizes in ``(longest / 2, longest]``, in the octave below it, and so on; the last one of all smaller ones.
        Sizes beyond ``longest`` count with those at it.
    noise : float
        Standard deviation of the noise of each.
    longest : float
    total : float
        How many numbers there are; public.

    Examples
    --------
    >>> sizes = np.abs(np.random.default_rng(0).normal(size=20_000))
    >>> counts = np.histogram(sizes, [0.0, 1/4, 1/2, 1.0, 2.0, 9.0])[0][::-1].astype(float)
    >>> round(normal_spread(counts[1:] + [counts[0], 0, 0, 0], 10.0, 2.0, 20_000), 2)
    1.0
    """
    n = len(counts)
    edges = longest * 2.0 ** -np.arange(1.0, n)
    spreads = longest * 2.0 ** (-np.arange(STEPS * n + 1.0) / STEPS)
    above = scipy.special.erfc(edges / (np.sqrt(2.0) * spreads[:, None]))
    bounds = np.column_stack([np.zeros(len(spreads)), above, np.ones(len(spreads))])
    chances = np.diff(bounds, axis=1)
    variances = noise**2 + total * chances * (1 - chances)
    misfit = ((counts - total * chances) ** 2 / variances + np.log(variances)).sum(axis=1)
    return float(spreads[np.argmin(misfit)])


def cut_squares(counts: Vector, longest: float, total: float) -> tuple[float, float]:
    """The share of numbers that are no larger than ``longest``, and the mean square of all, cut off there.

    Within an octave densities are taken for powers, which follow from the octaves around it.

    Parameters
    ----------
    counts : array
        Of sizes beyond ``longest``, of those in ``(longest / 2, longest]``, in the octave below it, and so on.
    longest, total : float

    Examples
    --------
    >>> sizes = np.abs(np.random.default_rng(0).normal(size=100_000))
    >>> edges = 1.35 * 2.0 ** np.arange(-8.0, 1)
    >>> counts = np.histogram(sizes, np.append(edges, 99.0))[0][::-1].astype(float)
    >>> [round(value, 2) for value in cut_squares(counts, 1.35, 100_000)]
    [0.82, 0.72]
    """
    inside = np.maximum(counts[1:], LEAST * total)
    ends = longest * 2.0 ** -np.arange(float(len(inside)))
    between = np.clip(-np.diff(np.log2(inside / ends)), *POWERS)
    powers = np.append(1.5 * between[:1] - 0.5 * between[1:2], (between[1:] + between[:-1]) / 2)
    powers = np.clip(np.append(powers, between[-1:]), *POWERS)
    squares = counts[1:] * ends**2 * _above_half(powers + 2) / _above_half(powers)
    beyond = float(np.clip(counts[0] / total, 0.0, 1.0))
    return 1 - beyond, float(max(squares.sum(), 0.0)) / total + beyond * longest**2


def _above_half(power: Vector) -> Vector:
    """The integral of ``r^power`` from 1/2 to 1."""
    over = np.where(np.abs(power + 1) < 1e-6, 1e-6, power + 1)
    return np.asarray((1 - 2.0**-over) / over)

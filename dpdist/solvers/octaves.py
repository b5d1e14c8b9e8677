"""Where sizes of rows, labels and residuals are cut, from noisy counts of them in octaves.

Noise is in proportion to the size at which something is cut, and what is beyond is lost. Each rule weighs the two by
released counts and public numbers alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SEEN = 3.0
"""Standard deviations of its noise above which a count is one of rows."""
PARTS = 4
"""Of an octave, within which rows are taken for evenly spread on a logarithmic scale."""
MOST_SEEN = 0.5
"""Of the rows, which have to be seen in counts that are to tell a median."""
OF_SKEW = 3.0
"""Of the most that cutting may do to the mean of residuals any part is as likely as another: a third of its square."""


def tell(noise: float, n_rows: float) -> bool:
    """Whether a count of nothing but such noise is not taken for half of the rows."""
    return (SEEN + 1) * noise <= MOST_SEEN * n_rows


def scale_of_rows(counts: Vector, noise: float, longest: float, guess: float, largest: float = math.inf) -> float:
    """The norm B to which rows are scaled down, from released counts of their norms in octaves below ``longest``.

    Noise is proportional to B, the curvature to ``sum min(|x|, B)^2``: B is where their ratio is best, up to a largest
    one, because what few rows add is no curvature in all directions. Counts below their noise are none; where all are,
    B is the guess.

    Parameters
    ----------
    counts : array
        Of `dpdist.queries.scaled_rows.NormCounts`.
    noise : float
        Standard deviation of the noise of each.
    longest, guess, largest : float

    Examples
    --------
    >>> round(scale_of_rows(np.array([0.0, 0.0, 900.0, 100.0]), 1.0, 8.0, 2.0), 2)
    3.08
    """
    seen = np.where(counts > SEEN * noise, counts, 0.0)
    if not seen.any():
        return guess
    norms, rows = sizes_of_counts(seen, longest)
    curvature = (np.minimum(norms[:, None], norms[None, :]) ** 2 * rows).sum(axis=1)
    return float(norms[np.argmax(np.where(norms <= largest, curvature / norms, 0.0))])


def sizes_of_counts(counts: Vector, longest: float) -> tuple[Vector, Vector]:
    """Sizes that stand for counts in octaves below ``longest``, evenly spread in each, and how many there are of each.

    The first count is of sizes beyond, which stand at ``longest``.
    """
    parts = (np.arange(PARTS * (len(counts) - 1)) + 0.5) / PARTS
    return longest * np.append(1.0, 2.0**-parts), np.append(counts[0], np.repeat(counts[1:] / PARTS, PARTS))


def middle_size(counts: Vector, noise: float, longest: float, n_rows: float) -> float:
    """The median of sizes that were counted in octaves below ``longest``; 0 where less than half of the rows are seen.

    Where one count of nothing but noise may be half of the rows, nothing is seen.

    Examples
    --------
    >>> round(middle_size(np.array([0.0, 3.0, 500.0, 500.0, -4.0]), 2.0, 8.0, 1000), 2)
    2.0
    """
    seen = np.where(counts > SEEN * noise, counts, 0.0)
    if seen.sum() < MOST_SEEN * n_rows or not tell(noise, n_rows):
        return 0.0
    edges = math.log2(longest) - np.arange(len(seen) + 1.0) + 1.0  # the first is of sizes beyond
    above = np.append(0.0, np.cumsum(seen))
    return float(2.0 ** np.interp(above[-1] / 2, above, edges))


def scale_of_residuals(counts: Vector, noise: float, longest: float, n_rows: float, cost: float) -> float:
    """Where residuals are cut, from released counts of their sizes in octaves below ``longest``; 0 if they tell little.

    Noise of the size h costs ``cost h^2 / p^2`` of the squared error, p the share of residuals that are not cut, which
    is what is left of the curvature; at least half of them are not. Cutting moves the mean of skewed residuals by
    ``E (|r| - h)_+`` at most, over p, and a third of its square counts. Both are least together at h.

    Examples
    --------
    >>> sizes = np.abs(np.random.default_rng(0).normal(size=10_000))
    >>> counts = np.histogram(np.minimum(sizes, 16), 16 * 2.0 ** np.arange(-12, 2))[0][::-1]
    >>> [round(scale_of_residuals(counts, 10.0, 16.0, 10_000, cost), 2) for cost in (1e-6, 1e-3, 0.1)]
    [3.67, 1.83, 0.92]
    """
    seen = np.where(counts > SEEN * noise, counts, 0.0)
    if seen.sum() < MOST_SEEN * n_rows or not tell(noise, n_rows):
        return 0.0
    sizes, rows = sizes_of_counts(seen, longest)
    rows = rows / rows.sum()
    uncut = rows[::-1].cumsum()[::-1]  # sizes fall
    enough = int((uncut >= MOST_SEEN).sum())
    lost = (cost * sizes**2 + _beyond(sizes, rows) ** 2 / OF_SKEW)[:enough] / uncut[:enough] ** 2
    return float(sizes[np.argmin(lost)])


def scale_of_labels(counts: Vector, noise: float, longest: float, n_rows: float, cost: float) -> float:
    """Where labels are cut, from released counts of their sizes in octaves below ``longest``.

    Labels that are cut at B tell the part ``k = E |y| min(|y|, B) / E y^2`` of the slopes (exact for normal ones), with
    noise of variance ``s = cost B^2 / E y^2`` relative to what there is to tell. Gains do not know of k: they keep
    ``g = 1 / (1 + s)`` of it, and ``(1 - g k)^2 + g^2 s`` is left. Of labels that all have one sign the level is off by
    ``E (|y| - B)_+`` as well. Counts below their noise are none; where half of the rows are not seen, the public bound
    stays.

    Examples
    --------
    >>> sizes = np.abs(np.random.default_rng(0).normal(size=10_000))
    >>> counts = np.histogram(sizes, 16 * 2.0 ** np.arange(-12, 2))[0][::-1]
    >>> [round(scale_of_labels(counts, 10.0, 16.0, 10_000, cost), 2) for cost in (1e-6, 1e-3, 0.1)]
    [3.67, 3.08, 1.3]
    """
    seen = np.where(counts > SEEN * noise, counts, 0.0)
    if seen.sum() < MOST_SEEN * n_rows:
        return longest
    sizes, labels = sizes_of_counts(seen, longest)
    squares = float(labels @ sizes**2)
    kept = np.minimum(sizes[:, None], sizes[None, :]) @ (labels * sizes) / squares
    of_noise = cost * sizes**2 * labels.sum() / squares
    gain = 1 / (1 + of_noise)
    off = (_beyond(sizes, labels) ** 2) / (squares * labels.sum())
    return float(sizes[np.argmin((1 - gain * kept) ** 2 + gain**2 * of_noise + off)])


def _beyond(sizes: Vector, counts: Vector) -> Vector:
    """How much of all numbers together is beyond each size."""
    found: Vector = np.maximum(sizes[None, :] - sizes[:, None], 0.0) @ counts
    return found

"""Order statistics of columns that can be put together: sums, and the few smallest and largest entries of each.

An *extremes summary* of integers is an array with one row per column of the data,

    sum | m + 1 smallest, ascending | m + 1 largest, ascending,

and `merge` makes one of two; neither order nor grouping matters, and everything is exact. Columns with fewer than
``m + 1`` entries are padded: the smallest by the public bound, the largest by minus the bound, which is what
missing entries are merged away with.

From the summary of all n rows, ``n > 2 m``, `trimmed_sums` gives the sum of what remains without the m smallest and
the m largest, and `smooth_bounds` a bound of how far a row can move it, which is itself hardly moved by a row (seed
000, section 3.2, as corrected: `dpdist.privacy.mechanisms.smooth_sensitivity`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.kernels.clip import sanitise
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import to_units
from dpdist.losses import Loss

Units = NDArray[Any]

SLICE = 2**17
"""Entries that are looked at together."""
WEIGHT_BITS = 40
"""Smooth bounds are in ``2**-40`` of the units of the data."""


def extremes(units: Units, m: int, bound: int) -> NDArray[np.int64]:
    """The extremes summary of integers of shape (n, d), none larger than ``bound`` in absolute value.

    Examples
    --------
    >>> extremes(np.array([[5], [-2], [3], [9]]), 1, bound=9)
    array([[15, -2,  3,  5,  9]])
    >>> extremes(np.array([[5]]), 1, bound=9)
    array([[ 5,  5,  9, -9,  5]])
    """
    return _extremes_of([units], units.shape[1], m, bound)


def column_extremes(X: NDArray[Any], m: int, bound: float, grid: float) -> NDArray[np.int64]:
    """The extremes summary of the entries of X, cut at ``bound`` and truncated to the grid.

    A row with a non-finite entry counts as zeros, so that every row has one entry in every column.
    """
    parts = (_units(sanitise(X[a:b])[0], bound, grid) for a, b in _slices(X.shape, m))
    return _extremes_of(parts, X.shape[1], m, units_in(bound, grid))


def gradient_extremes(
    X: NDArray[Any],
    y: NDArray[np.float64],
    w: NDArray[np.float64],
    loss: Loss,
    *,
    m: int,
    bound: float,
    grid: float,
    intercept: float = 0.0,
) -> NDArray[np.int64]:
    """The extremes summary of ``l'(<x, w> + intercept w_d, y) (x, intercept)``, one column per coordinate.

    Rows count as in `dpdist.kernels.gradients.glm_gradient`: one with a non-finite entry or a label outside the
    declared set as zeros, a derivative that is not finite as 0.
    """
    d = X.shape[1] + (intercept > 0)
    if w.shape != (d,) or y.shape != (len(X),):
        raise DataError(f"expected {d} parameters and {len(X)} labels, got shapes {w.shape} and {y.shape}")

    def units(a: int, b: int) -> Units:
        rows, labels, weight = sanitise(X[a:b], y[a:b], loss.labels)
        u = np.full(len(rows), intercept * w[-1] if intercept > 0 else 0.0)
        _add_products(rows, w, u)
        with np.errstate(all="ignore"):
            derivative = np.asarray(loss.derivative(u, labels), dtype=np.float64)
            derivative = np.where(np.isfinite(derivative) & (weight > 0), derivative, 0.0)
            gradients = derivative[:, None] * rows
            if intercept > 0:
                gradients = np.hstack([gradients, derivative[:, None] * intercept])
        return _units(gradients, bound, grid)

    parts = (units(a, b) for a, b in _slices((len(X), d), m))
    return _extremes_of(parts, d, m, units_in(bound, grid))


def merge(total: Units | None, part: Units, wide: bool) -> Units:
    """The summary of two groups of rows; ``wide`` as in `dpdist.kernels.grid.add_units`."""
    part = part.astype(object) if wide else part
    if total is None:
        return part.copy()
    kept = (part.shape[1] - 1) // 2
    low = np.sort(np.hstack([total[:, 1 : 1 + kept], part[:, 1 : 1 + kept]]), axis=1)[:, :kept]
    high = np.sort(np.hstack([total[:, 1 + kept :], part[:, 1 + kept :]]), axis=1)[:, kept:]
    return np.hstack([total[:, :1] + part[:, :1], low, high])


def trimmed_sums(summary: Units) -> Units:
    """Sum of the entries of each column without its m smallest and m largest.

    >>> trimmed_sums(extremes(np.array([[5], [-2], [3], [9]]), 1, bound=9))
    array([8])
    """
    m = (summary.shape[1] - 1) // 2 - 1
    return summary[:, 0] - summary[:, 1 : 1 + m].sum(axis=1) - summary[:, m + 3 :].sum(axis=1)


def smooth_bounds(summary: Units, t: float, bound: int) -> Units:
    """A t-smooth bound of the sensitivity of `trimmed_sums` under replacement, in ``2**-40`` units: Python integers.

    ``max_k w_k h_k`` with ``h_k = x_(n-m+1+k) - x_(m-k)`` for ``k < m``, ``h_m = 2 bound`` and weights of about
    ``exp(-t k)``.

    Notes
    -----
    Replacing one entry shifts order statistics by at most one rank, so ``h_k(x') <= h_{k+1}(x)``, and ``h_m`` is a
    constant; with integers ``w_0 = 2**40`` and ``w_k <= exp(t) w_{k+1}`` the maximum moves by a factor of at most
    ``exp(t)``, exactly. The sum of what remains moves by at most ``x_(n-m+1) - x_(m) = h_0``, on both datasets.

    Examples
    --------
    >>> smooth_bounds(extremes(np.array([[5], [-2], [3], [9]]), 1, bound=9), 1.0, 9) / 2**40
    array([11.0], dtype=object)
    """
    m = (summary.shape[1] - 1) // 2 - 1
    low, high = summary[:, 1 : 2 + m].astype(object), summary[:, 2 + m :].astype(object)
    # x_(n-m+1+k) is entry k + 1 of the m + 1 largest, x_(m-k) entry m - k - 1 of the m + 1 smallest
    gaps = np.hstack([high[:, 1:] - low[:, :m][:, ::-1], np.full((len(low), 1), 2 * bound, dtype=object)])
    return (gaps * np.array(weights(t, m), dtype=object)).max(axis=1)


@functools.lru_cache(maxsize=16)
def weights(t: float, m: int) -> tuple[int, ...]:
    """``w_0 = 2**40, w_{k+1} = ceil(w_k q)`` with a rational ``q >= exp(-t)``, so that ``w_k <= exp(t) w_{k+1}``."""
    # a relative 2**-50 is more than the rounding error of the exponential
    q = Fraction(math.exp(-t)) * (1 + Fraction(1, 2**50))
    found = [2**WEIGHT_BITS]
    for _ in range(m):
        found.append(-(-found[-1] * q.numerator // q.denominator))
    return tuple(found)


def units_in(bound: float, grid: float) -> int:
    """The largest number of units of an entry."""
    return math.floor(bound / grid)


def _units(values: NDArray[np.float64], bound: float, grid: float) -> NDArray[np.int64]:
    return to_units(np.clip(values, -bound, bound), grid, bound)


def _slices(shape: tuple[int, ...], m: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that fit the cache, and are long compared with what is kept of them."""
    step = max(SLICE // shape[1], 4 * (m + 1))
    return ((start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def _extremes_of(parts: Iterable[Units], d: int, m: int, bound: int) -> NDArray[np.int64]:
    kept = m + 1
    sums = np.zeros((d, 1), dtype=np.int64)
    low, high = np.full((d, kept), bound, dtype=np.int64), np.full((d, kept), -bound, dtype=np.int64)
    for part in parts:
        columns = np.ascontiguousarray(part.T, dtype=np.int64)
        sums += columns.sum(axis=1, keepdims=True)
        low = np.partition(np.hstack([low, columns]), m, axis=1)[:, :kept]
        high = np.partition(np.hstack([high, columns]), columns.shape[1], axis=1)[:, -kept:]
    return np.hstack([sums, np.sort(low, axis=1), np.sort(high, axis=1)])


@kernel
def _add_products(rows, w, u):  # type: ignore[no-untyped-def]
    """``u[i] += <rows[i], w>``, with a sum whose order depends on nothing but the number of columns."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            u[i] += rows[i, j] * w[j]

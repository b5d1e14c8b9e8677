"""Sums on a power-of-two grid: exact, so independent of order, chunking, retries and the number of workers.

Every contribution of a row is truncated toward zero to a multiple of ``g = 2**(ceil(log2 bound) - 32)``, where
``bound`` is the public bound of one coordinate. Multiples of ``g`` are integers ("units") of at most ``2**32``;
float64 adds them without any error over ``2**21`` rows, int64 over fewer than ``2**31`` rows, Python integers beyond.
Truncation never makes a contribution larger, so the sensitivity of a sum is exact in floating point as well (the
usual summation is not: Casacuberta et al. 2022).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

GRID_BITS = 32
"""A contribution has at most ``2**GRID_BITS`` units."""


def grid_for(bound: float) -> float:
    """The grid of contributions bounded by ``bound``: ``2**(ceil(log2 bound) - 32)``, exactly.

    Parameters
    ----------
    bound : float
        Public bound of one coordinate of one row; positive and finite.

    Examples
    --------
    >>> grid_for(1.0) == 2.0**-32, grid_for(1.5) == 2.0**-31, grid_for(2.0) == 2.0**-31
    (True, True, True)
    """
    return power_grid(bound, GRID_BITS)


def power_grid(bound: float, bits: int) -> float:
    """``2**(ceil(log2 bound) - bits)``; the exponent comes from the bits of ``bound``, not from a rounded logarithm."""
    if not (math.isfinite(bound) and bound > 0):
        raise ValueError(f"the bound of a grid must be positive and finite, got {bound!r}")
    mantissa, exponent = math.frexp(bound)  # bound = mantissa * 2**exponent with mantissa in [1/2, 1)
    return math.ldexp(1.0, exponent - (mantissa == 0.5) - bits)


def to_units(v: ArrayLike, grid: float, bound: float | None = None) -> NDArray[np.int64]:
    """Truncate toward zero to integer multiples of ``grid``.

    Parameters
    ----------
    v : array_like
        Values, clipped before. A non-finite entry becomes 0.
    grid : float
        A power of two, so that the division is exact. Units beyond ``2**62`` are cut there.
    bound : float, optional
        Bound of one coordinate, enforced on the integer: ``|units| <= floor(bound / grid)``. Needed where the values
        come from floating-point code that may exceed its bound by a rounding error.

    Examples
    --------
    >>> to_units([-1.75, 0.9, 2.5], grid=0.5)
    array([-3,  1,  5])
    >>> to_units([1.0000001, float("nan")], grid=2.0**-32, bound=1.0).tolist() == [2**32, 0]
    True
    """
    v = np.asarray(v, dtype=np.float64)
    with np.errstate(over="ignore"):
        units = np.trunc(v / grid)
    limit = 2.0**62 if bound is None else float(math.floor(bound / grid))
    return np.clip(np.where(np.isfinite(v), units, 0.0), -limit, limit).astype(np.int64)


def add_units(total: NDArray[Any] | None, part: NDArray[Any], wide: bool) -> NDArray[Any]:
    """Add the integer sums of groups of rows, one at a time, exactly.

    ``wide`` (see `fits_int64`) is decided from public numbers, so that the capacity never depends on the data: 64 bits
    where they are known to suffice for all rows together, Python integers otherwise.

    Examples
    --------
    >>> add_units(add_units(None, np.array([1, 2]), False), np.array([3, -4]), False)
    array([ 4, -2])
    >>> add_units(np.array([2**62]), np.array([2**62]), True)
    array([9223372036854775808], dtype=object)
    """
    part = part.astype(object) if wide else part
    return part.copy() if total is None else total + part


def fits_int64(n_rows: int, unit_bound: int = 2**GRID_BITS) -> bool:
    """Whether sums over ``n_rows`` rows of at most ``unit_bound`` units fit int64."""
    return int(n_rows) * int(unit_bound) < 2**63

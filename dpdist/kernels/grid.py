"""Sums on a power-of-two grid: exact, so independent of order, chunking, retries and the number of workers.

Every contribution of a row is truncated toward zero to a multiple of ``g = 2**(ceil(log2 bound) - 32)``, where
``bound`` is the public bound of one coordinate. Multiples of ``g`` are integers ("units") of at most ``2**32``;
float64 adds them without any error over ``2**21`` rows, int64 over fewer than ``2**31`` rows, Python integers beyond.
Truncation never makes a contribution larger, so the sensitivity of a sum is exact in floating point as well (the
usual summation is not: Casacuberta et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class GridSum:
    """An exact sum: integer ``units`` times ``grid``.

    ``a + b`` is exact: it becomes an array of Python integers where int64 cannot hold the result. So the sum of any
    number of parts does not depend on their order or grouping.

    Parameters
    ----------
    units : ndarray of int64 or of Python integers (dtype object)
    grid : float
        A power of two.

    Examples
    --------
    >>> total = GridSum(np.array([3, -1]), 0.25) + GridSum(np.array([1, 2**62]), 0.25)
    >>> total.units
    array([                  4, 4611686018427387903])
    >>> total.value[0]
    np.float64(1.0)
    """

    units: NDArray[Any]
    grid: float

    def __add__(self, other: GridSum) -> GridSum:
        if not isinstance(other, GridSum):
            return NotImplemented
        if other.grid != self.grid or other.units.shape != self.units.shape:
            raise ValueError(
                f"sums on different grids or of different shapes cannot be added: {self.grid!r}, {self.units.shape} "
                f"and {other.grid!r}, {other.units.shape}; use the grid of the common public bound"
            )
        a, b = self.units, other.units
        if a.dtype != object and b.dtype != object:
            with np.errstate(over="ignore"):
                total = a + b
            wrapped = ((a ^ total) & (b ^ total)) < 0  # the sign of both terms differs from the sign of the sum
            if not wrapped.any():
                return GridSum(total, self.grid)
        return GridSum(a.astype(object) + b.astype(object), self.grid)

    @property
    def value(self) -> NDArray[np.float64]:
        """``units * grid`` in float64 (correctly rounded: the scaling by a power of two is exact)."""
        return self.units.astype(np.float64) * self.grid


def exact_total(parts: Sequence[NDArray[Any]], n_rows: int, unit_bound: int = 2**GRID_BITS) -> NDArray[Any]:
    """Add the integer sums of several groups of rows.

    Parameters
    ----------
    parts : sequence of integer ndarrays of one shape, at least one
    n_rows : int
        The public number of rows (or a public upper bound) behind all parts together. It alone decides whether int64
        is enough, so that the capacity never depends on the data.
    unit_bound : int, default 2**32
        Largest number of units of one row in one coordinate.

    Returns
    -------
    ndarray
        int64 while ``n_rows * unit_bound < 2**63``, Python integers (dtype object) otherwise.

    Examples
    --------
    >>> exact_total([np.array([1, 2]), np.array([3, -4])], n_rows=1000)
    array([ 4, -2])
    >>> exact_total([np.array([2**62]), np.array([2**62])], n_rows=2**31)
    array([9223372036854775808], dtype=object)
    """
    dtype = np.int64 if fits_int64(n_rows, unit_bound) else object
    total = parts[0].astype(dtype)
    for part in parts[1:]:
        total = total + part.astype(dtype)
    return total


def fits_int64(n_rows: int, unit_bound: int = 2**GRID_BITS) -> bool:
    """Whether sums over ``n_rows`` rows of at most ``unit_bound`` units fit int64."""
    return int(n_rows) * int(unit_bound) < 2**63

"""Exact second moments of clipped rows.

The rows are truncated to a grid *before* they are multiplied, and the products are integers that add exactly.
Truncating the products instead would break the sensitivity: ``||x x' - y y'||_F <= sqrt(2) r**2`` uses
``<x x', y y'> = <x, y>**2 >= 0``, which entrywise truncation of the products destroys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import DataError
from dpdist.kernels.clip import check_bound, clip_l2, kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import fits_int64, power_grid, to_units
from dpdist.kernels.vectors import NORM2_HIGH, NORM2_LOW

FACTOR_BITS = 20  # an entry of a row has at most 2**20 units,
PANEL_ROWS = 2**12  # so a panel's products add up to at most 2**52: exact in float64 in whatever order BLAS adds


def moment_grid(radius: float) -> float:
    """Size of one unit of `second_moment` for rows of norm at most r: ``h**2``, ``h = 2**(ceil(log2 r) - 20)``.

    >>> moment_grid(1.0) == 2.0**-40
    True
    """
    return power_grid(radius, FACTOR_BITS) ** 2


def second_moment(X: ArrayLike, row_norm: float, *, intercept: float = 0.0) -> NDArray[Any]:
    """Exact ``sum_i z_i z_i'`` of clipped rows, packed upper triangle, in units of ``moment_grid(radius)``.

    ``z_i`` is row i, clipped to l2 norm ``row_norm`` and followed by the constant feature ``intercept`` if that is
    positive, truncated toward zero to multiples of ``h = sqrt(moment_grid(radius))``,
    ``radius = hypot(row_norm, intercept)``.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Any floats; a row with a non-finite entry is a null row and contributes nothing, not even its intercept.
    row_norm : float
        Public bound of the norm of a row, enforced.
    intercept : float, default 0
        Public constant feature.

    Returns
    -------
    ndarray of int64, of shape (D (D + 1) / 2,)
        Row by row, ``D = d`` or ``d + 1``; see `unpack_symmetric`. Python integers (dtype object) from
        ``2**23`` rows on, a rule that depends on the row count only.

    Notes
    -----
    Replacing one row changes the (full) matrix by ``v v' - w w'`` with ``|v|, |w| <= radius`` (truncation does not
    make an entry larger): Frobenius norm ``sqrt(|v|^4 + |w|^4 - 2 <v,w>^2) <= sqrt(2) radius**2``, eigenvalues in
    ``[-radius**2, radius**2]``, so each eigenvalue of the sum moves by at most ``radius**2`` (Weyl). Adding or
    removing a row: ``radius**2`` in both.

    Examples
    --------
    >>> packed = second_moment([[0.5, 0.25], [30.0, 40.0], [np.nan, 1.0]], row_norm=1.0)
    >>> (unpack_symmetric(packed.astype(float)) * moment_grid(1.0)).round(4)
    array([[0.61  , 0.605 ],
           [0.605 , 0.7025]])
    """
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    row_norm = check_bound(row_norm, "row_norm")
    if intercept < 0 or not math.isfinite(intercept):
        raise ValueError(f"intercept must be a constant that is not negative, got {intercept!r}; 0 for none")
    n, d = X.shape
    h = power_grid(math.hypot(row_norm, intercept), FACTOR_BITS)
    size = d + (intercept > 0)
    dtype = np.int64 if fits_int64(n, 4**FACTOR_BITS) else object
    total = np.zeros((size, size), dtype=dtype)
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    units = np.empty((min(n, PANEL_ROWS), size))
    norms2 = np.empty(len(units))
    constant = float(to_units(intercept, h))
    for start in range(0, n, PANEL_ROWS):
        rows = X[start : start + PANEL_ROWS]
        panel = units[: len(rows)]
        if _fill(rows, row_norm * (1 - kappa(d)), 1 / h, constant, panel, norms2):
            rare = ~((norms2[: len(rows)] >= NORM2_LOW) & (norms2[: len(rows)] <= NORM2_HIGH))
            panel[rare, :d] = to_units(clip_l2(rows[rare], row_norm), h)
            panel[rare, d:] = np.where(np.isfinite(rows[rare]).all(axis=1), constant, 0.0)[:, None]
        total += (panel.T @ panel).astype(np.int64).astype(dtype, copy=False)
    return total[np.triu_indices(size)]


@kernel
def _fill(X, limit, per_unit, constant, panel, norms2):  # type: ignore[no-untyped-def]
    """Clipped rows in units, with the constant feature; whether a squared norm is out of the safe range."""
    n, d = X.shape
    rare = False
    for k in range(n):
        # four chains in a fixed order: one alone would wait for each addition
        a = b = c = e = 0.0
        for j in range(0, d - 3, 4):
            a += np.float64(X[k, j]) * np.float64(X[k, j])
            b += np.float64(X[k, j + 1]) * np.float64(X[k, j + 1])
            c += np.float64(X[k, j + 2]) * np.float64(X[k, j + 2])
            e += np.float64(X[k, j + 3]) * np.float64(X[k, j + 3])
        for j in range(d // 4 * 4, d):
            a += np.float64(X[k, j]) * np.float64(X[k, j])
        norm2 = (a + b) + (c + e)
        norms2[k] = norm2
        if not (NORM2_LOW <= norm2 <= NORM2_HIGH):
            rare = True
        factor = min(1.0, limit / math.sqrt(norm2))
        for j in range(d):
            panel[k, j] = np.trunc(np.float64(X[k, j]) * factor * per_unit)
        for j in range(d, panel.shape[1]):
            panel[k, j] = constant
    return rare


def unpack_symmetric(packed: NDArray[Any]) -> NDArray[Any]:
    """The symmetric matrix of a packed upper triangle (row by row, as `numpy.triu_indices` lists it).

    >>> unpack_symmetric(np.array([1, 2, 3]))
    array([[1, 2],
           [2, 3]])
    """
    size = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    if packed.ndim != 1 or size * (size + 1) // 2 != len(packed):
        raise ValueError(f"a packed upper triangle has D (D + 1) / 2 entries, got shape {packed.shape}")
    matrix = np.empty((size, size), dtype=packed.dtype)
    rows, columns = np.triu_indices(size)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix

"""Exact sums of the squared features of clipped rows: how curved a smooth loss can be along each coordinate.

For rows ``x_i`` the sum is, in units of a power-of-two grid ``g`` and for every coordinate j,

    sum_i trunc( min(x_ij^2, K^2) / g ),    x_i clipped to l2 norm r, g = grid_for(K^2).

Every term lies in ``[0, K^2]`` because the last operation before the truncation clamps to it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import DataError
from dpdist.kernels.block_pass import writable
from dpdist.kernels.block_steps import NORM2_HIGH, NORM2_LOW
from dpdist.kernels.clip import check_bound, clip_l2, kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.gradients import FLUSH_ROWS
from dpdist.kernels.grid import grid_for, to_units
from dpdist.kernels.unit_vectors import row_product


@kernel
def _add_squares(X, limit, largest, per_grid, totals, rare):  # type: ignore[no-untyped-def]
    """Add the rows whose squared norm is in the safe range, and mark the others."""
    n, d = X.shape
    for k in range(n):
        norm2 = row_product(X, X, k, d)
        if not (NORM2_LOW <= norm2 <= NORM2_HIGH):
            rare[k] = True
            continue
        factor = min(1.0, limit / math.sqrt(norm2))
        for j in range(d):
            x = np.float64(X[k, j]) * factor
            totals[j] += np.trunc(min(x * x, largest) * per_grid)


def square_sums(X: ArrayLike, row_norm: float, bound: float) -> NDArray[np.int64]:
    """Exact column sums of ``min(x^2, bound^2)`` over clipped rows, in units of ``grid_for(bound**2)``.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Any floats; a row with a non-finite entry contributes nothing.
    row_norm : float
        Public bound of the norm of a row, enforced.
    bound : float
        Public bound K of an entry, enforced.

    Returns
    -------
    ndarray of int64, of shape (d,)
        The result for a set of rows is the sum of the results of its parts, bit for bit.

    Examples
    --------
    >>> units = square_sums([[3.0, 4.0], [0.5, 0.0], [np.inf, 0.0]], row_norm=1.0, bound=0.7)
    >>> (units * grid_for(0.49)).round(6)
    array([0.61, 0.49])
    """
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    row_norm, bound = check_bound(row_norm, "row_norm"), check_bound(bound, "bound")
    d, grid = X.shape[1], grid_for(bound**2)
    result = np.zeros(d, dtype=np.int64)
    for start in range(0, len(X), FLUSH_ROWS):
        part = writable(X[start : start + FLUSH_ROWS])
        totals, rare = np.zeros(d), np.zeros(len(part), dtype=np.bool_)
        _add_squares(part, row_norm * (1 - kappa(d)), bound**2, 1.0 / grid, totals, rare)
        result += totals.astype(np.int64)
        if rare.any():
            result += to_units(np.minimum(clip_l2(part[rare], row_norm) ** 2, bound**2), grid).sum(axis=0)
    return result

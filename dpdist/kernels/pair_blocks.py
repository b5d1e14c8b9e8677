"""All pairs inside blocks of consecutive rows, for losses of distances: sums of matrices in exact integers.

For a metric W = A A' and labels, a pair of rows of one block adds ``c (x_i - x_j)(x_i - x_j)'`` with

    c = s(m - 1)  for two rows of one class,    c = -s(1 - m)  for rows of two,    m = ||A'(x_i - x_j)||^2,

s the logistic function: the gradient of ``ln(1 + exp(-u))``, ``u = +-(1 - m)``. Since m is not negative, c lies in
``[-s(1), 1]``. Rows are truncated to multiples of ``2**-15`` of their bound and c to multiples of ``2**-16``, so that
every pair adds an integer matrix of rank one that is within its bound exactly. The products are exact in whatever
order; a distance is added up in one order, so that a pair adds the same in any block at any place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import power_grid
from dpdist.losses.loss import LARGEST_EXPONENT, fast_exp

Floats = NDArray[np.float64]

ROW_BITS, COEFFICIENT_BITS = 15, 16
LARGEST_NEGATIVE = 1 / (1 + math.exp(-1))
"""s(1): the largest size of a coefficient of rows of two classes."""
MOST_BLOCK_ROWS = 256
"""The sum of a block fits 64 bits."""
_NEGATIVE_UNITS = float(math.floor(LARGEST_NEGATIVE * 2**COEFFICIENT_BITS))


def block_grid(row_norm: float) -> float:
    """Of an entry of the sum."""
    return power_grid(row_norm, ROW_BITS) ** 2 * 2.0**-COEFFICIENT_BITS


def block_pairs(X: NDArray[Any], y: Floats, root: Floats, row_norm: float, block_rows: int) -> NDArray[np.int64]:
    """``sum c (x_i - x_j)(x_i - x_j)'`` over all pairs inside blocks, packed, in units of `block_grid`.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows are clipped to ``row_norm``; those behind the last complete block are left out.
    y : ndarray of shape (n,)
        Classes; pairs with a row whose label or one of whose features is not finite add nothing.
    root : ndarray of shape (d, d)
        A.
    row_norm : float
    block_rows : int
        256 at most.

    Returns
    -------
    ndarray of int64, of shape (2, d (d + 1) / 2)
        Parts of ``2**32`` and of 1, as `dpdist.kernels.fine_gradients.joined` puts them together.

    Examples
    --------
    >>> from dpdist.kernels.fine_gradients import joined
    >>> X, y = np.array([[0.5], [-0.5]]), np.array([0.0, 0.0])
    >>> total = joined(block_pairs(X, y, np.eye(1), 1.0, 2))
    >>> float(total[0] * block_grid(1.0))  # at distance 1: s(0) = 1/2
    0.5
    """
    d = X.shape[1]
    parts = np.zeros((2, d * (d + 1) // 2), dtype=np.int64)
    n = len(X) // block_rows * block_rows
    if n == 0:
        return parts
    Z, labels = bounded_rows(X[:n], np.where(np.isfinite(y[:n]), 0.0, np.nan), row_norm=row_norm)
    labels = np.where(np.isfinite(X[:n]).all(axis=1), y[:n], np.nan).astype(np.float64)
    root = np.ascontiguousarray(root, dtype=np.float64)
    by_column, by_row = np.zeros((2, d, block_rows)), np.zeros((block_rows + 2, block_rows))
    _add_blocks(Z, labels, root, 1 / power_grid(row_norm, ROW_BITS), block_rows, by_column, by_row, parts)
    return parts


@kernel
def _add_blocks(Z, y, root, per_unit, size, by_column, by_row, parts):  # type: ignore[no-untyped-def]
    d = Z.shape[1]
    mapped, units = by_column[0], by_column[1]  # columns of rows side by side
    apart, pull, weights = by_row[0], by_row[1], by_row[2:]
    for first in range(0, len(Z), size):
        for a in range(d):
            for i in range(size):
                mapped[a, i] = 0.0
                units[a, i] = np.trunc(Z[first + i, a] * per_unit)
            for b in range(d):
                for i in range(size):
                    mapped[a, i] += root[b, a] * Z[first + i, b]
        for i in range(size):
            own = y[first + i]
            for j in range(i + 1, size):
                apart[j] = 0.0
            for a in range(d):
                here = mapped[a, i]
                for j in range(i + 1, size):
                    apart[j] += (here - mapped[a, j]) * (here - mapped[a, j])
            for j in range(i + 1, size):
                other = y[first + j]
                same = own == other
                u = 1.0 - apart[j] if same else apart[j] - 1.0  # the coefficient is +-1 / (1 + e^u)
                e = fast_exp(max(-abs(u), -LARGEST_EXPONENT))
                c = np.trunc((e if u > 0.0 else 1.0) / (1.0 + e) * 65536.0)
                c = c if same else (-c if c < _NEGATIVE_UNITS else -_NEGATIVE_UNITS)
                weights[i, j] = c if (own == own) & (other == other) & (u == u) else 0.0
        for i in range(size):
            for j in range(i):
                weights[i, j] = weights[j, i]
        for a in range(d):
            for i in range(size):
                pull[i] = 0.0
            for j in range(size):
                there = units[a, j]
                for i in range(size):
                    pull[i] += weights[j, i] * (units[a, i] - there)
            for b in range(a + 1):
                entry = np.int64(0)
                for i in range(size):
                    entry += np.int64(units[b, i]) * np.int64(pull[i])
                place = b * d - b * (b - 1) // 2 + (a - b)
                parts[0, place] += entry >> 32
                parts[1, place] += entry & 0xFFFFFFFF

"""Gradients of a linear regression with missing cells: one read of the rows, every row bounded, every sum exact.

For rows x with labels y, of which NaN are the cells that nobody saw, and a point b the step forms, cell by cell,

    v_j = -(s / v) r x_j             where x_j was seen,         r = y - sum of b_j x_j over these,
    v_j = -(s / v) b_j (r^2 / v - 1) where it was not,           v = s + sum of b_j^2 over these,      s = sigma^2,

in the scratch of a block, and what follows bounds and adds v, as `dpdist.kernels.shifted_rows` does. An infinite cell
or a label that is not finite makes an empty row, which contributes nothing; a row of which no cell was seen is a row.

Why v is finite, so that its bound holds: entries of b are at most ``2**200``, labels are cut at ``2**300``, and so are
the cells of a row whose squared norm leaves ``[2**-400, 2**400]``; ``r^2 / v`` is cut at ``2**700``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.block_pass import aligned, each_block, rows_of
from dpdist.kernels.block_steps import (
    DERIVATIVE,
    FACTOR,
    LABEL,
    MARGIN,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    add_truncated,
    dots_and_norms2,
)
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.gradients import FLUSH_ROWS, check_grid, flush
from dpdist.kernels.mapped_vectors import add_mapped
from dpdist.kernels.shifted_rows import Shift, clip_shifted, shift_of
from dpdist.kernels.truncation import ScalarMap
from dpdist.kernels.vector_steps import fill_cells, seen_cells
from dpdist.losses import Squared

CUT = 2.0**300
LARGEST_RATIO = 2.0**700


class Cells(NamedTuple):
    """The model, and the scratch of a block."""

    shift: Shift  # its vector is b; its sums become the v
    hidden: NDArray[np.float64]  # b where a cell is missing, else 0
    variance: float
    exact: bool


@kernel
def _split(X, places, n, b, seen, hidden):  # type: ignore[no-untyped-def]
    """Cells that were seen, and b where they were not; zeros elsewhere."""
    for k in range(n):
        place = places[k]
        for j in range(X.shape[1]):
            x = np.float64(X[place, j])
            there = x == x
            seen[k, j] = x if there else 0.0
            hidden[k, j] = 0.0 if there else b[j]


@inlined_kernel
def _factors(r, lost, variance, exact):  # type: ignore[no-untyped-def]
    """Of the cells that were seen, and of b where they were not."""
    nu = variance + lost
    share = variance / nu
    ratio = min(r * r / nu, LARGEST_RATIO) - 1.0
    return -share * r, -share * ratio if exact else -ratio


@kernel
def _combine(n, work, seen, hidden):  # type: ignore[no-untyped-def]
    """Write v over the cells that were seen; the factors are in MARGIN and NORM2."""
    for k in range(n):
        c, h = work[MARGIN + k], work[NORM2 + k]
        for j in range(seen.shape[1]):
            seen[k, j] = c * seen[k, j] + h * hidden[k, j]


@kernel
def _rare_row(X, place, label, cells, k):  # type: ignore[no-untyped-def]
    """The same for one row that is short, long or infinite."""
    sums, b = cells.shift.sums, cells.shift.vector
    u, lost = 0.0, 0.0
    for j in range(sums.shape[1]):
        x = np.float64(X[place, j])
        if abs(x) == np.inf:
            sums[k, :] = 0.0
            return
        if x == x:
            sums[k, j] = min(max(x, -CUT), CUT)
            u += sums[k, j] * b[j]
        else:
            lost += b[j] * b[j]
    c, h = _factors(label - u, lost, cells.variance, cells.exact)
    for j in range(sums.shape[1]):
        x = np.float64(X[place, j])
        sums[k, j] = c * sums[k, j] if x == x else h * b[j]


@kernel
def _slow_vectors(rows, n, cells):  # type: ignore[no-untyped-def]
    """`_vectors` of a block with an empty, a short or a long row, to the same bits."""
    work, places, sums, hidden = rows.work, rows.places, cells.shift.sums, cells.hidden
    _split(rows.X, places, n, cells.shift.vector, sums, hidden)
    for k in range(n):
        work[LABEL + k] = rows.y[places[k]]
        work[UNITS + k] = places[k]  # a whole number below 2**31
        places[k] = k
    dots_and_norms2(sums, places, n, rows.weights, work, 0)
    for k in range(n):
        y = work[LABEL + k]
        usual = (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH)
        work[LABEL + k] = min(max(y, -CUT), CUT) - work[MARGIN + k] if usual else np.nan
        if not abs(y) < np.inf:
            work[LABEL + k] = np.inf
    dots_and_norms2(hidden, places, n, rows.weights, work, 0)
    for k in range(n):
        r = work[LABEL + k]
        if abs(r) < np.inf:
            work[MARGIN + k], work[NORM2 + k] = _factors(r, work[NORM2 + k], cells.variance, cells.exact)
        else:
            work[MARGIN + k], work[NORM2 + k] = 0.0, 0.0
    _combine(n, work, sums, hidden)
    for k in range(n):
        if work[LABEL + k] != work[LABEL + k]:
            place = np.int64(work[UNITS + k])
            _rare_row(rows.X, place, min(max(rows.y[place], -CUT), CUT), cells, k)
        elif work[LABEL + k] == np.inf:
            sums[k, :] = 0.0
    dots_and_norms2(sums, places, n, rows.weights, work, 0)


@inlined_kernel
def _vectors(rows, n, ahead, cells):  # type: ignore[no-untyped-def]
    """Write the v of a block, and their squared norms to NORM2; ``rows.places`` then numbers its rows."""
    work, places = rows.work, rows.places
    seen_cells(rows.X, places, n, rows.weights, work, ahead)
    rare = False
    for k in range(n):
        y = rows.y[places[k]]
        usual = (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH) & (abs(y) < np.inf)
        rare |= not usual
        r = min(max(y, -CUT), CUT) - work[MARGIN + k]
        work[UNITS + k], work[DERIVATIVE + k] = _factors(r, work[FACTOR + k], cells.variance, cells.exact)
    if rare:
        _slow_vectors(rows, n, cells)
    else:
        fill_cells(rows.X, places, n, rows.weights, work, cells.shift.sums, ahead)
        for k in range(n):
            places[k] = k


@inlined_kernel
def _clipped_step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    cells, clip_limit, per_grid = terms
    _vectors(rows, n, ahead, cells)
    clip_shifted(rows, n, cells.shift, clip_limit)
    for k in range(n):
        rows.work[UNITS + k] *= per_grid
    add_truncated(rows.totals, cells.shift.sums, rows.places, rows.work, n, 0)


@kernel
def _clipped(rows, cells, clip_limit, per_grid, result):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _clipped_step, (cells, clip_limit, per_grid), flush, FLUSH_ROWS, result)


@inlined_kernel
def _mapped_step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    cells, constants = terms
    _vectors(rows, n, ahead, cells)
    for k in range(n):
        rows.work[UNITS + k] = constants.per_scale
    add_mapped(rows.totals, cells.shift.sums, rows.places, rows.work, UNITS, n, 0, constants)


@kernel
def _mapped(rows, cells, constants, result):  # type: ignore[no-untyped-def]
    """The same with every coordinate mapped."""
    each_block(rows, _mapped_step, (cells, constants), flush, FLUSH_ROWS, result)


def missing_cells_gradient(
    X: NDArray[Any],
    y: NDArray[Any],
    b: ArrayLike,
    noise_std: float,
    bounded: float | ScalarMap,
    *,
    grid: float,
    exact: bool = True,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Exact sum of the bounded vectors v of rows with missing cells, in units of ``grid``.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64 or float32
        NaN is a missing cell; a row with an infinite one contributes exactly 0, as does one without a finite label.
    y : ndarray of shape (n,)
    b : ndarray of shape (d,)
        Public, entries of at most ``2**200``.
    noise_std : float
        Of a label; public.
    bounded : float or ScalarMap
        A number is the l2 norm that v is clipped to, a map bounds each of its coordinates.
    grid : float
        A power of two, at least the bound times ``2**-32``: `dpdist.kernels.grid.grid_for`.
    exact : bool, default True
        False leaves the factor ``s / v`` out where cells are missing, as printed in seed 002, (11).
    rows : ndarray of int64, optional
        Use these rows only, in whatever order.

    Returns
    -------
    ndarray of int64, of shape (d,)
        The result for a set of rows is the sum of the results of its parts, bit for bit.

    Examples
    --------
    >>> X, y = np.array([[2.0, np.nan], [np.inf, 1.0]]), np.array([3.0, 1.0])
    >>> (missing_cells_gradient(X, y, [1.0, 1.0], 1.0, 10.0, grid=2.0**-20) * 2.0**-20).round(3).tolist()
    [-1.0, 0.25]
    """
    bound = bounded.bound if isinstance(bounded, ScalarMap) else check_bound(bounded, "clip_norm")
    check_grid(grid, bound, "the bound")
    with rows_of(X, y, np.asarray(b), Squared(), row_norm=math.inf, intercept=0.0, chosen=rows) as a:
        d, shift = a.X.shape[1], shift_of(b, a)
        result = np.zeros(d + 1, dtype=np.int64)
        hidden = aligned(a.block * d).reshape(-1, d)
        cells = Cells(shift, hidden, check_bound(noise_std, "noise_std") ** 2, exact)
        if isinstance(bounded, ScalarMap):
            _mapped(a, cells, bounded.constants(grid), result)
        else:
            _clipped(a, cells, bound * (1 - kappa(d + 1)), 1.0 / grid, result)
    return result[:d]

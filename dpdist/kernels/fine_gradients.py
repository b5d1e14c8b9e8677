"""The gradient sum of a generalised linear model without clipping, accurate to the last bits of float64.

A solver that runs before any noise is drawn (`dpdist.queries.minimizers`) needs gradients that are *right*, not
merely bounded: how far it ends from the exact minimiser enters the sensitivity. The rows' contributions

    l'(u_i, y_i) * (clip_r(x_i), b),    u_i = <clip_r(x_i), w> + b * w_d

are therefore truncated to a grid ``2**12`` times finer than that of `dpdist.kernels.gradients`, and the exact sums are
kept as two integers a coordinate. Nothing is clipped but the rows: for a loss whose derivative is bounded by G these
are the gradients of a convex function of w, which clipped gradients are not.

`gradient_error` bounds what is left: the distance of such a sum from the exact one, for any rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_steps import (
    DERIVATIVE,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    add_truncated,
    borrow,
    call_block,
    row_units,
)
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.gradients import AHEAD, margins, prepare, scale_row
from dpdist.kernels.grid import power_grid
from dpdist.losses import Loss

FINE_BITS = 44  # a contribution has at most 2**44 units (and what rounding adds, below 2**-40 of it),
FLUSH_ROWS = 2**9 - 1  # so float64 adds those of fewer than 2**9 rows without any error
SMALL_BLOCK = 2**8
LIMB = 32  # a sum is high * 2**32 + low


def fine_grid(largest: float) -> float:
    """The grid of contributions of norm at most ``largest``."""
    return power_grid(largest, FINE_BITS)


@kernel
def _flush(totals, high, low):  # type: ignore[no-untyped-def]
    """Move exact totals below ``2**53`` to the two integers of every coordinate."""
    last = high.size - 1
    for j in range(high.size):
        total = totals[j] if j < last else totals[totals.size - 1]
        top = np.floor(total * 2.0**-32)
        high[j] += np.int64(top)
        low[j] += np.int64(total - top * 2.0**32)
    totals[:] = 0.0


@kernel
def _add_rare_row(X, row, c, row_limit, per_grid, intercept, z, totals):  # type: ignore[no-untyped-def]
    """The contribution of a row that has to be scaled first; ``c`` is its derivative, 0 if it is a null row."""
    scale, size = scale_row(X, row, z)
    if scale < 0.0 or c == 0.0:
        return
    if size > 0.0:
        scale = min(scale, row_limit / size)
    for j in range(X.shape[1]):
        totals[j] += np.trunc(c * per_grid * scale * z[j])
    totals[totals.size - 1] += np.trunc(c * per_grid * intercept)


@kernel
def _accumulate(  # type: ignore[no-untyped-def]
    X, rows, n, ahead, rare, largest, row_limit, per_grid, intercept, work, z, totals
):
    """Add the contributions of a block whose derivatives are in ``work``; ``rows`` is overwritten if any is rare."""
    totals[totals.size - 1] += row_units(work, n, largest, False, np.inf, per_grid, intercept)
    kept = n
    if rare:
        kept = 0
        for k in range(n):
            if (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH):
                rows[kept] = rows[k]
                work[UNITS + kept] = work[UNITS + k]
                kept += 1
            else:
                _add_rare_row(X, rows[k], work[DERIVATIVE + k], row_limit, per_grid, intercept, z, totals)
    add_truncated(totals, X, rows, work, kept, ahead)


@kernel
def _fused(  # type: ignore[no-untyped-def]
    X, y, w, n, block, address, params, real_labels, largest, row_limit, per_grid, intercept,
    work, index, z, totals, high, low,
):  # fmt: skip
    """All blocks of rows, with a compiled derivative."""
    X, y, w, params, work = borrow(X), borrow(y), borrow(w), borrow(params), borrow(work)
    index, z, totals, high, low = borrow(index), borrow(z), borrow(totals), borrow(high), borrow(low)
    pending = 0
    ahead = AHEAD * block * X.shape[1]
    for start in range(0, n, block):
        size = min(block, n - start)
        for k in range(size):
            index[k] = start + k
        rare = margins(X, y, w, index, size, ahead, real_labels, row_limit, intercept, work, z)
        call_block(address, params, work, size)
        if pending + size > FLUSH_ROWS:
            _flush(totals, high, low)
            pending = 0
        pending += size
        _accumulate(X, index, size, ahead, rare, largest, row_limit, per_grid, intercept, work, z, totals)
    _flush(totals, high, low)


def fine_gradient(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    grid: float,
    intercept: float = 0.0,
) -> NDArray[np.int64]:
    """Exact sum of truncated gradients of rows clipped in norm, in units of ``grid`` and in two parts.

    Null rows (see `dpdist.kernels.gradients.glm_gradient`) contribute exactly 0.

    Parameters
    ----------
    X, y, w, loss, row_norm, intercept
        As in `dpdist.kernels.gradients.glm_gradient`; the loss needs a bounded derivative.
    grid : float
        `fine_grid` of the largest norm of a gradient, or coarser.

    Returns
    -------
    ndarray of int64, of shape (2 p,)
        ``p`` high parts, then ``p`` low ones; `joined` puts them together. The result for a set of rows is the sum of
        the results of its parts, whatever the partition: as `joined` numbers, bit for bit.

    Examples
    --------
    >>> from dpdist.losses import Logistic
    >>> X, y = np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 1.0]]), np.array([1.0, -1.0, 1.0])
    >>> units = fine_gradient(X, y, np.zeros(2), Logistic(), row_norm=1.0, grid=fine_grid(1.0))
    >>> (joined(units).astype(float) * fine_grid(1.0)).round(6)
    array([-0.05, -0.4 ])
    """
    row_norm = check_bound(row_norm, "row_norm")
    largest = loss.derivative_bound
    if not largest * math.hypot(row_norm, intercept) <= grid * 2.0**FINE_BITS:
        raise ValueError(f"grid must be fine_grid(largest norm of a gradient), or coarser, got {grid!r}")
    a = prepare(X, y, w, loss, intercept, None)
    a = replace(a, block=min(a.block, SMALL_BLOCK))
    size, padded = a.result.size, a.totals
    high, low = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    row_limit, per_grid = row_norm * (1 - kappa(a.X.shape[1] + 1)), 1.0 / grid
    if a.address:
        _fused(
            a.X, a.y, a.weights, a.n, a.block, a.address, loss.params, a.real_labels, largest, row_limit, per_grid,
            a.intercept, a.work, a.chosen, a.z, padded, high, low,
        )  # fmt: skip
    else:
        for n in a.choose_blocks():
            rare = margins(a.X, a.y, a.weights, a.chosen, n, 0, a.real_labels, row_limit, a.intercept, a.work, a.z)
            a.differentiate(loss, n)
            _accumulate(a.X, a.chosen, n, 0, rare, largest, row_limit, per_grid, a.intercept, a.work, a.z, padded)
            _flush(padded, high, low)
    return np.concatenate([high[: a.size], low[: a.size]])


def joined(parts: NDArray[Any]) -> NDArray[Any]:
    """The sums of `fine_gradient` as Python integers."""
    high, low = parts.reshape(2, -1).astype(object)
    return high * 2**LIMB + low


def gradient_error(n_rows: int, loss: Loss, radius: float, n_parameters: int, size: float, grid: float) -> float:
    """Largest distance of a sum of `fine_gradient` from the exact gradient of ``sum_i l(<z_i, w>, y_i)``.

    ``z_i`` is row i, scaled to norm ``row_norm (1 - kappa)`` in exact arithmetic if it is longer, with its constant
    feature. It holds for any rows and any ``||w|| <= size``.

    A computed sum of d products is within ``d u sum |products|`` of the exact one in whatever order, ``u = 2**-53``;
    the norm, the factor, and their product with the margin add less than ``(d/2 + 20) u``, so margins are off by less
    than ``(2 d + 32) u radius size``. The derivative moves by at most ``sup l''`` times that, and is itself computed to
    ``32 u (sup |l'| + sup l'' (1 + radius size))``: this is what a loss has to keep, and the built-in ones do. The
    factor costs ``(d/2 + 20) u`` of a contribution again, and truncation one unit of the grid a coordinate.

    Parameters
    ----------
    n_rows : int
    loss : Loss
    radius : float
        Largest norm of a row with its constant feature.
    n_parameters : int
    size : float
        Largest norm of w.
    grid : float
    """
    precision = (2 * n_parameters + 64) * 2.0**-53
    row = radius * precision * (loss.derivative_bound + loss.curvature_bound * (1 + radius * size))
    return n_rows * (row + math.sqrt(n_parameters) * grid)

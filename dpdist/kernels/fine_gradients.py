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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import differentiate, each_block, rows_of
from dpdist.kernels.clip import check_bound
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.gradients import Clip, add_rows
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
def _flush(totals, parts):  # type: ignore[no-untyped-def]
    """Move exact totals below ``2**53`` to the two integers of every coordinate."""
    last = parts.shape[1] - 1
    for j in range(parts.shape[1]):
        total = totals[j] if j < last else totals[totals.size - 1]
        top = np.floor(total * 2.0**-32)
        parts[0, j] += np.int64(top)
        parts[1, j] += np.int64(total - top * 2.0**32)
    totals[:] = 0.0


@kernel
def _add_row(rows, c, scale, size, clip):  # type: ignore[no-untyped-def]
    """The contribution of a rare row."""
    z, totals = rows.z, rows.totals
    for j in range(z.size):
        totals[j] += np.trunc(c * clip.per_grid * scale * z[j])
    totals[totals.size - 1] += np.trunc(c * clip.per_grid * rows.intercept)


@inlined_kernel
def _step(rows, start, n, ahead, clip, parts):  # type: ignore[no-untyped-def]
    rare = differentiate(rows, rows.X, rows.y, rows.weights, n, ahead)
    add_rows(rows, n, ahead, rare, clip, _add_row)


@kernel
def _fused(rows, clip, parts):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _step, clip, _flush, FLUSH_ROWS, parts)


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
    with rows_of(X, y, w, loss, row_norm=row_norm, intercept=intercept, chosen=None, most=SMALL_BLOCK) as a:
        d = a.X.shape[1]
        parts = np.zeros((2, d + 1), dtype=np.int64)
        _fused(a, Clip(largest, False, math.inf, 1.0 / grid), parts)
    return parts[:, : d + (a.intercept > 0)].ravel()


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

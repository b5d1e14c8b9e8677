"""The sum of gradient differences of a generalised linear model: one read of the rows, every row bounded, sums exact.

For rows ``x_i`` with labels ``y_i``, a loss ``l(u, y)`` and two parameters ``w`` and ``v`` the sum is, in units of a
power-of-two grid ``g``,

    sum_i trunc( clip_C( (l'(<z_i, w>, y_i) - l'(<z_i, v>, y_i)) * z_i ) / g ),    z_i = (clip_r(x_i), b) .

Both gradients of a row are multiples of the row, so a difference is one number times the row: what is clipped is
``|coefficient| * ||z||``, and no difference vector is ever formed. Blocks of rows go through the steps of
`dpdist.kernels.block_pass`, the first two of them once per parameter while the block is in the first-level cache.

The bound of a row, and the independence of blocks, threads and machines, hold for the reasons given in
`dpdist.kernels.gradients`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import aligned, differentiate, each_block, padded, padded_size, rows_of
from dpdist.kernels.block_steps import DERIVATIVE
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.gradients import (
    DERIVATIVE_CAP,
    FLUSH_ROWS,
    Clip,
    add_clipped_row,
    add_rows,
    check_grid,
    flush,
)
from dpdist.losses import Loss


class Difference(NamedTuple):
    """Two parameters, and how contributions are bounded."""

    parameters: NDArray[np.float64]  # v, then w
    before: NDArray[np.float64]  # derivatives of a block at v
    clip: Clip


@inlined_kernel
def _step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    rare = False
    terms.before[:n] = 0.0
    for side in range(2):
        rare = differentiate(rows, rows.X, rows.y, terms.parameters[side], n, ahead)
        for k in range(n):
            derivative = rows.work[DERIVATIVE + k]
            rows.work[DERIVATIVE + k] = derivative - terms.before[k]
            terms.before[k] = derivative
    add_rows(rows, n, ahead, rare, terms.clip, add_clipped_row)


@kernel
def _fused(rows, terms, result):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _step, terms, flush, FLUSH_ROWS, result)


def glm_difference(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    v: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    clip_norm: float,
    grid: float,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Exact sum of clipped differences of loss gradients at ``w`` and at ``v``, in units of ``grid``.

    Rows, labels and the constant feature are treated as in `dpdist.kernels.gradients.glm_gradient`. A row where either
    derivative is not finite contributes exactly 0.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64 or float32
        Read once; other layouts and types are converted (a copy).
    y : ndarray of shape (n,)
    w, v : ndarray of shape (d,), or (d + 1,) with an intercept
        Public parameters, finite.
    loss : Loss
        With a compiled block function, or (slower) with a NumPy derivative only.
    row_norm : float
        Public bound of the norm of a row, enforced; ``inf`` for none.
    clip_norm : float
        Public bound of the norm of a contribution, enforced for any input.
    grid : float
        A power of two, at least ``clip_norm * 2**-32``: `dpdist.kernels.grid.grid_for`.
    intercept : float, default 0
        Value of the constant feature; 0 for none.
    rows : ndarray of int64, optional
        Use these rows only (a Poisson batch), in whatever order.

    Returns
    -------
    ndarray of int64, of the length of ``w``
        The result for a set of rows is the sum of the results of its parts, bit for bit.

    Examples
    --------
    >>> from dpdist.losses import Squared
    >>> X, y, w = np.array([[1.0, 0.0], [0.0, 0.5], [np.nan, 1.0]]), np.zeros(3), np.array([0.25, 4.0])
    >>> units = glm_difference(X, y, w, np.zeros(2), Squared(), row_norm=1.0, clip_norm=0.5, grid=2.0**-33)
    >>> (units * 2.0**-33).round(6)
    array([0.25, 0.5 ])
    """
    row_norm = check_bound(row_norm, "row_norm", allow_inf=True)
    clip_norm = check_bound(clip_norm, "clip_norm")
    check_grid(grid, clip_norm, "clip_norm")
    with rows_of(X, y, w, loss, row_norm=row_norm, intercept=intercept, chosen=rows) as a:
        d = a.X.shape[1]
        result = np.zeros(d + 1, dtype=np.int64)
        clip = Clip(DERIVATIVE_CAP, True, clip_norm * (1 - kappa(d + 1)), 1.0 / grid)
        parameters = np.stack([padded(v, d, a.intercept, "v", np.zeros(padded_size(d))), a.weights])
        _fused(a, Difference(parameters, aligned(a.block), clip), result)
    return result[: d + (a.intercept > 0)]

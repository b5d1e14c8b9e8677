"""The sum of gradient differences of a generalised linear model: one read of the rows, every row bounded, sums exact.

For rows ``x_i`` with labels ``y_i``, a loss ``l(u, y)`` and two parameters ``w`` and ``v`` the sum is, in units of a
power-of-two grid ``g``,

    sum_i trunc( clip_C( (l'(<z_i, w>, y_i) - l'(<z_i, v>, y_i)) * z_i ) / g ),    z_i = (clip_r(x_i), b) .

Both gradients of a row are multiples of the row, so a difference is one number times the row: what is clipped is
``|coefficient| * ||z||``, and no difference vector is ever formed. Blocks of rows go through the steps of
`dpdist.kernels.gradients`, the first two of them once per parameter while the block is in the first-level cache.

The bound of a row, and the independence of blocks, threads and machines, hold for the reasons given there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_steps import DERIVATIVE, borrow, call_block
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.gradients import (
    AHEAD,
    DERIVATIVE_CAP,
    FLUSH_ROWS,
    accumulate,
    aligned,
    check_grid,
    flush,
    margins,
    prepare,
)
from dpdist.losses import Loss


@kernel
def _fused(  # type: ignore[no-untyped-def]
    X, y, parameters, rows, gather, n, block, address, params, real_labels, row_limit, clip_limit, per_grid,
    intercept, work, before, index, z, totals, result,
):  # fmt: skip
    """All blocks of rows, with a compiled derivative; ``parameters`` is (v, w)."""
    X, y, parameters, rows, params = borrow(X), borrow(y), borrow(parameters), borrow(rows), borrow(params)
    work, before, index, z, totals = borrow(work), borrow(before), borrow(index), borrow(z), borrow(totals)
    result = borrow(result)
    pending = 0
    ahead = 0 if gather else AHEAD * block * X.shape[1]
    for start in range(0, n, block):
        size = min(block, n - start)
        if gather:
            for k in range(size):
                index[k] = rows[start + k]
        else:
            for k in range(size):
                index[k] = start + k
        rare = False
        before[:size] = 0.0
        for side in range(2):
            rare = margins(X, y, parameters[side], index, size, ahead, real_labels, row_limit, intercept, work, z)
            call_block(address, params, work, size)
            for k in range(size):
                derivative = work[DERIVATIVE + k]
                work[DERIVATIVE + k] = derivative - before[k]
                before[k] = derivative
        if pending + size > FLUSH_ROWS:
            flush(totals, result)
            pending = 0
        pending += size
        accumulate(
            X, index, size, ahead, rare, DERIVATIVE_CAP, True, clip_limit, row_limit, per_grid, intercept, work, z,
            totals,
        )  # fmt: skip
    flush(totals, result)


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
    a, other = prepare(X, y, w, loss, intercept, rows), np.asarray(v, dtype=np.float64)
    d = a.X.shape[1]
    if other.shape != (a.size,) or not np.isfinite(other).all():
        raise ValueError(f"v must be {a.size} finite numbers like w, got shape {other.shape}")
    parameters = np.zeros((2, a.weights.size))
    parameters[0, :d], parameters[0, -1] = other[:d], other[d] if a.intercept > 0 else 0.0
    parameters[1] = a.weights
    row_limit, clip_limit, per_grid = row_norm * (1 - kappa(d + 1)), clip_norm * (1 - kappa(d + 1)), 1.0 / grid
    if a.address:
        _fused(
            a.X, a.y, parameters, a.rows, a.gather, a.n, a.block, a.address, loss.params, a.real_labels, row_limit,
            clip_limit, per_grid, a.intercept, a.work, aligned(a.block), a.chosen, a.z, a.totals, a.result,
        )  # fmt: skip
        return a.result[: a.size]
    for n in a.choose_blocks():
        derivatives, rare = [], False
        for parameter in parameters:
            rare = margins(a.X, a.y, parameter, a.chosen, n, 0, a.real_labels, row_limit, a.intercept, a.work, a.z)
            a.differentiate(loss, n)
            derivatives.append(a.work[DERIVATIVE : DERIVATIVE + n].copy())
        a.work[DERIVATIVE : DERIVATIVE + n] = derivatives[1] - derivatives[0]
        accumulate(
            a.X, a.chosen, n, 0, rare, DERIVATIVE_CAP, True, clip_limit, row_limit, per_grid, a.intercept, a.work,
            a.z, a.totals,
        )  # fmt: skip
        flush(a.totals, a.result)
    return a.result[: a.size]

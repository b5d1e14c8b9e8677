"""The Hessian of a generalised linear model: second moments of rows that are weighted by the curvature of the loss.

For rows ``x_i`` with labels ``y_i`` and a loss ``l(u, y)`` the sum is, in integers,

    sum_i s_i z_i z_i',   z_i = trunc( sqrt(|c_i|) (clip_r(x_i), b) / h ),   c_i = l''(u_i, y_i),   s_i = sign(c_i),

with ``u_i = <clip_r(x_i), w> + b w_d`` and ``c_i`` clamped to the declared range of the loss. Panels of rows are read
from memory once: their margins, their curvatures and their products come one after another
(`dpdist.kernels.moments`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_steps import DERIVATIVE, LABEL, MARGIN, borrow, call_block
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.gradients import Prepared, check_grid, margins, prepare
from dpdist.kernels.moments import second_moment
from dpdist.losses import Loss

PANEL = 4096
"""Rows whose curvatures are kept at a time."""


def glm_hessian(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Exact sum of ``l''(u, y) x x'``, packed, in units of ``moment_grid(radius)``.

    A row with a non-finite entry or label, or (for losses of signs) a label other than -1 and +1, contributes exactly
    0, as does one whose second derivative is not a number.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    w : ndarray of shape (d,), or (d + 1,) with an intercept
        Public parameters, finite.
    loss : Loss
        With a second derivative and a bounded range of it; with a compiled ``second_block`` it is fast.
    row_norm : float
        Public bound of the norm of a row, enforced.
    intercept : float, default 0
        Value of the constant feature; 0 for none.
    rows : ndarray of int64, optional
        Use these rows only (a Poisson batch), in whatever order.

    Returns
    -------
    ndarray of int64 or of Python integers
        As `dpdist.kernels.moments.second_moment` has it; ``radius`` is
        ``moment_radius(row_norm, intercept, weight_bound)`` with the larger end of the range as the bound of weights.

    Examples
    --------
    >>> from dpdist.kernels.moments import moment_grid, moment_radius, unpack_symmetric
    >>> from dpdist.losses import Logistic
    >>> X, y = np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 1.0]]), np.array([1.0, -1.0, 1.0])
    >>> packed = glm_hessian(X, y, np.zeros(2), Logistic(), row_norm=1.0)
    >>> (unpack_symmetric(packed) * moment_grid(moment_radius(1.0, weight_bound=0.25))).round(4)
    array([[0.1525, 0.12  ],
           [0.12  , 0.16  ]])
    """
    row_norm = check_bound(row_norm, "row_norm")
    a = prepare(X, y, w, loss, intercept, rows)
    low, high = loss.curvature_range
    curvatures = functools.partial(_row_curvatures, a, loss, row_norm * (1 - kappa(a.X.shape[1] + 1)))
    return second_moment(
        a.X, row_norm, intercept=a.intercept, weights=curvatures, weight_bound=max(high, -low),
        rows=a.rows if a.gather else None,
    )  # fmt: skip


def glm_curvature(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    grid: float,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Exact sum of ``l''(u, y)``, one number, in units of ``grid``: the weights of `glm_hessian`.

    Examples
    --------
    >>> from dpdist.losses import Logistic
    >>> X, y = np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 1.0]]), np.array([1.0, -1.0, 1.0])
    >>> float(glm_curvature(X, y, np.zeros(2), Logistic(), row_norm=1.0, grid=2.0**-34)[0]) * 2.0**-34
    0.5
    """
    row_norm = check_bound(row_norm, "row_norm")
    low, high = loss.curvature_range
    check_grid(grid, max(high, -low), "the largest curvature")
    a = prepare(X, y, w, loss, intercept, rows)
    row_limit = row_norm * (1 - kappa(a.X.shape[1] + 1))
    total = 0
    for start in range(0, a.n, PANEL):
        found = _row_curvatures(a, loss, row_limit, start, min(start + PANEL, a.n))
        total += int(np.trunc(found / grid).astype(np.int64).sum())
    return np.array([total], dtype=np.int64)


def _row_curvatures(a: Prepared, loss: Loss, row_limit: float, start: int, stop: int) -> NDArray[np.float64]:
    """Clamped second derivatives of the rows in these places; 0 for null rows."""
    address, (low, high) = loss.second_block_address(), loss.curvature_range
    found = np.empty(stop - start)
    if address:
        _curvatures(
            a.X, a.y, a.weights, a.rows, a.gather, start, a.block, address, loss.params, a.real_labels,
            row_limit, a.intercept, low, high, a.work, a.chosen, a.z, found,
        )  # fmt: skip
    else:
        _curvatures_in_numpy(a, loss, start, row_limit, low, high, found)
    return found


@kernel
def _curvatures(  # type: ignore[no-untyped-def]
    X, y, w, rows, gather, first, block, address, params, real_labels,
    row_limit, intercept, low, high, work, index, z, found,
):  # fmt: skip
    """Clamped second derivatives of the rows from place ``first`` on, block by block; 0 for null rows."""
    X, y, w, rows, params, work = borrow(X), borrow(y), borrow(w), borrow(rows), borrow(params), borrow(work)
    index, z = borrow(index), borrow(z)
    for start in range(0, found.size, block):
        size = min(block, found.size - start)
        for k in range(size):
            index[k] = rows[first + start + k] if gather else first + start + k
        margins(X, y, w, index, size, 0, real_labels, row_limit, intercept, work, z)
        call_block(address, params, work, size)
        for k in range(size):
            c = min(max(work[DERIVATIVE + k], low), high)
            # a label of NaN or infinity, and a NaN of its own, are compared to false
            known = (abs(work[LABEL + k]) < np.inf) & (abs(work[DERIVATIVE + k]) <= np.inf)
            found[start + k] = c if known else 0.0


def _curvatures_in_numpy(
    a: Prepared, loss: Loss, first: int, row_limit: float, low: float, high: float, found: NDArray[np.float64]
) -> None:
    """The same for a loss without compiled code."""
    for start in range(0, found.size, a.block):
        n = min(a.block, found.size - start)
        places = slice(first + start, first + start + n)
        a.chosen[:n] = a.rows[places] if a.gather else np.arange(places.start, places.stop)
        margins(a.X, a.y, a.weights, a.chosen, n, 0, a.real_labels, row_limit, a.intercept, a.work, a.z)
        with np.errstate(all="ignore"):
            u, label = a.work[MARGIN : MARGIN + n], a.work[LABEL : LABEL + n]
            second = loss.second_derivative(u, label)
        found[start : start + n] = np.where(np.isfinite(label) & ~np.isnan(second), np.clip(second, low, high), 0.0)

"""The Hessian of a generalised linear model: second moments of rows that are weighted by the curvature of the loss.

For rows ``x_i`` with labels ``y_i`` and a loss ``l(u, y)`` the sum is, in integers,

    sum_i s_i z_i z_i',   z_i = trunc( sqrt(|c_i|) (clip_r(x_i), b) / h ),   c_i = l''(u_i, y_i),   s_i = sign(c_i),

with ``u_i = <clip_r(x_i), w> + b w_d`` and ``c_i`` clamped to the declared range of the loss. Panels of rows are read
from memory once: their margins, their curvatures and their products come one after another
(`dpdist.kernels.moments`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import differentiate, each_block, rows_of, weigh
from dpdist.kernels.block_steps import DERIVATIVE, LABEL
from dpdist.kernels.clip import check_bound
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.gradients import check_grid
from dpdist.kernels.grid import to_units
from dpdist.kernels.moments import second_moment
from dpdist.losses import Loss


def glm_hessian(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    weighed: bool = False,
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
    weighed : bool, default False
        Margins are those of whole rows, and rows longer than ``row_norm`` are scaled down to it together with their
        constant feature: the Hessian of the weighted loss whose gradient `dpdist.kernels.gradients.glm_gradient` has.

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
    low, high = loss.curvature_range
    limit = math.inf if weighed else row_norm
    with rows_of(X, y, w, loss, row_norm=limit, intercept=intercept, chosen=rows, second=True) as a:

        def curvatures(start: int, stop: int) -> NDArray[np.float64]:
            found = np.empty(stop - start)
            if a.gather:
                part = a._replace(chosen=a.chosen[start:stop], n=stop - start)
            else:
                part = a._replace(X=a.X[start:stop], y=a.y[start:stop], n=stop - start)
            _fused(part, (low, high, math.inf), found)
            return found

        return second_moment(
            a.X, row_norm, intercept=a.intercept, weights=curvatures, weight_bound=max(high, -low),
            rows=a.chosen if a.gather else None, whole=weighed,
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
    weighed: bool = False,
) -> NDArray[np.int64]:
    """Exact sum of ``l''(u, y)``, one number, in units of ``grid``: the weights of `glm_hessian`.

    ``weighed``: margins are those of whole rows, and rows longer than ``row_norm`` count by the square of its ratio to
    their norm.

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
    limit = math.inf if weighed else row_norm
    with rows_of(X, y, w, loss, row_norm=limit, intercept=intercept, chosen=rows, second=True) as a:
        found = np.empty(a.n)
        _fused(a, (low, high, row_norm if weighed else math.inf), found)
    return to_units(found, grid).sum(keepdims=True)


@inlined_kernel
def _step(rows, start, n, ahead, limits, found):  # type: ignore[no-untyped-def]
    """Clamped second derivatives of the rows; 0 for null rows."""
    differentiate(rows, rows.X, rows.y, rows.weights, n, 0)  # the rows are read again when they are multiplied
    low, high, longest = limits
    for k in range(n):
        second = rows.work[DERIVATIVE + k]
        # a label of NaN or infinity, and a NaN of its own, are compared to false
        known = (abs(rows.work[LABEL + k]) < np.inf) & (abs(second) <= np.inf)
        rows.work[DERIVATIVE + k] = min(max(second, low), high) if known else 0.0
    if longest < np.inf:
        weigh(rows, n, longest)
    for k in range(n):
        found[start + k] = rows.work[DERIVATIVE + k]


@kernel
def _nothing(totals, found):  # type: ignore[no-untyped-def]
    """Curvatures are not summed."""


@kernel
def _fused(rows, limits, found):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _step, limits, _nothing, found.size, found)

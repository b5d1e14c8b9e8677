"""The gradient sum of a generalised linear model: one read of the rows, every row bounded, every sum exact.

For rows ``x_i`` with labels ``y_i`` and a loss ``l(u, y)`` the sum is, in units of a power-of-two grid ``g``,

    sum_i trunc( clip_C( l'(u_i, y_i) * (clip_r(x_i), b) ) / g ),    u_i = <clip_r(x_i), w> + b * w_d .

The rows go through the steps of `dpdist.kernels.block_pass`, and are read from memory once.

Why the bound of a row holds in floating point: the computed norm is at least ``norm * (1 - (d/2 + 4) u)`` with
``u = 2**-53``, factor and products lose a few more ``u``, and the factor carries the margin
``kappa = max(1e-12, (d + 16) u)`` (`dpdist.kernels.clip.kappa`). Truncation toward zero never makes an entry
larger, and the entries of a vector of norm ``<= C`` are below ``C``.

Why the result does not depend on blocks, threads or machines: every operation is an IEEE operation in an order that
is a function of the row alone (eight fixed lanes for the dot products; no fast-math anywhere), so a row always
contributes the same integers, and integers add exactly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.block_pass import differentiate, each_block, rows_of, set_aside, weigh
from dpdist.kernels.block_steps import UNITS, add_truncated, row_units
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.grid import GRID_BITS
from dpdist.kernels.shifted_rows import clip_shifted, shift_of, write_shifted
from dpdist.losses import Loss

FLUSH_ROWS = 2**21  # 2**21 rows of at most 2**32 units stay below 2**53, so float64 accumulates them exactly
DERIVATIVE_CAP = 2.0**500  # larger derivatives are clipped anyway; capped so that no product overflows


class Clip(NamedTuple):
    """How contributions are bounded, and the units they are truncated to."""

    largest: float  # derivatives are clamped to it;
    by_norm: bool  # unless that bounds every contribution, it is clipped by the norm as well
    clip_limit: float
    per_grid: float
    longest: float = math.inf  # longer rows are weighed down, margins unchanged


@inlined_kernel
def add_rows(rows, n, ahead, rare, clip, add_rare):  # type: ignore[no-untyped-def]
    """Step 3: coefficients from the derivatives of a block, then truncate and add to the totals."""
    totals = rows.totals
    totals[totals.size - 1] += row_units(
        rows.work, n, clip.largest, clip.by_norm, clip.clip_limit, clip.per_grid, rows.intercept
    )
    kept = set_aside(rows, rows.X, n, add_rare, clip) if rare else n
    add_truncated(totals, rows.X, rows.places, rows.work, kept, ahead)


@kernel
def add_clipped_row(rows, c, scale, size, clip):  # type: ignore[no-untyped-def]
    """Step 3 for one rare row: the row is ``scale * z`` with entries of ``z`` of at most 2."""
    z, totals = rows.z, rows.totals
    unit = max(scale, rows.intercept)  # the contribution is c * unit * (p * z, q) with max(p, q) = 1
    if unit == 0.0:
        return
    p, q = scale / unit, rows.intercept / unit
    length = min(abs(c) * unit, clip.clip_limit / math.sqrt((p * size) ** 2 + q * q))
    signed = math.copysign(length, c) * clip.per_grid
    for j in range(z.size):
        totals[j] += np.trunc(signed * p * z[j])
    totals[totals.size - 1] += np.trunc(signed * q)


@kernel
def flush(totals, result):  # type: ignore[no-untyped-def]
    """Move the exact float64 totals to the int64 result."""
    for j in range(result.size - 1):
        result[j] += np.int64(totals[j])
    result[result.size - 1] += np.int64(totals[totals.size - 1])
    totals[:] = 0.0


@inlined_kernel
def _step(rows, start, n, ahead, clip, result):  # type: ignore[no-untyped-def]
    rare = differentiate(rows, rows.X, rows.y, rows.weights, n, ahead)
    if clip.longest < np.inf:
        weigh(rows, n, clip.longest)
    add_rows(rows, n, ahead, rare, clip, add_clipped_row)


@kernel
def _fused(rows, clip, result):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _step, clip, flush, FLUSH_ROWS, result)


@inlined_kernel
def _shifted_step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    clip, shift = terms
    totals = rows.totals
    rare = differentiate(rows, rows.X, rows.y, rows.weights, n, ahead)
    write_shifted(rows, n, shift, rare, ahead)
    clip_shifted(rows, n, shift, clip.clip_limit)
    for k in range(n):
        rows.work[UNITS + k] *= clip.per_grid
    if rows.intercept > 0.0:
        for k in range(n):
            totals[totals.size - 1] += np.trunc(shift.constants[k] * rows.work[UNITS + k])
    add_truncated(totals, shift.sums, rows.places, rows.work, n, 0)


@kernel
def _fused_shifted(rows, clip, shift, result):  # type: ignore[no-untyped-def]
    """All blocks of rows, with a vector that is added to each of them."""
    each_block(rows, _shifted_step, (clip, shift), flush, FLUSH_ROWS, result)


def glm_gradient(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    *,
    row_norm: float,
    clip_norm: float,
    grid: float,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    shift: ArrayLike | None = None,
    weighed: bool = False,
) -> NDArray[np.int64]:
    """Exact sum of clipped loss gradients, in units of ``grid``.

    A row with a non-finite entry or label, or (for losses of signs) a label other than -1 and +1, contributes
    exactly 0. Any other row is clipped to l2 norm ``row_norm``, the constant feature ``intercept`` is appended if it
    is positive, ``u = <x, w[:d]> + intercept * w[d]``, and ``l'(u, y) * (x, intercept)`` is clipped to l2 norm
    ``clip_norm`` and truncated toward zero to the grid. A derivative that is not finite counts as 0.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64 or float32
        Read once; other layouts and types are converted (a copy).
    y : ndarray of shape (n,)
    w : ndarray of shape (d,), or (d + 1,) with an intercept
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
    shift : array of the length of ``w``, optional
        Public vector that is added to the gradient of every row but the empty ones, before it is clipped
        (`dpdist.kernels.shifted_rows`).
    weighed : bool, default False
        Rows longer than ``row_norm`` keep their length, and their gradients are multiplied by
        ``(row_norm / norm)**2`` instead: the gradient of a weighted loss, whose Hessian `glm_hessian` has.

    Returns
    -------
    ndarray of int64, of the length of ``w``
        The result for a set of rows is the sum of the results of its parts, bit for bit.

    Examples
    --------
    >>> from dpdist.losses import Logistic
    >>> X, y = np.array([[3.0, 4.0], [0.5, 0.0], [np.nan, 1.0]]), np.array([1.0, -1.0, 1.0])
    >>> units = glm_gradient(X, y, np.zeros(2), Logistic(), row_norm=1.0, clip_norm=1.0, grid=2.0**-32)
    >>> (units * 2.0**-32).round(6)
    array([-0.05, -0.4 ])
    """
    row_norm = check_bound(row_norm, "row_norm", allow_inf=True)
    clip_norm = check_bound(clip_norm, "clip_norm")
    check_grid(grid, clip_norm, "clip_norm")
    if weighed and shift is not None:
        raise ValueError("rows that are weighed take no shift")
    limit = math.inf if weighed else row_norm
    with rows_of(X, y, w, loss, row_norm=limit, intercept=intercept, chosen=rows) as a:
        d = a.X.shape[1]
        result = np.zeros(d + 1, dtype=np.int64)
        clip_limit = clip_norm * (1 - kappa(d + 1))
        # Where the public bounds of row and derivative imply the clip norm, clamping the derivative enforces it.
        largest = clip_limit / math.sqrt(limit**2 + a.intercept**2)
        by_norm = not loss.derivative_bound * (1 - 1e-11) <= largest
        longest = row_norm if weighed else math.inf
        clip = Clip(DERIVATIVE_CAP if by_norm else largest, by_norm, clip_limit, 1.0 / grid, longest)
        if shift is None:
            _fused(a, clip, result)
        else:
            _fused_shifted(a, clip, shift_of(shift, a), result)
    return result[: d + (a.intercept > 0)]


def check_grid(grid: float, bound: float, name: str) -> None:
    """Refuse a grid on which a contribution could have more than ``2**32`` units."""
    if math.frexp(grid)[0] != 0.5 or bound > grid * 2.0**GRID_BITS:
        raise ValueError(f"grid must be a power of two of at least {name} * 2**-32, got {grid!r}; use grid_for")

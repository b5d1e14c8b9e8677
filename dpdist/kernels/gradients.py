"""The gradient sum of a generalised linear model: one read of the rows, every row bounded, every sum exact.

For rows ``x_i`` with labels ``y_i`` and a loss ``l(u, y)`` the sum is, in units of a power-of-two grid ``g``,

    sum_i trunc( clip_C( l'(u_i, y_i) * (clip_r(x_i), b) ) / g ),    u_i = <clip_r(x_i), w> + b * w_d .

Blocks of rows that fit the first-level cache go through three steps: (1) margins and squared norms, (2) derivative
and clip factors of the whole block, (3) truncation and accumulation. The rows are read from memory once.

Why the bound of a row holds in floating point: the computed norm is at least ``norm * (1 - (d/2 + 4) u)`` with
``u = 2**-53``, factor and products lose a few more ``u``, and the factor carries the margin
``kappa = max(1e-12, (d + 16) u)`` (`dpdist.kernels.clip.kappa`). Truncation toward zero never makes an entry
larger, and the entries of a vector of norm ``<= C`` are below ``C``. Rows whose squared norm leaves
``[2**-400, 2**400]`` (zero, subnormal, huge and non-finite rows) are set aside and scaled by a power of two first.

Why the result does not depend on blocks, threads or machines: every operation is an IEEE operation in an order that
is a function of the row alone (eight fixed lanes for the dot products; no fast-math anywhere), so a row always
contributes the same integers, and integers add exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import DataError
from dpdist.kernels.block_steps import (
    DERIVATIVE,
    LABEL,
    LANES,
    MARGIN,
    MOST_ROWS,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    WORK_SIZE,
    add_truncated,
    borrow,
    call_block,
    dots_and_norms2,
    row_factors,
    row_units,
)
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.grid import GRID_BITS
from dpdist.losses import Loss

FLUSH_ROWS = 2**21  # 2**21 rows of at most 2**32 units stay below 2**53, so float64 accumulates them exactly
MAX_ROWS = 2**31  # and int64 holds the totals of fewer than 2**31 rows
DERIVATIVE_CAP = 2.0**500  # larger derivatives are clipped anyway; capped so that no product overflows
BLOCK_BYTES = 9600  # of rows in a block: two thirds of the first-level cache are left for what is fetched ahead
AHEAD = 3  # blocks between the rows at hand and those that are fetched into the second-level cache


@kernel
def scale_row(X, row, z):  # type: ignore[no-untyped-def]
    """For ``x = X[row]``, write ``x * 2**-e`` with largest entry in [1, 2) to ``z``; return ``(2**e, norm of z)``.

    ``(0, 0)`` for a zero row, ``(-1, 0)`` for a row that is not finite.
    """
    largest = 0.0
    for j in range(X.shape[1]):
        size = abs(np.float64(X[row, j]))
        if not size < np.inf:
            return -1.0, 0.0
        largest = max(largest, size)
    if largest == 0.0:
        return 0.0, 0.0
    exponent = math.frexp(largest)[1] - 1
    norm2 = 0.0
    for j in range(X.shape[1]):
        z[j] = math.ldexp(np.float64(X[row, j]), -exponent)
        norm2 += z[j] * z[j]
    return math.ldexp(1.0, exponent), math.sqrt(norm2)


@inlined_kernel
def margins(X, y, w, rows, n, ahead, real_labels, row_limit, intercept, work, z):  # type: ignore[no-untyped-def]
    """Step 1: margins, labels, squared norms and row factors of a block into ``work``; how many rows are out of range.

    A label outside the declared set becomes NaN.
    """
    dots_and_norms2(X, rows, n, w, work, ahead)
    shift = intercept * w[w.size - 1]
    for k in range(n):
        work[LABEL + k] = y[rows[k]]
    rare = row_factors(work, n, row_limit, shift, not real_labels)
    if rare:
        for k in range(n):
            if not ((work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH)):
                scale, size = scale_row(X, rows[k], z)
                if scale < 0.0:
                    work[LABEL + k] = np.nan
                dot = 0.0
                for j in range(X.shape[1]):
                    dot += z[j] * w[j]
                work[MARGIN + k] = dot * min(scale, row_limit / size) + shift if size > 0.0 else shift
    return rare


@inlined_kernel
def accumulate(  # type: ignore[no-untyped-def]
    X, rows, n, ahead, rare, largest, by_norm, clip_limit, row_limit, per_grid, intercept, work, z, totals
):
    """Steps 2 and 3: coefficients from the derivatives in ``work``, then truncate and add to ``totals``.

    Derivatives are clamped to ``largest``; unless that bounds every contribution, ``by_norm`` says to clip by the
    norm as well. ``rows`` is overwritten if there are rows out of range.
    """
    totals[totals.size - 1] += row_units(work, n, largest, by_norm, clip_limit, per_grid, intercept)
    kept = n
    if rare:
        kept = 0
        for k in range(n):
            if (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH):
                rows[kept] = rows[k]
                work[UNITS + kept] = work[UNITS + k]
                kept += 1
            else:
                c = work[DERIVATIVE + k]
                _add_scaled_row(X, rows[k], c, clip_limit, row_limit, per_grid, intercept, z, totals)
    add_truncated(totals, X, rows, work, kept, ahead)


@kernel
def _add_scaled_row(X, row, c, clip_limit, row_limit, per_grid, intercept, z, totals):  # type: ignore[no-untyped-def]
    """Step 3 for one row out of range: the row is ``scale * z`` with entries of ``z`` of at most 2."""
    scale, size = scale_row(X, row, z)
    if scale < 0.0 or c == 0.0:
        return
    if size > 0.0:
        scale = min(scale, row_limit / size)
    unit = max(scale, intercept)  # the contribution is c * unit * (p * z, q) with max(p, q) = 1
    if unit == 0.0:
        return
    p, q = scale / unit, intercept / unit
    length = min(abs(c) * unit, clip_limit / math.sqrt((p * size) ** 2 + q * q))
    signed = math.copysign(length, c) * per_grid
    for j in range(X.shape[1]):
        totals[j] += np.trunc(signed * p * z[j])
    totals[totals.size - 1] += np.trunc(signed * q)


@kernel
def flush(totals, result):  # type: ignore[no-untyped-def]
    """Move the exact float64 totals to the int64 result."""
    for j in range(result.size - 1):
        result[j] += np.int64(totals[j])
    result[result.size - 1] += np.int64(totals[totals.size - 1])
    totals[:] = 0.0


@kernel
def _fused(  # type: ignore[no-untyped-def]
    X, y, w, rows, gather, n, block, address, params, real_labels,
    largest, by_norm, row_limit, clip_limit, per_grid, intercept, work, index, z, totals, result,
):  # fmt: skip
    """All blocks of rows, with a compiled derivative."""
    # the caller holds all arrays, so there is no need to count references for every block
    X, y, w, rows, params, work = borrow(X), borrow(y), borrow(w), borrow(rows), borrow(params), borrow(work)
    index, z, totals, result = borrow(index), borrow(z), borrow(totals), borrow(result)
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
        rare = margins(X, y, w, index, size, ahead, real_labels, row_limit, intercept, work, z)
        call_block(address, params, work, size)
        if pending + size > FLUSH_ROWS:
            flush(totals, result)
            pending = 0
        pending += size
        accumulate(
            X, index, size, ahead, rare, largest, by_norm, clip_limit, row_limit, per_grid, intercept, work, z, totals
        )
    flush(totals, result)


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
    a = prepare(X, y, w, loss, intercept, rows)
    d = a.X.shape[1]
    row_limit, clip_limit, per_grid = row_norm * (1 - kappa(d + 1)), clip_norm * (1 - kappa(d + 1)), 1.0 / grid
    # Where the public bounds of row and derivative imply the clip norm, clamping the derivative enforces it.
    largest = clip_limit / math.sqrt(row_norm**2 + a.intercept**2)
    by_norm = not loss.derivative_bound * (1 - 1e-11) <= largest
    if by_norm:
        largest = DERIVATIVE_CAP
    if a.address:
        _fused(
            a.X, a.y, a.weights, a.rows, a.gather, a.n, a.block, a.address, loss.params, a.real_labels, largest,
            by_norm, row_limit, clip_limit, per_grid, a.intercept, a.work, a.chosen, a.z, a.totals, a.result,
        )  # fmt: skip
        return a.result[: a.size]
    for n in a.choose_blocks():
        rare = margins(a.X, a.y, a.weights, a.chosen, n, 0, a.real_labels, row_limit, a.intercept, a.work, a.z)
        a.differentiate(loss, n)
        accumulate(
            a.X, a.chosen, n, 0, rare, largest, by_norm, clip_limit, row_limit, per_grid, a.intercept,
            a.work, a.z, a.totals,
        )  # fmt: skip
        flush(a.totals, a.result)
    return a.result[: a.size]


@dataclass
class Prepared:
    """The checked arguments and the scratch of a pass, as compiled code wants them."""

    X: NDArray[Any]
    y: NDArray[np.float64]
    weights: NDArray[np.float64]  # padded with zeros to whole vectors, then the weight of the constant feature
    rows: NDArray[np.int64]
    gather: bool
    n: int
    block: int
    address: int
    real_labels: bool
    intercept: float
    size: int  # of the parameter
    work: NDArray[np.float64]
    chosen: NDArray[np.int64]
    z: NDArray[np.float64]
    totals: NDArray[np.float64]
    result: NDArray[np.int64]

    def choose_blocks(self) -> Iterator[int]:
        """Write the row numbers of one block after another to ``chosen``; yields how many they are."""
        for start in range(0, self.n, self.block):
            size = min(self.block, self.n - start)
            self.chosen[:size] = self.rows[start : start + size] if self.gather else np.arange(start, start + size)
            yield size

    def differentiate(self, loss: Loss, n: int) -> None:
        """Step 2 of a block for a loss without compiled code."""
        with np.errstate(all="ignore"):
            u, label = self.work[MARGIN : MARGIN + n], self.work[LABEL : LABEL + n]
            self.work[DERIVATIVE : DERIVATIVE + n] = loss.derivative(u, label)


def prepare(
    X: ArrayLike, y: ArrayLike, w: ArrayLike, loss: Loss, intercept: float, rows: NDArray[np.int64] | None
) -> Prepared:
    """Check what the gradient sums have in common, and allocate their scratch."""
    X, y, w = _matrix(X), np.ascontiguousarray(y, dtype=np.float64), np.asarray(w, dtype=np.float64)
    d = X.shape[1]
    intercept = check_bound(intercept, "intercept") if intercept != 0 else 0.0
    if y.shape != (len(X),):
        raise DataError(f"y must have one label for each of the {len(X)} rows of X, got shape {y.shape}")
    if w.shape != (d + (intercept > 0),) or not np.isfinite(w).all():
        raise ValueError(f"w must be {d + (intercept > 0)} finite numbers, got shape {w.shape}")
    gather = rows is not None
    index = np.ascontiguousarray(rows, dtype=np.int64) if rows is not None else np.empty(0, dtype=np.int64)
    if gather and index.size and not (index.min() >= 0 and index.max() < len(X)):
        raise IndexError("rows must be positions of rows of X")
    n = index.size if gather else len(X)
    if max(n, len(X)) >= MAX_ROWS:
        raise DataError(f"a call takes fewer than 2**31 rows, got {len(X)}; split the rows")
    address = loss.block_address()
    block = MOST_ROWS if not address else min(256, max(8, BLOCK_BYTES // (d * X.itemsize) // 8 * 8))
    padded = -(-d // LANES) * LANES
    weights = aligned(padded + 1)
    weights[:d], weights[padded] = w[:d], w[d] if intercept > 0 else 0.0
    return Prepared(
        _writable(X), _writable(y), weights, _writable(index), gather, n, block, address, loss.labels == "real",
        intercept, w.size, aligned(WORK_SIZE), aligned(block).view(np.int64), aligned(d), aligned(padded + 1),
        np.zeros(d + 1, dtype=np.int64),
    )  # fmt: skip


def check_grid(grid: float, bound: float, name: str) -> None:
    """Refuse a grid on which a contribution could have more than ``2**32`` units."""
    if math.frexp(grid)[0] != 0.5 or bound > grid * 2.0**GRID_BITS:
        raise ValueError(f"grid must be a power of two of at least {name} * 2**-32, got {grid!r}; use grid_for")


def _matrix(X: ArrayLike) -> NDArray[Any]:
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    return np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)


def aligned(size: int) -> NDArray[np.float64]:
    """Zeros that start on a cache line and share none with other arrays (two lines are fetched together)."""
    line = 16
    buffer = np.zeros(size + 2 * line)
    start = -buffer.ctypes.data // 8 % line
    return buffer[start : start + size]


def _writable(a: NDArray[Any]) -> NDArray[Any]:
    """The same memory, typed as writable: kernels only read, and numba would compile again for read-only arrays."""
    if a.flags.writeable and a.flags.aligned:
        return a
    if not a.flags.aligned:
        return a.copy()
    interface = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface, owner=a))

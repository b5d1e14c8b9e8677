"""The coordinate-wise bounded gradient sum of a generalised linear model, for heavy-tailed data.

For rows ``x_i`` with labels ``y_i``, a loss ``l(u, y)`` and a map f of `dpdist.kernels.truncation` the sum is, in units
of a power-of-two grid ``g`` and for every coordinate j,

    sum_i trunc( f( l'(u_i, y_i) * x_ij ) / g ),    u_i = <x_i, w> + b * w_d,

where ``x_id = b`` is the constant feature. Rows need no bound of their norm. Blocks of rows go through the steps of
`dpdist.kernels.block_pass`; in the third of them: the products of a row are formed, mapped and added in registers, so
an ``n x d`` gradient never exists.

Why the bound of a coordinate holds in floating point: whatever a product is (huge, infinite, subnormal), the last
operation before the truncation clamps to the integer ``floor(bound / g)``. No product is NaN, because derivatives are
finite (others count as 0) and so are the entries of a row (others make it a null row).

The result does not depend on blocks, threads or machines, as in `dpdist.kernels.gradients`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.block_pass import aligned, differentiate, each_block, rows_of, set_aside
from dpdist.kernels.block_steps import DERIVATIVE, LANES, UNITS, row_units
from dpdist.kernels.clip import check_bound
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.gradients import DERIVATIVE_CAP, FLUSH_ROWS, check_grid, flush
from dpdist.kernels.mapped_vectors import add_mapped
from dpdist.kernels.shifted_rows import shift_of, write_shifted
from dpdist.kernels.truncation import ClipConstants, ScalarMap
from dpdist.losses import Loss


@dataclass(frozen=True)
class Residual:
    """``clamp(x_j, K) * clamp(l', B)``: bounded factors instead of a bounded product.

    The margin is that of the clamped features as well, so for the squared loss this is the gradient of a Huber loss on
    shrunken features (``"residual"``); with labels clamped at K as well and ``B = K (R + 1)`` it is the gradient of
    shrunken data for parameters with ``||w||_1 <= R`` (``"shrink"``; seed 003, Algorithms 2 and 3), where B is enforced
    rather than derived.

    Attributes
    ----------
    feature_bound : float
        Public bound K of an entry of a row.
    residual_bound : float
        Public bound B of the derivative of the loss.
    label_bound : float
        Labels are clamped to this first.
    """

    tag: ClassVar[str] = "Residual"

    feature_bound: float
    residual_bound: float
    label_bound: float = math.inf

    def __post_init__(self) -> None:
        check_bound(self.feature_bound, "feature_bound")
        check_bound(self.residual_bound, "residual_bound")
        check_bound(self.label_bound, "label_bound", allow_inf=True)

    @property
    def bound(self) -> float:
        """``K * B``: no coordinate of a row's contribution is larger."""
        return self.feature_bound * self.residual_bound

    def constants(self, grid: float) -> ClipConstants:
        """Those of a clip at the bound, which removes rounding errors of the product."""
        return ClipConstants(1.0 / grid, float(math.floor(self.bound / grid)))


CoordinateMap = ScalarMap | Residual


@kernel
def _add(totals, X, rows, factors, offset, n, ahead, constants):  # type: ignore[no-untyped-def]
    """A function of its own, so that the code of a map exists once for every type of rows."""
    add_mapped(totals, X, rows, factors, offset, n, ahead, constants)


@kernel
def _clamp_rows(X, y, rows, n, bound, clamped, labels):  # type: ignore[no-untyped-def]
    """Copy a block of rows with entries clamped; a row that was not finite stays so. ``rows`` then numbers the copy."""
    for k in range(n):
        finite = True
        for j in range(X.shape[1]):
            x = np.float64(X[rows[k], j])
            if not abs(x) < np.inf:
                finite = False
            clamped[k, j] = min(max(x, -bound), bound)
        if not finite:
            clamped[k, 0] = np.nan
        labels[k] = y[rows[k]]
        rows[k] = k


class Terms(NamedTuple):
    """How products are mapped, and the scratch of it."""

    constants: Any
    largest: float  # derivatives are clamped to it,
    feature_bound: float  # and entries to this first
    clamped: NDArray[np.float64]
    labels: NDArray[np.float64]
    first: NDArray[np.int64]
    factor: NDArray[np.float64]
    row: NDArray[np.float64]  # a rare one, and
    line: NDArray[np.float64]  # what the constant feature of a block is multiplied by, as matrices of one row
    column: NDArray[np.float64]


@inlined_kernel
def _add_rows(rows, X, n, ahead, rare, terms):  # type: ignore[no-untyped-def]
    """Step 3: factors from the derivatives of a block, then products are mapped and added to the totals."""
    work, constants, column = rows.work, terms.constants, terms.column
    row_units(work, n, terms.largest, False, 1.0, constants.per_scale, 0.0)
    if rows.intercept > 0.0:  # one long row, whose entries are the derivatives of the block
        terms.factor[0] = rows.intercept * constants.per_scale
        rows.totals[rows.totals.size - 1] += _add_line(terms, column, n)
    kept = set_aside(rows, X, n, _add_row, terms) if rare else n
    _add(rows.totals, X, rows.places, work, np.int64(UNITS), kept, ahead, constants)


@inlined_kernel
def _add_line(terms, column, n):  # type: ignore[no-untyped-def]
    """The sum of the first n entries of the line, each mapped; what longer blocks left behind them is not added."""
    nothing = np.int64(0)  # numba would compile anew for every number that is written out
    _add(column, terms.line, terms.first, terms.factor, nothing, nothing + 1, nothing, terms.constants)
    total = 0.0
    for k in range(n):
        total += column[k]
    column[:] = 0.0
    return total


@kernel
def _add_row(rows, c, scale, size, terms):  # type: ignore[no-untyped-def]
    """Step 3 for one rare row."""
    for j in range(rows.z.size):
        rows.z[j] *= scale
    terms.factor[0] = c * terms.constants.per_scale
    if size > 0.0:
        nothing = np.int64(0)
        _add(rows.totals, terms.row, terms.first, terms.factor, nothing, nothing + 1, nothing, terms.constants)


@inlined_kernel
def _add_block(rows, X, y, n, ahead, terms):  # type: ignore[no-untyped-def]
    """All three steps of a block."""
    rare = differentiate(rows, X, y, rows.weights, n, ahead)
    _add_rows(rows, X, n, ahead, rare, terms)


@inlined_kernel
def _step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    _add_block(rows, rows.X, rows.y, n, ahead, terms)


@kernel
def _fused(rows, terms, result):  # type: ignore[no-untyped-def]
    """All blocks of rows."""
    each_block(rows, _step, terms, flush, FLUSH_ROWS, result)


@inlined_kernel
def _clamped_step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    _clamp_rows(rows.X, rows.y, rows.places, n, terms.feature_bound, terms.clamped, terms.labels)
    _add_block(rows, terms.clamped, terms.labels, n, 0, terms)


@kernel
def _fused_clamped(rows, terms, result):  # type: ignore[no-untyped-def]
    """All blocks of rows, with entries clamped first; of its own, as compiling both takes twice as long."""
    each_block(rows, _clamped_step, terms, flush, FLUSH_ROWS, result)


@inlined_kernel
def _shifted_step(rows, start, n, ahead, terms, result):  # type: ignore[no-untyped-def]
    terms, shift = terms
    constants, column = terms.constants, terms.column
    rare = differentiate(rows, rows.X, rows.y, rows.weights, n, ahead)
    write_shifted(rows, n, shift, rare, ahead)
    terms.factor[0] = constants.per_scale
    rows.totals[rows.totals.size - 1] += _add_line(terms, column, n)
    for k in range(n):
        rows.work[UNITS + k] = constants.per_scale
    _add(rows.totals, shift.sums, rows.places, rows.work, np.int64(UNITS), n, np.int64(0), constants)


@kernel
def _fused_shifted(rows, terms, shift, result):  # type: ignore[no-untyped-def]
    """All blocks of rows, with a vector that is added to each of them."""
    each_block(rows, _shifted_step, (terms, shift), flush, FLUSH_ROWS, result)


def coordinate_gradient(
    X: NDArray[Any],
    y: NDArray[Any],
    w: NDArray[Any],
    loss: Loss,
    bounded: CoordinateMap,
    *,
    grid: float,
    row_norm: float | None = None,
    intercept: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    shift: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Exact sum of loss gradients whose coordinates are bounded one by one, in units of ``grid``.

    A row with a non-finite entry or label, or (for losses of signs) a label other than -1 and +1, contributes exactly
    0. Of any other row, ``l'(u, y) * (x, intercept)`` is mapped entry by entry and truncated toward zero to the grid. A
    derivative that is not finite counts as 0; finite ones are cut at ``2**500``, and a product that overflows counts as
    infinite, which the maps turn into their bound.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        float64 and float32 are read once; other layouts and types are converted (a copy).
    y : ndarray of shape (n,)
    w : ndarray of shape (d,), or (d + 1,) with an intercept
        Public parameters, finite.
    loss : Loss
        With a compiled block function, or (slower) with a NumPy derivative only.
    bounded : HardClip, SoftTruncation, SmoothTruncation or Residual
        Its public ``bound`` holds for every coordinate of every row's contribution, that of the constant feature
        included.
    grid : float
        A power of two, at least ``bounded.bound * 2**-32``: `dpdist.kernels.grid.grid_for`.
    row_norm : float, optional
        Clip rows to this l2 norm first (after their entries, for a `Residual`). Default: no clipping.
    intercept : float, default 0
        Value of the constant feature; 0 for none.
    rows : ndarray of int64, optional
        Use these rows only (a Poisson batch), in whatever order.
    shift : array of the length of ``w``, optional
        Public vector that is added to the gradient of every row but the empty ones, before it is mapped
        (`dpdist.kernels.shifted_rows`); not for a `Residual`.

    Returns
    -------
    ndarray of int64, of the length of ``w``
        The result for a set of rows is the sum of the results of its parts, bit for bit.

    Examples
    --------
    >>> from dpdist.kernels.truncation import SoftTruncation
    >>> from dpdist.losses import Squared
    >>> X, y = np.array([[0.01, 1.0], [1e300, -1e-9], [np.nan, 1.0]]), np.array([-1.0, -1.0, 1.0])
    >>> units = coordinate_gradient(X, y, np.zeros(2), Squared(), SoftTruncation(1.0), grid=2.0**-32)
    >>> (units * 2.0**-32).round(6)
    array([0.952809, 0.833333])
    """
    row_norm = check_bound(math.inf if row_norm is None else row_norm, "row_norm", allow_inf=True)
    check_grid(grid, bounded.bound, "bound")
    largest, feature_bound = DERIVATIVE_CAP, math.inf
    if isinstance(bounded, Residual):
        if shift is not None:
            raise ValueError("Residual bounds the factors of a gradient, so there is no sum to bound: leave shift out")
        largest, feature_bound = bounded.residual_bound, bounded.feature_bound
        if bounded.label_bound < math.inf:
            y = np.asarray(y, dtype=np.float64)
            y = np.where(np.isfinite(y), np.clip(y, -bounded.label_bound, bounded.label_bound), np.nan)
    with rows_of(X, y, w, loss, row_norm=row_norm, intercept=intercept, chosen=rows) as a:
        d = a.X.shape[1]
        result = np.zeros(d + 1, dtype=np.int64)
        clamped = aligned(a.block * d if feature_bound < math.inf else 0).reshape(-1, d)
        added = None if shift is None else shift_of(shift, a)
        line = a.work[DERIVATIVE : DERIVATIVE + a.block] if added is None else added.constants[: a.block]
        terms = Terms(
            bounded.constants(grid), largest, feature_bound, clamped, aligned(len(clamped)),
            np.zeros(1, dtype=np.int64), np.zeros(1), a.z.reshape(1, d), line.reshape(1, -1), aligned(a.block + LANES),
        )  # fmt: skip
        if feature_bound < math.inf:
            _fused_clamped(a, terms, result)
        elif added is None:
            _fused(a, terms, result)
        else:
            _fused_shifted(a, terms, added, result)
    return result[: d + (a.intercept > 0)]

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
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import extending, njit, types
from numba.core import cgutils
from numpy.typing import NDArray

from dpdist.errors import DataError
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.grid import GRID_BITS
from dpdist.losses import Loss

ir = cgutils.ir
intrinsic: Any = extending.intrinsic  # declared with the arguments of the generator, called with those of the result

WIDE = 8  # vectors that are kept in registers
LANES = 8  # a fixed order of addition: lane j % 8, then a fixed tree; wide enough for every current vector unit
FLUSH_ROWS = 2**21  # 2**21 rows of at most 2**32 units stay below 2**53, so float64 accumulates them exactly
MAX_ROWS = 2**31  # and int64 holds the totals of fewer than 2**31 rows
NORM2_LOW, NORM2_HIGH = 2.0**-400, 2.0**400  # squared norms that need no scaling
DERIVATIVE_CAP = 2.0**500  # larger derivatives are clipped anyway; capped so that no product overflows

BLOCK_BYTES = 6400
NUMPY_ROWS = 4096  # rows per call of a derivative in NumPy
# The scratch of a block: six vectors at fixed distances (so that compilers see that they do not overlap; not a power
# of two, so that they do not compete for the same cache sets).
MARGIN, LABEL, NORM2, FACTOR, DERIVATIVE, UNITS = (i * (NUMPY_ROWS + 24) for i in range(6))

_f64 = ir.DoubleType()
_i1, _i32, _i64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_vec = ir.VectorType(_f64, LANES)


def _load(builder: Any, base: Any, index: Any, mask: Any = None) -> Any:
    """Eight consecutive values from ``base[index]`` as float64 lanes; lanes outside the mask are zero and unread."""
    element = base.type.pointee
    vector = ir.VectorType(element, LANES)
    pointer = builder.bitcast(builder.gep(base, [index]), vector.as_pointer())
    size = 8 if element == _f64 else 4
    if mask is None:
        value = builder.load(pointer, align=size)
    else:
        name = f"llvm.masked.load.v{LANES}f{8 * size}.p0"
        kind = ir.FunctionType(vector, [pointer.type, _i32, mask.type, vector])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        value = builder.call(function, [pointer, _i32(size), mask, ir.Constant(vector, None)])
    return value if element == _f64 else builder.fpext(value, _vec)


def _splat(builder: Any, scalar: Any) -> Any:
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, _i32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_i32, LANES), [0] * LANES))


def _tail_mask(builder: Any, n_left: Any) -> Any:
    lanes = ir.Constant(ir.VectorType(_i64, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat(builder, n_left))


def _remainders(builder: Any, n_left: Any) -> Iterator[tuple[int, Any]]:
    """One branch of code for each number of vectors that up to 64 columns fill, with the mask of the last one."""
    for n_vectors in range(1, WIDE + 1):
        low, high = _i64((n_vectors - 1) * LANES), _i64(n_vectors * LANES)
        fits = builder.and_(builder.icmp_signed("<", low, n_left), builder.icmp_signed("<=", n_left, high))
        with builder.if_then(fits):
            yield n_vectors, _tail_mask(builder, builder.sub(n_left, low))


def _slots(builder: Any, n: int) -> list[Any]:
    """Vector variables, set to zero; LLVM keeps them in registers."""
    slots = [cgutils.alloca_once(builder, _vec) for _ in range(n)]
    for slot in slots:
        builder.store(ir.Constant(_vec, None), slot)
    return slots


def _fold(builder: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The lane sums of two vectors down one tree: lanes i and i+4, then i and i+2, then i and i+1 are added."""
    for width in (4, 2, 1):
        low = [*range(width), *range(LANES if width == 4 else 2 * width, (LANES if width == 4 else 2 * width) + width)]
        first, second = (ir.Constant(ir.VectorType(_i32, 2 * width), [i + o for i in low]) for o in (0, width))
        a = b_sum = builder.fadd(builder.shuffle_vector(a, b, first), builder.shuffle_vector(a, b, second))
        b = b_sum
    return builder.extract_element(a, _i32(0)), builder.extract_element(a, _i32(1))


@intrinsic
def _dots_and_norms2(typingctx: Any, X: Any, rows: Any, n: Any, w: Any, dots: Any, norms2: Any) -> Any:
    """``dots[k] = <x, w>`` and ``norms2[k] = <x, x>`` for ``x = X[rows[k]]``, ``k < n``; ``w`` is padded with zeros."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, index, weights, dot, norm2 = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 3, 4, 5)
        )
        d = cgutils.unpack_tuple(builder, matrix.shape)[1]
        zero = ir.Constant(_vec, None)

        def base_of(k: Any) -> Any:
            row = builder.load(builder.gep(index.data, [k]))
            return builder.gep(matrix.data, [builder.mul(row, d)])

        def add(sums: tuple[Any, Any], x: Any, weight: Any) -> tuple[Any, Any]:
            dot, norm2 = sums
            return builder.fadd(dot, builder.fmul(x, weight)), builder.fadd(norm2, builder.fmul(x, x))

        def finish(k: Any, sums: tuple[Any, Any]) -> None:
            for value, out in zip(_fold(builder, *sums), (dot, norm2), strict=True):
                builder.store(value, builder.gep(out.data, [k]))

        for n_vectors, mask in _remainders(builder, d):  # short rows: the weights stay in registers
            loaded = [_load(builder, weights.data, _i64(i * LANES)) for i in range(n_vectors)]
            with cgutils.for_range(builder, args[2]) as loop:
                base, sums = base_of(loop.index), (zero, zero)
                for i, weight in enumerate(loaded):
                    x = _load(builder, base, _i64(i * LANES), mask if i == n_vectors - 1 else None)
                    sums = add(sums, x, weight)
                finish(loop.index, sums)
        with builder.if_then(builder.icmp_signed(">", d, _i64(WIDE * LANES))):
            whole = builder.and_(builder.sub(d, _i64(1)), _i64(-LANES))
            tail = _tail_mask(builder, builder.sub(d, whole))
            slots = [cgutils.alloca_once(builder, _vec) for _ in range(2)]
            with cgutils.for_range(builder, args[2]) as loop:
                base = base_of(loop.index)
                for slot in slots:
                    builder.store(zero, slot)

                def step(j: Any, mask: Any = None) -> tuple[Any, Any]:
                    sums = (builder.load(slots[0]), builder.load(slots[1]))
                    return add(sums, _load(builder, base, j, mask), _load(builder, weights.data, j))

                with cgutils.for_range_slice(builder, _i64(0), whole, _i64(LANES), _i64) as (j, _):
                    for value, slot in zip(step(j), slots, strict=True):
                        builder.store(value, slot)
                finish(loop.index, step(whole, tail))
        return context.get_dummy_value()

    return types.void(X, rows, n, w, dots, norms2), codegen


@intrinsic
def _add_truncated(typingctx: Any, totals: Any, X: Any, rows: Any, coefficients: Any, n: Any) -> Any:
    """``totals[j] += sum_k trunc(coefficients[k] * X[rows[k], j])`` for ``k < n``; exact, so any order will do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, matrix, index, factor = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:4], args[:4], strict=True)
        )
        n_rows = args[4]
        d = cgutils.unpack_tuple(builder, matrix.shape)[1]
        truncate = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_vec, [_vec]), "llvm.trunc.v8f64")

        def columns(start: Any, n_vectors: int, mask: Any = None) -> None:
            slots = _slots(builder, n_vectors)
            with cgutils.for_range(builder, n_rows) as loop:
                row = builder.load(builder.gep(index.data, [loop.index]))
                base = builder.gep(matrix.data, [builder.add(builder.mul(row, d), start)])
                scale = _splat(builder, builder.load(builder.gep(factor.data, [loop.index])))
                for i, slot in enumerate(slots):
                    x = _load(builder, base, _i64(i * LANES), mask if i == n_vectors - 1 else None)
                    units = builder.call(truncate, [builder.fmul(scale, x)])
                    builder.store(builder.fadd(builder.load(slot), units), slot)
            for i, slot in enumerate(slots):  # totals are padded to a multiple of eight
                where = builder.gep(total.data, [builder.add(start, _i64(i * LANES))])
                where = builder.bitcast(where, _vec.as_pointer())
                builder.store(builder.fadd(builder.load(where, align=8), builder.load(slot)), where, align=8)

        # Up to 64 columns at a time stay in registers while the rows of the block stream by; then what is left.
        wide = builder.and_(d, _i64(-WIDE * LANES))
        with cgutils.for_range_slice(builder, _i64(0), wide, _i64(WIDE * LANES), _i64) as (start, _):
            columns(start, WIDE)
        for n_vectors, mask in _remainders(builder, builder.sub(d, wide)):
            columns(wide, n_vectors, mask)
        return context.get_dummy_value()

    return types.void(totals, X, rows, coefficients, n), codegen


@intrinsic
def _call_block(typingctx: Any, address: Any, u: Any, y: Any, params: Any, out: Any, n: Any) -> Any:
    """Call a loss's compiled block function by its address, so that one kernel serves all losses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (1, 2, 3, 4)]
        kind = ir.FunctionType(ir.VoidType(), [*(pointer.type for pointer in data), args[5].type])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [*data, args[5]])
        return context.get_dummy_value()

    return types.void(address, u, y, params, out, n), codegen


@njit(nogil=True, cache=True, error_model="numpy")
def _scale_row(x, z):  # type: ignore[no-untyped-def]
    """Write ``x * 2**-e`` with largest entry in [1, 2) to ``z``; return ``(2**e, norm of z)``.

    ``(0, 0)`` for a zero row, ``(-1, 0)`` for a row that is not finite.
    """
    largest = 0.0
    for j in range(x.size):
        size = abs(np.float64(x[j]))
        if not size < np.inf:
            return -1.0, 0.0
        largest = max(largest, size)
    if largest == 0.0:
        return 0.0, 0.0
    exponent = math.frexp(largest)[1] - 1
    norm2 = 0.0
    for j in range(x.size):
        z[j] = math.ldexp(np.float64(x[j]), -exponent)
        norm2 += z[j] * z[j]
    return math.ldexp(1.0, exponent), math.sqrt(norm2)


@njit(nogil=True, cache=True, error_model="numpy")
def _margins(X, y, w, rows, n, real_labels, row_limit, intercept, work, z):  # type: ignore[no-untyped-def]
    """Step 1: margins, labels, squared norms and row factors of a block into ``work``; how many rows are out of range.

    A label outside the declared set becomes NaN.
    """
    _dots_and_norms2(X, rows, n, w, work[MARGIN : MARGIN + n], work[NORM2 : NORM2 + n])
    shift = intercept * w[w.size - 1]
    for k in range(n):
        work[LABEL + k] = y[rows[k]]
    if not real_labels:
        for k in range(n):
            work[LABEL + k] = work[LABEL + k] if abs(work[LABEL + k]) == 1.0 else np.nan
    rare = 0
    for k in range(n):
        rare += not ((work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH))
    for k in range(n):
        ratio = row_limit / math.sqrt(work[NORM2 + k])
        ratio = ratio if ratio < 1.0 else 1.0
        work[FACTOR + k] = ratio
        work[MARGIN + k] = work[MARGIN + k] * ratio + shift
    if rare:
        for k in range(n):
            if not ((work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH)):
                x = X[rows[k]]
                scale, size = _scale_row(x, z)
                if scale < 0.0:
                    work[LABEL + k] = np.nan
                dot = 0.0
                for j in range(x.size):
                    dot += z[j] * w[j]
                work[MARGIN + k] = dot * min(scale, row_limit / size) + shift if size > 0.0 else shift
    return rare


@njit(nogil=True, cache=True, error_model="numpy")
def _accumulate(  # type: ignore[no-untyped-def]
    X, rows, n, rare, largest, by_norm, clip_limit, row_limit, per_grid, intercept, work, z, totals
):
    """Steps 2 and 3: coefficients from the derivatives in ``work``, then truncate and add to ``totals``.

    Derivatives are clamped to ``largest``; unless that bounds every contribution, ``by_norm`` says to clip by the
    norm as well. ``rows`` is overwritten if there are rows out of range.
    """
    for k in range(n):
        c = work[DERIVATIVE + k]
        c = c if (abs(c) < np.inf) & (abs(work[LABEL + k]) < np.inf) else 0.0
        c = c if c < largest else largest
        work[DERIVATIVE + k] = c if c > -largest else -largest
    if by_norm:
        for k in range(n):
            c, ratio = work[DERIVATIVE + k], work[FACTOR + k]
            clip = clip_limit / (abs(c) * math.sqrt(ratio * ratio * work[NORM2 + k] + intercept * intercept))
            work[UNITS + k] = c * (clip if clip < 1.0 else 1.0) * per_grid
    else:
        for k in range(n):
            work[UNITS + k] = work[DERIVATIVE + k] * per_grid
    last = totals.size - 1
    kept = n
    if rare:
        kept = 0
        for k in range(n):
            if (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH):
                rows[kept] = rows[k]
                work[UNITS + kept] = work[UNITS + k]
                work[FACTOR + kept] = work[FACTOR + k]
                kept += 1
            else:
                c = work[DERIVATIVE + k]
                _add_scaled_row(X[rows[k]], c, clip_limit, row_limit, per_grid, intercept, z, totals)
    if intercept > 0.0:
        for k in range(kept):
            totals[last] += np.trunc(work[UNITS + k] * intercept)
    for k in range(kept):
        work[UNITS + k] *= work[FACTOR + k]
    _add_truncated(totals, X, rows, work[UNITS : UNITS + n], kept)


@njit(nogil=True, cache=True, error_model="numpy")
def _add_scaled_row(x, c, clip_limit, row_limit, per_grid, intercept, z, totals):  # type: ignore[no-untyped-def]
    """Step 3 for one row out of range: the row is ``scale * z`` with entries of ``z`` of at most 2."""
    scale, size = _scale_row(x, z)
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
    for j in range(x.size):
        totals[j] += np.trunc(signed * p * z[j])
    totals[totals.size - 1] += np.trunc(signed * q)


@njit(nogil=True, cache=True, error_model="numpy")
def _flush(totals, result):  # type: ignore[no-untyped-def]
    """Move the exact float64 totals to the int64 result."""
    for j in range(result.size - 1):
        result[j] += np.int64(totals[j])
    result[result.size - 1] += np.int64(totals[totals.size - 1])
    totals[:] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _fused(  # type: ignore[no-untyped-def]
    X, y, w, rows, gather, n, block, address, params, real_labels,
    largest, by_norm, row_limit, clip_limit, per_grid, intercept, work, index, z, totals, result,
):  # fmt: skip
    """All blocks of rows, with a compiled derivative."""
    pending = 0
    for start in range(0, n, block):
        size = min(block, n - start)
        if gather:
            for k in range(size):
                index[k] = rows[start + k]
        else:
            for k in range(size):
                index[k] = start + k
        rare = _margins(X, y, w, index, size, real_labels, row_limit, intercept, work, z)
        u, label = work[MARGIN : MARGIN + size], work[LABEL : LABEL + size]
        _call_block(address, u, label, params, work[DERIVATIVE : DERIVATIVE + size], size)
        if pending + size > FLUSH_ROWS:
            _flush(totals, result)
            pending = 0
        pending += size
        _accumulate(
            X, index, size, rare, largest, by_norm, clip_limit, row_limit, per_grid, intercept, work, z, totals
        )
    _flush(totals, result)


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
    X, y, w = _matrix(X), np.ascontiguousarray(y, dtype=np.float64), np.asarray(w, dtype=np.float64)
    d = X.shape[1]
    row_norm = check_bound(row_norm, "row_norm", allow_inf=True)
    clip_norm = check_bound(clip_norm, "clip_norm")
    intercept = check_bound(intercept, "intercept") if intercept != 0 else 0.0
    if math.frexp(grid)[0] != 0.5 or clip_norm > grid * 2.0**GRID_BITS:
        raise ValueError(f"grid must be a power of two of at least clip_norm * 2**-32, got {grid!r}; use grid_for")
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
    # A compiled derivative works on blocks that leave most of the first-level cache to the hardware prefetcher.
    block = NUMPY_ROWS if not address else min(256, max(8, BLOCK_BYTES // (d * X.itemsize) // 8 * 8))
    padded = -(-d // LANES) * LANES
    weights = _aligned(padded + 1)
    weights[:d], weights[padded] = w[:d], w[d] if intercept > 0 else 0.0
    work = _aligned(UNITS + block)
    chosen = _aligned(block).view(np.int64)
    z, totals, result = _aligned(d), _aligned(padded + 1), np.zeros(d + 1, dtype=np.int64)
    X, y, index = _writable(X), _writable(y), _writable(index)
    real_labels = loss.labels == "real"
    row_limit, clip_limit, per_grid = row_norm * (1 - kappa(d + 1)), clip_norm * (1 - kappa(d + 1)), 1.0 / grid
    # Where the public bounds of row and derivative imply the clip norm, clamping the derivative enforces it.
    largest = clip_limit / math.sqrt(row_norm**2 + intercept**2)
    by_norm = not loss.derivative_bound * (1 - 1e-11) <= largest
    if by_norm:
        largest = DERIVATIVE_CAP
    if address:
        _fused(
            X, y, weights, index, gather, n, block, address, loss.params, real_labels,
            largest, by_norm, row_limit, clip_limit, per_grid, intercept, work, chosen, z, totals, result,
        )  # fmt: skip
        return result[: w.size]
    for start in range(0, n, block):
        size = min(block, n - start)
        chosen[:size] = index[start : start + size] if gather else np.arange(start, start + size)
        rare = _margins(X, y, weights, chosen, size, real_labels, row_limit, intercept, work, z)
        u, label = work[MARGIN : MARGIN + size], work[LABEL : LABEL + size]
        with np.errstate(all="ignore"):
            work[DERIVATIVE : DERIVATIVE + size] = loss.derivative(u, label)
        _accumulate(
            X, chosen, size, rare, largest, by_norm, clip_limit, row_limit, per_grid, intercept, work, z, totals
        )
        _flush(totals, result)
    return result[: w.size]


def _matrix(X: NDArray[Any]) -> NDArray[Any]:
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    return np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)


def _aligned(size: int) -> NDArray[np.float64]:
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

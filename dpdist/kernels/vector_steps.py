"""Vector code for rows that become other vectors before they are bounded: a public shift, or missing cells.

As in `dpdist.kernels.block_steps`, the order of addition is written down: eight lanes, then a fixed tree, so that a row
gives the same bits here, and in the slower code that blocks with rare rows go through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from dpdist.kernels.block_steps import (
    DERIVATIVE,
    FACTOR,
    LANES,
    MARGIN,
    NORM2,
    UNITS,
    WIDE,
    _f64,
    _fold,
    _i1,
    _i32,
    _i64,
    _Lanes,
    _load,
    _prefetch,
    _remainders,
    _splat,
    _tail_mask,
    _vec,
    intrinsic,
    ir,
)

Sums = tuple[Any, ...]
Step = Callable[[Any, Any, Any, Any, Any, Sums], Sums]
"""Of the scalars of a row, its vector at a column, the weights there, the column, the mask and the sums so far."""


def _store(builder: Any, base: Any, index: Any, value: Any, mask: Any) -> None:
    """Write consecutive float64 lanes; those outside of the mask stay as they are."""
    pointer = builder.bitcast(builder.gep(base, [index]), _vec.as_pointer())
    if mask is None:
        builder.store(value, pointer, align=8)
        return
    kind = ir.FunctionType(ir.VoidType(), [_vec, pointer.type, _i32, mask.type])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f64.p0")
    builder.call(function, [value, pointer, _i32(8), mask])


def _each_row(
    context: Any,
    builder: Any,
    signature: Any,
    args: Any,
    offsets: tuple[int, ...],
    begin: Callable[[Any, Any], Any],
    step: Step,
    ahead: Any,
    half: int,
) -> None:
    """Sums over the columns of every row to ``offsets`` of the scratch; args: X, rows, n, weights, work.

    One half of the rows that come later is asked for from memory, so that two steps ask for all of them.
    """
    matrix, index, weights, work = (
        context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 3, 4)
    )
    n, zero = args[2], ir.Constant(_vec, None)
    d = cgutils.unpack_tuple(builder, matrix.shape)[1]

    def base_of(k: Any) -> Any:
        return builder.gep(matrix.data, [builder.mul(builder.load(builder.gep(index.data, [k])), d)])

    def finish(k: Any, sums: Sums) -> None:
        folded = _fold(builder, [*sums, *[zero] * (LANES - len(sums))])
        for lane, offset in enumerate(offsets):
            where = builder.gep(work.data, [builder.add(k, _i64(offset))])
            builder.store(builder.extract_element(folded, _i32(lane)), where)

    def finish_eight(k: Any, sums: list[Sums]) -> None:
        for vectors, offset in zip(zip(*sums, strict=True), offsets, strict=True):
            where = builder.gep(work.data, [builder.add(k, _i64(offset))])
            builder.store(_fold(builder, list(vectors)), builder.bitcast(where, _vec.as_pointer()), align=8)

    for n_vectors, mask in _remainders(builder, d):
        loaded = [_load(builder, weights.data, _i64(i * LANES)) for i in range(n_vectors)]

        def short_row(k: Any, loaded: list[Any] = loaded, mask: Any = mask) -> Sums:
            base, scalars, sums = base_of(k), begin(work, k), (zero,) * len(offsets)
            for i, weight in enumerate(loaded):
                inside = mask if i == len(loaded) - 1 else None
                x = _load(builder, base, _i64(i * LANES), inside)
                if i % 2 == half:
                    _prefetch(builder, base, builder.add(ahead, _i64(i * LANES)))
                sums = step(scalars, x, weight, _i64(i * LANES), inside, sums)
            return sums

        eights = builder.and_(n, _i64(-LANES))
        with cgutils.for_range_slice(builder, _i64(0), eights, _i64(LANES), _i64) as (k, _):
            finish_eight(k, [short_row(builder.add(k, _i64(i))) for i in range(LANES)])
        with cgutils.for_range_slice(builder, eights, n, _i64(1), _i64) as (k, _):
            finish(k, short_row(k))
    with builder.if_then(builder.icmp_signed(">", d, _i64(WIDE * LANES))):
        whole = builder.and_(builder.sub(d, _i64(1)), _i64(-LANES))
        tail = _tail_mask(builder, builder.sub(d, whole))
        slots = [cgutils.alloca_once(builder, _vec) for _ in offsets]
        with cgutils.for_range(builder, n) as loop:
            base, scalars = base_of(loop.index), begin(work, loop.index)
            for slot in slots:
                builder.store(zero, slot)

            def long_row(j: Any, mask: Any = None) -> Sums:
                x, weight = _load(builder, base, j, mask), _load(builder, weights.data, j)
                return step(scalars, x, weight, j, mask, tuple(builder.load(slot) for slot in slots))

            with cgutils.for_range_slice(builder, _i64(0), whole, _i64(LANES), _i64) as (j, _):
                for value, slot in zip(long_row(j), slots, strict=True):
                    builder.store(value, slot)
            finish(loop.index, long_row(whole, tail))


def _scalar(builder: Any, work: Any, k: Any, offset: int) -> Any:
    return _splat(builder, builder.load(builder.gep(work.data, [builder.add(k, _i64(offset))])))


def _output(context: Any, builder: Any, signature: Any, args: Any) -> Callable[[Any, Any], Any]:
    """The address of a row of the matrix that is written, the sixth argument."""
    out = context.make_array(signature.args[5])(context, builder, args[5])
    d = cgutils.unpack_tuple(builder, out.shape)[1]
    return lambda work, k: builder.gep(out.data, [builder.mul(k, d)])


@intrinsic
def shift_rows(typingctx: Any, X: Any, rows: Any, n: Any, vector: Any, work: Any, out: Any, ahead: Any) -> Any:
    """``v = c x + vector`` to ``out[k]`` and ``<v, v>`` to NORM2, for ``x = X[rows[k]]`` and c from UNITS."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _output(context, builder, signature, args)

        def step(scalars: Any, x: Any, weight: Any, j: Any, mask: Any, sums: Sums) -> Sums:
            base, c = scalars
            v = builder.fadd(builder.fmul(c, x), weight)
            _store(builder, base, j, v, mask)
            return (builder.fadd(sums[0], builder.fmul(v, v)),)

        def begin(work: Any, k: Any) -> Any:
            return place(work, k), _scalar(builder, work, k, UNITS)

        _each_row(context, builder, signature, args, (NORM2,), begin, step, args[6], 1)
        return context.get_dummy_value()

    return types.void(X, rows, n, vector, work, out, ahead), codegen


def _missing(builder: Any, x: Any) -> Any:
    return builder.fcmp_unordered("uno", x, x)


@intrinsic
def seen_cells(typingctx: Any, X: Any, rows: Any, n: Any, w: Any, work: Any, ahead: Any) -> Any:
    """Of cells that are not NaN ``<x, w>`` to MARGIN and ``<x, x>`` to NORM2, of the others ``<w, w>`` to FACTOR."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(_vec, None)

        def step(scalars: Any, x: Any, weight: Any, j: Any, mask: Any, sums: Sums) -> Sums:
            missing = _missing(builder, x)
            x, lost = builder.select(missing, zero, x), builder.select(missing, weight, zero)
            products = (builder.fmul(x, weight), builder.fmul(x, x), builder.fmul(lost, lost))
            return tuple(builder.fadd(s, p) for s, p in zip(sums, products, strict=True))

        offsets = (MARGIN, NORM2, FACTOR)
        _each_row(context, builder, signature, args, offsets, lambda work, k: None, step, args[5], 0)
        return context.get_dummy_value()

    return types.void(X, rows, n, w, work, ahead), codegen


@intrinsic
def fill_cells(typingctx: Any, X: Any, rows: Any, n: Any, w: Any, work: Any, out: Any, ahead: Any) -> Any:
    """``c x``, and ``h w`` where x is NaN, to ``out[k]``, its squared norm to NORM2; c is in UNITS, h in DERIVATIVE."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _output(context, builder, signature, args)

        def step(scalars: Any, x: Any, weight: Any, j: Any, mask: Any, sums: Sums) -> Sums:
            base, c, h = scalars
            v = builder.select(_missing(builder, x), builder.fmul(h, weight), builder.fmul(c, x))
            _store(builder, base, j, v, mask)
            return (builder.fadd(sums[0], builder.fmul(v, v)),)

        def begin(work: Any, k: Any) -> Any:
            return place(work, k), _scalar(builder, work, k, UNITS), _scalar(builder, work, k, DERIVATIVE)

        _each_row(context, builder, signature, args, (NORM2,), begin, step, args[6], 1)
        return context.get_dummy_value()

    return types.void(X, rows, n, w, work, out, ahead), codegen


@intrinsic
def clip_factors(typingctx: Any, work: Any, n: Any, limit: Any) -> Any:
    """``min(1, limit / norm)`` to UNITS, given NORM2; whether any row is out of range."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work = context.make_array(signature.args[0])(context, builder, args[0])
        n, limit, one = args[1], _splat(builder, args[2]), _splat(builder, _f64(1.0))
        rare = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(_i1, LANES), None))
        with cgutils.for_range_slice(builder, _i64(0), n, _i64(LANES), _i64) as (k, _):
            rows = _Lanes(context, builder, work, k, n)
            rows.store(UNITS, rows.smaller(builder.fdiv(limit, rows.call("sqrt", rows.load(NORM2))), one))
            out = builder.and_(builder.not_(rows.in_range()), rows.inside)
            builder.store(builder.or_(builder.load(rare), out), rare)
        bits = builder.bitcast(builder.load(rare), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(work, n, limit), codegen

"""Vector code with a fixed order of addition: the steps of a block of rows, for `dpdist.kernels.block_pass`.

Compilers reorder a sum to vectorise it only under fast-math, and then differently for every machine and every
position in a loop. Here the order is written down: eight lanes (lane ``j % 8``), then a fixed tree, so a row gives the
same bits wherever it is computed. Each step is a piece of LLVM code that numba inlines into its loops; loops over a
short block would otherwise be left to scalar code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from numba import extending, types
from numba.core import cgutils

ir = cgutils.ir
intrinsic: Any = extending.intrinsic  # declared with the arguments of the generator, called with those of the result

LANES = 8  # a fixed order of addition: lane j % 8, then a fixed tree; wide enough for every current vector unit
WIDE = 8  # vectors that are kept in registers
TOGETHER = 4  # wide rows whose sums are formed side by side, so that none waits for the one addition before it
AT_ONCE = 4  # vectors of them in a turn of the loop
NORM2_LOW, NORM2_HIGH = 2.0**-400, 2.0**400  # squared norms that need no scaling
MOST_ROWS = 4096  # of a block
# The scratch of a block: six vectors at fixed distances (so that compilers see that they do not overlap; not a power
# of two, so that they do not compete for the same cache sets).
MARGIN, LABEL, NORM2, FACTOR, DERIVATIVE, UNITS = (i * (MOST_ROWS + 24) for i in range(6))
WORK_SIZE = UNITS + MOST_ROWS + LANES

_f64 = ir.DoubleType()
_i1, _i32, _i64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_vec = ir.VectorType(_f64, LANES)


def _load(builder: Any, base: Any, index: Any, mask: Any = None, lanes: int = LANES) -> Any:
    """Consecutive values from ``base[index]`` as float64 lanes; lanes outside the mask are zero and unread."""
    element = base.type.pointee
    vector = ir.VectorType(element, lanes)
    pointer = builder.bitcast(builder.gep(base, [index]), vector.as_pointer())
    size = 8 if element == _f64 else 4
    if mask is None:
        value = builder.load(pointer, align=size)
    else:
        name = f"llvm.masked.load.v{lanes}f{8 * size}.p0"
        kind = ir.FunctionType(vector, [pointer.type, _i32, mask.type, vector])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        value = builder.call(function, [pointer, _i32(size), mask, ir.Constant(vector, None)])
    return value if element == _f64 else builder.fpext(value, ir.VectorType(_f64, lanes))


def _call(builder: Any, name: str, *operands: Any) -> Any:
    """An IEEE operation on vectors: sqrt, fabs, trunc."""
    kind = ir.FunctionType(_vec, [_vec] * len(operands))
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f64")
    return builder.call(function, operands)


def _prefetch(builder: Any, base: Any, index: Any) -> None:
    """Ask for the cache line of ``base[index]`` in the first-level cache; an address past the end does no harm."""
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, _i32, _i32, _i32])  # one for rows of either type
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    where = builder.bitcast(builder.gep(base, [index]), cgutils.voidptr_t)
    builder.call(function, [where, _i32(0), _i32(3), _i32(1)])


def _prefetch_half(builder: Any, base: Any, index: Any, i: int, half: int) -> None:
    """Of the cache lines that vectors 0, 1, ... begin with, ask for every second one: two steps ask for all of them."""
    vectors = 1 if base.type.pointee == _f64 else 2  # of a line
    if i % vectors == 0 and i // vectors % 2 == half:
        _prefetch(builder, base, builder.add(index, _i64(i * LANES)))


def _ahead(builder: Any, ahead: Any, more: Any) -> Any:
    """How far behind the first row of a block lines are asked for; of chosen rows (0) nobody knows the next ones."""
    return builder.select(builder.icmp_signed("==", ahead, _i64(0)), _i64(0), builder.add(ahead, more))


def _prefetch_some(builder: Any, base: Any, index: Any, i: int, n: int, rows: int) -> None:
    """Vector i of n that are read of so many rows each: ask for half as many lines in a row from the index on."""
    per_line = 8 if base.type.pointee == _f64 else 16
    lines = n * LANES * rows // per_line // 2
    for line in range(lines * i // n, lines * (i + 1) // n):
        _prefetch(builder, base, builder.add(index, _i64(line * per_line)))


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


def _fold(builder: Any, vectors: list[Any]) -> Any:
    """The lane sums of eight vectors as one: lanes i and i+4 are added, then i and i+2, then i and i+1."""
    for width in (4, 2, 1):
        low = [i for i in range(2 * LANES) if i % (2 * width) < width]
        first, second = (ir.Constant(ir.VectorType(_i32, LANES), [i + o for i in low]) for o in (0, width))
        vectors = [
            builder.fadd(builder.shuffle_vector(a, b, first), builder.shuffle_vector(a, b, second))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@intrinsic
def dots_and_norms2(typingctx: Any, X: Any, rows: Any, n: Any, w: Any, work: Any, ahead: Any) -> Any:
    """``<x, w>`` to MARGIN and ``<x, x>`` to NORM2 for ``x = X[rows[k]]``, ``k < n``; ``w`` is padded with zeros."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, index, weights, work = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 3, 4)
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
            folded = _fold(builder, [*sums, *[zero] * (LANES - 2)])
            for lane, offset in enumerate((MARGIN, NORM2)):
                where = builder.gep(work.data, [builder.add(k, _i64(offset))])
                builder.store(builder.extract_element(folded, _i32(lane)), where)

        def finish_eight(k: Any, sums: list[tuple[Any, Any]]) -> None:
            for vectors, offset in zip(zip(*sums, strict=True), (MARGIN, NORM2), strict=True):
                where = builder.gep(work.data, [builder.add(k, _i64(offset))])
                builder.store(_fold(builder, list(vectors)), builder.bitcast(where, _vec.as_pointer()), align=8)

        for n_vectors, mask in _remainders(builder, d):  # short rows: the weights stay in registers
            loaded = [_load(builder, weights.data, _i64(i * LANES)) for i in range(n_vectors)]

            def short_row(k: Any, loaded: list[Any] = loaded, mask: Any = mask) -> tuple[Any, Any]:
                base, sums = base_of(k), (zero, zero)
                for i, weight in enumerate(loaded):
                    x = _load(builder, base, _i64(i * LANES), mask if i == len(loaded) - 1 else None)
                    _prefetch_half(builder, base, args[5], i, 0)  # the others while the rows are accumulated
                    sums = add(sums, x, weight)
                return sums

            eights = builder.and_(args[2], _i64(-LANES))  # rows that share a tree; a row's own additions are the same
            with cgutils.for_range_slice(builder, _i64(0), eights, _i64(LANES), _i64) as (k, _):
                finish_eight(k, [short_row(builder.add(k, _i64(i))) for i in range(LANES)])
            with cgutils.for_range_slice(builder, eights, args[2], _i64(1), _i64) as (k, _):
                finish(k, short_row(k))
        with builder.if_then(builder.icmp_signed(">", d, _i64(WIDE * LANES))):
            whole = builder.and_(builder.sub(d, _i64(1)), _i64(-LANES))
            turns = builder.and_(whole, _i64(-AT_ONCE * LANES))
            tail = _tail_mask(builder, builder.sub(d, whole))
            first = base_of(_i64(0))  # the first half of as many numbers as the block has, further on, in one stream

            def wide_rows(k: Any, n_rows: int) -> None:
                bases = [base_of(builder.add(k, _i64(i))) for i in range(n_rows)]
                slots = _slots(builder, 2 * n_rows)

                def step(j: Any, mask: Any = None) -> None:
                    weight = _load(builder, weights.data, j)
                    for base, dot, norm2 in zip(bases, slots[::2], slots[1::2], strict=True):
                        sums = add((builder.load(dot), builder.load(norm2)), _load(builder, base, j, mask), weight)
                        for value, slot in zip(sums, (dot, norm2), strict=True):
                            builder.store(value, slot)

                with cgutils.for_range_slice(builder, _i64(0), turns, _i64(AT_ONCE * LANES), _i64) as (j, _):
                    done = builder.add(builder.mul(k, d), builder.mul(j, _i64(n_rows)))
                    place = _ahead(builder, args[5], builder.lshr(done, _i64(1)))
                    for i in range(AT_ONCE):
                        _prefetch_some(builder, first, place, i, AT_ONCE, n_rows)
                        step(builder.add(j, _i64(i * LANES)))
                with cgutils.for_range_slice(builder, turns, whole, _i64(LANES), _i64) as (j, _):
                    step(j)
                step(whole, tail)
                sums = [builder.load(slot) for slot in slots]
                folded = _fold(builder, [*sums, *[zero] * (LANES - len(sums))])
                for lane in range(len(sums)):
                    place = builder.add(k, _i64((MARGIN, NORM2)[lane % 2] + lane // 2))
                    builder.store(builder.extract_element(folded, _i32(lane)), builder.gep(work.data, [place]))

            together = builder.and_(args[2], _i64(-TOGETHER))
            with cgutils.for_range_slice(builder, _i64(0), together, _i64(TOGETHER), _i64) as (k, _):
                wide_rows(k, TOGETHER)
            with cgutils.for_range_slice(builder, together, args[2], _i64(1), _i64) as (k, _):
                wide_rows(k, 1)
        return context.get_dummy_value()

    return types.void(X, rows, n, w, work, ahead), codegen


@intrinsic
def add_truncated(typingctx: Any, totals: Any, X: Any, rows: Any, work: Any, n: Any, ahead: Any) -> Any:
    """``totals[j] += sum_k trunc(c[k] * X[rows[k], j])``, ``k < n``, c from UNITS; exact, so any order will do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, matrix, index, work = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:4], args[:4], strict=True)
        )
        n_rows = args[4]
        d = cgutils.unpack_tuple(builder, matrix.shape)[1]
        first = builder.gep(matrix.data, [builder.mul(builder.load(index.data), d)])

        def columns(start: Any, n_vectors: int, mask: Any = None) -> None:
            slots = _slots(builder, n_vectors)
            with cgutils.for_range(builder, n_rows) as loop:
                row = builder.load(builder.gep(index.data, [loop.index]))
                base = builder.gep(matrix.data, [builder.add(builder.mul(row, d), start)])
                where = builder.gep(work.data, [builder.add(loop.index, _i64(UNITS))])
                scale = _splat(builder, builder.load(where))
                if mask is None:
                    done = builder.add(builder.mul(start, n_rows), builder.mul(loop.index, _i64(WIDE * LANES)))
                    done = builder.add(builder.mul(n_rows, d), done)  # the second half of what is asked for
                    place = _ahead(builder, args[5], builder.lshr(done, _i64(1)))
                for i, slot in enumerate(slots):
                    x = _load(builder, base, _i64(i * LANES), mask if i == n_vectors - 1 else None)
                    if mask is None:
                        _prefetch_some(builder, first, place, i, n_vectors, 1)
                    else:
                        _prefetch_half(builder, base, args[5], i, 1)
                    units = _call(builder, "trunc", builder.fmul(scale, x))
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

    return types.void(totals, X, rows, work, n, ahead), codegen


@intrinsic
def call_block(typingctx: Any, address: Any, params: Any, work: Any, n: Any) -> Any:
    """Call a loss's compiled block function by its address, so that one kernel serves all losses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        params, work = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (1, 2))
        u, y, out = (builder.gep(work, [_i64(offset)]) for offset in (MARGIN, LABEL, DERIVATIVE))
        kind = ir.FunctionType(ir.VoidType(), [*(pointer.type for pointer in (u, y, params, out)), args[3].type])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [u, y, params, out, args[3]])
        return context.get_dummy_value()

    return types.void(address, params, work, n), codegen


@intrinsic
def borrow(typingctx: Any, value: Any) -> Any:
    """The same array, or tuple with arrays, without reference counts, whose atomic operations slow short blocks."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def without_owner(kind: Any, value: Any) -> Any:
            if hasattr(kind, "types"):  # a tuple
                values = cgutils.unpack_tuple(builder, value, len(kind))
                values = [without_owner(*pair) for pair in zip(kind.types, values, strict=True)]
                return context.make_tuple(builder, kind, values)
            if not isinstance(kind, types.Array):
                return value
            view = context.make_array(kind)(context, builder, value)
            for owner in ("meminfo", "parent"):
                setattr(view, owner, cgutils.get_null_value(getattr(view, owner).type))
            return view._getvalue()

        return without_owner(signature.args[0], args[0])

    return value(value), codegen


class _Lanes:
    """Rows k ... k + 7 of the scratch of a block, as vectors."""

    def __init__(self, context: Any, builder: Any, work: Any, k: Any, n: Any) -> None:
        self.context, self.builder, self.work, self.k = context, builder, work, k
        self.inside = _tail_mask(builder, builder.sub(n, k))  # lanes past the last row hold something old

    def _where(self, offset: int) -> Any:
        pointer = self.builder.gep(self.work.data, [self.builder.add(self.k, _i64(offset))])
        return self.builder.bitcast(pointer, _vec.as_pointer())

    def load(self, offset: int) -> Any:
        return self.builder.load(self._where(offset), align=8)

    def store(self, offset: int, value: Any) -> None:
        self.builder.store(value, self._where(offset), align=8)

    def call(self, name: str, value: Any) -> Any:
        return _call(self.builder, name, value)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def in_range(self) -> Any:
        norm2, b = self.load(NORM2), self.builder
        low, high = (_splat(b, ir.Constant(_f64, bound)) for bound in (NORM2_LOW, NORM2_HIGH))
        return b.and_(b.fcmp_ordered(">=", norm2, low), b.fcmp_ordered("<=", norm2, high))


@intrinsic
def row_factors(typingctx: Any, work: Any, n: Any, row_limit: Any, shift: Any, signs: Any) -> Any:
    """FACTOR and MARGIN of clipped rows; labels that are no signs become NaN; whether any row is out of range."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work = context.make_array(signature.args[0])(context, builder, args[0])
        n, row_limit, shift = args[1], _splat(builder, args[2]), _splat(builder, args[3])
        one = _splat(builder, _f64(1.0))
        any_label = _splat(builder, builder.not_(builder.trunc(args[4], _i1) if args[4].type != _i1 else args[4]))
        rare = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(_i1, LANES), None))
        with cgutils.for_range_slice(builder, _i64(0), n, _i64(LANES), _i64) as (k, _):
            rows = _Lanes(context, builder, work, k, n)
            factor = rows.smaller(builder.fdiv(row_limit, rows.call("sqrt", rows.load(NORM2))), one)
            rows.store(FACTOR, factor)
            rows.store(MARGIN, builder.fadd(builder.fmul(rows.load(MARGIN), factor), shift))
            label = rows.load(LABEL)
            allowed = builder.or_(any_label, builder.fcmp_ordered("==", rows.call("fabs", label), one))
            rows.store(LABEL, builder.select(allowed, label, _splat(builder, _f64(math.nan))))
            out = builder.and_(builder.not_(rows.in_range()), rows.inside)
            builder.store(builder.or_(builder.load(rare), out), rare)
        bits = builder.bitcast(builder.load(rare), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(work, n, row_limit, shift, signs), codegen


@intrinsic
def row_units(
    typingctx: Any, work: Any, n: Any, largest: Any, by_norm: Any, clip_limit: Any, per_grid: Any, intercept: Any
) -> Any:
    """UNITS from DERIVATIVE; the exact sum of the units of the constant feature. Rows out of range count as 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        work = context.make_array(signature.args[0])(context, builder, args[0])
        n, largest, clip_limit, per_grid, intercept = args[1], *(_splat(builder, args[i]) for i in (2, 4, 5, 6))
        zero, one = ir.Constant(_vec, None), _splat(builder, _f64(1.0))
        infinity = _splat(builder, _f64(math.inf))
        (constant,) = _slots(builder, 1)

        def loop(clip_by_norm: bool) -> None:
            with cgutils.for_range_slice(builder, _i64(0), n, _i64(LANES), _i64) as (k, _):
                rows = _Lanes(context, builder, work, k, n)
                c, factor = rows.load(DERIVATIVE), rows.load(FACTOR)
                finite = [builder.fcmp_ordered("<", rows.call("fabs", v), infinity) for v in (c, rows.load(LABEL))]
                c = builder.select(builder.and_(*finite), c, zero)
                c = rows.smaller(c, largest)
                c = builder.fneg(rows.smaller(builder.fneg(c), largest))
                rows.store(DERIVATIVE, c)
                if clip_by_norm:
                    norm2 = builder.fmul(builder.fmul(factor, factor), rows.load(NORM2))
                    norm2 = builder.fadd(norm2, builder.fmul(intercept, intercept))
                    size = builder.fmul(rows.call("fabs", c), rows.call("sqrt", norm2))
                    c = builder.fmul(c, rows.smaller(builder.fdiv(clip_limit, size), one))
                units = builder.fmul(c, per_grid)
                units = builder.select(builder.and_(rows.in_range(), rows.inside), units, zero)
                rows.store(UNITS, builder.fmul(units, factor))
                more = rows.call("trunc", builder.fmul(units, intercept))
                builder.store(builder.fadd(builder.load(constant), more), constant)

        by_norm = builder.trunc(args[3], _i1) if args[3].type != _i1 else args[3]
        with builder.if_else(by_norm) as (yes, no):
            with yes:
                loop(True)
            with no:
                loop(False)
        folded = _fold(builder, [builder.load(constant), *[zero] * (LANES - 1)])
        return builder.extract_element(folded, _i32(0))

    return types.float64(work, n, largest, by_norm, clip_limit, per_grid, intercept), codegen

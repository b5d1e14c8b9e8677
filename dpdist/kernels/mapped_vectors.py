"""Vector code of the scalar maps: the products of a block of rows are mapped, truncated and added in registers.

The operations and their order are those of the NumPy code of `dpdist.kernels.truncation`, hence the same integers. What
holds for `dpdist.kernels.block_steps` holds here: delete ``dpdist/kernels/__pycache__`` after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numba import types
from numba.core import cgutils, codegen, config

from dpdist.kernels.block_steps import (
    LANES,
    WIDE,
    _call,
    _i64,
    _load,
    _prefetch,
    _remainders,
    _slots,
    _splat,
    _tail_mask,
    _vec,
    intrinsic,
    ir,
)
from dpdist.kernels.smooth_table import CUBIC, HEAD, LAST, LIMIT, MAGIC, ONE, PIECES, SHIFT, SIZES, SLOPE
from dpdist.kernels.truncation import ClipConstants, SmoothConstants, SoftConstants

Vectors = list[Any]

_integers = ir.VectorType(_i64, LANES)


@intrinsic
def add_mapped(
    typingctx: Any, totals: Any, X: Any, rows: Any, factors: Any, offset: Any, n: Any, ahead: Any, constants: Any
) -> Any:
    """``totals[j] += sum_k units(c[k] * X[rows[k], j])``, ``k < n``, for ``c = factors[offset:]``; exact.

    ``totals`` is padded to whole vectors. Factors and rows are finite.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, matrix, index, factor = (
            context.make_array(signature.args[i])(context, builder, args[i]) for i in range(4)
        )
        offset, n_rows, ahead = args[4:7]
        d = cgutils.unpack_tuple(builder, matrix.shape)[1]
        fields = _fields(context, builder, signature.args[7], args[7])
        kind = signature.args[7].instance_class
        if kind is SmoothConstants:
            data = _Data(matrix.data, d, index.data, builder.gep(factor.data, [offset]), ahead)
            _add_smooth(builder, data, total.data, n_rows, fields["numbers"])
            return context.get_dummy_value()
        sizes = _MAPS[kind](builder, fields)

        def columns(start: Any, n_vectors: int, mask: Any = None) -> None:
            slots = _slots(builder, n_vectors)
            with cgutils.for_range(builder, n_rows) as loop:
                row = builder.load(builder.gep(index.data, [loop.index]))
                base = builder.gep(matrix.data, [builder.add(builder.mul(row, d), start)])
                scale = _splat(builder, builder.load(builder.gep(factor.data, [builder.add(loop.index, offset)])))
                products = []
                for i in range(n_vectors):
                    x = _load(builder, base, _i64(i * LANES), mask if i == n_vectors - 1 else None)
                    if i % 2 == 1:  # the other half is asked for with the dot products
                        _prefetch(builder, base, builder.add(ahead, _i64(i * LANES)))
                    products.append(builder.fmul(scale, x))
                absolute = [_call(builder, "fabs", u) for u in products]
                for u, size, slot in zip(products, sizes(absolute), slots, strict=True):
                    units = _call(builder, "copysign", _call(builder, "trunc", size), u)
                    builder.store(builder.fadd(builder.load(slot), units), slot)
            for i, slot in enumerate(slots):
                where = builder.gep(total.data, [builder.add(start, _i64(i * LANES))])
                where = builder.bitcast(where, _vec.as_pointer())
                builder.store(builder.fadd(builder.load(where, align=8), builder.load(slot)), where, align=8)

        wide = builder.and_(d, _i64(-WIDE * LANES))
        with cgutils.for_range_slice(builder, _i64(0), wide, _i64(WIDE * LANES), _i64) as (start, _):
            columns(start, WIDE)
        for n_vectors, mask in _remainders(builder, builder.sub(d, wide)):
            columns(wide, n_vectors, mask)
        return context.get_dummy_value()

    return types.void(totals, X, rows, factors, offset, n, ahead, constants), emit


def _fields(context: Any, builder: Any, kind: Any, constants: Any) -> dict[str, Any]:
    """The constants of a map: numbers as vectors, arrays as such."""
    fields = {}
    for i, (name, t) in enumerate(zip(kind.fields, kind.types, strict=True)):
        value = builder.extract_value(constants, i)
        fields[name] = _splat(builder, value) if t == types.float64 else context.make_array(t)(context, builder, value)
    return fields


def _smaller(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


def _clip_sizes(b: Any, c: dict[str, Any]) -> Callable[[Vectors], Vectors]:
    return lambda absolute: [_smaller(b, u, c["limit"]) for u in absolute]


def _soft_sizes(b: Any, c: dict[str, Any]) -> Callable[[Vectors], Vectors]:
    def size(t: Any) -> Any:
        t = _smaller(b, t, c["corner"])
        return b.fmul(t, b.fsub(c["slope"], b.fmul(t, t)))

    return lambda absolute: [size(t) for t in absolute]


@dataclass(frozen=True)
class _Data:
    """Rows of a matrix, the numbers of those to use, and their factors."""

    matrix: Any
    d: Any
    index: Any
    factors: Any
    ahead: Any

    def products(self, b: Any, k: Any, start: Any, mask: Any, share: int) -> Any:
        """Columns from ``start`` of ``share`` rows from the k-th, ``8 / share`` of each, times their factors."""
        lanes = LANES // share
        if mask is not None and share > 1:
            mask = b.shuffle_vector(mask, mask, _lanes(range(lanes)))
        odd = b.icmp_signed("!=", b.and_(start, _i64(LANES)), _i64(0))  # the others are asked for with the dot products
        ahead = b.select(odd, self.ahead, _i64(0))
        parts = []
        for i in range(share):
            row = b.load(b.gep(self.index, [b.add(k, _i64(i))]))
            base = b.gep(self.matrix, [b.add(b.mul(row, self.d), start)])
            _prefetch(b, base, ahead)
            parts.append(_load(b, base, _i64(0), mask, lanes))
        while len(parts) > 1:
            width = _lanes(range(2 * LANES // len(parts)))
            parts = [b.shuffle_vector(*pair, width) for pair in zip(parts[::2], parts[1::2], strict=True)]
        if share == 1:
            factors = _splat(b, b.load(b.gep(self.factors, [k])))
        else:
            few = _load(b, self.factors, k, None, share)
            factors = b.shuffle_vector(few, few, _lanes(i // lanes for i in range(LANES)))
        return b.fmul(factors, parts[0])


def _add_smooth(b: Any, data: _Data, total: Any, n: Any, numbers: Any) -> None:
    """The polynomials of `dpdist.kernels.smooth_table` for all columns of all rows.

    Several vectors at a time go through the steps together, so that none waits for the results of another; they are of
    one column and several rows, so that few registers hold sums and constants. Where at most four columns are left, a
    vector holds those of several rows.
    """
    eights, columns = b.and_(n, _i64(-8)), b.and_(data.d, _i64(-LANES))
    left = b.sub(data.d, columns)
    size = b.extract_value(numbers.shape, 0)

    def add(powers: int, rows: tuple[Any, Any], start: Any, mask: Any, share: int, together: int) -> None:
        where = b.bitcast(b.gep(total, [start]), _vec.as_pointer())
        with cgutils.for_range_slice(b, *rows, _i64(share * together), _i64) as (k, _):
            products = [data.products(b, b.add(k, _i64(i * share)), start, mask, share) for i in range(together)]
            units = _smooth_units(b, numbers.data, powers, products)
            while len(units) > 1:
                units = [b.fadd(*pair) for pair in zip(units[::2], units[1::2], strict=True)]
            more = _fold_shares(b, units[0], share)
            # Totals in memory keep LLVM from moving the loads of the table, which might overlap with them, out of the
            # loop: there are more coefficients than registers.
            b.store(b.fadd(b.load(where, align=8), more), where, align=8)

    for powers in SIZES:
        with b.if_then(b.icmp_signed("==", size, _i64(HEAD + powers * PIECES))):
            with cgutils.for_range_slice(b, _i64(0), columns, _i64(LANES), _i64) as (start, _):
                add(powers, (_i64(0), eights), start, None, 1, 4)
            for share, low, high, together in ((4, 0, 2, 2), (2, 2, 4, 4), (1, 4, 7, 4)):
                fits = b.and_(b.icmp_signed("<", _i64(low), left), b.icmp_signed("<=", left, _i64(high)))
                with b.if_then(fits):
                    add(powers, (_i64(0), eights), columns, _tail_mask(b, left), share, together)
            with cgutils.for_range_slice(b, _i64(0), data.d, _i64(LANES), _i64) as (start, _):
                add(powers, (eights, n), start, _tail_mask(b, b.sub(data.d, start)), 1, 1)


def _fold_shares(b: Any, vector: Any, share: int) -> Any:
    """The sum of the ``share`` parts of a vector in its first lanes, zero in the others."""
    zero, width = ir.Constant(_vec, None), LANES
    while width > LANES // share:
        width //= 2
        zeros = [LANES] * (LANES - width)
        low, high = (b.shuffle_vector(vector, zero, _lanes([*range(o, o + width), *zeros])) for o in (0, width))
        vector = b.fadd(low, high)
    return vector


def _lanes(which: Iterable[int]) -> Any:
    chosen = [ir.IntType(32)(i) for i in which]
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)


def _smooth_units(b: Any, numbers: Any, powers: int, products: Vectors) -> Vectors:
    """The steps of ``SmoothTruncation.units``."""

    def number(i: int) -> Any:
        return _splat(b, b.load(b.gep(numbers, [_i64(i)])))

    def fma(x: Any, y: Any, z: Any) -> Any:
        return _call(b, "fma", x, y, z)

    squares = [fma(u, u, number(SHIFT)) for u in products]
    inverses = [b.fdiv(number(ONE), q) for q in squares]
    slopes = [fma(b.fneg(q), number(CUBIC), number(SLOPE)) for q in squares]
    cubics = [b.fmul(_call(b, "fabs", u), slope) for u, slope in zip(products, slopes, strict=True)]
    inverses = [_smaller(b, y, number(LAST)) for y in inverses]
    shifted = [b.fadd(y, number(MAGIC)) for y in inverses]
    pieces = [b.bitcast(s, _integers) for s in shifted]
    places = [b.fsub(y, b.fsub(s, number(MAGIC))) for y, s in zip(inverses, shifted, strict=True)]
    values = _lookup(b, numbers, HEAD, pieces)
    for k in range(1, powers):
        coefficients = _lookup(b, numbers, HEAD + k * PIECES, pieces)
        values = [fma(p, x, c) for p, x, c in zip(values, places, coefficients, strict=True)]
    values = [b.select(b.fcmp_ordered(">", p, z), p, z) for p, z in zip(values, cubics, strict=True)]
    values = [_call(b, "trunc", _smaller(b, p, number(LIMIT))) for p in values]
    return [_call(b, "copysign", p, u) for p, u in zip(values, products, strict=True)]


def _lookup(b: Any, numbers: Any, start: int, indices: Vectors) -> Vectors:
    """``numbers[start + index]`` for the low four bits of every lane of every index, without memory gathers."""
    if _has_permutations():
        low, high = (_load(b, numbers, _i64(start + i)) for i in (0, LANES))
        kind = ir.FunctionType(_vec, [_vec, _integers, _vec])
        permute = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpermi2var.pd.512")
        return [b.call(permute, [low, index, high]) for index in indices]
    row, found = b.gep(numbers, [_i64(start)]), []
    for index in indices:
        vector = ir.Constant(_vec, ir.Undefined)
        for lane in range(LANES):
            which = b.and_(b.extract_element(index, ir.Constant(ir.IntType(32), lane)), _i64(PIECES - 1))
            vector = b.insert_element(vector, b.load(b.gep(row, [which])), ir.Constant(ir.IntType(32), lane))
        found.append(vector)
    return found


def _has_permutations() -> bool:
    """Whether the target of numba's compiler has the permutations of AVX-512. The results are the same without."""
    settings: Any = config
    chosen = settings.CPU_FEATURES
    features = codegen.get_host_cpu_features() if chosen is None else chosen
    return "+avx512f" in features.split(",")


_MAPS = {ClipConstants: _clip_sizes, SoftConstants: _soft_sizes}

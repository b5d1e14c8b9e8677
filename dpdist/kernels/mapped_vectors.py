"""Vector code of the scalar maps: the products of a block of rows are mapped, truncated and added in registers.

The operations and their order are those of the NumPy code of `dpdist.kernels.truncation`, hence the same integers. What
holds for `dpdist.kernels.vectors` holds here: delete ``dpdist/kernels/__pycache__`` after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils, codegen, config

from dpdist.kernels.smooth_table import PIECES
from dpdist.kernels.truncation import ClipConstants, SmoothConstants, SoftConstants
from dpdist.kernels.vectors import (
    LANES,
    WIDE,
    _call,
    _f64,
    _i64,
    _load,
    _prefetch,
    _remainders,
    _slots,
    _splat,
    _vec,
    intrinsic,
    ir,
)

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
        sizes = _sizes(context, builder, signature.args[7], args[7])

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


def _sizes(context: Any, builder: Any, kind: Any, constants: Any) -> Callable[[Vectors], Vectors]:
    """The map of absolute values to units, before truncation."""
    fields = {}
    for i, (name, t) in enumerate(zip(kind.fields, kind.types, strict=True)):
        value = builder.extract_value(constants, i)
        fields[name] = _splat(builder, value) if t == types.float64 else context.make_array(t)(context, builder, value)
    return _MAPS[kind.instance_class](builder, fields)


def _smaller(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


def _clip_sizes(b: Any, c: dict[str, Any]) -> Callable[[Vectors], Vectors]:
    return lambda absolute: [_smaller(b, u, c["limit"]) for u in absolute]


def _soft_sizes(b: Any, c: dict[str, Any]) -> Callable[[Vectors], Vectors]:
    def size(t: Any) -> Any:
        t = _smaller(b, t, c["corner"])
        return b.fmul(t, b.fsub(c["slope"], b.fmul(t, t)))

    return lambda absolute: [size(t) for t in absolute]


def _smooth_sizes(b: Any, c: dict[str, Any]) -> Callable[[Vectors], Vectors]:
    table = c["coefficients"]
    rows = b.sdiv(b.extract_value(table.shape, 0), _i64(PIECES))
    one, magic, last = (_splat(b, _f64(v)) for v in (1.0, 1.5 * 2.0**52, PIECES - 1.0))

    def argument(q: Any) -> tuple[Any, Any]:
        """Number of the piece (in the low bits, by adding 1.5 * 2**52) and place in the piece."""
        y = _smaller(b, b.fdiv(one, q), last)
        shifted = b.fadd(y, magic)
        return b.bitcast(shifted, _integers), b.fsub(y, b.fsub(shifted, magic))

    def sizes(absolute: Vectors) -> Vectors:
        squares = [b.fadd(b.fmul(u, u), c["shift"]) for u in absolute]
        cubics = [b.fmul(u, b.fsub(c["slope"], b.fmul(q, c["cubic"]))) for u, q in zip(absolute, squares, strict=True)]
        arguments = [argument(q) for q in squares]
        slots = _slots(b, len(absolute))
        for slot, coefficient in zip(slots, _lookup(b, table.data, _i64(0), [i for i, _ in arguments]), strict=True):
            b.store(coefficient, slot)
        with cgutils.for_range_slice(b, _i64(1), rows, _i64(1), _i64) as (k, _):
            coefficients = _lookup(b, table.data, k, [i for i, _ in arguments])
            for slot, (_, x), coefficient in zip(slots, arguments, coefficients, strict=True):
                b.store(_call(b, "fma", b.load(slot), x, coefficient), slot)
        polynomials = [b.load(slot) for slot in slots]
        larger = [b.select(b.fcmp_ordered(">", p, z), p, z) for p, z in zip(polynomials, cubics, strict=True)]
        return [_smaller(b, size, c["limit"]) for size in larger]

    return sizes


def _lookup(b: Any, table: Any, k: Any, indices: Vectors) -> Vectors:
    """``table[k * 16 + index]`` for the low four bits of every lane of every index, without memory gathers."""
    start = b.mul(k, _i64(PIECES))
    if _has_permutations():
        low, high = (_load(b, table, b.add(start, _i64(i))) for i in (0, LANES))
        kind = ir.FunctionType(_vec, [_vec, _integers, _vec])
        permute = cgutils.get_or_insert_function(b.module, kind, "llvm.x86.avx512.vpermi2var.pd.512")
        return [b.call(permute, [low, index, high]) for index in indices]
    row, found = b.gep(table, [start]), []
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


_MAPS = {ClipConstants: _clip_sizes, SoftConstants: _soft_sizes, SmoothConstants: _smooth_sizes}

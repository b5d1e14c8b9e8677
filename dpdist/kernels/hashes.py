"""A universal family of hash functions, and how many of many reports support each of many values.

``h(x) = floor(g ((a x + b) mod p) / 2^31)`` with ``p = 2^31 - 1``, and a, b the halves of a random word (31 bits of
each): for two values below 2^30, ``(a x + b) mod p`` takes any pair of values with the same chance up to 2**-30 (Carter
and Wegman 1979). A larger value has two digits ``x = x_1 2^30 + x_0`` and the polynomial ``a^2 x_1 + a x_0 + b``, which
is uniform, and agrees with that of another value for at most two of all a. (Digits of 31 bits would not do: p is 0.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from dpdist.kernels.block_steps import _i32, _i64, intrinsic, ir
from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]

PRIME = 2**31 - 1
SMALL = 2**30
"""Smaller values have one digit."""
LARGEST = SMALL**2 - 1
"""The largest value that can be hashed."""
_DIGIT = np.uint64(SMALL - 1)
_P = np.uint64(PRIME)
LANES = 16  # values whose hashes are computed at once
USERS = 6  # whose hash values, differences and widths are kept in registers together
_CHUNK = 128 * USERS
_vector = ir.VectorType(_i32, LANES)


@inlined_kernel
def _reduce(z: Any) -> Any:
    """``z mod p`` for ``z < 2^63``: 2^31 is 1 modulo p."""
    z = (z & _P) + (z >> np.uint64(31))
    z = (z & _P) + (z >> np.uint64(31))
    return z - _P if z >= _P else z


@inlined_kernel
def _position(seed: Any, x: Any) -> Any:
    """The hash value in [0, p), before it is put into one of g cells."""
    a = _reduce(seed & _P)
    b = (seed >> np.uint64(32)) & _P
    inner = _reduce(a * (x >> np.uint64(30))) + (x & _DIGIT)
    return _reduce(a * _reduce(inner) + b)


@kernel
def _hash(seeds: Words, values: NDArray[np.int64], g: int, out: Any) -> None:
    for i in range(len(values)):
        x = values[i]
        out[i] = -1 if x < 0 else np.int64((_position(seeds[i], np.uint64(x)) * np.uint64(g)) >> np.uint64(31))


def _splat(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_vector, ir.Undefined), value, _i32(0))
    return builder.shuffle_vector(first, first, ir.Constant(_vector, [0] * LANES))


def _plus(builder: Any, x: Any, y: Any) -> Any:
    """``x + y mod p`` for vectors below p: the sum, or what is left without p, which is large where it is negative."""
    total = builder.add(x, y)
    less = builder.sub(total, ir.Constant(_vector, [PRIME] * LANES))
    return builder.select(builder.icmp_unsigned("<", total, less), total, less)


@intrinsic
def _add_support(typingctx: Any, hashes: Any, factors: Any, widths: Any, user: Any, counts: Any, n_vectors: Any) -> Any:
    """To ``counts[v]``, for how many of a few users from ``user`` on the hash value of v is below their width.

    A vector has the hash values of one user for sixteen values in a row, whose difference to the next sixteen is 16 a.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        hashes, factors, widths, counts = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 2, 4)
        )
        users = []
        for i in range(USERS):
            at = builder.add(args[3], _i64(i))
            h, a, width = (_splat(builder, builder.load(builder.gep(base, [at]))) for base in (hashes, factors, widths))
            for bit in range(LANES.bit_length() - 1):  # lane j gets j a; a is doubled to 16 a
                lanes = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [bool(j >> bit & 1) for j in range(LANES)])
                h, a = builder.select(lanes, _plus(builder, h, a), h), _plus(builder, a, a)
            slot = cgutils.alloca_once(builder, _vector)
            builder.store(h, slot)
            users.append((slot, a, width))
        with cgutils.for_range(builder, args[5]) as loop:
            where = builder.gep(counts, [builder.mul(loop.index, _i64(LANES))])
            where = builder.bitcast(where, _vector.as_pointer())
            total = builder.load(where, align=4)
            for slot, a, width in users:
                h = builder.load(slot)
                total = builder.sub(total, builder.sext(builder.icmp_unsigned("<", h, width), _vector))
                builder.store(_plus(builder, h, a), slot)
            builder.store(total, where, align=4)
        return context.get_dummy_value()

    return types.void(hashes, factors, widths, user, counts, n_vectors), codegen


@kernel
def _support_range(seeds: Words, low: Any, width: Any, chunk: Any, found: Any, counts: NDArray[np.int64]) -> None:
    """Hash values of v = 0, 1, ... by repeated addition, moved so that the cell of each user begins at 0."""
    n_vectors = len(found) // LANES
    hashes, factors, widths = chunk[0], chunk[1], chunk[2]
    for start in range(0, len(seeds), _CHUNK):
        m = min(_CHUNK, len(seeds) - start)
        for i in range(m):
            h = _reduce((seeds[start + i] >> np.uint64(32)) & _P) + _P - np.uint64(low[start + i])
            hashes[i] = np.uint32(h - _P if h >= _P else h)
            factors[i] = np.uint32(_reduce(seeds[start + i] & _P))
            widths[i] = width[start + i]
        widths[m:] = 0  # nobody
        found[:] = 0
        for user in range(0, m, USERS):
            _add_support(hashes, factors, widths, user, found, n_vectors)
        for v in range(len(counts)):
            counts[v] += np.int64(found[v])


@kernel
def _support_values(seeds: Words, low: Any, width: Any, values: Words, counts: NDArray[np.int64]) -> None:
    for i in range(len(seeds)):
        for j in range(len(values)):
            h = np.uint32(_position(seeds[i], values[j]))
            counts[j] += np.int64(np.uint32(h - low[i]) < width[i])


def hash_values(seeds: Words, values: NDArray[np.int64], g: int) -> NDArray[np.int64]:
    """``h(x)`` in [0, g) of each value under its own seed; -1 for -1."""
    out = np.empty(len(values), dtype=np.int64)
    _hash(seeds, values, g, out)
    return out


def cell_starts(g: int) -> NDArray[np.int64]:
    """The smallest number of [0, p) in each of the g cells, and p."""
    starts = -(-(np.arange(g + 1, dtype=np.int64) << 31) // g)
    return np.minimum(starts, PRIME)


def support(
    seeds: Words, cells: NDArray[Any], g: int, n_values: int, values: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """For how many of the pairs (seed, cell) the hash value of v is the cell.

    Parameters
    ----------
    seeds, cells : arrays of shape (n,)
    g : int
    n_values : int
        v = 0 ... n_values - 1, at most `SMALL` of them.
    values : array of int64, optional
        Other values to look at.
    """
    starts = cell_starts(g)
    cells = np.asarray(cells, dtype=np.int64)
    low, width = starts[cells].astype(np.uint32), np.diff(starts)[cells].astype(np.uint32)
    counts = np.zeros(n_values if values is None else len(values), dtype=np.int64)
    if values is None:
        found = np.empty(-(-n_values // LANES) * LANES, np.uint32)
        _support_range(seeds, low, width, np.empty((3, _CHUNK), np.uint32), found, counts)
    else:
        _support_values(seeds, low, width, values.astype(np.uint64), counts)
    return counts

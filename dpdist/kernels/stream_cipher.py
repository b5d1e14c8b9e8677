"""ChaCha20 as a source of random words: the operating system's generator, without a way into the operating system.

The stream is that of ChaCha20 (Bernstein 2008; RFC 8439) under a key of 256 bits, with a nonce of zeros and the counter
of blocks from 0 on, because no key is used twice. Sixteen blocks are computed side by side, one in each lane of a
vector, and their words are left as they lie then: word ``i`` of all sixteen blocks, then word ``i + 1``. Which bits a
stream has does not depend on the machine; it is a permutation of the published one, and as hard to tell from chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from dpdist.kernels.block_steps import _i32, _i64, intrinsic, ir
from dpdist.kernels.compiled import kernel

KEY_BYTES = 32
BLOCKS = 16  # at a time
ROUNDS = 20
MOST_WORDS = 2**34
"""64-bit words of one key: the counter has 32 bits."""
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_COLUMNS = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
_DIAGONALS = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
_lanes = ir.VectorType(_i32, BLOCKS)


def _splat(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_lanes, ir.Undefined), value, _i32(0))
    return builder.shuffle_vector(first, first, ir.Constant(_lanes, [0] * BLOCKS))


def _rotated(builder: Any, value: Any, by: int) -> Any:
    left, right = (ir.Constant(_lanes, [n] * BLOCKS) for n in (by, 32 - by))
    return builder.or_(builder.shl(value, left), builder.lshr(value, right))


def _quarter_round(builder: Any, x: list[Any], a: int, b: int, c: int, d: int) -> None:
    for sum_, more, mixed, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[sum_] = builder.add(x[sum_], x[more])
        x[mixed] = _rotated(builder, builder.xor(x[mixed], x[sum_]), by)


@intrinsic
def _sixteen_blocks(typingctx: Any, key: Any, counter: Any, out: Any, start: Any) -> Any:
    """Blocks ``counter, ..., counter + 15`` to the 256 numbers of ``out`` from ``start`` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        key, out = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2))
        words = [builder.load(builder.gep(key, [_i64(i)])) for i in range(8)]
        counter = builder.add(_splat(builder, builder.trunc(args[1], _i32)), ir.Constant(_lanes, list(range(BLOCKS))))
        none = ir.Constant(_lanes, [0] * BLOCKS)
        constants = [ir.Constant(_lanes, [c] * BLOCKS) for c in _CONSTANTS]
        first = [*constants, *(_splat(builder, word) for word in words), counter, none, none, none]
        slots = [cgutils.alloca_once(builder, _lanes) for _ in first]
        for value, slot in zip(first, slots, strict=True):
            builder.store(value, slot)
        with cgutils.for_range(builder, _i64(ROUNDS // 2)):
            x = [builder.load(slot) for slot in slots]
            for places in (*_COLUMNS, *_DIAGONALS):
                _quarter_round(builder, x, *places)
            for value, slot in zip(x, slots, strict=True):
                builder.store(value, slot)
        for i, (value, slot) in enumerate(zip(first, slots, strict=True)):
            where = builder.gep(out, [builder.add(args[3], _i64(i * BLOCKS))])
            where = builder.bitcast(where, _lanes.as_pointer())
            builder.store(builder.add(value, builder.load(slot)), where, align=4)
        return context.get_dummy_value()

    return types.void(key, counter, out, start), codegen


@kernel
def _fill(key, out):  # type: ignore[no-untyped-def]
    """All of ``out``, which holds whole groups of blocks."""
    for group in range(out.size // (16 * BLOCKS)):
        _sixteen_blocks(key, group * BLOCKS, out, group * 16 * BLOCKS)


def stream_words(key: bytes, n: int) -> NDArray[np.uint64]:
    """The first ``n`` words of 64 bits under a key, which may be used once only.

    >>> stream_words(bytes(32), 3).shape, bool((stream_words(bytes(32), 9)[:3] == stream_words(bytes(32), 3)).all())
    ((3,), True)
    """
    if len(key) != KEY_BYTES or not 0 <= n <= MOST_WORDS:
        raise ValueError(f"a key has {KEY_BYTES} bytes and gives up to {MOST_WORDS} words; got {len(key)} and {n}")
    per_group = 8 * BLOCKS
    out = np.empty(-(-n // per_group) * 2 * per_group, np.uint32)
    _fill(np.frombuffer(key, "<u4").astype(np.uint32), out)
    return out.view(np.uint64)[:n]

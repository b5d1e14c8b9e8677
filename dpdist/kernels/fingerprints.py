"""A number that tells whether bytes are the same, at the speed of reading them, under a secret key.

Words of 64 bits are taken 1024 at a time: ``NH(w) = sum_j (lo_j + k_j mod 2^32) (hi_j + k'_j mod 2^32) mod 2^64``
(Black, Halevi, Krawczyk, Krovetz and Rogaway 1999), which takes any difference with a chance of 2^-32 at most. These
are the coefficients of a polynomial modulo ``2^61 - 1`` at a secret point. So two arrays that differ have one number
with a chance below 2^-27 over the key, whatever they are. It is no signature: numbers tell something about the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from dpdist.kernels.block_steps import LANES, _i32, _i64, _prefetch, intrinsic, ir
from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]

PIECE = 1024
PRIME = 2**61 - 1
_AT_ONCE = 4  # vectors of a turn of the loop
_AHEAD = 512  # words between what is added and what is asked for from memory
_words, _halves = ir.VectorType(_i64, LANES), ir.VectorType(_i32, 2 * LANES)
_P = np.uint64(PRIME)
_HALF = np.uint64(2**32 - 1)
_MIDDLE = np.uint64(2**29 - 1)


@inlined_kernel
def _times(a: Any, b: Any) -> Any:
    """``a b mod 2^61 - 1`` for a and b below it: in halves, since 2^61 is 1."""
    a_high, a_low = a >> np.uint64(32), a & _HALF
    b_high, b_low = b >> np.uint64(32), b & _HALF
    middle = a_high * b_low + a_low * b_high
    low = a_low * b_low
    total = ((a_high * b_high) << np.uint64(3)) + (middle >> np.uint64(29)) + ((middle & _MIDDLE) << np.uint64(32))
    total += (low & _P) + (low >> np.uint64(61))
    total = (total & _P) + (total >> np.uint64(61))
    return total - _P if total >= _P else total


@intrinsic
def _whole_piece(typingctx: Any, words: Any, start: Any, key: Any) -> Any:
    """NH of 1024 words from ``start`` on: both halves of eight words are added at once, and then multiplied."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, key = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2))
        low, by = ir.Constant(_words, [2**32 - 1] * LANES), ir.Constant(_words, [32] * LANES)
        slots = [cgutils.alloca_once(builder, _words) for _ in range(_AT_ONCE)]
        for slot in slots:
            builder.store(ir.Constant(_words, None), slot)

        def halves(base: Any, index: Any) -> Any:
            where = builder.bitcast(builder.gep(base, [index]), _halves.as_pointer())
            return builder.load(where, align=8)

        with cgutils.for_range_slice(builder, _i64(0), _i64(PIECE), _i64(_AT_ONCE * LANES), _i64) as (turn, _):
            for i, slot in enumerate(slots):
                j = builder.add(turn, _i64(i * LANES))
                place = builder.add(args[1], j)
                _prefetch(builder, data, builder.add(place, _i64(_AHEAD)))
                both = builder.bitcast(builder.add(halves(data, place), halves(key, j)), _words)
                product = builder.mul(builder.and_(both, low), builder.lshr(both, by))
                builder.store(builder.add(builder.load(slot), product), slot)
        lanes = [builder.extract_element(builder.load(slot), _i32(i)) for slot in slots for i in range(LANES)]
        total = lanes[0]
        for lane in lanes[1:]:
            total = builder.add(total, lane)
        return total

    return types.uint64(words, start, key), codegen


@kernel
def _add(words: Words, key: Words, point: Any, number: Any) -> int:
    """The polynomial, goes on from ``number``."""
    for start in range(0, len(words), PIECE):
        if start + PIECE <= len(words):
            total = _whole_piece(words, start, key)
        else:
            total = np.uint64(0)
            for j in range(start, len(words)):
                word, k = words[j], key[j - start]
                high = (word >> np.uint64(32)) + (k >> np.uint64(32))
                total += ((word + k) & _HALF) * (high & _HALF)
        number = _times(number, point)
        for part in (total & _P, total >> np.uint64(61)):
            number += part
            if number >= _P:
                number -= _P
    return int(number)


@dataclass(frozen=True)
class Key:
    """What two fingerprints must have in common to be compared; secret."""

    BYTES: ClassVar[int] = 8 * (PIECE + 1)

    words: Words = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> Key:
        """A key from `Key.BYTES` random bytes.

        >>> Key.of(bytes(Key.BYTES))
        Key()
        """
        return cls(np.frombuffer(secret, dtype=np.uint64))


def fingerprint(rows: NDArray[Any], key: Key, number: int = 1, more: bool = False) -> int:
    """The number of an array's values, bit by bit: -0 is not 0, and NaNs of other payloads are others.

    The arrays that are compared must have one dtype and one shape. Bytes that come in parts, of which all but the last
    one fill whole pieces of 8 KiB, have the number of the whole: each goes on from the ``number`` of those before it,
    and knows whether there are ``more``.

    Examples
    --------
    >>> key = Key.of(np.random.default_rng(0).bytes(Key.BYTES))
    >>> rows = np.arange(5000.0)
    >>> fingerprint(rows, key) == fingerprint(rows.copy(), key), fingerprint(rows, key) == fingerprint(-rows, key)
    (True, False)
    >>> fingerprint(rows[1024:], key, fingerprint(rows[:1024], key, more=True)) == fingerprint(rows, key)
    True
    """
    point = key.words[PIECE] % _P
    data = _bytes_of(rows)
    whole = len(data) // 8 * 8
    number = _add(data[:whole].view(np.uint64), key.words, point, np.uint64(number))
    if more:
        return number
    rest = np.zeros(8, np.uint8)
    rest[: len(data) - whole] = data[whole:]
    return int(_add(rest.view(np.uint64), key.words, point, np.uint64(number)))


def _bytes_of(rows: NDArray[Any]) -> NDArray[np.uint8]:
    if rows.dtype.kind not in "UTO":
        return np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    texts = rows.ravel().tolist()
    if not all(isinstance(text, str) for text in texts):  # a missing one
        texts = [text if isinstance(text, str) else "\0" for text in texts]
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    if data.count(0) != len(texts) - 1:  # one has the separator inside: their lengths say where they end
        data = b"\xff" + np.fromiter(map(len, texts), np.int64, len(texts)).tobytes() + data
    return np.frombuffer(data, np.uint8)

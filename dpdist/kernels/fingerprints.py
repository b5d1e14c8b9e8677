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
from numpy.typing import NDArray

from dpdist.kernels.compiled import inlined_kernel, kernel

Words = NDArray[np.uint64]

PIECE = 1024
PRIME = 2**61 - 1
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


@kernel
def _add(words: Words, low: Words, high: Words, point: Any, number: Any) -> int:
    """The polynomial, goes on from ``number``."""
    for start in range(0, len(words), PIECE):
        piece = words[start : start + PIECE]
        total = np.uint64(0)
        for j in range(len(piece)):
            total += ((piece[j] + low[j]) & _HALF) * (((piece[j] >> np.uint64(32)) + high[j]) & _HALF)
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
    low, high = key.words[:PIECE] & _HALF, key.words[:PIECE] >> np.uint64(32)
    data = _bytes_of(rows)
    whole = len(data) // 8 * 8
    rest = np.zeros(8, np.uint8)
    rest[: len(data) - whole] = data[whole:]
    number = _add(data[:whole].view(np.uint64), low, high, point, np.uint64(number))
    return number if more else int(_add(rest.view(np.uint64), low, high, point, np.uint64(number)))


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

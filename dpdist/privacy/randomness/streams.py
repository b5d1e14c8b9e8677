"""Counter-based randomness for everything that is drawn inside a task or in a simulation.

A task may be retried, run twice or recomputed, so what it draws has to be a pure function of what it computes:
drawing twice would publish two noisy copies of one value, whose average has less noise than was paid for. And two
computations that differ in anything must share nothing: ``v + s_1 z`` and ``v + s_2 z`` together give ``v``.
Both follow from one rule: the *key* covers everything that changes the meaning of a draw, the *counter* names the
block of rows.

>>> stream = Stream(run_key_from_seed(7), "one-bit-mean", data="3f2a/1", epsilon=1.0, round=0)
>>> again = Stream(run_key_from_seed(7), "one-bit-mean", data="3f2a/1", epsilon=1.0, round=0)
>>> other = Stream(run_key_from_seed(7), "one-bit-mean", data="3f2a/1", epsilon=2.0, round=0)
>>> bool(stream.generator(block=5).random() == again.generator(block=5).random())
True
>>> bool(stream.generator(block=5).random() == other.generator(block=5).random())
False
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_MIN_KEY_BYTES = 16
_DRAWS_PER_BLOCK = 2**23
_MAX_BLOCK_ROWS = 4096


class Stream:
    """Random numbers that depend on a secret, on a protocol with all its parameters, and on a block of rows.

    The generator is Philox4x64 with the 128-bit key ``HMAC-SHA256(run_key, canonical(protocol, params))[:16]`` and
    the counter ``[0, 0, block, purpose]``.

    Parameters
    ----------
    run_key : bytes
        At least 16 bytes; secret for a real run (whoever knows it can remove the noise), derived from a seed in a
        simulation (`run_key_from_seed`).
    protocol : str
        What is drawn.
    **params
        Everything else that changes the meaning of a draw: data version, statistic, epsilon, clip, scale, fold,
        round. None, bool, int, float, str, bytes, enums (by value), and lists or mappings of these. ``1``, ``1.0``,
        ``"1"`` and ``True`` are four different values.

    Notes
    -----
    NumPy's Philox increments the first counter word, so a block number there would make block ``i + 1`` the same
    numbers as block ``i``, shifted by four words. Blocks are numbered in word 2, which is never reached by counting.

    Philox is not a cryptographic generator: central releases draw from `dpdist.privacy.randomness.bits.SystemBits`
    instead.
    """

    __slots__ = ("key",)

    key: bytes
    """The 128-bit key. It is as secret as ``run_key``."""

    def __init__(self, run_key: bytes, protocol: str, **params: Any) -> None:
        if not isinstance(run_key, bytes) or len(run_key) < _MIN_KEY_BYTES:
            raise ValueError(
                f"run_key must be at least {_MIN_KEY_BYTES} bytes; use secrets.token_bytes(32), or "
                "run_key_from_seed(random_state) for a simulation"
            )
        message = json.dumps([protocol, _canonical(params)], separators=(",", ":"), ensure_ascii=True)
        self.key = hmac.new(run_key, message.encode("ascii"), hashlib.sha256).digest()[:16]

    def __repr__(self) -> str:
        return "Stream(<key hidden>)"

    def generator(self, block: int, purpose: int = 0) -> np.random.Generator:
        """A fresh generator for one block of rows, always at its beginning.

        Parameters
        ----------
        block : int
            Number of the block of `block_size` consecutive rows, in [0, 2**64).
        purpose : int, default 0
            Separates draws of one block that have different uses (reports, assignment to groups), in [0, 2**64).
        """
        if not (0 <= block < 2**64 and 0 <= purpose < 2**64):
            raise ValueError("block and purpose must lie in [0, 2**64); number blocks and purposes from 0")
        counter = np.array([0, 0, block, purpose], dtype=np.uint64)
        key = np.frombuffer(self.key, dtype="<u8").astype(np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))


def block_size(width: int) -> int:
    """Rows that share one generator: ``2**floor(log2(clip(2**23 / width, 1, 4096)))``.

    A function of the protocol alone (``width`` = draws per row), so that neither chunking nor the number of workers
    changes what a row draws.

    >>> block_size(1), block_size(10_000), block_size(2**30)
    (4096, 512, 1)
    """
    if width < 1:
        raise ValueError(f"width is the number of draws per row and must be at least 1, got {width}")
    rows = min(max(_DRAWS_PER_BLOCK // width, 1), _MAX_BLOCK_ROWS)
    return 1 << (rows.bit_length() - 1)


def run_key_from_seed(random_state: int) -> bytes:
    """A 32-byte run key from an integer seed: for tests and simulations only, since anyone can guess a seed."""
    seed = int(random_state)
    return hashlib.sha256(b"dpdist simulation seed " + str(seed).encode("ascii")).digest()


def _canonical(value: Any) -> list[Any]:
    """A tagged, JSON-ready form: different values (or types) never give the same text."""
    if isinstance(value, enum.Enum):
        return _canonical(value.value)
    if value is None:
        return ["none"]
    if isinstance(value, bool | np.bool_):
        return ["bool", bool(value)]
    if isinstance(value, int | np.integer):
        return ["int", str(int(value))]
    if isinstance(value, float | np.floating):
        return ["float", float(value).hex()]
    if isinstance(value, str):
        return ["str", str(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("the names in a mapping of stream parameters must be strings")
        return ["map", *([name, _canonical(value[name])] for name in sorted(value))]
    if isinstance(value, list | tuple):
        return ["list", *(_canonical(item) for item in value)]
    raise TypeError(
        f"a stream parameter of type {type(value).__name__} has no canonical form; "
        "pass numbers, strings, bytes, enums, or lists and mappings of them"
    )

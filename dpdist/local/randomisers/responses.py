"""Randomised response among k answers, from one random word."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import kernel
from dpdist.local.randomisers.oracle import odds


@functools.cache
def krr_share(size: int, epsilon: float) -> int:
    """How many of the 2**64 words stand for each answer that is not the true one.

    ``2**64 / (E + k - 1)``, rounded up: the true answer has all other words, at most E times as many.
    """
    return -int(-(2**64) // (odds(epsilon) + size - 1))


@kernel
def _respond(values: NDArray[np.int64], words: NDArray[np.uint64], share: Any, even: Any, k: int, out: Any) -> None:
    regardless = np.uint64(k) * share
    for i in range(len(values)):
        word = words[i]
        if word < regardless:
            out[i] = np.int64(word // share)
        elif values[i] < 0:
            out[i] = np.int64((word - regardless) // even)
        else:
            out[i] = values[i]


def respond(values: NDArray[Any], words: NDArray[np.uint64], size: int, share: int) -> NDArray[np.int64]:
    """With ``share`` words each any of the values, regardless of the true one; with all other words the true one.

    A null value (-1) sends any of them with the other words, too, so that no answer of it is rarer than ``share`` or
    more frequent than the true answer of somebody else.
    """
    out = np.empty(len(values), dtype=np.int64)
    even = -(-(2**64 - size * share) // size)
    _respond(values, words, np.uint64(share), np.uint64(even), size, out)
    return out

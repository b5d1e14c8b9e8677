"""Which records of a stream a finite buffer holds when each new one arrives: a path fixed before a row is read.

============ ==========================================================================================================
fifo         the last s records
reservoir    s records, each set of s as likely: record t takes a random place with probability ``s / t``
rsx          s places, each of which holds any record so far with the same probability, independently of the others:
             record t takes each place with probability ``1 / t``, and a record may be there several times
============ ==========================================================================================================

The path depends on public numbers and on a public seed, so that neighbouring streams have the same one, and accounting
may go by it (spec 02, section 3.2; seed 000, Algorithm 3.3.11).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed

BUFFERS = ("fifo", "reservoir", "rsx")
MOST_ENTRIES = 2**26


@lru_cache(maxsize=16)
def buffer_path(memory: str, n: int, n_kept: int, seed: int = 0) -> NDArray[np.int32]:
    """The buffer when record t = 0, 1, ... arrives, an array of shape ``(n, n_kept)``; -1 where a place is empty.

    Examples
    --------
    >>> buffer_path("fifo", 5, 2)[3:].tolist()
    [[2, 1], [2, 3]]
    >>> path = buffer_path("rsx", 1000, 50)
    >>> bool((path[999] >= 0).all()), bool((path[999] < 999).all()), int(path[2].max())
    (True, True, 1)
    """
    if memory not in BUFFERS:
        raise BudgetError(f"memory={memory!r} is not known; choose 'fifo', 'reservoir' or 'rsx'")
    if n * n_kept > MOST_ENTRIES:
        raise BudgetError(
            f"a buffer of {n_kept} for {n} records is too long a path to be accounted for: keep {MOST_ENTRIES // n} or "
            "fewer, or all"
        )
    draws = Stream(run_key_from_seed(seed), "pairs.buffer", memory=memory, n=n, n_kept=n_kept).generator(0)
    path = np.full((n, n_kept), -1, dtype=np.int32)
    held = path[0].copy()
    for t in range(n - 1):  # record t, the (t + 1)-th
        if memory == "fifo" or t < n_kept:
            held[t % n_kept] = t
        elif memory == "reservoir":
            if draws.random() < n_kept / (t + 1):
                held[draws.integers(n_kept)] = t
        elif t == n_kept:
            held = np.append(held, np.int32(t))[draws.integers(n_kept + 1, size=n_kept)]
        else:
            held[draws.random(n_kept) < 1 / (t + 1)] = t
        path[t + 1] = held
    path.setflags(write=False)
    return path

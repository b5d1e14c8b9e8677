"""Poisson batches: every row is in the batch of a round independently, with a public rate and a secret key.

The draw of a row depends on the round's key and on the row's global position only (counter-based, one stream block of
4096 rows at a time), so another partitioning, a retry or a worker's death chooses the same rows. The size of the batch
is secret: estimates divide by its expectation.

Where a unit owns several rows they are drawn together, by the position of the unit: amplification by sampling is about
whose data are in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096


@dataclass(frozen=True)
class Batch:
    """The batch of one round.

    ``key`` must stay with the coordinator and the tasks of the round: it tells who was drawn. ``rows_per_unit`` rows
    that stand side by side are drawn together.
    """

    key: bytes
    rate: float
    rows_per_unit: int = 1

    def __repr__(self) -> str:
        return f"Batch(rate={self.rate})"

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Positions within ``[start, stop)``, counted from ``start``, of the rows in the batch.

        A unit is in when 32 random bits fall below ``floor(rate * 2**32)``; rounding the rate down by at most
        ``2**-32`` only lowers the privacy cost.
        """
        threshold, k = int(self.rate * 2**32), self.rows_per_unit
        first = start // k // BLOCK
        words = [self._block(b) for b in range(first, -(-stop // (k * BLOCK)))]
        if not words:
            return np.empty(0, dtype=np.int64)
        units = np.flatnonzero(np.concatenate(words) < threshold) + first * BLOCK
        chosen = (units[:, None] * k + np.arange(k)).ravel()
        return chosen[(chosen >= start) & (chosen < stop)] - start

    def _block(self, block: int) -> NDArray[np.uint32]:
        # word 0 of the counter is the one that the generator increments, so the block number sits in word 2
        bits = np.random.Philox(key=int.from_bytes(self.key, "little"), counter=[0, 0, block, 0])
        return bits.random_raw(BLOCK // 2).astype("<u8").view("<u4")

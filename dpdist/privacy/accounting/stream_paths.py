"""Releases of a stream for which rows pay unequally: once in full when they are new, and in part as long as they stay.

Block after block of a stream is compared with blocks before it. Where a row of a new block moves a release by its whole
sensitivity, one of the m blocks before it moves it by ``1/m`` of that. For Gaussian noise squares add up, row by row
(Gaussian DP of adaptive releases, each of which is as sensitive to this row as it is), so that a row pays for

    1 + sum_{later releases that its block takes part in} 1 / m^2

full releases: less than ``pi^2 / 6 = 1.645`` for the full past, 2 for one block of past (spec 02, section 4; PRIVACY-
REVIEW P10). Which blocks take part is fixed by public numbers before a row is read, and by a public seed where a buffer
draws its blocks (`dpdist.privacy.accounting.buffers`); a block that is held c times counts with ``c / m``, by the path.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpdist.errors import BudgetError
from dpdist.identity import ADDED
from dpdist.privacy.accounting.buffers import buffer_path

MEMORIES = ("fifo", "all", "reservoir", "rsx")
DRAWN = ("reservoir", "rsx")


@dataclass(frozen=True)
class StreamPath:
    """Which blocks of a stream every step reads, and which steps are released together.

    Step t = 0, 1, ... compares block t + 1 with blocks before it. What rows pay is counted by steps: how many of them
    are written down together changes nothing of it.

    Parameters
    ----------
    memory : {"fifo", "all", "reservoir", "rsx"}
        The last ``n_kept`` blocks, or all of them, or those that a random buffer of ``n_kept`` places holds.
    n_blocks, block_rows : int
        Blocks of the stream, and rows of each.
    n_kept : int, default 1
    seed : int, default 0
        Public, of a random buffer.
    together : int, default 1
        Steps of a release: one for each of so many blocks, drawn one after another and written down together.

    Examples
    --------
    >>> round(StreamPath("all", 1000, 10).paid, 3), round(StreamPath("fifo", 1000, 10).paid, 3)
    (1.644, 2.0)
    """

    tag: ClassVar[str] = "StreamPath"

    memory: str
    n_blocks: int
    block_rows: int
    n_kept: int = 1
    seed: int = field(default=0, metadata=ADDED)
    together: int = field(default=1, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.memory not in MEMORIES:
            raise BudgetError(f"memory={self.memory!r} is not known; choose one of {', '.join(MEMORIES)}")
        if self.together > 1 and (self.memory, self.n_kept) != ("fifo", 1):
            raise BudgetError(
                "steps are released together where all of them have the same noise: with memory='fifo' and n_kept=1"
            )
        if not (self.n_blocks >= 2 and self.block_rows >= 1 and self.n_kept >= 1 and self.together >= 1):
            raise BudgetError(
                f"a stream has at least two blocks of at least one row, got {self.n_blocks} of {self.block_rows}"
            )

    @property
    def n_steps(self) -> int:
        """One for every block but the first."""
        return self.n_blocks - 1

    @property
    def n_releases(self) -> int:
        """Of ``together`` steps each, the last one of what is left."""
        return -(-self.n_steps // self.together)

    def past(self, step: int) -> Sequence[int]:
        """The blocks that block ``step + 1`` is compared with, in their order; one may be there several times."""
        if not 0 <= step < self.n_steps:
            raise BudgetError(f"the stream has steps 0 to {self.n_steps - 1}, and none with number {step}")
        if self.memory in DRAWN:
            held = buffer_path(self.memory, self.n_blocks, self.n_kept, self.seed)[step + 1]
            return [int(block) for block in np.sort(held[held >= 0])]
        return range(max(0, step + 1 - self.n_kept) if self.memory == "fifo" else 0, step + 1)

    @cached_property
    def paid(self) -> float:
        """How many full releases the dearest row pays for."""
        if self.memory in DRAWN:
            return self._paid_by_blocks() * (1 + 2.0**-40)
        reach = self.n_kept if self.memory == "fifo" else self.n_steps
        shares = [1.0 / len(self.past(step)) ** 2 for step in range(min(self.n_steps, 2 * reach))]
        # block 0 is never new, and no block later in the stream stays longer, or with fewer others, than block 1
        first, second = math.fsum(shares[:reach]), 1.0 + math.fsum(shares[1 : reach + 1])
        return max(first, second) * (1 + 2.0**-40)

    def _paid_by_blocks(self) -> float:
        paid = np.ones(self.n_blocks)
        paid[0] = 0.0  # never new
        for step in range(self.n_steps):
            past = self.past(step)
            for block, times in Counter(past).items():
                paid[block] += (times / len(past)) ** 2
        return float(paid.max())

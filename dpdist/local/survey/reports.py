"""The query of the local model: every row is randomised where it lies, and only sums of reports leave.

Why a retry changes nothing: what a user draws is a function of a key that is made once per round, of the protocol
with all its parameters, and of the block of users. A task that is run twice, in another chunking or on another
worker, draws the same report, so that nobody ever sends two. The key is made where the sum is wanted, travels with the
question, and is kept nowhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError, DataError
from dpdist.identity import text
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.protected_units import Protected
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.draws import StreamDraws
from dpdist.privacy.randomness.streams import Stream, block_size

Fidelity = Literal["report", "sum"]
FIDELITIES = ("report", "sum")


@dataclass(frozen=True)
class Reports(Query):
    """The sum of one report of every user.

    Parameters
    ----------
    protocol : LocalProtocol
    fidelity : {"report", "sum"}
        Whether every user's report is drawn, or the sum of those of a stream block, from its exact law. Both have the
        same distribution; only the first is what users would do.
    """

    tag: ClassVar[str] = "Reports"

    protocol: LocalProtocol
    fidelity: Fidelity = "report"

    is_sum = False

    def __post_init__(self) -> None:
        if self.fidelity not in FIDELITIES:
            raise BudgetError(f"fidelity must be 'report' or 'sum', got {self.fidelity!r}")
        if self.fidelity == "sum" and not self.protocol.has_sums:
            raise BudgetError(
                f"{self.protocol.name} has no exact law of the sum of its reports; use fidelity='report', in which "
                "every user draws one"
            )

    @property
    def reported(self) -> Cost:
        return self.protocol.cost

    @property
    def protects(self) -> Protected:
        return self.protocol.protects

    @property
    def bound(self) -> float:
        return self.protocol.noise_std

    @property
    def grid(self) -> float:
        return self.protocol.grid

    @property
    def row_units(self) -> int:
        return self.protocol.units

    @property
    def block_rows(self) -> int:
        """Users that share a stream: a function of the protocol only."""
        return block_size(self.protocol.width)

    @property
    def align(self) -> int:
        """Ranges that begin within a block would draw from the start of its stream: their users shared one noise."""
        return self.block_rows

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        """The noise of one report: there is no exact sum whose sensitivity would matter."""
        return self.protocol.noise_std

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        """One question to all users, under a fresh key."""
        return ask((bits.words(4).tobytes(), state))

    def of_collected(self, reports: Any) -> NDArray[np.float64]:
        """What `explore` gives, of reports that real users sent (`dpdist.local.survey.simulation.Collected`)."""
        if type(self) is not Reports:
            raise DataError(
                f"{self.protocol.name} is gone through again and again, together with what is not in the reports: they "
                "do not make a fit"
            )
        return np.asarray(reports.total)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        key, public = state
        if self.fidelity == "sum":
            drawn = (self.protocol.draw_sum(u, d.generator, public) for _, u, d in self.parts(first, block, key))
            return functools.reduce(np.add, drawn)
        return self.protocol.summarise_all(((u, d) for _, u, d in self.parts(first, block, key)), public)

    def parts(self, first: int, block: Block, key: bytes) -> Iterator[tuple[int, Block, StreamDraws]]:
        """The users of every stream block: the number of the first of them, their records, and their draws."""
        stream = Stream(key, self.protocol.name, parameters=text(self.protocol), fidelity=self.fidelity)
        stop = first + len(next(iter(block.values())))
        for number in range(first // self.block_rows, -(-stop // self.block_rows)):
            start = max(number * self.block_rows, first)
            own = slice(start - first, min((number + 1) * self.block_rows, stop) - first)
            yield start, {name: rows[own] for name, rows in block.items()}, StreamDraws(stream.generator(number))

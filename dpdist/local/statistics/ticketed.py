"""Statistics of many features, of which every user reports about a few, drawn with chances of their own."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.survey.protocol import Block, Domain, Statistic


class Ticketed(Statistic):
    """Features in [-1, 1]; each is a coordinate of the value as often as it has tickets.

    `dpdist.local.randomisers.coordinates.SampleCoordinates` draws coordinates alike, so a feature is drawn with a
    chance in proportion to its tickets. `of_features` adds up what came in for the tickets of each.
    """

    domain: ClassVar[Domain] = "box"

    @property
    @abstractmethod
    def n_tickets(self) -> NDArray[np.int64]:
        """Of each feature, at least one; in the order of the coordinates."""

    @property
    def size(self) -> int:
        return int(self.n_tickets.sum())

    def of_features(self, of_tickets: NDArray[Any]) -> NDArray[Any]:
        """Sums over the tickets of every feature."""
        return np.add.reduceat(of_tickets, np.cumsum(self.n_tickets) - self.n_tickets)

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        everything = np.broadcast_to(np.arange(self.size), (len(block["X"]), self.size))
        return self.values_at(block, everything)

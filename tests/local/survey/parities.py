"""A question with many more coordinates than a record has numbers: products of signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.survey.protocol import Block, Domain, Statistic


@dataclass(frozen=True)
class Parities(Statistic):
    """Coordinate j is the product of those of a record's signs whose bit is set in j; null records give zeros."""

    n_features: int
    n_parities: int

    domain: ClassVar[Domain] = "box"

    @property
    def size(self) -> int:
        return self.n_parities

    def values(self, block: Block, state: Any = None) -> NDArray[np.float64]:
        return self.values_at(block, np.arange(self.size)[None], state)

    def values_at(self, block: Block, coordinates: NDArray[np.int64], state: Any = None) -> NDArray[np.float64]:
        X = block["X"]
        negative = (X < 0) @ (1 << np.arange(self.n_features))
        odd = np.bitwise_count(negative[:, None] & coordinates) & 1
        return np.where(np.isfinite(X).all(axis=1)[:, None], 1.0 - 2.0 * odd, 0.0)

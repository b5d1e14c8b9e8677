"""Statistics with finitely many values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.protocol import Block, Domain, Statistic


@dataclass(frozen=True)
class Category(Statistic):
    """The number of a user's category, an integer in ``[0, n_categories)``; anything else is a null record."""

    n_categories: int

    domain: ClassVar[Domain] = "category"

    @property
    def size(self) -> int:
        return self.n_categories

    def values(self, block: Block, state: Any = None) -> NDArray[np.int64]:
        """int64, -1 for what is no category."""
        X = block["X"].reshape(len(block["X"]))
        known = (X >= 0) & (self.n_categories > X) & (np.floor(X) == X)
        return np.where(known, X, -1).astype(np.int64)

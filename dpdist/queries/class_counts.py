"""How many rows there are of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Block
from dpdist.queries.scaled_rows import OneCount, pieces


@dataclass(frozen=True)
class ClassCounts(OneCount):
    """The number of rows of each class, whatever their features are; empty rows and other labels are not counted.

    Parameters
    ----------
    n_classes : int, default 2
    signs : bool, default True
        Whether labels are -1 and +1, else class numbers from 0.

    Examples
    --------
    >>> block = {"X": np.array([[1.0], [np.nan], [2.0], [0.0]]), "y": np.array([1.0, 1.0, -1.0, 1.0])}
    >>> ClassCounts().summarise(block, None, None).tolist()
    [1, 2]
    """

    tag: ClassVar[str] = "ClassCounts"

    n_classes: int = 2
    signs: bool = True

    @property
    def size(self) -> int | None:
        return self.n_classes

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        codes = np.array([-1.0, 1.0]) if self.signs else np.arange(float(self.n_classes))
        counts = np.zeros(self.n_classes, dtype=np.int64)
        for X, y in pieces(block, rows):
            labels = np.asarray(y, dtype=np.float64)[np.isfinite(X).all(axis=1)]
            counts += (labels[:, None] == codes).sum(axis=0)
        return counts

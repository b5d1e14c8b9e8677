"""Statistics with finitely many values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.survey.protocol import Block, Domain, Statistic


def whole_numbers(rows: NDArray[Any], size: int) -> NDArray[np.int64]:
    """What is a whole number in ``[0, size)``, as int64; -1 for anything else."""
    rows = rows.reshape(len(rows))
    if rows.dtype.kind in "ub":
        known = rows < size
    elif rows.dtype.kind == "i":
        known = (rows >= 0) & (rows < size)
    elif rows.dtype.kind == "f":
        known = (rows >= 0) & (rows < size) & (rows == np.floor(rows))
    else:
        return np.full(len(rows), -1, dtype=np.int64)
    return np.asarray(np.where(known, rows, 0).astype(np.int64)) - ~known


@dataclass(frozen=True)
class Category(Statistic):
    """The number of a user's category, an integer in ``[0, n_categories)``; anything else is a null record.

    Examples
    --------
    >>> Category(3).values({"X": np.array([0.0, 2.0, 3.0, 0.5, -1.0, np.nan])})
    array([ 0,  2, -1, -1, -1, -1])
    """

    tag: ClassVar[str] = "Category"

    n_categories: int

    domain: ClassVar[Domain] = "category"

    @property
    def size(self) -> int:
        return self.n_categories

    def values(self, block: Block, state: Any = None) -> NDArray[np.int64]:
        """int64, -1 for what is no category."""
        return whole_numbers(block["X"], self.n_categories)


@dataclass(frozen=True)
class Labelled(Statistic):
    """The position of a user's label in a public list of numbers or strings; a label outside it is a null record.

    Examples
    --------
    >>> Labelled(("no", "yes")).values({"X": np.array(["yes", "no", "maybe"])})
    array([ 1,  0, -1])
    """

    tag: ClassVar[str] = "Labelled"

    labels: tuple[Any, ...]

    domain: ClassVar[Domain] = "category"

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def two_categories(self) -> tuple[Any, Any]:
        return self.labels[0], self.labels[-1]

    @cached_property
    def _position(self) -> dict[Any, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def values(self, block: Block, state: Any = None) -> NDArray[np.int64]:
        """int64, -1 for what is no label of the list."""
        position = self._position
        labels = block["X"].reshape(len(block["X"])).tolist()
        return np.fromiter((position.get(label, -1) for label in labels), dtype=np.int64, count=len(labels))

"""What a partition is asked: a sum of per-row contributions that are bounded by construction.

A `Query` is the half of a release that knows the data; the mechanism is the half that knows the noise. The bound is a
public number that `Query.summarise` enforces for any input, so the sensitivity is known before any row is read.
Every subclass enters `QUERIES`, and the sensitivity fuzz of the tests runs over that registry: a query without a
fuzz case fails the tests.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.budget import Neighbours

Block = Mapping[str, NDArray[Any]]
"""Consecutive rows of every array that the run reads."""

QUERIES: list[type[Query]] = []


class Query(abc.ABC):
    """A sum over rows, in integers of a public power-of-two grid.

    Attributes
    ----------
    norm : int
        1 or 2: the norm in which `bound` and `sensitivity` are measured.
    is_sum : bool
        Whether `statistic` is the sum itself; only then can it be asked of a sample of the rows.
    bound : float
        The norm of one row's contribution, in data units, enforced by `summarise`.
    grid : float
        Size of one unit of the summary (a power of two), see `dpdist.kernels.grid`.
    row_units : int
        The largest absolute integer that one row adds to one coordinate; with the public row count it tells
        when 64-bit integers would not hold the sum.
    """

    norm: ClassVar[int] = 2
    is_sum: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        QUERIES.append(cls)

    @property
    @abc.abstractmethod
    def bound(self) -> float: ...

    @property
    @abc.abstractmethod
    def grid(self) -> float: ...

    @property
    def row_units(self) -> int:
        return int(self.bound / self.grid)

    @abc.abstractmethod
    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The exact sum of the contributions of a block's rows (of ``rows`` only, if given)."""

    def sensitivity(self, neighbours: Neighbours) -> float:
        """Largest change of `statistic` between neighbours, in data units."""
        return neighbours.sum_factor * self.bound

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """What is released, as ``(integers, grid)``: by default the sum itself."""
        return total, self.grid

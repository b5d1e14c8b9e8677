"""Results of blocks of consecutive rows, of any computation at all: each is clipped, so a row moves one of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.data.units import Units
from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.grid import grid_for, to_units
from dpdist.privacy.budget import Neighbours

Vector = NDArray[np.float64]


class Fit(Protocol):
    """What is computed of one block, by whatever means."""

    def fit(self, block: Block, size: int, n_parameters: int) -> NDArray[np.float64]:
        """The results of every ``size`` consecutive rows, NaN where there are none."""


@dataclass(frozen=True)
class BlockResults(Query):
    """Results of blocks of ``block_rows`` consecutive rows, of which the first ``n_blocks`` count.

    Where a unit owns several rows, they stand side by side and a block holds all of them or none: a unit changes one
    result, as a row does.

    A block's result is moved to the public ``centre`` (the state) as its origin and clipped to the ``radius``; a fit
    that fails, or gives a number that is not finite, has the result 0, that is the centre. Ranges have to begin at
    multiples of ``block_rows`` (``Coordinator(align=block_rows)``), so that blocks are the same in any partitioning.
    """

    is_sum = False
    whole_blocks = True

    fit: Fit
    block_rows: int
    n_blocks: int
    n_parameters: int
    radius: float

    @property
    def bound(self) -> float:
        return self.radius

    @property
    def grid(self) -> float:
        return grid_for(self.radius)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        """Twice the radius: the result of one block moves from one point of the ball to another."""
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "blocks are dealt by position, and adding or removing a row moves all rows behind it into other "
                "blocks: sample-and-aggregate is private for replace-one only"
            )
        return super().sensitivity(neighbours, norm)

    def steps(self, units: Units) -> int:
        """One: what a unit owns is in one block."""
        units.need_counted("rows are dealt to blocks by their position")
        if self.block_rows % units.max_rows:
            raise BudgetError(
                f"blocks of {self.block_rows} rows would part those of one {units.name}: their size has to be a "
                f"multiple of {units.max_rows}"
            )
        return 1

    def results(self, first: int, block: Block, centre: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the blocks that begin at row ``first`` and behind it, and their results in units of the grid."""
        if first % self.block_rows:
            raise ValueError(
                f"a range begins at row {first}, which is not a multiple of the block size {self.block_rows}"
            )
        number = first // self.block_rows
        n = max(0, min(len(block["y"]) // self.block_rows, self.n_blocks - number))
        rows = {name: values[: n * self.block_rows] for name, values in block.items()}
        found = self.fit.fit(rows, self.block_rows, self.n_parameters) - centre
        return number + np.arange(n), to_units(clip_l2(found, self.radius), grid_for(self.radius), self.radius)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)

    @abstractmethod
    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """What becomes of the `results`."""


@dataclass(frozen=True)
class BlockSum(BlockResults):
    """``sum_i clip_radius(f(block_i) - centre)``: l2-sensitivity ``2 radius`` under replace-one, for any ``f``."""

    tag: ClassVar[str] = "BlockSum"

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        total: NDArray[np.int64] = self.results(first, block, state)[1].sum(axis=0, dtype=np.int64)
        return total


@dataclass(frozen=True)
class BlockDeviations(BlockResults):
    """How many blocks are how far from the centre, parameter by parameter: counts in octaves below ``radius``.

    For each of the parameters: how many ``|f(block)_j - centre_j|``, clipped as in `BlockResults`, lie in
    ``(radius / 2, radius]``, in the octave below it, and so on; the last number is of all smaller ones. A block
    adds 1 to one number of each parameter: replacing it moves two of them by 1, in l2 ``sqrt(2 n_parameters)``.

    Parameters
    ----------
    octaves : int, default 10
    """

    tag: ClassVar[str] = "BlockDeviations"

    octaves: int = 10

    @property
    def bound(self) -> float:
        return math.sqrt(self.n_parameters)

    @property
    def grid(self) -> float:
        return 1.0

    @property
    def row_units(self) -> int:
        return 1

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        super().sensitivity(neighbours)  # refuses the other relation
        p = self.n_parameters
        return {1: 2.0 * p, 2: math.nextafter(math.sqrt(2.0 * p), math.inf), math.inf: 1.0}[
            self.norm if norm is None else norm
        ]

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        found = np.abs(self.results(first, block, state)[1])
        edges = self.radius / grid_for(self.radius) * 2.0 ** np.arange(-self.octaves, 0)
        octave = self.octaves - np.searchsorted(edges, found)
        counts = np.zeros((self.n_parameters, self.octaves + 1), dtype=np.int64)
        np.add.at(counts, (np.arange(self.n_parameters), octave), 1)
        return counts.ravel()


@dataclass(frozen=True)
class BlockEstimates(BlockResults):
    """All ``clip_radius(f(block_i) - centre)`` in order of the blocks: a row changes one of them, by ``2 radius``."""

    tag: ClassVar[str] = "BlockEstimates"

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return np.column_stack(self.results(first, block, state))

    def combine(self, total: NDArray[Any] | None, summary: NDArray[Any], wide: bool) -> NDArray[Any]:
        return summary if total is None else np.concatenate([total, summary])

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return total[np.argsort(total[:, 0]), 1:], self.grid

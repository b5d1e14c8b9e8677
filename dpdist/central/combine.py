"""The two ways to aggregate the results of blocks: what each asks of the rows, and what it makes of the releases.

For `dpdist.central.aggregate.SampleAndAggregate`. Everything is decided from public numbers, as in a
`dpdist.central.course.Course`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.central.block_fits import BlockFit
from dpdist.constraints import L2Ball
from dpdist.data import Units
from dpdist.engine.query import Block, Query
from dpdist.errors import BudgetError
from dpdist.fitting.door import Door
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.grid import grid_for, to_units
from dpdist.privacy.accounting import gdp_mu
from dpdist.privacy.attention import MOST_EPSILON, CentreOfAttention
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms import Gaussian
from dpdist.privacy.plan import Item, Plan

Vector = NDArray[np.float64]

NOISE = 1 / 40
"""Norm of the noise of one round, relative to the radius: more blocks, which are smaller ones, are not worth less."""
CENTRE_SHARE = 0.2
"""Of mu^2, for the first of two rounds."""
SPREAD = 0.25
"""Radius of the second round over that of the first, without the noise of the first."""
TAIL = 1e-3
"""What the bound of `CentreOfAttention` is worth at most, relative to the diameter, if nearly all blocks agree."""
MOST_POINTS = 5000
"""Blocks whose distances `CentreOfAttention` compares: half of m^2 numbers are held."""


@dataclass(frozen=True)
class _Blocks(Query):
    """Results of blocks of ``block_rows`` consecutive rows, of which the first ``n_blocks`` count.

    Where a unit owns several rows, they stand side by side and a block holds all of them or none: a unit changes one
    result, as a row does.

    A block's result is moved to the public ``centre`` (the state) as its origin and clipped to the ``radius``; a fit
    that fails, or gives a number that is not finite, has the result 0, that is the centre. Ranges have to begin at
    multiples of ``block_rows`` (``Coordinator(align=block_rows)``), so that blocks are the same in any partitioning.
    """

    is_sum = False

    fit: BlockFit
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
        return number + np.arange(n), to_units(clip_l2(found, self.radius), self.grid, self.radius)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)

    @abstractmethod
    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """What becomes of the `results`."""


@dataclass(frozen=True)
class BlockSum(_Blocks):
    """``sum_i clip_radius(f(block_i) - centre)``: l2-sensitivity ``2 radius`` under replace-one, for any ``f``."""

    tag: ClassVar[str] = "BlockSum"

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.results(first, block, state)[1].sum(axis=0, dtype=np.int64)


@dataclass(frozen=True)
class BlockEstimates(_Blocks):
    """All ``clip_radius(f(block_i) - centre)`` in order of the blocks: a row changes one of them, by ``2 radius``."""

    tag: ClassVar[str] = "BlockEstimates"

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return np.column_stack(self.results(first, block, state))

    def combine(self, total: NDArray[Any] | None, summary: NDArray[Any], wide: bool) -> NDArray[Any]:
        return summary if total is None else np.concatenate([total, summary])

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return total[np.argsort(total[:, 0]), 1:], self.grid


@dataclass(frozen=True)
class Request:
    """The public numbers of a fit."""

    tag: ClassVar[str] = "Request"

    fit: BlockFit
    n_rows: int
    n_parameters: int
    budget: Budget
    radius: float
    centre: tuple[float, ...] | None = None
    n_blocks: int | None = None
    n_rounds: int | None = None
    rows_per_unit: int = field(default=1, metadata={"named": False})  # the id of the dataset stands for it

    @property
    def n_units(self) -> int:
        """Whose rows there are: as many as rows, unless a unit has several."""
        return self.n_rows // self.rows_per_unit

    @property
    def most_blocks(self) -> int:
        """So many that blocks still have enough units for every parameter: rows of one unit may be alike."""
        return max(1, self.n_units // (self.fit.rows_per_parameter * self.n_parameters))


@dataclass(frozen=True)
class Aggregation(ABC):
    """A way to combine blocks with all its public choices made; see `dpdist.central.course.Course`."""

    request: Request
    n_blocks: int
    n_rounds: int

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, request: Request) -> Aggregation:
        """All choices, from public numbers."""

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """The lines of the plan."""

    @abstractmethod
    def queries(self) -> Mapping[str, Query]:
        """What each line asks."""

    @abstractmethod
    def solve(self, door: Door) -> Vector:
        """The private parameters."""

    @abstractmethod
    def predicted_error(self, plan: Plan) -> float | None:
        """Expected norm of the noise, None where it depends on the data."""

    @property
    def block_rows(self) -> int:
        """Rows per block, of whole units; those that are left over are not used."""
        return self.request.n_units // self.n_blocks * self.request.rows_per_unit

    @property
    def centre(self) -> Vector:
        given = self.request.centre
        return np.zeros(self.request.n_parameters) if given is None else np.array(given)

    def into_ball(self, w: Vector) -> Vector:
        return self.centre + L2Ball(self.request.radius).project(w - self.centre)

    def _query(self, kind: type[_Blocks], radius: float) -> _Blocks:
        return kind(self.request.fit, self.block_rows, self.n_blocks, self.request.n_parameters, radius)


@dataclass(frozen=True)
class ClippedMean(Aggregation):
    """``c + mean of clip_R(f(block) - c)`` with Gaussian noise of ``2 R / (m mu)`` (saa-clipmean).

    One round has the public centre and radius. Two rounds spend a fifth of mu^2 on it; the second has the first
    release as its centre and the radius ``R/4 + 3 sqrt(p) noise``, and clips what the blocks give, not what the first
    ball left of it: results that lie around the truth on all sides are then cut off on all sides, and their mean stays
    where it is. By default there are two rounds where the second radius is at most half the first.

    Blocks: ``m = min(n / (c p), 80 sqrt(p) / mu)``, with c = 10 rows per parameter (20 for classifiers): with the
    second number the noise of one round has the norm ``R / 40``.
    """

    tag: ClassVar[str] = "ClippedMean"

    name: ClassVar[str] = "clipped-mean"

    @classmethod
    def of(cls, request: Request) -> ClippedMean:
        mu, p = gdp_mu(request.budget.epsilon, request.budget.delta), request.n_parameters
        enough = math.ceil(2 * math.sqrt(p) / (mu * NOISE))
        blocks = request.n_blocks or min(request.most_blocks, enough)
        narrow = cls(request, blocks, 2).radii[-1] <= request.radius / 2
        return cls(request, blocks, request.n_rounds or (2 if narrow else 1))

    def items(self) -> Sequence[Item]:
        last = Item("block mean", Gaussian(), share=1 - CENTRE_SHARE)
        return (last,) if self.n_rounds == 1 else (Item("centre", Gaussian(), share=CENTRE_SHARE), last)

    @property
    def radii(self) -> tuple[float, ...]:
        """The radius of every round."""
        radius, p = self.request.radius, self.request.n_parameters
        if self.n_rounds == 1:
            return (radius,)
        mu = gdp_mu(self.request.budget.epsilon, self.request.budget.delta) * math.sqrt(CENTRE_SHARE)
        return radius, min(radius, SPREAD * radius + 3 * math.sqrt(p) * 2 * radius / (self.n_blocks * mu))

    def queries(self) -> Mapping[str, Query]:
        radii = zip(self.items(), self.radii, strict=True)
        return {item.name: self._query(BlockSum, radius) for item, radius in radii}

    def solve(self, door: Door) -> Vector:
        centre = self.centre
        for name, query in self.queries().items():
            centre = self.into_ball(centre + door.gradient(name, query, centre) / self.n_blocks)
        return centre

    def predicted_error(self, plan: Plan) -> float:
        noise = plan["block mean"].mechanism.noise_std(2 * self.radii[-1])
        return math.sqrt(self.request.n_parameters) * noise / self.n_blocks


@dataclass(frozen=True)
class Attention(Aggregation):
    """`CentreOfAttention` of the results (saa-nrs)."""

    tag: ClassVar[str] = "Attention"

    name: ClassVar[str] = "attention"

    @classmethod
    def of(cls, request: Request) -> Attention:
        epsilon, delta = request.budget.epsilon, request.budget.delta
        if epsilon > MOST_EPSILON:
            raise BudgetError(
                f"combine='attention' is proved private up to epsilon = {MOST_EPSILON:g}, got {epsilon:g}: lower "
                "epsilon, or take combine='clipped-mean'"
            )
        if request.n_rounds not in (None, 1):
            raise BudgetError(f"combine='attention' has one round, got n_rounds={request.n_rounds}")
        beta = CentreOfAttention(delta).at(epsilon).beta(request.n_parameters)
        enough = math.ceil(2 / beta * math.log(2 / TAIL))
        blocks = request.n_blocks or min(request.most_blocks, enough, MOST_POINTS)
        if blocks > MOST_POINTS:
            raise BudgetError(
                f"combine='attention' compares all pairs of blocks: n_blocks can be {MOST_POINTS} at most"
            )
        return cls(request, blocks, 1)

    def items(self) -> Sequence[Item]:
        return (Item("block centre", CentreOfAttention(self.request.budget.delta)),)

    def queries(self) -> Mapping[str, Query]:
        return {"block centre": self._query(BlockEstimates, self.request.radius)}

    def solve(self, door: Door) -> Vector:
        (query,) = self.queries().values()
        return self.into_ball(self.centre + door.gradient("block centre", query, self.centre))

    def predicted_error(self, plan: Plan) -> float | None:
        return None


COMBINE: dict[str, type[Aggregation]] = {kind.name: kind for kind in (ClippedMean, Attention)}
"""Every value of ``combine``."""

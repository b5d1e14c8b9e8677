"""What a partition is asked: a sum of per-row contributions that are bounded by construction.

A `Query` is the half of a release that knows the data; the mechanism is the half that knows the noise. The bound is a
public number that `Query.summarise` enforces for any input, so the sensitivity is known before any row is read.
Every subclass enters `QUERIES`, and the sensitivity fuzz of the tests runs over that registry: a query without a
fuzz case fails the tests. (Only sums of private reports have no sensitivity to speak of; their protocols are verified
one by one.)
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Units
from dpdist.errors import BudgetError
from dpdist.kernels.grid import add_units
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.norms import Schatten, name_of
from dpdist.privacy.protected_units import ALL_DATA, Protected
from dpdist.privacy.randomness.bits import Bits

Block = Mapping[str, NDArray[Any]]
"""Consecutive rows of every array that the run reads."""

Ask = Callable[[Any], NDArray[Any]]
"""A state to the un-noised total of all asked rows."""

QUERIES: list[type[Query]] = []


class Query(abc.ABC):
    """A sum over rows, in integers of a public power-of-two grid.

    Attributes
    ----------
    norm : float
        1, 2 or inf, or a norm of the symmetric matrix that is packed (`dpdist.privacy.mechanisms.norms`): in which
        `bound` is measured.
    is_sum : bool
        Whether `statistic` is the sum itself; only then can it be asked of a sample of the rows.
    bound : float
        The norm of one row's contribution, in data units, enforced by `summarise`.
    grid : float
        Size of one unit of the summary (a power of two), see `dpdist.kernels.grid`.
    size : int or None
        Number of coordinates; needed where a mechanism measures in a smaller norm than ``norm``.
    row_units : int
        The largest absolute integer that one row adds to one coordinate; with the public row count it tells
        when 64-bit integers would not hold the sum.
    align : int
        Rows that are read together: ranges of rows have to begin at multiples of it.
    whole_blocks : bool
        Whether a fold has to begin at a multiple of it as well, and to have so many rows.
    passes : int
        How often `explore` asks the rows; public.
    reported : Cost or None
        What one report costs where rows are randomised one by one, before any sum (the local model); None where the
        summary is exact.
    protects : Protected
        What of a row may be anything: all of it, but for reports that randomise a part.
    window : (int, int) or None
        The only rows that are asked, from one to before another; public. None: all rows.
    path : StreamPath or None
        Where rows pay unequally for the releases of a stream, of which this query is number ``turn``: a row moves it
        by its sensitivity over the number of blocks of `StreamPath.past`, if it is in one of them.
    turn : int
    together : int
        How many values are drawn one after another and written down as one release, see `links`; public.
    smoothness : float or None
        For mechanisms whose noise follows the data (`dpdist.privacy.mechanisms.smooth_sensitivity`): `statistic` has a
        second row, a bound of the local sensitivity whose logarithm moves by at most this much between neighbours.
    """

    norm: ClassVar[float] = 2
    is_sum: ClassVar[bool] = True
    whole_blocks: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls) and cls.reported is Query.reported:
            QUERIES.append(cls)

    @property
    @abc.abstractmethod
    def bound(self) -> float: ...

    @property
    @abc.abstractmethod
    def grid(self) -> float: ...

    @property
    def size(self) -> int | None:
        return None

    @property
    def row_units(self) -> int:
        return int(self.bound / self.grid)

    @property
    def align(self) -> int:
        return 1

    @property
    def passes(self) -> int:
        return 1

    @property
    def reported(self) -> Cost | None:
        return None

    @property
    def protects(self) -> Protected:
        return ALL_DATA

    @property
    def smoothness(self) -> float | None:
        return None

    @property
    def window(self) -> tuple[int, int] | None:
        return None

    @property
    def path(self) -> StreamPath | None:
        return None

    @property
    def turn(self) -> int:
        return 0

    @property
    def together(self) -> int:
        return 1

    def links(self, state: Any) -> Generator[tuple[Query, Any], NDArray[np.float64], None]:
        """What is drawn: itself; or `together` queries of its sensitivity, at states made of the values before them.

        Each is yielded with its state, and its private value is sent back. Nobody else sees one before all are written
        down.
        """
        yield self, state

    def check_rows(self, n_rows: int | None) -> None:  # noqa: B027 - most queries take any number
        """Refuse a dataset with another number of rows than was planned for; asked before anything is charged.

        None: the number is private, so that nothing may be said or decided by it.
        """

    @abc.abstractmethod
    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The exact sum of the contributions of a block's rows (of ``rows`` only, if given)."""

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """`summarise`, for queries that have to know the position ``first`` of the block's first row."""
        return self.summarise(block, state, rows)

    def combine(self, total: NDArray[Any] | None, summary: NDArray[Any], wide: bool) -> NDArray[Any]:
        """Put two summaries together; must not depend on their order or grouping."""
        return add_units(total, summary, wide)

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        """The total that is to be released: one question to all rows, or a search that asks several times.

        What it computes on the way is not private and must not leave it: no printing, no number of questions that
        depends on an answer.
        """
        return ask(state)

    def knows(self, norm: float) -> bool:
        """Whether `sensitivity` is proved in that norm."""
        return isinstance(norm, Schatten) == isinstance(self.norm, Schatten)

    def plain_bound(self, norm: float) -> float:
        """The norm of what one row adds, in ``norm``: what amplification by sampling rests on."""
        return self.bound * self._conversion(norm)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        """Largest change of `statistic` between neighbours, in data units and in ``norm`` (default: its own)."""
        return neighbours.sum_factor * self.bound * self._conversion(self.norm if norm is None else norm)

    def unit_sensitivity(self, neighbours: Neighbours, norm: float | None, units: Units) -> float:
        """Largest change of `statistic` where the rows of one *unit* change, as `sensitivity` is of one row.

        A unit with k rows in k places changes one row after another. Where the number of its rows may change as well,
        some of these steps add or remove a row, and the query has to have a bound for that.
        """
        sensitivity = self.sensitivity(neighbours, norm)
        if not units.counted:
            sensitivity = max(sensitivity, self.sensitivity(Neighbours.ADD_OR_REMOVE_ONE, norm))
        return sensitivity * self.steps(units)

    def steps(self, units: Units) -> int:
        """How many times its sensitivity one unit may move the statistic: once for every row that it may own."""
        return units.max_rows

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """What is released, as ``(integers, grid)``: by default the sum itself."""
        return total, self.grid

    def _conversion(self, norm: float) -> float:
        """How much larger the norm can be than the query's own one, rounded up."""
        if norm == self.norm:
            return 1.0
        if isinstance(norm, Schatten) or isinstance(self.norm, Schatten):
            raise BudgetError(f"{type(self).__name__} bounds {name_of(self.norm)}, not {name_of(norm)}")
        exponent = 1 / norm - 1 / self.norm
        if exponent <= 0:
            return 1.0
        if self.size is None:
            raise BudgetError(
                f"{type(self).__name__} bounds the l{self.norm:g} norm of a row and does not say how many coordinates "
                f"it has, so its l{norm:g} sensitivity is unknown; use a mechanism for its own norm, or give it a size"
            )
        return float(self.size**exponent * (1 + 2.0**-50)) if self.size > 1 else 1.0

"""Sums over all pairs of rows: what one row moves is what its pairs move together.

For a loss that falls with the margin, a pair of a positive row i and a negative row j adds ``k(s_i - s_j) (x_i - x_j)``
with k in [0, 1] (`dpdist.kernels.pairwise`). Replace x_i by x_i' of the same class: the pair changes by

    k x_i - k' x_i' - (k - k') x_j,

whose norm is at most ``R (k + k' + |k - k'|) = 2 R max(k, k') <= 2 R`` for rows of norm R, not 4 R. If the class
changes, pairs with one class vanish and pairs with the other appear, n - 1 of them at most, each of norm ``2 R`` at
most. Either way the sum over all pairs moves by ``2 R (n - 1)`` at most: that is ``2 G / n`` for the mean gradient, G
its bound ``4 R`` for one pair (spec 02, section 0.4, as corrected). One positive row among negatives attains it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.clip import check_bound
from dpdist.kernels.fine_gradients import joined
from dpdist.kernels.packed import packed_size
from dpdist.kernels.pair_blocks import LARGEST_NEGATIVE, MOST_BLOCK_ROWS, block_grid, block_pairs
from dpdist.kernels.pairwise import ROW_BITS, bin_width, binned_rows, opposite_pairs, pair_grid
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.norms import FROBENIUS
from dpdist.privacy.randomness.bits import Bits


class _PairsOfTwoClasses(Query):
    """What sums over pairs of a positive and a negative row have in common: clipped rows, their grid and size."""

    is_sum: ClassVar[bool] = False

    row_norm: float
    n_features: int

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")

    @property
    def grid(self) -> float:
        return pair_grid(self.row_norm)

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def row_units(self) -> int:
        return int(2**ROW_BITS)

    def plain_bound(self, norm: float) -> float:
        return math.inf  # a sample of rows would be one of pairs


@dataclass(frozen=True)
class PairSum(_PairsOfTwoClasses):
    """``sum_{i positive, j negative} k(s_i - s_j) (x_i - x_j)`` over all pairs of ``n_rows`` clipped rows.

    The state is the point w of the scores ``s = <w, x>``, which count as the middles of `N_BINS` bins. The rows are
    asked for counts and sums in each bin (`dpdist.kernels.pairwise`), in one pass; the pairs are formed of these, in
    integers.

    Parameters
    ----------
    row_norm : float
        Public bound R of the norm of a row, enforced by clipping.
    n_rows : int
        Public.
    n_features : int
    """

    tag: ClassVar[str] = "PairSum"

    row_norm: float
    n_rows: int
    n_features: int

    @property
    def bound(self) -> float:
        return self.row_norm * max(self.n_rows - 1, 1) * (1 + 2.0**-50)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "how far one row moves a sum over pairs depends on how many rows there are, so that their number has "
                "to be public: pairs are private for replace-one with units whose rows are counted"
            )
        return super().sensitivity(neighbours, norm)

    def check_rows(self, n_rows: int | None) -> None:
        if n_rows != self.n_rows:
            raise BudgetError(
                f"the plan is for {self.n_rows} rows, and there are {n_rows}: plan for those that there are"
            )

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return binned_rows(block["X"], block["y"], state, self.row_norm)

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        positive, negative = ask(state)
        return opposite_pairs(positive, negative, bin_width(self.point(state), self.row_norm), self.n_rows)

    def point(self, state: Any) -> NDArray[np.float64]:
        """w, in the state."""
        found: NDArray[np.float64] = state
        return found


@dataclass(frozen=True)
class BlockPairSum(Query):
    """``sum c (x_i - x_j)(x_i - x_j)'`` over all pairs inside blocks of ``block_rows`` consecutive rows, packed.

    The state is a root A of the metric ``A A'``; a coefficient c is at most 1 for two rows of one class, and at least
    ``-s(1)`` for rows of two (`dpdist.kernels.pair_blocks`). A row is in ``block_rows - 1`` pairs. If it is replaced,
    each of them changes by ``c D - c' D'`` with positive semidefinite D, D' of norm ``4 R^2`` at most: by
    ``sqrt(2) 4 R^2`` in the Frobenius norm if the coefficients have one sign, and by ``(1 + s(1)) 4 R^2`` if they have
    two, whatever the metric is.

    Ranges of rows begin at multiples of ``block_rows``; rows behind the last complete block do not count.

    Parameters
    ----------
    n_features : int
    row_norm : float
        Public bound R of the norm of a row, enforced by clipping.
    block_rows : int
    """

    tag: ClassVar[str] = "BlockPairSum"

    norm: ClassVar[float] = FROBENIUS
    is_sum: ClassVar[bool] = False
    whole_blocks: ClassVar[bool] = True

    n_features: int
    row_norm: float
    block_rows: int

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        if not 2 <= self.block_rows <= MOST_BLOCK_ROWS:
            raise BudgetError(f"a block has 2 to {MOST_BLOCK_ROWS} rows, got {self.block_rows!r}")

    @property
    def bound(self) -> float:
        """Of all pairs of a row."""
        return (self.block_rows - 1) * 4 * self.row_norm**2

    @property
    def grid(self) -> float:
        return block_grid(self.row_norm)

    @property
    def size(self) -> int:
        return packed_size(self.n_features)

    @property
    def row_units(self) -> int:
        return 2**32  # of either part of a sum, which the kernel splits

    @property
    def align(self) -> int:
        return self.block_rows

    def plain_bound(self, norm: float) -> float:
        return math.inf  # a sample would part the blocks

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if norm not in (None, FROBENIUS):
            raise BudgetError("BlockPairSum has a bound of its Frobenius norm only: use a mechanism for that")
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "rows are paired by their position, and adding or removing a row moves all rows behind it into other "
                "blocks: blocks of pairs are private for replace-one with units whose rows are counted"
            )
        return (1 + LARGEST_NEGATIVE) * self.bound * (1 + 2.0**-50)

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return block_pairs(block["X"], block["y"], state, self.row_norm, self.block_rows)

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        if first % self.block_rows:
            raise ValueError(f"a range begins at row {first}, which is not a multiple of {self.block_rows}")
        return self.summarise(block, state, rows)

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return joined(total), self.grid


class Descent(Protocol):
    """Where a descent stands, and where it goes from there; public."""

    @property
    def point(self) -> NDArray[np.float64]: ...

    def after(self, gradient: NDArray[np.float64]) -> Descent:
        """One step further."""
        ...


@dataclass(frozen=True)
class StreamPairSum(_PairsOfTwoClasses):
    """`PairSum` over the pairs of a row of one block of a stream and a row of the blocks that it is compared with.

    The state is a point, or a `Descent` where steps are released together.

    A new row is in m pairs, m the rows it is compared with, and moves the sum by ``2 R m`` at most (as in `PairSum`).
    One of these m rows is in as many pairs as a block has rows, and moves it by that over the number of blocks: what
    `StreamPath` charges it. A block that a buffer holds several times counts as often, for either.

    Parameters
    ----------
    row_norm : float
    n_features : int
    stream : StreamPath
    number : int
        Block ``number + 1`` is the new one; of several steps that are released together, that of the first.
    """

    tag: ClassVar[str] = "StreamPairSum"

    row_norm: float
    n_features: int
    stream: StreamPath
    number: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stream.past(self.number)

    @property
    def path(self) -> StreamPath:
        return self.stream

    @property
    def turn(self) -> int:
        return self.number // self.stream.together

    @property
    def together(self) -> int:
        return min(self.stream.together, self.stream.n_steps - self.number)

    def links(self, state: Any) -> Generator[tuple[Query, Any], NDArray[np.float64], None]:
        if self.stream.together == 1:
            yield self, state
            return
        for number in range(self.number, self.number + self.together):
            pairs = yield replace(self, number=number), state.point
            state = state.after(self.mean_gradient(pairs))

    def mean_gradient(self, pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the mean loss of these pairs, from the sum that is released."""
        found: NDArray[np.float64] = pairs * (-2 / (self.stream.block_rows * self.n_past))
        return found

    @property
    def n_past(self) -> int:
        """m, the rows that every row of the block is compared with."""
        return len(self.stream.past(self.number)) * self.stream.block_rows

    @property
    def window(self) -> tuple[int, int]:
        size = self.stream.block_rows
        return min(self.stream.past(self.number)) * size, (self.number + 1 + self.together) * size

    @property
    def row_units(self) -> int:
        return super().row_units * (1 if self.stream.memory in ("all", "fifo") else self.stream.n_kept)

    @property
    def _ranges(self) -> list[tuple[int, int, int]]:
        """Consecutive rows of the past, and how often they count."""
        size, found = self.stream.block_rows, list[tuple[int, int, int]]()
        for block, times in sorted(Counter(self.stream.past(self.number)).items()):
            if found and found[-1][1:] == (block * size, times):
                found[-1] = (found[-1][0], (block + 1) * size, times)
            else:
                found.append((block * size, (block + 1) * size, times))
        return found

    @property
    def bound(self) -> float:
        return self.row_norm * self.n_past * (1 + 2.0**-50)

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "a stream is cut into blocks by position, and adding or removing a row moves all rows behind it into "
                "other blocks: streams are private for replace-one"
            )
        return super().sensitivity(neighbours, norm)

    def check_rows(self, n_rows: int | None) -> None:
        wanted = self.stream.n_blocks * self.stream.block_rows
        if n_rows is None or n_rows < wanted:
            raise BudgetError(f"the plan is for a stream of {wanted} rows, and there are {n_rows}")

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        def binned(start: int, stop: int) -> NDArray[np.int64]:
            part = slice(max(start - first, 0), max(stop - first, 0))
            return binned_rows(block["X"][part], block["y"][part], state, self.row_norm)

        size = self.stream.block_rows
        held = [times * binned(start, stop) for start, stop, times in self._ranges]
        return np.array([sum(held[1:], held[0]), binned((self.number + 1) * size, (self.number + 2) * size)])

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        past, new = ask(state)
        width, most = bin_width(state, self.row_norm), self.n_past + self.stream.block_rows
        pairs: NDArray[Any] = opposite_pairs(new[0], past[1], width, most) + opposite_pairs(
            past[0], new[1], width, most
        )
        return pairs

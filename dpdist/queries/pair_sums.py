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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.clip import check_bound
from dpdist.kernels.pairwise import ROW_BITS, bin_width, binned_rows, opposite_pairs, pair_grid
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits


@dataclass(frozen=True)
class PairSum(Query):
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

    is_sum: ClassVar[bool] = False

    row_norm: float
    n_rows: int
    n_features: int

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")

    @property
    def bound(self) -> float:
        return self.row_norm * max(self.n_rows - 1, 1) * (1 + 2.0**-50)

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
        return opposite_pairs(positive, negative, bin_width(state, self.row_norm), self.n_rows)

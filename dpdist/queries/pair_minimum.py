"""The minimiser of the mean loss of all pairs with a ridge penalty: one release of it, for Gaussian noise.

As `dpdist.queries.minimizers`, for pairs: the minimisation happens inside the release, in a public number of rounds
that is enough for every dataset; its gradients are right to `dpdist.kernels.score_moments.mean_gradient_error`, and how
far the end point may be from the exact minimiser is part of the sensitivity.
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
from dpdist.kernels.grid import power_grid, to_units
from dpdist.kernels.score_moments import (
    PLACE_BITS,
    ROW_BITS,
    mean_gradient_error,
    mean_pair_gradient,
    moment_grid,
    score_moments,
)
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits
from dpdist.solvers.loops import drive
from dpdist.solvers.minimum import distance_after, exact_method

OUTPUT_BITS = 24
LARGEST_PULL = 0.2785
"""``sup u / (1 + e^u)``."""


@dataclass(frozen=True)
class PairMinimum(Query):
    """``argmin_w  F(w) + alpha/2 ||w||^2``, F the mean logistic loss of all ordered pairs of ``n_rows`` clipped rows.

    Replacing a row moves the gradient of F by at most ``8 R / n`` at any w (`dpdist.queries.pair_sums`), and the
    objective is ``alpha``-strongly convex, whatever the rows are: minimisers of neighbours are at most ``8 R / (alpha
    n)`` apart. The sensitivity adds twice the solver's tolerance and the grid.

    Parameters
    ----------
    row_norm : float
        Public bound R of the norm of a row, enforced by clipping.
    n_rows : int
        Public.
    n_features : int
    ridge : float
        alpha.
    n_rounds : int
        Public number of gradients.
    """

    tag: ClassVar[str] = "PairMinimum"

    is_sum: ClassVar[bool] = False

    row_norm: float
    n_rows: int
    n_features: int
    ridge: float
    n_rounds: int

    def __post_init__(self) -> None:
        check_bound(self.row_norm, "row_norm")
        check_bound(self.ridge, "ridge")

    @property
    def bound(self) -> float:
        """Of half of what a row moves the mean gradient by."""
        return 4 * self.row_norm / self.n_rows

    @property
    def grid(self) -> float:
        return moment_grid(self.row_norm)

    @property
    def row_units(self) -> int:
        return int(2 ** (ROW_BITS + PLACE_BITS))

    @property
    def size(self) -> int:
        return self.n_features

    @property
    def passes(self) -> int:
        return self.n_rounds

    @property
    def curvature(self) -> float:
        """Of the objective: half the pairs at most are of two classes, each with a Hessian of ``4 R^2`` at most."""
        pairs = 2 * self.row_norm**2 * self.n_rows / max(self.n_rows - 1, 1)
        return max(pairs + self.ridge, 2 * self.ridge) * (1 + 1e-12)

    @property
    def farthest(self) -> float:
        """Bound of the minimiser's norm: ``alpha ||w||^2 = -<F'(w), w>``, the mean of ``u / (1 + e^u)`` over pairs."""
        return math.sqrt(LARGEST_PULL * self.n_rows / (2 * max(self.n_rows - 1, 1)) / self.ridge) * (1 + 1e-9)

    def plain_bound(self, norm: float) -> float:
        return math.inf  # a sample of rows would be one of pairs

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "how far one row moves the minimiser over all pairs depends on how many rows there are: pairs are "
                "private for replace-one with units whose rows are counted"
            )
        sensitivity = self.released_sensitivity
        if not math.isfinite(sensitivity):
            raise BudgetError(
                f"ridge={self.ridge:g} is too weak for {self.n_rows} rows of norm {self.row_norm:g}: the gradients do "
                "not determine the minimiser. Use a larger ridge, or solver='gradient'"
            )
        return sensitivity

    def check_rows(self, n_rows: int | None) -> None:
        if n_rows != self.n_rows:
            raise BudgetError(
                f"the plan is for {self.n_rows} rows, and there are {n_rows}: plan for those that there are"
            )

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return score_moments(block["X"], block["y"], state, self.row_norm)

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        def gradient(w: NDArray[np.float64]) -> NDArray[np.float64]:
            if not np.linalg.norm(w) <= 4 * self.farthest:  # the proof says that it never is
                return np.zeros(self.size)
            positive, negative = ask(w)
            pairs = mean_pair_gradient(positive, negative, w, self.row_norm, max(self.n_rows, 2))
            return pairs + self.ridge * w

        return drive(exact_method(np.zeros(self.size), self.curvature, self.ridge, self.n_rounds), gradient)

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return to_units(total, self._output_grid), self._output_grid

    @property
    def exact_sensitivity(self) -> float:
        """``8 R / (alpha n)``, of the exact minimiser."""
        return 8 * self.row_norm / (self.ridge * self.n_rows) * (1 + 1e-9)

    @property
    def tolerance(self) -> float:
        """Distance of the solver's end point from the exact minimiser, for any rows."""
        start = self.farthest
        error = mean_gradient_error(self.n_rows, self.n_features, self.row_norm, 4 * start)
        sums = 2.0**-51 * (2 * self.row_norm + 4 * self.ridge * start)
        return distance_after(self.n_rounds, self.curvature, self.ridge, start, error + sums)

    @property
    def _output_grid(self) -> float:
        return power_grid(self.exact_sensitivity, OUTPUT_BITS)

    @property
    def released_sensitivity(self) -> float:
        """With the solver's tolerance; infinite where it has none."""
        return self.exact_sensitivity + self._slack

    @property
    def _slack(self) -> float:
        # one grid for truncation and one for the float that is truncated, on either neighbour
        return 2 * (self.tolerance + 2 * math.sqrt(self.size) * self._output_grid) * (1 + 1e-9)

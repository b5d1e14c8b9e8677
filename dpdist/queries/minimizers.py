"""Queries that minimise: the rows are asked for exact gradients until the minimiser is known to a proved tolerance.

The minimisation happens inside the release (`dpdist.engine.query.Query.explore`), on un-noised gradients; what leaves
is the end point, for a mechanism that adds noise. Three things make that private for any input:

- rows are clipped in norm and nothing else is, so the objective *is* convex and Lipschitz, whatever the rows are;
- the number of gradients is public and sufficient for every dataset (`dpdist.solvers.minimum`), there is no test of
  convergence and nothing else to see;
- how far the end point is from the exact minimiser at most, with all rounding errors, is part of the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError
from dpdist.kernels.fine_gradients import fine_gradient, fine_grid, gradient_error, joined
from dpdist.kernels.grid import power_grid, to_units
from dpdist.losses import Logistic, Loss, SmoothedHinge
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from dpdist.privacy.randomness.bits import Bits
from dpdist.queries.gradient_sums import one_against_rest
from dpdist.solvers.loops import drive
from dpdist.solvers.minimum import distance_after, exact_method

OUTPUT_BITS = 24
"""The end point is rounded to a grid of this many bits below its sensitivity."""


@dataclass(frozen=True)
class RowCount(Query):
    """How many rows there are, where that is private."""

    tag: ClassVar[str] = "RowCount"

    norm = 1

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def grid(self) -> float:
        return 1.0

    @property
    def size(self) -> int:
        return 1

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return 1.0  # nothing changes under replace-one; mechanisms want a positive number

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return np.array([len(block["X"])], dtype=np.int64)


@dataclass(frozen=True)
class Objective:
    """``sum_i l(<z_i, w>, y_i) + D/2 ||w||^2 (+ <b, w>)`` over at most ``n_rows`` clipped rows: its public constants.

    Parameters
    ----------
    loss : Loss
        Convex, with bounded first and second derivative.
    row_norm : float
    n_features : int
    n_rows : int
        Later rows do not count: the solver's rounds are enough for this many.
    ridge : float
        ``D``, of the sum; on all parameters, that of the constant feature included.
    intercept : float, default 0
    """

    tag: ClassVar[str] = "Objective"

    loss: Loss
    row_norm: float
    n_features: int
    n_rows: int
    ridge: float
    intercept: float = 0.0

    @property
    def n_parameters(self) -> int:
        """Coefficients, and the weight of the constant feature."""
        return self.n_features + (self.intercept > 0)

    @property
    def radius(self) -> float:
        """Largest norm of a row with its constant feature."""
        return math.hypot(self.row_norm, self.intercept)

    @property
    def lipschitz(self) -> float:
        """``G``: largest norm of a row's gradient."""
        return self.loss.lipschitz(self.radius)

    @property
    def smoothness(self) -> float:
        """Of the whole objective; at least ``2 D``, which is all the solver asks."""
        return max(self.n_rows * self.loss.smoothness(self.radius) + self.ridge, 2 * self.ridge) * (1 + 1e-12)

    def farthest(self, term: float) -> float:
        """Bound of the minimiser's norm, for linear terms of norm at most ``term``.

        At the minimiser ``D ||w||^2 = -sum_i l'_i u_i - <b, w>``; this is at most ``n G ||w|| + ||b|| ||w||``, and by
        convexity at most ``sum_i (l(0, y_i) - l(u_i, y_i)) + ||b|| ||w||``, whose summands are at most ``l(0, 1)`` for
        the losses of signs that are never negative.
        """
        far = (self.n_rows * self.lipschitz + term) / self.ridge
        if isinstance(self.loss, Logistic | SmoothedHinge):
            drop = 4 * self.ridge * self.n_rows * float(self.loss.value(0.0, 1.0))
            far = min(far, (term + math.sqrt(term**2 + drop)) / (2 * self.ridge))
        return far * (1 + 1e-9)

    def tolerance(self, n_rounds: int, term: float = 0.0) -> float:
        """Distance of the solver's end point from the exact minimiser, for any rows; infinite if it has no bound."""
        start = self.farthest(term)
        error = gradient_error(
            self.n_rows, self.loss, self.radius, self.n_parameters, 4 * start, fine_grid(self.lipschitz)
        )
        sums = 2.0**-51 * (self.n_rows * self.lipschitz + 4 * self.ridge * start + term)
        return distance_after(n_rounds, self.smoothness, self.ridge, start, error + sums)


@dataclass(frozen=True)
class Minimum(Query):
    """The minimiser of `Objective`, for Gaussian noise (output perturbation).

    The objective is ``D``-strongly convex, and at its minimiser the gradient of a neighbour's objective is at most
    ``zeta`` long (2 G for replace-one, G for add-or-remove-one): minimisers of neighbours are at most ``zeta / D``
    apart (Chaudhuri, Monteleoni and Sarwate 2011). The sensitivity adds twice the solver's tolerance and the grid.
    Several rows of one unit move the minimiser by as many times ``zeta / D``.

    Parameters
    ----------
    objective : Objective
    n_rounds : int
        Public number of gradients.
    target : int, optional
        The class that counts as +1.
    """

    tag: ClassVar[str] = "Minimum"

    is_sum = False

    objective: Objective
    n_rounds: int
    target: int | None = None

    @property
    def bound(self) -> float:
        return self.objective.lipschitz

    @property
    def grid(self) -> float:
        return fine_grid(self.bound)

    @property
    def row_units(self) -> int:
        return 2**32  # of either part of a sum, which the kernel splits

    @property
    def size(self) -> int:
        return self.objective.n_parameters

    @property
    def passes(self) -> int:
        return self.n_rounds

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return self.summarise_at(0, block, state, rows)

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        objective = self.objective
        counted = max(objective.n_rows - first, 0)
        return fine_gradient(
            block["X"][:counted],
            one_against_rest(block["y"][:counted], self.target, objective.loss),
            state,
            objective.loss,
            row_norm=objective.row_norm,
            grid=self.grid,
            intercept=objective.intercept,
        )

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        return self._minimise(ask, np.zeros(self.size))

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        grid = self._output_grid
        return to_units(total, grid), grid

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        return self._exact_sensitivity(neighbours) + self._slack

    def _minimise(self, ask: Ask, term: NDArray[np.float64]) -> NDArray[np.float64]:
        """The solver's end point; there is nothing else to be had."""
        objective, grid = self.objective, self.grid

        def gradient(w: NDArray[np.float64]) -> NDArray[np.float64]:
            data = joined(ask(w)).astype(np.float64) * grid
            return data + objective.ridge * w + term

        return drive(exact_method(np.zeros(self.size), objective.smoothness, objective.ridge, self.n_rounds), gradient)

    def _exact_sensitivity(self, neighbours: Neighbours) -> float:
        return neighbours.sum_factor * self.objective.lipschitz / self.objective.ridge * (1 + 1e-9)

    @property
    def _tolerance(self) -> float:
        tolerance = self.objective.tolerance(self.n_rounds)
        if not math.isfinite(tolerance):
            raise BudgetError(
                "the penalty is too weak for this many rows: float64 gradients do not determine the minimiser. "
                "Use a larger penalty, or solver='gradient'"
            )
        return tolerance

    @property
    def _output_grid(self) -> float:
        return power_grid(self._exact_sensitivity(Neighbours.ADD_OR_REMOVE_ONE) + self._tolerance, OUTPUT_BITS)

    @property
    def _slack(self) -> float:
        # one grid for truncation and one for the float that is truncated, on either neighbour
        return 2 * (self._tolerance + 2 * math.sqrt(self.size) * self._output_grid) * (1 + 1e-9)


@dataclass(frozen=True)
class PerturbedMinimum(Minimum):
    """The minimiser of `Objective` with a random linear term, for `ObjectivePerturbation` only.

    ``mechanism`` is the calibrated one: it draws the term and prices it. `sensitivity` is that of what separates the
    end point from the exact minimiser of the problem with the continuous term (see there): the solver's tolerance,
    the rounding of the term, and the grid of the end point, on either neighbour.
    """

    tag: ClassVar[str] = "PerturbedMinimum"

    mechanism: ObjectivePerturbation | None = None

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        if mechanism != self._mechanism:
            raise BudgetError("this query is priced by the mechanism that it names, and was asked with another one")
        return self._minimise(ask, self._mechanism.linear_term(self.size, bits))

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if neighbours is not self._mechanism.neighbours:
            raise BudgetError(
                f"the linear term is long enough for {self._mechanism.neighbours.value} neighbours, not for "
                f"{neighbours.value} ones"
            )
        return self._slack

    @property
    def _mechanism(self) -> ObjectivePerturbation:
        """The mechanism, if its numbers are those of the objective."""
        mechanism, objective = self.mechanism, self.objective
        if mechanism is None or (
            mechanism.lipschitz < objective.lipschitz
            or mechanism.curvature < objective.loss.smoothness(objective.radius)
            or mechanism.regularisation != objective.ridge
        ):
            raise BudgetError("the mechanism must know the bounds of the objective, and set its regularisation")
        return mechanism

    def _exact_sensitivity(self, neighbours: Neighbours) -> float:
        return 0.0

    @property
    def _tolerance(self) -> float:
        mechanism = self._mechanism
        tolerance = self.objective.tolerance(self.n_rounds, mechanism.longest_term(self.size))
        if not math.isfinite(tolerance):
            raise BudgetError(
                "there are too many rows for a regularisation this weak: float64 gradients do not determine the "
                "minimiser. Use a larger penalty, or solver='gradient'"
            )
        return tolerance + mechanism.term_grid * math.sqrt(self.size) / self.objective.ridge

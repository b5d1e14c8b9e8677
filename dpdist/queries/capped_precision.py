"""The solution of the graphical lasso under a cap of its eigenvalues, for noise on the solution.

Where ``T <= beta I``, ``-log det T`` has a Hessian of at least ``beta^-2``, so the exact solution moves by no more than
``beta^2 ||S - S'||_F``: ``sqrt(2) r^2 beta^2 / n`` between neighbours (spec 06, section 5). It is found inside the
release, in a public number of steps that is enough for every input (`dpdist.solvers.graphical_lasso.glasso_capped`);
how far it may be from the exact one, with all rounding, is twice part of the sensitivity. There is no test of
convergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block, Query
from dpdist.errors import BudgetError, DataError
from dpdist.kernels.clip import check_bound
from dpdist.kernels.grid import power_grid, to_units
from dpdist.kernels.moments import moment_grid, second_moment, unpack_symmetric
from dpdist.kernels.packed import packed_size
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.norms import FROBENIUS
from dpdist.privacy.randomness.bits import Bits
from dpdist.queries.moment_sums import ROOT2
from dpdist.solvers.graphical_lasso import capped_error, glasso_capped

OUTPUT_BITS = 24
"""The solution is rounded to a grid of this many bits below its sensitivity."""


@dataclass(frozen=True)
class CappedPrecision(Query):
    """``argmin -log det T + <S, T> + penalty sum_{i != j} |T_ij|`` over ``0 < T <= cap I``.

    S is the mean of ``x x'`` of clipped rows.

    Parameters
    ----------
    n_rows : int
        What S is divided by; public.
    n_features : int
    row_norm : float
        Enforced by clipping.
    penalty, cap : float
        Public.
    n_steps : int
        Public.
    unit : bool, default False
        Scale rows to ``row_norm``, shorter ones as well.
    """

    tag: ClassVar[str] = "CappedPrecision"

    norm: ClassVar[float] = FROBENIUS
    is_sum: ClassVar[bool] = False

    n_rows: int
    n_features: int
    row_norm: float
    penalty: float
    cap: float
    n_steps: int
    unit: bool = False

    def __post_init__(self) -> None:
        for name in ("row_norm", "penalty", "cap"):
            check_bound(getattr(self, name), name)

    @property
    def bound(self) -> float:
        return self.row_norm**2

    @property
    def grid(self) -> float:
        return moment_grid(self.row_norm)

    @property
    def size(self) -> int:
        return packed_size(self.n_features)

    @property
    def exact_sensitivity(self) -> float:
        """Of the exact solution: ``sqrt(2) r^2 beta^2 / n``."""
        return ROOT2 * self.bound * self.cap**2 / self.n_rows

    @property
    def distance(self) -> float:
        """How far what is found may be from the exact solution, at most."""
        found = capped_error(self.n_features, self.penalty, self.cap, self.n_steps, self.bound)
        return found + self.cap**2 * self.bound * 2.0**-50  # S itself is rounded once

    def sensitivity(self, neighbours: Neighbours, norm: float | None = None) -> float:
        if norm not in (None, FROBENIUS):
            raise BudgetError("CappedPrecision has a bound of its Frobenius norm only: use a mechanism for that")
        if neighbours is not Neighbours.REPLACE_ONE:
            raise BudgetError(
                "the solution of the graphical lasso is one of a mean, whose number of rows has to be public: use "
                "neighbours='replace-one', or method='covariance'"
            )
        # an entry off the diagonal counts twice; one grid for truncation and one for the float that is truncated
        rounding = 2 * self.n_features * self._output_grid
        return (self.exact_sensitivity + 2 * (self.distance + rounding)) * (1 + 1e-9)

    def knows(self, norm: float) -> bool:
        return norm == FROBENIUS

    def plain_bound(self, norm: float) -> float:
        return math.inf  # not for samples

    def check_rows(self, n_rows: int | None) -> None:
        if n_rows != self.n_rows:
            raise BudgetError(
                f"the plan is for {self.n_rows} rows, and there are {n_rows}: plan for those that there are"
            )

    def summarise(self, block: Block, state: Any, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        X = block["X"]
        if X.shape[1:] != (self.n_features,):
            raise DataError(f"X has {X.shape[1]} columns, and the plan is for {self.n_features}")
        return second_moment(X if rows is None else X[rows], self.row_norm, unit=self.unit)

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        return self.solution(ask(state))

    def solution(self, total: NDArray[Any]) -> NDArray[np.float64]:
        """The upper triangle of what is found, from the sum of ``x x'``."""
        S = unpack_symmetric(total.astype(np.float64) * self.grid / self.n_rows)
        found = glasso_capped(S, self.penalty, self.cap, self.n_steps)
        upper: NDArray[np.float64] = ((found + found.T) / 2)[np.triu_indices(self.n_features)]
        return upper

    def statistic(self, total: NDArray[Any]) -> tuple[NDArray[Any], float]:
        return to_units(total, self._output_grid), self._output_grid

    @property
    def _output_grid(self) -> float:
        return power_grid(self.exact_sensitivity, OUTPUT_BITS)

"""What a user states about a ranking, and what its methods share.

The loss of a positive row i and a negative row j is ``ln(1 + exp(-2 <w, x_i - x_j>))``; pairs of one class have a
constant. Its mean over all ordered pairs of rows, ``n (n - 1)`` of them, is convex in w, and small where positive rows
have larger scores ``<w, x>`` than negative ones: it stands for 1 - AUC (seed 000, section 3.3, example 2).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.iterative_method import IterativeMethod
from dpdist.estimators.parameters import need_delta
from dpdist.identity import ADDED
from dpdist.method import DECIDED, Method, Noted, Oracle, Public, Vector
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.budget import Neighbours
from dpdist.solvers.loops import drive, prox_gradient

TAIL = 0.5
"""Of the points, whose mean is returned."""


@dataclass(frozen=True)
class RankingStatement(Noted):
    """What a fit was asked for; the fields are parameters of `dpdist.central.pairs.ranking.PairwiseRanker`."""

    tag: ClassVar[str] = "RankingStatement"

    row_norm: float
    radius: float
    classes: tuple[Any, ...] = ()
    threshold: float | None = None
    bounded: bool = field(default=True, metadata=ADDED)
    """Whether the radius was stated, rather than taken for the longest that scores need."""

    @property
    def smoothness(self) -> float:
        """Of the mean loss, for rows of norm ``row_norm`` in all directions: half the pairs at most differ in class."""
        return self.row_norm**2

    @property
    def lipschitz(self) -> float:
        """``G / 2``, what counts of the largest gradient ``G = 4 R`` of a pair where a row is replaced."""
        return 2 * self.row_norm


@dataclass(frozen=True)
class RankingMethod(Method):
    """A solver for rankings."""

    statement: RankingStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    parameter = "solver"
    solves_with = ("classes", "threshold", "radius", "bounded")
    measures: ClassVar[str] = (
        "expected excess of the mean pair loss over the best coefficients in the ball, from noise and from what is "
        "left to optimise, for rows as long as row_norm"
    )

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number of steps, once it is decided."""

    @property
    def mu(self) -> float:
        """The budget, as that of Gaussian DP."""
        return gdp_mu(self.public.budget.epsilon, self.public.budget.delta)

    @property
    def no_intervals(self) -> str:
        return (
            "coefficients of a ranking have no scale of their own, and no Hessian of the pairs is released, so that no "
            "interval is known to be valid"
        )

    def _with(self, public: Public, statement: Any, **choices: Any) -> Self:
        need_delta(public.budget.delta, "sums over pairs")
        if public.neighbours is not Neighbours.REPLACE_ONE or not public.counted:
            raise BudgetError("pairs of rows need a public number of rows: neighbours='replace-one'")
        if public.n_rows < 2:
            raise BudgetError(f"{public.n_rows} row makes no pair (n_samples={public.n_rows}): take more rows")
        return super()._with(public, statement, **choices)

    def mean_gradient(self, pairs: Vector) -> Vector:
        """Of the sum over pairs that is released."""
        n = self.public.n_rows
        gradient: Vector = pairs * (-4 / (n * max(n - 1, 1)))
        return gradient

    def least_error_ridge(self, variance: float = 1.0) -> float:
        """``(128 v R^4 d / (B n mu)^2)^(1/3)``: where a penalty and the noise that it asks for cost least together.

        The noise of one release at the sensitivity ``8 R / (alpha n)`` has ``v`` times the variance that this has with
        the whole budget; it costs ``R^2 d std^2 / 2``, the penalty ``alpha B^2 / 2``.
        """
        statement, signal = self.statement, self.statement.radius * self.public.n_units * self.mu
        found: float = (128 * variance * statement.row_norm**4 * self.public.n_features / signal**2) ** (1 / 3)
        return found

    def gradient_noise(self, std: float) -> float:
        """Standard deviation of the noise in a coordinate of the mean gradient, from that of the sum."""
        n = self.public.n_rows
        return std * 4 / (n * max(n - 1, 1))

    def steps_and_noise(self, rounds: int, noise: float) -> float:
        """``L B^2 / (2 T) + d s^2 / (2 L)``: the excess of T steps of size 1/L with noise s in each coordinate."""
        smoothness, radius = self.statement.smoothness, self.statement.radius
        return smoothness * radius**2 / (2 * rounds) + self.public.n_features * noise**2 / (2 * smoothness)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        return {"coef": self.solution(oracle)}

    @abstractmethod
    def solution(self, oracle: Oracle) -> Vector:
        """The coefficients."""


@dataclass(frozen=True)
class RankingRounds(IterativeMethod, RankingMethod):
    """A solver whose rounds may be set."""

    def descend(self, gradient: Callable[[Vector], Vector], step: float) -> Vector:
        """Steps along gradients, each projected onto the ball; the mean of the last points."""
        ball, start = L2Ball(self.statement.radius), np.zeros(self.public.n_features)
        loop = prox_gradient(start, lambda v, _: ball.project(v), step, self.rounds, tail=TAIL)
        return drive(loop, gradient)


def enough_rounds(method: RankingMethod, most: int) -> int:
    """``L B n mu / (4 (G/2) sqrt(d))`` rounds: more have more noise than they gain (spec 02, section 7)."""
    statement, public = method.statement, method.public
    signal = public.n_units * method.mu / math.sqrt(public.n_features)
    wanted = 4 * statement.smoothness * statement.radius * signal / (4 * statement.lipschitz)
    return max(1, math.ceil(min(wanted, most)))

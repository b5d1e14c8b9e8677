"""What a method is to an estimator: a course that is fixed from public numbers before any data is read.

A `Problem` holds everything public that a fit was asked for. A `Course` decides from it what will be released, how
often and for which share of the budget (`Course.items`), and turns releases into a solution (`Course.solve`), which it
can only ask for through a `dpdist.fitting.door.Door`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import Constraint, Penalty
from dpdist.engine.query import Query
from dpdist.errors import MissingBound
from dpdist.fitting.door import Door
from dpdist.fitting.parameters import BOUNDS
from dpdist.losses import Loss
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.plan import Item, Plan

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """The public numbers of a fit; the fields are the parameters of `dpdist.central.minimizer.Minimizer`.

    ``n_rows`` is the number that sums are divided by, ``n_problems`` the number of binary problems (1, or the number of
    classes), ``intercept`` the size of the constant feature (0 without one), ``counted`` whether the true number of
    rows is public.
    """

    tag: ClassVar[str] = "Problem"

    loss: Loss
    penalty: Penalty | None
    constraint: Constraint | None
    n_rows: int
    n_features: int
    budget: Budget
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    n_problems: int = 1
    rows_per_unit: int = 1
    intercept: float = 0.0
    solver: str = "auto"
    gradient: str = "norm"
    rows: str = "all"
    combine: str = "auto"
    row_norm: float | None = None
    clip_norm: float | None = None
    n_rounds: int | None = None
    n_inner: int | None = None
    step_size: float | None = None
    batch_rate: float = 0.02
    n_nonzero: int | None = None
    feature_bound: float | None = None
    residual_bound: float | None = None
    second_moment: float | None = None
    scale: float | None = None
    counted: bool = field(default=True, metadata={"named": False})  # the id of the dataset stands for it

    @property
    def n_parameters(self) -> int:
        """Coefficients, and the intercept if there is one."""
        return self.n_features + (self.intercept > 0)

    @property
    def strong_convexity(self) -> float:
        """Of the penalty, which is all that is known of the objective."""
        return self.penalty.strong_convexity if self.penalty is not None else 0.0


@dataclass(frozen=True)
class Course(ABC):
    """A method with all its public choices made."""

    problem: Problem
    n_rounds: int

    name: ClassVar[str]
    """What ``solver="auto"`` is resolved to."""

    @abstractmethod
    def items(self) -> Sequence[Item]:
        """The lines of the plan."""

    @abstractmethod
    def solve(self, door: Door) -> Vector:
        """The solution of one binary problem: coefficients, then the weight of the constant feature."""

    def queries(self) -> Mapping[str, Query]:
        """What each line of the plan asks, where its sensitivity is known beforehand: for showing the noise."""
        return {}

    def predicted_error(self, plan: Plan) -> float | None:
        """Expected excess of the objective that is due to the noise, from public numbers; None where unknown."""
        return None


def need(problem: Problem, *names: str) -> None:
    """Refuse a course whose public bounds are not declared."""
    for name in names:
        if getattr(problem, name) is None:
            raise MissingBound(f"{name} is missing: {BOUNDS[name]}")

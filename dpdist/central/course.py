"""What a method is to an estimator: a course that is fixed from public numbers before any data is read.

A `Problem` holds everything public that a fit was asked for. A `Course` decides from it what will be released, how
often and for which share of the budget (`Course.items`), and turns releases into a solution (`Course.solve`), which it
can only ask for through a `Door`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import Constraint, Penalty
from dpdist.data import Fold
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Loss
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.plan import Item, Plan

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """The public numbers of a fit; the fields are the parameters of `dpdist.central.minimizer.Minimizer`.

    ``n_rows`` is the number that sums are divided by, ``n_problems`` the number of binary problems (1, or the number of
    classes), ``intercept`` the size of the constant feature (0 without one).
    """

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

    @property
    def n_parameters(self) -> int:
        """Coefficients, and the intercept if there is one."""
        return self.n_features + (self.intercept > 0)

    @property
    def strong_convexity(self) -> float:
        """Of the penalty, which is all that is known of the objective."""
        return self.penalty.strong_convexity if self.penalty is not None else 0.0


class Door:
    """What a course may ask for: the releases that the plan paid for. Keeps the points at which they were asked."""

    def __init__(self, coordinator: Coordinator, plan: Plan) -> None:
        self.target: int | None = None
        self.history: list[Vector] = []
        self._coordinator = coordinator
        self._plan = plan
        self._shared: dict[str, float] = {}

    def release(self, name: str, query: Query, state: Any = None) -> Vector:
        """The private value of ``query``, paid for by the line ``name`` of the plan."""
        item = self._plan[name]
        return self._coordinator.release(query, item, state, self._fold(item))

    def gradient(self, name: str, query: Query, w: Vector) -> Vector:
        """As `release`, at a point that belongs in the history of the fit."""
        self.history.append(w)
        return self.release(name, query, w)

    def once(self, name: str, find: Callable[[Door], float]) -> float:
        """A number that all binary problems share: found by the first of them."""
        if name not in self._shared:
            self._shared[name] = find(self)
        return self._shared[name]

    @property
    def plan(self) -> Plan:
        """The calibrated plan."""
        return self._plan

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is public."""
        public = self._coordinator.neighbours is Neighbours.REPLACE_ONE
        return self._coordinator.dataset.n_rows if public else None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in the latest release."""
        return self._coordinator.releases[-1].noise_std

    def _fold(self, item: Item) -> Fold | None:
        if item.fold is None:
            return None
        split, index = item.fold
        folds = self._coordinator.dataset.split(int(str(split).rpartition("-")[2]), self._coordinator.neighbours)
        return folds[index]


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


def choice(name: str, value: str, allowed: Sequence[str]) -> str:
    """``value``, or the error that names what there is."""
    if value not in allowed:
        raise BudgetError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, allowed))}")
    return value


def need(problem: Problem, *names: str) -> None:
    """Refuse a course whose public bounds are not declared."""
    for name in names:
        if getattr(problem, name) is None:
            raise MissingBound(f"{name} is missing: {BOUNDS[name]}")


BOUNDS = {
    "row_norm": (
        "pass a public bound on the l2 norm of a row's features, known without looking at the data (1.0 for normalised "
        "rows, sqrt(n_features) for features in [-1, 1]); longer rows are scaled down to it. It is never taken from "
        "the data, because a bound that follows the data leaks it"
    ),
    "feature_bound": (
        "pass a public bound on the size of a single feature, about two or three times its usual size; larger entries "
        "are cut off at it"
    ),
    "residual_bound": (
        "pass a public bound on the difference of label and prediction, about the usual size of the labels; larger "
        "residuals are cut off at it"
    ),
    "second_moment": (
        "pass a public guess of the mean square of a coordinate of a row's gradient (in the units of the labels times "
        "the features); it sets the scale beyond which contributions are damped, and may be wrong by a factor of 10"
    ),
    "constraint": "this solver needs a bounded set, for example constraint=L1Ball(1.0)",
    "n_nonzero": "pass how many coefficients may differ from 0, about twice as many as are expected to matter",
    "clip_norm": (
        "pass a public bound on the l2 norm of a row's gradient (largest residual that should count, times row_norm); "
        "larger gradients are scaled down to it"
    ),
}
"""What each public bound is, for whoever forgot it."""

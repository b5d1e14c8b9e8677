"""What a user of the linear estimators states, and what their methods share.

A `Problem` holds the losses, sets and public bounds; a `LinearMethod` decides from it what will be released, and turns
releases into the solution of one or several binary problems.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.central.linear.bounding import All, Gradient, Rows
from dpdist.constraints import Constraint, Penalty
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS, check_bound, check_count
from dpdist.identity import ADDED
from dpdist.losses import Loss
from dpdist.method import DECIDED, Method, Oracle, Public
from dpdist.privacy.budget import Budget, Neighbours

Vector = NDArray[np.float64]
Combine = Literal["auto", "last", "tail-average"]
ALL = All()
COMBINE = ("auto", "last", "tail-average")


@dataclass(frozen=True)
class Problem:
    """What a linear fit was asked for; the fields are parameters of `dpdist.central.linear.minimizer.Minimizer`.

    ``n_problems`` is the number of binary problems (1, or the number of classes), ``intercept`` the size of the
    constant feature (0 without one).
    """

    tag: ClassVar[str] = "Problem"

    public: Public
    loss: Loss
    penalty: Penalty | None
    constraint: Constraint | None
    n_problems: int = 1
    intercept: float = 0.0
    gradient: Gradient | None = None
    rows: Rows = ALL
    row_norm: float | None = None
    feature_bound: float | None = None
    residual_bound: float | None = None
    second_moment: float | None = None
    classes: tuple[Any, ...] = ()
    label_bound: float | None = field(default=None, metadata=ADDED)

    @property
    def n_rows(self) -> int:
        """The number that sums are divided by."""
        return self.public.n_rows

    @property
    def n_features(self) -> int:
        """Without the constant one."""
        return self.public.n_features

    @property
    def budget(self) -> Budget:
        """Of the fit."""
        return self.public.budget

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the guarantee."""
        return self.public.neighbours

    @property
    def counted(self) -> bool:
        """Whether the true number of rows is public."""
        return self.public.counted

    @property
    def n_parameters(self) -> int:
        """Coefficients, and the intercept if there is one."""
        return self.n_features + (self.intercept > 0)

    @property
    def strong_convexity(self) -> float:
        """Of the penalty, which is all that is known of the objective."""
        return self.penalty.strong_convexity if self.penalty is not None else 0.0


@dataclass(frozen=True)
class LinearMethod(Method):
    """A solver.

    Parameters
    ----------
    n_rounds : int, optional
        Public number of rounds. Default: by the rule of the solver.
    """

    statement: Problem = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    measures: ClassVar[str] = (
        "expected excess of the mean loss that is due to the noise, for rows that are equally long in all directions"
    )

    parameter = "solver"
    default_alpha: ClassVar[float] = 1e-4
    """Strength of the penalty where the user leaves it open."""

    n_rounds: int | None = None

    def __post_init__(self) -> None:
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)
        if getattr(self, "step_size", None) is not None:
            check_bound("step_size", self.step_size)  # type: ignore[attr-defined]
        if getattr(self, "combine", "auto") not in COMBINE:
            raise BudgetError(f"combine must be one of {', '.join(map(repr, COMBINE))}, got {self.combine!r}")  # type: ignore[attr-defined]

    @property
    def problem(self) -> Problem:
        """What was stated."""
        return self.statement

    @property
    def rounds(self) -> int:
        """The number of rounds, once it is decided."""
        assert self.n_rounds is not None
        return self.n_rounds

    def one_row_each(self) -> Self:
        alike = self.public.one_row_each()
        return replace(self, public=alike, statement=replace(self.problem, public=alike))

    @abstractmethod
    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        """Of one binary problem: coefficients, then the weight of the constant feature."""

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n = self.problem.n_problems
        return {"solutions": np.array([self.solution(oracle, t) for t in (range(n) if n > 1 else [None])])}


def need(problem: Problem, *names: str) -> None:
    """Refuse a method whose public bounds are not declared."""
    for name in names:
        if getattr(problem, name) is None:
            raise MissingBound(f"{name} is missing: {BOUNDS[name]}")


def bounded_by(problem: Problem, solver: str, default: type[Gradient], *others: type[Gradient]) -> Problem:
    """The problem with the gradient that a solver takes: the one that was asked for, or its default."""
    if problem.gradient is None:
        return replace(problem, gradient=default())
    allowed = (default, *others)
    if not isinstance(problem.gradient, allowed):
        names = ", ".join(repr(kind.name) for kind in allowed)
        raise BudgetError(
            f"gradient={problem.gradient.name!r} is nothing that solver={solver!r} can use; choose one of {names}"
        )
    return problem


def reads(problem: Problem, solver: str, *allowed: type[Rows]) -> None:
    """Refuse rows that a solver cannot read."""
    if not isinstance(problem.rows, allowed):
        names = ", ".join(repr(kind.name) for kind in allowed)
        raise BudgetError(
            f"rows={problem.rows.name!r} is nothing that solver={solver!r} can read; choose one of {names}"
        )

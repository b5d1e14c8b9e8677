"""What a user of the linear estimators states, and what their methods share.

A `Problem` holds the losses, sets and public bounds; a `LinearMethod` decides from it what will be released, and turns
releases into the solution of one or several binary problems. A `LoopMethod` goes from point to point, and may be told
where to begin.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.central.linear.bounding import All, Gradient, Rows
from dpdist.central.linear.normal_rows import Rows as Cases
from dpdist.central.linear.normal_rows import response
from dpdist.central.linear.prediction import Prediction, predicted, rows_before_a_fit
from dpdist.constraints import Constraint, ElasticNet, Penalty, SmoothPenalty, is_proximal, is_smooth
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.iterative_method import IterativeMethod
from dpdist.estimators.parameters import BOUNDS, check_bound, keep_plain, public_vector
from dpdist.identity import ADDED
from dpdist.losses import Loss
from dpdist.method import DECIDED, Expected, Noted, Oracle, Public
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.budget import Budget, Neighbours

Vector = NDArray[np.float64]
Combine = Literal["auto", "last", "tail-average", "random", "min-noisy"]
ALL = All()
COMBINE = ("auto", "last", "tail-average", "random", "min-noisy")
SMALLEST, LARGEST = 1e-30, 1e50
"""Sizes from which on counts in octaves, 64 at most, lead to sums that can be bounded."""
INSIDE = 1e-9
"""Relative distance from a set that counts as rounding."""


@dataclass(frozen=True)
class Problem(Noted):
    """What a linear fit was asked for; the fields are parameters of `dpdist.central.linear.minimizer.Minimizer`.

    ``n_problems`` is the number of binary problems (1, or the number of classes), ``intercept`` the size of the
    constant feature (0 without one).
    """

    tag: ClassVar[str] = "Problem"

    public: Public
    loss: Loss
    penalty: Penalty | SmoothPenalty | None
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

    def __post_init__(self) -> None:
        keep_plain(self, ("row_norm", "feature_bound", "residual_bound", "second_moment"))

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
    def mu(self) -> float:
        """What one binary problem may spend, as that of Gaussian DP."""
        return gdp_mu(self.budget.epsilon, self.budget.delta) / math.sqrt(self.n_problems)

    @property
    def signal(self) -> float:
        """Rows against noise: units x mu / sqrt(features)."""
        return self.public.n_units * self.mu / math.sqrt(self.n_features)

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
    def proximal_penalty(self) -> Penalty | None:
        """The penalty, if it has a proximal step."""
        return self.penalty if is_proximal(self.penalty) else None

    @property
    def smooth_penalty(self) -> SmoothPenalty | None:
        """The penalty, if all that it has is a gradient."""
        return self.penalty if is_smooth(self.penalty) and not is_proximal(self.penalty) else None

    @property
    def strong_convexity(self) -> float:
        """Of the penalty, which is all that is known of the objective."""
        if self.smooth_penalty is not None:
            return max(0.0, self.smooth_penalty.curvature_range[0])
        return self.proximal_penalty.strong_convexity if self.proximal_penalty is not None else 0.0

    @property
    def penalty_curvature(self) -> float:
        """What the penalty adds to the curvature that steps have to respect; a proximal step takes care of its own."""
        low, high = (0.0, 0.0) if self.smooth_penalty is None else self.smooth_penalty.curvature_range
        return max(high, -low)


@dataclass(frozen=True)
class LinearMethod(IterativeMethod):
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
    solves_with = ("penalty", "constraint", "classes")
    weighs: ClassVar[bool] = False
    """Whether rows longer than ``row_norm`` keep their length and count less, so that predictions are for rows as they
    are."""
    rests_on: ClassVar[str] = ""
    """What standard errors rest on."""
    default_alpha: ClassVar[float] = 1e-4
    """Strength of the penalty where the user leaves it open."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self, "step_size", None) is not None:
            check_bound("step_size", self.step_size)  # type: ignore[attr-defined]
        if getattr(self, "combine", "auto") not in COMBINE:
            raise BudgetError(f"combine must be one of {', '.join(map(repr, COMBINE))}, got {self.combine!r}")  # type: ignore[attr-defined]

    @property
    def problem(self) -> Problem:
        """What was stated."""
        return self.statement

    def one_row_each(self) -> Self:
        alike = self.public.one_row_each()
        return replace(self, public=alike, statement=replace(self.problem, public=alike))

    @property
    def no_intervals(self) -> str:
        return (
            f"of solver={self.name!r} it is not known how noise and data move the solution, which takes a Hessian and "
            "the variation of gradients there. Standard errors are known of solver='newton' (logistic loss), "
            "'sufficient-statistics' (squared loss) and 'robust-newton' (Huber's, or squares with residuals that are "
            "cut), with a ridge penalty or none and without a constraint; LogisticRegression of two classes has them "
            "by bootstrap(public_X=...) with every solver, by public rows"
        )

    @property
    def measured(self) -> str:
        """What a plan says that its error is, and what else public numbers tell."""
        return self.measures

    @abstractmethod
    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        """Of one binary problem: coefficients, then the weight of the constant feature."""

    @property
    def foresees(self) -> bool:
        return self.is_compared

    @property
    def is_compared(self) -> bool:
        """Whether `prediction` knows how the solver ends, case by case, so that solvers can be compared."""
        problem = self.problem
        bounded = problem.loss.labels == "real" or math.isfinite(problem.loss.derivative_bound)
        return self._is_followed and problem.row_norm is not None and problem.loss.convex and bounded

    @property
    def _is_followed(self) -> bool:
        """Whether `foreseen` knows how the solver ends."""
        return False

    def foreseen(self, plan: Plan, rows: Cases) -> Vector:
        """Excess of the mean loss in each case of rows."""
        raise NotImplementedError

    @property
    def label_size(self) -> float:
        """What bounds real labels, or the part of them that counts."""
        return self.problem.loss.derivative_bound

    def prediction(self, plan: Plan) -> Prediction:
        """The excess in all cases that public numbers leave open."""
        problem = self.problem
        assert problem.row_norm is not None
        label_size = None if problem.loss.labels == "signs" else self.label_size
        rows = rows_before_a_fit(problem.n_features, problem.row_norm, problem.intercept, label_size)
        return predicted(self.foreseen(plan, rows), rows, response(problem.loss))

    def expected(self, plan: Plan) -> Expected:
        return self.prediction(plan).expected

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n = self.problem.n_problems
        return {"solutions": np.array([self.solution(oracle, t) for t in (range(n) if n > 1 else [None])])}


@dataclass(frozen=True)
class LoopMethod(LinearMethod):
    """A solver that goes from point to point.

    Parameters
    ----------
    n_rounds : int, optional
    start : sequence of float, optional
        Public point where it begins: the coefficients, and last the intercept if there is one; with several classes
        all of them begin there. Default: the point of the set that is nearest to 0.
    """

    start: Sequence[float] | None = field(default=None, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None:
            object.__setattr__(self, "start", public_vector("start", self.start))

    def _with(self, public: Public, statement: Any, **choices: Any) -> Self:
        decided = super()._with(public, statement, **choices)
        decided._check_start()
        return decided

    def _check_start(self) -> None:
        """Refuse a point that is none of the problem's, or is outside of its set."""
        problem = self.problem
        if self.start is None:
            return
        if len(self.start) != problem.n_parameters:
            last = ", the intercept last" if problem.intercept else " (there is no intercept)"
            raise BudgetError(
                f"start must have {problem.n_parameters} numbers, one for each of the {problem.n_features} "
                f"coefficients{last}, got {len(self.start)}"
            )
        point = self._in_set(self._first(problem.intercept))
        if problem.constraint is None:
            return
        away = float(np.linalg.norm(point - problem.constraint.project(point)))
        if not away <= INSIDE * float(np.linalg.norm(point)):
            raise BudgetError(
                f"start={self._shown_start} is outside of the constraint, {away:.3g} from {problem.constraint!r}: "
                "begin at a point of the set (its project() gives the nearest one), or leave start out"
            )

    def _in_set(self, point: Vector) -> Vector:
        """The part of a point that the constraint is on."""
        return point[: self.problem.n_features]

    def _first(self, constant: float) -> Vector:
        """Where the loop begins: coefficients, then the weight of the constant feature of that size, if it has one."""
        if self.start is not None:
            point = np.array(self.start)
            if constant:
                point[-1] /= constant
            return point
        point, constraint = np.zeros(self.problem.n_parameters), self.problem.constraint
        if constraint is not None:  # some sets are without 0, and some solvers may return where they began
            inside = self._in_set(point)
            point[: len(inside)] = constraint.project(inside)
        return point

    @property
    def _shown_start(self) -> str:
        numbers = [f"{number:.6g}" for number in self.start or ()]
        return f"[{', '.join(numbers[:6])}{', ...' if len(numbers) > 6 else ''}]"


def need(problem: Problem, *names: str) -> None:
    """Refuse a method whose public bounds are not declared."""
    for name in names:
        if getattr(problem, name) is None:
            raise MissingBound(f"{name} is missing: {BOUNDS[name]}")


def need_prox(problem: Problem, solver: str) -> None:
    """Refuse a penalty that a solver could only take the gradient of, where its proof needs a proximal step."""
    if problem.smooth_penalty is not None:
        raise BudgetError(
            f"solver={solver!r} needs a penalty with a proximal step, such as ElasticNet(1e-4), and "
            f"penalty={problem.penalty!r} has a gradient only: use solver='gradient', which adds that to what was "
            "released"
        )


def need_ridge(problem: Problem, solver: str) -> None:
    """Refuse sets, and penalties other than a ridge, where all parameters are solved for at once."""
    if problem.constraint is not None:
        raise BudgetError(
            f"solver={solver!r} minimises over all parameters: leave out the constraint, or use solver='gradient'"
        )
    penalty = problem.penalty
    if penalty is not None and (not isinstance(penalty, ElasticNet) or penalty.l1_ratio != 0):
        raise BudgetError(
            f"solver={solver!r} takes a ridge penalty, ElasticNet(alpha) with l1_ratio=0, got {penalty!r}; use "
            "solver='gradient' for others"
        )


def check_sizes(longest: float, largest: float) -> None:
    """Refuse bounds of rows and of residuals whose product, or what counts may leave of it, no sum can be bounded by.

    Sizes that are chosen by released counts are many octaves below: what is too small then is found after the charge.
    """
    if not (SMALLEST <= longest <= LARGEST and SMALLEST <= longest * largest <= LARGEST):
        raise BudgetError(
            f"rows of norm {longest:.3g} and labels or residuals of {largest:.3g} make sums too small or too large for "
            f"their sensitivity: norms, and their product with the other, have to be between {SMALLEST:g} and "
            f"{LARGEST:g}. Measure labels or features in other units"
        )


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

"""Newton steps from a private second moment, private Hessians and gradients (dp-newton).

The Hessian at 0 is released first: for a logistic loss a quarter of the second moment ``A = sum z z'`` of the bounded
rows with their constant feature. Each round then releases a gradient and, in the first rounds after it, the Hessian
or, where data are too few for a matrix, the mean curvature that scales ``A``; there the numbers of rows of each class
are released as well, and steps begin at the best constant. What is made of them is
`dpdist.solvers.filtered_newton`: every step is weighed by what its noise allows, so that there is no step size, no
floor and no penalty to choose.

Rows longer than ``row_norm`` keep their length and direction, and count by the square of its ratio to their norm: in
gradients, Hessians and counts alike, so that all are those of one weighted loss. Its minimiser is that of all rows
where the model holds; shortened rows would have another.

Why it is private: rows enter through sums whose sensitivities are exact (`dpdist.queries.moment_sums`,
`dpdist.queries.gradient_sums`, `dpdist.queries.curvature_sums`). At w = 0 all residuals are ``|l'(0)|`` (1/2 for the
logistic loss, half of the bound): the first gradient is clipped there and costs a quarter. Sources: Ganesh, Haghifam,
Steinke and Thakurta (2023) for private second-order steps; the gains are those of a Kalman filter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need, need_ridge, reads
from dpdist.central.linear.loss_curvature import loss_curvature
from dpdist.central.linear.normal_rows import Filter, Rows, newton, response
from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Logistic, Loss
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.class_counts import ClassCounts
from dpdist.queries.curvature_sums import CurvatureSum
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import HessianSum
from dpdist.solvers.filtered_newton import (
    CONSTANT,
    MOVED_HESSIAN,
    SCARCE,
    Noisy,
    Question,
    Solution,
    counted_rows,
    error_of_hessian,
    filtered_newton,
)
from dpdist.solvers.loops import drive
from dpdist.solvers.margins import MARGINS, STEEPEST, Curvature
from dpdist.solvers.standard_errors import Uncertainty, sandwich

MOMENT_SHARE = 0.10
HESSIAN_SHARE = 0.15
"""Of all Hessians together."""
CURVATURE_SHARE = 0.01
"""Of a mean curvature."""
HESSIANS = 4
LONG, SHORT = 7, 6
"""Rounds with Hessians, and without."""
GROWTH = 1.3
"""Of the gradients' shares from round to round where there are Hessians: the last steps matter most."""
FIRST = 0.6
"""What the first gradient gets of its part: its sensitivity is half of the others'."""
SCARCE_FIRST = 2 / 3
"""Of all gradients, where data are scarce: no later point is far from the best margin for all rows."""
KNOWN_CLASSES = 0.01
"""Standard deviation of the classes' shares that numbers of rows are to have, where there are no Hessians: steps begin
at the best margin for all rows then. A constant that is wrong would cost more than slopes gain, and gradients of
weighed rows do not tell it: there long rows count less."""
CLASS_SHARES = (0.01, 0.1)
"""Of the budget, for them."""
HESSIAN_SIGNAL = 500.0
"""Rows x mu / sqrt(features) below which Hessians that stand out of their noise still lose: what they cost gradients is
more than what they tell."""
MOST_FEATURES = 1000
"""Above it matrices cost more time and noise than they gain."""


@dataclass(frozen=True)
class Newton(LinearMethod):
    """Newton steps with released Hessians, each weighed by what its noise allows.

    For smooth convex losses whose curvature at 0 is known (logistic); a ridge penalty or none, on all rows. The
    budget: 10 % for the second moment, 15 % for four Hessians (or 1 % a round for the mean curvature and up to 10 %
    for the numbers of rows of each class), the rest for the gradients.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 7 with Hessians, 6 without.
    hessians : bool, optional
        Default: whether public numbers let a Hessian stand out of its noise.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=Newton(n_rounds=5),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.2,  5.3, -1.5, -2. ]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "Newton", "newton"
    default_alpha: ClassVar[float] = 0.0
    weighs: ClassVar[bool] = True
    rests_on: ClassVar[str] = (
        "Rests on the last released Hessian, the noise of all gradients, and labels that follow the logistic model."
    )

    hessians: bool | None = None

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        check_classes(problem, self.name)
        asked = self._with(public, problem)
        hessians = asked._hessian_stands_out() if self.hessians is None else self.hessians
        return asked._with(public, problem, hessians=hessians, n_rounds=self.n_rounds or (LONG if hessians else SHORT))

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        return [
            Line("second moment", SymmetricGaussian(), self._moment, share=MOMENT_SHARE),
            *self._curvature_lines(),
            *([class_line(self.problem)] if self._leveled else []),
            *(
                Line(f"gradient {k + 1}", Gaussian(), self._gradient(k), count=self.problem.n_problems, share=share)
                for k, share in enumerate(self._gradient_shares())
            ),
        ]

    @property
    def kinds(self) -> list[Any]:
        """What each round asks before its gradient."""
        if self.hessians:
            return ["hessian" if 1 <= k <= HESSIANS else "gradient" for k in range(self.rounds)]
        return ["curvature" if k else "gradient" for k in range(self.rounds)]

    def _curvature_lines(self) -> list[Line]:
        asked = len([kind for kind in self.kinds if kind != "gradient"])
        count = asked * self.problem.n_problems
        if not count:
            return []
        if self.hessians:
            return [Line("hessian", SymmetricGaussian(), self._hessian(), count=count, share=HESSIAN_SHARE)]
        return [Line("curvature", Gaussian(), self._curvature(), count=count, share=CURVATURE_SHARE * asked)]

    @property
    def _leveled(self) -> bool:
        return not self.hessians and self.rounds > 1 and has_level(self.problem)

    def _gradient_shares(self) -> list[float]:
        rest = 1 - MOMENT_SHARE - sum(line.share for line in self._curvature_lines())
        rest -= class_line(self.problem).share * self._leveled
        parts = (GROWTH if self.hessians else 1.0) ** np.arange(self.rounds)
        parts *= rest / parts.sum()
        if self.rounds > 1:
            first = parts[0]
            parts[0] = FIRST * first if self.problem.signal >= SCARCE else max(SCARCE_FIRST * rest, first)
            parts[1:] *= (rest - parts[0]) / (rest - first)
        return [float(part) for part in parts]

    def _hessian_stands_out(self) -> bool:
        """Whether gradients are exact, and half of the largest mean eigenvalue there can be is above the noise."""
        problem = self.problem
        assert problem.row_norm is not None
        d = problem.n_parameters
        high = self._loss_curvature.at_zero
        noise = high * self._length**2 / (self.problem.mu * math.sqrt(HESSIAN_SHARE / HESSIANS))
        above = problem.n_rows * high * problem.row_norm**2 / (2 * d) > 2 * math.sqrt(d) * noise
        return above and self.problem.signal >= HESSIAN_SIGNAL

    # -- the queries ------------------------------------------------------------------------------------------------

    @property
    def _length(self) -> float:
        assert self.problem.row_norm is not None
        return math.hypot(self.problem.row_norm, self.problem.intercept)

    @property
    def _moment(self) -> HessianSum:
        """The Hessian at 0, of any class: a row whose label is none counts here as little as in a gradient."""
        return self._hessian(0 if self.problem.n_problems > 1 else None)

    def _hessian(self, target: int | None = None) -> HessianSum:
        assert self.problem.row_norm is not None
        return HessianSum(self.problem.loss, self.problem.row_norm, self.problem.intercept, target, weighed=True)

    def _curvature(self, target: int | None = None) -> CurvatureSum:
        assert self.problem.row_norm is not None
        return CurvatureSum(self.problem.loss, self.problem.row_norm, self.problem.intercept, target, weighed=True)

    def _gradient(self, number: int, target: int | None = None) -> GradientSum:
        return gradient_of_round(self.problem, number, target)

    # -- the solution -----------------------------------------------------------------------------------------------

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n = self.problem.n_problems
        found = [self._solved(oracle, t) for t in (range(n) if n > 1 else [None])]
        return {
            "solutions": np.array([s.point for s in found]),
            "expected_error": sum(s.excess / s.n_rows for s in found) / n,
            "uncertainty": self._uncertainty(found, oracle),
        }

    def _uncertainty(self, found: Sequence[Solution], oracle: Oracle) -> list[Uncertainty] | str:
        """By the last Hessian; gradients of a likelihood vary by that of the loss, which has no part of the penalty."""
        problem = self.problem
        if not isinstance(problem.loss, Logistic):
            return (
                f"the loss {problem.loss.name!r} is no likelihood, so that the Hessian does not tell by how much its "
                "gradients vary from row to row. Standard errors are known of LogisticRegression"
            )
        ridge = np.full(problem.n_parameters, problem.strong_convexity * problem.n_rows)
        ridge[problem.n_features :] = 0.0
        at_zero = self._at_zero(oracle)
        return [
            sandwich(
                s.noise, s.shrinkage, s.hessian, s.hessian - np.diag(ridge), pull=ridge * s.point,
                # the Hessian has the directions of that at 0, and their noise, times how much smaller it is
                hessian_std=at_zero.std * float(np.clip(np.trace(s.hessian) / np.trace(at_zero.value), 0.0, 1.0)),
            )
            for s in found
        ]  # fmt: skip

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._solved(oracle, target).point

    def _at_zero(self, oracle: Oracle) -> Noisy:
        """The second moment of the rows, times the curvature of the loss at 0."""
        found: Noisy = oracle.once("second moment", lambda: self._ask(oracle, "second moment", None, None))
        return found

    def _solved(self, oracle: Oracle, target: int | None) -> Solution:
        problem = self.problem
        assert problem.row_norm is not None
        at_zero = self._at_zero(oracle)
        high = self._loss_curvature.at_zero
        loop = filtered_newton(
            Noisy(at_zero.value / high, at_zero.std / high),
            self._loss_curvature,
            n_rows=problem.n_rows,
            row_norm=problem.row_norm,
            constant=problem.intercept,
            ridge=problem.strong_convexity * problem.n_rows,
            rounds=self.kinds,
            signal=problem.signal,
            labels=mean_label(problem, oracle, target) if self._leveled else None,
        )

        def answer(question: Question) -> Noisy:
            if question.kind == "gradient":
                query: Query = self._gradient(question.round, target)
                return self._ask(oracle, f"gradient {question.round + 1}", oracle.visit(question.point), query)
            query = self._hessian(target) if question.kind == "hessian" else self._curvature(target)
            return self._ask(oracle, question.kind, question.point, query)

        return drive(loop, answer)

    def _ask(self, oracle: Oracle, name: str, point: Vector | None, query: Query | None) -> Noisy:
        state = np.zeros(self.problem.n_parameters) if point is None else point
        value = oracle.ask(name, state, query)
        return Noisy(unpack_symmetric(value) if name in ("second moment", "hessian") else value, oracle.noise_std)

    @property
    def _loss_curvature(self) -> Curvature:
        return loss_curvature(self.problem.loss)

    @property
    def _is_followed(self) -> bool:
        return True

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        problem = self.problem
        scarce = self.problem.signal < SCARCE
        told = response(problem.loss)

        def std(name: str, query: Query) -> float:
            return plan[name].mechanism.noise_std(query.sensitivity(problem.neighbours))

        def revised(information: Vector, squares: Vector) -> Vector:
            seen = told.linearised(squares)
            wanted = (seen**2 / MARGINS) ** (information / (information + 2))
            factor = told.unlinearised(np.sqrt(MARGINS * wanted), STEEPEST) ** 2 / MARGINS
            return factor if scarce else np.maximum(factor, 1.0)

        gradients = [std(f"gradient {k + 1}", self._gradient(k)) for k in range(self.rounds)]
        level = None
        if self._leveled:
            level = label_std(problem, plan) * slope_at_zero(problem.loss) / (problem.intercept * told.at_zero)
        asked = Filter(
            kinds=self.kinds,
            gradients=gradients,
            moment=std("second moment", self._moment) / (math.sqrt(2) * told.at_zero),
            hessian=std("hessian", self._hessian()) / math.sqrt(2) if "hessian" in self.kinds else 0.0,
            margins=MARGINS,
            constant=CONSTANT,
            known=error_of_hessian(self.kinds),
            moved=MOVED_HESSIAN,
            revised=revised,
            unlinearised=lambda squares: told.unlinearised(np.sqrt(squares), STEEPEST) ** 2,
            level=level,
            resized=None if level is None else revised,
        )
        return newton(rows, told, problem.n_rows, problem.strong_convexity * problem.n_rows, asked)


def has_level(problem: Problem) -> bool:
    """Whether a constant is fitted, and shares of the classes tell the best one."""
    return problem.intercept > 0 and loss_curvature(problem.loss).level is not None


def class_line(problem: Problem) -> Line:
    """Of the numbers of rows of each class, all at once."""
    classes, budget = problem.n_problems, problem.budget
    known = KNOWN_CLASSES * problem.public.n_units * gdp_mu(budget.epsilon, budget.delta)
    share = float(np.clip(known**-2, *CLASS_SHARES))
    return Line("classes", Gaussian(), ClassCounts(max(classes, 2), signs=classes == 1), share=share)


def mean_label(problem: Problem, oracle: Oracle, target: int | None) -> Noisy:
    """Of signs, or of one class against the rest, by released counts.

    Rows without a class count nowhere; where all have one, the counts add up to their public number.
    """
    found = oracle.once("classes", lambda: Noisy(oracle.ask("classes"), oracle.noise_std))
    k = len(found.value)
    total = float(found.value.sum())
    rows = counted_rows(total, math.sqrt(k) * found.std, problem.n_rows, 1.0)
    own = float(found.value[1 if target is None else target]) + (rows - total) / k
    return Noisy(np.array([2 * own / rows - 1]), 2 * math.sqrt(1 - 1 / k) * found.std / rows)


def label_std(problem: Problem, plan: Plan) -> float:
    """The standard deviation of `mean_label`, where all rows have a class."""
    line = class_line(problem)
    assert line.query is not None and line.query.size is not None
    std = plan[line.name].mechanism.noise_std(line.query.sensitivity(problem.neighbours))
    return 2 * math.sqrt(1 - 1 / line.query.size) * std / problem.n_rows


def gradient_of_round(problem: Problem, number: int, target: int | None) -> GradientSum:
    """What a round asks: the first at 0, where residuals are known."""
    assert problem.row_norm is not None and isinstance(problem.gradient, ClipNorm)
    slope = problem.loss.derivative_bound if number else slope_at_zero(problem.loss)
    length = math.hypot(problem.row_norm, problem.intercept)
    clip_norm = min(slope * length, problem.gradient.clip_norm or math.inf)
    return GradientSum(problem.loss, problem.row_norm, clip_norm, problem.intercept, target, weighed=True)


def slope_at_zero(loss: Loss) -> float:
    """The largest derivative there."""
    return float(np.abs(loss.derivative(np.zeros(2), np.array([1.0, -1.0]))).max())


def check_classes(problem: Problem, solver: str) -> None:
    """Refuse losses whose curvature at 0 is not known, and all that Newton steps do not minimise with."""
    loss = problem.loss
    if type(loss).second_derivative is Loss.second_derivative:
        raise BudgetError(f"the loss {loss.name!r} has no second_derivative(u, y), which solver={solver!r} needs")
    at_zero = loss.second_derivative(np.zeros(2), np.array([1.0, -1.0])) if loss.labels == "signs" else np.zeros(2)
    alike = loss.convex and at_zero[0] == at_zero[1] > 0 and math.isfinite(loss.derivative_bound)
    if not alike:
        raise BudgetError(
            f"solver={solver!r} is for convex losses of two classes with bounded derivatives and one curvature at 0, "
            f"such as the logistic one, and {loss.name} is not one: use solver='gradient'"
        )
    need_ridge(problem, solver)

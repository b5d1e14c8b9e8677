"""Newton steps in the span of the released gradients, for many features (dp-newton-subspace).

A second moment of d features is a matrix whose noise hides all eigenvalues below ``2 sqrt(d)`` of its standard
deviations. Along the k directions of the gradients that were released so far the noise is that of k rows: each round
releases a gradient, adds its direction, releases the Hessian along all of them, and minimises in their span
(`dpdist.solvers.subspace_newton`). Curvature costs O(d) numbers and time, there is no step size, no penalty to choose
and no worst case, and twelve passes read the rows.

The first gradient is at w = 0, where residuals are known, and where data are scarce steps begin at the best margin for
all rows, by released counts of classes, both as with Newton steps (`dpdist.central.linear.newton`); rows longer than
``row_norm`` count less.

Why it is private: directions and points are functions of releases. A row enters through clipped gradients and through
the outer product of its coordinates along the directions, which are no longer than the row, whatever the directions
(`dpdist.queries.direction_sums`): both sums have the exact sensitivities of `dpdist.queries.gradient_sums` and
`dpdist.queries.moment_sums`. Sources: Ganesh, Haghifam, Steinke and Thakurta (2023) for private second-order steps;
conjugate gradients, and shrinkage as of James and Stein.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need, reads
from dpdist.central.linear.loss_curvature import loss_curvature
from dpdist.central.linear.newton import (
    FIRST,
    MOST_FEATURES,
    Newton,
    check_classes,
    class_line,
    gradient_of_round,
    has_level,
    label_std,
    mean_label,
    slope_at_zero,
)
from dpdist.central.linear.normal_rows import Rows, response
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.direction_sums import Along, DirectionHessianSum
from dpdist.queries.gradient_sums import GradientSum
from dpdist.solvers.filtered_newton import Noisy
from dpdist.solvers.loops import drive
from dpdist.solvers.subspace_newton import Question, subspace_newton

HESSIAN_SHARE = 0.15
"""Of all Hessians together."""
COARSE = 100.0
"""Signal to noise (rows x mu / sqrt(features)) below which steps begin at the best margin for all rows."""
ROUNDS = 6
SEED = 0
"""Of the noise of a prediction."""


@dataclass(frozen=True)
class SubspaceNewton(LinearMethod):
    """Newton steps in the span of the released gradients.

    For smooth convex losses whose curvature at 0 is known (logistic); a ridge penalty or none, on all rows. 15 % of
    the budget is for Hessians along the directions.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 6, of two passes each.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(10_000, 200)) / 200**0.5
    >>> y = (X @ rng.normal(size=200) > 0).astype(int)
    >>> bounds = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    >>> LogisticRegression(solver="subspace", **bounds).fit(X, y).score(X, y) > 0.7
    True
    """

    tag, name = "SubspaceNewton", "subspace"
    default_alpha: ClassVar[float] = 0.0
    weighs: ClassVar[bool] = True

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        check_classes(problem, self.name)
        return self._with(public, problem, n_rounds=self.n_rounds or ROUNDS)

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        n = self.problem.n_problems
        parts = np.ones(self.rounds)
        if self.rounds > 1:
            parts[0] = FIRST
        classes = [class_line(self.problem)] if self._level else []
        parts *= (1 - HESSIAN_SHARE - sum(line.share for line in classes)) / parts.sum()
        return [
            *classes,
            Line(
                "hessian",
                SymmetricGaussian(),
                self._hessian(),
                count=(self.rounds - self._level) * n,
                share=HESSIAN_SHARE,
            ),
            *(
                Line(f"gradient {t + 1}", Gaussian(), self._gradient(t), count=n, share=float(part))
                for t, part in enumerate(parts)
            ),
        ]

    @property
    def _level(self) -> bool:
        """Whether steps begin at the best margin for all rows."""
        return self.problem.signal < COARSE and has_level(self.problem) and self.rounds > 1

    def _hessian(self, target: int | None = None) -> DirectionHessianSum:
        assert self.problem.row_norm is not None
        return DirectionHessianSum(
            self.problem.loss, self.problem.row_norm, self.problem.intercept, target, weighed=True
        )

    def _gradient(self, number: int, target: int | None = None) -> GradientSum:
        return gradient_of_round(self.problem, number, target)

    # -- the solution -----------------------------------------------------------------------------------------------

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem = self.problem

        def answer(question: Question) -> Noisy:
            if question.kind == "hessian":
                along = Along(question.directions, question.weights)
                value = oracle.ask("hessian", along, self._hessian(target))
                return Noisy(unpack_symmetric(value), oracle.noise_std)
            point, query = oracle.visit(question.point), self._gradient(question.round, target)
            return Noisy(oracle.ask(f"gradient {question.round + 1}", point, query), oracle.noise_std)

        return self._drive(answer, mean_label(problem, oracle, target) if self._level else None)

    def _drive(self, answer: Callable[[Question], Noisy], labels: Noisy | None) -> Vector:
        problem = self.problem
        loop = subspace_newton(
            loss_curvature(problem.loss),
            n_features=problem.n_features,
            constant=problem.intercept,
            ridge=problem.strong_convexity * problem.n_rows,
            n_rounds=self.rounds,
            labels=labels,
        )
        return drive(loop, answer)

    # -- what to expect ---------------------------------------------------------------------------------------------

    @property
    def _is_followed(self) -> bool:
        return True

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        """Of the same steps, on sums over normal rows of each case and noise from a fixed seed."""
        rng = np.random.default_rng(SEED)
        return np.concatenate([self._simulated(plan, each, rng) for each in rows.cases()])

    def _simulated(self, plan: Plan, rows: Rows, rng: np.random.Generator) -> Vector:
        problem, told = self.problem, response(self.problem.loss)
        n, d, neighbours = problem.n_rows, problem.n_features, problem.neighbours
        moments = rows.moments[0]
        best = np.sqrt(rows.weights[0]) * rng.choice([-1.0, 1.0], size=len(moments))
        signal = told.slope(rows.squares) * moments * best
        hessian_std = plan["hessian"].mechanism.noise_std(self._hessian().sensitivity(neighbours))

        def answer(question: Question) -> Noisy:
            point, directions = question.point, question.directions
            curvature = told.slope(rows.sum(moments * point**2)) * moments
            if question.kind == "hessian":
                along = directions.T @ (curvature[:d, None] * directions)
                k = len(along)
                matrix = np.diag(np.append(np.zeros(k), [curvature[:d].sum() - np.trace(along), *curvature[d:]]))
                matrix[:k, :k] = along
                noise = np.asarray(hessian_std / 2 * rng.normal(size=matrix.shape))
                return Noisy(n * matrix + noise + noise.T, hessian_std)
            query = self._gradient(question.round)
            std = plan[f"gradient {question.round + 1}"].mechanism.noise_std(query.sensitivity(neighbours))
            return Noisy(n * (curvature * point - signal) + std * rng.normal(size=len(point)), std)

        labels = None
        if self._level:  # the best constant without the slopes is a smaller one
            mean, std = signal[d] / (problem.intercept * slope_at_zero(problem.loss)), label_std(problem, plan)
            labels = Noisy(np.array([mean + std * rng.normal()]), std)
        point = self._drive(answer, labels)
        there = best != 0
        reached = np.divide(point, best, out=np.zeros_like(point), where=there)
        return told.excess(rows, reached[None], np.where(there, 0.0, point**2)[None])


def newton_steps(problem: Problem) -> list[LinearMethod]:
    """The kinds of Newton steps that are made for the problem, the one for few rows first."""
    try:
        check_classes(problem, "newton")
    except BudgetError:
        return []
    return [SubspaceNewton()] if problem.n_features > MOST_FEATURES else [Newton()]

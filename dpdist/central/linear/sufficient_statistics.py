"""Linear regression from its sufficient statistics, and one gradient that mends them (dp-adassp).

The joint second moment of rows, constant feature and scaled labels is released once: ``X'X``, ``X'y`` and ``y'y``. Its
noise is known, so that every direction of the solution is shrunk by what it leaves of the signal (adaptive sufficient
statistics, Wang 2018, with a gain for each direction in place of one ridge). A second pass asks one gradient at that
solution: the residuals are smaller than the labels and are cut at a multiple of their released size, so that the
noise is smaller as well. What cutting may do to skewed residuals counts as error of that gradient, in the intercept and
in slopes, so that both follow the first release where this would be more than its noise: labels 0 and 1 of which one in
twenty is 1 have the slopes of least squares.

Rows longer than ``row_norm`` count by the square of its ratio to their norm, with their label: least squares with
weights, whose solution is that of all rows where the model holds.

Why it is private: both are sums of bounded rows (`dpdist.queries.moment_sums`, `dpdist.queries.gradient_sums`);
solution, cut and gains follow from releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipLabel
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need, need_ridge, reads
from dpdist.central.linear.normal_rows import Rows, least_squares
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber, Squared
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import SecondMomentSum
from dpdist.solvers.least_squares import (
    ERROR_OF_MOMENT,
    Posterior,
    bias_of_cut,
    first_posterior,
    improved,
    shown_of_bias,
)
from dpdist.solvers.standard_errors import Uncertainty, sandwich

MOMENT_SHARE = 0.7
LABEL_SCALE = 0.7
"""Of labels at their bound, relative to rows at theirs: less would hide X'y, more would hide X'X."""
KNOWN = 100.0
"""Rows x mu over which the constant feature is as large as row_norm."""
LARGEST_CONSTANT = 2.0
"""Relative to row_norm."""
PASSES = 2
RESIDUALS = 2.5
"""Standard deviations at which residuals are cut."""


@dataclass(frozen=True)
class SufficientStatistics(LinearMethod):
    """The joint second moment of rows and labels, and one gradient at what follows from it.

    For the squared loss, with a ridge penalty or none, on all rows; ``gradient=ClipLabel(label_bound)`` bounds the
    labels. Two passes.
    """

    tag, name = "SufficientStatistics", "sufficient-statistics"
    rests_on: ClassVar[str] = (
        "Rests on the released second moment and residuals, the noise of both releases, labels within label_bound, and "
        "errors that have the same law at all rows."
    )

    n_rounds: int | None = field(default=PASSES, kw_only=True, repr=False, metadata=DECIDED)

    default_alpha: ClassVar[float] = 0.0
    weighs: ClassVar[bool] = True

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipLabel)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        if self._label_bound(problem) is None:
            raise MissingBound(
                f"label_bound is missing: {BOUNDS['label_bound']}, with gradient=ClipLabel(label_bound=...)"
            )
        _check(problem, self.name)
        return self._with(public, problem)

    def lines(self) -> Sequence[Line]:
        return [
            Line("second moment", SymmetricGaussian(), self.moment, share=MOMENT_SHARE),
            Line("gradient", Gaussian(), share=1 - MOMENT_SHARE),
        ]

    @property
    def moment(self) -> SecondMomentSum:
        """Of rows, constant feature and labels."""
        row_norm, bound = self._bounds
        scale = LABEL_SCALE * self._length / bound
        return SecondMomentSum(
            self.problem.n_features,
            row_norm,
            label_bound=bound,
            label_scale=scale,
            intercept=self.constant,
            whole=True,
        )

    @property
    def constant(self) -> float:
        """The constant feature: where data are scarce it is larger than that of the problem, or nothing would tell the
        mean of the labels."""
        problem, public = self.problem, self.public
        if not problem.intercept:
            return 0.0
        strength = public.n_units * gdp_mu(public.budget.epsilon, public.budget.delta)
        return max(problem.intercept, min(KNOWN / strength, LARGEST_CONSTANT) * self._bounds[0])

    def _in_units(self, point: Vector) -> Vector:
        """The same with the constant feature of the problem."""
        found = point.copy()
        found[self.problem.n_features :] *= self.constant / (self.problem.intercept or 1.0)
        return found

    def gradient(self, cut: float) -> GradientSum:
        """Of the squared loss with residuals cut there, which is Huber's."""
        row_norm, _ = self._bounds
        return GradientSum(Huber(cut), row_norm, cut * self._length, self.constant, weighed=True)

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._in_units(self._solved(oracle)[1].point)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        first, found = self._solved(oracle)
        return {
            "solutions": self._in_units(found.point)[None],
            "expected_error": found.excess / found.n_rows,
            "uncertainty": [self._uncertainty(first, found)],
        }

    def _uncertainty(self, first: Posterior, found: Posterior) -> Uncertainty:
        """For errors that are as large at all rows: ``J = s^2 X'X``."""
        problem = self.problem
        ridge = problem.strong_convexity * problem.n_rows * self._slopes
        variance = first.least_residuals(first.left_by_noise)
        known = sandwich(
            found.stated, found.shrinkage, found.moment, variance * (found.moment - np.diag(ridge)),
            pull=ridge * found.point, hessian_std=math.sqrt(2) * found.noise,
        )  # fmt: skip
        return known.mapped(np.diag(self._in_units(np.ones(problem.n_parameters))))

    @property
    def _slopes(self) -> Vector:
        """1 for coefficients, 0 for the constant feature, which has no penalty."""
        slopes = np.ones(self.problem.n_parameters)
        slopes[self.problem.n_features :] = 0.0
        return slopes

    def _solved(self, oracle: Oracle) -> tuple[Posterior, Posterior]:
        """After the second moment, and after the gradient."""
        problem, moment = self.problem, self.moment
        row_norm, bound = self._bounds
        ridge = problem.strong_convexity * problem.n_rows
        found = first_posterior(
            unpack_symmetric(oracle.ask("second moment")),
            oracle.noise_std / math.sqrt(2),
            label_scale=moment.label_scale,
            label_bound=bound,
            n_rows=problem.n_rows,
            row_norm=row_norm,
            constant=self.constant,
            ridge=ridge,
        )
        cut = RESIDUALS * min(found.residuals, 2 * bound)
        oracle.visit(self._in_units(found.point))
        gradient = oracle.ask("gradient", found.point, self.gradient(cut))
        gradient = gradient + ridge * self._slopes * found.point
        bias = bias_of_cut(found, cut, self.constant)
        shown = shown_of_bias(found, gradient, oracle.noise_std, cut, self.constant)
        return found, improved(found, gradient, oracle.noise_std, bias, shown)

    @property
    def _is_followed(self) -> bool:
        return True

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        neighbours = self.problem.neighbours
        noise = plan["second moment"].mechanism.noise_std(self.moment.sensitivity(neighbours)) / math.sqrt(2)
        cut = RESIDUALS * rows.residuals
        later = plan["gradient"].mechanism.noise_std(self.gradient(1.0).sensitivity(neighbours)) * cut
        first = np.full(len(cut), noise / self.moment.label_scale)
        return least_squares(
            rows.with_constant(self.constant), self.problem.n_rows, (first, later), noise, ERROR_OF_MOMENT
        )

    @property
    def label_size(self) -> float:
        return self._bounds[1]

    @property
    def _bounds(self) -> tuple[float, float]:
        row_norm, label_bound = self.problem.row_norm, self._label_bound(self.problem)
        assert row_norm is not None and label_bound is not None
        return row_norm, label_bound

    @staticmethod
    def _label_bound(problem: Problem) -> float | None:
        return problem.gradient.label_bound if isinstance(problem.gradient, ClipLabel) else None

    @property
    def _length(self) -> float:
        return math.hypot(self._bounds[0], self.constant)


def _check(problem: Problem, solver: str) -> None:
    if not isinstance(problem.loss, Squared) or problem.n_problems > 1:
        raise BudgetError(
            f"solver={solver!r} is for the squared loss, not for {problem.loss.name}: use solver='gradient'"
        )
    need_ridge(problem, solver)

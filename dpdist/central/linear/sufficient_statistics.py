"""Linear regression from its sufficient statistics, and one gradient that mends them (dp-adassp).

The joint second moment of rows, constant feature and scaled labels is released once: ``X'X``, ``X'y`` and ``y'y``. Its
noise is known, so that every direction of the solution is shrunk by what it leaves of the signal (adaptive sufficient
statistics, Wang 2018, with a gain for each direction in place of one ridge). A second pass asks one gradient at that
solution: the residuals are smaller than the labels and are cut at a multiple of their released size, so that the
noise is smaller as well. What cutting may do to skewed residuals counts as error of that gradient, in the intercept and
in slopes, so that both follow the first release where this would be more than its noise: labels 0 and 1 of which one in
twenty is 1 have the slopes of least squares.

Rows longer than ``row_norm`` count by the square of its ratio to their norm, with their label: least squares with
weights, whose solution is that of all rows where the model holds. Where data are few the rows' norms are counted first,
in octaves below ``row_norm`` and for 2 % of the budget, and the norm that matters is a usual one: where noise is least.
So are the sizes of the labels, for another 2 %: a public bound of labels is often many times their usual size, and the
noise of ``X'y`` is in proportion to it. Labels are cut where what that noise costs and what cutting costs is least, by
the plan and the counts; the gradient of the second pass, whose residuals are those of whole labels, mends what was cut.

Standard errors take errors for equally large at all rows, ``J = s^2 X'X``. With ``sandwich=True`` the sum of squared
gradients at the first solution is released as well, ``J = sum e^2 x x'`` with residuals cut at five of their standard
deviations: intervals then hold where the size of errors follows the rows (White 1980), as far as the difference to
``s^2 X'X`` stands out of its noise.

Why it is private: all are sums of bounded rows (`dpdist.queries.moment_sums`, `dpdist.queries.gradient_sums`);
solution, cuts and gains follow from releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipLabel
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import (
    LinearMethod,
    Problem,
    Vector,
    bounded_by,
    check_sizes,
    need,
    need_ridge,
    reads,
)
from dpdist.central.linear.normal_rows import Rows, least_squares
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.identity import ADDED
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber, ResidualSquares, Squared
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import HessianSum, SecondMomentSum
from dpdist.queries.scaled_rows import NormCounts, ResidualCounts
from dpdist.solvers.least_squares import (
    ERROR_OF_MOMENT,
    Posterior,
    bias_of_cut,
    first_posterior,
    improved,
    shown_of_bias,
)
from dpdist.solvers.octaves import scale_of_labels, scale_of_rows, tell
from dpdist.solvers.standard_errors import Matrix, Uncertainty, sandwich, shrunk_to

MOMENT_SHARE = 0.7
LABEL_SCALE = 0.7
"""Of labels at their bound, relative to rows at theirs: less would hide X'y, more would hide X'X."""
KNOWN = 100.0
"""Rows x mu over which the constant feature is as large as row_norm."""
CONSTANT = (0.4, 2.0)
"""Least and largest, relative to row_norm. Slopes are told by ``X'y - m X'1``, m the mean label: the noise of the sum
of the rows counts m / c times. With m at half of the label bound and c as large as one of 50 columns it is 2.5 times
that of ``X'y``; at .4 it is as large, for a seventh more noise in all."""
LOOK = 5000.0
"""Rows x mu / sqrt(features) below which the norms of rows are counted: the noise is in proportion to the norm beyond
which rows count less, and a usual one is often far below the public bound."""
NORM_SHARE = 0.02
"""And that of the counts of labels."""
ANY_LENGTH = 2.0**32
"""Of a row, relative to ``row_norm``, whose label is counted as it is."""
USUAL_LABELS = 2.0
"""Where labels are cut that were counted, relative to their root mean square: what a prediction takes it for."""
SQUARES_SHARE = 0.1
PASSES = 2
LARGEST_RATIO = 1e30
"""Of the label bound to ``row_norm``."""
RESIDUALS = 2.5
"""Standard deviations at which residuals are cut."""
LARGEST_RESIDUALS = 5.0
"""Those at which they are cut before they are squared."""


@dataclass(frozen=True)
class SufficientStatistics(LinearMethod):
    """The joint second moment of rows and labels, and one gradient at what follows from it.

    For the squared loss, with a ridge penalty or none, on all rows; ``gradient=ClipLabel(label_bound)`` bounds the
    labels. Two passes, and where data are few two before them that count the norms of rows and the sizes of labels.

    Parameters
    ----------
    sandwich : bool, default False
        Standard errors for errors whose size follows the rows, for a tenth of the budget and one more pass.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.central import ClipLabel
    >>> from dpdist.problems.linear_problems import linear
    >>> data, truth = linear(20_000, 3, random_state=0)
    >>> model = LinearRegression(solver=SufficientStatistics(sandwich=True), gradient=ClipLabel(1.5), row_norm=1.0,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), model.standard_errors_.round(3), truth.round(1)
    (array([-0.9, -0.4,  0.1]), array([0.003, 0.003, 0.003]), array([-0.9, -0.4,  0.1]))
    """

    tag, name = "SufficientStatistics", "sufficient-statistics"
    n_rounds: int | None = field(default=PASSES, kw_only=True, repr=False, metadata=DECIDED)

    sandwich: bool = field(default=False, kw_only=True, metadata=ADDED)

    default_alpha: ClassVar[float] = 0.0
    weighs: ClassVar[bool] = True

    @property
    def rests_on(self) -> str:  # type: ignore[override]
        known = (
            "Rests on the released second moment and residuals, the noise of both releases, labels within label_bound"
        )
        if self.sandwich:
            return (
                f"{known}, and squared gradients that were released: errors may be larger at some rows than at others."
            )
        return (
            f"{known}, and errors that have the same law at all rows. Where they are larger at some rows than at "
            "others intervals may be too narrow: solver=SufficientStatistics(sandwich=True) has them for any."
        )

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
        asked = self._with(public, problem)
        asked._check_sizes()
        return asked

    def _check_sizes(self) -> None:
        row_norm, label_bound = self._bounds
        if not 1 / LARGEST_RATIO <= label_bound / row_norm <= LARGEST_RATIO:
            raise BudgetError(
                f"label_bound={label_bound!r} and row_norm={row_norm!r} are too far apart for one matrix to hold both: "
                f"expected a ratio of at most {LARGEST_RATIO:g}. Measure labels or features in other units"
            )
        check_sizes(row_norm, label_bound)
        if not isinstance(self.sandwich, bool):
            raise BudgetError(f"sandwich must be True or False, got {self.sandwich!r}")

    def lines(self) -> Sequence[Line]:
        counts = [("row norms", self._norms), ("labels", self._labels)] if self._looks else []
        rest = 1 - NORM_SHARE * len(counts) - SQUARES_SHARE * self.sandwich
        return [
            *(Line(name, Gaussian(), query, share=NORM_SHARE) for name, query in counts),
            Line(
                "second moment",
                SymmetricGaussian(),
                None if counts else self.moment(*self._bounds),
                share=MOMENT_SHARE * rest,
            ),
            Line("gradient", Gaussian(), share=(1 - MOMENT_SHARE) * rest),
            *([Line("squared gradients", SymmetricGaussian(), share=SQUARES_SHARE)] if self.sandwich else []),
        ]

    @property
    def _looks(self) -> bool:
        """Whether the norms of the rows and the sizes of labels are counted."""
        return self.problem.signal < LOOK

    @property
    def _norms(self) -> NormCounts:
        return NormCounts(self._bounds[0])

    @property
    def _labels(self) -> ResidualCounts:
        """Residuals at 0, of rows that are not scaled down: labels are cut before they are."""
        row_norm, bound = self._bounds
        return ResidualCounts(bound, row_norm=ANY_LENGTH * row_norm)

    def moment(self, row_norm: float, bound: float) -> SecondMomentSum:
        """Of rows, constant feature and labels."""
        return SecondMomentSum(
            self.problem.n_features,
            row_norm,
            label_bound=bound,
            label_scale=LABEL_SCALE * self._length(row_norm) / bound,
            intercept=self.constant(row_norm),
            whole=True,
        )

    def constant(self, row_norm: float) -> float:
        """The constant feature, in proportion to the rows: mostly larger than that of the problem, and where data are
        scarce by so much that something tells the mean of the labels."""
        problem, public = self.problem, self.public
        if not problem.intercept:
            return 0.0
        strength = public.n_units * gdp_mu(public.budget.epsilon, public.budget.delta)
        largest = self._bounds[0]
        wanted = float(np.clip(KNOWN / strength, *CONSTANT)) * largest
        return max(problem.intercept, wanted) * (row_norm / largest)

    def _in_units(self, point: Vector, row_norm: float) -> Vector:
        """The same with the constant feature of the problem."""
        found = point.copy()
        found[self.problem.n_features :] *= self.constant(row_norm) / (self.problem.intercept or 1.0)
        return found

    def gradient(self, cut: float, row_norm: float) -> GradientSum:
        """Of the squared loss with residuals cut there, which is Huber's."""
        return GradientSum(Huber(cut), row_norm, cut * self._length(row_norm), self.constant(row_norm), weighed=True)

    def squares(self, cut: float, row_norm: float) -> HessianSum:
        """Of the gradients of the squared loss, with residuals cut there."""
        return HessianSum(ResidualSquares(cut), row_norm, self.constant(row_norm), weighed=True)

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        row_norm, _, found = self._solved(oracle)
        return self._in_units(found.point, row_norm)

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        row_norm, first, found = self._solved(oracle)
        return {
            "solutions": self._in_units(found.point, row_norm)[None],
            "expected_error": found.excess / found.n_rows,
            "uncertainty": [self._uncertainty(oracle, first, found, row_norm)],
        }

    def _uncertainty(self, oracle: Oracle, first: Posterior, found: Posterior, row_norm: float) -> Uncertainty:
        """For errors that are as large at all rows ``J = s^2 X'X``, else as it was released."""
        problem = self.problem
        ridge = problem.strong_convexity * problem.n_rows * self._slopes
        variance = first.least_residuals(first.left_by_noise)
        variation = variance * (found.moment - np.diag(ridge))
        if self.sandwich:
            variation = self._seen_variation(oracle, first, row_norm, variation)
        known = sandwich(
            found.stated, found.shrinkage, found.moment, variation,
            pull=ridge * found.point, hessian_std=math.sqrt(2) * found.noise,
        )  # fmt: skip
        return known.mapped(np.diag(self._in_units(np.ones(problem.n_parameters), row_norm)))

    def _seen_variation(self, oracle: Oracle, first: Posterior, row_norm: float, expected: Matrix) -> Matrix:
        """The released sum of squared gradients, of rows up to a usual norm.

        Squares of norms are, of normal rows, ``(1 + 3 sqrt(2 / e)) tr M / n`` at most in all but a few, where
        ``e = (tr M)^2 / |M|^2`` is how many directions they have. Longer rows count less, with their constant feature.
        """
        lengths = first.moment[: self.problem.n_features, : self.problem.n_features]
        trace = float(np.trace(lengths))
        usual = trace / first.n_rows * (1 + 3 * math.sqrt(2 * float(np.sum(lengths**2))) / trace)
        norm = min(row_norm, math.sqrt(usual))
        units = (
            self._slopes + (1 - self._slopes) * row_norm / norm
        )  # of the constant feature, in proportion to the norm
        query = self.squares(LARGEST_RESIDUALS * self._residuals(first), norm)
        seen = unpack_symmetric(oracle.ask("squared gradients", first.point * units, query))
        of_rows = shrunk_to(expected / np.outer(units, units), seen, oracle.noise_std / math.sqrt(2))
        return of_rows * np.outer(units, units)

    @property
    def _slopes(self) -> Vector:
        """1 for coefficients, 0 for the constant feature, which has no penalty."""
        slopes = np.ones(self.problem.n_parameters)
        slopes[self.problem.n_features :] = 0.0
        return slopes

    def _solved(self, oracle: Oracle) -> tuple[float, Posterior, Posterior]:
        """The norm that rows count by, and what is known after the second moment, and after the gradient."""
        problem, (row_norm, bound) = self.problem, self._bounds
        if self._looks:
            counts = oracle.ask("row norms")
            row_norm = scale_of_rows(counts, oracle.noise_std, row_norm, row_norm)
            counts = oracle.ask("labels", np.zeros(problem.n_features))
            cost = self._cost_of_labels(oracle.plan, row_norm)
            bound = scale_of_labels(counts, oracle.noise_std, bound, problem.n_rows, cost)
        moment, ridge = self.moment(row_norm, bound), problem.strong_convexity * problem.n_rows
        found = first_posterior(
            unpack_symmetric(oracle.ask("second moment", None, moment)),
            oracle.noise_std / math.sqrt(2),
            label_scale=moment.label_scale,
            label_bound=bound,
            n_rows=problem.n_rows,
            row_norm=row_norm,
            constant=moment.intercept,
            ridge=ridge,
        )
        cut = RESIDUALS * self._residuals(found)
        oracle.visit(self._in_units(found.point, row_norm))
        gradient = oracle.ask("gradient", found.point, self.gradient(cut, row_norm))
        gradient = gradient + ridge * self._slopes * found.point
        bias = bias_of_cut(found, cut, moment.intercept)
        shown = shown_of_bias(found, gradient, oracle.noise_std, cut, moment.intercept)
        return row_norm, found, improved(found, gradient, oracle.noise_std, bias, shown)

    def _cost_of_labels(self, plan: Plan, row_norm: float) -> float:
        """Excess of the squared error by the noise of ``X'y``, for labels cut at 1 and rows alike in all directions."""
        problem, public, moment = self.problem, self.public, self.moment(row_norm, 1.0)
        mechanism = plan["second moment"].mechanism
        noise = mechanism.noise_std(moment.unit_sensitivity(public.neighbours, mechanism.norm, public.units))
        noise /= math.sqrt(2) * moment.label_scale
        return (problem.n_parameters * noise / (problem.n_rows * row_norm)) ** 2

    def _residuals(self, found: Posterior) -> float:
        return min(found.residuals, 2 * self._bounds[1])

    @property
    def _is_followed(self) -> bool:
        return True

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        neighbours, row_norm = self.problem.neighbours, self._bounds[0]
        moment = self.moment(*self._bounds)
        scale, of_labels = np.ones(len(rows.moments)), np.ones(len(rows.moments))
        counted = self._looks and tell(
            plan["labels"].mechanism.noise_std(self._labels.sensitivity(neighbours)), self.problem.n_rows
        )
        if counted:  # the noise is that of rows of the usual norm, and of usual labels
            lengths = rows.sum(rows.moments) - (rows.moments[:, -1] if rows.constant else 0.0)
            scale = np.minimum(1.0, np.sqrt(lengths) / row_norm)
            usual = np.sqrt(rows.squares + rows.residuals**2)
            of_labels = np.minimum(1.0, USUAL_LABELS * usual / self._bounds[1])
        noise = plan["second moment"].mechanism.noise_std(moment.sensitivity(neighbours)) / math.sqrt(2)
        later = plan["gradient"].mechanism.noise_std(self.gradient(1.0, row_norm).sensitivity(neighbours))
        steps = noise / moment.label_scale * scale * of_labels, later * RESIDUALS * rows.residuals * scale
        return least_squares(
            rows.with_constant(self.constant(row_norm)), self.problem.n_rows, steps, noise * scale**2, ERROR_OF_MOMENT
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

    def _length(self, row_norm: float) -> float:
        return math.hypot(row_norm, self.constant(row_norm))


def _check(problem: Problem, solver: str) -> None:
    if not isinstance(problem.loss, Squared) or problem.n_problems > 1:
        raise BudgetError(
            f"solver={solver!r} is for the squared loss, not for {problem.loss.name}: use solver='gradient'"
        )
    need_ridge(problem, solver)

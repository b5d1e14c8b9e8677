"""Hard thresholding pursuit: a few columns are chosen privately, then a fit to them alone (dp-htp).

Steps of iterative hard thresholding rest on a guess of the curvature, and on correlated columns, or on zeros and ones
that are not centred, they diverge. Here there is no step size. In turn,

1. the ``n_nonzero`` columns are chosen whose part of the gradient is the largest: by peeling where single features are
   bounded, from a noisy gradient where rows are, whichever has less noise;
2. these and the columns that were kept before are fitted together, and the ``n_nonzero`` that matter most are kept;

and at the end the columns that are kept are fitted with half of the budget. A fit to chosen columns is that of
`dpdist.central.linear.robust_newton`: rows reduced to these columns are scaled down to a norm that released counts of
their norms say, a matrix and a few gradients are released, and each step is weighed by what its noise allows
(`dpdist.solvers.filtered_newton`). The curvature of the loss is nowhere above the released one, so no step can
overshoot, and columns that were chosen for noise get weights near 0. The margin begins at the best constant, which
keeps columns that are not centred apart from those that matter.

Columns are chosen again, with the first ones accounted for, where public numbers say that a usual one stands out of the
noise: ``n K C / (2 WIDTHS sqrt(k))``, for features of a third of their bound K and residuals of half of theirs, against
the largest of d noises; and a third time where a tenth of that does. Correlated columns need it; where noise hides them
it only costs.

Why it is private: the columns are released (`dpdist.privacy.mechanisms.peeling`), counts, matrices and gradients are
sums of bounded rows with Gaussian noise, and all else follows from releases. Sources: Foucart (2011), Needell and
Tropp (2009); seed 000, Algorithm 5.3.43, and seed 003, Algorithm 5, for the private choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ScaleRows
from dpdist.central.linear.column_prediction import ColumnFit
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need_ridge, reads
from dpdist.central.linear.loss_curvature import loss_curvature
from dpdist.central.linear.prediction import LABELS, MARGINS
from dpdist.central.linear.robust_newton import FLAT, LEAST_LENGTH
from dpdist.central.linear.thresholds import USUAL, threshold
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.kernels.coordinate_gradients import Residual
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber, Loss, Squared
from dpdist.method import DECIDED, Expected, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.privacy.mechanisms.peeling import Peel
from dpdist.queries.column_sums import (
    ColumnClassGradientSum,
    ColumnGradientSum,
    ColumnHessianSum,
    ColumnMomentSum,
    ColumnNormCounts,
)
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum, Shifted, State
from dpdist.queries.gradient_sums import GradientSum
from dpdist.solvers.filtered_newton import Noisy, Question, Solution, filtered_newton, shrunken
from dpdist.solvers.loops import drive
from dpdist.solvers.margins import Curvature
from dpdist.solvers.octaves import scale_of_rows

WIDTHS = 3.0
"""``feature_bound`` is taken for this many times the usual size of a feature."""
LEVEL_SHARE = 0.03
LAST_SHARE = 0.5
"""Of the fit to the columns that are kept."""
CHOICE_PART = 0.7
"""Of the rest, for the choice of columns; the other part is for fits in between."""
LATER = 0.75
"""Times the share of a choice, that of the next: what is left to find is less."""
MOMENT_PART, NORM_PART = 0.25, 0.04
"""Of a fit."""
MOST_CHOICES = 3
LAST_ROUNDS = 4
"""Gradients of the last fit; those in between have one."""
WHICH = 0.98
"""Of a peeling's budget, for the choice: its values are not used."""
LONGER = 1.5
"""Times the norm at which noise matters least, for losses whose labels cannot be scaled with a row."""
SHORTEST = 0.02
"""Mean squared norm of a reduced row at least, relative to its bound, for those losses."""
GUMBEL = math.pi / math.sqrt(6)


@dataclass(frozen=True)
class Pursuit(LinearMethod):
    """Columns chosen privately, and a fit to them.

    For the squared loss with ``residual_bound``, Huber's, and smooth losses of two classes; a ridge penalty or none, on
    all rows. Needs ``feature_bound`` or ``row_norm``. The intercept is not one of the ``n_nonzero``.

    Parameters
    ----------
    n_rounds : int, optional
        How often columns are chosen. Default: 1 to 3, by how far a usual one stands out of the noise.
    n_nonzero : int
        Public number of coefficients that may differ from 0.
    """

    tag, name = "Pursuit", "iht"
    default_alpha: ClassVar[float] = 0.0

    n_nonzero: int = 1
    by_norm: bool = field(default=False, kw_only=True, repr=False, metadata=DECIDED)
    """Whether columns are chosen from a noisy gradient."""

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ScaleRows)
        reads(problem, self.name, All)
        needs_delta(problem)
        _check(problem, self.name)
        if self.n_nonzero > problem.n_features:
            raise BudgetError(f"n_nonzero={self.n_nonzero} exceeds the number of features, {problem.n_features}")
        peeled = _peeled(problem.feature_bound or math.inf, self.n_nonzero)
        asked = self._with(public, problem, n_rounds=1, by_norm=(problem.row_norm or math.inf) <= peeled)
        return replace(asked, n_rounds=self.n_rounds or asked._how_often())

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        count = self.problem.n_problems
        lines = (
            [Line("level", Gaussian(), self._gradient((), self._usual), count, LEVEL_SHARE)]
            if self.problem.intercept
            else []
        )
        choices, between = self._shares()
        for t, share in enumerate(choices):
            mechanism = Gaussian() if self.by_norm else Peel(self.n_nonzero, which=WHICH)
            lines.append(Line(f"columns {t + 1}", mechanism, self._all_columns(), count, share))
            if self.rounds > 1:
                lines += self._fit_lines(f" {t + 1}", between, 1)
        return [*lines, *self._fit_lines("", LAST_SHARE, LAST_ROUNDS)]

    def _fit_lines(self, name: str, share: float, rounds: int) -> list[Line]:
        count = self.problem.n_problems
        gradients = share * (1 - MOMENT_PART - NORM_PART)
        return [
            Line(f"row norms{name}", Gaussian(), None, count, share * NORM_PART),
            Line(f"second moment{name}", SymmetricGaussian(), None, count, share * MOMENT_PART),
            Line(f"gradient{name}", Gaussian(), None, count * rounds, gradients),
        ]

    def _shares(self) -> tuple[list[float], float]:
        """Of the choices, and of each fit in between."""
        rest = 1 - LAST_SHARE - LEVEL_SHARE * (self.problem.intercept > 0)
        part = CHOICE_PART if self.rounds > 1 else 1.0
        weights = LATER ** np.arange(self.rounds)
        choices = [float(share) for share in rest * part * weights / weights.sum()]
        return choices, rest * (1 - part) / self.rounds

    def _stands_out(self) -> float:
        """What a usual column adds to the gradient, relative to the largest noise of a choice."""
        problem, k = self.problem, self.n_nonzero
        share = (1 - LAST_SHARE - LEVEL_SHARE * (problem.intercept > 0)) * CHOICE_PART * LATER / (1 + LATER)
        noise = self._noise_of_choice / (problem.mu * math.sqrt(share))
        usual = problem.public.n_units * self._usual / (2 * problem.neighbours.sum_factor * math.sqrt(k))
        return usual / (noise * math.sqrt(2 * math.log(max(2, problem.n_features))))

    def _how_often(self) -> int:
        """Once, and again for what is a tenth of that, as long as it stands out."""
        stands_out = self._stands_out()
        return min(2 + int(math.log10(stands_out)), MOST_CHOICES) if stands_out > 1 else 1

    # -- the queries ------------------------------------------------------------------------------------------------

    @property
    def _signs(self) -> bool:
        return self.problem.loss.labels == "signs"

    @property
    def _loss(self) -> Loss:
        return self.problem.loss if self._signs else Huber(self._slope)

    @property
    def _slope(self) -> float:
        """Bound of the derivative of the loss."""
        return self.problem.loss.derivative_bound if self._signs else threshold(self.problem)

    @property
    def _curvature(self) -> Curvature:
        return loss_curvature(self.problem.loss) if self._signs else FLAT

    @property
    def _unit(self) -> float:
        """Of predictions: the solver takes them for numbers of the order of 1."""
        return 1.0 if self._signs else USUAL * self._slope

    def _longest(self, n_columns: int) -> float:
        """Bound of the norm of a row reduced to so many columns."""
        problem = self.problem
        return min(math.sqrt(n_columns) * (problem.feature_bound or math.inf), problem.row_norm or math.inf)

    @property
    def _usual(self) -> float:
        """The guess of a usual feature."""
        problem = self.problem
        entry, row = problem.feature_bound or math.inf, problem.row_norm or math.inf
        return min(entry / WIDTHS, row / math.sqrt(problem.n_features))

    @property
    def _noise_of_choice(self) -> float:
        """Standard deviation of what is added to a coordinate, relative to the slope of the loss and the strength."""
        problem = self.problem
        if self.by_norm:
            assert problem.row_norm is not None
            return problem.row_norm
        return _peeled(self._longest(1), self.n_nonzero)

    def _constant(self, length: float, n_columns: int) -> float:
        """A constant feature as large as a usual one of a row of that norm."""
        return length / math.sqrt(max(1, n_columns)) if self.problem.intercept else 0.0

    def _all_columns(self, target: int | None = None) -> Shifted | GradientSum:
        """The gradient that columns are chosen by."""
        problem = self.problem
        constant = self._usual if problem.intercept else 0.0
        if not self.by_norm:
            bounded = Residual(self._longest(1), self._slope)
            return Shifted(CoordinateGradientSum(self._loss, bounded, problem.n_features, constant, target))
        assert problem.row_norm is not None
        clip = self._slope * math.hypot(problem.row_norm, constant)
        return GradientSum(self._loss, problem.row_norm, clip, constant, target)

    def _gradient(self, columns: tuple[int, ...], length: float, target: int | None = None) -> GradientSum:
        constant = self._constant(length, len(columns))
        row_norm = math.hypot(length, constant)
        clip = self._slope * row_norm
        if self._signs:
            return ColumnClassGradientSum(self._loss, length, clip, constant, target, columns)
        return ColumnGradientSum(self._loss, row_norm, clip, constant=constant, columns=columns)

    def _moment(self, columns: tuple[int, ...], length: float, target: int | None = None) -> Query:
        constant = self._constant(length, len(columns))
        if self._signs:
            return ColumnHessianSum(self._loss, length, constant, target, columns=columns)
        return ColumnMomentSum(
            len(columns) + (constant > 0), math.hypot(length, constant), constant=constant, columns=columns
        )

    # -- the solution -----------------------------------------------------------------------------------------------

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n, unit = self.problem.n_problems, self._unit
        found = [self._solved(oracle, t) for t in (range(n) if n > 1 else [None])]
        excess = sum(last.excess * unit**2 + self._column_fit.missed(last) for _, last in found)
        return {
            "solutions": np.array([self._stored(point) for point, _ in found]),
            "expected_error": excess / (n * self.problem.n_rows),
        }

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._stored(self._solved(oracle, target)[0])

    def _solved(self, oracle: Oracle, target: int | None) -> tuple[Vector, Solution]:
        """Coefficients and intercept, and how the last fit ended."""
        problem, d = self.problem, self.problem.n_features
        point = np.zeros(d + 1)
        if problem.intercept:
            point[d] = self._best_constant(oracle, target)
        kept: tuple[int, ...] = ()
        for t in range(1, self.rounds + 1):
            columns = tuple(sorted({*kept, *self._chosen(oracle, f"columns {t}", point, target)}))
            if self.rounds > 1:
                point, kept = self._fitted(oracle, f" {t}", columns, target)[:2]
            else:
                kept = columns
        point, _, found = self._fitted(oracle, "", kept, target)
        return point, found

    def _mean_label(self, oracle: Oracle, target: int | None) -> Noisy:
        """From the gradient at 0 of the constant feature alone, in which all rows count alike."""

        def find() -> Noisy:
            unit = self.problem.n_rows * self._constant(self._usual, 0)
            unit *= self._curvature.slope_at_zero if self._signs else 1.0
            value = oracle.ask("level", np.zeros(2), self._gradient((), self._usual, target))
            return Noisy(-value[-1:] / unit, oracle.noise_std / unit)

        found: Noisy = oracle.once(f"level {target}", find)
        return found

    def _best_constant(self, oracle: Oracle, target: int | None) -> float:
        """The margin that fits all rows best."""
        (mean,), std = self._mean_label(oracle, target)
        if not self._signs:
            return float(mean)
        level = self._curvature.level
        return level(shrunken(float(mean), std)).margin if level else 0.0

    def _chosen(self, oracle: Oracle, name: str, point: Vector, target: int | None) -> list[int]:
        """The columns with the largest part of the gradient; the constant feature is none."""
        d, query = self.problem.n_features, self._all_columns(target)
        constant = self._usual if self.problem.intercept else 0.0
        w = np.append(point[:d], point[d] / constant) if constant else point[:d]
        oracle.visit(self._stored(point))
        state = w if self.by_norm else State(w, np.zeros(len(w)))
        sizes = np.abs(oracle.ask(name, state, query))[:d]
        order = np.argsort(-sizes, kind="stable")[: self.n_nonzero]
        return [int(j) for j in order if sizes[j] > 0]

    def _fitted(
        self, oracle: Oracle, name: str, columns: tuple[int, ...], target: int | None
    ) -> tuple[Vector, tuple[int, ...], Solution]:
        """Coefficients and intercept of a fit to these columns, those that matter most, and how it ended."""
        problem, d, unit, m = self.problem, self.problem.n_features, self._unit, len(columns)
        norms = ColumnNormCounts(self._longest(m), columns=columns)
        counts = oracle.ask(f"row norms{name}", None, norms)
        length = scale_of_rows(counts, oracle.noise_std, norms.longest, min(norms.longest, self._usual * math.sqrt(m)))
        if self._signs:
            length = min(LONGER * length, norms.longest)
        constant, gradient = self._constant(length, m), self._gradient(columns, length, target)
        size = m + (constant > 0)
        moment = oracle.ask(f"second moment{name}", np.zeros(size), self._moment(columns, length, target))
        at_zero = self._curvature.at_zero
        loop = filtered_newton(
            Noisy(unpack_symmetric(moment) / at_zero, oracle.noise_std / at_zero),
            self._curvature,
            n_rows=problem.n_rows,
            row_norm=length,
            constant=constant,
            ridge=problem.strong_convexity * problem.n_rows,
            rounds=["gradient"] * (1 if name else LAST_ROUNDS),
            least_length=SHORTEST if self._signs else LEAST_LENGTH,
            signal=0.0,  # chosen columns may all be noise: the prior may shrink
            labels=self._mean_label(oracle, target) if self._signs and constant else None,
        )

        def whole(w: Vector) -> Vector:
            point = np.zeros(d + 1)
            point[list(columns)], point[d] = unit * w[:m], unit * constant * (w[m] if constant else 0.0)
            return point

        def answer(question: Question) -> Noisy:
            oracle.visit(self._stored(whole(question.point)))
            return Noisy(oracle.ask(f"gradient{name}", unit * question.point, gradient) / unit, oracle.noise_std / unit)

        found = drive(loop, answer)
        matters = np.abs(found.point[:m]) * np.sqrt(np.maximum(np.diag(found.hessian)[:m], 0.0))
        order = np.argsort(-matters, kind="stable")[: self.n_nonzero]
        return whole(found.point), tuple(sorted(columns[j] for j in order)), found

    def _stored(self, point: Vector) -> Vector:
        """As the estimator has it: coefficients, then the weight of its constant feature."""
        intercept = self.problem.intercept
        return np.append(point[:-1], point[-1] / intercept) if intercept else point[:-1]

    @property
    def foresees(self) -> bool:
        return True

    def expected(self, plan: Plan) -> Expected:
        columns = tuple(range(self.n_nonzero))

        def noise(length: float) -> tuple[float, float]:
            def of(name: str, query: Query) -> float:
                return plan[name].mechanism.noise_std(query.sensitivity(self.problem.neighbours))

            gradient = of("gradient", self._gradient(columns, length)) / self._unit
            return gradient, of("second moment", self._moment(columns, length)) / math.sqrt(2)

        sizes = MARGINS if self._signs else tuple(size * self._slope for size in LABELS)
        return self._column_fit.expected(sizes, self._curvature, noise)

    @property
    def _column_fit(self) -> ColumnFit:
        """What is public of the last fit and the last choice."""
        problem, k = self.problem, self.n_nonzero
        strength = problem.mu * math.sqrt(self._shares()[0][-1])
        choice = problem.neighbours.sum_factor * self._slope * self._noise_of_choice / strength
        hidden = choice * math.sqrt(2 * math.log(max(2, problem.n_features)))
        m, rounds = k + (problem.intercept > 0), LAST_ROUNDS
        bounds = self._longest(1), self._longest(k)
        return ColumnFit(problem.n_rows, k, m, *bounds, self._unit, rounds, choice, hidden)

    def warnings(self) -> Sequence[str]:
        if self._stands_out() > 1:
            return ()
        return (
            f"what one of {self.n_nonzero} columns that matter alike adds to the gradient does not stand out of the "
            f"noise of the choice among {self.problem.n_features}: expect others to be chosen as well, and weights "
            "near 0 where nothing shows; take more rows, a larger epsilon, or a smaller n_nonzero",
        )


def pursuit_can(problem: Problem) -> bool:
    """Whether a problem can be fitted so."""
    try:
        _check(problem, "iht")
    except (BudgetError, MissingBound):
        return False
    return isinstance(problem.rows, All) and problem.budget.delta > 0


def _peeled(entry: float, n_nonzero: int) -> float:
    """Standard deviation of the noise of a choice by peeling, relative to slope and strength, per ``sum_factor``."""
    return 2 * GUMBEL * entry * math.sqrt(n_nonzero) / math.sqrt(4 * WHICH)


def _check(problem: Problem, solver: str) -> None:
    need_ridge(problem, solver)
    if problem.feature_bound is None and problem.row_norm is None:
        raise MissingBound(f"feature_bound is missing (or row_norm): {BOUNDS['feature_bound']}")
    loss = problem.loss
    if isinstance(loss, Huber | Squared):
        threshold(problem)
        return
    signs = np.array([1.0, -1.0])
    known = loss.labels == "signs" and loss.convex and type(loss).second_derivative is not Loss.second_derivative
    steepest = loss.second_derivative(np.zeros(2), signs) if known else np.zeros(2)
    if not (steepest[0] == steepest[1] == loss.curvature_range[1] > 0 and math.isfinite(loss.derivative_bound)):
        raise BudgetError(
            f"gradient='scale-rows' with n_nonzero is for Huber's loss, the squared one with a residual_bound, and "
            f"convex losses of two classes that are nowhere more curved than at 0, and {loss.name} is none of them: "
            "use gradient='residual'"
        )

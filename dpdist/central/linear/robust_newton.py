"""Robust regression by Newton steps on rows that are scaled down as a whole (dp-newton-scaled).

Truncating the coordinates of a gradient distorts what it says of correlated columns, and steps that rest on a guess of
the curvature may diverge. Here a row that is longer than B is scaled down to it, label included,

    k = min(1, B / |z|),    gradient  sum k z clip(k (<z, w> - y), h),    curvature  sum k^2 z z'.

The optimum is the same for errors that are symmetric about 0, outliers in labels and in features count little, and the
curvature of the loss is at most the one that is released, wherever: no step can overshoot, and with the gains of
`dpdist.solvers.filtered_newton` none is longer than its noise allows.

B is chosen where noise matters least, by what the rows' norms say: their counts in powers of two are released first,
for 2 % of the budget (`dpdist.queries.scaled_rows`). ``second_moment``, the guess v of the mean square of a coordinate
of a row's gradient, only says where to look: a row's norm is about ``sqrt(d v) / (h / 2)`` then, for residuals of half
of the threshold h, and counts begin at four times that, or at ``row_norm``. Twelve passes over the rows, up to fifteen
where noise is large.

The noise is in proportion to h as well. Before every second or fourth gradient the sizes of the residuals are counted
in octaves, for 1 % of the budget each, and h follows: it falls as the fit gets better, and the noise falls with it. A
threshold that is stated (Huber's, or a ``residual_bound``) is the largest that h can be; below it h is where noise, and
what cutting may do to the mean of skewed residuals, are least together, so that a threshold that is far beyond the
residuals costs little, and with more rows h goes to it. Where the loss is the squared one and nothing is stated, h is
two times their median: what is far out counts little, however many rows there are. At the solution residuals are
counted once more: how many are cut, and how large the others are, tells how sure the coefficients are.

The threshold says little of how large slopes are: those of a weak signal, or of labels that are small beside it, are
below the noise long before they are below h. So all releases are asked in the end how large slopes are, and as much is
kept of them as that says.

Why it is private: counts, curvature and gradients are sums of bounded rows, released with Gaussian noise; B, the
constant feature, steps and solution follow from releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dpdist.central.linear.bounding import All, ScaleRows
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import (
    LinearMethod,
    Problem,
    Vector,
    bounded_by,
    check_sizes,
    need_ridge,
    reads,
)
from dpdist.central.linear.newton import MOST_FEATURES
from dpdist.central.linear.normal_rows import Filter, newton, response
from dpdist.central.linear.normal_rows import Rows as Cases
from dpdist.central.linear.prediction import Prediction, predicted, rows_before_a_fit
from dpdist.central.linear.thresholds import USUAL, stated_threshold
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber, Squared
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.scaled_rows import NormCounts, ResidualCounts, ScaledGradientSum, ScaledMomentSum
from dpdist.solvers.filtered_newton import (
    CONSTANT,
    MOVED_HESSIAN,
    SCARCE,
    Noisy,
    Question,
    Solution,
    error_of_hessian,
    filtered_newton,
)
from dpdist.solvers.loops import drive
from dpdist.solvers.margins import MARGINS, Curvature
from dpdist.solvers.octaves import middle_size, scale_of_residuals, scale_of_rows, tell
from dpdist.solvers.spreads import cut_squares
from dpdist.solvers.standard_errors import Uncertainty, sandwich

NORM_SHARE = 0.02
RESIDUAL_SHARE = 0.01
"""Of each count of residuals, and of all of them no more than of the curvature, however many rounds there are."""
LAST_OCTAVES = 12
"""Below the cut, in which they are counted at the solution."""
LEAST_UNCUT = 0.1
"""Of the rows, whatever the noisy counts say."""
OFTEN, SELDOM = 2, 4
"""Rounds between them, and where a threshold is stated or noise is small."""
ANY_SIZE, OCTAVES = 2.0**32, 64
"""Where nothing is stated of a size, it is looked for from here down."""
CUT = 2.0
"""Medians of the residuals at which they are cut: 1.35 standard deviations of normal ones, 95 % efficient."""
MOMENT_SHARE = 0.25
LONG, SHORT = 8, 7
"""Rounds, and those that are enough where noise is small."""
ENOUGH = 3000.0
"""Signal to noise (rows x mu / sqrt(features)) from which on it is: twelve passes in all."""
LONGEST = 2.0
"""Times the guess of a row's norm: what a prediction counts with."""
LABELS = 3.0
"""What bounds labels, relative to the threshold of residuals, in a prediction: predictors are 5 or 30 % of it."""
USUAL_CUT = 1.35
"""Where residuals are cut that were counted, relative to their root mean square, in a prediction."""
MOST = 4.0
"""Times the guess of a row's norm: what may still be found where the guess is too small."""
LEAST_LENGTH = 0.5
"""Of scaled rows, squared and relative to their bound, which is chosen to be a usual norm."""
FLAT = Curvature(1.0, lambda margins: 1.0)
"""That of the squared loss, which bounds Huber's."""


class _Found(NamedTuple):
    """The solution as it is kept, what the filter says of it, the unit of its predictions, the norm to which rows were
    scaled down, where residuals were cut at last, and the noise of the second moment along a direction."""

    stored: Vector
    solution: Solution
    unit: float
    length: float
    cut: float
    moment_std: float


@dataclass(frozen=True)
class RobustNewton(LinearMethod):
    """Newton steps on rows that are scaled down as a whole, each weighed by what its noise allows.

    For Huber's loss, and for the squared one with residuals cut at ``residual_bound`` or, without it, at twice
    their released median; a ridge penalty or none, on all rows. Needs ``second_moment`` or ``row_norm``.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 8, or 7 where noise is small.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.problems.linear_problems import heavy
    >>> data, truth = heavy(20_000, 3, random_state=0)
    >>> model = LinearRegression(loss="huber", solver=RobustNewton(n_rounds=6), second_moment=40.0,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([-0.3, -0.3,  0.8]), array([-0.3, -0.3,  0.9]))
    """

    tag, name = "RobustNewton", "robust-newton"
    default_alpha: ClassVar[float] = 0.0
    rests_on: ClassVar[str] = (
        "Rests on the released curvature, the residuals that were counted at the solution, the noise of all gradients, "
        "and errors that have one symmetric law at all rows: of skewed ones slopes are right, and the intercept is not "
        "that of the mean."
    )

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ScaleRows)
        reads(problem, self.name, All)
        needs_delta(problem)
        _check(problem, self.name)
        alone = "row_norm" if stated_threshold(problem) else "residual_bound"
        if problem.second_moment is None and (alone == "residual_bound" or problem.row_norm is None):
            raise MissingBound(f"second_moment is missing (or {alone}): {BOUNDS['second_moment']}")
        asked = self._with(public, problem, n_rounds=self.n_rounds or (SHORT if problem.signal >= ENOUGH else LONG))
        check_sizes(asked._norms.longest, stated_threshold(problem) or 1.0)
        return asked

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        return [
            Line("row norms", Gaussian(), self._norms, share=NORM_SHARE),
            Line("second moment", SymmetricGaussian(), share=MOMENT_SHARE),
            Line("residuals", Gaussian(), count=self._looks + 1, share=self._looks_share),
            Line("gradient", Gaussian(), count=self.rounds, share=1 - NORM_SHARE - MOMENT_SHARE - self._looks_share),
        ]

    @property
    def _looks(self) -> int:
        """How often the residuals are counted before a gradient; they are once more at the solution."""
        return -(-self.rounds // self._every)

    @property
    def _every(self) -> int:
        """Rounds from one count to the next."""
        return SELDOM if stated_threshold(self.problem) or self.problem.signal >= ENOUGH else OFTEN

    @property
    def _looks_share(self) -> float:
        return min(RESIDUAL_SHARE * (self._looks + 1), MOMENT_SHARE)

    @property
    def _norms(self) -> NormCounts:
        if stated_threshold(self.problem):
            return NormCounts(self._guess(MOST))
        return NormCounts(min(ANY_SIZE, self.problem.row_norm or math.inf), OCTAVES)

    def _threshold(self, length: float | None = None) -> float:
        """At which residuals are cut: as stated, or the public guess where rows have that norm."""
        problem, stated = self.problem, stated_threshold(self.problem)
        if stated:
            return stated
        assert problem.second_moment is not None
        length = length or problem.row_norm or math.sqrt(problem.n_features)
        return math.sqrt(problem.n_features * problem.second_moment) / (USUAL * length)

    def _guess(self, times: float = 1.0) -> float:
        """The public guess of a row's norm, or that many times it, but no more than its bound."""
        problem, stated = self.problem, stated_threshold(self.problem)
        found = math.inf
        if problem.second_moment is not None:
            usual = math.sqrt(problem.second_moment) / (USUAL * stated) if stated else 1.0
            found = times * math.sqrt(problem.n_features) * usual
        return min(found, problem.row_norm or math.inf)

    def _constant(self, length: float) -> float:
        """A constant feature that is as large as a usual one, for rows of that norm."""
        return length / math.sqrt(self.problem.n_features) if self.problem.intercept else 0.0

    def _moment(self, length: float) -> ScaledMomentSum:
        constant = self._constant(length)
        return ScaledMomentSum(self.problem.n_parameters, math.hypot(length, constant), constant=constant)

    def _residuals(self, length: float, longest: float = ANY_SIZE, octaves: int = OCTAVES) -> ResidualCounts:
        constant = self._constant(length)
        return ResidualCounts(longest, octaves, math.hypot(length, constant), constant)

    def _gradient(self, length: float, cut: float) -> ScaledGradientSum:
        constant = self._constant(length)
        row_norm = math.hypot(length, constant)
        return ScaledGradientSum(Huber(cut), row_norm, cut * row_norm, constant=constant)

    # -- the solution -----------------------------------------------------------------------------------------------

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._solved(oracle).stored

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found = self._solved(oracle)
        excess = found.solution.excess * found.unit**2 / self.problem.n_rows
        return {
            "solutions": found.stored[None],
            "expected_error": excess,
            "uncertainty": [self._uncertainty(oracle, found)],
        }

    def _uncertainty(self, oracle: Oracle, found: _Found) -> Uncertainty:
        """For errors of one law at all rows: the Hessian is the share p of the released curvature A that residuals are
        not cut in, gradients vary by ``A mean(clip(r)^2)``; both are counted once more at the solution."""
        problem, solution, unit = self.problem, found.solution, found.unit
        query = self._residuals(found.length, found.cut, LAST_OCTAVES)
        counts = oracle.ask("residuals", unit * solution.point, query)
        uncut, square = cut_squares(counts, found.cut, problem.n_rows)
        ridge = np.full(problem.n_parameters, problem.strong_convexity * problem.n_rows)
        ridge[problem.n_features :] = 0.0
        curvature = solution.hessian - np.diag(ridge)
        hessian = max(uncut, LEAST_UNCUT) * curvature + np.diag(ridge)
        noise, shrinkage = solution.left_by(hessian)
        known = sandwich(
            noise, shrinkage, hessian, square / unit**2 * curvature, pull=ridge * solution.point,
            hessian_std=max(uncut, LEAST_UNCUT) * found.moment_std,
        )  # fmt: skip
        units = self._stored(np.full(problem.n_parameters, unit), self._constant(found.length))
        return known.mapped(np.diag(units))

    def _solved(self, oracle: Oracle) -> _Found:
        problem = self.problem
        counts = oracle.ask("row norms")
        length = self._scale(counts, oracle.noise_std)
        constant, cut = self._constant(length), self._threshold(length)
        moment = Noisy(unpack_symmetric(oracle.ask("second moment", None, self._moment(length))), oracle.noise_std)
        cut = self._cut(oracle, np.zeros(problem.n_parameters), length, cut)
        unit = USUAL * cut  # of labels and predictions: the solver takes them for numbers of the order of 1
        loop = filtered_newton(
            moment,
            FLAT,
            n_rows=problem.n_rows,
            row_norm=length,
            constant=constant,
            ridge=problem.strong_convexity * problem.n_rows,
            rounds=["gradient"] * self.rounds,
            least_length=LEAST_LENGTH,
            signal=problem.signal,
            sized=True,
        )

        def answer(question: Question) -> Noisy:
            nonlocal cut
            point = unit * question.point
            oracle.visit(self._stored(point, constant))
            if question.round and question.round % self._every == 0:
                cut = self._cut(oracle, point, length, cut)
            return Noisy(oracle.ask("gradient", point, self._gradient(length, cut)) / unit, oracle.noise_std / unit)

        found = drive(loop, answer)
        return _Found(self._stored(unit * found.point, constant), found, unit, length, cut, moment.std)

    def _scale(self, counts: Vector, noise: float) -> float:
        """The norm to which rows are scaled down; where half of the rows are not seen, it is the guess."""
        longest = self._norms.longest
        usual = middle_size(counts, noise, longest, self.problem.n_rows)
        return scale_of_rows(counts, noise, longest, self._guess(), MOST * usual) if usual else self._guess()

    def _cut(self, oracle: Oracle, point: Vector, length: float, before: float) -> float:
        """Where residuals are cut, by released counts at a point; where these tell nothing, what it was before."""
        n, stated = self.problem.n_rows, stated_threshold(self.problem)
        if stated is None:
            counts = oracle.ask("residuals", point, self._residuals(length))
            found = CUT * middle_size(counts, oracle.noise_std, ANY_SIZE, n) or before
            return min(found, before) if point.any() else found
        counts = oracle.ask("residuals", point, self._residuals(length, stated, LAST_OCTAVES))
        cost = self._cost_of_noise(oracle.plan, length)
        return scale_of_residuals(counts, oracle.noise_std, stated, n, cost) or before

    def _cost_of_noise(self, plan: Plan, length: float) -> float:
        """Excess of the squared error by the noise of all gradients, for residuals cut at 1 and rows alike in all
        directions."""
        problem, public, query = self.problem, self.public, self._gradient(length, 1.0)
        mechanism = plan["gradient"].mechanism
        noise = mechanism.noise_std(query.unit_sensitivity(public.neighbours, mechanism.norm, public.units))
        return (problem.n_parameters * noise / (problem.n_rows * length)) ** 2 / self.rounds

    def _stored(self, w: Vector, constant: float) -> Vector:
        """The weight of the constant feature for the one that the estimator has."""
        return np.append(w[:-1], w[-1] * (constant / self.problem.intercept)) if constant else w

    # -- what to expect ---------------------------------------------------------------------------------------------

    @property
    def foresees(self) -> bool:
        return True

    def prediction(self, plan: Plan) -> Prediction:
        """Rows are up to twice as long as was guessed, predictors and residuals at most as large as the threshold."""
        problem, longest = self.problem, min(LONGEST * self._guess(), self.problem.row_norm or math.inf)
        rows = rows_before_a_fit(problem.n_features, longest, self._constant(longest), LABELS * self._threshold())
        if problem.intercept:  # a constant feature is in proportion to the rows
            share = (rows.sum(rows.moments) - rows.moments[:, -1]) / longest**2
            scale = np.column_stack([np.ones((len(share), len(rows.counts) - 1)), share])
            rows = replace(rows, moments=rows.moments * scale, weights=rows.weights / scale)
        return predicted(self.foreseen(plan, rows), rows, response(problem.loss))

    def foreseen(self, plan: Plan, rows: Cases) -> Vector:
        """With the usual norm of the rows, and the sizes of labels and of residuals, where counts tell them."""
        problem, told = self.problem, response(self.problem.loss)
        lengths = np.sqrt(rows.sum(rows.moments) - (rows.moments[:, -1] if rows.constant else 0.0))
        cuts = np.full((2, len(lengths)), self._threshold())

        def std(name: str, query: Query) -> float:
            return plan[name].mechanism.noise_std(query.sensitivity(problem.neighbours))

        if not tell(std("row norms", self._norms), problem.n_rows):
            lengths = np.full(len(lengths), self._guess())
        if tell(std("residuals", self._residuals(1.0)), problem.n_rows):
            sizes = np.array([np.sqrt(rows.squares + rows.residuals**2), rows.residuals])
            cuts = np.minimum(stated_threshold(problem) or math.inf, USUAL_CUT * sizes)
        first, later = cuts
        unit, scarce, kinds = USUAL * first, problem.signal < SCARCE, ["gradient"] * self.rounds

        def resized(information: Vector, squares: Vector) -> Vector:
            factor: Vector = (squares / MARGINS) ** (information / (information + 2))
            return factor

        asked = Filter(
            kinds=kinds,
            gradients=[
                std("gradient", self._gradient(1.0, 1.0)) * lengths * (first if t < self._every else later) / unit
                for t in range(self.rounds)
            ],
            moment=std("second moment", self._moment(1.0)) / math.sqrt(2) * lengths**2,
            hessian=0.0,
            margins=MARGINS,
            constant=CONSTANT,
            known=error_of_hessian(kinds),
            moved=MOVED_HESSIAN,
            revised=resized if scarce else lambda *told: np.maximum(resized(*told), 1.0),
            resized=resized,
        )
        in_units = replace(rows, weights=rows.weights / unit[:, None] ** 2)
        return unit**2 * newton(in_units, told, problem.n_rows, problem.strong_convexity * problem.n_rows, asked)


def robust_newton_can(problem: Problem) -> bool:
    """Whether such steps are made for the problem."""
    try:
        _check(problem, "robust-newton")
    except BudgetError:
        return False
    return isinstance(problem.rows, All) and problem.n_features <= MOST_FEATURES


def _check(problem: Problem, solver: str) -> None:
    if not isinstance(problem.loss, Huber | Squared):
        raise BudgetError(
            f"solver={solver!r} is for Huber's loss, or the squared one with residuals that are cut, not for "
            f"{problem.loss.name}: use solver='gradient'"
        )
    need_ridge(problem, solver)

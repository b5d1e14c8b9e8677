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
of the threshold h, and counts begin at four times that, or at ``row_norm``. Ten passes over the rows.

Why it is private: counts, curvature and gradients are sums of bounded rows, released with Gaussian noise; B, the
constant feature, steps and solution follow from releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ScaleRows
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import LinearMethod, Problem, Vector, bounded_by, need, need_ridge, reads
from dpdist.central.linear.newton import MOST_FEATURES
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.kernels.moments import unpack_symmetric
from dpdist.losses import Huber, Squared
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.scaled_rows import NormCounts, ScaledGradientSum, ScaledMomentSum
from dpdist.solvers.filtered_newton import MARGINS, MOVED_HESSIAN, Curvature, Noisy, Question, Solution, filtered_newton
from dpdist.solvers.loops import drive

NORM_SHARE = 0.02
MOMENT_SHARE = 0.25
ROUNDS = 8
USUAL = 0.5
"""A residual, relative to the threshold."""
MOST = 4.0
"""Times the guess of a row's norm: what may still be found where the guess is too small."""
LEAST_LENGTH = 0.5
"""Of scaled rows, squared and relative to their bound, which is chosen to be a usual norm."""
SEEN = 2.0
"""Standard deviations of its noise above which a count is one of rows."""
PARTS = 4
"""Of an octave, within which rows are taken for evenly spread on a logarithmic scale."""
FLAT = Curvature(1.0, lambda margins: 1.0)
"""That of the squared loss, which bounds Huber's."""


@dataclass(frozen=True)
class RobustNewton(LinearMethod):
    """Newton steps on rows that are scaled down as a whole, each weighed by what its noise allows.

    For Huber's loss, and for the squared one with residuals cut at ``residual_bound``; a ridge penalty or none, on all
    rows. Needs ``second_moment`` or ``row_norm``.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 8.
    """

    tag, name = "RobustNewton", "robust-newton"
    default_alpha: ClassVar[float] = 0.0

    measures: ClassVar[str] = (
        "expected excess of the mean loss that is due to noise and shrinkage, for rows that are equally long in all "
        "directions and as long as second_moment (or row_norm) says, with residuals of half of the threshold"
    )

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ScaleRows)
        reads(problem, self.name, All)
        needs_delta(problem)
        _check(problem, self.name)
        if problem.second_moment is None and problem.row_norm is None:
            raise MissingBound(f"second_moment is missing (or row_norm): {BOUNDS['second_moment']}")
        return self._with(public, problem, n_rounds=self.n_rounds or ROUNDS)

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        return [
            Line("row norms", Gaussian(), self._norms, share=NORM_SHARE),
            Line("second moment", SymmetricGaussian(), share=MOMENT_SHARE),
            Line("gradient", Gaussian(), count=self.rounds, share=1 - NORM_SHARE - MOMENT_SHARE),
        ]

    @property
    def _norms(self) -> NormCounts:
        return NormCounts(self._guess(MOST))

    @property
    def _threshold(self) -> float:
        return threshold(self.problem)

    def _guess(self, times: float = 1.0) -> float:
        """The public guess of a row's norm, or that many times it, but no more than its bound."""
        problem = self.problem
        found = math.inf
        if problem.second_moment is not None:
            found = times * math.sqrt(problem.n_features * problem.second_moment) / (USUAL * self._threshold)
        return min(found, problem.row_norm or math.inf)

    def _constant(self, length: float) -> float:
        """A constant feature that is as large as a usual one, for rows of that norm."""
        return length / math.sqrt(self.problem.n_features) if self.problem.intercept else 0.0

    def _moment(self, length: float) -> ScaledMomentSum:
        constant = self._constant(length)
        return ScaledMomentSum(self.problem.n_parameters, math.hypot(length, constant), constant=constant)

    def _gradient(self, length: float) -> ScaledGradientSum:
        constant, h = self._constant(length), self._threshold
        row_norm = math.hypot(length, constant)
        return ScaledGradientSum(Huber(h), row_norm, h * row_norm, constant=constant)

    # -- the solution -----------------------------------------------------------------------------------------------

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._solved(oracle)[0]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        point, found = self._solved(oracle)
        unit = USUAL * self._threshold
        return {"solutions": point[None], "expected_error": found.excess * unit**2 / self.problem.n_rows}

    def _solved(self, oracle: Oracle) -> tuple[Vector, Solution]:
        problem = self.problem
        counts = oracle.ask("row norms")
        length = scale_of_rows(counts, oracle.noise_std, self._norms.longest, self._guess())
        constant, gradient = self._constant(length), self._gradient(length)
        moment = oracle.ask("second moment", None, self._moment(length))
        unit = USUAL * self._threshold  # of labels and predictions: the solver takes them for numbers of the order of 1
        loop = filtered_newton(
            Noisy(unpack_symmetric(moment), oracle.noise_std),
            FLAT,
            n_rows=problem.n_rows,
            row_norm=length,
            constant=constant,
            ridge=problem.strong_convexity * problem.n_rows,
            rounds=["gradient"] * self.rounds,
            least_length=LEAST_LENGTH,
            signal=problem.signal,
        )

        def answer(question: Question) -> Noisy:
            point = unit * question.point
            oracle.visit(self._stored(point, constant))
            return Noisy(oracle.ask("gradient", point, gradient) / unit, oracle.noise_std / unit)

        found = drive(loop, answer)
        return self._stored(unit * found.point, constant), found

    def _stored(self, w: Vector, constant: float) -> Vector:
        """The weight of the constant feature for the one that the estimator has."""
        return np.append(w[:-1], w[-1] * (constant / self.problem.intercept)) if constant else w

    def expected_error(self, plan: Plan) -> float | None:
        """The recursion of the filter for one direction of many."""
        problem = self.problem
        n, d, neighbours = problem.n_rows, problem.n_parameters, problem.neighbours
        length, unit = self._guess(), USUAL * self._threshold
        eigenvalue = n * length**2 / problem.n_features
        error = plan["second moment"].mechanism.noise_std(self._moment(length).sensitivity(neighbours)) / math.sqrt(2)
        std = plan["gradient"].mechanism.noise_std(self._gradient(length).sensitivity(neighbours)) / unit
        prior = spread = MARGINS / length**2
        noise, left = 0.0, 1.0
        for _ in range(self.rounds):
            variance = std**2 + error**2 * d * spread
            gain = spread * eigenvalue / (spread * eigenvalue**2 + variance)
            kept = 1 - gain * eigenvalue
            spread = kept**2 * spread + gain**2 * (variance + MOVED_HESSIAN * eigenvalue**2 * spread)
            noise, left = kept**2 * noise + (std * gain) ** 2, kept * left
        return d * eigenvalue * unit**2 * (noise + left**2 * prior) / (2 * n)


def scale_of_rows(counts: Vector, noise: float, longest: float, guess: float) -> float:
    """The norm B to which rows are scaled down, from released counts of their norms in octaves below ``longest``.

    Noise is proportional to B, the curvature to ``sum min(|x|, B)^2``: B is where their ratio is best. Counts below
    their noise are none; where all are, B is the guess.

    Parameters
    ----------
    counts : array
        Of `NormCounts`.
    noise : float
        Standard deviation of the noise of each.
    longest, guess : float

    Examples
    --------
    >>> round(scale_of_rows(np.array([0.0, 0.0, 900.0, 100.0]), 1.0, 8.0, 2.0), 2)
    3.08
    """
    seen = np.where(counts > SEEN * noise, counts, 0.0)
    parts = (np.arange(PARTS * (len(seen) - 1)) + 0.5) / PARTS
    norms = longest * np.append(1.0, 2.0**-parts)
    rows = np.append(seen[0], np.repeat(seen[1:] / PARTS, PARTS))
    if not rows.any():
        return guess
    curvature = (np.minimum(norms[:, None], norms[None, :]) ** 2 * rows).sum(axis=1)
    return float(norms[np.argmax(curvature / norms)])


def threshold(problem: Problem) -> float:
    """At which residuals are cut."""
    if isinstance(problem.loss, Huber):
        return float(min(problem.loss.threshold, problem.residual_bound or math.inf))
    need(problem, "residual_bound")
    assert problem.residual_bound is not None
    return float(problem.residual_bound)


def robust_newton_can(problem: Problem) -> bool:
    """Whether such steps are made for the problem."""
    try:
        _check(problem, "robust-newton")
    except (BudgetError, MissingBound):
        return False
    return isinstance(problem.rows, All) and problem.n_features <= MOST_FEATURES


def _check(problem: Problem, solver: str) -> None:
    if not isinstance(problem.loss, Huber | Squared):
        raise BudgetError(
            f"solver={solver!r} is for Huber's loss, or the squared one with a residual_bound, not for "
            f"{problem.loss.name}: use solver='gradient'"
        )
    threshold(problem)
    need_ridge(problem, solver)

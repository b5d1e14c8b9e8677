"""Gradient descent for data without bounded rows: contributions are damped or trimmed coordinate by coordinate.

================= ==================================================================== ==============================
method            parameters (with ``solver="gradient"``)                              what bounds a row
================= ==================================================================== ==============================
rgd-catoni        ``gradient="truncate"`` or ``"smooth-truncate"``                     ``s phi(g_j / s)``
rgd-catoni-stoch  the same with ``rows="sample"``                                      the same
rgd-trim          ``gradient="trim"``                                                  order statistics
clip-gd           ``gradient="norm"`` with ``second_moment`` in place of ``clip_norm``   ``||g|| <= C``
================= ==================================================================== ==============================

Seed 000, section 3.2.4, with its corrections: the noise is calibrated exactly (the printed one lacks a square), the
scale balances bias against noise (the printed one ignores the noise), and trimming uses a bound that is smooth (the
printed one is not, and tells outliers).

All of them take ``second_moment``, a public guess v of the mean square of a coordinate of a row's gradient; a factor of
10 in it costs a factor of 2 in the error. Trimming is best where gradients are symmetric about their mean, as they are
for features that are symmetric about 0; where they are skewed it is biased, and truncation is better.

For Huber's loss rows that are scaled as a whole (`dpdist.central.linear.robust_newton`) are better, and the default.

The step is ``0.8 / (h q + a)``: h the curvature of the loss, a of the penalty, and q a public guess of the largest
eigenvalue of ``E x x'``, 1 or ``(feature_bound / 3)^2``. Features of another scale, correlated or far from centred
need ``step_size``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from dpdist.central.linear.bounding import ClipNorm, Shrink, Trim
from dpdist.central.linear.gradient_descent import ClippedDescent, check_curvature, needs_delta
from dpdist.central.linear.high_dimensional import COORDINATEWISE, bounded_gradient, feature_square
from dpdist.central.linear.linear_method import Problem, Vector, bounded_by
from dpdist.central.linear.second_order import CertifiedDescent, check_target
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS, choice
from dpdist.identity import ADDED
from dpdist.kernels.truncation import HardClip, ScalarMap, SmoothTruncation
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.mechanisms.smooth_sensitivity import ArsinhNormal
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.robust_sums import TrimmedGradientSum

BOUNDED = tuple(kind for kind in COORDINATEWISE if kind is not Shrink)
"""Ways of bounding coordinate by coordinate."""
FAILURE = 0.05
"""Probability with which the deviation bound behind a scale may fail."""
WIDTHS = 3.0
"""``feature_bound`` is taken for this many times the usual size of a feature."""
STEP = 0.8
SCALE_SHARE = 0.5
"""Of the balanced scale: its bias is that of the worst distribution, for which half of it costs a quarter more."""
MOST_TRIMMED = 0.2
"""Fraction of the rows that may be left out at either end."""


def truncation_scale(unit: ScalarMap, second_moment: float, n_rows: float, noise: float, n_means: int = 1) -> float:
    """The scale s at which the bias of a truncated mean equals what sampling and noise add.

    ``sqrt(A / (ln(2 / 0.05) / n + noise))``: the bias of the mean is at most ``A / s``, with ``A = v / 2``, for the
    smoothed truncation ``(1 + 1/beta) v / 2``, for a clip ``v / 4``; the deviation is at most ``s ln(2 / 0.05) / n``
    with probability 0.95, and the noise on the mean is ``noise * s``. Where the largest of several means matters, 0.05
    is divided by their number.

    Parameters
    ----------
    unit : ScalarMap
        The map, of any scale.
    second_moment : float
        v; public.
    n_rows : float
    noise : float
        Standard deviation of the noise on the mean per unit of scale.
    n_means : int, default 1

    Examples
    --------
    >>> from dpdist.kernels.truncation import SoftTruncation
    >>> from dpdist.privacy.accounting.closed_forms import gdp_mu
    >>> noise = 4 * math.sqrt(2) / 3 / (1e5 * gdp_mu(1.0, 1e-5) / math.sqrt(50))
    >>> round(truncation_scale(SoftTruncation(1.0), 40.0, 1e5, noise), 2)
    193.47
    """
    if isinstance(unit, HardClip):
        bias = second_moment / 4
    elif isinstance(unit, SmoothTruncation):
        bias = second_moment / 2 * (1 + 1 / unit.beta)
    else:
        bias = second_moment / 2
    return math.sqrt(bias / (math.log(2 * n_means / FAILURE) / n_rows + noise))


def trimmed_count(n_rows: int, t: float) -> int:
    """How many entries a trimmed mean leaves out at either end: ``ln(2 n) / t``, at most a fifth of the rows.

    With so many the public range of the data adds less than ``range / n`` to the smooth bound.
    """
    return min(math.ceil(math.log(2 * n_rows) / t), math.floor(MOST_TRIMMED * n_rows))


def trimmed_noise(mechanism: ArsinhNormal, second_moment: float, n_rows: int) -> float:
    """What to expect of the noise on a trimmed mean of entries with that mean square, which is not public itself.

    No more than ``2 m`` of n entries lie beyond ``sqrt(v n / (2 m))`` (Chebyshev), so the middle is at most about twice
    that wide; it is about half of it for Student's t with 3 degrees of freedom.
    """
    m = trimmed_count(n_rows, mechanism.smoothness)
    return mechanism.scale(2 * math.sqrt(second_moment * n_rows / max(2 * m, 1))) / (n_rows - 2 * m)


def trim_limit(scale: float | None, second_moment: float | None, n_rows: int) -> float:
    """Where entries are cut before they are trimmed: ``scale``, or ``sqrt(v n)``, beyond which hardly any entry lies.

    It may be generous, because it hardly adds to the noise.
    """
    if scale is None and second_moment is None:
        raise MissingBound(f"second_moment is missing (or scale, where entries are cut): {BOUNDS['second_moment']}")
    return scale or math.sqrt((second_moment or 0.0) * n_rows)


def check_trimming(neighbours: Neighbours) -> None:
    """Refuse trimming where its proof does not hold."""
    if neighbours is not Neighbours.REPLACE_ONE:
        raise BudgetError("trimmed means are private under neighbours='replace-one' only, where the rows are counted")


@dataclass(frozen=True)
class RobustDescent(ClippedDescent):
    """Gradient descent with robust gradients: 5 rounds on all rows, or 200 on samples, averaged.

    Attributes
    ----------
    query : GradientSum, CoordinateGradientSum or TrimmedGradientSum
        What is asked in a round; decided, as the others.
    mechanism : Mechanism
    step : float
    constant : float
        The constant feature, as large as a usual one; 0 for none.
    """

    tag: ClassVar[str] = "RobustDescent"

    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    mechanism: Mechanism = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    step: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)
    constant: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm, Trim, *BOUNDED)
        check_curvature(problem)
        sampled = self.sampled(problem)
        needs_delta(problem)
        square = feature_square(problem, WIDTHS)
        constant = min(math.sqrt(square), problem.intercept) if problem.intercept else 0.0
        own = max(problem.strong_convexity, problem.penalty_curvature)
        step = self.step_size or STEP / (problem.loss.curvature_bound * square + own)
        n_rounds = self.n_rounds or (5 if sampled.rate is None else 200)
        size = problem.n_parameters
        mechanism: Mechanism = ArsinhNormal(size) if isinstance(problem.gradient, Trim) else Gaussian()
        bare = replace(sampled, n_rounds=n_rounds, mechanism=mechanism, step=step, constant=constant)
        # what follows depends on the calibrated noise, which is public
        (line,) = bare.lines()
        item = calibrate([line.item], problem.budget, problem.neighbours)["gradient"]
        query: Query
        if isinstance(problem.gradient, Trim):
            query = bare._trimmed(item.mechanism)
        elif isinstance(problem.gradient, ClipNorm):
            query = bare._clipped(item.mechanism)
        else:
            query = bare._bounded(item.mechanism)
        return replace(bare, query=query)

    def lines(self) -> list[Line]:
        return [self.line(self.mechanism, self.query)]

    def _bounded(self, mechanism: Mechanism) -> CoordinateGradientSum:
        problem = self.problem

        def scale(unit: ScalarMap) -> float:
            sensitivity = problem.neighbours.sum_factor * unit.bound * math.sqrt(problem.n_parameters)
            noise = mechanism.noise_std(sensitivity) / (unit.scale * self.expected_rows)
            assert problem.second_moment is not None
            return SCALE_SHARE * truncation_scale(unit, problem.second_moment, self.expected_rows, noise)

        bounded = bounded_gradient(problem, scale, None)
        return CoordinateGradientSum(problem.loss, bounded, problem.n_features, intercept=self.constant)

    def _clipped(self, mechanism: Mechanism) -> GradientSum:
        """A clip that balances the bias of a gradient with ``E ||g||^2 = d v`` against the norm of the noise."""
        problem, d = self.problem, self.problem.n_parameters
        assert problem.second_moment is not None
        noise = math.sqrt(d) * mechanism.noise_std(1.0) / self.expected_rows
        row_norm = problem.row_norm or math.inf
        implied = problem.loss.derivative_bound * math.hypot(row_norm, self.constant)
        clip_norm = min(0.5 * math.sqrt(d * problem.second_moment / noise), implied)
        return GradientSum(problem.loss, row_norm, clip_norm, self.constant)

    def _trimmed(self, mechanism: Any) -> TrimmedGradientSum:
        problem = self.problem
        if self.rate is not None:
            raise BudgetError("gradient='trim' needs all rows in every round: a trimmed sum of a sample is no sum")
        check_trimming(problem.neighbours)
        assert isinstance(problem.gradient, Trim)
        limit = trim_limit(problem.gradient.scale, problem.second_moment, problem.n_rows)
        m = trimmed_count(problem.n_rows, mechanism.smoothness)
        return TrimmedGradientSum(
            problem.n_rows, m, limit, mechanism.smoothness, problem.loss, problem.n_features, self.constant
        )

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        query, divisor = replace(self.query, target=target), self._divisor
        limit = query.limit if isinstance(query, TrimmedGradientSum) else math.inf

        def mean_gradient(w: Vector) -> Vector:
            oracle.visit(self._stored(w))
            return np.clip(oracle.ask("gradient", w, query) / divisor, -limit, limit)

        pick = self.picked(oracle, target)
        return self._stored(self.descend(self.step, mean_gradient, self._first(self.constant), pick))

    @property
    def _is_stationary(self) -> bool:
        return False

    @property
    def _is_followed(self) -> bool:
        """Rows without bounds are not."""
        return False

    def expected_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise, for features of the usual size.

        With curvature h a step forgets the fraction ``step * h`` of what was before, so the last iterate has variance
        ``step noise^2 / (h (2 - step h))`` per coordinate; averaging the last m iterates leaves ``(noise / h)^2 / m``.
        """
        problem = self.problem
        h = problem.loss.curvature_bound * feature_square(problem, WIDTHS) + problem.strong_convexity
        mechanism = plan["gradient"].mechanism
        if isinstance(mechanism, ArsinhNormal):
            if problem.second_moment is None:
                return None
            noise = trimmed_noise(mechanism, problem.second_moment, problem.n_rows)
        else:
            noise = mechanism.noise_std(self.query.sensitivity(problem.neighbours, mechanism.norm)) / self._divisor
        kept = self.step * h
        averaged = max(1.0, self.tail * self.rounds)
        variance = noise**2 / h**2 * (kept / (2 - kept) if averaged == 1 and kept < 2 else 1 / averaged)
        return problem.n_parameters * h * variance / 2

    @property
    def _divisor(self) -> float:
        trimmed = self.query.n_trimmed if isinstance(self.query, TrimmedGradientSum) else 0
        return self.expected_rows - 2 * trimmed

    def _stored(self, w: Vector) -> Vector:
        """The weight of the constant feature for the one that the estimator has."""
        return np.append(w[:-1], w[-1] * (self.constant / self.problem.intercept)) if self.constant else w


@dataclass(frozen=True)
class GradientDescent(ClippedDescent):
    """Plain gradient descent: `RobustDescent` where the gradient or a ``second_moment`` asks for it.

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (1 % of the budget), or from the public guess
        that features have mean square 1 (``feature_bound / 3`` squared) where rows are not bounded.
    combine : {"auto", "last", "tail-average", "random", "min-noisy"}
        What is returned: the last iterate; the mean of the last half; one whose number is drawn before the rows are
        read (from the name of the run, so that one which is taken up again returns the same); or the one at which the
        smallest gradient was released (the smallest gradient mapping where there is a set or a proximal step): the
        start may be the answer of the last two. ``"auto"`` is the last one for ``rows="all"`` and the mean for
        ``rows="sample"``.
    start : sequence of float, optional
        Public point where it begins: the coefficients, and last the intercept if there is one. Default:
        the point of the set that is nearest to 0.
    certify : {"local-minimum"}, optional
        Keep half of mu^2 for Hessians at the last iterates, and return one that looks like a local minimum:
        ``smallest_curvature_`` is its smallest released curvature (`dpdist.central.linear.second_order`).
    curvature_target : float, optional
        With ``certify``: ``certified_`` may be True only where a negative curvature of that size would be seen.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=GradientDescent(n_rounds=20,
    ...     combine="tail-average"), epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.1,  4.9, -1.4, -1.9]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag: ClassVar[str] = "GradientDescent"

    certify: Literal["local-minimum"] | None = field(default=None, kw_only=True, metadata=ADDED)
    curvature_target: float | None = field(default=None, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.certify is not None:
            choice("certify", self.certify, ["local-minimum"])
        elif self.curvature_target is not None:
            raise BudgetError("curvature_target is what certify='local-minimum' has to tell: pass that as well")
        check_target(self.curvature_target)

    def decide(self, public: Public, statement: Problem) -> ClippedDescent:  # type: ignore[override]
        gradient = statement.gradient or ClipNorm()
        clipped = isinstance(gradient, ClipNorm)
        plain = clipped and (gradient.clip_norm is not None or statement.second_moment is None)  # type: ignore[attr-defined]
        if self.certify is not None:
            certified = CertifiedDescent(
                self.n_rounds, self.step_size, self.combine, self.curvature_target, start=self.start, reason=self.reason
            )
            return certified.decide(public, statement)
        kind = ClippedDescent if plain else RobustDescent
        same = kind(self.n_rounds, self.step_size, self.combine, start=self.start, reason=self.reason)
        return same.decide(public, statement)

"""Private iterative hard thresholding: a gradient step, after which only a few coordinates are kept (``"iht"``).

================== ========================================================================================
method             parameters
================== ========================================================================================
dp-htp             the default: `dpdist.central.linear.pursuit`
residual-clip-iht  ``gradient="residual"``
ht-dp-iht          ``gradient="shrink"``, ``rows="split"``, ``constraint=L2Ball(1.0)``
ht-sparse-opt      ``gradient="truncate"``
dp-iht-erm         ``gradient="norm"``
================== ========================================================================================

Seed 003, section 5 (Algorithms 3 to 5); seed 000, Algorithm 5.3.43.

Why it is private: a row moves no coordinate of the gradient sum by more than twice the public bound, and peeling
(`dpdist.privacy.mechanisms.peeling`) releases ``n_nonzero`` coordinates of the point after the step, with noise that
depends on their number instead of that of all. With ``gradient="norm"`` the whole gradient gets Gaussian noise, and
which coordinates are kept is public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm, Gradient, ScaleRows
from dpdist.central.linear.gradient_descent import needs_delta, norm_gradient
from dpdist.central.linear.heavy_tailed import SCALE_SHARE, truncation_scale
from dpdist.central.linear.high_dimensional import (
    COORDINATEWISE,
    bounded_gradient,
    check_rounds,
    feature_square,
    gradient_query,
    is_split,
    rho_of,
)
from dpdist.central.linear.linear_method import (
    LinearMethod,
    LoopMethod,
    Problem,
    Vector,
    bounded_by,
    need,
    need_prox,
    reads,
)
from dpdist.central.linear.pursuit import Pursuit, pursuit_can
from dpdist.constraints import L1Ball, L2Ball, hard_threshold, proximal
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS, check_count
from dpdist.kernels.coordinate_gradients import CoordinateMap
from dpdist.kernels.truncation import ScalarMap
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.peeling import LaplacePeel, Peel
from dpdist.queries.coordinate_gradient_sums import State
from dpdist.solvers.loops import drive, hard_threshold_descent

WIDTHS = 3.0
"""``feature_bound`` is taken for this many times the usual size of a feature."""


@dataclass(frozen=True)
class HardThresholding(LoopMethod):
    """A gradient step, after which only ``n_nonzero`` coefficients are kept.

    By default it is `dpdist.central.linear.pursuit.Pursuit`, which chooses columns and fits them, without a step size.
    With another ``gradient``, ``step_size`` or ``start``, and for what a pursuit cannot do (a constraint, rows that
    are split, no delta) it is `PeelingDescent`, or with ``gradient="norm"`` `NoisyThresholding`: their steps rest on a
    guess of the curvature and may diverge on correlated columns, or on columns of zeros and ones.

    Parameters
    ----------
    n_nonzero : int
        Public number of coefficients that may differ from 0. Required.
    step_size : float, optional
        Public step size. Default: from the curvature of the loss and the public size of a row or a feature.
    start : sequence of float, optional
        Public point where it begins, with at most ``n_nonzero`` numbers that are not 0: the coefficients, and last the
        intercept if there is one. Default: 0.

    Attributes
    ----------
    step : float
        Decided.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(solver=HardThresholding(n_nonzero=3), feature_bound=3.0, residual_bound=1.5,
    ...     alpha=0.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.3, -0.2,  0.2,  0. ,  0. ,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "HardThresholding", "iht"
    default_alpha: ClassVar[float] = 0.0

    step_size: float | None = None
    n_nonzero: int | None = None

    step: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_nonzero is not None:
            check_count("n_nonzero", self.n_nonzero)

    def decide(self, public: Public, statement: Problem) -> LinearMethod:
        free = self.step_size is None and self.start is None
        if isinstance(statement.gradient, ScaleRows) or (
            statement.gradient is None and free and pursuit_can(statement)
        ):
            pursuit = Pursuit(self.n_rounds, n_nonzero=self.n_kept, reason=self.reason)
            return pursuit.decide(public, statement)
        problem = bounded_by(statement, self.name, *self._gradients(statement))
        need_prox(problem, self.name)
        if self.n_kept > problem.n_parameters:
            raise BudgetError(f"n_nonzero={self.n_kept} exceeds the number of coefficients, {problem.n_parameters}")
        kind = NoisyThresholding if isinstance(problem.gradient, ClipNorm) else PeelingDescent
        same = kind(self.n_rounds, self.step_size, self.n_nonzero, start=self.start, reason=self.reason)
        return same._decided(problem)

    def _check_start(self) -> None:
        super()._check_start()
        used = 0 if self.start is None else int(np.count_nonzero(self.start))
        if used > self.n_kept:
            raise BudgetError(
                f"start={self._shown_start} has {used} numbers that are not 0, and n_nonzero={self.n_kept}: keep the "
                "largest of them, or raise n_nonzero"
            )

    @property
    def n_kept(self) -> int:
        """How many coefficients may differ from 0."""
        if self.n_nonzero is None:
            raise MissingBound(
                f"n_nonzero is missing: {BOUNDS['n_nonzero']}, with solver=HardThresholding(n_nonzero=...)"
            )
        return self.n_nonzero

    @staticmethod
    def _gradients(problem: Problem) -> tuple[type[Gradient], ...]:
        """What may bound a row, the default first: the whole gradient where only rows are bounded."""
        if problem.gradient is not None:
            return (*COORDINATEWISE, ClipNorm)
        by_norm = problem.row_norm is not None and problem.feature_bound is None and problem.second_moment is None
        return (ClipNorm, *COORDINATEWISE) if by_norm else (*COORDINATEWISE, ClipNorm)

    def lines(self) -> Sequence[Line]:
        raise AssertionError("decide() gives one of the two")

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        raise AssertionError("decide() gives one of the two")


@dataclass(frozen=True)
class PeelingDescent(HardThresholding):
    """Every round releases the ``n_nonzero`` largest coordinates of the point after a step.

    6 rounds for squared losses, 8 for others. ``step_size``: two thirds of ``1/(h q + a)``, h the curvature of the
    loss, ``q`` a public guess of the largest eigenvalue of ``E x x'`` (1, or ``(feature_bound/3)^2``), ``a`` of the
    penalty. Where features are never negative (counts) the eigenvalue is larger, up to the square of a row's norm, and
    steps are too long, the more so the less noise there is: give ``step_size``. A truncation has half of the scale that
    balances bias and noise, because the steps forgive bias. The constant feature, if there is one, is as large as a
    usual feature, and counts among the ``n_nonzero``.

    Attributes
    ----------
    bounded : CoordinateMap
        Bounds every coordinate of a row's gradient.
    split : bool
        Whether every round reads rows of its own.
    constant : float
        The constant feature, 0 for none.
    """

    tag: ClassVar[str] = "PeelingDescent"

    bounded: CoordinateMap = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    split: bool = field(default=False, kw_only=True, repr=False, metadata=DECIDED)
    constant: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    def _decided(self, problem: Problem) -> Self:
        split = is_split(problem, self.name)
        n_rounds = self.n_rounds or (6 if problem.loss.name in ("squared", "huber", "biweight") else 8)
        check_rounds(problem, split, n_rounds)
        rows = problem.n_rows // n_rounds if split else problem.n_rows

        def scale(unit: ScalarMap) -> float:
            assert problem.second_moment is not None
            noise = _noise_per_scale(problem, self.n_kept, unit, rows, 1 if split else n_rounds)
            n_means = problem.n_parameters * n_rounds
            return SCALE_SHARE * truncation_scale(unit, problem.second_moment, rows, noise, n_means)

        bounded = bounded_gradient(problem, scale, _l1_radius(problem, self.n_kept))
        square = feature_square(problem, WIDTHS)
        step = self.step_size or 2 / 3 / (problem.loss.curvature_bound * square + problem.strong_convexity)
        constant = min(math.sqrt(square), problem.intercept) if problem.intercept else 0.0
        choices = {"n_rounds": n_rounds, "bounded": bounded, "split": split, "step": step, "constant": constant}
        return self._with(problem.public, problem, **choices)

    def lines(self) -> Sequence[Line]:
        count, pure = self.problem.n_problems, self.problem.budget.delta == 0
        mechanism = (LaplacePeel if pure else Peel)(self.n_kept)
        query = gradient_query(replace(self.problem, intercept=self.constant), self.bounded, None)
        if not self.split:
            return [Line("step", mechanism, query, count=self.rounds * count)]
        folds = f"slots-{self.rounds}"
        return [Line(self._line(t), mechanism, query, count=count, fold=(folds, t)) for t in range(self.rounds)]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem = self.problem
        query = gradient_query(replace(problem, intercept=self.constant), self.bounded, target)
        per_step = problem.n_rows / (self.rounds if self.split else 1) / self.step
        prox = proximal(problem.proximal_penalty, problem.constraint, problem.n_features)
        rounds = itertools.count()

        def step(w: Vector) -> Vector:
            oracle.visit(self._stored(w))
            return oracle.ask(self._line(next(rounds)), State(w, per_step * w), query) / per_step

        loop = hard_threshold_descent(self._first(self.constant), self.rounds, lambda u: prox(u, self.step))
        return self._stored(drive(loop, step))

    def expected_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise of the values kept, for features of the usual size.

        With curvature h a step of ``2/(3 h)`` forgets two thirds of what was before, so the last iterate has 1.125
        times the variance of one release. That a coordinate may be missed comes on top.
        """
        problem = self.problem
        rows = problem.n_rows / (self.rounds if self.split else 1)
        sensitivity = problem.neighbours.sum_factor * self.bounded.bound
        noise = self.step * plan[self._line(0)].mechanism.noise_std(sensitivity) / rows
        return 1.125 * self.n_kept * noise**2 * problem.loss.curvature_bound * feature_square(problem, WIDTHS) / 2

    def _line(self, t: int) -> str:
        return f"step {t + 1}" if self.split else "step"

    def _stored(self, w: Vector) -> Vector:
        """The weight of the constant feature for the one that the estimator has."""
        return np.append(w[:-1], w[-1] * (self.constant / self.problem.intercept)) if self.constant else w


@dataclass(frozen=True)
class NoisyThresholding(HardThresholding):
    """The whole gradient is released, the threshold is public (dp-iht-erm).

    ``step_size``: three quarters of ``1/(h r^2 + a)``, h the curvature of the loss, r the norm of a row, a that of the
    penalty. Rounds: the largest of 20, 50, 100, 200 and 300 for which the noise of a step, ``step noise sqrt(2 k
    ln d)``, stays below a tenth of the radius of the constraint (without one, of ``10 / r``).
    """

    tag: ClassVar[str] = "NoisyThresholding"

    def _decided(self, problem: Problem) -> Self:
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        query = norm_gradient(problem)
        assert problem.row_norm is not None
        length = math.hypot(problem.row_norm, problem.intercept)
        step = self.step_size or 0.75 / (problem.loss.smoothness(length) + problem.strong_convexity)
        n_rounds = self.n_rounds
        if n_rounds is None:
            per_root = step * query.sensitivity(problem.neighbours) / (problem.mu * problem.n_rows)
            per_root *= math.sqrt(2 * self.n_kept * math.log(max(problem.n_parameters, 2)))
            radius = getattr(problem.constraint, "radius", 10 / problem.row_norm)
            n_rounds = max(t for t in (20, 50, 100, 200, 300) if t == 20 or per_root * math.sqrt(t) <= 0.1 * radius)
        return self._with(problem.public, problem, n_rounds=n_rounds, step=step)

    def lines(self) -> Sequence[Line]:
        count = self.rounds * self.problem.n_problems
        return [Line("gradient", Gaussian(), norm_gradient(self.problem), count=count)]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem = self.problem
        n_nonzero, query = self.n_kept, norm_gradient(problem, target)
        prox = proximal(problem.proximal_penalty, problem.constraint, problem.n_features)

        def step(w: Vector) -> Vector:
            g = oracle.ask("gradient", oracle.visit(w), query) / problem.n_rows
            return hard_threshold(w - self.step * g, n_nonzero)

        loop = hard_threshold_descent(self._first(problem.intercept), self.rounds, lambda u: prox(u, self.step))
        return drive(loop, step)

    def expected_error(self, plan: Plan) -> float | None:
        """As of gradient descent (`dpdist.central.linear.gradient_descent`) on the ``n_nonzero`` coordinates that are
        kept."""
        problem = self.problem
        assert problem.row_norm is not None
        noise = plan["gradient"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        return self.n_kept * (noise / problem.n_rows) ** 2 / (2 * curvature)


def _l1_radius(problem: Problem, n_nonzero: int) -> float | None:
    """Bound of ``||w||_1`` of sparse points in the constraint."""
    constraint = problem.constraint
    if isinstance(constraint, L1Ball):
        return constraint.radius
    if isinstance(constraint, L2Ball):
        return math.sqrt(n_nonzero) * constraint.radius
    return None


def _noise_per_scale(problem: Problem, n_nonzero: int, unit: ScalarMap, rows: int, rounds: int) -> float:
    """Standard deviation of a released value of the mean, per unit of the truncation's scale."""
    mechanism: Peel | LaplacePeel
    if problem.budget.delta == 0:
        mechanism = LaplacePeel(n_nonzero).at(problem.budget.epsilon / (rounds * problem.n_problems))
    else:
        mechanism = Peel(n_nonzero).at(math.sqrt(2 * rho_of(problem) / rounds))
    return mechanism.noise_std(problem.neighbours.sum_factor * unit.bound) / rows

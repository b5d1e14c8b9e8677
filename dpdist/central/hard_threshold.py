"""Private iterative hard thresholding: a gradient step, after which only a few coordinates are kept (``"iht"``).

================== ========================================================================================
method             parameters (with ``n_nonzero``)
================== ========================================================================================
residual-clip-iht  ``gradient="residual"``, the default
ht-dp-iht          ``gradient="shrink"``, ``rows="split"``, ``constraint=L2Ball(1.0)``
ht-sparse-opt      ``gradient="truncate"``
dp-iht-erm         ``gradient="norm"``
================== ========================================================================================

Seed 003, section 5 (Algorithms 3 to 5); seed 000, Algorithm 5.3.43.

Why it is private: a row moves no coordinate of the gradient sum by more than twice the public bound, and peeling
(`dpdist.privacy.peeling`) releases ``n_nonzero`` coordinates of the point after the step, with noise that depends on
their number instead of that of all. With ``gradient="norm"`` the whole gradient gets Gaussian noise, and which
coordinates are kept is public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpdist.central.convex import needs_delta, norm_gradient
from dpdist.central.coordinate_queries import State
from dpdist.central.course import Course, Problem, Vector, need
from dpdist.central.heavy_tailed import SCALE_SHARE, truncation_scale
from dpdist.central.high_dimensional import (
    GRADIENTS,
    bounded_gradient,
    check_rounds,
    feature_square,
    gradient_name,
    gradient_query,
    is_split,
    rho_of,
)
from dpdist.constraints import L1Ball, L2Ball, hard_threshold, proximal
from dpdist.errors import BudgetError
from dpdist.fitting.door import Door
from dpdist.fitting.parameters import choice
from dpdist.kernels.coordinate_gradients import CoordinateMap
from dpdist.kernels.truncation import ScalarMap
from dpdist.privacy.accounting import gdp_mu
from dpdist.privacy.mechanisms import Gaussian
from dpdist.privacy.peeling import LaplacePeel, Peel
from dpdist.privacy.plan import Item, Plan
from dpdist.solvers.loops import drive, hard_threshold_descent

WIDTHS = 3.0
"""``feature_bound`` is taken for this many times the usual size of a feature."""


@dataclass(frozen=True)
class PeelingDescent(Course):
    """``solver="iht"``: every round releases the ``n_nonzero`` largest coordinates of the point after a step.

    6 rounds for squared losses, 8 for others. ``step_size``: two thirds of ``1/(h q + a)``, h the curvature of the
    loss, ``q`` a public guess of the largest eigenvalue of ``E x x'`` (1, or ``(feature_bound/3)^2``), ``a`` of the
    penalty. A truncation has half of the scale that balances bias and noise, because the steps forgive bias. The
    constant feature, if there is one, is as large as a usual feature, and counts among the ``n_nonzero``.

    Attributes
    ----------
    bounded : CoordinateMap
        Bounds every coordinate of a row's gradient.
    split : bool
        Whether every round reads rows of its own.
    step : float
    constant : float
        The constant feature, 0 for none.
    """

    tag: ClassVar[str] = "PeelingDescent"

    bounded: CoordinateMap
    split: bool
    step: float
    constant: float

    name: ClassVar[str] = "iht"

    @classmethod
    def of(cls, problem: Problem) -> PeelingDescent:
        """The course for a problem, by the rules above."""
        split = is_split(problem)
        n_rounds = problem.n_rounds or (6 if problem.loss.name in ("squared", "huber", "biweight") else 8)
        check_rounds(problem, split, n_rounds)
        rows = problem.n_rows // n_rounds if split else problem.n_rows

        def scale(unit: ScalarMap) -> float:
            assert problem.second_moment is not None
            noise = _noise_per_scale(problem, unit, rows, 1 if split else n_rounds)
            n_means = problem.n_parameters * n_rounds
            return SCALE_SHARE * truncation_scale(unit, problem.second_moment, rows, noise, n_means)

        bounded = bounded_gradient(problem, scale, _l1_radius(problem))
        square = feature_square(problem, WIDTHS)
        step = problem.step_size or 2 / 3 / (problem.loss.curvature_bound * square + problem.strong_convexity)
        constant = min(math.sqrt(square), problem.intercept) if problem.intercept else 0.0
        return cls(problem, n_rounds, bounded, split, step, constant)

    def items(self) -> Sequence[Item]:
        assert self.problem.n_nonzero is not None
        count, pure = self.problem.n_problems, self.problem.budget.delta == 0
        mechanism = (LaplacePeel if pure else Peel)(self.problem.n_nonzero)
        if not self.split:
            return [Item("step", mechanism, count=self.n_rounds * count)]
        folds = f"slots-{self.n_rounds}"
        return [Item(self._line(t), mechanism, count=count, fold=(folds, t)) for t in range(self.n_rounds)]

    def solve(self, door: Door) -> Vector:
        problem = self.problem
        query = gradient_query(replace(problem, intercept=self.constant), self.bounded, door.target)
        per_step = problem.n_rows / (self.n_rounds if self.split else 1) / self.step
        prox = proximal(problem.penalty, problem.constraint, problem.n_features)
        rounds = itertools.count()

        def step(w: Vector) -> Vector:
            door.history.append(self._stored(w))
            return door.release(self._line(next(rounds)), query, State(w, per_step * w)) / per_step

        start = np.zeros(problem.n_parameters)
        return self._stored(drive(hard_threshold_descent(start, self.n_rounds, lambda u: prox(u, self.step)), step))

    def predicted_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise of the values kept, for features of the usual size.

        With curvature h a step of ``2/(3 h)`` forgets two thirds of what was before, so the last iterate has 1.125
        times the variance of one release. That a coordinate may be missed comes on top.
        """
        problem = self.problem
        assert problem.n_nonzero is not None
        rows = problem.n_rows / (self.n_rounds if self.split else 1)
        sensitivity = problem.neighbours.sum_factor * self.bounded.bound
        noise = self.step * plan[self._line(0)].mechanism.noise_std(sensitivity) / rows
        return 1.125 * problem.n_nonzero * noise**2 * problem.loss.curvature_bound * feature_square(problem, WIDTHS) / 2

    def _line(self, t: int) -> str:
        return f"step {t + 1}" if self.split else "step"

    def _stored(self, w: Vector) -> Vector:
        """The weight of the constant feature for the one that the estimator has."""
        return np.append(w[:-1], w[-1] * (self.constant / self.problem.intercept)) if self.constant else w


@dataclass(frozen=True)
class NoisyThresholding(Course):
    """``solver="iht", gradient="norm"``: the whole gradient is released, the threshold is public (dp-iht-erm).

    ``step_size``: three quarters of ``1/(h r^2 + a)``, h the curvature of the loss, r the norm of a row, a that of the
    penalty. ``n_rounds``: the largest of 20, 50, 100, 200 and 300 for which the noise of a step, ``step noise sqrt(2 k
    ln d)``, stays below a tenth of the radius of the constraint (without one, of ``10 / r``).
    """

    tag: ClassVar[str] = "NoisyThresholding"

    step: float

    name: ClassVar[str] = "iht"

    @classmethod
    def of(cls, problem: Problem) -> NoisyThresholding:
        """The course for a problem, by the rules above."""
        choice("rows", problem.rows, ("all",))
        needs_delta(problem)
        need(problem, "row_norm")
        query = norm_gradient(problem)
        assert problem.row_norm is not None and problem.n_nonzero is not None
        length = math.hypot(problem.row_norm, problem.intercept)
        step = problem.step_size or 0.75 / (problem.loss.smoothness(length) + problem.strong_convexity)
        n_rounds = problem.n_rounds
        if n_rounds is None:
            mu = gdp_mu(problem.budget.epsilon, problem.budget.delta) / math.sqrt(problem.n_problems)
            per_root = step * query.sensitivity(problem.neighbours) / (mu * problem.n_rows)
            per_root *= math.sqrt(2 * problem.n_nonzero * math.log(max(problem.n_parameters, 2)))
            radius = getattr(problem.constraint, "radius", 10 / problem.row_norm)
            n_rounds = max(t for t in (20, 50, 100, 200, 300) if t == 20 or per_root * math.sqrt(t) <= 0.1 * radius)
        return cls(problem, n_rounds, step)

    def items(self) -> Sequence[Item]:
        return [Item("gradient", Gaussian(), count=self.n_rounds * self.problem.n_problems)]

    def solve(self, door: Door) -> Vector:
        problem = self.problem
        assert problem.n_nonzero is not None
        n_nonzero, query = problem.n_nonzero, norm_gradient(problem, door.target)
        prox = proximal(problem.penalty, problem.constraint, problem.n_features)

        def step(w: Vector) -> Vector:
            g = door.gradient("gradient", query, w) / problem.n_rows
            return hard_threshold(w - self.step * g, n_nonzero)

        loop = hard_threshold_descent(np.zeros(problem.n_parameters), self.n_rounds, lambda u: prox(u, self.step))
        return drive(loop, step)

    def predicted_error(self, plan: Plan) -> float | None:
        """As of gradient descent (`dpdist.central.convex`) on the ``n_nonzero`` coordinates that are kept."""
        problem = self.problem
        assert problem.row_norm is not None and problem.n_nonzero is not None
        noise = plan["gradient"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        return problem.n_nonzero * (noise / problem.n_rows) ** 2 / (2 * curvature)


def iterative_hard_thresholding(problem: Problem) -> PeelingDescent | NoisyThresholding:
    """The course of ``solver="iht"``."""
    name = gradient_name(problem, ("auto", *GRADIENTS, "norm"))
    choice("combine", problem.combine, ("auto", "last"))
    need(problem, "n_nonzero")
    assert problem.n_nonzero is not None
    if problem.n_nonzero > problem.n_parameters:
        raise BudgetError(f"n_nonzero={problem.n_nonzero} exceeds the number of coefficients, {problem.n_parameters}")
    return (NoisyThresholding if name == "norm" else PeelingDescent).of(problem)


def _l1_radius(problem: Problem) -> float | None:
    """Bound of ``||w||_1`` of sparse points in the constraint."""
    constraint = problem.constraint
    if isinstance(constraint, L1Ball):
        return constraint.radius
    if isinstance(constraint, L2Ball) and problem.n_nonzero is not None:
        return math.sqrt(problem.n_nonzero) * constraint.radius
    return None


def _noise_per_scale(problem: Problem, unit: ScalarMap, rows: int, rounds: int) -> float:
    """Standard deviation of a released value of the mean, per unit of the truncation's scale."""
    assert problem.n_nonzero is not None
    mechanism: Peel | LaplacePeel
    if problem.budget.delta == 0:
        mechanism = LaplacePeel(problem.n_nonzero).at(problem.budget.epsilon / (rounds * problem.n_problems))
    else:
        mechanism = Peel(problem.n_nonzero).at(math.sqrt(2 * rho_of(problem) / rounds))
    return mechanism.noise_std(problem.neighbours.sum_factor * unit.bound) / rows

"""Gradient descent with noisy gradients, plain and accelerated (seed 000, section 3.1.5).

The rules for rounds and steps were measured on row-normalised logistic problems; what matters most is the ratio
``n mu / sqrt(d)`` of signal to noise, and a step size from the true smoothness instead of the worst case (20 to 50
times larger steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm, Sample
from dpdist.central.linear.linear_method import (
    Combine,
    LoopMethod,
    Problem,
    Vector,
    bounded_by,
    need,
    need_prox,
    reads,
)
from dpdist.central.linear.normal_rows import Rows, descent, response
from dpdist.constraints import ElasticNet, largest_norm, proximal
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS, check_bound, need_delta
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.queries.gradient_sums import GradientSum, LargestEigenvalue
from dpdist.solvers.loops import SHORTEST, drive, nesterov_momentum, prox_gradient

SMOOTHNESS_SHARE = 0.01
"""Share of mu^2 that pays for the private smoothness."""
MOST_ROUNDS = 200
"""Passes that the default of a loss that is not convex may take."""
DECAY = 0.5
"""Last part of the rounds over which steps for a loss that is not convex fall to 0."""
MAX_FEATURES_FOR_SMOOTHNESS = 2000
"""Above it the d x d matrix costs more than it gains, and the worst case is used."""


def needs_delta(problem: Problem) -> None:
    """Refuse Gaussian noise without delta, in the words of the estimator's parameters."""
    need_delta(problem.budget.delta, "gradients")


def check_curvature(problem: Problem) -> None:
    """Refuse a smooth penalty that is asked where the range of its curvature does not hold."""
    reach = getattr(problem.smooth_penalty, "radius", math.inf)
    if math.isfinite(reach) and not largest_norm(problem.constraint, problem.n_features) <= reach:
        raise BudgetError(
            f"penalty={problem.penalty!r} knows its curvature on the ball of radius {reach:g}, and the constraint "
            f"{problem.constraint!r} does not keep the coefficients there: pass constraint=L2Ball({reach:g}), or give "
            "the penalty a larger radius"
        )


def precise(problem: Problem) -> bool:
    """Whether data are plenty: ``n mu / sqrt(d) >= 3000`` (per binary problem)."""
    return problem.n_rows * problem.mu / math.sqrt(problem.n_features) >= 3000


def norm_gradient(problem: Problem, target: int | None = None) -> GradientSum:
    """The clipped gradient sum of a problem, with the clip that the row norm and the loss imply if none is given."""
    assert problem.row_norm is not None and isinstance(problem.gradient, ClipNorm)
    length = math.hypot(problem.row_norm, problem.intercept)
    clip_norm = problem.gradient.clip_norm or problem.loss.derivative_bound * length
    if not math.isfinite(clip_norm):
        raise MissingBound(
            f"clip_norm is missing: the {problem.loss.name} loss has no bounded derivative, so {BOUNDS['clip_norm']}, "
            "with gradient=ClipNorm(clip_norm=...); or bound the labels, with gradient=ClipLabel(label_bound=...), for "
            "least squares from sufficient statistics"
        )
    check_bound("clip_norm", clip_norm)
    return GradientSum(problem.loss, problem.row_norm, clip_norm, problem.intercept, target)


def stationary_rounds(problem: Problem) -> int:
    """Rounds after which noise and remaining gradient balance, ``n mu sqrt(M F / (2 d)) / G``, `MOST_ROUNDS` at most.

    Of ``E ||gradient||^2 <= 4 M F / T + 2 d noise^2``, M the smoothness, F what the loss can fall by (seed 000,
    Algorithm 4.1.16). A loss without a bound gets the most.
    """
    assert problem.row_norm is not None
    length, fall = math.hypot(problem.row_norm, problem.intercept), problem.loss.value_bound
    if not math.isfinite(fall):
        return MOST_ROUNDS
    most = math.sqrt(problem.loss.smoothness(length) * fall / (2 * problem.n_parameters))
    rounds = problem.public.n_units * problem.mu * most / norm_gradient(problem).clip_norm
    return math.ceil(min(max(rounds, 1), MOST_ROUNDS))


def stationary_step(problem: Problem, curvature: float, noise: float, rounds: int) -> float:
    """The step that balances what T noisy ones gain and lose, ``sqrt(2 F / (L T d noise^2))``.

    The mean squared gradient of T steps is at most ``2 F / (step T) + step L d noise^2``, F what the loss can fall by
    (Ghadimi and Lan 2013). Infinite for a loss without a bound.
    """
    return math.sqrt(2 * problem.loss.value_bound / (curvature * rounds * problem.n_parameters)) / noise


def label_size(problem: Problem) -> float:
    """What bounds the part of real labels that counts where gradients are clipped in norm."""
    bound = problem.loss.derivative_bound
    assert problem.row_norm is not None and isinstance(problem.gradient, ClipNorm)
    return bound if math.isfinite(bound) else (problem.gradient.clip_norm or 1.0) / problem.row_norm


@dataclass(frozen=True)
class Smoothness:
    """The step size's half of a plan: the curvature of the mean loss, released or from the worst case of the bounds.

    ``asked`` tells whether a step size has to be found.
    """

    problem: Problem
    asked: bool = True

    @property
    def released(self) -> bool:
        """Whether it takes a release."""
        return self.asked and self.problem.n_features <= MAX_FEATURES_FOR_SMOOTHNESS

    @property
    def worst(self) -> float:
        """The largest curvature that the bounds allow."""
        assert self.problem.row_norm is not None
        return self.problem.loss.curvature_bound * (self.problem.row_norm**2 + self.problem.intercept**2)

    @property
    def query(self) -> Query:
        """What is asked for it."""
        problem = self.problem
        assert problem.row_norm is not None
        return LargestEigenvalue(problem.n_features, problem.row_norm, problem.n_rows, problem.intercept)

    def lines(self) -> list[Line]:
        """At most one line, for 1 % of mu^2."""
        return [Line("smoothness", Gaussian(), self.query, share=SMOOTHNESS_SHARE)] if self.released else []

    @property
    def rest(self) -> float:
        """The share that is left for everything else."""
        return 1 - SMOOTHNESS_SHARE if self.released else 1.0

    def of(self, oracle: Oracle) -> float:
        """An upper bound on the curvature."""
        return oracle.once("smoothness", lambda: self._of(oracle))

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        """The bound that rows lead to."""
        if not self.released:
            return np.full(len(rows.moments), self.worst)
        noise = plan["smoothness"].mechanism.noise_std(self.query.sensitivity(self.problem.neighbours))
        return self._generous(self.problem.n_rows * rows.moments.max(axis=1), noise)

    def _of(self, oracle: Oracle) -> float:
        if not self.released:
            return self.worst
        return float(self._generous(oracle.ask("smoothness")[0], oracle.noise_std))

    def _generous(self, noisy: Any, noise: float) -> Any:
        # three standard deviations up: a step that is too long hurts more than one that is too short
        generous = self.problem.loss.curvature_bound * (noisy + 3 * noise) / self.problem.n_rows
        return np.clip(generous, 1e-6 * self.worst, self.worst)


@dataclass(frozen=True)
class ClippedDescent(LoopMethod):
    """Gradient descent with clipped gradients, on all rows (dp-gd) or, with ``rows="sample"``, on samples (dp-sgd).

    Rounds: 10 full gradients where ``n mu / sqrt(d) < 3000``, else 30; sampled 200. Of a loss that is not convex:
    `stationary_rounds`, with steps that fall to 0 over the last half of them, unless ``step_size`` is given.

    Parameters are those of `dpdist.central.linear.heavy_tailed.GradientDescent`.

    Attributes
    ----------
    rate : float or None
        Poisson rate of a round's rows; None reads all rows. Decided, as the next one.
    tail : float
        Fraction of the last iterates that is averaged; 0 takes the last one.
    """

    tag, name = "ClippedDescent", "gradient"

    step_size: float | None = None
    combine: Combine = "auto"

    rate: float | None = field(default=None, kw_only=True, repr=False, metadata=DECIDED)
    tail: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    default_rounds: ClassVar[tuple[int, int]] = (10, 30)
    accelerated: ClassVar[bool] = False
    inertia: ClassVar[float] = 0.0

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        if self.accelerated:
            need_prox(problem, self.name)
        check_curvature(problem)
        sampled = self.sampled(problem)
        needs_delta(problem)
        need(problem, "row_norm")
        norm_gradient(problem)  # its bounds are checked before anything is planned
        return replace(sampled, n_rounds=sampled.n_rounds or sampled._usual_rounds())

    def sampled(self, problem: Problem) -> Self:
        """The method for a problem, with the rows of a round and what is averaged."""
        reads(problem, self.name, All, Sample)
        rate = problem.rows.rate if isinstance(problem.rows, Sample) else None
        averaged = self.combine == "tail-average" or (self.combine == "auto" and rate is not None)
        return self._with(problem.public, problem, rate=rate, tail=0.5 if averaged else 0.0)

    def _usual_rounds(self) -> int:
        if self.rate:
            return 200
        problem = self.problem
        return stationary_rounds(problem) if self._is_stationary else self.default_rounds[precise(problem)]

    @property
    def _is_stationary(self) -> bool:
        """Whether rounds and steps are those of a loss that is not convex."""
        return not self.problem.loss.convex and not self.accelerated

    @property
    def expected_rows(self) -> float:
        """How many rows a round reads: all, or the mean number of a sample."""
        return self.problem.n_rows * (1.0 if self.rate is None else self.rate)

    @property
    def smoothness(self) -> Smoothness:
        """Where the step size comes from."""
        return Smoothness(self.problem, self.step_size is None)

    def lines(self) -> list[Line]:
        return [*self.smoothness.lines(), self.line(Gaussian(), norm_gradient(self.problem), self.smoothness.rest)]

    def line(self, mechanism: Mechanism, query: Query | None, share: float = 1.0) -> Line:
        """The line of the plan that pays for the gradients."""
        sampling = None if self.rate is None else Poisson(self.rate)
        count = self.rounds * self.problem.n_problems
        return Line("gradient", mechanism, query, count=count, share=share, sampling=sampling)

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        query = norm_gradient(self.problem, target)
        pick = self.picked(oracle, target)
        step = self.step_size or self._step(oracle)

        def mean_gradient(w: Vector) -> Vector:
            return oracle.ask("gradient", oracle.visit(w), query) / self.expected_rows

        return self.descend(step, mean_gradient, self._first(self.problem.intercept), pick)

    def picked(self, oracle: Oracle, target: int | None) -> int | None:
        """Which iterate is returned, where it is a single one but the last."""
        if self.combine == "min-noisy":
            return SHORTEST
        return oracle.drawn(f"iterate of {target}", self.rounds) if self.combine == "random" else None

    def descend(
        self, step: float, mean_gradient: Callable[[Vector], Vector], first: Vector, pick: int | None
    ) -> Vector:
        """The loop; the gradient of a smooth penalty is public, and added to what was released."""
        problem, smooth, d = self.problem, self.problem.smooth_penalty, self.problem.n_features

        def gradient(w: Vector) -> Vector:
            g = mean_gradient(w)
            return g if smooth is None else np.concatenate([g[:d] + smooth.gradient(w[:d]), g[d:]])

        momentum = nesterov_momentum(step, problem.strong_convexity, self.rounds) if self.accelerated else 0.0
        prox = proximal(problem.proximal_penalty, problem.constraint, d)
        falls = DECAY if self._is_stationary and not self.step_size and not self.tail else 0.0
        loop = prox_gradient(first, prox, step, self.rounds, momentum, self.tail, pick, self.inertia, falls)
        return drive(loop, gradient)

    @property
    def _is_followed(self) -> bool:
        """Where a set or a penalty that is no ridge binds nobody knows; samples vary."""
        penalty = self.problem.penalty
        ridge = penalty is None or (isinstance(penalty, ElasticNet) and penalty.l1_ratio == 0)
        plain = self.problem.constraint is None and self.start is None and self.rate is None
        return ridge and plain and self.combine not in ("random", "min-noisy")

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        """Of gradients that no clip cuts."""
        problem = self.problem
        noise = plan["gradient"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        step = np.full(len(rows.moments), self.step_size or 0.0)
        if self.step_size is None:
            step = 1 / self.smoothness.foreseen(plan, rows)
        momentum = [nesterov_momentum(each, problem.strong_convexity, self.rounds) for each in step]
        return descent(
            rows,
            response(problem.loss),
            noise=noise / problem.n_rows,
            step=step,
            momentum=np.array(momentum) if self.accelerated else np.zeros(len(step)),
            ridge=problem.strong_convexity,
            rounds=self.rounds,
            tail=math.ceil(self.tail * self.rounds),
        )

    @property
    def label_size(self) -> float:
        return label_size(self.problem)

    def expected_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise, for rows that are equally long in all directions.

        With curvature ``h`` in all of d directions and a step of 1/h, each step forgets the one before: the last
        iterate has variance ``(noise/h)^2`` per coordinate, an excess of ``d noise^2 / (2 h)``. Averaging the last
        ``m`` iterates divides it by ``m``, whatever the step.
        """
        problem = self.problem
        assert problem.row_norm is not None
        noise = plan["gradient"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        noise /= self.expected_rows
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        averaged = max(1.0, self.tail * self.rounds)
        return problem.n_parameters * noise**2 / (2 * curvature * averaged)

    def _step(self, oracle: Oracle) -> float:
        """1/L, a quarter of it for sampled rows, whose gradients vary; `stationary_step` where the noise is large and
        the loss not convex."""
        curvature = self.smoothness.of(oracle) + self.problem.penalty_curvature
        longest = (1.0 if self.rate is None else 0.25) / curvature
        if not self._is_stationary:
            return longest
        query = norm_gradient(self.problem)
        noise = oracle.plan["gradient"].mechanism.noise_std(query.sensitivity(self.problem.neighbours))
        noise *= self.problem.public.units.max_rows / self.expected_rows
        return min(longest, stationary_step(self.problem, curvature, noise, self.rounds))


class AcceleratedGradient(ClippedDescent):
    """The same with momentum (dp-agd): 8 rounds where ``n mu / sqrt(d) < 3000``, else 15.

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (1 % of the budget).
    combine : {"auto", "last", "tail-average", "random", "min-noisy"}
        What is returned, as by `GradientDescent`.
    start : sequence of float, optional
        Public point where it begins. Default: the point of the set that is nearest to 0.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=AcceleratedGradient(n_rounds=8),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.3,  5.9, -1.7, -2.3]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "AcceleratedGradient", "accelerated"

    default_rounds: ClassVar[tuple[int, int]] = (8, 15)
    accelerated: ClassVar[bool] = True

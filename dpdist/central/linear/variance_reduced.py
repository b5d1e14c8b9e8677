"""Variance-reduced gradients: a full gradient now and then, and cheap differences to it in between.

``solver="svrg"`` (dp-svrg), ``"svrg++"`` (dp-svrgpp) and ``"katyusha"`` (dp-katyusha): seed 000, section 3.1.3, in a
construction that is private. Printed there, every step adds noise of a batch mean to the gradient of a single random
row, which that row does not hide in. Here

1. the gradient at the snapshot s is released once per epoch, from all rows;
2. a step releases the sum of the differences ``grad_i(x) - grad_i(s)`` over a Poisson sample of the rows, each clipped
   to ``C = min(2 G, L ||x - s||)``. x and s are released values, so C is public, and for an L-smooth loss nothing is
   cut off: the noise shrinks with the distance;
3. everything else is post-processing.

The shares of mu^2 are 1 % for the step size, and one half each for snapshots and differences of the rest. Once privacy
is right, variance reduction is no better than plain gradients at the same budget (measured): these methods are here
for comparison, and for data that is expensive to read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm, check_rate
from dpdist.central.linear.gradient_descent import Smoothness, needs_delta, norm_gradient
from dpdist.central.linear.linear_method import LoopMethod, Problem, Vector, bounded_by, need, need_prox, reads
from dpdist.constraints import proximal
from dpdist.estimators.parameters import check_count
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.smooth_losses import GradientDifference
from dpdist.solvers.loops import drive, variance_reduced

SNAPSHOT_SHARE = 0.5
"""Share of mu^2 for the full gradients, of what the step size leaves."""
NOTHING = 2.0**-190
"""A clip below it counts as 0: the two points are the same but for rounding."""


@dataclass(frozen=True)
class SVRG(LoopMethod):
    """A full gradient for each epoch of short rounds, which start again at the last point of the one before (dp-svrg).

    Epochs: 6 where ``n mu / sqrt(d) >= 3000``, 4 from 1000 on, 3 below. The longer the course, the less error it
    leaves and the more noise it meets.

    Parameters
    ----------
    n_rounds : int, optional
        Epochs.
    n_inner : int, optional
        Public number of short rounds in each: 10 (below 1000: 5).
    batch_rate : float, default 0.02
        Chance of each row to be in a short round.
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (1 % of the budget).
    start : sequence of float, optional
        Public point where it begins: the coefficients, and last the intercept if there is one. Default:
        the point of the set that is nearest to 0.

    Attributes
    ----------
    steps : tuple of int
        Short rounds of each epoch; decided.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=SVRG(n_rounds=3, batch_rate=0.05), alpha=1e-4,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1. ,  4.3, -1.3, -1.7]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "SVRG", "svrg"

    n_inner: int | None = None
    batch_rate: float = 0.02
    step_size: float | None = None

    steps: tuple[int, ...] = field(default=(), kw_only=True, repr=False, metadata=DECIDED)

    reach: ClassVar[float] = 1 / 2
    """Step size times curvature."""
    restarts: ClassVar[bool] = True
    momentum: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_inner is not None:
            check_count("n_inner", self.n_inner)
        check_rate("batch_rate", self.batch_rate)

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        need_prox(problem, self.name)
        needs_delta(problem)
        need(problem, "row_norm")
        norm_gradient(problem)  # its bounds are checked before anything is planned
        steps = self._steps(problem.n_rows * problem.mu / math.sqrt(problem.n_features))
        return self._with(public, problem, n_rounds=len(steps), steps=steps)

    def _steps(self, ratio: float) -> tuple[int, ...]:
        """Short rounds of each epoch, by ``n mu / sqrt(d)``."""
        n_rounds = self.n_rounds or (3 if ratio < 1000 else 4 if ratio < 3000 else 6)
        return (self.n_inner or (5 if ratio < 1000 else 10),) * n_rounds

    @property
    def smoothness(self) -> Smoothness:
        """Where the step size comes from."""
        return Smoothness(self.problem, self.step_size is None)

    @property
    def n_differences(self) -> int:
        """Steps that are not at the snapshot: the first ones of an epoch (of all epochs, with restarts) are there."""
        return sum(self.steps) - (self.rounds if self.restarts else 1)

    def lines(self) -> list[Line]:
        """The bound of the differences follows from the points; it is at most twice that of the snapshots."""
        smoothness, copies = self.smoothness, self.problem.n_problems
        half = smoothness.rest * SNAPSHOT_SHARE
        full = norm_gradient(self.problem)
        if not self.n_differences:
            return [
                *smoothness.lines(),
                Line("snapshot", Gaussian(), full, count=self.rounds * copies, share=smoothness.rest),
            ]
        sampling = None if self.batch_rate == 1 else Poisson(self.batch_rate)
        count, rest = self.n_differences * copies, smoothness.rest - half
        return [
            *smoothness.lines(),
            Line("snapshot", Gaussian(), full, count=self.rounds * copies, share=half),
            Line("difference", Gaussian(), count=count, share=rest, sampling=sampling),
        ]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem = self.problem
        full = norm_gradient(problem, target)
        steep, rows = self.smoothness.worst, problem.n_rows * self.batch_rate
        step = self.step_size or self.reach / self.smoothness.of(oracle)

        def answer(asked: tuple[Vector, Vector | None]) -> Vector:
            x, snapshot = asked
            if snapshot is None:
                return oracle.ask("snapshot", oracle.visit(x), full) / problem.n_rows
            distance = float(np.linalg.norm(x - snapshot))
            clip_norm = min(2 * full.clip_norm, steep * distance)
            if distance == 0 or clip_norm < NOTHING:
                return np.zeros_like(x)
            query = GradientDifference(problem.loss, full.row_norm, clip_norm, problem.intercept, target)
            return oracle.ask("difference", (x, snapshot), query) / rows

        loop = variance_reduced(
            self._first(problem.intercept),
            proximal(problem.proximal_penalty, problem.constraint, problem.n_features),
            step,
            self.steps,
            restart=self.restarts,
            momentum=self.momentum,
            growth=1 + step * problem.strong_convexity if self.momentum < 1 else 1.0,
        )
        return drive(loop, answer)

    def expected_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise of the last snapshot, for rows that are equally long in all directions.

        An epoch moves to the minimiser of the objective tilted by that noise: ``d noise^2 / (2 h)`` for curvature h in
        all of d directions. The differences add noise of their own, which is smaller as the clip is.
        """
        problem = self.problem
        assert problem.row_norm is not None
        noise = plan["snapshot"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        return problem.n_parameters * (noise / problem.n_rows) ** 2 / (2 * curvature)


class SVRGPlusPlus(SVRG):
    """The same with epochs that double and go on where the one before ended (dp-svrgpp): 4 epochs, 3 below 1000.

    Parameters
    ----------
    n_rounds, n_inner, batch_rate, step_size, start
        As in `SVRG`; ``n_inner`` is half of the short rounds of the first epoch: 2 (below 1000: 1).

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=SVRGPlusPlus(n_rounds=3), alpha=1e-4,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1. ,  4.6, -1.3, -1.8]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "SVRGPlusPlus", "svrg++"

    restarts: ClassVar[bool] = False

    def _steps(self, ratio: float) -> tuple[int, ...]:
        n_rounds = self.n_rounds or (3 if ratio < 1000 else 4)
        m = self.n_inner or (1 if ratio < 1000 else 2)
        return tuple(m * 2**s for s in range(1, n_rounds + 1))


class Katyusha(SVRG):
    """The same as `SVRG` with momentum that pulls towards the full gradients' points (dp-katyusha).

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=Katyusha(), alpha=1e-4,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.4,  6.1, -1.7, -2.3]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "Katyusha", "katyusha"

    reach: ClassVar[float] = 2 / 3
    restarts: ClassVar[bool] = False
    momentum: ClassVar[float] = 0.5

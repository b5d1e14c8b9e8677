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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpdist.central.convex import Smoothness, needs_delta, norm_gradient
from dpdist.central.course import Course, Problem, Vector, need
from dpdist.central.smooth_queries import GradientDifference
from dpdist.constraints import proximal
from dpdist.engine.query import Query
from dpdist.fitting.door import Door
from dpdist.fitting.parameters import choice
from dpdist.privacy.accounting import gdp_mu
from dpdist.privacy.mechanisms import Gaussian
from dpdist.privacy.plan import Item, Plan
from dpdist.privacy.releases import Poisson
from dpdist.solvers.loops import drive, variance_reduced

SNAPSHOT_SHARE = 0.5
"""Share of mu^2 for the full gradients, of what the step size leaves."""
NOTHING = 2.0**-190
"""A clip below it counts as 0: the two points are the same but for rounding."""


@dataclass(frozen=True)
class VarianceReduced(Course):
    """``n_rounds`` is the number of epochs: 6 where ``n mu / sqrt(d) >= 3000``, 4 from 1000 on, 3 below.

    The longer the course, the less error it leaves and the more noise it meets. ``"svrg++"``: 4, or 3 below 1000.

    Attributes
    ----------
    n_inner : tuple of int
        Steps of each epoch: 10 (below 1000: 5); for ``"svrg++"`` 4 (2) in the first and twice as many in each next.
    rate : float or None
        Poisson rate of the rows of a step; None reads all rows.
    """

    tag: ClassVar[str] = "VarianceReduced"

    n_inner: tuple[int, ...]
    rate: float | None

    @classmethod
    def of(cls, problem: Problem) -> VarianceReduced:
        """The course for a problem, by the measured rules."""
        choice("gradient", problem.gradient, ("norm",))
        choice("rows", problem.rows, ("all",))
        choice("combine", problem.combine, ("auto", "last"))
        needs_delta(problem)
        need(problem, "row_norm")
        norm_gradient(problem)  # its bounds are checked before anything is planned
        mu = gdp_mu(problem.budget.epsilon, problem.budget.delta) / math.sqrt(problem.n_problems)
        ratio = problem.n_rows * mu / math.sqrt(problem.n_features)
        if problem.solver == "svrg++":
            n_rounds = problem.n_rounds or (3 if ratio < 1000 else 4)
            m = problem.n_inner or (1 if ratio < 1000 else 2)
            n_inner = tuple(m * 2**s for s in range(1, n_rounds + 1))
        else:
            n_rounds = problem.n_rounds or (3 if ratio < 1000 else 4 if ratio < 3000 else 6)
            n_inner = (problem.n_inner or (5 if ratio < 1000 else 10),) * n_rounds
        return cls(problem, n_rounds, n_inner, None if problem.batch_rate == 1 else problem.batch_rate)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.problem.solver

    @property
    def n_differences(self) -> int:
        """Steps that are not at the snapshot: the first ones of an epoch (of all epochs, with restarts) are there."""
        return sum(self.n_inner) - (self.n_rounds if self.name == "svrg" else 1)

    def items(self) -> Sequence[Item]:
        smoothness, copies = Smoothness(self.problem), self.problem.n_problems
        half = smoothness.rest * SNAPSHOT_SHARE
        snapshots = Item("snapshot", Gaussian(), count=self.n_rounds * copies, share=half)
        if not self.n_differences:
            return [*smoothness.items(), replace(snapshots, share=smoothness.rest)]
        sampling = None if self.rate is None else Poisson(self.rate)
        count, rest = self.n_differences * copies, smoothness.rest - half
        return [
            *smoothness.items(), snapshots, Item("difference", Gaussian(), count=count, share=rest, sampling=sampling)
        ]  # fmt: skip

    def queries(self) -> dict[str, Query]:
        """The bound of the differences follows from the points; it is at most twice that of the snapshots."""
        return {**Smoothness(self.problem).queries(), "snapshot": norm_gradient(self.problem)}

    def solve(self, door: Door) -> Vector:
        problem = self.problem
        full = norm_gradient(problem, door.target)
        steep, rows = Smoothness(problem).worst, problem.n_rows * (self.rate or 1.0)
        step = problem.step_size or self._step(door)

        def oracle(asked: tuple[Vector, Vector | None]) -> Vector:
            x, snapshot = asked
            if snapshot is None:
                return door.gradient("snapshot", full, x) / problem.n_rows
            distance = float(np.linalg.norm(x - snapshot))
            clip_norm = min(2 * full.clip_norm, steep * distance)
            if distance == 0 or clip_norm < NOTHING:
                return np.zeros_like(x)
            query = GradientDifference(problem.loss, full.row_norm, clip_norm, problem.intercept, door.target)
            return door.release("difference", query, (x, snapshot)) / rows

        loop = variance_reduced(
            np.zeros(problem.n_parameters),
            proximal(problem.penalty, problem.constraint, problem.n_features),
            step,
            self.n_inner,
            restart=self.name == "svrg",
            momentum=0.5 if self.name == "katyusha" else 1.0,
            growth=1 + step * problem.strong_convexity if self.name == "katyusha" else 1.0,
        )
        return drive(loop, oracle)

    def predicted_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise of the last snapshot, for rows that are equally long in all directions.

        An epoch moves to the minimiser of the objective tilted by that noise: ``d noise^2 / (2 h)`` for curvature h in
        all of d directions. The differences add noise of their own, which is smaller as the clip is.
        """
        problem = self.problem
        assert problem.row_norm is not None
        noise = plan["snapshot"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        return problem.n_parameters * (noise / problem.n_rows) ** 2 / (2 * curvature)

    def _step(self, door: Door) -> float:
        return (2 / 3 if self.name == "katyusha" else 1 / 2) / door.once("smoothness", Smoothness(self.problem).of)

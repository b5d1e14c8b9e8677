"""Gradient descent with noisy gradients, plain and accelerated (seed 000, section 3.1.5).

The rules for rounds and steps were measured on row-normalised logistic problems; what matters most is the ratio
``n mu / sqrt(d)`` of signal to noise, and a step size from the true smoothness instead of the worst case (20 to 50
times larger steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpdist.central.course import Course, Problem, Vector, need
from dpdist.central.queries import GradientSum, LargestEigenvalue
from dpdist.constraints import proximal
from dpdist.engine.query import Query
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.door import Door
from dpdist.fitting.parameters import BOUNDS, choice
from dpdist.privacy.accounting import gdp_mu
from dpdist.privacy.mechanisms import Gaussian, Mechanism
from dpdist.privacy.plan import Item, Plan
from dpdist.privacy.releases import Poisson
from dpdist.solvers.loops import drive, nesterov_momentum, prox_gradient

SMOOTHNESS_SHARE = 0.01
"""Share of mu^2 that pays for the private smoothness."""
MAX_FEATURES_FOR_SMOOTHNESS = 2000
"""Above it the d x d matrix costs more than it gains, and the worst case is used."""


def needs_delta(problem: Problem) -> None:
    """Refuse Gaussian noise without delta, in the words of the estimator's parameters."""
    if problem.budget.delta == 0:
        raise BudgetError(
            "gradients are released with Gaussian noise, which needs delta > 0: pass delta, far below 1/n_rows, "
            "for example delta=1e-6"
        )


def precise(problem: Problem) -> bool:
    """Whether data are plenty: ``n mu / sqrt(d) >= 3000`` (per binary problem)."""
    mu = gdp_mu(problem.budget.epsilon, problem.budget.delta) / math.sqrt(problem.n_problems)
    return problem.n_rows * mu / math.sqrt(problem.n_features) >= 3000


def norm_gradient(problem: Problem, target: int | None = None) -> GradientSum:
    """The clipped gradient sum of a problem, with the clip that the row norm and the loss imply if none is given."""
    assert problem.row_norm is not None
    clip_norm = problem.clip_norm or problem.loss.derivative_bound * math.hypot(problem.row_norm, problem.intercept)
    if not math.isfinite(clip_norm):
        raise MissingBound(
            f"clip_norm is missing: the {problem.loss.name} loss has no bounded derivative, so {BOUNDS['clip_norm']}"
        )
    return GradientSum(problem.loss, problem.row_norm, clip_norm, problem.intercept, target)


@dataclass(frozen=True)
class Smoothness:
    """The step size's half of a plan: the curvature of the mean loss, released or from the worst case of the bounds."""

    problem: Problem

    @property
    def released(self) -> bool:
        """Whether it takes a release."""
        return self.problem.step_size is None and self.problem.n_features <= MAX_FEATURES_FOR_SMOOTHNESS

    @property
    def worst(self) -> float:
        """The largest curvature that the bounds allow."""
        assert self.problem.row_norm is not None
        return self.problem.loss.curvature_bound * (self.problem.row_norm**2 + self.problem.intercept**2)

    def items(self) -> list[Item]:
        """At most one line, for 1 % of mu^2."""
        return [Item("smoothness", Gaussian(), share=SMOOTHNESS_SHARE)] if self.released else []

    def queries(self) -> dict[str, Query]:
        """What that line asks."""
        problem = self.problem
        if not self.released:
            return {}
        assert problem.row_norm is not None
        return {
            "smoothness": LargestEigenvalue(problem.n_features, problem.row_norm, problem.n_rows, problem.intercept)
        }

    @property
    def rest(self) -> float:
        """The share that is left for everything else."""
        return 1 - SMOOTHNESS_SHARE if self.released else 1.0

    def of(self, door: Door) -> float:
        """An upper bound on the curvature."""
        if not self.released:
            return self.worst
        noisy = float(door.release("smoothness", self.queries()["smoothness"])[0])
        # three standard deviations up: a step that is too long hurts more than one that is too short
        generous = self.problem.loss.curvature_bound * (noisy + 3 * door.noise_std) / self.problem.n_rows
        return min(max(generous, 1e-6 * self.worst), self.worst)


def sampled_rows(problem: Problem) -> tuple[float | None, float]:
    """The Poisson rate of a round (None: all rows), and the fraction of the last iterates that is averaged."""
    sampled = choice("rows", problem.rows, ("all", "sample")) == "sample"
    combine = choice("combine", problem.combine, ("auto", "last", "tail-average"))
    averaged = combine == "tail-average" or (combine == "auto" and sampled)
    return problem.batch_rate if sampled else None, 0.5 if averaged else 0.0


@dataclass(frozen=True)
class GradientDescent(Course):
    """``solver="gradient"`` and ``"accelerated"``: dp-gd, dp-agd and, with ``rows="sample"``, dp-sgd.

    ``n_rounds``: 10 full gradients where ``n mu / sqrt(d) < 3000``, else 30; accelerated 8 or 15; sampled 200.

    Attributes
    ----------
    accelerated : bool
    rate : float or None
        Poisson rate of a round's rows; None reads all rows.
    tail : float
        Fraction of the last iterates that is averaged; 0 takes the last one.
    """

    tag: ClassVar[str] = "GradientDescent"

    accelerated: bool
    rate: float | None
    tail: float

    @classmethod
    def of(cls, problem: Problem) -> GradientDescent:
        """The course for a problem, by the measured rules."""
        choice("gradient", problem.gradient, ("auto", "norm"))
        rate, tail = sampled_rows(problem)
        needs_delta(problem)
        need(problem, "row_norm")
        accelerated = problem.solver == "accelerated"
        n_rounds = problem.n_rounds
        if n_rounds is None:
            n_rounds = 200 if rate else ((10, 30), (8, 15))[accelerated][precise(problem)]
        norm_gradient(problem)  # its bounds are checked before anything is planned
        return cls(problem, n_rounds, accelerated, rate, tail)

    @property
    def name(self) -> str:  # type: ignore[override]
        return "accelerated" if self.accelerated else "gradient"

    @property
    def expected_rows(self) -> float:
        """How many rows a round reads: all, or the mean number of a sample."""
        return self.problem.n_rows * (1.0 if self.rate is None else self.rate)

    def items(self) -> Sequence[Item]:
        smoothness = Smoothness(self.problem)
        return [*smoothness.items(), self.line(Gaussian(), smoothness.rest)]

    def line(self, mechanism: Mechanism, share: float = 1.0) -> Item:
        """The line of the plan that pays for the gradients."""
        sampling = None if self.rate is None else Poisson(self.rate)
        count = self.n_rounds * self.problem.n_problems
        return Item("gradient", mechanism, count=count, share=share, sampling=sampling)

    def queries(self) -> dict[str, Query]:
        return {**Smoothness(self.problem).queries(), "gradient": norm_gradient(self.problem)}

    def solve(self, door: Door) -> Vector:
        query = norm_gradient(self.problem, door.target)
        step = self.problem.step_size or self._step(door)
        return self.descend(step, lambda w: door.gradient("gradient", query, w) / self.expected_rows)

    def descend(self, step: float, mean_gradient: Callable[[Vector], Vector]) -> Vector:
        """The loop, from 0."""
        problem = self.problem
        momentum = nesterov_momentum(step, problem.strong_convexity, self.n_rounds) if self.accelerated else 0.0
        loop = prox_gradient(
            np.zeros(problem.n_parameters),
            proximal(problem.penalty, problem.constraint, problem.n_features),
            step,
            self.n_rounds,
            momentum,
            self.tail,
        )
        return drive(loop, mean_gradient)

    def predicted_error(self, plan: Plan) -> float | None:
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
        averaged = max(1.0, self.tail * self.n_rounds)
        return problem.n_parameters * noise**2 / (2 * curvature * averaged)

    def _step(self, door: Door) -> float:
        """1/L; a quarter of it for sampled rows, whose gradients vary."""
        return (1.0 if self.rate is None else 0.25) / door.once("smoothness", Smoothness(self.problem).of)

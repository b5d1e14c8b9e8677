"""Descent for losses that are not convex: a heavy ball (``"momentum"``), and Langevin dynamics (``"langevin"``).

================ ==================================================================================================
method           parameters
================ ==================================================================================================
nc-dp-pgd        ``solver="gradient"`` (`dpdist.central.linear.gradient_descent`)
nc-dp-gd-mom     ``solver="momentum"``
nc-dp-gld        ``solver="langevin"``
================ ==================================================================================================

Langevin dynamics ``w <- w - eta (grad F(w) + penalty'(w)) + sqrt(2 eta / beta) N(0, I)`` are noisy gradient steps whose
noise has the variance ``s^2 = 2 / (eta beta)``. T of them with the sensitivity ``2 G / n`` of a mean gradient are
mu-GDP where ``mu^2 = T (2 G / n)^2 / s^2``, so that the guarantee fixes a product:

    eta T beta = mu^2 n^2 / (2 G^2),

time times inverse temperature: a colder walk is shorter (seed 000, Algorithm 4.2.20; the constant that is left open
there, and the penalty's gradient that its line 4 leaves out). What it samples from is ``exp(-beta F(w))`` only after a
time that grows exponentially in beta times the height of a barrier: it is a local method, and leaves no deep basin that
is not the best one.

Why it is private: rows enter through clipped gradient sums with Gaussian noise; the penalty and all steps are public or
post-processing.

>>> import numpy as np
>>> from dpdist import Minimizer
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(20_000, 3)) / 2
>>> y = np.where(X @ [2.0, -1.0, 0.0] > 0, 1, -1)
>>> model = Minimizer("sigmoid", solver="langevin", epsilon=1.0, delta=1e-6, row_norm=1.0, random_state=0).fit(X, y)
>>> bool(np.mean(model.predict(X) == y) > 0.9), bool(model.inverse_temperature_ > 1e3)
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.gradient_descent import MOST_ROUNDS, ClippedDescent, Smoothness, norm_gradient
from dpdist.central.linear.linear_method import Problem, Vector, need_ridge
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_between, check_bound
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.solvers.loops import drive, prox_gradient

LONGEST = 0.5
"""Step of Langevin dynamics over one over the smoothness."""
COLDEST = 1e4
"""The last step may be so many times colder than the first: its noise is then a hundredth."""


class HeavyBall(ClippedDescent):
    """Gradient steps that keep nine tenths of their direction: ``v <- 0.9 v + g, w <- prox(w - v / (10 L))``.

    Where passes are few and not the noise is what keeps from the minimum. L is released as of ``solver="gradient"``;
    rounds of a loss that is not convex as there, of others 30.

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public step size. Default: a tenth of one over a privately released smoothness (1 % of the budget).
    combine : {"auto", "last", "tail-average", "random", "min-noisy"}
        What is returned, as by `GradientDescent`.
    start : sequence of float, optional
        Public point where it begins. Default: the point of the set that is nearest to 0.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=HeavyBall(n_rounds=40),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.5,  6.4, -1.8, -2.5]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "HeavyBall", "momentum"

    default_rounds: ClassVar[tuple[int, int]] = (30, 30)
    inertia: ClassVar[float] = 0.9

    @property
    def _is_followed(self) -> bool:
        return False

    def _step(self, oracle: Oracle) -> float:
        return (1 - self.inertia) * super()._step(oracle)


@dataclass(frozen=True)
class Langevin(ClippedDescent):
    """Langevin dynamics: the noise of privacy is that of a temperature.

    A ridge penalty, a smooth one or none, and no constraint; on all rows. Steps are half of one over the largest
    curvature that loss, bounds and penalty allow, so that all of the budget is noise of the walk.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 200, or what ``inverse_temperature`` takes.
    step_size : float, optional
        Public. Default: half of one over the largest curvature.
    combine : {"auto", "last", "tail-average", "random", "min-noisy"}
        What is returned, as by `GradientDescent`.
    inverse_temperature : float, optional
        beta. Default: as cold as the budget lets it be in ``n_rounds`` steps. Given, the time that the budget lasts
        follows, and how many steps it takes at least; more than 200 are refused unless ``n_rounds`` says so.
    cooling : float, default 1
        How many times colder the last step is than the first, up to 1e4; in between temperatures fall geometrically.
        The first steps then cost little. Not known to help.
    start : sequence of float, optional
        Public point where it begins. Default: 0.

    Examples
    --------
    >>> from dpdist import Minimizer
    >>> from dpdist.problems.nonconvex_problems import sphere_sigmoid
    >>> data, truth = sphere_sigmoid(20_000, 5, random_state=0)
    >>> model = Minimizer("sigmoid", solver=Langevin(n_rounds=50), row_norm=1.0, fit_intercept=False,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> w = model.fit(data).coef_
    >>> (w / np.linalg.norm(w)).round(1), truth.round(1), model.inverse_temperature_ > 1e5
    (array([-0.6, -0.6,  0.4,  0.3,  0.3]), array([-0.6, -0.6,  0.4,  0.3,  0.3]), True)
    """

    tag, name = "Langevin", "langevin"

    inverse_temperature: float | None = None
    cooling: float = 1.0

    length: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("cooling", self.cooling, 1.0, COLDEST)
        if self.inverse_temperature is None:
            return
        check_bound("inverse_temperature", self.inverse_temperature)
        if self.step_size is not None:
            raise BudgetError("step_size follows from inverse_temperature: give one of the two")
        if self.cooling != 1:
            raise BudgetError("inverse_temperature is that of all steps, and cooling changes it: give one of the two")

    def decide(self, public: Public, statement: Problem) -> Self:
        decided = super().decide(public, statement)
        problem = decided.problem
        if decided.rate is not None:
            raise BudgetError("rows='sample' is nothing that solver='langevin' can read: use rows='all'")
        if problem.smooth_penalty is None:
            need_ridge(problem, self.name)
        if problem.constraint is not None:
            raise BudgetError(
                "solver='langevin' walks without a constraint: leave it out, or use solver='gradient', whose noisy "
                "steps are projected"
            )
        curvature = Smoothness(problem).worst + problem.penalty_curvature + problem.strong_convexity
        longest = LONGEST / curvature
        if self.inverse_temperature is None:
            rounds = self.n_rounds or MOST_ROUNDS
            return replace(decided, n_rounds=rounds, length=self.step_size or longest)
        time = decided.time_times_cold / self.inverse_temperature
        needed = max(1, math.ceil(time / longest))
        if needed > (self.n_rounds or MOST_ROUNDS):
            raise BudgetError(
                f"inverse_temperature={self.inverse_temperature:g} takes n_rounds={needed} steps to use up the budget, "
                f"more than {self.n_rounds or MOST_ROUNDS}: pass that many, or a larger inverse_temperature"
            )
        rounds = self.n_rounds or needed
        return replace(decided, n_rounds=rounds, length=time / rounds)

    @property
    def time_times_cold(self) -> float:
        """``eta T beta``, which the budget fixes."""
        problem = self.problem
        sensitivity = norm_gradient(problem).sensitivity(problem.neighbours) * problem.public.units.max_rows
        return 2 * (problem.mu * problem.n_rows / sensitivity) ** 2

    def lines(self) -> list[Line]:
        query, count = norm_gradient(self.problem), self.problem.n_problems
        if self.cooling == 1:
            return [self.line(Gaussian(), query)]
        colder = self.cooling ** (np.arange(self.rounds) / max(1, self.rounds - 1))
        shares = colder / colder.sum()
        return [Line(self._line(t), Gaussian(), query, count=count, share=float(s)) for t, s in enumerate(shares)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        solutions = super().solve(oracle)
        noise = oracle.noise_std / self.problem.n_rows
        return {**solutions, "inverse_temperature": 2 / (self.length * noise**2)}

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        query = norm_gradient(self.problem, target)
        asked = iter(range(self.rounds))

        def mean_gradient(w: Vector) -> Vector:
            return oracle.ask(self._line(next(asked)), oracle.visit(w), query) / self.problem.n_rows

        first = self._first(self.problem.intercept)
        return self.descend(self.length, mean_gradient, first, self.picked(oracle, target))

    def descend(
        self, step: float, mean_gradient: Callable[[Vector], Vector], first: Vector, pick: int | None
    ) -> Vector:
        problem, smooth, d = self.problem, self.problem.smooth_penalty, self.problem.n_features

        def gradient(w: Vector) -> Vector:
            pull = problem.strong_convexity * w[:d] if smooth is None else smooth.gradient(w[:d])
            g = mean_gradient(w)
            return np.concatenate([g[:d] + pull, g[d:]])

        walk = prox_gradient(first, lambda v, _: v, step, self.rounds, tail=self.tail, pick=pick)
        return drive(walk, gradient)

    def expected_error(self, plan: Plan) -> float | None:
        """What a walk in a bowl is above its bottom on average, ``d / (2 beta)``."""
        noise = plan[self._line(self.rounds - 1)].mechanism.noise_std(
            norm_gradient(self.problem).sensitivity(self.problem.neighbours)
        )
        return self.problem.n_parameters * self.length * (noise / self.problem.n_rows) ** 2 / 4

    @property
    def _is_followed(self) -> bool:
        return False

    def _line(self, t: int) -> str:
        return "gradient" if self.cooling == 1 else f"gradient {t + 1}"

"""Projected gradient steps on a bounded set that leave saddles along released curvature (``solver="saddle-escape"``).

Half of mu^2 pays for a gradient per round, the other half for ten Hessians. Where the released gradient mapping is
short, a Hessian is asked for, and the best point u of the set for its quadratic form is looked for; where that goes
down beyond the noise, the next step is towards u, as far as the model and the bound of the third derivative say. The
last Hessian is for the point that is returned (`dpdist.solvers.negative_curvature`).

This is the constrained Algorithm 4.3.27 of seed 000, made usable: its own step sizes take more than 1e8 rows for 20
coefficients, and thousands of rounds. Gradient steps are those of ``solver="gradient"`` in place of small ones towards
vertices; steps along curvature have the length that a cubic bound allows in place of a fixed one; Hessians are paid
for ten times and not in every round, with the Frobenius sensitivity of rank-one matrices in place of ``2 sqrt(d) L``.

A point of the set is said to be a local minimum where its released gradient mapping is at most alpha and no released
curvature is below ``-sqrt(H alpha)``, as of ``solver="trust-region"`` (`dpdist.central.linear.second_order`). On the
border of the set that is more than is needed: curvature that leads out of the set counts as well.

Why it is private: clipped gradient sums and sums of Hessians with Gaussian noise, at points that are functions of
releases; which rounds ask for a Hessian follows from released gradients, and at most ten are charged.

>>> import numpy as np
>>> from dpdist import Minimizer
>>> from dpdist.central import ClipNorm
>>> from dpdist.constraints import L2Ball, Quartic
>>> from dpdist.losses import NegativeSquare
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(20_000, 4)) * [0.7, 0.2, 0.2, 0.2]  # -E<w, x>^2 / 2 + |w|^4 / 4 has a saddle at 0
>>> model = Minimizer(NegativeSquare(), Quartic(1.0), L2Ball(1.0), solver="saddle-escape", gradient=ClipNorm(1.0),
...                   epsilon=1.0, delta=1e-6, row_norm=1.0, fit_intercept=False, random_state=0)
>>> bool(np.abs(model.fit(X, np.ones(20_000)).coef_[0]) > 0.5), bool(model.smallest_curvature_ > 0.1)
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dpdist.central.linear.gradient_descent import ClippedDescent, norm_gradient
from dpdist.central.linear.linear_method import Combine, Problem, Vector, need
from dpdist.central.linear.second_order import HALF, Certifies, Curved, check_smooth, check_target, ended
from dpdist.constraints import largest_norm
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.solvers.loops import drive
from dpdist.solvers.negative_curvature import End, escape_saddles
from dpdist.solvers.trust_region import Asked, Known

HESSIANS = 10


@dataclass(frozen=True)
class SaddleEscape(Certifies, ClippedDescent):
    """Projected gradient steps that leave saddles along released curvature.

    Parameters
    ----------
    n_rounds : int, optional
        Default: as of ``solver="gradient"``.
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (0.5 % of the budget).
    n_hessians : int, default 10
        Paid for, at most one for each round; the last one is for the point that is returned.
    curvature_target : float, optional
        Negative curvature that must not be missed. Where noise and rows allow to tell that much, steps end when they
        say a local minimum, and ``certified_`` says so; else all rounds are made and it is False.
    start : sequence of float, optional
        Public point where it begins. Default: the point of the set that is nearest to 0.

    Examples
    --------
    >>> from dpdist import Minimizer
    >>> from dpdist.central import ClipNorm
    >>> from dpdist.constraints import L2Ball, Quartic
    >>> from dpdist.losses import NegativeSquare
    >>> from dpdist.problems.nonconvex_problems import pca_saddle
    >>> data, truth = pca_saddle(20_000, 4, random_state=0)
    >>> model = Minimizer(NegativeSquare(), Quartic(1.0), L2Ball(1.0), solver=SaddleEscape(n_rounds=30),
    ...     gradient=ClipNorm(1.0), row_norm=1.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), round(model.smallest_curvature_, 1), model.certified_
    (array([ 0.4, -0.1, -0.3, -0.2]), 0.1, False)
    """

    tag, name = "SaddleEscape", "saddle-escape"

    combine: Combine = field(default="last", kw_only=True, repr=False, metadata=DECIDED)
    n_hessians: int = HESSIANS
    curvature_target: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine != "last":
            raise TypeError(self.lacks("combine"))
        check_count("n_hessians", self.n_hessians)
        check_target(self.curvature_target)

    def decide(self, public: Public, statement: Problem) -> Self:
        need(statement, "constraint")
        decided = super().decide(public, statement)
        problem = decided.problem
        check_smooth(problem, self.name)
        if decided.rate is not None:
            raise BudgetError("rows='sample' is nothing that solver='saddle-escape' can read: use rows='all'")
        if not math.isfinite(largest_norm(problem.constraint, problem.n_features)):
            raise BudgetError(
                f"solver='saddle-escape' looks through a bounded set, and how large {problem.constraint!r} is is not "
                "known: pass L2Ball(radius), L1Ball(radius), Box(low, high) or Simplex(total)"
            )
        if problem.intercept:
            raise BudgetError(
                "fit_intercept is True, and the set of solver='saddle-escape' holds coefficients only: pass "
                "fit_intercept=False (with a constant column among the features, if one is wanted)"
            )
        if decided.rounds < 2:
            raise BudgetError(
                "n_rounds=1 would return the start: the last gradient and Hessian are for the point that is returned; "
                "pass n_rounds=2 at least"
            )
        # more than one in a round would be paid for, and never asked
        kept = replace(decided, n_hessians=min(decided.n_hessians, decided.rounds))
        _ = kept.curved.query(None)  # its bounds are checked before anything is planned
        return kept

    @property
    def curved(self) -> Curved:
        """The problem, with what can be certified."""
        return Curved(self.problem, self.rounds, self.n_hessians)

    def lines(self) -> list[Line]:
        descent = [replace(line, share=HALF * line.share) for line in super().lines()]
        count = self.n_hessians * self.problem.n_problems
        return [*descent, Line("hessian", SymmetricGaussian(), self.curved.query(None), count=count, share=HALF)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n, curved = self.problem.n_problems, self.curved
        ends = [self._end(oracle, t) for t in (range(n) if n > 1 else [None])]
        tells = curved.tells(self.curvature_target)
        return ended(
            [
                (end.point, tells and end.length <= curved.accuracy and end.lowest >= -curved.curvature, end.lowest)
                for end in ends
            ]
        )

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._end(oracle, target).point

    def _end(self, oracle: Oracle, target: int | None) -> End:
        problem, curved, n = self.problem, self.curved, self.problem.n_rows
        gradient, hessian = norm_gradient(problem, target), curved.query(target)
        constraint = problem.constraint
        assert constraint is not None

        def answer(asked: Asked) -> Known:
            if asked.kind == "gradient":
                value = oracle.ask("gradient", oracle.visit(asked.point), gradient) / n
                return Known(value + curved.penalty_gradient(asked.point), oracle.noise_std / n)
            H = unpack_symmetric(oracle.ask("hessian", asked.point, hessian)) / n
            return Known(H + curved.penalty_hessian(asked.point), oracle.noise_std / n)

        loop = escape_saddles(
            self._first(0.0),
            constraint.project,
            2 * largest_norm(constraint, problem.n_features),
            self.step_size or self._step(oracle),
            self.rounds,
            self.n_hessians,
            curved.third,
            curved.accuracy,
            -curved.curvature if curved.tells(self.curvature_target) else math.inf,
        )
        return drive(loop, answer)

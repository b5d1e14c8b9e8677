"""Mirror descent with noisy gradients on bounded sets, accelerated and plain.

``solver="accelerated-mirror"`` (dp-accmd) and ``"mirror"`` (dp-md): seed 000, section 3.1.4. Printed there, the
accelerated method returns a point that is computed from exact gradients, which is not private. Here a gradient is
released once per round and the point is a convex combination of mirror steps, with the same bound on its excess.

Why it is private: rows enter through clipped gradient sums with Gaussian noise, and through one release of the
curvature; steps, mirror maps and averages are post-processing.

On an l1 ball or a simplex noise costs ``log d`` instead of d, for rows that are short in the l2 norm (sparse or
normalised ones), because the gradient's sensitivity is measured in l2. The price is passes: with fewer rounds than it
takes for noise and remaining error to balance, the error that remains is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self, cast

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import Smoothness, needs_delta, norm_gradient
from dpdist.central.linear.linear_method import LoopMethod, Problem, Vector, bounded_by, need, need_prox, reads
from dpdist.constraints import ElasticNet
from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_offers
from dpdist.method import Line, Oracle, Public
from dpdist.mirror_maps import Mirror
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.smooth_losses import LargestSquareSum
from dpdist.solvers.loops import drive, mirror_descent

MOST_ROUNDS = 500
"""Passes over the data that a default may take."""
INTERCEPT_SHARE = 0.25
"""The intercept may have this part of the set's curvature, in the norm of the two together."""
OF_BOUND = 0.04
"""Part of the bound on the excess that was measured, on sparse designs from n mu = 5e3 to 9e4."""


@dataclass(frozen=True)
class L1Smoothness(Smoothness):
    """The curvature of the mean loss in the l1 norm: the largest entry of its Hessian."""

    @property
    def released(self) -> bool:
        return self.asked

    @property
    def worst(self) -> float:
        return self.problem.loss.curvature_bound * self._largest_feature**2

    @property
    def query(self) -> Query:
        assert self.problem.row_norm is not None
        return LargestSquareSum(self.problem.row_norm, self._largest_feature)

    @property
    def _largest_feature(self) -> float:
        assert self.problem.row_norm is not None
        return min(self.problem.row_norm, self.problem.feature_bound or math.inf)


@dataclass(frozen=True)
class MirrorDescent(LoopMethod):
    """Mirror steps (dp-md).

    Rounds: where the bound on the excess balances noise and remaining error, at most 500.

    With ``kappa = (sensitivity / (n mu))^2``, the noise variance if all of the budget went into one gradient, D and W
    the divergence and width of the mirror, and L the curvature in its norm, that is

    - accelerated, ``(48 D L^2 / (kappa W))^(1/4)``, twice as many in the l1 norm, where noise does less (measured);
    - plain, ``L sqrt(D / (2 kappa W))``, about the square of it: the cap is what ends it.

    For L the geometric mean of what it can be for rows of full length is taken, the worst case over ``sqrt(d)``. Where
    it turns out smaller, there are more rounds than needed, and shorter steps make up for their noise: steps are those
    of the curvature for which the number of rounds is right, if that is larger than the released one.

    Parameters
    ----------
    n_rounds : int, optional
    step_size : float, optional
        Public step size. Default: from a privately released smoothness (1 % of the budget).
    start : sequence of float, optional
        Public point of the set where it begins: the coefficients, and last the intercept if there is one. On an l1 ball
        or a simplex, inside of it: its steps multiply weights, and a weight of 0 stays 0. Default: that of the set's
        geometry, 0 or the centre of a simplex.
    """

    tag, name = "MirrorDescent", "mirror"

    step_size: float | None = None

    accelerated: ClassVar[bool] = False

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm", "constraint")
        check_offers("constraint", problem.constraint, "mirror", "L1Ball(10.0)")
        need_prox(problem, self.name)
        penalty = problem.penalty
        if penalty is not None and not (isinstance(penalty, ElasticNet) and penalty.l1_ratio == 0):
            raise BudgetError(
                f"solver={self.name!r} takes ridge penalties only (ElasticNet with l1_ratio=0): the l1 part is "
                f"what the constraint is for, got {penalty!r}"
            )
        if not math.isfinite(problem.loss.curvature_bound):
            raise BudgetError(f"solver={self.name!r} needs a smooth loss, and {problem.loss.name} is not")
        started = self._with(public, problem)
        return replace(started, n_rounds=self.n_rounds or _rounds(problem, started.geometry, self.accelerated))

    @property
    def geometry(self) -> Mirror:
        """Of the set, seen from the start."""
        mirror = _mirror(self.problem)
        return mirror if self.start is None else mirror.from_point(self._in_set(self._first(0.0)))

    def _check_start(self) -> None:
        super()._check_start()
        try:
            _ = self.geometry
        except ValueError as problem:
            raise BudgetError(
                f"start={self._shown_start} is none for solver={self.name!r} with {self.problem.constraint!r}: "
                f"{problem}. Begin inside of the set, leave start out, or use solver='gradient'"
            ) from None

    @property
    def smoothness(self) -> Smoothness:
        """Where the step size comes from."""
        return _smoothness(self.problem, self.step_size is None)

    def lines(self) -> list[Line]:
        count, smoothness = self.rounds * self.problem.n_problems, self.smoothness
        gradient = Line("gradient", Gaussian(), norm_gradient(self.problem), count=count, share=smoothness.rest)
        return [*smoothness.lines(), gradient]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem, mirror = self.problem, self.geometry
        if self.step_size:
            curvature = mirror.radius**2 / self.step_size
        else:
            steep = self.smoothness.of(oracle) + problem.strong_convexity
            curvature = max(mirror.radius**2 * steep, _balanced(problem, mirror, self.rounds, self.accelerated))
        if problem.intercept > 0:
            # In the norm (||w||^2 / radius^2 + b^2 / scale^2)^(1/2) the intercept has curvature square * own, which
            # adds to that of the set because of the cross terms. The bound on the excess, (D + b^2 / (2 square))
            # (W + square), is smallest where square is sqrt(W / (2 D)) b, with b such that the margin moves by 1.
            own = problem.loss.curvature_bound * problem.intercept**2
            best = math.sqrt(mirror.width / (2 * mirror.divergence)) / problem.intercept
            square = min(best, INTERCEPT_SHARE * curvature / own)
            mirror = mirror.with_free(math.sqrt(square), float(self._first(problem.intercept)[-1]))
            curvature += square * own
        query = norm_gradient(problem, target)

        def gradient(w: Vector) -> Vector:
            g = oracle.ask("gradient", oracle.visit(w), query) / problem.n_rows
            g[: problem.n_features] += problem.strong_convexity * w[: problem.n_features]
            return g

        return drive(mirror_descent(mirror, curvature, self.rounds, self.accelerated), gradient)

    def expected_error(self, plan: Plan) -> float | None:
        """The bound on the excess at the best number of rounds, ``2 sqrt(4 D W kappa / 3)``, times what was measured.

        Fewer rounds (the cap) leave an error that has nothing to do with the noise.
        """
        mirror = self.geometry
        return OF_BOUND * 2 * math.sqrt(4 / 3 * mirror.divergence * mirror.width * _noise(self.problem))


class AcceleratedMirror(MirrorDescent):
    """The same with momentum (dp-accmd)."""

    tag, name = "AcceleratedMirror", "accelerated-mirror"

    accelerated: ClassVar[bool] = True


def _mirror(problem: Problem) -> Mirror:
    return cast(Callable[[int], Mirror], problem.constraint.mirror)(problem.n_features)  # type: ignore[union-attr]


def _smoothness(problem: Problem, asked: bool = True) -> Smoothness:
    return (L1Smoothness if _mirror(problem).norm == 1 else Smoothness)(problem, asked)


def _noise(problem: Problem) -> float:
    """Variance per coordinate of the mean gradient if all of the budget went into one release."""
    sensitivity = norm_gradient(problem).sensitivity(problem.neighbours) * problem.public.units.max_rows
    return (sensitivity / (problem.n_rows * problem.mu)) ** 2


def _rounds(problem: Problem, mirror: Mirror, accelerated: bool) -> int:
    assert problem.row_norm is not None
    usual = problem.loss.curvature_bound * problem.row_norm**2 / math.sqrt(problem.n_features)
    curvature = mirror.radius**2 * min(usual, _smoothness(problem).worst)
    relative = curvature / _balanced(problem, mirror, 1, accelerated)
    return math.ceil(min(max(math.sqrt(relative) if accelerated else relative, 1), MOST_ROUNDS))


def _balanced(problem: Problem, mirror: Mirror, n_rounds: int, accelerated: bool) -> float:
    """The curvature for which ``n_rounds`` is the right number of rounds."""
    noise = _noise(problem) * mirror.width / mirror.divergence
    if accelerated:
        return (n_rounds / (2 if mirror.norm == 1 else 1)) ** 2 * math.sqrt(noise / 48)
    return n_rounds * math.sqrt(2 * noise)

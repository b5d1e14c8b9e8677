"""Mirror descent with noisy gradients on bounded sets, accelerated and plain.

``solver="accelerated-mirror"`` (dp-accmd) and ``"mirror"`` (dp-md): seed 000, section 3.1.4; the latter for losses that
are not convex is nc-dp-pmd (seed 000, Algorithm 4.1.18), with an l1 penalty if one is wanted. Printed there, the
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
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, cast

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import Smoothness, needs_delta, norm_gradient
from dpdist.central.linear.linear_method import Combine, LoopMethod, Problem, Vector, bounded_by, need, need_prox, reads
from dpdist.constraints import ElasticNet, L1Ball
from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_offers
from dpdist.identity import ADDED
from dpdist.method import Line, Oracle, Public
from dpdist.mirror_maps import Mirror
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.smooth_losses import LargestSquareSum
from dpdist.solvers.loops import Loop, drive, mirror_descent

MOST_ROUNDS = 500
"""Passes over the data that a default may take."""
USUAL_SQUARE = 0.5
"""Of a feature, relative to its bound squared: by that, rounds for losses that are not convex are counted."""
FEWEST_STATIONARY, MOST_STATIONARY = 10, 200
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
class MirrorSteps(LoopMethod):
    """Mirror steps for convex losses, which `MirrorDescent` and `AcceleratedMirror` offer.

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

    step_size: float | None = None

    accelerated: ClassVar[bool] = False

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm", "constraint")
        check_offers("constraint", problem.constraint, "mirror", "L1Ball(10.0)")
        need_prox(problem, self.name)
        self._check_penalty(problem)
        if not math.isfinite(problem.loss.curvature_bound):
            raise BudgetError(f"solver={self.name!r} needs a smooth loss, and {problem.loss.name} is not")
        started = self._with(public, problem)
        return replace(started, n_rounds=self.n_rounds or started._usual_rounds())

    def _check_penalty(self, problem: Problem) -> None:
        penalty = problem.penalty
        if penalty is not None and not (isinstance(penalty, ElasticNet) and penalty.l1_ratio == 0):
            raise BudgetError(
                f"solver={self.name!r} takes ridge penalties only (ElasticNet with l1_ratio=0): the l1 part is "
                f"what the constraint is for, got {penalty!r}"
            )

    def _usual_rounds(self) -> int:
        return _rounds(self.problem, self.geometry, self.accelerated)

    @property
    def geometry(self) -> Mirror:
        """Of the set, seen from the start."""
        mirror = self._mirror
        return mirror if self.start is None else mirror.from_point(self._in_set(self._first(0.0)))

    @property
    def _mirror(self) -> Mirror:
        return _mirror(self.problem)

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
        curvature = mirror.radius**2 / self.step_size if self.step_size else self._curvature(oracle, mirror)
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

        return drive(self._loop(mirror, curvature, oracle, target), gradient)

    def _curvature(self, oracle: Oracle, mirror: Mirror) -> float:
        """What the steps are those of."""
        steep = self.smoothness.of(oracle) + self.problem.strong_convexity
        return max(mirror.radius**2 * steep, _balanced(self.problem, mirror, self.rounds, self.accelerated))

    def _loop(self, mirror: Mirror, curvature: float, oracle: Oracle, target: int | None) -> Loop:
        return mirror_descent(mirror, curvature, self.rounds, self.accelerated)

    def expected_error(self, plan: Plan) -> float | None:
        """The bound on the excess at the best number of rounds, ``2 sqrt(4 D W kappa / 3)``, times what was measured.

        Fewer rounds (the cap) leave an error that has nothing to do with the noise.
        """
        mirror = self.geometry
        return OF_BOUND * 2 * math.sqrt(4 / 3 * mirror.divergence * mirror.width * _noise(self.problem))


class AcceleratedMirror(MirrorSteps):
    """Mirror steps with momentum (dp-accmd); parameters and rounds are those of `MirrorSteps`.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, constraint=L1Ball(20.0),
    ...     solver=AcceleratedMirror(n_rounds=20), alpha=0.0, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1. ,  4.6, -1.2, -1.8]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "AcceleratedMirror", "accelerated-mirror"

    accelerated: ClassVar[bool] = True


@dataclass(frozen=True)
class MirrorDescent(MirrorSteps):
    """Mirror steps whose mean is returned (dp-md); for losses that are not convex, `StationaryMirror` (nc-dp-pmd).

    Parameters
    ----------
    n_rounds, step_size, start
        As of `MirrorSteps`; rounds of losses that are not convex: as of `StationaryMirror`, between 10 and 200.
    combine : {"auto", "last", "tail-average", "random"}
        For losses that are not convex: the last iterate, the mean of the last half, or one whose number is drawn before
        the rows are read. A convex loss has the mean of all, ``"auto"``.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, constraint=L1Ball(20.0),
    ...     solver=MirrorDescent(n_rounds=50), alpha=0.0, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1. ,  4.4, -1.2, -1.7]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "MirrorDescent", "mirror"

    combine: Combine = field(default="auto", kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine == "min-noisy":
            raise BudgetError("combine='min-noisy' is nothing that solver='mirror' can do: use 'last' or 'random'")

    def decide(self, public: Public, statement: Problem) -> MirrorSteps:  # type: ignore[override]
        if not statement.loss.convex:
            stationary = StationaryMirror(
                self.n_rounds, self.step_size, combine=self.combine, start=self.start, reason=self.reason
            )
            return stationary.decide(public, statement)
        if self.combine != "auto":
            raise BudgetError(
                f"combine={self.combine!r} is for losses that are not convex, and {statement.loss.name} is: leave it "
                "out, the mean of all iterates is what is known to be good"
            )
        return super().decide(public, statement)


@dataclass(frozen=True)
class StationaryMirror(MirrorSteps):
    """Mirror steps for losses that are not convex (nc-dp-pmd).

    An l1 penalty on an l1 ball multiplies all weights but that of 0 by one number: exact, and without noise. Steps are
    ``2 / L``, L the released curvature, or where noise and way balance, ``D / (step T) = step noise^2 W / 2``, if these
    are shorter: T of them then go equally far whatever T is. Rounds are as many as it takes to go so far, between 10
    and 200. On features that are uniform in their bounds such a step is 12 times that of the theory, half of one over
    the worst curvature; longer ones diverge on columns that are 1 in nearly all rows.

    Parameters are those of `MirrorDescent`.
    """

    tag, name = "StationaryMirror", "mirror"

    combine: Combine = "auto"

    def _check_penalty(self, problem: Problem) -> None:
        penalty = problem.penalty
        l1 = isinstance(penalty, ElasticNet) and penalty.l1_ratio > 0
        if l1 and not isinstance(problem.constraint, L1Ball):
            raise BudgetError(
                f"solver='mirror' takes the l1 part of {penalty!r} as a tilt of the weights of an l1 ball: pass "
                f"constraint=L1Ball(radius), got {problem.constraint!r}; or use solver='gradient'"
            )
        if penalty is not None and not isinstance(penalty, ElasticNet):
            super()._check_penalty(problem)

    def _usual_rounds(self) -> int:
        problem, mirror = self.problem, self.geometry
        curvature = mirror.radius**2 * (_smoothness(problem).worst + problem.strong_convexity)
        rounds = USUAL_SQUARE * curvature / _balanced(problem, mirror, 1, accelerated=False)
        return math.ceil(min(max(rounds, FEWEST_STATIONARY), MOST_STATIONARY))

    @property
    def _mirror(self) -> Mirror:
        problem = self.problem
        return problem.constraint.sparse_mirror(problem.n_features) if self.l1_penalty else _mirror(problem)  # type: ignore[union-attr]

    @property
    def l1_penalty(self) -> float:
        """Strength of the l1 part of the penalty."""
        penalty = self.problem.penalty
        return penalty.alpha * penalty.l1_ratio if isinstance(penalty, ElasticNet) else 0.0

    def _curvature(self, oracle: Oracle, mirror: Mirror) -> float:
        steep = mirror.radius**2 * (self.smoothness.of(oracle) + self.problem.strong_convexity)
        return max(steep, _balanced(self.problem, mirror, self.rounds, accelerated=False))

    def _loop(self, mirror: Mirror, curvature: float, oracle: Oracle, target: int | None) -> Loop:
        tail = 0.5 if self.combine == "tail-average" else 0.0
        pick = oracle.drawn(f"iterate of {target}", self.rounds) if self.combine == "random" else None
        return mirror_descent(mirror, curvature, self.rounds, tail=tail, pick=pick, l1_penalty=self.l1_penalty)


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

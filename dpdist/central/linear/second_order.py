"""Local minima and not saddles: a trust region with released Hessians, and a descent whose end is looked at.

================ ==================================================================================================
method           parameters
================ ==================================================================================================
sosp-dp-tr       ``solver="trust-region"``
sosp-dp-str      the same with ``rows="sample"``
sosp-dp-gd       ``solver=GradientDescent(certify="local-minimum")``
sosp-dp-gd-so    ``solver="saddle-escape"`` (`dpdist.central.linear.saddle_escape`)
================ ==================================================================================================

A trust region asks for a gradient and a Hessian per round, each for half of mu^2, and takes the exact step of their
model in a ball whose radius shrinks by a public factor (`dpdist.solvers.trust_region`): it leaves a saddle in a step or
two, where a descent waits for noise to move it (seed 000, Algorithms 4.3.28 and 4.3.29, with the noise that their
proofs need). A certified descent keeps half of mu^2 for three Hessians at its last iterates, whose gradients are
released already (Algorithm 4.3.26, with three Hessians in place of one per iterate).

A point is said to be a local minimum, up to noise, where its released gradient is at most alpha and no released
curvature below ``-sqrt(H alpha)``, H the bound of the third derivative; alpha is the least number for which the noise
``s_1, s_2`` lets both be told, ``12 s_1 sqrt(d) <= alpha`` and ``6 s_2 sqrt(2 d) <= sqrt(H alpha)``. Below millions of
rows such a statement holds at a saddle as well: it is made only where ``sqrt(H alpha)`` is at most a declared
``curvature_target``, and only then a trust region ends early.

Why it is private: clipped gradient sums with Gaussian noise, and Hessian sums whose Frobenius sensitivity is that of
rank-one matrices (`dpdist.queries.moment_sums.HessianSum`) with symmetric noise, at points that are functions of
releases. In random samples the two are lines of their own, and the smaller sensitivity of a convex loss does not hold.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm, Sample
from dpdist.central.linear.gradient_descent import ClippedDescent, check_curvature, needs_delta, norm_gradient
from dpdist.central.linear.linear_method import LoopMethod, Problem, Vector, bounded_by, need, reads
from dpdist.constraints import ElasticNet, largest_norm
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_between, check_bound
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.accounting.releases import Poisson
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.moment_sums import HessianSum
from dpdist.solvers.loops import drive
from dpdist.solvers.trust_region import Asked, Known, trust_region

ROUNDS = 15
FIRST_RADIUS, SHRINK = 3.0, 0.75
"""Of the first step, in units of one over the row norm, and of each next one over the last."""
LEAST_RADIUS = 1e-60
HALF = 0.5
CANDIDATES, APART = 3, 5
"""Hessians of a certified descent, at its last iterates that are so many rounds apart, or fewer where it is short."""


class Curved:
    """A problem whose gradients and Hessians are released: the public parts, and what can be certified."""

    def __init__(self, problem: Problem, gradients: int, hessians: int, rate: float | None = None) -> None:
        self.problem, self.gradients, self.hessians, self.rate = problem, gradients, hessians, rate

    def query(self, target: int | None) -> HessianSum:
        """What is asked of rows."""
        problem = self.problem
        assert problem.row_norm is not None
        sampled = self.rate is not None
        return HessianSum(problem.loss, problem.row_norm, problem.intercept, target, sampled=sampled)

    def penalty_gradient(self, w: Vector) -> Vector:
        """Of a ridge or of a smooth penalty; the intercept has none."""
        problem, d = self.problem, self.problem.n_features
        found = np.zeros(len(w))
        smooth = problem.smooth_penalty
        found[:d] = problem.strong_convexity * w[:d] if smooth is None else smooth.gradient(w[:d])
        return found

    def penalty_hessian(self, w: Vector) -> Vector:
        """The same, twice differentiated."""
        problem, d = self.problem, self.problem.n_features
        found, smooth = np.zeros((len(w), len(w))), self.problem.smooth_penalty
        found[:d, :d] = problem.strong_convexity * np.eye(d) if smooth is None else smooth.hessian(w[:d])
        return found

    @property
    def third(self) -> float:
        """H: how fast the Hessian of the objective changes; infinite where it is not known."""
        problem = self.problem
        assert problem.row_norm is not None
        of_penalty = 0.0 if problem.smooth_penalty is None else getattr(problem.penalty, "third_bound", math.inf)
        return problem.loss.third_bound * math.hypot(problem.row_norm, problem.intercept) ** 3 + of_penalty

    @property
    def noise(self) -> tuple[float, float]:
        """Standard deviations in the mean gradient and Hessian, of all rows."""
        problem = self.problem
        per_row = math.sqrt(2) * problem.public.units.max_rows / (problem.n_rows * problem.mu)
        gradient = norm_gradient(problem).sensitivity(problem.neighbours) * math.sqrt(self.gradients)
        hessian = self.query(None).sensitivity(problem.neighbours) * math.sqrt(self.hessians)
        return gradient * per_row, hessian * per_row

    @property
    def accuracy(self) -> float:
        """alpha: the least one that the noise lets certify."""
        (first, second), d, third = self.noise, self.problem.n_parameters, self.third
        if third == 0 or not math.isfinite(third):
            return math.inf
        return max(12 * first * math.sqrt(d), (6 * second) ** 2 * 2 * d / third)

    @property
    def curvature(self) -> float:
        """``sqrt(H alpha)``: what curvature may be missed."""
        return math.sqrt(self.third * self.accuracy) if math.isfinite(self.accuracy) else math.inf

    def tells(self, target: float | None) -> bool:
        """Whether a certificate says as much as was declared to be wanted."""
        return target is not None and self.rate is None and self.curvature <= target

    @property
    def told(self) -> str:
        """What can be certified, in words."""
        if not math.isfinite(self.accuracy):
            return "no bound of the third derivative is known, so that no local minimum can be certified"
        return (
            f"released numbers tell local minima up to gradients of length {self.accuracy:.2g} and a negative "
            f"curvature of {self.curvature:.2g}"
        )

    def untold(self, target: float | None) -> list[str]:
        """That a certificate is wanted which these rows and this budget cannot give."""
        if target is None or self.tells(target):
            return []
        why = "samples of the rows certify nothing" if self.rate is not None else self.told
        return [
            f"curvature_target={target:g} is out of reach: {why}. certified_ will be False; take more rows or a larger "
            "epsilon, or leave it out"
        ]


class Certifies:
    """What methods say of certificates before a row is read."""

    measures: ClassVar[str]
    curvature_target: float | None

    @property
    @abstractmethod
    def curved(self) -> Curved:
        """The problem, with what can be certified."""

    @property
    def measured(self) -> str:
        """What a plan says that its error is, and what can be certified."""
        return f"{self.measures}; {self.curved.told}"

    def warnings(self) -> Sequence[str]:
        """Where a certificate is wanted that cannot be given."""
        return self.curved.untold(self.curvature_target)


def hessians_tell(problem: Problem) -> bool:
    """Whether released Hessians show usual curvature: the edge ``s sqrt(2 d)`` of their noise is below it.

    That of rows that are equally long in all directions, ``l'' r^2 / d``.
    """
    d = problem.n_parameters
    assert problem.row_norm is not None
    usual = problem.loss.curvature_bound * (problem.row_norm**2 + problem.intercept**2) / d
    return Curved(problem, ROUNDS, ROUNDS).noise[1] * math.sqrt(2 * d) <= usual


def check_smooth(problem: Problem, solver: str) -> None:
    """Refuse losses and penalties without second derivatives."""
    ridge = isinstance(problem.penalty, ElasticNet) and problem.penalty.l1_ratio == 0
    if problem.penalty is not None and not ridge and problem.smooth_penalty is None:
        raise BudgetError(
            f"solver={solver!r} asks for Hessians, and penalty={problem.penalty!r} has none: use a ridge, "
            "ElasticNet(alpha), or a smooth penalty such as GemanMcClure(0.1)"
        )


def ended(found: Sequence[tuple[Vector, bool, float]]) -> dict[str, Any]:
    """What is told of the ends of all binary problems: point, whether it is certified, and its least curvature."""
    return {
        "solutions": np.array([point for point, _, _ in found]),
        "certified": all(sure for _, sure, _ in found),
        "smallest_curvature": min(lowest for _, _, lowest in found),
    }


def check_target(target: float | None) -> None:
    """A curvature that is wanted."""
    if target is not None:
        check_bound("curvature_target", target)


@dataclass(frozen=True)
class TrustRegion(Certifies, LoopMethod):
    """Exact steps of released quadratic models, in balls that shrink.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 15.
    radius : float, optional
        Public, of the first step. Default: half of the radius of the set, or three over the row norm without one.
    shrink : float, default 0.75
        Of each radius over the last: the last steps even out noise.
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
    >>> model = Minimizer(NegativeSquare(), Quartic(1.0), L2Ball(1.0), solver=TrustRegion(n_rounds=8),
    ...     gradient=ClipNorm(1.0), row_norm=1.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), round(model.smallest_curvature_, 1), model.certified_
    (array([-0.4,  0. ,  0.3,  0.2]), 0.1, False)
    """

    tag, name = "TrustRegion", "trust-region"

    radius: float | None = None
    shrink: float = SHRINK
    curvature_target: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("shrink", self.shrink, 0.01, 1.0)
        check_target(self.curvature_target)
        if self.radius is not None:
            check_bound("radius", self.radius)

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All, Sample)
        needs_delta(problem)
        need(problem, "row_norm")
        check_curvature(problem)
        check_smooth(problem, self.name)
        norm_gradient(problem)
        assert problem.row_norm is not None
        reach = largest_norm(problem.constraint, problem.n_features)
        radius = self.radius or (reach / 2 if math.isfinite(reach) else FIRST_RADIUS / problem.row_norm)
        decided = self._with(public, problem, n_rounds=self.n_rounds or ROUNDS, radius=radius)
        last = radius * self.shrink ** (decided.rounds - 1)
        if last < LEAST_RADIUS:
            raise BudgetError(
                f"n_rounds={decided.rounds} and shrink={self.shrink:g} make the last step one of {last:.2g} at most, "
                "which moves nothing, and is paid for: pass fewer rounds, or a shrink that is nearer to 1"
            )
        _ = decided.curved.query(None)  # its bounds are checked before anything is planned
        return decided

    @property
    def curved(self) -> Curved:
        """The problem, with what can be certified."""
        rows = self.problem.rows
        return Curved(self.problem, self.rounds, self.rounds, rows.rate if isinstance(rows, Sample) else None)

    def lines(self) -> list[Line]:
        curved, count = self.curved, self.rounds * self.problem.n_problems
        sampling = None if curved.rate is None else Poisson(curved.rate)
        return [
            Line("gradient", Gaussian(), norm_gradient(self.problem), count=count, share=HALF, sampling=sampling),
            Line("hessian", SymmetricGaussian(), curved.query(None), count=count, share=HALF, sampling=sampling),
        ]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n, curved = self.problem.n_problems, self.curved
        found = [self._solved(oracle, t) for t in (range(n) if n > 1 else [None])]
        tells = curved.tells(self.curvature_target)
        return ended([(w, tells and multiplier <= curved.curvature, lowest) for w, multiplier, lowest in found])

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._solved(oracle, target)[0]

    def _solved(self, oracle: Oracle, target: int | None) -> tuple[Vector, float, float]:
        problem, curved = self.problem, self.curved
        assert self.radius is not None
        rows = problem.n_rows * (curved.rate or 1.0)
        gradient, hessian, lowest = norm_gradient(problem, target), curved.query(target), math.inf

        def answer(asked: Asked) -> Known:
            nonlocal lowest
            if asked.kind == "gradient":
                value = oracle.ask("gradient", oracle.visit(asked.point), gradient) / rows
                return Known(value + curved.penalty_gradient(asked.point), oracle.noise_std / rows)
            H = unpack_symmetric(oracle.ask("hessian", asked.point, hessian)) / rows
            H = H + curved.penalty_hessian(asked.point)
            lowest = float(np.linalg.eigvalsh(H)[0])
            return Known(H, oracle.noise_std / rows)

        radii = [self.radius * self.shrink**k for k in range(self.rounds)]
        signs = [1.0 if oracle.drawn(f"side {k} of {target}", 2) else -1.0 for k in range(self.rounds)]
        enough = curved.curvature if curved.tells(self.curvature_target) else -1.0
        loop = trust_region(self._first(problem.intercept), radii, signs, self._project, enough)
        point, multiplier = drive(loop, answer)
        return point, multiplier, lowest

    def _project(self, w: Vector) -> Vector:
        problem, d = self.problem, self.problem.n_features
        return w if problem.constraint is None else np.append(problem.constraint.project(w[:d]), w[d:])

    def expected_error(self, plan: Plan) -> float | None:
        """What the noise of the last steps leaves, for rows that are equally long in all directions: the gradient's
        over the curvature, or the last radius where that is shorter."""
        problem = self.problem
        assert problem.row_norm is not None and self.radius is not None
        noise = plan["gradient"].mechanism.noise_std(norm_gradient(problem).sensitivity(problem.neighbours))
        noise /= problem.n_rows * (self.curved.rate or 1.0)
        d = problem.n_parameters
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / d
        last = self.radius * self.shrink ** (self.rounds - 1)
        return curvature / 2 * min(math.sqrt(d) * noise / curvature, last) ** 2


@dataclass(frozen=True)
class CertifiedDescent(Certifies, ClippedDescent):
    """A descent that keeps half of mu^2 for Hessians at its last iterates, of which it returns one.

    Parameters are those of `dpdist.central.linear.heavy_tailed.GradientDescent`.
    """

    tag, name = "CertifiedDescent", "gradient"

    curvature_target: float | None = None
    certify: str = "local-minimum"

    def decide(self, public: Public, statement: Problem) -> Self:
        decided = super().decide(public, statement)
        check_smooth(decided.problem, self.name)
        if decided.rate is not None or decided.combine not in ("auto", "last"):
            raise BudgetError(
                "certify='local-minimum' returns one of the last iterates and reads all rows: leave out combine, and "
                "use rows='all'"
            )
        if decided.rounds < CANDIDATES:
            raise BudgetError(
                f"certify='local-minimum' looks at {CANDIDATES} iterates, and there are n_rounds={decided.rounds}: "
                f"pass n_rounds={CANDIDATES} at least"
            )
        _ = decided.curved.query(None)
        return decided

    @property
    def curved(self) -> Curved:
        """The problem, with what can be certified."""
        return Curved(self.problem, self.rounds, CANDIDATES)

    def lines(self) -> list[Line]:
        descent = [replace(line, share=HALF * line.share) for line in super().lines()]
        count = CANDIDATES * self.problem.n_problems
        return [*descent, Line("hessian", SymmetricGaussian(), self.curved.query(None), count=count, share=HALF)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        n, tells = self.problem.n_problems, self.curved.tells(self.curvature_target)
        found = [self._solved(oracle, t) for t in (range(n) if n > 1 else [None])]
        return ended([(w, tells and sure, lowest) for w, sure, lowest in found])

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        return self._solved(oracle, target)[0]

    def _solved(self, oracle: Oracle, target: int | None) -> tuple[Vector, bool, float]:
        curved, query, seen = self.curved, norm_gradient(self.problem, target), list[tuple[Vector, float]]()

        def mean_gradient(w: Vector) -> Vector:
            g = oracle.ask("gradient", oracle.visit(w), query) / self.problem.n_rows
            seen.append((w, float(np.linalg.norm(g + curved.penalty_gradient(w)))))
            return g

        first = self._first(self.problem.intercept)
        self.descend(self.step_size or self._step(oracle), mean_gradient, first, None)
        judged, apart = [], min(APART, (len(seen) - 1) // (CANDIDATES - 1))
        for k in range(CANDIDATES):
            w, length = seen[len(seen) - 1 - apart * k]
            H = unpack_symmetric(oracle.ask("hessian", w, curved.query(target))) / self.problem.n_rows
            lowest = float(np.linalg.eigvalsh(H + curved.penalty_hessian(w))[0])
            judged.append((w, length <= curved.accuracy and lowest >= -curved.curvature, lowest))
        return next((each for each in judged if each[1]), judged[0])

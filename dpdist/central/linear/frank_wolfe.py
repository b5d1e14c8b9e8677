"""Private Frank-Wolfe: a few hundred rounds of "which vertex of the set goes down most steeply?" (``"frank-wolfe"``).

================== ========================================================================================
method             parameters (with ``constraint=L1Ball(radius)`` or ``Simplex(total)``)
================== ========================================================================================
dp-fw-l1           ``gradient="coordinate"`` with ``feature_bound``
dp-fw-linf-clip    ``gradient="coordinate"`` with ``scale``
ht-dp-fw           ``gradient="truncate"`` or ``"smooth-truncate"``, ``rows="split"``, ``delta=0``
ht-dp-fw-full      ``gradient="truncate"`` or ``"smooth-truncate"``
ht-dp-fw-robreg    ``loss=Biweight(threshold)``, ``gradient="residual"`` or ``"truncate"``
residual-clip-fw   ``gradient="residual"``, the default for a heavy-tailed lasso
ht-private-lasso   ``gradient="shrink"``
nc-dp-fw-l1        as dp-fw-l1, for losses that are not convex
nc-dp-fw-l2        ``gradient="norm"``: `dpdist.central.linear.noisy_frank_wolfe`
================== ========================================================================================

Seed 003, section 4 (Algorithms 1 and 2, Theorem 3) and seed 000, section 3.1, with the range sensitivity of the
scores in place of their bound (half the noise) and an accounting that is tight.

Why it is private: a row moves no coordinate of the gradient sum by more than twice the public bound, so the scores of
the vertices, which are coordinates times the radius, move by as much; the exponential mechanism chooses one. Rounds
compose by zCDP, or, with ``rows="split"``, every row is in one round only (parallel composition) and the whole costs
what one round does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpdist.central.linear.bounding import ClipNorm
from dpdist.central.linear.high_dimensional import (
    COORDINATEWISE,
    bounded_gradient,
    check_rounds,
    feature_square,
    gradient_query,
    is_split,
    rho_of,
)
from dpdist.central.linear.linear_method import (
    Combine,
    LoopMethod,
    Problem,
    Vector,
    bounded_by,
    need,
    need_prox,
)
from dpdist.central.linear.noisy_frank_wolfe import NoisyFrankWolfe
from dpdist.constraints import Box, ElasticNet, L1Ball, L2Ball, Simplex
from dpdist.errors import BudgetError
from dpdist.kernels.coordinate_gradients import CoordinateMap
from dpdist.kernels.truncation import ScalarMap
from dpdist.method import DECIDED, Line, Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.selection import ExponentialMechanism
from dpdist.queries.coordinate_gradient_sums import State
from dpdist.solvers.loops import drive, frank_wolfe

WIDTHS = 2.0
"""``feature_bound`` is taken for this many times the usual size of a feature."""
TAIL = 0.3
"""Part of the iterates that is averaged: the last vertices weigh most in an iterate, and where they fall is a matter of
luck (excess 1e-4 against 5e-4 for a lasso on 100 000 x 200 at epsilon 1; half of them are too many on large balls). On
eight other problems, lassos, simplexes and logistic ones with log-normal and t features, the mean excess of five seeds
was between 0.08 and 1.07 times that of the last iterate, above 1 in two of sixteen settings."""
FEWEST_ROUNDS, MOST_ROUNDS = 10, 200
FAILURE = 0.05
"""Probability with which the deviation bounds behind the rounds of a split may fail."""


@dataclass(frozen=True)
class FrankWolfe(LoopMethod):
    """Every round moves towards a privately chosen vertex.

    Rounds, from public numbers: with all rows, ``(kappa n curvature sqrt(rho/2) / (c R ln(2 d n)))^(2/3)``, between 10
    and 200, c the bound of a row, R the radius, ``curvature = 4 R^2 max_j E l'' x_j^2`` and ``kappa`` 0.4 for squared
    losses, 0.2 for others: more rounds come closer, but each is noisier. With a split (or without delta)
    ``2 (n min(epsilon, 1) h^2 / (second_moment ln(40 d / 0.05)))^(1/3)``, h the curvature over ``4 R``.

    Parameters
    ----------
    n_rounds : int, optional
    combine : {"auto", "last", "tail-average", "random"}
        What is returned: the last iterate; the mean of the last ones (the default); or one whose number is drawn before
        the rows are read, the start among them.
    start : sequence of float, optional
        Public point of the set where it begins: the coefficients, and last the intercept if there is one (whose weight
        belongs to the set). The first step leaves a third of it. Default: 0, or the centre of a simplex.

    Attributes
    ----------
    bounded : CoordinateMap
        Bounds every coordinate of a row's gradient; decided, as the next ones.
    split : bool
        Whether every round reads rows of its own.
    tail : float
        Fraction of the last iterates that is averaged; 0 takes the last one.

    Examples
    --------
    >>> from dpdist import LinearRegression
    >>> from dpdist.constraints import L1Ball
    >>> from dpdist.problems.sparse_problems import heavy_sparse
    >>> data, truth = heavy_sparse(20_000, 6, noise_std=0.2, random_state=0)
    >>> model = LinearRegression(solver=FrankWolfe(n_rounds=40), constraint=L1Ball(1.0), feature_bound=3.0,
    ...     residual_bound=1.0, alpha=0.0, fit_intercept=False, epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([ 0.3, -0.2,  0.2, -0.1,  0.1,  0. ]), array([ 0.3, -0.2,  0.2, -0.2,  0.1,  0. ]))
    """

    tag, name = "FrankWolfe", "frank-wolfe"

    combine: Combine = "auto"

    bounded: CoordinateMap = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    split: bool = field(default=False, kw_only=True, repr=False, metadata=DECIDED)
    tail: float = field(default=0.0, kw_only=True, repr=False, metadata=DECIDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine == "min-noisy":
            raise BudgetError(
                "combine='min-noisy' compares released gradients, and FrankWolfe releases which vertex it goes to, and "
                "no gradient: use 'last', 'tail-average' or 'random', or solver='gradient'"
            )

    def decide(self, public: Public, statement: Problem) -> FrankWolfe | NoisyFrankWolfe:
        round_set = isinstance(statement.constraint, L2Ball | Box)
        if isinstance(statement.gradient, ClipNorm) or (statement.gradient is None and round_set):
            noisy = NoisyFrankWolfe(self.n_rounds, self.combine, start=self.start, reason=self.reason)
            return noisy.decide(public, statement)
        problem = bounded_by(statement, self.name, *COORDINATEWISE)
        split = is_split(problem, self.name)
        need(problem, "constraint")
        radius = _radius(problem)
        need_prox(problem, self.name)
        _check_penalty(problem)

        def scale(unit: ScalarMap) -> float:
            assert problem.second_moment is not None
            return 0.5 * math.sqrt(problem.second_moment)

        bounded = bounded_gradient(problem, scale, radius)
        parts = split or problem.budget.delta == 0
        n_rounds = self.n_rounds or (_rounds_of_parts if parts else _rounds)(problem, bounded)
        check_rounds(problem, split, n_rounds)
        tail = TAIL if self.combine in ("auto", "tail-average") else 0.0
        return self._with(public, problem, n_rounds=n_rounds, bounded=bounded, split=split, tail=tail)

    def lines(self) -> Sequence[Line]:
        count, mechanism = self.problem.n_problems, ExponentialMechanism(signed=self._signed)
        query = gradient_query(self.problem, self.bounded, None)
        if not self.split:
            return [Line("vertex", mechanism, query, count=self.rounds * count)]
        folds = f"slots-{self.rounds}"
        return [Line(self._line(t), mechanism, query, count=count, fold=(folds, t)) for t in range(self.rounds)]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem, size = self.problem, self.problem.n_parameters
        constraint = problem.constraint
        assert isinstance(constraint, L1Ball | Simplex)
        pick = oracle.drawn(f"iterate of {target}", self.rounds) if self.combine == "random" else None
        query = gradient_query(problem, self.bounded, target)
        per_round = problem.n_rows / (self.rounds if self.split else 1)
        rounds = itertools.count()

        def vertex(w: Vector) -> Vector:
            # the statistic is the descent direction: minus the gradient of the sum, and of the public penalty
            anchor = -per_round * problem.strong_convexity * w
            anchor[problem.n_features :] = 0.0
            chosen = oracle.ask(self._line(next(rounds)), State(oracle.visit(w), anchor), query)
            return constraint.vertex(int(chosen[0]), size)

        first = self._first(problem.intercept)
        return drive(frank_wolfe(first, self.rounds, self.tail, pick), vertex)

    def _in_set(self, point: Vector) -> Vector:
        return point

    def expected_error(self, plan: Plan) -> float | None:
        """What the selections lose at most on average, ``Rg ln(2 d) / eps0`` with range sensitivity ``Rg``.

        Up to 10 times what is observed: scores that far apart do not occur when the noise matters.
        """
        problem = self.problem
        mechanism = plan[self._line(0)].mechanism
        rows = problem.n_rows / (self.rounds if self.split else 1)
        range_sensitivity = 2 * _radius(problem) * problem.neighbours.sum_factor * self.bounded.bound / rows
        return range_sensitivity * math.log(2 * problem.n_parameters) / mechanism.cost.parameter

    @property
    def _signed(self) -> bool:
        return isinstance(self.problem.constraint, L1Ball)

    def _line(self, t: int) -> str:
        return f"vertex {t + 1}" if self.split else "vertex"


def _radius(problem: Problem) -> float:
    constraint = problem.constraint
    if isinstance(constraint, L1Ball):
        return constraint.radius
    if isinstance(constraint, Simplex):
        return constraint.total
    raise BudgetError(
        f"solver='frank-wolfe' chooses among the vertices of L1Ball(radius) or Simplex(total), got {constraint!r}; "
        "L2Ball(radius) and Box(low, high) take gradient='norm'"
    )


def _check_penalty(problem: Problem) -> None:
    penalty = problem.penalty
    if penalty is not None and not (isinstance(penalty, ElasticNet) and penalty.l1_ratio == 0):
        raise BudgetError(
            "solver='frank-wolfe' takes ridge penalties only (ElasticNet with l1_ratio=0): the l1 part is what the "
            f"constraint is for, got {penalty!r}"
        )


def _hessian(problem: Problem) -> float:
    """Public guess of the largest diagonal entry of the Hessian of the mean loss."""
    return problem.loss.curvature_bound * feature_square(problem, WIDTHS) + problem.strong_convexity


def _rounds(problem: Problem, bounded: CoordinateMap) -> int:
    kappa = 0.4 if problem.loss.name in ("squared", "huber") else 0.2
    signal = kappa * 4 * _radius(problem) * _hessian(problem) * problem.n_rows * math.sqrt(rho_of(problem) / 2)
    noise = bounded.bound * math.log(2 * problem.n_parameters * problem.n_rows)
    return round(min(max((signal / noise) ** (2 / 3), FEWEST_ROUNDS), MOST_ROUNDS))


def _rounds_of_parts(problem: Problem, bounded: CoordinateMap) -> int:
    # the default scale is half of the root of the second moment, and the bound is about as large as the scale
    moment = problem.second_moment or (2 * bounded.bound) ** 2
    signal = problem.n_rows * min(problem.budget.epsilon / problem.n_problems, 1.0) * _hessian(problem) ** 2
    signal *= _radius(problem) ** 2
    most = (signal / (moment * math.log(40 * problem.n_parameters / FAILURE))) ** (1 / 3)
    return min(max(round(2 * most), 2), MOST_ROUNDS, problem.n_rows)

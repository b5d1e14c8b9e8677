"""What Frank-Wolfe and hard thresholding have in common: gradients bounded coordinate by coordinate (seed 003).

With many features the noise of a whole gradient grows with their number; which coordinate is the largest costs only
the logarithm of it. `dpdist.central.linear.frank_wolfe` asks for one vertex per round,
`dpdist.central.linear.hard_threshold` for a few coordinates. Both need that no row moves any coordinate by much
(`bounded_gradient`; the table is in `dpdist.central.linear.bounding`).

Only the order of the coordinates matters, so small bounds cost little bias: "residual" is the default, since its bound
does not grow with the set.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpdist.central.linear.bounding import (
    All,
    ClipCoordinate,
    ClipResidual,
    Scaled,
    Shrink,
    SmoothTruncate,
    Split,
    Truncate,
)
from dpdist.central.linear.linear_method import Problem, need, reads
from dpdist.errors import BudgetError, MissingBound
from dpdist.estimators.parameters import BOUNDS
from dpdist.kernels.coordinate_gradients import CoordinateMap, Residual
from dpdist.kernels.truncation import HardClip, ScalarMap, SmoothTruncation, SoftTruncation
from dpdist.privacy.accounting.closed_forms import rho_for
from dpdist.privacy.budget import Neighbours
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum, Shifted

COORDINATEWISE = (ClipResidual, Shrink, ClipCoordinate, Truncate, SmoothTruncate)
"""The gradients that bound single coordinates; the first is the default."""
LOOP_BETA = 1.0
"""Precision of the smoothed truncation; any constant does, and the results do not differ from those of phi."""


def is_split(problem: Problem, solver: str) -> bool:
    """Whether every round gets rows of its own."""
    reads(problem, solver, All, Split)
    if isinstance(problem.rows, All):
        return False
    if problem.neighbours is not Neighbours.REPLACE_ONE:
        raise BudgetError(
            "rows='split' deals rows to rounds by their position, so it is private for neighbours='replace-one' only: "
            "adding a row shifts all rows after it. Use rows='all'"
        )
    return True


def check_rounds(problem: Problem, split: bool, n_rounds: int) -> int:
    """``n_rounds``, if there are rows for them."""
    if split and n_rounds > problem.n_rows:
        raise BudgetError(f"rows='split' needs a row for every round, got {problem.n_rows} for {n_rounds} rounds")
    return n_rounds


def bounded_gradient(problem: Problem, scale: Callable[[ScalarMap], float], l1_radius: float | None) -> CoordinateMap:
    """The bound of a row's contribution.

    Parameters
    ----------
    problem : Problem
    scale : callable
        The best scale for a truncation, where none is given: from the map at scale 1.
    l1_radius : float or None
        Bound of ``||w||_1``, if there is one.
    """
    gradient = problem.gradient
    if isinstance(gradient, ClipResidual | Shrink):
        need(problem, "feature_bound")
        assert problem.feature_bound is not None
        if isinstance(gradient, ClipResidual):
            return Residual(problem.feature_bound, _residual_bound(problem))
        return _shrink(problem, problem.feature_bound, l1_radius)
    assert isinstance(gradient, Scaled)
    if isinstance(gradient, ClipCoordinate):
        implied = (problem.feature_bound or math.inf) * problem.loss.derivative_bound
        if gradient.scale is not None or math.isinf(implied):
            implied = _scale(problem, gradient, HardClip(1.0), scale)
        return HardClip(implied)
    if isinstance(gradient, Truncate):
        return SoftTruncation(_scale(problem, gradient, SoftTruncation(1.0), scale))
    return SmoothTruncation(LOOP_BETA, _scale(problem, gradient, SmoothTruncation(LOOP_BETA, 1.0), scale))


def _residual_bound(problem: Problem) -> float:
    implied = problem.loss.derivative_bound
    if problem.residual_bound is None and math.isinf(implied):
        need(problem, "residual_bound")
    return min(problem.residual_bound or math.inf, implied)


def _shrink(problem: Problem, bound: float, l1_radius: float | None) -> Residual:
    """Entries of rows and labels within K leave a residual within ``K ||w||_1 + K``; it is enforced all the same."""
    if problem.loss.labels != "real":
        raise BudgetError(
            f'gradient="shrink" cuts real labels off, the {problem.loss.name} loss has signs: use gradient="residual"'
        )
    if l1_radius is None:
        raise MissingBound('constraint is missing: gradient="shrink" needs it, for example L1Ball(1.0) or L2Ball(1.0)')
    return Residual(bound, bound * (l1_radius + 1), bound)


def _scale(problem: Problem, gradient: Scaled, unit: ScalarMap, scale: Callable[[ScalarMap], float]) -> float:
    if gradient.scale is not None:
        return gradient.scale
    if problem.second_moment is None:
        ways = "scale, or feature_bound with a loss of bounded derivative" if isinstance(unit, HardClip) else "scale"
        raise MissingBound(f"second_moment is missing (or {ways}): {BOUNDS['second_moment']}")
    return scale(unit)


def gradient_query(problem: Problem, bounded: CoordinateMap, target: int | None) -> Shifted:
    """What is asked of the rows in a round."""
    return Shifted(
        CoordinateGradientSum(problem.loss, bounded, problem.n_features, intercept=problem.intercept, target=target)
    )


def feature_square(problem: Problem, widths: float) -> float:
    """Public guess of the mean square of a feature: 1, or what ``feature_bound = widths * usual size`` says."""
    return 1.0 if problem.feature_bound is None else (problem.feature_bound / widths) ** 2


def rho_of(problem: Problem) -> float:
    """The zCDP of one binary problem."""
    return rho_for(problem.budget.epsilon, problem.budget.delta) / problem.n_problems

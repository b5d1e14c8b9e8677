"""Which solver a problem takes: ``solver=`` by name or as an object, ``"auto"`` by public numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpdist.central.linear.bounding import All, ClipCoordinate, ClipLabel, ClipNorm, ClipResidual, ScaleRows, Shrink
from dpdist.central.linear.frank_wolfe import FrankWolfe
from dpdist.central.linear.gradient_descent import AcceleratedGradient
from dpdist.central.linear.hard_threshold import HardThresholding
from dpdist.central.linear.heavy_tailed import GradientDescent
from dpdist.central.linear.linear_method import LinearMethod, Problem
from dpdist.central.linear.mirror import AcceleratedMirror, MirrorDescent
from dpdist.central.linear.net import ExponentialNet
from dpdist.central.linear.newton import HESSIAN_SIGNAL, MOST_FEATURES, Newton
from dpdist.central.linear.normal_rows import remembered
from dpdist.central.linear.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.linear.preconditioned import PreconditionedGradient
from dpdist.central.linear.prediction import Prediction
from dpdist.central.linear.robust_newton import RobustNewton, robust_newton_can
from dpdist.central.linear.saddle_escape import SaddleEscape
from dpdist.central.linear.second_order import TrustRegion, hessians_tell
from dpdist.central.linear.stationary import HeavyBall, Langevin
from dpdist.central.linear.subspace import SubspaceNewton, newton_steps
from dpdist.central.linear.sufficient_statistics import SufficientStatistics
from dpdist.central.linear.variance_reduced import SVRG, Katyusha, SVRGPlusPlus
from dpdist.constraints import L1Ball, Simplex
from dpdist.errors import BudgetError, MissingBound
from dpdist.losses import Huber
from dpdist.method import by_name, noting
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.solvers.filtered_newton import SCARCE

SOLVERS = by_name(
    GradientDescent, AcceleratedGradient, SVRG, SVRGPlusPlus, Katyusha, MirrorDescent, AcceleratedMirror, FrankWolfe,
    PerturbedOutput, PerturbedObjective, HardThresholding, Newton, SufficientStatistics, RobustNewton,
    PreconditionedGradient, SubspaceNewton, HeavyBall, Langevin, ExponentialNet, TrustRegion, SaddleEscape,
)  # fmt: skip
"""By name."""
MOST_PASSES = 300
"""Passes that ``solver="auto"`` spends; an exact minimiser with a smaller penalty would need more."""
LONGER = (30, 100, 250)
"""Rounds of gradients that are compared with those by rule."""
AS_GOOD = 1.05
"""A prediction so many times the least one is as good as it: of one solver the fewest rounds are taken."""
CLEARLY = 3.0
"""So many times smaller, an error is clearly better ..."""
SMALL = 0.1
"""... unless the larger one is below that part of the least that a fit can be worth."""
NOT_CONVEX = (
    "the loss is not convex: descent, with rounds and steps by public numbers; solver='trust-region' asks for Hessians "
    "and leaves saddles in fewer passes"
)
ILL_CONDITIONED = (
    "the penalty is smooth and has no curvature far out, so that nothing public bounds how badly conditioned the "
    "problem is; released Hessians show usual curvature, and their steps do not depend on it"
)
NOTHING = 0.01
"""Part of what a fit is worth that does not count."""


Stated = Callable[[LinearMethod], Problem]


@dataclass(frozen=True)
class Candidate:
    """A solver that could be taken, and the error to expect of it."""

    solver: LinearMethod
    passes: float
    prediction: Prediction

    @property
    def shown(self) -> str:
        """With its passes and its range."""
        return f"{self.solver.name} in {self.passes:g} passes {_range(self.prediction)}"


def automatic(problem: Problem, stated: Stated | None = None) -> LinearMethod:
    """The solver that ``"auto"`` takes, with its reason: from public numbers only.

    Where a set, a gradient or the rows leave one kind of solver, that one; Newton steps where rows are few: only they
    begin at the best constant. Else the one with the least predicted error
    (`dpdist.central.linear.prediction`) among those that can be fitted, in at most `MOST_PASSES` passes: Newton steps,
    one perturbed minimiser, gradients with and without momentum. ``stated`` gives each solver its problem: they
    differ in what an open penalty is.
    """
    for_one = _only_one(problem)
    if for_one is not None:
        return for_one
    if not problem.loss.convex:
        return replace(GradientDescent(), reason=NOT_CONVEX)
    found = compared(problem, stated)
    if not found:
        return replace(GradientDescent(), reason="no error can be foreseen that would tell solvers apart")
    others = "; ".join(each.shown for each in sorted(found, key=lambda each: each.prediction.typical))
    newton = [each for each in found if isinstance(each.solver, Newton | SubspaceNewton)]
    if newton and _is_scarce(problem):
        best, what = newton[0], "rows are few, and these steps do not leave the best constant for noise; expected are"
    else:
        best = min(found, key=lambda each: each.prediction.typical)
        what = "the least error that is expected of those compared, typical and range"
    return replace(best.solver, reason=f"{what}: {others}")


def compared(problem: Problem, stated: Stated | None) -> list[Candidate]:
    """All solvers that can be fitted to the problem, the best number of rounds of each.

    What they read of the problem does not count: only one of them is taken.
    """

    def candidates(*solvers: LinearMethod) -> list[Candidate]:
        there = [_candidate(problem if stated is None else stated(solver), solver) for solver in solvers]
        return [each for each in there if each is not None and each.passes <= MOST_PASSES]

    with noting():
        found = candidates(PerturbedObjective(), *newton_steps(problem))
        for kind in (GradientDescent, AcceleratedGradient):
            if lengths := candidates(*(kind(n_rounds=n) for n in (None, *LONGER))):
                found.append(_best(lengths))
        return found


def better(problem: Problem, stated: Stated, method: LinearMethod) -> str:
    """What would be clearly better than a method that was asked for; empty if nothing is."""
    if not method.is_compared or _only_one(problem) is not None or not (found := compared(problem, stated)):
        return ""
    plan = calibrate([line.item for line in method.lines()], problem.budget, problem.neighbours)
    own = method.prediction(plan)
    best = _best(found)
    never_worse = bool(np.all(best.prediction.excess <= AS_GOOD * own.excess + NOTHING * own.gained))
    if not never_worse or own.typical < max(CLEARLY * best.prediction.typical, SMALL * float(own.gained.min())):
        return ""
    solver = best.solver
    named = repr(solver.name) if solver.n_rounds is None else f"{solver.tag}(n_rounds={solver.n_rounds})"
    return (
        f"solver={named} is expected to come clearly closer to the best fit, {_range(best.prediction)}, than "
        f"solver={method.name!r} with {method.n_rounds} rounds, {_range(own)}"
    )


@remembered
def _candidate(problem: Problem, solver: LinearMethod) -> Candidate | None:
    alike = replace(problem, public=problem.public.one_row_each())
    try:
        if isinstance(solver, PerturbedObjective) and problem.public.units.max_rows > 1:
            return None
        decided = solver.decide(alike.public, alike)
        assert isinstance(decided, LinearMethod)
        if not decided.is_compared:
            return None
        plan = calibrate([line.item for line in decided.lines()], alike.budget, alike.neighbours)
    except (BudgetError, MissingBound):
        return None
    passes = sum(item.count * item.passes for item in plan.items) / problem.n_problems
    return Candidate(solver, passes, decided.prediction(plan))


def _range(prediction: Prediction) -> str:
    expected = prediction.expected
    return f"{expected.typical:.2g} ({expected.low:.1g} to {expected.high:.1g})"


def _best(found: Sequence[Candidate]) -> Candidate:
    least = min(each.prediction.typical for each in found)
    as_good = [each for each in found if each.prediction.typical <= AS_GOOD * least]
    return min(as_good, key=lambda each: each.passes)


def _only_one(problem: Problem) -> LinearMethod | None:
    """The solver that a set, a gradient or the rows leave."""

    def because(solver: LinearMethod, reason: str) -> LinearMethod:
        return replace(solver, reason=reason)

    if problem.smooth_penalty is not None:
        if problem.loss.convex and _has_hessians(problem):
            return because(TrustRegion(), ILL_CONDITIONED)
        return because(GradientDescent(), "the penalty is smooth, and its gradient is added to what is released")
    gradient = problem.gradient
    vertices = isinstance(problem.constraint, L1Ball | Simplex)
    by_coordinates = isinstance(gradient, ClipCoordinate | ClipResidual | Shrink)
    if by_coordinates or (vertices and gradient is not None and not isinstance(gradient, ClipNorm)):
        assert gradient is not None
        reason = f"gradient={gradient.name!r} bounds single coordinates, and the set has few vertices"
        return because(FrankWolfe(), reason)
    if gradient is None and vertices and problem.row_norm is None and _features_are_bounded(problem):
        return because(FrankWolfe(), "single features and residuals are bounded, and the set has few vertices")
    if isinstance(gradient, ScaleRows) or (gradient is None and robust_newton_can(problem) and _is_robust(problem)):
        return because(RobustNewton(), "rows that are scaled down as a whole keep what correlated columns say")
    if isinstance(gradient, ClipLabel):
        return because(SufficientStatistics(), "bounded labels let one matrix tell all that least squares needs")
    asked = gradient if gradient is not None else ClipNorm()
    if not isinstance(asked, ClipNorm) or not isinstance(problem.rows, All):
        return because(GradientDescent(), f"gradient={asked.name!r} with rows={problem.rows.name!r}")
    if asked.clip_norm is not None or problem.constraint is not None or problem.row_norm is None:
        return because(GradientDescent(), "clip or set were chosen for it")
    return None


def _has_hessians(problem: Problem) -> bool:
    """Whether a trust region can be fitted, and released Hessians show usual curvature."""
    if problem.n_features > MOST_FEATURES or not isinstance(problem.rows, All):
        return False
    alike = replace(problem, public=problem.public.one_row_each())
    try:
        decided = TrustRegion().decide(alike.public, alike)
    except (BudgetError, MissingBound):
        return False
    return hessians_tell(decided.problem)


def _is_scarce(problem: Problem) -> bool:
    """Whether rows are so few for the noise that a solver has to begin at the best constant, and may stay there."""
    return problem.signal < (HESSIAN_SIGNAL if problem.n_features <= MOST_FEATURES else SCARCE)


def _is_robust(problem: Problem) -> bool:
    """Whether rows are long or heavy-tailed, or outliers in labels are to count little."""
    shortened = isinstance(problem.loss, Huber) and problem.row_norm is not None and problem.budget.delta > 0
    return shortened or problem.second_moment is not None


def _features_are_bounded(problem: Problem) -> bool:
    """Whether single features and residuals have public bounds."""
    bounded = problem.residual_bound is not None or problem.loss.derivative_bound < float("inf")
    return problem.feature_bound is not None and bounded

"""Which solver a problem takes: ``solver=`` by name or as an object, ``"auto"`` by public numbers."""

from __future__ import annotations

from dataclasses import replace

from dpdist.central.linear.bounding import All, ClipCoordinate, ClipLabel, ClipNorm, ClipResidual, ScaleRows, Shrink
from dpdist.central.linear.frank_wolfe import FrankWolfe
from dpdist.central.linear.gradient_descent import AcceleratedGradient
from dpdist.central.linear.hard_threshold import HardThresholding
from dpdist.central.linear.heavy_tailed import GradientDescent
from dpdist.central.linear.linear_method import LinearMethod, Problem
from dpdist.central.linear.mirror import AcceleratedMirror, MirrorDescent
from dpdist.central.linear.newton import Newton, newton_can
from dpdist.central.linear.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.linear.robust_newton import RobustNewton, robust_newton_can
from dpdist.central.linear.sufficient_statistics import SufficientStatistics
from dpdist.central.linear.variance_reduced import SVRG, Katyusha, SVRGPlusPlus
from dpdist.constraints import L1Ball, Simplex
from dpdist.errors import BudgetError, MissingBound
from dpdist.method import by_name

SOLVERS = by_name(
    GradientDescent, AcceleratedGradient, SVRG, SVRGPlusPlus, Katyusha, MirrorDescent, AcceleratedMirror, FrankWolfe,
    PerturbedOutput, PerturbedObjective, HardThresholding, Newton, SufficientStatistics, RobustNewton
)  # fmt: skip
"""By name."""
MOST_PASSES = 300
"""Passes that ``solver="auto"`` spends on an exact minimiser; a smaller penalty would need more."""


def automatic(problem: Problem) -> LinearMethod:
    """The solver that ``"auto"`` takes, with its reason: from public numbers only.

    One release of a minimiser with a random linear term is mostly the most accurate (excess objective 1.0e-4, plain
    descent 4.7e-4 at 100 000 x 50, epsilon 1), but takes about ``20 sqrt(curvature/alpha)`` passes. Plain descent is
    the better loop with noisy gradients where data are plenty; with few rows the accelerated one can be (excess
    log-loss 0.0017 against 0.0057 at 20 000 x 20, epsilon 1).
    """

    def because(solver: LinearMethod, reason: str) -> LinearMethod:
        return replace(solver, reason=reason)

    if problem.smooth_penalty is not None:
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
    if isinstance(gradient, ScaleRows) or (gradient is None and problem.second_moment and robust_newton_can(problem)):
        return because(RobustNewton(), "rows that are scaled down as a whole keep what correlated columns say")
    if isinstance(gradient, ClipLabel):
        return because(SufficientStatistics(), "bounded labels let one matrix tell all that least squares needs")
    asked = gradient if gradient is not None else ClipNorm()
    if not isinstance(asked, ClipNorm) or not isinstance(problem.rows, All):
        return because(GradientDescent(), f"gradient={asked.name!r} with rows={problem.rows.name!r}")
    if asked.clip_norm is None and newton_can(problem):
        return because(Newton(), "a matrix of the features is affordable, and Newton steps are weighed by their noise")
    by_hand = asked.clip_norm is not None or problem.constraint is not None
    if by_hand or problem.public.units.max_rows > 1:
        return because(GradientDescent(), "clip, set or unit were chosen for it")
    try:
        passes = PerturbedObjective().decide(problem.public, problem).rounds
    except (BudgetError, MissingBound):
        return because(GradientDescent(), "the loss is not smooth and bounded, or the penalty is no ridge")
    if passes > MOST_PASSES:
        reason = f"the exact minimiser would take {passes} passes (a larger ridge penalty takes fewer)"
        return because(GradientDescent(), reason)
    reason = f"the ridge penalty lets {passes} passes find the exact minimiser, with the least noise"
    return because(PerturbedObjective(), reason)


def _features_are_bounded(problem: Problem) -> bool:
    """Whether single features and residuals have public bounds."""
    bounded = problem.residual_bound is not None or problem.loss.derivative_bound < float("inf")
    return problem.feature_bound is not None and bounded

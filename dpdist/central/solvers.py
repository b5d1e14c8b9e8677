"""Which course a problem takes: ``solver=`` by name, ``"auto"`` by public numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpdist.central.convex import GradientDescent
from dpdist.central.course import Course, Problem
from dpdist.central.frank_wolfe import FrankWolfe
from dpdist.central.hard_threshold import iterative_hard_thresholding
from dpdist.central.heavy_tailed import gradient_descent
from dpdist.central.mirror import MirrorDescent
from dpdist.central.perturbation import PerturbedObjective, PerturbedOutput
from dpdist.central.variance_reduced import VarianceReduced
from dpdist.constraints import L1Ball, Simplex
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.parameters import choice

SOLVERS: dict[str, Callable[[Problem], Course]] = {
    "gradient": gradient_descent,
    "accelerated": GradientDescent.of,
    "svrg": VarianceReduced.of,
    "svrg++": VarianceReduced.of,
    "katyusha": VarianceReduced.of,
    "mirror": MirrorDescent.of,
    "accelerated-mirror": MirrorDescent.of,
    "frank-wolfe": FrankWolfe.of,
    "output": PerturbedOutput.of,
    "objective": PerturbedObjective.of,
    "iht": iterative_hard_thresholding,
}


MOST_PASSES = 300
"""Passes that ``solver="auto"`` spends on an exact minimiser; a smaller penalty would need more."""


def course(problem: Problem) -> Course:
    """The course of a problem; ``"auto"`` is resolved by `automatic`.

    Rounds, steps and scales are decided as for `one_row_each`.
    """
    alike = one_row_each(problem)
    return replace(SOLVERS[alike.solver](alike), problem=replace(problem, solver=alike.solver))


def one_row_each(problem: Problem) -> Problem:
    """The problem with one row of each unit, for the solver that all rows take.

    k rows in a sum with k times the noise are as good as one in a sum with the noise of one.
    """
    choice("solver", problem.solver, ("auto", *SOLVERS))
    solver = automatic(problem)[0] if problem.solver == "auto" else problem.solver
    n_units = max(1, problem.n_rows // problem.rows_per_unit)
    return replace(problem, solver=solver, n_rows=n_units, rows_per_unit=1)


def automatic(problem: Problem) -> tuple[str, str]:
    """The solver that ``"auto"`` takes, and why: from public numbers only.

    One release of a minimiser with a random linear term is mostly the most accurate (excess objective 1.0e-4, plain
    descent 4.7e-4 at 100 000 x 50, epsilon 1), but takes about ``20 sqrt(curvature/alpha)`` passes. Plain descent is
    the better loop with noisy gradients where data are plenty; with few rows the accelerated one can be (excess
    log-loss 0.0017 against 0.0057 at 20 000 x 20, epsilon 1).
    """
    if problem.n_nonzero is not None:
        return "iht", "n_nonzero asks for a sparse solution"
    vertices = isinstance(problem.constraint, L1Ball | Simplex)
    if problem.gradient in ("coordinate", "residual", "shrink") or (vertices and problem.gradient != "norm"):
        return "frank-wolfe", f"gradient={problem.gradient!r} bounds single coordinates, and the set has few vertices"
    if problem.gradient != "norm" or problem.rows != "all":
        return "gradient", f"gradient={problem.gradient!r} with rows={problem.rows!r}"
    by_hand = (problem.n_rounds, problem.n_inner, problem.step_size, problem.clip_norm, problem.constraint)
    if any(value is not None for value in by_hand) or problem.combine != "auto" or problem.rows_per_unit > 1:
        return "gradient", "rounds, step, clip, set or unit were chosen for it"
    try:
        passes = PerturbedObjective.of(replace(problem, solver="objective")).n_rounds
    except (BudgetError, MissingBound):
        return "gradient", "the loss is not smooth and bounded, or the penalty is no ridge"
    if passes > MOST_PASSES:
        return "gradient", f"the exact minimiser would take {passes} passes (a larger ridge penalty takes fewer)"
    return "objective", f"the ridge penalty lets {passes} passes find the exact minimiser, with the least noise"

"""Gradients that one released matrix preconditions (dp-pgd-matrix).

``A = sum z z'`` of the bounded rows with their constant feature is released once, and each round steps by

    w <- prox(w - n U^-1 g),    U = max(h (A + edge), floor)

in the metric of U: g the noisy gradient of the mean loss, h the largest curvature of the loss, ``edge`` what the noise
of A may hide of an eigenvalue. Then ``U >= h sum z z'`` and no step overshoots, whatever the columns' correlation and
scale; directions whose curvature is not told from noise move slowly. ``floor`` is the curvature below which a
coordinate of the usual size is not told from the noise of the gradients. The mean of the last half of the points is
returned: there the noise of several gradients averages.

Against Newton steps (`dpdist.central.linear.newton`) it needs nothing of a loss but a bound of its curvature, takes
penalties with a proximal step and constraints, in the metric of U, and is slower where margins are large. The number
of rounds is that of the least predicted error.

Why it is private: rows enter through the second moment and through clipped gradients, sums whose sensitivities are
exact (`dpdist.queries.moment_sums`, `dpdist.queries.gradient_sums`); the matrix does not depend on labels, and one
serves all classes. Rows longer than ``row_norm`` count less, as with Newton steps. Source: preconditioned private
gradients as in Ganesh, Haghifam, Steinke and Thakurta (2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import label_size, needs_delta, norm_gradient
from dpdist.central.linear.linear_method import LoopMethod, Problem, Vector, bounded_by, need, need_prox, reads
from dpdist.central.linear.newton import MOST_FEATURES
from dpdist.central.linear.normal_rows import Matrix, Rows, descent, remembered, response
from dpdist.constraints import ElasticNet, proximal
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.gradient_sums import GradientSum
from dpdist.queries.moment_sums import SecondMomentSum
from dpdist.solvers.loops import drive, prox_gradient
from dpdist.solvers.margins import MARGINS
from dpdist.solvers.metric_steps import in_metric

MOMENT_SHARE = 0.15
BEYOND = 4 * math.sqrt(2)
"""Standard deviations (off the diagonal) beyond ``2 sqrt(d)`` of them that noise eigenvalues stay below: in all but
.1 % of the draws."""
ROUNDS = (3, 4, 6, 8, 12, 20, 30)
"""Which are compared."""
TAIL = 0.5
"""Of the points, whose mean is returned."""


@dataclass(frozen=True)
class PreconditionedGradient(LoopMethod):
    """Gradients preconditioned by one released second moment.

    For convex losses of bounded curvature, with any penalty that has a proximal step and any constraint, on all rows;
    15 % of the budget is for the matrix.

    Parameters
    ----------
    n_rounds : int, optional
        Default: that of the least predicted error, of 3 to 30.
    start : sequence of float, optional
        Public point where it begins. Default: 0.

    Examples
    --------
    >>> from dpdist import LinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3)) @ [[0.3, 0.29, 0.0], [0.0, 0.05, 0.0], [0.0, 0.0, 0.02]]  # far from round
    >>> y = (X @ [1.0, -1.0, 1.0] > 0).astype(int)
    >>> bounds = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    >>> [LinearSVC(solver=s, **bounds).fit(X, y).score(X, y) > 0.9 for s in ("preconditioned", "gradient")]
    [True, False]
    """

    tag, name = "PreconditionedGradient", "preconditioned"
    default_alpha: ClassVar[float] = 0.0
    weighs: ClassVar[bool] = True

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        need_prox(problem, self.name)
        _check(problem, self.name)
        norm_gradient(problem)  # its bounds are checked before anything is planned
        asked = self._with(public, problem)
        return asked if self.n_rounds else replace(asked, n_rounds=_best_rounds(asked._unconstrained))

    @property
    def _unconstrained(self) -> Self:
        """The same without what no prediction follows."""
        problem = self.problem
        penalty = problem.penalty if _is_ridge(problem) else None
        return replace(self, start=None, statement=replace(problem, constraint=None, penalty=penalty))

    # -- the plan ---------------------------------------------------------------------------------------------------

    def lines(self) -> Sequence[Line]:
        count = self.rounds * self.problem.n_problems
        return [
            Line("second moment", SymmetricGaussian(), self._moment, share=MOMENT_SHARE),
            Line("gradient", Gaussian(), self._gradient(), count=count, share=1 - MOMENT_SHARE),
        ]

    @property
    def _moment(self) -> SecondMomentSum:
        problem = self.problem
        assert problem.row_norm is not None
        return SecondMomentSum(problem.n_features, problem.row_norm, intercept=problem.intercept, whole=True)

    def _gradient(self, target: int | None = None) -> GradientSum:
        return replace(norm_gradient(self.problem, target), weighed=True)

    # -- the solution -----------------------------------------------------------------------------------------------

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        problem, query = self.problem, self._gradient(target)
        values, vectors = oracle.once("second moment", lambda: self._spectrum(oracle))
        std = oracle.plan["gradient"].mechanism.noise_std(
            query.unit_sensitivity(problem.neighbours, None, self.public.units)
        )
        above = self._above(values, std)
        preconditioner = (vectors / above) @ vectors.T

        def gradient(w: Vector) -> Vector:
            found: Vector = preconditioner @ oracle.ask("gradient", oracle.visit(w), query)
            return found

        prox = proximal(problem.proximal_penalty, problem.constraint, problem.n_features)
        if problem.penalty is not None or problem.constraint is not None:
            prox = in_metric(prox, (vectors * (above / problem.n_rows)) @ vectors.T)
        first = self._first(problem.intercept)
        return drive(prox_gradient(first, prox, 1.0, self.rounds, tail=TAIL), gradient)

    def _spectrum(self, oracle: Oracle) -> tuple[Vector, Matrix]:
        """Of the released second moment, each eigenvalue as large as it may be without the noise."""
        matrix = unpack_symmetric(oracle.ask("second moment"))
        values, vectors = np.linalg.eigh(matrix)
        return values + self._edge(oracle.noise_std), vectors

    def _edge(self, std: float) -> float:
        """The largest eigenvalue of noise of that standard deviation on the diagonal."""
        return (2 * math.sqrt(self.problem.n_parameters) + BEYOND) * std / math.sqrt(2)

    def _above(self, values: Matrix, std: float) -> Matrix:
        """Bounds of the curvature of the sum in each direction, not below what the gradients' noise allows."""
        problem = self.problem
        assert problem.row_norm is not None
        return np.maximum(problem.loss.curvature_bound * values, std * problem.row_norm / math.sqrt(MARGINS))

    # -- what to expect ---------------------------------------------------------------------------------------------

    @property
    def _is_followed(self) -> bool:
        """Where a set or a penalty that is no ridge binds nobody knows."""
        return _is_ridge(self.problem) and self.problem.constraint is None and self.start is None

    @property
    def label_size(self) -> float:
        return label_size(self.problem)

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        """Of gradients that no clip cuts, and eigenvectors that the noise of the matrix leaves where they are."""
        problem = self.problem
        std = plan["gradient"].mechanism.noise_std(self._gradient().sensitivity(problem.neighbours))
        moment = plan["second moment"].mechanism.noise_std(self._moment.sensitivity(problem.neighbours))
        above = self._above(problem.n_rows * rows.moments + self._edge(moment), std)
        return descent(
            rows,
            response(problem.loss),
            noise=std / problem.n_rows,
            step=problem.n_rows / above,
            momentum=np.zeros(len(above)),
            ridge=problem.strong_convexity,
            rounds=self.rounds,
            tail=math.ceil(TAIL * self.rounds),
        )

    def expected_error(self, plan: Plan) -> float | None:
        """Excess that is due to the noise, for rows that are equally long in all directions, as of plain gradients."""
        problem = self.problem
        assert problem.row_norm is not None
        noise = plan["gradient"].mechanism.noise_std(self._gradient().sensitivity(problem.neighbours))
        curvature = problem.loss.curvature_bound * problem.row_norm**2 / problem.n_parameters
        averaged = math.ceil(TAIL * self.rounds)
        return problem.n_parameters * (noise / problem.n_rows) ** 2 / (2 * curvature * averaged)


@remembered
def _best_rounds(method: PreconditionedGradient) -> int:
    """Those with the least error in the middle of what public numbers leave open."""

    def error(n_rounds: int) -> float:
        tried = replace(method, n_rounds=n_rounds)
        plan = calibrate([line.item for line in tried.lines()], tried.budget, tried.problem.neighbours)
        return tried.prediction(plan).typical

    return min(ROUNDS, key=error)


def _is_ridge(problem: Problem) -> bool:
    return problem.penalty is None or (isinstance(problem.penalty, ElasticNet) and problem.penalty.l1_ratio == 0)


def _check(problem: Problem, solver: str) -> None:
    loss = problem.loss
    if not loss.convex or not math.isfinite(loss.curvature_bound):
        raise BudgetError(
            f"solver={solver!r} is for convex losses whose curvature is bounded, and {loss.name} is not one: use "
            "solver='gradient'"
        )
    if problem.n_features > MOST_FEATURES:
        raise BudgetError(
            f"solver={solver!r} releases a matrix, which {problem.n_features} features are too many for (at most "
            f"{MOST_FEATURES}): use solver='subspace', or solver='gradient'"
        )

"""One release of a minimiser: output perturbation (``"output"``) and objective perturbation (``"objective"``).

Both minimise ``sum_i l(<z_i, w>, y_i) + D/2 ||w||^2`` exactly, on un-noised gradients that nobody sees, and release
the end point once (`dpdist.queries.minimizers` says why that is private for any input):

============ ======================================================================= ==================================
method       noise                                                                   use it
============ ======================================================================= ==================================
out-pert     Gaussian, on the minimiser: ``zeta / (D mu)`` a coordinate              with a strong penalty (1e-2)
obj-pert     Gaussian, on the gradient: a linear term in the objective, before       else; the most accurate for smooth
             minimising (`dpdist.privacy.mechanisms.objective_perturbation`)         losses in most cases
============ ======================================================================= ==================================

``zeta`` is 2 G for replace-one and G for add-or-remove-one, ``G = sup|l'| * ||row||``; seed 000, section 3.1, as
corrected.

What they ask for: a convex loss with bounded first and second derivative (logistic, smoothed hinge, Huber), a ridge
penalty or (objective) none, no constraint, and no clipping of gradients, because a clipped gradient field is not the
gradient of a convex function and the proofs would not hold. The ridge term is on *all* parameters here: the weight of
the constant feature is penalised as well, so that the objective is strongly convex in every direction.

The rounds are gradient passes over all rows. Their number is the one that is enough for *every* dataset, about
``20 sqrt(L/D)`` (``L`` the largest curvature that the bounds allow): 80 for a penalty of 1e-2, 890 for 1e-4, with rows
of norm 1 and the logistic loss. It cannot depend on how fast the solver really converges, because everybody sees it. A
smaller ``n_rounds`` is allowed: the end point is then farther from the minimiser, and noise is added for that. Where
rounding keeps all rounds from coming near enough, so that this noise would be the larger one, `PerturbedObjective` is
refused (with Huber's loss and a weak penalty from about 1e5 rows on).

Under add-or-remove-one, or where units own several rows in any places, the number of rows is private, and a number of
rounds is enough for so many rows only: a small share of the budget buys a bound of it first.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dpdist.central.linear.bounding import All, ClipNorm
from dpdist.central.linear.gradient_descent import needs_delta
from dpdist.central.linear.linear_method import (
    LinearMethod,
    Problem,
    Vector,
    bounded_by,
    need,
    need_prox,
    need_ridge,
    reads,
)
from dpdist.central.linear.normal_rows import Rows, perturbed, response
from dpdist.constraints import ElasticNet
from dpdist.errors import BudgetError, MissingBound
from dpdist.method import Line, Oracle, Public
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.privacy.mechanisms.objective_perturbation import OUTPUT_SHARE, ObjectivePerturbation
from dpdist.privacy.mechanisms.upper_bound import UpperBound
from dpdist.queries.minimizers import Minimum, Objective, PerturbedMinimum, RowCount
from dpdist.solvers.minimum import MOST_ROUNDS, rounds_until

ROWS_SHARE = {"output": 1e-3, "objective": 1e-4}
"""Share of mu^2 that pays for the bound of a private number of rows: about a hundredth of epsilon."""
ROWS_DELTA = 0.01
"""Share of delta with which that bound may be wrong."""
MORE_ROWS = 1.25
"""A private number of rows may be so many times the declared one before the default rounds are too few."""
NEGLIGIBLE = {"output": 0.005, "objective": 0.1}
"""What the solver's tolerance may add: to the sensitivity of the minimiser; to the standard deviation of the release,
relative to that from the linear term (their squares add)."""
DOMINATES = 1.0
"""Standard deviation of the noise that hides the tolerance, relative to that from the linear term, above which
objective perturbation is refused. With a weak penalty the bound of how far a minimiser may be from 0 grows with the
rows, and with it what rounding may do on the way: from some number of rows on, more would make the answer worse."""
STRONGER = 4.0
"""Factor between penalties that are tried for the one that would do."""


@dataclass(frozen=True)
class Perturbation(LinearMethod):
    """What the two methods have in common: the checks, the rows, and one release for each binary problem.

    Parameters
    ----------
    n_rounds : int, optional
        Gradient passes over all rows. Default: enough for every dataset.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if kwargs.get("start") is not None:
            raise BudgetError(
                f"start={kwargs['start']!r:.60} has nothing to begin: {cls.__name__} releases one minimiser, which is "
                "the same from wherever its solver begins, and how many passes are enough is proved from 0. Leave "
                "start out, or use solver='gradient'"
            )
        return super().__new__(cls, *args, **kwargs)

    def decide(self, public: Public, statement: Problem) -> Self:
        problem = bounded_by(statement, self.name, ClipNorm)
        reads(problem, self.name, All)
        needs_delta(problem)
        need(problem, "row_norm")
        need_prox(problem, self.name)
        _check_loss(problem, self.name)
        _check_penalty(problem, self.name)
        asked = self._with(public, problem)
        return asked if self.n_rounds is not None else replace(asked, n_rounds=asked.default_rounds())

    @abstractmethod
    def default_rounds(self) -> int:
        """Rounds after which the solver's tolerance is negligible."""

    @abstractmethod
    def minimum(self, query: Minimum | None) -> Line:
        """The line of the plan that pays for the minimisers."""

    @abstractmethod
    def query(self, plan: Plan, n_rows: int, target: int | None) -> Minimum:
        """What it asks, with at most ``n_rows`` rows."""

    @property
    def ridge(self) -> float:
        """The wanted ``D``: that of the penalty, times the number that the sum is divided by."""
        return self.problem.strong_convexity * self.problem.n_rows

    @property
    def delta(self) -> float:
        """What one minimiser may have of delta."""
        rest = 1.0 if self.problem.counted else 1 - ROWS_DELTA
        return self.problem.budget.delta * rest / self.problem.n_problems * (1 - 1e-12)

    def lines(self) -> Sequence[Line]:
        problem = self.problem
        if not problem.counted:
            bound = UpperBound(ROWS_DELTA * problem.budget.delta * (1 - 1e-12))
            return [Line("row bound", bound, RowCount(), share=ROWS_SHARE[self.name]), self.minimum(None)]
        plan = calibrate([self.minimum(None).item], problem.budget, problem.neighbours)
        return [self.minimum(self.query(plan, problem.n_rows, None))]

    def solution(self, oracle: Oracle, target: int | None) -> Vector:
        n_rows = oracle.n_rows
        if n_rows is None:
            n_rows = max(1, int(oracle.once("row bound", lambda: float(oracle.ask("row bound")[0]))))
        return oracle.ask("minimum", query=self.query(oracle.plan, n_rows, target))

    def objective(self, n_rows: int, ridge: float) -> Objective:
        """The objective with these two numbers."""
        problem = self.problem
        assert problem.row_norm is not None
        return Objective(problem.loss, problem.row_norm, problem.n_features, n_rows, ridge, problem.intercept)

    @property
    def curvature(self) -> float:
        """Of the mean loss, if rows are equally long in all directions: what predictions rest on."""
        problem = self.problem
        assert problem.row_norm is not None
        return problem.loss.smoothness(problem.row_norm) / problem.n_parameters

    def _rounds_until(self, tolerance: float, ridge: float, term: float = 0.0) -> int:
        objective = self.objective(math.ceil(self.problem.n_rows * (1.0 if self.problem.counted else MORE_ROWS)), ridge)
        found = rounds_until(tolerance, objective.smoothness, ridge, objective.farthest(term))
        if found == MOST_ROUNDS:
            raise BudgetError(
                f"the minimiser takes more than {MOST_ROUNDS} passes to the distance at which it can be released: its "
                "penalty is too small for rows so long. Take a larger alpha, or solver='gradient'"
            )
        return found


class PerturbedOutput(Perturbation):
    """Gaussian noise on the minimiser of a strongly convex objective.

    Its size is ``zeta / (alpha n mu)``, and the error grows with its square: right for penalties of 1e-2, useless for
    1e-4.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=PerturbedOutput(), alpha=1e-2,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-0.6,  3.1, -0.9, -1.2]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "PerturbedOutput", "output"

    def default_rounds(self) -> int:
        sensitivity = self.objective(1, self.ridge).lipschitz * self.problem.neighbours.sum_factor / self.ridge
        return self._rounds_until(NEGLIGIBLE["output"] / 2 * sensitivity, self.ridge)

    def minimum(self, query: Minimum | None) -> Line:
        return Line("minimum", Gaussian(), query, count=self.problem.n_problems, passes=self.rounds)

    def query(self, plan: Plan, n_rows: int, target: int | None) -> Minimum:
        return Minimum(self.objective(n_rows, self.ridge), self.rounds, target)

    def expected_error(self, plan: Plan) -> float | None:
        """``d (h + alpha) std^2 / 2`` with curvature ``h`` in all of d directions."""
        problem = self.problem
        sensitivity = self.query(plan, problem.n_rows, None).sensitivity(problem.neighbours)
        std = plan["minimum"].mechanism.noise_std(sensitivity)
        return problem.n_parameters * (self.curvature + problem.strong_convexity) * std**2 / 2


class PerturbedObjective(Perturbation):
    """The minimiser of an objective with a random linear term.

    Examples
    --------
    >>> from dpdist import LogisticRegression
    >>> from dpdist.problems.linear_problems import logit
    >>> data, truth = logit(20_000, 4, random_state=0)
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver=PerturbedObjective(), alpha=1e-3,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(data).coef_.round(1), truth.round(1)
    (array([[-1.1,  4.7, -1.3, -1.8]]), array([-1.2,  5.3, -1.5, -2.1]))
    """

    tag, name = "PerturbedObjective", "objective"

    def decide(self, public: Public, statement: Problem) -> Self:
        decided = super().decide(public, statement)
        if self.n_rounds is not None or (slack := decided._slack()) <= DOMINATES:
            return decided
        enough = decided.problem.strong_convexity or 1 / decided.problem.n_rows
        while enough < 1 and self._with(public, decided._with_alpha(enough))._decided_slack() > DOMINATES:
            enough *= STRONGER
        raise BudgetError(
            f"the minimiser of {decided.problem.n_rows} rows would be known only to a distance that takes {slack:.2g} "
            f"times the noise of the linear term to hide, and more rows would make it worse: take alpha={enough:.1g} "
            "or more, or a solver that releases gradients, such as solver='auto'"
        )

    def _with_alpha(self, alpha: float) -> Problem:
        return replace(self.problem, penalty=ElasticNet(alpha))

    def _decided_slack(self) -> float:
        return replace(self, n_rounds=self.default_rounds())._slack()

    def _slack(self) -> float:
        """Standard deviation of the noise for the solver's tolerance, relative to that from the linear term."""
        problem, mechanism = self.problem, self._mechanism.at(self.problem.budget.epsilon / self.problem.n_problems)
        query = PerturbedMinimum(self.objective(problem.n_rows, mechanism.regularisation), self.rounds, None, mechanism)
        noise = mechanism.noise_std(query.sensitivity(problem.neighbours))
        return noise * (self.curvature * problem.n_rows + mechanism.regularisation) / mechanism.term_std

    def default_rounds(self) -> int:
        problem = self.problem
        mechanism = self._mechanism.at(problem.budget.epsilon / problem.n_problems)
        ridge = mechanism.regularisation
        hessian = self.curvature * problem.n_rows + ridge
        std = NEGLIGIBLE["objective"] * mechanism.term_std / hessian
        mu = gdp_mu(OUTPUT_SHARE * problem.budget.epsilon / problem.n_problems, OUTPUT_SHARE * self.delta)
        return self._rounds_until(std * mu / 2, ridge, mechanism.longest_term(problem.n_parameters))

    def minimum(self, query: Minimum | None) -> Line:
        return Line("minimum", self._mechanism, query, count=self.problem.n_problems, passes=self.rounds)

    def query(self, plan: Plan, n_rows: int, target: int | None) -> Minimum:
        mechanism = plan["minimum"].mechanism
        assert isinstance(mechanism, ObjectivePerturbation)
        return PerturbedMinimum(self.objective(n_rows, mechanism.regularisation), self.rounds, target, mechanism)

    @property
    def _is_followed(self) -> bool:
        return True

    def foreseen(self, plan: Plan, rows: Rows) -> Vector:
        problem = self.problem
        mechanism = plan["minimum"].mechanism
        assert isinstance(mechanism, ObjectivePerturbation)
        n = problem.n_rows
        noise = mechanism.noise_std(self.query(plan, n, None).sensitivity(problem.neighbours))
        told, ridge = response(problem.loss), mechanism.regularisation / n
        return perturbed(rows, told, term=mechanism.term_std / n, ridge=ridge, noise=noise)

    @property
    def _mechanism(self) -> ObjectivePerturbation:
        problem = self.problem
        objective = self.objective(1, 1.0)
        smoothness = problem.loss.smoothness(objective.radius)
        return ObjectivePerturbation(self.delta, objective.lipschitz, smoothness, self.ridge, problem.neighbours)


def _check_loss(problem: Problem, solver: str) -> None:
    loss = problem.loss
    if not loss.convex:
        raise BudgetError(f"solver={solver!r} needs a convex loss, and {loss.name} is not one; use solver='gradient'")
    if not (math.isfinite(loss.derivative_bound) and math.isfinite(loss.curvature_bound)):
        raise MissingBound(
            f"solver={solver!r} needs a loss whose first and second derivative are bounded, and those of {loss.name} "
            "are not (clipping gradients instead would make the objective non-convex): use loss='huber' for real labels"
        )
    assert problem.row_norm is not None
    largest = loss.lipschitz(math.hypot(problem.row_norm, problem.intercept))
    clip_norm = problem.gradient.clip_norm if isinstance(problem.gradient, ClipNorm) else None
    if clip_norm is not None and clip_norm < largest * (1 - 1e-9):
        raise BudgetError(
            f"clip_norm={clip_norm:g} would clip gradients of norm up to {largest:g}; a clipped gradient is no "
            f"gradient of a convex loss, and solver={solver!r} rests on convexity. Leave clip_norm out, or lower "
            "row_norm, which clips the rows"
        )


def _check_penalty(problem: Problem, solver: str) -> None:
    need_ridge(problem, solver)
    if solver == "output" and problem.strong_convexity <= 0:
        raise BudgetError(
            f"solver={solver!r} needs a penalty that makes the objective strongly convex: pass alpha > 0, for example "
            "alpha=1e-2, or use solver='objective'"
        )

"""Gradients of polynomials in the place of a loss, from noisy copies of every row (`dpdist.local.linear.glm_copies`).

Kept for comparison: groups of users are asked one after another, with noise that is multiplied ``degree + 1`` times. At
degree 1 it takes 2.5e6 users at epsilon 1 and 2e4 at epsilon 4 for 5 features; at degree 2 and above, nothing is learnt
below epsilon 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count
from dpdist.kernels.bases import monomial_error
from dpdist.local.linear.glm_copies import CopiesProtocol, approximation_error, copies_protocol, learn, margin_protocol
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.local_method import line_of
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Oracle, Public
from dpdist.privacy.accounting.plan import Plan


@dataclass(frozen=True)
class Chebyshev(GlmMethod):
    """Gradients of polynomials in the place of the loss, from noisy copies of every row.

    Parameters
    ----------
    degree : {1, 3}, default 1
        Of the polynomials. 3 needs more than 1e9 users.
    n_rounds : int, default 50
        So many groups of users are asked one after another, in the order of the rows, which must not depend on their
        values.
    """

    tag, name = "Chebyshev", "chebyshev"
    degrees: ClassVar[tuple[int, int]] = (1, 3)
    measures: ClassVar[str] = (
        "expected norm of the noise in the mean of all gradients, for coefficients in units of the radius"
    )

    degree: int = 1
    n_rounds: int = 50

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        if self.degree not in self.degrees:
            first, second = self.degrees
            raise BudgetError(f"degree must be {first} or {second}, got {self.degree!r}; larger ones drown in noise")
        check_count("n_rounds", self.n_rounds)
        if not public.budget.delta:
            raise BudgetError(f"method={self.name!r} has Gaussian reports: pass delta > 0, far below 1/n_rows")
        if public.n_rows < self.n_rounds:
            raise BudgetError(
                f"{public.n_rows} users cannot be asked in {self.n_rounds} groups: choose a smaller n_rounds"
            )
        assert statement.reach
        decided = self._with(public, statement)
        decided.check_loss()
        return decided

    def check_loss(self) -> None:
        """Refuse a loss that the polynomials are not for."""
        self.statement.model(self.name)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [self._protocol] * self.n_rounds

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        sizes = [oracle.size(line_of(group)) for group in range(self.n_rounds)]
        w = learn(self._protocol, lambda group, point: self.estimate(oracle, group, point), sizes)
        return self.fitted(w, self.polynomial_error())

    def polynomial_error(self) -> float:
        """How far the polynomials are off the slopes, at most."""
        return approximation_error(self.statement.model(self.name), self.statement.reach, self.degree)

    def expected_error(self, plan: Plan) -> float:
        return self._protocol.total_std / math.sqrt(self.public.n_rows)

    @property
    def trivial_error(self) -> float:
        """The longest gradient."""
        protocol, t = self._protocol, np.linspace(-1.0, 1.0, 201)
        slopes = (np.polynomial.polynomial.polyval(t, p) for p in (protocol.partition, protocol.natural) if p)
        return protocol.radius * float(sum(np.abs(slope).max() for slope in slopes))

    @property
    def _protocol(self) -> CopiesProtocol:
        problem, budget = self.statement, self.public.budget
        return copies_protocol(
            problem.model(self.name), self.public.n_features, self.degree, budget.epsilon, budget.delta,
            radius=problem.need("radius"), row_norm=problem.need("row_norm"), label_bound=problem.label_bound,
        )  # fmt: skip


@dataclass(frozen=True)
class NoisyCopies(Chebyshev):
    """The same for losses of the margin, whose copies are of ``x y`` alone (seed 000, Algorithms 5.1.33 and 5.1.34).

    The polynomial is fitted to the slope of the loss itself, where the source mixes hinges; at every public point each
    user is asked once, where it draws users with replacement and so uses the same noise twice.

    Parameters
    ----------
    degree : {1, 2}, default 1
        Of the polynomial in the place of the slope. 2 needs more than 1e6 users at epsilon 4, and 1e9 at epsilon 1.
    n_rounds : int, default 50
        As in `Chebyshev`.
    """

    tag, name = "NoisyCopies", "copies"
    degrees: ClassVar[tuple[int, int]] = (1, 2)

    def check_loss(self) -> None:
        self.statement.powers(self.name, self.degree, slope=True)

    def polynomial_error(self) -> float:
        powers, reach = self.statement.powers(self.name, self.degree, slope=True), self.statement.reach
        return monomial_error(lambda t: self.statement.loss.derivative(reach * t, 1.0), powers)

    @property
    def _protocol(self) -> CopiesProtocol:
        problem, budget = self.statement, self.public.budget
        return margin_protocol(
            problem.powers(self.name, self.degree, slope=True), self.public.n_features, budget.epsilon, budget.delta,
            radius=problem.need("radius"), row_norm=problem.need("row_norm"),
        )  # fmt: skip

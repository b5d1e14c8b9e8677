"""Losses of the margin from one noisy copy of every user's ``x y``, through Hermite polynomials.

A user sends ``z = x y + s g`` for normal g, once. ``H_0 = 1``, ``H_1 = <w, z>``, ``H_k = H_1 H_{k-1} - (k - 1) s^2
||w||^2 H_{k-2}`` have the means ``<w, x y>^k`` whatever the noise: a polynomial in place of the loss has a mean that
can be had without bias, with noise ``k! s^2k`` where k copies have ``(k s^2)^k`` (`dpdist.local.linear.glm_copies`).

Up to degree 2 all that is needed are two sums, of z and of ``z z' - s^2``, so that one pass does, and the least value
in the ball has a closed form. Degree 3 and more drown in noise below epsilon 4, and are not offered. In place of seed
000, Algorithms 5.1.33 and 5.1.34 (spec 04, section 9).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local.linear.glm_method import GlmMethod, GlmProblem
from dpdist.local.linear.noisy_moments import GaussianMeanAndMoments
from dpdist.local.randomisers.vectors import GaussianVector
from dpdist.local.statistics.labelled import LabelledMoments, LabelledRow
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Oracle, Public
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.spectral import psd_floor, quadratic_on_ball


@dataclass(frozen=True)
class Hermite(GlmMethod):
    """The least value in the ball of a polynomial in the place of the loss, from one Gaussian report of every user.

    Parameters
    ----------
    degree : {1, 2}, default 2
        Of the polynomial. Where features vary alike in all directions, 1 is better, and "direction" has less noise
        still; 2 needs an epsilon of about 4.
    """

    tag, name = "Hermite", "hermite"
    measures: ClassVar[str] = "expected norm of the noise in the mean of x y, over the bound of a record"

    degree: int = 2

    def decide(self, public: Public, statement: GlmProblem) -> Self:
        if self.degree not in (1, 2):
            raise BudgetError(f"degree must be 1 or 2, got {self.degree!r}: more drown in noise below epsilon 4")
        if not public.budget.delta:
            raise BudgetError("method='hermite' has Gaussian reports: pass delta > 0, far below 1/n_rows")
        assert statement.need("radius") and statement.need("row_norm")
        statement.powers(self.name, self.degree)
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        d, problem, budget = self.public.n_features, self.statement, self.public.budget
        bounds = {"row_norm": problem.need("row_norm"), "label_bound": problem.label_bound}
        if self.degree == 1:
            return [LocalProtocol(LabelledRow(d, **bounds), GaussianVector(d, budget.epsilon, budget.delta))]
        return [LocalProtocol(LabelledMoments(d, **bounds), GaussianMeanAndMoments(d, budget.epsilon, budget.delta))]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found, d, r = self.estimate(oracle), self.public.n_features, self.statement.need("row_norm")
        powers = self.statement.powers(self.name, self.degree)
        M = np.zeros((d, d))
        if self.degree == 2:
            M = psd_floor(2 * powers[2] / r**2 * unpack_symmetric(found[d:]))
        return self.fitted(quadratic_on_ball(M, powers[1] / r * found[:d], 1.0), float("nan"))

    def expected_error(self, plan: Plan) -> float:
        law = self.protocols[0].randomiser
        noise = law.copy_std if isinstance(law, GaussianMeanAndMoments) else law.noise_std
        return noise * math.sqrt(self.public.n_features / self.public.n_rows)

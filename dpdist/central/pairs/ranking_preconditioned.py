"""Gradients of all pairs that one released second moment preconditions: for correlated columns, or unequal ones.

The second moment ``A = sum x x'`` of the clipped rows is released once, and each round steps by

    w <- project(w - U^-1 (g + noise)),    U = max(2 (A + edge) / (n - 1), floor)

in the metric of U: g the mean gradient of all pairs, ``edge`` what the noise of A may hide of an eigenvalue, and
``floor`` the curvature below which a coordinate of the usual size is not told from the noise of a gradient. The two
orders of a pair of two classes have together a Hessian of at most ``2 D D'``, ``D = x_i - x_j``, and the sum of
``D D'`` over all pairs is at most ``n A``: no step overshoots, whatever the rows are. Plain steps of size ``1 / R^2``
come nowhere near in a hundred rounds where columns are correlated.

Why it is private: rows enter through the second moment and through sums over pairs, whose sensitivities are exact
(`dpdist.queries.moment_sums`, `dpdist.queries.pair_sums`).

Source: as `dpdist.central.linear.preconditioned`, for pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dpdist.central.linear.preconditioned import BEYOND
from dpdist.central.pairs.ranking_method import TAIL, RankingRounds, RankingStatement
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.method import DECIDED, Line, Oracle, Public, Vector
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.moment_sums import SecondMomentSum
from dpdist.queries.pair_sums import PairSum
from dpdist.solvers.filtered_newton import MARGINS
from dpdist.solvers.loops import drive, prox_gradient
from dpdist.solvers.metric_steps import in_metric

MOMENT_SHARE = 0.15
ROUNDS = 60
ENOUGH = 2.0
"""Average eigenvalue of rows as long as ``row_norm``, over ``edge``, from which the matrix is worth its share."""
MOST_FEATURES = 500
"""A matrix of that size is released and decomposed."""


@dataclass(frozen=True)
class PreconditionedPairs(RankingRounds):
    """Gradients of all pairs, preconditioned by one released second moment.

    Parameters
    ----------
    n_rounds : int, optional
        Default: 60. The noise of the result hardly depends on it.

    Examples
    --------
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PreconditionedPairs(n_rounds=30),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PreconditionedPairs", "preconditioned"

    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        if public.n_features > MOST_FEATURES:
            raise BudgetError(
                f"solver='preconditioned' releases a matrix, which {public.n_features} features are too many for (at "
                f"most {MOST_FEATURES}): use solver='gradient'"
            )
        query = PairSum(statement.row_norm, public.n_rows, public.n_features)
        return replace(self._with(public, statement, query=query), n_rounds=self.n_rounds or ROUNDS)

    @classmethod
    def worth(cls, public: Public) -> bool:
        """Whether the matrix stands out of its noise, for rows that are equally long in all directions."""
        d, budget = public.n_features, public.budget
        if budget.delta == 0 or d > MOST_FEATURES:
            return False
        noise = 1 / (gdp_mu(budget.epsilon, budget.delta) * math.sqrt(MOMENT_SHARE))
        return public.n_units / d > ENOUGH * (2 * math.sqrt(d) + BEYOND) * noise

    @property
    def _moment(self) -> SecondMomentSum:
        return SecondMomentSum(self.public.n_features, self.statement.row_norm)

    def lines(self) -> Sequence[Line]:
        return [
            Line("second moment", SymmetricGaussian(), self._moment, share=MOMENT_SHARE),
            Line("pairs", Gaussian(), self.query, count=self.rounds, share=1 - MOMENT_SHARE),
        ]

    def solution(self, oracle: Oracle) -> Vector:
        ball, d = L2Ball(self.statement.radius), self.public.n_features
        values, vectors = np.linalg.eigh(unpack_symmetric(oracle.ask("second moment")))
        edge = (2 * math.sqrt(d) + BEYOND) * oracle.noise_std / math.sqrt(2)
        noise = self.gradient_noise(self.query.unit_sensitivity(self.public.neighbours, None, self.public.units))
        floor = oracle.plan["pairs"].mechanism.noise_std(noise) * self.statement.row_norm / math.sqrt(MARGINS)
        above = np.maximum(2 * (values + edge) / max(self.public.n_rows - 1, 1), floor)
        metric, inverse = (vectors * above) @ vectors.T, (vectors / above) @ vectors.T

        def gradient(w: Vector) -> Vector:
            found: Vector = inverse @ self.mean_gradient(oracle.ask("pairs", oracle.visit(w)))
            return found

        prox = in_metric(lambda v, step: ball.project(v), metric)
        return drive(prox_gradient(np.zeros(d), prox, 1.0, self.rounds, tail=TAIL), gradient)

    def expected_error(self, plan: Plan) -> float | None:
        """As of plain gradients, whose steps are as good for rows that are equally long in all directions."""
        public = self.public
        sensitivity = self.query.unit_sensitivity(public.neighbours, None, public.units)
        noise = self.gradient_noise(plan["pairs"].mechanism.noise_std(sensitivity))
        return self.steps_and_noise(self.rounds, noise)

"""Gradient descent on all pairs, one pass over the rows a round (pair-dpgd).

    w <- project(w - (g + noise) / R^2),    g the gradient of the mean loss of all pairs

on the ball of norm ``radius``; returned is the mean of the last half of the points. A pass costs as much as one for a
logistic gradient (`dpdist.kernels.pairwise`), however many pairs there are.

Why it is private: replacing a row moves the sum over pairs by ``2 R (n - 1)`` at most, for any rows
(`dpdist.queries.pair_sums`), and each round releases one; the points are post-processing. That is ``2 G / n`` for the
mean gradient, half of what holds for any pair loss, because this one falls with the margin.

Source: spec 02, section 7, in the place of seed 000, Algorithms 3.3.14 and 3.3.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dpdist.central.pairs.ranking_method import RankingRounds, RankingStatement, enough_rounds
from dpdist.estimators.parameters import check_bound
from dpdist.method import DECIDED, Line, Oracle, Public, Vector
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.pair_sums import PairSum

MOST_ROUNDS = 100


@dataclass(frozen=True)
class PairGradient(RankingRounds):
    """Steps along private gradients of the mean loss of all pairs (pair-dpgd).

    Parameters
    ----------
    n_rounds : int, optional
        Default: ``R radius n mu / (2 sqrt(d))``, 100 at most.
    step_size : float, optional
        Public. Default: ``1 / row_norm^2``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PairGradient(n_rounds=30),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PairGradient", "gradient"

    step_size: float | None = None

    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is not None:
            check_bound("step_size", self.step_size)

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        query = PairSum(statement.row_norm, public.n_rows, public.n_features)
        decided = self._with(public, statement, query=query, step_size=self.step_size or 1 / statement.smoothness)
        return replace(decided, n_rounds=self.n_rounds or enough_rounds(decided, MOST_ROUNDS))

    def lines(self) -> Sequence[Line]:
        return [Line("pairs", Gaussian(), self.query, count=self.rounds)]

    def solution(self, oracle: Oracle) -> Vector:
        def gradient(w: Vector) -> Vector:
            return self.mean_gradient(oracle.ask("pairs", oracle.visit(w)))

        assert self.step_size is not None
        return self.descend(gradient, self.step_size)

    def expected_error(self, plan: Plan) -> float | None:
        public = self.public
        sensitivity = self.query.unit_sensitivity(public.neighbours, None, public.units)
        noise = self.gradient_noise(plan["pairs"].mechanism.noise_std(sensitivity))
        return self.steps_and_noise(self.rounds, noise)

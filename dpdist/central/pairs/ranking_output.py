"""The best ranking with a ridge penalty, found without noise and released once (pair-outpert).

    w* = argmin F(w) + alpha/2 ||w||^2,    released: the projection of w* + noise onto the ball of norm ``radius``

with F the mean loss of all pairs. One draw of noise for the whole budget: where rows are few, and what counts is the
order of the scores, this is better than noise in every gradient, because the penalty only shortens w.

Why it is private: minimisers of neighbours are at most ``8 R / (alpha n)`` apart, for any rows (`PairMinimum`), half
of what holds for any pair loss; the passes that find it are seen by nobody, and their number is public and enough for
every dataset. Nothing is clipped but the rows: a clipped gradient is no gradient of a convex function, and the proof
would not hold.

Source: spec 02, section 8, with the bound as corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from dpdist.central.pairs.ranking_method import RankingRounds, RankingStatement
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound
from dpdist.method import Line, Oracle, Public, Vector
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.pair_minimum import PairMinimum
from dpdist.solvers.minimum import MOST_ROUNDS, rounds_until

NEGLIGIBLE = 0.005
"""What the rounds that are left out may add to the sensitivity."""
STRONGER = 1.25
"""By how much larger penalties are tried: from some millions of rows on, rounding is what the noise has to hide, and it
does less harm the larger the penalty is."""


@dataclass(frozen=True)
class PairOutput(RankingRounds):
    """Gaussian noise on the minimiser of the mean loss of all pairs with a ridge penalty (pair-outpert).

    Parameters
    ----------
    n_rounds : int, optional
        Passes over the rows. Default: enough for every dataset.
    ridge : float, optional
        Public, of the mean loss. Default: ``(128 R^4 d / (B n mu)^2)^(1/3)``, B the radius, where what the penalty
        costs, ``alpha B^2 / 2``, and the noise, ``R^2 d std^2 / 2``, are least together.

    Examples
    --------
    >>> import numpy as np
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PairOutput(ridge=0.01),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PairOutput", "output"

    ridge: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge is not None:
            check_bound("ridge", self.ridge)

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        asked = self._with(public, statement)
        if self.ridge is not None:
            return asked._with_rounds()
        found = asked._at(asked.least_error_ridge())
        while True:
            stronger = asked._at(STRONGER * found.query.ridge)
            if stronger._cost() >= found._cost() < math.inf:
                return found
            found = stronger

    def _at(self, ridge: float) -> Self:
        return replace(self, ridge=ridge)._with_rounds()

    def _with_rounds(self) -> Self:
        return replace(self, n_rounds=self.n_rounds or self._default_rounds())

    def _cost(self) -> float:
        """Twice the error to expect."""
        std = self.query.released_sensitivity / self.mu
        return self.query.ridge * self.statement.radius**2 + self.statement.smoothness * self.public.n_features * std**2

    def _default_rounds(self) -> int:
        query = replace(self, n_rounds=1).query
        found = rounds_until(NEGLIGIBLE / 2 * query.exact_sensitivity, query.curvature, query.ridge, query.farthest)
        if found == MOST_ROUNDS:
            raise BudgetError(
                f"the minimiser takes more than {MOST_ROUNDS} passes to the distance at which it can be released: use "
                "a larger ridge, or solver='gradient'"
            )
        return found

    @property
    def query(self) -> PairMinimum:
        """What is released."""
        assert self.ridge is not None
        public = self.public
        return PairMinimum(self.statement.row_norm, public.n_rows, public.n_features, self.ridge, self.rounds)

    def lines(self) -> Sequence[Line]:
        return [Line("minimum", Gaussian(), self.query, passes=self.rounds)]

    def solution(self, oracle: Oracle) -> Vector:
        found: Vector = L2Ball(self.statement.radius).project(oracle.ask("minimum"))
        return found

    def expected_error(self, plan: Plan) -> float | None:
        """``alpha B^2 / 2 + R^2 d std^2 / 2``."""
        public, statement = self.public, self.statement
        std = plan["minimum"].mechanism.noise_std(self.query.unit_sensitivity(public.neighbours, None, public.units))
        return (self.query.ridge * statement.radius**2 + statement.smoothness * public.n_features * std**2) / 2

"""Gradients of all pairs in a frame of the rows that is released first: for columns of any scale and correlation.

Three things are released. How large the entries of each column are, counted in octaves; the second moment of the rows
with a constant feature, every column divided by its size; and, in each round, the gradient over all pairs of the rows
in the frame that the two make, centred and turned to their principal axes, where each has about unit variance:

    w <- v - (g(v) + noise) / (2 c^2),    v = w + .8 (w - w before),    |w| at most 10 / R',    coef = frame' w

c the stretch of the frame, 1 where rows are many, and R' the norm to which rows are clipped in it: their mean square
norm is d at most, so that ``1.2 sqrt(d)`` cuts few. Noise of a gradient is as large in all directions as rows are long.
Where it is added to columns as they come, as `dpdist.central.pairs.ranking_gradient` does, ``row_norm`` is that of the
largest columns, and steps that undo their scale and correlation enlarge the noise with the small ones; in the frame it
is the same for all. Scores differ by a constant that no pair sees.

An entry is divided by the root of the mean square of its column, or by a third of the size that hardly any exceeds,
whichever is larger: else a rare 1 among zeros would be all that is left of its row. Axes that the noise of the moment
hides are as short as they may be; Nesterov's momentum comes far along them, where a difference of two columns that are
nearly the same is what ranks. Where rows are few, that noise shortens all axes, and rows would be far from R' and below
the noise of the gradients: the frame is stretched until their mean square norm is d, by the moment that was released.

The two orders of a pair of two classes have together a Hessian of at most ``2 D D'``, ``D = x_i - x_j``, whose sum over
all pairs is at most n times the second moment of the rows, wherever they are centred, which is ``c^2`` at most: a step
of ``1 / (2 c^2)`` overshoots for no rows.

Why it is private: rows enter through counts, a second moment and sums over pairs, whose sensitivities are exact
(`dpdist.queries.framed_sums`); the frame is made of releases.

Source: as `dpdist.central.linear.preconditioned`, for pairs, with rows clipped behind the map and not before it.
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
from dpdist.kernels.whitened_rows import Frame
from dpdist.method import DECIDED, Line, Oracle, Public, Vector
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian, SymmetricGaussian
from dpdist.queries.framed_sums import ColumnSizeCounts, FramedMomentSum, FramedPairSum, Placed
from dpdist.solvers.loops import drive, prox_gradient
from dpdist.solvers.metric_steps import in_metric

SIZES_SHARE, MOMENT_SHARE = 0.05, 0.1
ROUNDS = 60
STEP, MOMENTUM = 0.5, 0.8
LONGEST = 1.2
"""Norm to which rows are clipped, over the root of the mean square that it has at most."""
CONSTANT = 0.5
"""The constant feature beside them, over the same."""
SEEN = 4.0
"""Standard deviations of the noise above which a count is one of entries."""
RARE = 3.0
"""How many times the size of a column its largest entries may be."""
LARGEST_SCORE = 10.0
ENOUGH = 2.0
"""Average eigenvalue of rows as long as they may be, over what noise may hide, from which the frame is worth it."""
MOST_FEATURES = 500
"""A matrix of that size is released and decomposed."""


@dataclass(frozen=True)
class PreconditionedPairs(RankingRounds):
    """Gradients of all pairs in a frame that is released first: columns of one size, centred, along principal axes.

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
        longest, whole = LONGEST * math.sqrt(public.n_features), statement.row_norm
        query = FramedPairSum(longest, public.n_rows, public.n_features, whole_norm=whole)
        return replace(self._with(public, statement, query=query), n_rounds=self.n_rounds or ROUNDS)

    @classmethod
    def worth(cls, public: Public) -> bool:
        """Whether the matrix stands out of its noise, for rows that are equally long in all directions."""
        d, budget = public.n_features, public.budget
        if budget.delta == 0 or d > MOST_FEATURES:
            return False
        noise = d * (LONGEST**2 + CONSTANT**2) / (gdp_mu(budget.epsilon, budget.delta) * math.sqrt(MOMENT_SHARE))
        return public.n_units > ENOUGH * (2 * math.sqrt(d) + BEYOND) * noise

    # -- the plan ---------------------------------------------------------------------------------------------------

    @property
    def _sizes(self) -> ColumnSizeCounts:
        return ColumnSizeCounts(self.public.n_features, self.statement.row_norm)

    @property
    def _moment(self) -> FramedMomentSum:
        longest, d = self.query.row_norm, self.public.n_features
        constant = CONSTANT * math.sqrt(d)
        return FramedMomentSum(d, longest, intercept=constant, whole_norm=self.statement.row_norm)

    def lines(self) -> Sequence[Line]:
        return [
            Line("sizes", Gaussian(), self._sizes, share=SIZES_SHARE),
            Line("second moment", SymmetricGaussian(), self._moment, share=MOMENT_SHARE),
            Line("pairs", Gaussian(), self.query, count=self.rounds, share=1 - SIZES_SHARE - MOMENT_SHARE),
        ]

    # -- the solution -----------------------------------------------------------------------------------------------

    def solution(self, oracle: Oracle) -> Vector:
        sizes = oracle.ask("sizes").reshape(-1, self._sizes.octaves)
        frame, stretch = self._turned(oracle, Frame(self._scales(sizes, oracle.noise_std)))
        assert frame.axes is not None
        back = frame.axes / frame.scales[:, None]

        def gradient(w: Vector) -> Vector:
            oracle.visit(back @ w)
            return self.mean_gradient(oracle.ask("pairs", Placed(frame, w)))

        ball = L2Ball(LARGEST_SCORE / self.query.row_norm)
        prox = lambda v, _: ball.project(v)  # noqa: E731
        step = STEP / stretch**2
        found = drive(prox_gradient(np.zeros(len(back)), prox, step, self.rounds, MOMENTUM, TAIL), gradient)
        return self._within(back @ found, back)

    def _scales(self, counts: Vector, noise: float) -> Vector:
        """What each column is divided by, from the counts of its entries in octaves."""
        ends = self.statement.row_norm * 2.0 ** -np.arange(counts.shape[1])
        seen = np.where(counts > SEEN * noise, counts, 0.0)
        squares = seen @ (0.75 * ends) ** 2 / self.public.n_rows
        largest = np.where(seen.any(axis=1), ends[(seen > 0).argmax(axis=1)], self.statement.row_norm)
        scales: Vector = np.maximum(np.sqrt(squares), largest / RARE)
        return scales

    def _turned(self, oracle: Oracle, scaled: Frame) -> tuple[Frame, float]:
        """The frame of scaled columns, centred and turned to the principal axes; and by how much it is stretched."""
        query, n, d = self._moment, self.public.n_rows, self.public.n_features
        moment = unpack_symmetric(oracle.ask("second moment", scaled)) / n
        centre = moment[d, :d] / query.intercept
        values, vectors = np.linalg.eigh(moment[:d, :d] - np.outer(centre, centre))
        edge = (2 * math.sqrt(d) + BEYOND) * oracle.noise_std / math.sqrt(2) / n
        values = np.maximum(values, 0.0)
        stretch = math.sqrt(d / max(float((values / (values + edge)).sum()), 1.0))
        axes = stretch * vectors / np.sqrt(values + edge)
        return replace(scaled, longest=query.row_norm, centre=centre, axes=axes), stretch

    def _within(self, coef: Vector, back: Vector) -> Vector:
        """The nearest coefficients of the stated norm, by how far apart scores are; these where none was stated."""
        if not self.statement.bounded:
            return coef
        forth = np.linalg.inv(back)
        ball = L2Ball(self.statement.radius)
        found: Vector = in_metric(lambda v, _: ball.project(v), forth.T @ forth)(coef, 1.0)
        return found

    def expected_error(self, plan: Plan) -> float | None:
        """Of steps of size 1/2, for rows that the frame makes equally long in all directions."""
        public = self.public
        sensitivity = self.query.unit_sensitivity(public.neighbours, None, public.units)
        noise = self.gradient_noise(plan["pairs"].mechanism.noise_std(sensitivity))
        radius = LARGEST_SCORE / self.query.row_norm
        return radius**2 / (2 * STEP * self.rounds) + STEP * public.n_features * noise**2 / 2

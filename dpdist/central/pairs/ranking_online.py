"""Online rankings with noise on copies of an internal state, as the source has them (on-pair-c, off-pair-c).

Each new row is compared with those before it, or with a buffer of them, and

    v_t = project(v_{t-1} - eta_t (gradient of the mean over these pairs + alpha v_{t-1}))

is a state that nobody sees. `PairOnline` releases a noisy copy of every v_t (an online algorithm, whose rankings may be
used while the stream goes on), all in one release: each with noise in proportion to how far a row moves it. Its
``coef_`` is the mean of the second half of the copies, before they are projected, projected once (from online to batch:
projected copies would shrink it). `PairChains` releases that mean alone, of one descent for each ``chain_rows`` rows.

Why it is private: a step on a convex loss with a ridge penalty brings two states nearer to each other, whatever the
rows are, so that how far one row moves each state follows from public numbers
(`dpdist.privacy.accounting.contraction`), the path of a buffer included. Nothing is clipped but the rows; with clipped
gradients the same noise would not be private.

`dpdist.central.pairs.ranking_stream` has its noise inside the loop instead, and `dpdist.central.pairs.ranking_output`
finds the exact minimiser: both are more accurate.

Source: seed 000, Algorithms 3.3.9 and 3.3.10 (``memory="all"``), 3.3.12 and 3.3.13 (a buffer), 3.3.14 and 3.3.15
(`PairChains`), with schedules and noise as corrected in spec 02, sections 1 to 6.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpdist.central.pairs.ranking_method import RankingMethod, RankingStatement
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound, check_count, choice
from dpdist.method import Line, Oracle, Public, Vector
from dpdist.privacy.accounting.contraction import PAST, SCHEDULES, OnlinePath, smallest_ridge
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.pair_iterates import ChainMeans, OnlinePoints, PairDescent

MOST_ROWS = 20_000
"""Of one descent, whose cost grows with the square of its rows."""
KEPT = 100
CHAIN_ROWS = 4000
COPIES_VARIANCE = 2.4
"""Of the mean of the second half of the noisy copies of all points, relative to one release of the minimiser."""


@dataclass(frozen=True)
class PairDescents(RankingMethod):
    """What the two have in common.

    Parameters
    ----------
    ridge : float, optional
        alpha, public. Given, it belongs to the loss (on-pair-strc, fb-on-pair-strc, off-pair-strc). Default: where what
        it costs and the noise are least together, see `RankingMethod.least_error_ridge`.
    schedule : {"contract", "paper"}
        Of the steps, see `OnlinePath`. The published one begins behind ``16 L^2 / alpha^2`` rows.
    """

    ridge: float | None = None
    schedule: str = "contract"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            check_bound("ridge", self.ridge)
        choice("schedule", self.schedule, SCHEDULES)

    def _ridge(self, variance: float, n_rows: int) -> float:
        if self.ridge is not None:
            return self.ridge
        least = self.least_error_ridge(variance)
        if self.schedule != "paper":
            return least
        enough = smallest_ridge(n_rows, self._smoothness)
        if math.isinf(enough):
            raise BudgetError(
                f"{n_rows} rows are too few for the published schedule, whatever the ridge is: take schedule='contract'"
            )
        return max(least, enough)

    @property
    def _smoothness(self) -> float:
        return 4 * self.statement.row_norm**2

    @property
    def least(self) -> float:
        """What is left to optimise: of a mean of steps on gradients of norm 2 R, ``(2 R)^2 / (2 alpha n)``."""
        assert self.ridge is not None
        return self.statement.lipschitz**2 / (2 * self.ridge * self.query.online.n_rows)

    @property
    @abstractmethod
    def query(self) -> PairDescent:
        """What is released."""

    @property
    def align(self) -> int:
        return self.query.online.n_rows

    def _error(self, noise: float) -> float:
        """With noise of that standard deviation in a coordinate."""
        assert self.ridge is not None
        statement = self.statement
        cost = self.ridge * statement.radius**2 + statement.smoothness * self.public.n_features * noise**2
        return cost / 2 + self.least


@dataclass(frozen=True)
class PairOnline(PairDescents):
    """Noisy copies of all points of one descent (on-pair-c; fb-on-pair-c with a buffer).

    Parameters
    ----------
    ridge, schedule
        See `PairDescents`.
    memory : {"all", "fifo", "reservoir", "rsx"}
        What a new row is compared with: all rows before it, or a buffer (`dpdist.privacy.accounting.buffers`).
    n_kept : int, optional
        Rows that a buffer holds. Default: 100.
    seed : int, default 0
        Public: of the random path of a buffer, which has nothing to do with the rows.

    Examples
    --------
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PairOnline(memory="fifo", n_kept=50),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PairOnline", "online"

    memory: str = "all"
    n_kept: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("memory", self.memory, PAST)
        if self.n_kept is not None:
            check_count("n_kept", self.n_kept)
            if self.memory == "all":
                raise BudgetError(f"n_kept={self.n_kept} has nobody to read it with memory='all', which keeps all rows")
        check_count("seed", self.seed, low=0)
        if self.seed and self.memory in ("all", "fifo"):
            raise BudgetError(f"seed={self.seed} has nobody to read it: memory={self.memory!r} draws nothing")

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        public.units.need_counted("rows are compared with those before them")
        if public.n_rows > MOST_ROWS:
            raise BudgetError(
                f"solver='online' compares every row with those before it and releases a point for each, and "
                f"{public.n_rows} rows are more than {MOST_ROWS}: use solver='stream', which is more accurate, and "
                "whose cost grows with the rows alone"
            )
        asked = self._with(public, statement)
        n_kept = None if self.memory == "all" else self.n_kept or min(KEPT, public.n_rows - 1)
        decided = replace(asked, n_kept=n_kept, ridge=asked._ridge(COPIES_VARIANCE, public.n_rows))
        if self.ridge is None and self.memory not in ("all", "fifo"):  # how long rows stay is up to the path
            decided = replace(decided, ridge=asked._ridge(decided._variance, public.n_rows))
        assert decided.query is not None
        return decided

    @property
    def _variance(self) -> float:
        """As `COPIES_VARIANCE`, for this path."""
        assert self.ridge is not None
        query, one = self.query, 8 * self.statement.row_norm / (self.ridge * self.public.n_rows)
        each = query.scales[query.online.tail - query.online.burn_in :] * query.moves.together
        return float(np.linalg.norm(each) / len(each) / one) ** 2

    @property
    def query(self) -> OnlinePoints:
        public, statement, ridge = self.public, self.statement, self.ridge
        assert ridge is not None
        path = OnlinePath(
            public.n_rows, ridge, self._smoothness, self.schedule, self.memory, self.n_kept or 1, self.seed
        )
        return OnlinePoints(statement.row_norm, statement.radius, public.n_features, path)

    @property
    def rounds(self) -> int:
        return self.public.n_rows - self.query.online.burn_in

    def lines(self) -> Sequence[Line]:
        return [Line("points", Gaussian(), self.query)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        ball, copies = L2Ball(self.statement.radius), self._copies(oracle)
        return {"coef": self.batch_of(copies), "iterates": np.array([ball.project(v) for v in copies])}

    def solution(self, oracle: Oracle) -> Vector:
        return self.batch_of(self._copies(oracle))

    def batch_of(self, copies: Vector) -> Vector:
        """The mean of the second half of the copies, projected once (pair-online-to-batch)."""
        path = self.query.online
        found: Vector = L2Ball(self.statement.radius).project(copies[path.tail - path.burn_in :].mean(axis=0))
        return found

    def _copies(self, oracle: Oracle) -> Vector:
        found: Vector = oracle.ask("points").reshape(-1, self.public.n_features) * self.query.scales[:, None]
        return found

    def expected_error(self, plan: Plan) -> float | None:
        query, public = self.query, self.public
        std = plan["points"].mechanism.noise_std(query.unit_sensitivity(public.neighbours, None, public.units))
        each = query.scales[query.online.tail - query.online.burn_in :] * std
        return self._error(float(np.linalg.norm(each)) / len(each))


@dataclass(frozen=True)
class PairChains(PairDescents):
    """The mean of the second halves of descents over ``chain_rows`` rows each, released once (off-pair-c).

    Parameters
    ----------
    ridge, schedule
        See `PairDescents`.
    chain_rows : int, optional
        Rows of one descent, 20,000 at most; all, where there are fewer. Default: 4000 at most, of which hardly a row is
        left over. The time depends on it, and the noise hardly.

    Examples
    --------
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PairChains(chain_rows=2500),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PairChains", "giga"

    chain_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chain_rows is not None:
            check_count("chain_rows", self.chain_rows, low=2)
            if self.chain_rows > MOST_ROWS:
                raise BudgetError(f"chain_rows must be {MOST_ROWS} at most, got {self.chain_rows}")

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        public.units.need_counted("rows are compared with those before them")
        rows = min(public.n_rows, self.chain_rows or public.n_rows // math.ceil(public.n_rows / CHAIN_ROWS))
        asked = self._with(public, statement)
        decided = replace(asked, chain_rows=rows, ridge=asked._ridge(1.0, rows))
        assert decided.query is not None
        return decided

    @property
    def query(self) -> ChainMeans:
        statement = self.statement
        assert self.ridge is not None and self.chain_rows is not None
        path = OnlinePath(self.chain_rows, self.ridge, self._smoothness, self.schedule)
        return ChainMeans(statement.row_norm, statement.radius, self.public.n_features, path)

    @property
    def rounds(self) -> int:
        return self.query.online.n_rows - self.query.online.burn_in

    @property
    def n_chains(self) -> int:
        """Descents whose means are averaged."""
        return self.public.n_rows // self.query.online.n_rows

    def lines(self) -> Sequence[Line]:
        return [Line("means", Gaussian(), self.query)]

    def solution(self, oracle: Oracle) -> Vector:
        found: Vector = L2Ball(self.statement.radius).project(oracle.ask("means") / self.n_chains)
        return found

    def expected_error(self, plan: Plan) -> float | None:
        public = self.public
        sensitivity = self.query.unit_sensitivity(public.neighbours, None, public.units)
        return self._error(plan["means"].mechanism.noise_std(sensitivity) / self.n_chains)

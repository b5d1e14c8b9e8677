"""A ranking that follows a stream: each block of rows is compared with blocks before it (pair-noisy-ogd).

    w <- project(w - (g + noise) / R^2),    g the mean gradient over pairs of a new row and one of the past

A step for each block but the first; returned is the mean of the last half of the points. With ``memory="fifo"`` a step
reads two adjacent blocks only, whatever the length of the stream; the full past is somewhat more exact, and each step
reads all rows so far. Steps of a long stream are drawn in chains: a point goes from one to the next at the coordinator,
and a chain is written down as one release, so that a stream of a million rows does not wait a thousand times for a
disk. A chain that was not written down when its process ended is drawn anew: nobody saw a value of it.

A stream may arrive in pieces (`PairwiseRanker.partial_fit`). What it pays is declared and charged once, with the first
piece: ``stream_rows`` rows. Releases that were written down are taken from the journal, in whatever process, so that a
piece has to hold the rows of steps that are still to come, and the block before them, and no others.

Why it is private: a row moves the gradient of its own block by ``G / b`` at most, b the rows of a block, ``G = 4 R``,
and later ones by that over the blocks of past (`dpdist.queries.pair_sums.StreamPairSum`); all in all it pays for 1.645
full releases at most, or for 2 with one block of past, however long the stream is
(`dpdist.privacy.accounting.stream_paths`).

Source: spec 02, section 4, in the place of seed 000, Algorithms 3.3.9 to 3.3.13, with the bound as corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dpdist.central.pairs.ranking_method import TAIL, RankingRounds, RankingStatement
from dpdist.constraints import L2Ball
from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound, check_count, choice
from dpdist.identity import ADDED
from dpdist.method import DECIDED, Line, Oracle, Public, Vector
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.accounting.stream_paths import DRAWN, MEMORIES, StreamPath
from dpdist.privacy.mechanisms.additive import Gaussian
from dpdist.queries.pair_sums import StreamPairSum

MOST_RELEASES = 64
"""Of a stream, by default: a chain that is drawn anew after a crash is a small part of it."""


@dataclass(frozen=True)
class Steps:
    """A descent that follows a stream: where it stands, and how it goes on."""

    point: Vector
    step: float
    radius: float

    def after(self, gradient: Vector) -> Steps:
        """One step further."""
        return replace(self, point=L2Ball(self.radius).project(self.point - self.step * gradient))


@dataclass(frozen=True)
class PairStream(RankingRounds):
    """Steps along private gradients of blocks of a stream against its past (pair-noisy-ogd).

    Parameters
    ----------
    n_rounds : int, optional
        Blocks that are compared with earlier ones. Default: ``(L B n mu / (3.6 (G / 2) sqrt(d)))^(2/3)`` blocks,
        ``L = R^2`` as the steps have it, B the radius.
    memory : {"fifo", "all", "reservoir", "rsx"}
        The past of a block: the last ``n_kept`` blocks, all before it, or those of a random buffer
        (`dpdist.privacy.accounting.buffers`), for which rows that stay long pay more.
    n_kept : int, default 1
        Blocks that a buffer keeps.
    step_size : float, optional
        Public. Default: ``1 / row_norm^2``.
    seed : int, default 0
        Public, of a random buffer.
    together : int, optional
        Steps that are drawn in a chain and written down as one release; more than 1 where all have the same noise:
        with ``memory="fifo"`` and one block of past. Default there: so many that there are 64 releases at most.
    stream_rows : int, optional
        Public: how many rows the stream will have, for one that arrives in pieces (`PairwiseRanker.partial_fit`).

    Examples
    --------
    >>> import numpy as np
    >>> from dpdist import PairwiseRanker
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) / 4 + np.outer(y, [0.3, -0.2, 0.0])
    >>> model = PairwiseRanker(classes=[0, 1], row_norm=1.0, radius=1.0, solver=PairStream(n_kept=2),
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.85
    """

    tag, name = "PairStream", "stream"

    memory: str = "fifo"
    n_kept: int = 1
    step_size: float | None = None
    seed: int = field(default=0, metadata=ADDED)
    together: int | None = field(default=None, metadata=ADDED)
    stream_rows: int | None = field(default=None, metadata=ADDED)

    path: StreamPath = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("memory", self.memory, MEMORIES)
        check_count("n_kept", self.n_kept)
        if self.memory == "all" and self.n_kept != 1:
            raise BudgetError(f"n_kept={self.n_kept} has nobody to read it with memory='all', which keeps all blocks")
        if self.step_size is not None:
            check_bound("step_size", self.step_size)
        for name in ("together", "stream_rows"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if (self.together or 1) > 1 and (self.memory, self.n_kept) != ("fifo", 1):
            raise BudgetError(
                f"together={self.together} is for steps that all have the same noise, with memory='fifo' and n_kept=1: "
                "leave it out"
            )
        check_count("seed", self.seed, low=0)
        if self.seed and self.memory not in DRAWN:
            raise BudgetError(f"seed={self.seed} has nobody to read it: memory={self.memory!r} draws nothing")

    def decide(self, public: Public, statement: RankingStatement) -> Self:
        if public.units.max_rows > 1:
            raise BudgetError(
                f"one {public.units.name} may own several rows, which could be in several blocks of a stream: keep one "
                f"row per {public.units.name} (dpdist ingest --max-rows 1), or use solver='gradient'"
            )
        step = self.step_size or 1 / statement.smoothness
        decided = self._with(public, statement, step_size=step)
        rounds = self.n_rounds or decided._default_rounds()
        if public.n_rows < rounds + 1:
            raise BudgetError(f"{public.n_rows} rows are too few for {rounds + 1} blocks of a stream: take more rows")
        together = self.together or (-(-rounds // MOST_RELEASES) if (self.memory, self.n_kept) == ("fifo", 1) else 1)
        rows = public.n_rows // (rounds + 1)
        path = StreamPath(self.memory, rounds + 1, rows, self.n_kept, self.seed, min(together, rounds))
        return replace(decided, n_rounds=rounds, together=path.together, path=path)

    def _default_rounds(self) -> int:
        statement, n = self.statement, self.public.n_rows
        signal = n * self.mu / math.sqrt(self.public.n_features)
        blocks = (statement.smoothness * statement.radius * signal / (3.6 * statement.lipschitz)) ** (2 / 3)
        return max(1, math.floor(min(blocks, n)) - 1)

    def _query(self, release: int) -> StreamPairSum:
        step = release * self.path.together
        return StreamPairSum(self.statement.row_norm, self.public.n_features, self.path, step)

    def lines(self) -> Sequence[Line]:
        return [Line("pairs", Gaussian(), self._query(0), count=self.path.n_releases, path=self.path)]

    @property
    def first_window(self) -> int:
        """The end of the rows that the first release reads."""
        return (self.path.together + 1) * self.path.block_rows

    def releases_in(self, n_rows: int) -> int:
        """How many releases the first rows of the stream make."""
        path = self.path
        steps = max(n_rows // path.block_rows - 1, 0)
        return path.n_releases if steps >= path.n_steps else steps // path.together

    def next_row(self, steps: int) -> int:
        """The first row that is read when so many steps are behind."""
        path = self.path
        return (min(path.past(steps)) if steps < path.n_steps else path.n_blocks) * path.block_rows

    def solution(self, oracle: Oracle) -> Vector:
        return self.followed(oracle, self.path.n_releases)[0]

    def followed(self, oracle: Oracle, releases: int) -> tuple[Vector, int]:
        """The mean of the last half of the points after so many releases, and all that were made before; and how many.

        The points are one for each step.
        """
        assert self.step_size is not None
        place, points = Steps(np.zeros(self.public.n_features), self.step_size, self.statement.radius), list[Vector]()
        for release in range(self.path.n_releases):
            query = self._query(release)
            if release >= releases and not oracle.was_released("pairs", query):
                break
            sums = oracle.ask("pairs", place if self.path.together > 1 else place.point, query)
            for pairs in sums.reshape(-1, self.public.n_features):
                oracle.visit(place.point)
                place = place.after(query.mean_gradient(pairs))
                points.append(place.point)
        last = points[len(points) - math.ceil(TAIL * len(points)) :]
        return sum(last, np.zeros(self.public.n_features)) / len(last), len(points)

    def expected_error(self, plan: Plan) -> float | None:
        query: Any = self._query(0)
        std = plan["pairs"].mechanism.noise_std(query.sensitivity(self.public.neighbours))
        return self.steps_and_noise(self.rounds, std * 2 / (self.path.block_rows * query.n_past))

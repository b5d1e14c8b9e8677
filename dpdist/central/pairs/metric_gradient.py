"""Gradient descent on a metric: pairs of one class near, pairs of two classes far.

The loss of two rows is ``ln(1 + exp(-u))``, ``u = +-(1 - m)`` with ``m = (x - x')' W (x - x')``: plus for rows of one
class, minus for rows of two; W is positive semidefinite with Frobenius norm ``radius`` at most (seed 000, section 3.3,
example 1). A round releases the mean gradient over all pairs inside blocks of consecutive rows, and steps

    W <- project(W - step (G + noise)).

Why it is private: a row is in one block, and replacing it moves the mean by ``2 (1 + s(1)) G / n = 3.46 G / n``, G the
bound ``4 R^2`` for one pair, however many pairs a block has (`dpdist.queries.pair_sums.BlockPairSum`). Noise is
symmetric (`dpdist.privacy.mechanisms.additive.SymmetricGaussian`).

Source: spec 02, section 7.2, with the bound as corrected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_bound, check_count, need_delta
from dpdist.kernels.moments import unpack_symmetric
from dpdist.kernels.pair_blocks import LARGEST_NEGATIVE, MOST_BLOCK_ROWS
from dpdist.method import DECIDED, Line, Method, Noted, Oracle, Public, Vector
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.plan import Plan
from dpdist.privacy.mechanisms.additive import SymmetricGaussian
from dpdist.queries.pair_sums import BlockPairSum
from dpdist.solvers.loops import drive, prox_gradient

MOST_ROUNDS = 60
TAIL = 0.5
"""Of the points, whose mean is returned."""


@dataclass(frozen=True)
class MetricStatement(Noted):
    """What a fit was asked for; the fields are parameters of `dpdist.central.pairs.metric.MetricLearner`."""

    tag: ClassVar[str] = "MetricStatement"

    row_norm: float
    radius: float
    classes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class MetricGradient(Method):
    """Steps along private gradients of the mean loss of pairs inside blocks.

    Parameters
    ----------
    n_rounds : int, optional
        Public. Default: as many as the noise allows, 60 at most.
    step_size : float, optional
        Public. Default: ``1 / row_norm^4``.
    block_rows : int, default 100
        Rows whose pairs are all formed; 256 at most. More pairs cost no privacy, and time.

    Examples
    --------
    >>> from dpdist import MetricLearner
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=10_000)
    >>> X = rng.normal(size=(10_000, 3)) * [0.1, 0.3, 0.3] + np.outer(y - 0.5, [0.7, 0.0, 0.0])
    >>> model = MetricLearner(MetricGradient(n_rounds=50), classes=[0, 1], row_norm=1.0,
    ...     epsilon=1.0, delta=1e-6, random_state=0)
    >>> model.fit(X, y).metric_.diagonal().round(1)
    array([1. , 0.2, 0.2])
    """

    tag, name = "MetricGradient", "gradient"
    parameter = "solver"
    solves_with = ("classes", "radius")
    measures: ClassVar[str] = (
        "expected excess of the mean pair loss over the best metric in the ball, from noise and from what is left to "
        "optimise, for rows as long as row_norm"
    )

    statement: MetricStatement = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]
    query: Any = field(default=None, kw_only=True, repr=False, metadata=DECIDED)

    n_rounds: int | None = None
    step_size: float | None = None
    block_rows: int = 100

    def __post_init__(self) -> None:
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)
        if self.step_size is not None:
            check_bound("step_size", self.step_size)
        check_count("block_rows", self.block_rows, low=2)
        if self.block_rows > MOST_BLOCK_ROWS:
            raise BudgetError(f"block_rows must be {MOST_BLOCK_ROWS} at most, got {self.block_rows}")

    @property
    def no_intervals(self) -> str:
        return "no Hessian of the pairs is released, so that no interval of a metric is known to be valid"

    def decide(self, public: Public, statement: MetricStatement) -> Self:
        need_delta(public.budget.delta, "sums over pairs")
        public.units.need_counted("rows are dealt to blocks by their position")
        if public.n_rows < self.block_rows:
            raise BudgetError(
                f"{public.n_rows} rows are too few for one block of {self.block_rows}, inside which rows are paired: "
                "take more" + (f", or MetricGradient(block_rows={public.n_rows})" if public.n_rows > 1 else "")
            )
        query = BlockPairSum(public.n_features, statement.row_norm, self.block_rows)
        step = self.step_size or statement.row_norm**-4
        decided = self._with(public, statement, query=query, step_size=step)
        return replace(decided, n_rounds=self.n_rounds or decided._default_rounds())

    def _default_rounds(self) -> int:
        """``L B n mu / (4 (1 + s(1)) / 2 G sqrt(D))``, of a gradient that moves by ``2 (1 + s(1)) G / n``."""
        budget, statement = self.public.budget, self.statement
        signal = self.public.n_units * gdp_mu(budget.epsilon, budget.delta) / math.sqrt(self.query.size)
        wanted = statement.row_norm**2 * statement.radius * signal / (2 * (1 + LARGEST_NEGATIVE))
        return max(1, math.ceil(min(wanted, MOST_ROUNDS)))

    @property
    def align(self) -> int:
        return self.block_rows

    @property
    def _n_pairs(self) -> float:
        """That the mean is over."""
        return self.public.n_rows // self.block_rows * self.block_rows * (self.block_rows - 1) / 2

    def lines(self) -> Sequence[Line]:
        assert self.n_rounds is not None
        return [Line("pairs", SymmetricGaussian(), self.query, count=self.n_rounds)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        assert self.n_rounds is not None and self.step_size is not None
        radius, d = self.statement.radius, self.public.n_features

        def gradient(W: Vector) -> Vector:
            oracle.visit(W.ravel())
            return unpack_symmetric(oracle.ask("pairs", metric_root(W)) / self._n_pairs)

        loop = prox_gradient(
            np.zeros((d, d)), lambda W, step: in_cone(W, radius), self.step_size, self.n_rounds, tail=TAIL
        )
        return {"metric": drive(loop, gradient)}

    def expected_error(self, plan: Plan) -> float | None:
        """``L B^2 / (2 T) + D s^2 / (2 L)`` with ``L = R^4``, D free entries; of fewer rows than a block nothing."""
        assert self.n_rounds is not None
        if self._n_pairs == 0:
            return None
        public, smoothness = self.public, self.statement.row_norm**4
        sensitivity = self.query.unit_sensitivity(public.neighbours, None, public.units)
        noise = plan["pairs"].mechanism.noise_std(sensitivity) / self._n_pairs
        steps = smoothness * self.statement.radius**2 / (2 * self.n_rounds)
        return steps + self.query.size * noise**2 / (2 * smoothness)


def metric_root(W: Vector) -> Vector:
    """``A`` with ``A A' = W``, symmetric, for a positive semidefinite W.

    >>> metric_root(np.diag([4.0, 9.0])).round(9).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    values, vectors = np.linalg.eigh(W)
    root: Vector = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def in_cone(W: Vector, radius: float) -> Vector:
    """The nearest positive semidefinite matrix of Frobenius norm ``radius`` at most.

    >>> in_cone(np.diag([3.0, -1.0]), 2.0).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    values = np.maximum(values, 0.0)
    nearest: Vector = (vectors * (values * min(1.0, radius / max(float(np.linalg.norm(values)), 1e-300)))) @ vectors.T
    return nearest

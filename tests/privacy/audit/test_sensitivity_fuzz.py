"""No query escapes: the declared sensitivity of every registered query, exactly, on adversarial neighbours."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import dpdist
from dpdist.central.aggregate.block_fits import BlockFit, Estimator, LeastSquares
from dpdist.central.aggregate.block_fits import Logistic as block_logistic
from dpdist.engine.query import QUERIES, Query
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError
from dpdist.estimators.row_maps import AboveThreshold, ClassCodes, features, targets
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.coordinate_gradients import Residual
from dpdist.kernels.latent import MissingCells, MixedLines, TwoComponents
from dpdist.kernels.mixture_shares import Components
from dpdist.kernels.truncation import HardClip, SmoothTruncation, SoftTruncation
from dpdist.kernels.whitened_rows import Frame
from dpdist.losses import (
    Biweight,
    Cauchy,
    Huber,
    Logistic,
    NegativeSquare,
    RestHinge,
    RestLogistic,
    Sigmoid,
    SmoothedHinge,
    Squared,
    SquaredProbability,
    WeightedHinge,
    WeightedLogistic,
    Welsch,
)
from dpdist.privacy.accounting.contraction import OnlinePath
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, adversarial_rows, sensitivity_fuzz
from dpdist.privacy.budget import Neighbours
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR
from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from dpdist.privacy.randomness.bits import StreamBits
from dpdist.queries.block_results import BlockDeviations, BlockEstimates, BlockSum
from dpdist.queries.capped_precision import CappedPrecision
from dpdist.queries.class_counts import ClassCounts
from dpdist.queries.column_sums import (
    ColumnClassGradientSum,
    ColumnGradientSum,
    ColumnHessianSum,
    ColumnMomentSum,
    ColumnNormCounts,
)
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum, Shifted, State
from dpdist.queries.curvature_sums import CurvatureSum
from dpdist.queries.direction_sums import Along, DirectionHessianSum
from dpdist.queries.framed_sums import ColumnSizeCounts, FramedMomentSum, FramedPairSum, Placed
from dpdist.queries.gradient_sums import At, GradientSum, LargestEigenvalue
from dpdist.queries.latent_sums import (
    ComponentResponseSum,
    LabelledMomentSum,
    LatentCoordinateSum,
    LatentGradientSum,
    LineResponseSum,
    SeenEigenvalue,
)
from dpdist.queries.loss_tables import LossTable, Net
from dpdist.queries.minimizers import Minimum, Objective, PerturbedMinimum, RowCount
from dpdist.queries.mixture_sums import MixtureSums
from dpdist.queries.moment_sums import HessianSum, SecondMomentSum
from dpdist.queries.pair_iterates import ChainMeans, OnlinePoints
from dpdist.queries.pair_minimum import PairMinimum
from dpdist.queries.pair_sums import BlockPairSum, PairSum, StreamPairSum
from dpdist.queries.robust_sums import ColumnSum, TrimmedColumnSum, TrimmedGradientSum
from dpdist.queries.scaled_rows import NormCounts, ResidualCounts, ScaledGradientSum, ScaledMomentSum
from dpdist.queries.smooth_losses import GradientDifference, LargestSquareSum

D = 5
SIGNS, CLASSES = ClassCodes((0, 1)), ClassCodes((0, 1, 2))


@dataclass(frozen=True)
class Case:
    """A query with a state to ask it at, and labels that rows may have."""

    query: Query
    state: Any = None
    labels: tuple[Any, ...] = (0, 1)
    encode: Prepare = SIGNS
    norm: float | None = None
    """In which norm the sensitivity is measured, where not in the query's own."""

    def statistic(self, block: dict[str, np.ndarray]) -> tuple[Any, float]:
        """What would be released without noise, for queries that ask once and for those that search."""
        mechanism = getattr(self.query, "mechanism", None)
        bits = StreamBits(np.random.Generator(np.random.Philox(0)))
        with np.errstate(all="ignore"):
            found = self.query.explore(lambda s: self.query.summarise(block, s, None), self.state, mechanism, bits)
            return self.query.statistic(found)

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            X = features(np.array([x for x, _ in rows], dtype=dtype))
            y = self.encode(np.array([y for _, y in rows]))
            return [int(v) for v in self.statistic({"X": X, "y": y})[0]]

        return statistic

    def bounds(self) -> dict[Neighbours, Fraction]:
        grid = self.statistic({"X": np.zeros((1, D)), "y": np.ones(1)})[1]
        norm = self.norm
        return {relation: Fraction(self.query.sensitivity(relation, norm)) / Fraction(grid) for relation in Neighbours}


class OneSlot:
    """A generator that chooses all places alike: replace-one neighbours that differ in one slot."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integers(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        return 0 if high is None and size is None else self.rng.integers(low, high, size)


class Trimmed(Case):
    """The sum that is trimmed, for any number of rows; its smooth bound has a test of its own (test_arsinh)."""

    def statistic(self, block: dict[str, np.ndarray]) -> tuple[Any, float]:
        query = replace(self.query, n_rows=len(block["X"]))
        with np.errstate(all="ignore"):
            units, grid = query.statistic(query.summarise(block, self.state, None))
        return units[0], grid


class Blocks(Case):
    """Results of blocks: they are dealt by position, so replace-one neighbours only."""

    def statistic(self, block: dict[str, np.ndarray]) -> tuple[Any, float]:
        units, grid = super().statistic(block)
        return units.ravel(), grid

    def bounds(self) -> dict[Neighbours, Fraction]:
        with pytest.raises(BudgetError, match="replace-one only"):
            self.query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
        return {
            Neighbours.REPLACE_ONE: Fraction(self.query.sensitivity(Neighbours.REPLACE_ONE)) / Fraction(self.query.grid)
        }


class Pairs(Case):
    """Rows paired by their position: replace-one neighbours only."""

    def bounds(self) -> dict[Neighbours, Fraction]:
        with pytest.raises(BudgetError, match="replace-one"):
            self.query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
        return {
            Neighbours.REPLACE_ONE: Fraction(self.query.sensitivity(Neighbours.REPLACE_ONE, self.norm))
            / Fraction(self.query.grid)
        }


class Capped(Case):
    """The solution of a program, whose rows are counted: replace-one neighbours only."""

    def bounds(self) -> dict[Neighbours, Fraction]:
        with pytest.raises(BudgetError, match="replace-one"):
            self.query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
        grid = self.query.statistic(np.zeros(self.query.size))[1]
        return {Neighbours.REPLACE_ONE: Fraction(self.query.sensitivity(Neighbours.REPLACE_ONE)) / Fraction(grid)}


class AllPairs(Case):
    """Sums over all pairs of however many rows there are, over the number of pairs of a row (times 840, exactly)."""

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            others = max(len(rows) - 1, 1)
            query = replace(self.query, n_rows=len(rows))
            return [840 // others * v for v in Case.units(replace(self, query=query), dtype)(rows)]

        return statistic

    def bounds(self) -> dict[Neighbours, Fraction]:
        with pytest.raises(BudgetError, match="replace-one"):
            self.query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
        one = replace(self.query, n_rows=2)
        return {Neighbours.REPLACE_ONE: 840 * Fraction(one.sensitivity(Neighbours.REPLACE_ONE)) / Fraction(one.grid)}


class LeastOfPairs(AllPairs):
    """The minimiser over all pairs of however many rows there are, times their number, on one grid."""

    UNIT = Fraction(1, 2**80)

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            X = features(np.array([x for x, _ in rows], dtype=dtype))
            y = self.encode(np.array([y for _, y in rows]))
            case = replace(self, query=replace(self.query, n_rows=max(len(rows), 2)))
            found, grid = case.statistic({"X": X, "y": y})
            return [int(max(len(rows), 2) * int(v) * Fraction(grid) / self.UNIT) for v in found]

        return statistic

    def bounds(self) -> dict[Neighbours, Fraction]:
        counts = [replace(self.query, n_rows=n) for n in range(2, 12)]
        moved = max(query.n_rows * Fraction(query.sensitivity(Neighbours.REPLACE_ONE)) for query in counts)
        return {Neighbours.REPLACE_ONE: moved / self.UNIT}


class Streams(Case):
    """Rows of one stream in their order, empty ones where it is longer: replace-one neighbours only."""

    def statistic(self, block: dict[str, np.ndarray]) -> tuple[Any, float]:
        n = self.query.online.n_rows
        X, y = np.zeros((n, D), dtype=block["X"].dtype), np.zeros(n)
        X[: len(block["X"])], y[: len(block["X"])] = block["X"][:n], block["y"][:n]
        return super().statistic({"X": X, "y": y})

    def bounds(self) -> dict[Neighbours, Fraction]:
        with pytest.raises(BudgetError, match="replace-one"):
            self.query.sensitivity(Neighbours.ADD_OR_REMOVE_ONE)
        moved = Fraction(self.query.sensitivity(Neighbours.REPLACE_ONE))
        return {Neighbours.REPLACE_ONE: moved / Fraction(self.query.grid)}


class NewRow(AllPairs):
    """The last row of a stream against all before it, each a block: the new row is the one that is replaced."""

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            n = len(rows)
            query = replace(self.query, stream=StreamPath("all", max(n, 2), 1), number=max(n, 2) - 2)
            return [840 // max(n - 1, 1) * v for v in Case.units(replace(self, query=query), dtype)(rows[::-1])]

        return statistic

    def bounds(self) -> dict[Neighbours, Fraction]:
        return {
            Neighbours.REPLACE_ONE: 840
            * Fraction(self.query.sensitivity(Neighbours.REPLACE_ONE))
            / Fraction(self.query.grid)
        }


class PastRow(NewRow):
    """A row of the past is the one that is replaced: it is in one pair, and moves the sum by one part in m."""

    def units(self, dtype: str) -> Callable[[list[tuple[np.ndarray, Any]]], list[int]]:
        def statistic(rows: list[tuple[np.ndarray, Any]]) -> list[int]:
            n = len(rows)
            query = replace(self.query, stream=StreamPath("all", max(n, 2), 1), number=max(n, 2) - 2)
            return [840 * v for v in Case.units(replace(self, query=query), dtype)(rows)]

        return statistic


class Anything(BlockFit):
    """A block fit without any bound: the sums of the columns."""

    def __repr__(self) -> str:
        return "Anything()"

    def n_parameters(self, n_features):
        return n_features

    def fit(self, block, size, n_parameters):
        return block["X"].astype(float).reshape(-1, size, n_parameters).sum(axis=1) * 1e9


class FromTheExactMinimum(Case):
    """The end point minus the exact minimiser of the same perturbed objective: what `PerturbedMinimum` bounds."""

    def statistic(self, block: dict[str, np.ndarray]) -> tuple[Any, float]:
        units, grid = super().statistic(block)
        objective, mechanism = self.query.objective, self.query.mechanism
        term = mechanism.linear_term(self.query.size, StreamBits(np.random.Generator(np.random.Philox(0))))
        exact = exact_minimum(block["X"], block["y"], objective.row_norm, objective.intercept, objective.ridge, term)
        return [round(float(u - w / grid)) for u, w in zip(units, exact, strict=True)], grid

    def bounds(self) -> dict[Neighbours, Fraction]:
        relation = self.query.mechanism.neighbours
        grid = self.query.statistic(np.zeros(self.query.size))[1]
        return {relation: Fraction(self.query.sensitivity(relation)) / Fraction(grid)}


def exact_minimum(X, y, row_norm, intercept, ridge, term):
    """Of the logistic objective, by Newton's method in extended precision."""
    good = np.isfinite(X).all(axis=1) & (abs(y) == 1)
    X, y = X[good].astype(np.longdouble), y[good].astype(np.longdouble)
    norms = np.sqrt((X**2).sum(axis=1))
    X = X * np.minimum(1, np.longdouble(row_norm * (1 - 1e-12)) / np.where(norms > 0, norms, 1))[:, None]
    Z = np.column_stack([X, np.full(len(X), intercept)]) if intercept else X
    w = np.zeros(Z.shape[1], dtype=np.longdouble)
    for _ in range(20):
        p = 1 / (1 + np.exp(y * (Z @ w)))
        gradient = -(y * p) @ Z + ridge * w + term
        hessian = (Z.T * (p * (1 - p))) @ Z + ridge * np.eye(w.size)
        w = w - np.linalg.solve(hessian.astype(float), gradient.astype(float))  # contracts: errors of a step wash out
    return w


W = np.array([1.0, -2.0, 0.5, 30.0, 0.0])
W1 = np.append(W, -1.0)
ALONG = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
REALS = (0.0, -3.5, 1e308, -1e-320, np.nan, np.inf, 1e9)

CASES: dict[type[Query], list[Case]] = {
    GradientSum: [
        Case(GradientSum(Logistic(), 1.0, 1.0), W),
        Case(GradientSum(Logistic(), 1.0, 1.2, intercept=0.4), np.append(W, -3.0)),
        Case(GradientSum(Logistic(), 3.0, 0.1), W * 1e12),
        Case(GradientSum(SmoothedHinge(), 2.0, 2.0, target=2), W, (0, 1, 2, 7), ClassCodes((0, 1, 2))),
        Case(GradientSum(WeightedLogistic(0.3, 7.0), 1.0, 7.0, intercept=1.0), np.append(W, -3.0)),
        Case(GradientSum(WeightedHinge(5.0, 1.0), 2.0, 10.0), W),
        Case(GradientSum(RestLogistic((0.3, 7.0, 1.0)), 1.0, 7.0, intercept=1.0, target=1), np.append(W, -3.0)),
        Case(GradientSum(RestHinge((5.0, 1.0, 2.0)), 2.0, 10.0, target=2), W),
        Case(GradientSum(Squared(), 1.0, 5.0, intercept=1.0), np.append(W, 1.0), REALS, targets),
        Case(GradientSum(Squared(), 1e-6, 1e6), W * 1e200, REALS, targets),
        Case(GradientSum(Huber(0.7), 1.0, 0.7), W, REALS, targets),
    ],
    GradientDifference: [
        Case(GradientDifference(Logistic(), 1.0, 0.05), (W, W * 0)),
        Case(GradientDifference(Logistic(), 1.0, 1.0, intercept=0.4), (np.append(W, -3.0) * 10, np.append(-W, 3.0))),
        Case(GradientDifference(SmoothedHinge(), 2.0, 1e-9, target=2), (W, -W / 2), (0, 1, 2, 7), CLASSES),
        Case(GradientDifference(Squared(), 1e-6, 1e6), (W * 1e200, W * -1e199), REALS, targets),
        Case(GradientDifference(Huber(0.7), 1.0, 0.7), (W, W * 1e5), REALS, targets),
    ],
    LargestSquareSum: [Case(LargestSquareSum(1.0, 1.0)), Case(LargestSquareSum(3.0, 0.3))],
    RowCount: [Case(RowCount())],
    Minimum: [
        Case(Minimum(Objective(Logistic(), 1.0, D, 40, 5.0), 24)),
        Case(Minimum(Objective(SmoothedHinge(), 2.0, D, 40, 40.0, 0.5), 30, target=2), None, (0, 1, 2, 7), CLASSES),
        Case(Minimum(Objective(Huber(0.7), 1.0, D, 40, 8.0), 24), None, REALS, targets),
        Case(Minimum(Objective(Logistic(), 1e-3, D, 40, 1e-5), 6)),  # not converged: the tolerance says so
    ],
    PerturbedMinimum: [
        FromTheExactMinimum(PerturbedMinimum(Objective(Logistic(), 1.0, D, 40, m.regularisation, b), 30, None, m))
        for b, m in (
            (0.0, ObjectivePerturbation(1e-5, 1.0, 0.25, 3.0, Neighbours.REPLACE_ONE, 1.0)),
            (0.5, ObjectivePerturbation(1e-5, 1.2, 0.32, 0.0, Neighbours.ADD_OR_REMOVE_ONE, 4.0)),
        )
    ],
    LargestEigenvalue: [
        Case(LargestEigenvalue(D, 1.0, 10)),
        Case(LargestEigenvalue(D, 2.5, 3, intercept=1.0)),
    ],
    CoordinateGradientSum: [
        Case(CoordinateGradientSum(Squared(), Residual(2.0, 1.0), D), W, REALS, targets),
        Case(CoordinateGradientSum(Squared(), Residual(2.0, 6.0, 2.0), D, 0.5), np.append(W, 1.0), REALS, targets),
        Case(CoordinateGradientSum(Squared(), SoftTruncation(0.7), D), W * 1e12, REALS, targets),
        Case(CoordinateGradientSum(Squared(), SmoothTruncation(1.0, 30.0), D, 1.0), np.append(W, 1.0), REALS, targets),
        Case(CoordinateGradientSum(Biweight(3.5), Residual(1e3, 1.1), D), W * 0, (1.57, -1.57, 1e308, np.nan), targets),
        Case(CoordinateGradientSum(Logistic(), HardClip(0.5), D, target=1), W, (0, 1, 2, 7), ClassCodes((0, 1, 2))),
    ],
    ColumnSum: [
        Case(ColumnSum(HardClip(3.0), D)),
        Case(ColumnSum(SoftTruncation(0.2), D)),
        Case(ColumnSum(SmoothTruncation(6.0, 1e4), D)),
    ],
    TrimmedColumnSum: [Trimmed(TrimmedColumnSum(1, 0, 3.0, 0.1, D))],
    TrimmedGradientSum: [
        Trimmed(TrimmedGradientSum(1, 0, 50.0, 0.1, Squared(), D, 0.5), np.append(W, 1.0), REALS, targets),
        Trimmed(TrimmedGradientSum(1, 0, 0.3, 0.1, Logistic(), D, target=1), W, (0, 1, 2, 7), CLASSES),
    ],
    BlockSum: [
        Blocks(BlockSum(Anything(), 1, 100, D, 2.0), W * 0),
        Blocks(BlockSum(Anything(), 3, 2, D, 1e-3), W),
        Blocks(BlockSum(LeastSquares(1e-3, True), 2, 100, D + 1, 0.5), W1, REALS, targets),
        Blocks(BlockSum(block_logistic(1e-6, True), 1, 100, D + 1, 1.0), W1 * 1e12),
        Blocks(BlockSum(Estimator(Ridge()), 2, 100, D + 1, 0.5), W1 * 0, REALS, targets),
    ],
    BlockDeviations: [
        Blocks(BlockDeviations(Anything(), 2, 100, D, 3.0), W),
        Blocks(BlockDeviations(Anything(), 1, 100, D, 1e-3, 3), W * 0),
        Blocks(BlockDeviations(LeastSquares(1e-3, True), 2, 100, D + 1, 0.5), W1, REALS, targets),
    ],
    BlockEstimates: [
        Blocks(BlockEstimates(Anything(), 2, 100, D, 3.0), W),
        Blocks(BlockEstimates(block_logistic(1e-6, False), 1, 100, D, 1.0), W * 0),
    ],
    Shifted: [
        Case(Shifted(CoordinateGradientSum(Squared(), Residual(2.0, 1.0), D)), State(W, W * 1e5), REALS, targets),
        Case(Shifted(CoordinateGradientSum(Squared(), SoftTruncation(0.7), D)), State(W, W * 1e150), REALS, targets),
    ],
}


CANCELS = np.array([0.5, -0.5, 1e-12, -1.0, 1.0])
"""Near minus the gradients of rows whose entries are +-1, or of the order of 1, at W = 0."""
CASES[GradientSum] += [
    Case(GradientSum(Logistic(), 1.0, 1.0), At(W, CANCELS)),
    Case(GradientSum(Logistic(), 3.0, 0.1), At(W * 0, CANCELS / 2)),
    Case(GradientSum(Logistic(), 1.0, 1.2, intercept=0.4), At(W1, np.append(-CANCELS, 1e30) * 1e30)),
    Case(GradientSum(SmoothedHinge(), 2.0, 2.0, target=2), At(W, CANCELS * 1e-300), (0, 1, 2, 7), CLASSES),
    Case(GradientSum(Squared(), 1e6, 1e-3), At(W * 0, CANCELS * 1e12), (1e12, -1.0, 1e6, np.nan, 0.0), targets),
    Case(GradientSum(Squared(), np.inf, 5.0, intercept=1.0), At(W1 * 0, np.append(CANCELS, 1.0)), REALS, targets),
]
CASES[CoordinateGradientSum] += [
    Case(CoordinateGradientSum(Squared(), SoftTruncation(0.7), D), At(W * 1e12, CANCELS * 1e12), REALS, targets),
    Case(CoordinateGradientSum(Squared(), HardClip(2.0), D, 1.0), At(W1, np.append(CANCELS, 1e60)), REALS, targets),
    Case(CoordinateGradientSum(Logistic(), SmoothTruncation(1.0, 0.5), D), At(W * 0, CANCELS)),
]
CASES[Shifted].append(
    Case(
        Shifted(CoordinateGradientSum(Squared(), SoftTruncation(0.7), D)),
        State(At(W, CANCELS), W * 1e5),
        REALS,
        targets,
    )
)

MOMENTS = [
    (SecondMomentSum(D, 1.0), (0, 1), SIGNS),
    (SecondMomentSum(D, 2.5, unit=True), (0, 1), SIGNS),
    (SecondMomentSum(D, 1.0, label_bound=3.0, label_scale=0.5), REALS, targets),
    (SecondMomentSum(D, 1.0, label_bound=2.0, label_scale=0.4, intercept=0.5), REALS, targets),
    (SecondMomentSum(D, 1e-6, label_bound=1e6, label_scale=1e-12), REALS, targets),
]
CASES[SecondMomentSum] = [
    Case(query, None, labels, encode, norm)
    for query, labels, encode in MOMENTS
    for norm in (FROBENIUS, NUCLEAR, 2.0, 1.0)
] + [
    Pairs(replace(query, paired=True), None, labels, encode, norm)
    for query, labels, encode in MOMENTS[::2]
    if not query.intercept
    for norm in (FROBENIUS, NUCLEAR)
]
CASES[HessianSum] = [
    Case(HessianSum(Logistic(), 1.0), W),
    Case(HessianSum(Logistic(), 1.0, intercept=0.4), W1 * 10),
    Case(HessianSum(Sigmoid(), 1.0), W * 4),
    Case(HessianSum(Sigmoid(), 2.0, sampled=True), W),
    Case(HessianSum(SquaredProbability(), 1.0, intercept=2.0), np.append(W, 0.2)),
    Case(HessianSum(SmoothedHinge(4.0), 2.0, target=2), W / 100, (0, 1, 2, 7), CLASSES),
    Case(HessianSum(Squared(), 1.0), W, REALS, targets),
    Case(HessianSum(Huber(0.7), 1e-6), W * 1e200, REALS, targets),
    Case(HessianSum(Biweight(1.0), 1.0), W / 30, (0.0, 0.7, -0.6, 1e308, np.nan), targets),
    Case(HessianSum(Welsch(1.0), 1.0), W / 30, (0.0, 1.2, -1.3, 1e308, np.nan), targets),
    Case(HessianSum(Cauchy(0.5), 1.0), W / 30, (0.0, 0.8, -0.9, 1e308, np.inf), targets),
    Case(HessianSum(NegativeSquare(), 1.0), W, REALS, targets),
]
CASES[CurvatureSum] = [
    Case(CurvatureSum(Logistic(), 1.0), W),
    Case(CurvatureSum(Logistic(), 1.0, intercept=0.4, target=1), W1 * 10, (0, 1, 2), CLASSES),
    Case(CurvatureSum(Sigmoid(), 1.0), W * 4),
    Case(CurvatureSum(SmoothedHinge(4.0), 2.0), W / 100),
    Case(CurvatureSum(Huber(0.7), 1e-6), W * 1e200, REALS, targets),
    Case(CurvatureSum(Welsch(1.0), 1.0), W / 30, (0.0, 1.2, -1.3, 1e308, np.nan), targets),
    Case(CurvatureSum(NegativeSquare(), 1.0), W, REALS, targets),
]
for kind in (GradientSum, HessianSum, CurvatureSum):  # the same of rows that keep their length
    CASES[kind] += [
        replace(case, query=replace(case.query, weighed=True))
        for case in CASES[kind]
        if not (isinstance(case.state, At) or getattr(case.query, "sampled", False))
    ]
CASES[SecondMomentSum] += [
    Case(replace(query, whole=True), None, labels, encode, norm)
    for query, labels, encode in [*MOMENTS, (SecondMomentSum(D, 1.0, intercept=0.5), (0, 1), SIGNS)]
    if not query.unit
    for norm in (FROBENIUS, NUCLEAR)
]
CASES[ScaledGradientSum] = [
    Case(ScaledGradientSum(Huber(0.7), 1.0, 0.7), W, REALS, targets),
    Case(ScaledGradientSum(Huber(3.0), 2.0, 6.0, constant=0.5), W1 * 1e12, REALS, targets),
    Case(ScaledGradientSum(Huber(1e6), 1e-6, 1.0, constant=1e-7), W1 * 1e200, REALS, targets),
]
CASES[ScaledMomentSum] = [
    Case(query, None, REALS, targets, norm)
    for query in (ScaledMomentSum(D, 1.0), ScaledMomentSum(D + 1, 2.5, constant=0.8))
    for norm in (FROBENIUS, NUCLEAR, 2.0, 1.0)
]
CASES[ResidualCounts] = [
    Case(ResidualCounts(2.0, 6, 1.0), W, REALS, targets),
    Case(ResidualCounts(1e9, 64, 2.0, 0.5), W1 * 1e200, REALS, targets, 1.0),
]
CASES[CappedPrecision] = [
    Capped(CappedPrecision(40, D, 1.0, 0.01, 3.0, 30)),
    Capped(CappedPrecision(12, D, 2.5, 0.2, 0.5, 20, unit=True)),
    Capped(CappedPrecision(40, D, 1e-3, 1e-7, 2e6, 10)),
]
CASES[NormCounts] = [Case(NormCounts(1.0), norm=norm) for norm in (2.0, 1.0, math.inf)] + [Case(NormCounts(1e9, 40))]
CASES[ClassCounts] = [
    Case(query, None, labels, encode, norm)
    for query, labels, encode in ((ClassCounts(), (0, 1), SIGNS), (ClassCounts(3, signs=False), (0, 1, 2), CLASSES))
    for norm in (2.0, 1.0, math.inf)
]
CASES[ColumnNormCounts] = [Case(ColumnNormCounts(1.0, columns=(0, 2)), norm=norm) for norm in (2.0, 1.0, math.inf)]
CASES[ColumnMomentSum] = [
    Case(query, None, REALS, targets, norm)
    for query in (ColumnMomentSum(1, 1.0, columns=(1,)), ColumnMomentSum(3, 2.5, constant=0.8, columns=(2, 0)))
    for norm in (FROBENIUS, 2.0)
]
CASES[ColumnGradientSum] = [
    Case(ColumnGradientSum(Huber(0.7), 1.0, 0.7, columns=(0, 2)), W[:2], REALS, targets),
    Case(ColumnGradientSum(Huber(3.0), 2.0, 6.0, constant=0.5), np.array([0.3, -1e9]), REALS, targets),
]
POINTS = Net(np.vstack([W * 0, W, W * -30, W * 1e300]), np.array([0.0, 1.0, 1e3, 1e200]))
NEAR = Net(np.vstack([np.zeros(D), np.eye(D), -np.eye(D)]), np.zeros(2 * D + 1))
CASES[LossTable] = [
    Case(LossTable(Sigmoid(), 1.0, 100.0, 4), POINTS),
    Case(LossTable(Sigmoid(), 1.0, 1.0, 2 * D + 1), NEAR),
    Case(LossTable(Biweight(1.0), 1.0, 100.0, 4), POINTS, REALS, targets),
    Case(LossTable(Biweight(1.0), 2.0, 1.0, 2 * D + 1), NEAR, (0.0, 0.7, -0.6, 1e308, np.nan), targets),
    Case(LossTable(Cauchy(0.5), 2.0, 1.0, 2 * D + 1), NEAR, (0.0, 0.8, -0.9, 1e308, np.inf), targets),
    Case(LossTable(Huber(0.7), 1.0, 3.0, 4), POINTS, REALS, targets),
    Case(LossTable(Logistic(), 1.0, 1.5, 4, 0.4, 2), Net(np.column_stack([POINTS.points, [0, 1, -1, 1e9]]),
         POINTS.costs), (0, 1, 2, 7), CLASSES),
]  # fmt: skip
CASES[ColumnHessianSum] = [
    Case(ColumnHessianSum(Logistic(), 1.0, columns=(0, 1)), W[:2]),
    Case(ColumnHessianSum(Logistic(), 2.0, intercept=0.4, target=1, columns=(2,)), W[:2], (0, 1, 2), CLASSES),
]
CASES[DirectionHessianSum] = [
    Case(DirectionHessianSum(Logistic(), 1.0, weighed=weighed), Along(ALONG[:, :k], W[:k] * times))
    for weighed in (False, True)
    for k, times in ((1, 1.0), (2, 0.1), (5, 1e-9))
] + [
    Case(DirectionHessianSum(Sigmoid(), 2.0, intercept=0.4), Along(ALONG[:, :2], np.append(W[:2], 0.3))),
    Case(DirectionHessianSum(Logistic(), 1.0, 0.5, 1, weighed=True), Along(1e3 * ALONG, W1 / 1e5), (0, 1, 2), CLASSES),
]
CASES[ColumnClassGradientSum] = [
    Case(ColumnClassGradientSum(Logistic(), 1.0, 1.0, columns=(0, 2)), W[:2] * 1e6),
    Case(ColumnClassGradientSum(Logistic(), 1.0, 1.1, intercept=0.4), np.array([0.0, 3.0])),
]
CASES[LatentGradientSum] = [
    Case(LatentGradientSum(TwoComponents(1.0), 1.0), W),
    Case(LatentGradientSum(TwoComponents(0.3), 2.0), W * 1e-3),
    Case(LatentGradientSum(TwoComponents(1e3), 1e-3), CANCELS * 1e12),
    Case(LatentGradientSum(MixedLines(1.0), 1.0), W, REALS, targets),
    Case(LatentGradientSum(MixedLines(1e-3), 5.0), W * 1e150, (0.0, 1e308, -1e150, np.nan, 3.0), targets),
    Case(LatentGradientSum(MixedLines(30.0), 1e6), CANCELS, REALS, targets),
]
CASES[LatentGradientSum] += [
    Case(LatentGradientSum(MissingCells(s, exact=exact), clip_norm), b, REALS, targets)
    for s, clip_norm, b in ((1.0, 1.0, W), (1e-3, 5.0, W * 1e50), (30.0, 1e-3, CANCELS), (1e50, 1e6, W * 1e-50))
    for exact in (True, False)
]
CASES[SeenEigenvalue] = [Case(SeenEigenvalue(D, 1.0, 10)), Case(SeenEigenvalue(D, 2.5, 3))]
CASES[LatentCoordinateSum] = [
    Case(LatentCoordinateSum(model, bounded, D), b, REALS, targets)
    for model, b in (
        (TwoComponents(1.0), CANCELS),
        (TwoComponents(1e-3), W * 1e12),
        (MixedLines(1.0), W),
        (MissingCells(1.0), W),
        (MissingCells(1e-3), W * 1e50),
    )
    for bounded in (SoftTruncation(0.7), SmoothTruncation(2.0, 30.0))
]
CASES[ComponentResponseSum] = [
    Case(ComponentResponseSum(TwoComponents(s), bounded, D), b)
    for s, b in ((1.0, W), (1e-3, W * 1e12))
    for bounded in (SoftTruncation(0.7), SmoothTruncation(2.0, 30.0))
]
CASES[LineResponseSum] = [
    Case(LineResponseSum(MixedLines(1.0), 1.0, 2.0), W, REALS, targets),
    Case(LineResponseSum(MixedLines(1e-3), 3.0, 1e-3), W * 1e150, (0.0, 1e308, -1e150, np.nan, 3.0), targets),
]
CASES[MixtureSums] = [
    Case(MixtureSums(k, D, r), Components(np.full(k, 1 / k), means, variances))
    for k, r in ((1, 1.0), (3, 1.0), (3, 1e3))
    for means, variances in (
        (np.linspace(-1, 1, k * D).reshape(k, D), np.ones((k, D))),
        (np.linspace(-1, 1, k * D).reshape(k, D) * 1e3, np.full((k, D), 1e-3)),
        (np.zeros((k, D)), np.full((k, D), 1e300)),
    )
]
CASES[LabelledMomentSum] = [
    Case(LabelledMomentSum(D, r), None, (0.0, 1.0, -3.5, 1e308, np.nan, 1e-320), targets, norm)
    for r in (1.0, 40.0)
    for norm in (FROBENIUS, NUCLEAR)
]
CASES[PairSum] = [
    AllPairs(PairSum(1.0, 2, D), W),
    AllPairs(PairSum(1.0, 2, D), W * 0),
    AllPairs(PairSum(2.5, 2, D), W * 1e12, (0, 1, 7)),
    AllPairs(PairSum(1e-6, 2, D), W * 1e200),
    AllPairs(PairSum(3.0, 2, D), W * 1e-310, (-1.0, 1.0, np.nan, 0.5), targets),
    AllPairs(PairSum(1.0, 2, D), np.ones(D), (-1.5, 0.2, np.nan, 1e308), AboveThreshold(0.0)),
]
FRAMES = [
    Frame(np.ones(D), 3.0, np.zeros(D), np.eye(D)),
    Frame(np.geomspace(0.1, 10.0, D), 2.0, np.linspace(-0.01, 0.01, D), 1.5 * np.eye(D)[::-1]),
]
CASES[FramedPairSum] = [
    AllPairs(FramedPairSum(1.0, 2, D, whole_norm=4.0), Placed(FRAMES[0], W)),
    AllPairs(FramedPairSum(1.0, 2, D, whole_norm=40.0), Placed(FRAMES[1], W), (0, 1, 7)),
    AllPairs(FramedPairSum(0.5, 2, D, whole_norm=1e6), Placed(FRAMES[0], W)),
]
CASES[FramedMomentSum] = [
    Case(FramedMomentSum(D, r, intercept=0.5, whole_norm=whole), frame, REALS, targets)
    for r, whole, frame in ((1.0, 4.0, Frame(np.ones(D))), (2.5, 1.0, Frame(np.geomspace(1e-6, 1e3, D))))
]
CASES[ColumnSizeCounts] = [
    Case(ColumnSizeCounts(D, r, octaves), norm=norm)
    for r, octaves in ((1.0, 16), (1e-6, 4), (40.0, 60))
    for norm in (2.0, 1.0, math.inf)
]
CASES[PairMinimum] = [
    LeastOfPairs(PairMinimum(1e-6, 2, D, 2e-11, 4)),
    LeastOfPairs(PairMinimum(3.0, 2, D, 400.0, 4), None, (-1.0, 1.0, np.nan, 0.5), targets),
]
CASES[OnlinePoints] = [
    Streams(OnlinePoints(r, radius, D, OnlinePath(4, ridge * r**2, 4 * r**2, "contract", memory, kept)), None, labels)
    for r, radius, ridge, memory, kept, labels in (
        (1.0, 1.0, 40.0, "all", 1, (0, 1)),
        (1e-6, 1e7, 40.0, "fifo", 2, (0, 1, 1, 7)),
        (3.0, 0.1, 1.0, "rsx", 2, (0, 1)),
    )
]
CASES[ChainMeans] = [
    Streams(ChainMeans(r, radius, D, OnlinePath(4, ridge * r**2, 4 * r**2)), None, labels)
    for r, radius, ridge, labels in ((1.0, 1.0, 40.0, (0, 1)), (2.0, 1e-2, 1.0, (0, 1, 7)))
]
CASES[BlockPairSum] = [
    Pairs(query, root, labels, encode)
    for query in (BlockPairSum(D, 1.0, 2), BlockPairSum(D, 2.5, 3))
    for root in (np.zeros((D, D)), np.diag(W), np.diag(W) * 1e200)
    for labels, encode in (((0, 1), SIGNS), ((0, 1, 2, 7), CLASSES))
]
CASES[StreamPairSum] = [
    kind(StreamPairSum(r, D, StreamPath("all", 2, 1)), w, labels)
    for kind in (NewRow, PastRow)
    for r, w, labels in ((1.0, W, (0, 1)), (2.5, W * 1e3, (0, 1, 1, 7)))
]


def all_queries() -> list[type[Query]]:
    for module in pkgutil.walk_packages(dpdist.__path__, "dpdist."):
        if module.name.split(".")[1] not in {"cli", "jobs", "runs", "reports", "figures", "cluster"}:  # thin layers
            importlib.import_module(module.name)
    return [query for query in QUERIES if query.__module__.startswith("dpdist.")]


@pytest.mark.parametrize("query", all_queries(), ids=lambda q: q.__name__)
def test_every_query_has_a_case(query):
    assert CASES.get(query), f"add adversarial cases for {query.__name__} to CASES"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "case", [c for cases in CASES.values() for c in cases], ids=lambda c: f"{c.query!r}{c.norm or ''}"
)
def test_no_neighbours_exceed_the_declared_sensitivity(case, dtype):
    rng = np.random.default_rng(0)
    rows = []
    for i, (kind, x) in enumerate(adversarial_rows(D, dtype, rng)):
        for label in (case.labels[i % len(case.labels)], case.labels[(i + 1) % len(case.labels)]):
            rows.append((f"{kind}, y={label}", (x, label)))
    places = OneSlot(rng) if isinstance(case, Blocks | Pairs | AllPairs | LeastOfPairs | Streams | Capped) else rng
    worst = sensitivity_fuzz(case.units(dtype), rows, case.bounds(), case.norm or case.query.norm, places, n_bases=2)
    # a bound that is never nearly reached would hide a query that does nothing
    assert (
        getattr(case.query, "columns", None) == ()  # only the constant feature is left, far from the bound
        or isinstance(case, FromTheExactMinimum | Capped)
        or worst.get(Neighbours.ADD_OR_REMOVE_ONE, worst.get(Neighbours.REPLACE_ONE)) > 0.4
    )


@pytest.mark.parametrize("query", CASES, ids=lambda q: q.__name__)
def test_no_query_writes_to_the_rows(query):
    """They may lie in a file that is mapped (`dpdist.data.mapped_files`); the result is that of any other rows."""
    rng, case = np.random.default_rng(0), CASES[query][0]
    X, y = rng.normal(size=(60, D)), case.encode(np.array([case.labels[i % len(case.labels)] for i in range(60)]))
    given = case.statistic({"X": X.copy(), "y": y.copy()})
    X.setflags(write=False)
    y.setflags(write=False)
    for found, expected in zip(case.statistic({"X": X, "y": y}), given, strict=True):
        assert np.array_equal(found, expected)


def test_the_fuzz_finds_an_unclipped_row():
    class Unclipped(Case):
        def units(self, dtype):
            right = super().units(dtype)

            def statistic(rows):
                extra = sum(1 for x, _ in rows if x[0] == 1e200)
                return [v + extra * 2**34 for v in right(rows)]

            return statistic

    case = Unclipped(GradientSum(Logistic(), 1.0, 1.0), W)
    rng = np.random.default_rng(0)
    rows = [(kind, (x, 1)) for kind, x in adversarial_rows(D, "float64", rng)]
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(case.units("float64"), rows, case.bounds(), 2, rng, n_bases=1)


SHIFTED = Case(GradientSum(Squared(), 1.0, 1.0), At(W * 0, CANCELS * 1e3), (0.0, 1e3, -2e3, np.nan), targets)


class ToEmptyRows(Case):
    """A shift that empty rows get as well, where there is nothing to bound it with."""

    def units(self, dtype):
        right = super().units(dtype)

        def statistic(rows):
            empty = sum(1 for x, y in rows if not (np.isfinite(x).all() and np.isfinite(y)))
            return [v + round(empty * s / self.query.grid) for v, s in zip(right(rows), self.state.shift, strict=True)]

        return statistic


class ByTheParts(Case):
    """A sum that is bounded by its norm as the parts have it: ``c^2 ||x||^2 + 2 c <x, s> + ||s||^2``."""

    def units(self, dtype):
        def statistic(rows):
            total = np.zeros(D)
            for x, y in rows:
                x = np.asarray(x, dtype=float)
                if np.isfinite(x).all() and np.isfinite(y) and abs(x).max() < 1e150:
                    x, shift = clip_l2(x[None], 1.0)[0], self.state.shift
                    square = y * y * (x @ x) - 2 * y * (x @ shift) + shift @ shift
                    factor = min(1.0, 1.0 / math.sqrt(square)) if square > 0 else 1.0
                    total += np.trunc(factor * (shift - y * x) / self.query.grid)
            return total.tolist()

        return statistic


@pytest.mark.parametrize(("kind", "caught"), [(Case, False), (ToEmptyRows, True), (ByTheParts, True)])
def test_the_fuzz_finds_shifts_that_nothing_bounds(kind, caught):
    """Rows at the bound whose gradient nearly cancels a shift of 1e9, and empty ones."""
    shift = CANCELS / np.linalg.norm(CANCELS) * 1e9
    case = kind(SHIFTED.query, At(W * 0, shift), (), targets)
    rng = np.random.default_rng(0)
    rows = [("empty", (np.full(D, np.nan), 0.0)), ("other", (np.ones(D), 1.0))]
    for i in range(30):
        near = CANCELS / np.linalg.norm(CANCELS) * 2 + rng.normal(size=D) * 1e-9
        rows.append((f"near {i}", (near, 1e9 * (1 + rng.normal() * 1e-9))))
    bounds = case.bounds()
    if not caught:
        assert max(sensitivity_fuzz(case.units("float64"), rows, bounds, 2, rng, n_bases=2).values()) > 0.4
        return
    with pytest.raises(SensitivityViolation):
        sensitivity_fuzz(case.units("float64"), rows, bounds, 2, rng, n_bases=2)


def test_split_blocks_give_the_same_statistic():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(5000, D)) * 3, rng.choice([-1.0, 1.0], 5000)
    for case in CASES[GradientSum][:2] + CASES[LargestEigenvalue]:
        whole = case.query.summarise({"X": X, "y": y}, case.state, None)
        parts = [
            case.query.summarise({"X": X[a : a + 777], "y": y[a : a + 777]}, case.state, None)
            for a in range(0, 5000, 777)
        ]
        assert np.array_equal(whole, sum(parts))

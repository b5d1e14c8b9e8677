"""Rows whose loss has a saddle, flat ends or no bottom at all, and how far a model is above the best that is known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.generation import Generation, Placing, unit_rows
from dpdist.problems.metrics import Array, LogOddsLoss, TruthMetric, WrongClass
from dpdist.problems.problem import Problem, parameters

SMALLEST_LOG = -690.0


def sphere_sigmoid(n_rows: int, n_features: int = 50, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Two classes that a plane parts: ``x`` uniform on the unit sphere, ``y = 1`` where ``<x, truth> > 0``, else 0.

    Seed 000, section 4.1.5; parameters as in `dpdist.problems.linear_problems.logit`.

    >>> data, truth = sphere_sigmoid(1000, 5, random_state=1)
    >>> rows = data.read(0, 1000)
    >>> bool(np.array_equal(rows["y"] == 1, rows["X"] @ truth > 0))
    True
    """
    generation = Generation("synthetic.sphere_sigmoid", placing, n_features=n_features)
    truth = generation.directions(1, n_features, 1.0)[0]
    return generation.dataset(n_rows, truth, lambda generator, X: X @ truth > 0)


def pca_saddle(
    n_rows: int, n_features: int = 20, *, variance: float = 0.316, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows of norm 1 with one large eigenvalue, ``E x x' = variance v v' + rest``; labels mean nothing.

    ``-<w, x>^2 / 2 + ||w||^4 / 4`` has a saddle at 0 and its two minima at ``+-sqrt(variance) v``, the truth.

    Parameters
    ----------
    variance : float
        The largest eigenvalue, above ``1 / n_features``.
    """
    if not 1 / n_features < variance < 1:
        raise DataError(f"variance must lie between 1 / n_features and 1, got {variance!r}")
    generation = Generation("synthetic.pca_saddle", placing, n_features=n_features, variance=variance)
    axis = generation.directions(1, n_features, 1.0)[0]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        across = generator.standard_normal(shape)
        across = unit_rows(across - np.outer(across @ axis, axis))
        share = generator.beta(variance * n_features / 2, (1 - variance) * n_features / 2, shape[0])
        signs = generator.choice([-1.0, 1.0], shape[0])
        return np.outer(signs * np.sqrt(share), axis) + np.sqrt(1 - share)[:, None] * across

    truth = math.sqrt(variance) * axis
    return generation.dataset(
        n_rows, truth, lambda generator, X: generator.choice([-1.0, 1.0], len(X)), "float64", rows=rows
    )


def linear_over_ball(
    n_rows: int, n_features: int = 10, *, signal: float = 0.3, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Corners of a cube of diagonal 2, ``z_j = +-1 / sqrt(d)``, a little more often on the side of the mean.

    The loss ``-<w, z> - strength ||w||^2 / 2`` over the unit ball is least at the mean over its norm, whatever the
    strength: on the border the concave part is a constant. No private method is below the order of
    ``min(1, d / (n epsilon))`` on the worst of such rows (seed 000, Theorem 4.2.12).

    Parameters
    ----------
    signal : float
        Norm of the mean, the truth; above 0, at most 1.
    """
    if not 0 < signal <= 1:
        raise DataError(f"signal must lie above 0 and be at most 1, got {signal!r}")
    generation = Generation("synthetic.linear_over_ball", placing, n_features=n_features, signal=signal)
    sides = generation.truth_generator().choice([-1.0, 1.0], n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        with_mean = generator.random(shape) < (1 + signal) / 2
        # rounded down, so that no row is longer than 1
        return np.where(with_mean, sides, -sides) * (1 - 2.0**-40) / math.sqrt(shape[1])

    return generation.dataset(n_rows, sides * (signal / math.sqrt(n_features)), rows=rows)


class LinearGap(TruthMetric):
    """What the direction of a mean makes of a linear loss over the unit ball."""

    answer: ClassVar[Answer] = Answer.MEANS
    what = "excess of the expected loss -<w, z> over the unit ball, at the mean over its norm"

    def error(self, model: Any) -> float:
        mean = np.ravel(model.mean_)
        length = float(np.linalg.norm(mean))
        return self.trivial() - (float(mean @ self.world.truth) / length if length > 0 else 0.0)

    def trivial(self) -> float:
        return float(np.linalg.norm(self.world.truth))

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(mean_=X.mean(axis=0))


class Gap(TruthMetric):
    """How far an objective is above the least value that was found without privacy; trivial is its gap at 0."""

    answer: ClassVar[Answer] = Answer.COEFFICIENTS

    def objective(self, w: Array) -> float:
        """Mean loss plus penalty at coefficients."""
        raise NotImplementedError

    @property
    def least(self) -> float:
        """The least value that is known."""
        return self.objective(self.world.truth)

    def error(self, model: Any) -> float:
        return self.objective(np.ravel(model.coef_)) - self.least

    def trivial(self) -> float:
        return self.objective(np.zeros(self.world.X.shape[1])) - self.least

    def reference(self, X: Array, y: Any) -> Any:
        raise NotImplementedError


class At:
    """A model that is nothing but coefficients."""

    def __init__(self, coef: Array) -> None:
        self.coef_ = coef


class SaddleGap(Gap):
    """The first component of a law, as `dpdist.losses.NegativeSquare` with ``Quartic(1)`` finds it."""

    what = "gap of the expected objective, -E<w, x>^2 / 2 + ||w||^4 / 4, to its least value"

    def objective(self, w: Array) -> float:
        variance, d = self.world.parameters["variance"], len(w)
        along = (w @ self.world.truth) ** 2 / variance
        square = float(w @ w)
        return float(-(variance * along + (1 - variance) / (d - 1) * (square - along)) / 2 + square**2 / 4)

    def reference(self, X: Array, y: Any) -> Any:
        values, vectors = np.linalg.eigh(X.T @ X / len(X))
        return At(math.sqrt(values[-1]) * vectors[:, -1])


def two_classes(chance: np.ndarray) -> np.ndarray:
    """The law of two labels, as logarithms, from the chances of the second."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(np.column_stack([1 - chance, chance])), SMALLEST_LOG)


PROBLEMS = (
    Problem(
        "linear-over-ball",
        "means: corners of a cube, judged by a linear loss over the unit ball, the hardest of private losses",
        linear_over_ball,
        parameters(d=10, signal=0.3),
        (LinearGap,),
    ),
    Problem(
        "sphere-sigmoid",
        "two classes that a plane parts: x uniform on the unit sphere",
        sphere_sigmoid,
        parameters(d=50, labels=(-1, 1)),
        (WrongClass, LogOddsLoss),
        lambda X, truth, values: two_classes((X @ truth > 0).astype(np.float64)),
    ),
    Problem(
        "pca-saddle",
        "rows of norm 1 with one large eigenvalue: -<w, x>^2/2 + |w|^4/4 has a saddle at 0",
        pca_saddle,
        parameters(variance=0.316),
        (SaddleGap,),
    ),
)

"""Two classes by a quadratic score, in place of tables of seed 000: the best linear rule is not the truth."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, Unpack

import numpy as np
import scipy
from scipy.special import ndtr

from dpdist.constraints import ElasticNet, GemanMcClure
from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.losses import Logistic, Sigmoid
from dpdist.problems.generation import Generation, Placing, unit_rows
from dpdist.problems.metrics import Array
from dpdist.problems.nonconvex_problems import At, Gap, two_classes
from dpdist.problems.problem import Problem, parameters

FLIPS = 0.15
NUMERIC, LEVELS, CORRELATION = 10, 4, 0.6
RARE = 0.09
STRENGTH = 1e-3
"""Of the penalties of seed 000, section 4.3.3."""


def quadratic_covertype(
    n_rows: int, n_features: int = 54, *, loss: Literal["logistic", "sigmoid"] = "logistic", **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Ten correlated numbers, one of 4 and one of ``d - 14`` levels, in rows of norm 1; a quadratic score decides.

    15 % of the labels are flipped (seed 000, section 4.3.3, in place of the table of forest covers).

    Parameters
    ----------
    loss : {"logistic", "sigmoid"}
        By which models are judged; it changes no row.
    """
    if n_features < NUMERIC + LEVELS + 2:
        raise DataError(f"n_features must be at least {NUMERIC + LEVELS + 2}, got {n_features}")
    _check_loss(loss)
    generation = Generation("synthetic.quadratic_covertype", placing, n_features=n_features)
    truth = generation.directions(1, n_features, math.sqrt(n_features))[0]
    many = n_features - NUMERIC - LEVELS
    frequencies = np.cumsum(1 / np.arange(1, many + 1)) / np.sum(1 / np.arange(1, many + 1))
    mixing = np.linalg.cholesky(CORRELATION ** np.abs(np.subtract.outer(np.arange(NUMERIC), np.arange(NUMERIC)))).T

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        X = np.zeros(shape)
        X[:, :NUMERIC] = generator.standard_normal((shape[0], NUMERIC)) @ mixing
        X[np.arange(len(X)), NUMERIC + generator.integers(0, LEVELS, shape[0])] = 1.0
        level = np.minimum(np.searchsorted(frequencies, generator.random(shape[0])), many - 1)
        X[np.arange(len(X)), NUMERIC + LEVELS + level] = 1.0
        return unit_rows(X)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(len(X)) < _covertype_chance(X, truth)

    return generation.dataset(n_rows, truth, labels, rows=rows)


def _covertype_chance(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    whole = X / X[:, NUMERIC : NUMERIC + LEVELS].sum(axis=1, keepdims=True)  # before rows got norm 1
    score = whole @ truth / 2 + 0.5 * whole[:, 0] * whole[:, 1]
    return np.where(score > 0, 1 - FLIPS, FLIPS)


def quadratic_ijcnn(
    n_rows: int, n_features: int = 23, *, loss: Literal["logistic", "sigmoid"] = "logistic", **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Uniform directions and a constant column, both of norm ``1/sqrt(2)``; the top 9 % of a quadratic score are 1.

    Without the constant column no linear rule would be better than calling everything 0.

    Parameters
    ----------
    loss : {"logistic", "sigmoid"}
        As in `quadratic_covertype`.
    """
    if n_features < 4:
        raise DataError(f"n_features must be at least 4, got {n_features}")
    _check_loss(loss)
    generation = Generation("synthetic.quadratic_ijcnn", placing, n_features=n_features)
    linear, square = generation.directions(2, n_features - 1, 1.0)
    truth = np.column_stack([np.stack([linear, square]), np.zeros(2)])

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        directions = unit_rows(generator.standard_normal((shape[0], shape[1] - 1)))
        return np.column_stack([directions, np.ones(shape[0])]) / math.sqrt(2)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return _ijcnn_chance(X, truth) > 0.5

    return generation.dataset(n_rows, truth, labels, rows=rows)


def _ijcnn_chance(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    scores = X @ truth.T * math.sqrt(2 * (X.shape[1] - 1))  # about standard normal
    return np.where(scores[:, 0] + 0.5 * (scores[:, 1] ** 2 - 1) > _rare_score(), 1.0, 0.0)


@functools.cache
def _rare_score() -> float:
    """What ``Z + (Z'^2 - 1) / 2`` exceeds with probability `RARE`, for independent normal numbers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    above = lambda t: float(weights @ ndtr(0.5 * (nodes**2 - 1) - t)) - RARE  # noqa: E731
    return float(scipy.optimize.brentq(above, -5, 20))


def _check_loss(loss: str) -> None:
    if loss not in ("logistic", "sigmoid"):
        raise DataError(f'loss must be "logistic" or "sigmoid", got {loss!r}')


class PenalisedGap(Gap):
    """Two classes by a loss and its penalty (seed 000, section 4.3.3), on fresh rows with their true chances."""

    answer = Answer.CLASSES
    what = "gap of the objective to its least value, both with the true chances of fresh rows"

    def objective(self, w: Array) -> float:
        return _objective(w, self.world.X, np.exp(self.world.law), self.world.parameters["loss"])[0]

    @functools.cached_property
    def least(self) -> float:
        w = _minimised(self.world.X, np.exp(self.world.law), self.world.parameters["loss"])
        return self.objective(w)

    def reference(self, X: Array, y: Array) -> Any:
        positive = (y == max(self.world.labels or [1])).astype(np.float64)
        return At(_minimised(X, np.column_stack([1 - positive, positive]), self.world.parameters["loss"]))


def _objective(w: Array, X: Array, chances: Array, name: str) -> tuple[float, Array]:
    """Value and gradient of the loss with its penalty: one that is not convex for the loss that is."""
    loss, u = (Logistic(), X @ w) if name == "logistic" else (Sigmoid(), X @ w)
    value = chances[:, 0] @ loss.value(u, -1.0) + chances[:, 1] @ loss.value(u, 1.0)
    slope = chances[:, 0] * loss.derivative(u, -1.0) + chances[:, 1] * loss.derivative(u, 1.0)
    if name == "logistic":
        penalty = GemanMcClure(STRENGTH)
        return float(value / len(X) + penalty.value(w)), slope @ X / len(X) + penalty.gradient(w)
    return float(value / len(X) + ElasticNet(STRENGTH).value(w)), slope @ X / len(X) + STRENGTH * w


def _minimised(X: Array, chances: Array, name: str) -> Array:
    """The best of the minima that are found from 0 and from three fixed points."""
    starts = [np.zeros(X.shape[1]), *(3 * np.random.default_rng(0).standard_normal((3, X.shape[1])))]
    found = [scipy.optimize.minimize(_objective, w, (X, chances, name), jac=True, method="L-BFGS-B") for w in starts]
    return np.asarray(min(found, key=lambda each: each.fun).x)


PROBLEMS = (
    Problem(
        "quadratic-covertype",
        "two classes by a quadratic score: numbers and levels in rows of norm 1, flipped labels",
        quadratic_covertype,
        parameters(d=54, loss="logistic", labels=(-1, 1)),
        (PenalisedGap,),
        lambda X, truth, values: two_classes(_covertype_chance(X, truth)),
        shared=("loss",),
    ),
    Problem(
        "quadratic-ijcnn",
        "two classes, 9 % of one, by a quadratic score: directions and a constant column",
        quadratic_ijcnn,
        parameters(d=23, loss="logistic", labels=(-1, 1)),
        (PenalisedGap,),
        lambda X, truth, values: two_classes(_ijcnn_chance(X, truth)),
        shared=("loss",),
    ),
)

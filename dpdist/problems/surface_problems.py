"""Generated records of which a bounded loss is to be minimised, convex or not.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import functools
import itertools
import math
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import scipy

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.generation import Generation, Placing, logistic, logistic_law
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters
from dpdist.problems.two_normals import TwoNormals

LAW = TwoNormals(0.7, 0.08, 0.0, 1.0)
WEIGHT, REACH = 1.5, 2.0
"""Of the logistic law; and of the box in which its weights are looked for."""
WIDTH = 0.35
"""Of the Welsch loss by which answers are judged."""
FEW = 2000


def two_clusters(n_rows: int, n_features: int = 2, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Seven rows of ten near .3 in every column, the others near .8, moved into [0, 1].

    Parameters
    ----------
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (2, n_features)
        The centres.

    Examples
    --------
    >>> data, truth = two_clusters(1000)
    >>> truth.tolist(), data.read(0, 1000)["X"].shape
    ([[0.3, 0.3], [0.8, 0.8]], (1000, 2))
    """
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    truth = np.repeat([[0.3], [0.8]], n_features, axis=1)

    rows = LAW.rows(truth)
    return Generation("surfaces.two-clusters", placing).dataset(n_rows, np.zeros(n_features), rows=rows)[0], truth


def cube_logistic(n_rows: int, n_features: int = 2, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Two classes: rows uniform on the cube ``[-1, 1]^p / sqrt(p)``, ``P(y = 1)`` logistic in ``<x, w>``.

    Parameters
    ----------
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        w: 1.5 and -1.5 in turns; to be looked for in ``[-2, 2]^p``.

    Examples
    --------
    >>> data, truth = cube_logistic(1000)
    >>> truth.tolist(), bool(np.linalg.norm(data.read(0, 1000)["X"], axis=1).max() <= 1)
    ([1.5, -1.5], True)
    """
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    truth, edge = WEIGHT * (-1.0) ** np.arange(n_features), 1 / math.sqrt(n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.uniform(-edge, edge, shape)

    return Generation("surfaces.cube-logistic", placing).dataset(n_rows, truth, logistic(truth), rows=rows)


class ExcessRisk(TruthMetric):
    """A minimiser of the Welsch loss in the unit box, by how far its risk is above the least."""

    answer = Answer.MINIMISER
    what = f"mean of 1 - exp(-|x - w|^2 / (2 {WIDTH}^2)) at the answer w, above the least there is"

    def error(self, model: Any) -> float:
        return self._risk(np.asarray(model.coef_)) - self._least

    def trivial(self) -> float:
        return self._risk(np.full(self.world.truth.shape[1], 0.5)) - self._least

    def reference(self, X: Array, y: Any) -> Any:
        def risk(w: Array) -> float:
            return float(-np.exp(-((X[:FEW] - w) ** 2).sum(axis=1) / (2 * WIDTH**2)).mean())

        return SimpleNamespace(coef_=_minimum(risk, X.shape[1]))

    @functools.cached_property
    def _least(self) -> float:
        return self._risk(_minimum(self._risk, self.world.truth.shape[1]))

    def _risk(self, w: Array) -> float:
        return 1.0 - float(LAW.kernel_means(self.world.truth, w[None], WIDTH)[0])


class LogisticExcessRisk(TruthMetric):
    """A minimiser of the logistic loss in the box, by how far its risk is above the least."""

    answer = Answer.MINIMISER
    what = f"excess log-loss of the weights over the best ones in [-{REACH:g}, {REACH:g}]^p, on fresh rows"

    def error(self, model: Any) -> float:
        return self._risk(np.ravel(model.coef_)) - self._risk(self.world.truth)

    def trivial(self) -> float:
        return self._risk(np.zeros(len(self.world.truth))) - self._risk(self.world.truth)

    def reference(self, X: Array, y: Any) -> Any:
        signs = np.where(np.asarray(y) > 0, 1.0, -1.0)[:, None]

        def risk(w: Array) -> float:
            return float(np.logaddexp(0.0, -(signs * X) @ w).mean())

        box = [(-REACH, REACH)] * X.shape[1]
        return SimpleNamespace(coef_=scipy.optimize.minimize(risk, np.zeros(X.shape[1]), bounds=box).x)

    def _risk(self, w: Array) -> float:
        u, p = self.world.X @ w, np.exp(self.world.law)
        return float(np.mean(p[:, 0] * np.logaddexp(0.0, u) + p[:, 1] * np.logaddexp(0.0, -u)))


def _minimum(risk: Any, p: int) -> Array:
    """In the unit box: the best of a grid, and descent from there."""
    start = min((np.array(point) for point in itertools.product((0.1, 0.3, 0.5, 0.7, 0.9), repeat=p)), key=risk)
    return np.asarray(scipy.optimize.minimize(risk, start, bounds=[(0.0, 1.0)] * p).x)


PROBLEMS = (
    Problem("two-clusters", "risk surfaces: two clusters in the unit box", two_clusters, parameters(n=30_000, d=2),
            (ExcessRisk,)),
    Problem("cube-logistic", "risk surfaces: two classes on a cube, logistic", cube_logistic,
            parameters(d=2, labels=(-1, 1)), (LogisticExcessRisk,), logistic_law),
)  # fmt: skip

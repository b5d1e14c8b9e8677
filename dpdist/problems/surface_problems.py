"""Generated records of which a loss that is not convex is to be minimised.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import functools
import itertools
import math
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import scipy.optimize
from scipy.special import ndtr

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters

SHARE, SPREAD = 0.7, 0.08
"""Of the larger cluster; and the standard deviation of both."""
WIDTH = 0.35
"""Of the Welsch loss by which answers are judged."""
FEW = 2000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


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

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        own = (generator.random(shape[0]) >= SHARE).astype(np.int64)
        return np.clip(truth[own] + SPREAD * generator.standard_normal(shape), 0.0, 1.0)

    return Generation("surfaces.two-clusters", placing).dataset(n_rows, np.zeros(n_features), rows=rows)[0], truth


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
        """By quadrature: the columns are independent within a cluster."""
        nodes, weights = (_NODES + 1) / 2, _WEIGHTS / 2
        kernel = np.exp(-((nodes - w[:, None]) ** 2) / (2 * WIDTH**2))
        ends = [np.exp(-((end - w) ** 2) / (2 * WIDTH**2)) for end in (0.0, 1.0)]
        found = 1.0
        for share, centre in zip((SHARE, 1 - SHARE), self.world.truth, strict=True):
            law = np.exp(-((nodes - centre[:, None]) ** 2) / (2 * SPREAD**2)) / (SPREAD * math.sqrt(2 * math.pi))
            beyond = ends[0] * ndtr(-centre / SPREAD) + ends[1] * ndtr((centre - 1) / SPREAD)
            found -= share * float(((kernel * law) @ weights + beyond).prod())
        return found


def _minimum(risk: Any, p: int) -> Array:
    """In the unit box: the best of a grid, and descent from there."""
    start = min((np.array(point) for point in itertools.product((0.1, 0.3, 0.5, 0.7, 0.9), repeat=p)), key=risk)
    return np.asarray(scipy.optimize.minimize(risk, start, bounds=[(0.0, 1.0)] * p).x)


PROBLEMS = (
    Problem("two-clusters", "risk surfaces: two clusters in the unit box", two_clusters, parameters(n=30_000, d=2),
            (ExcessRisk,)),
)  # fmt: skip

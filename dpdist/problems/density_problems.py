"""Generated numbers whose density is wanted.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import Array, TruthMetric
from dpdist.problems.problem import Problem, parameters
from dpdist.problems.two_normals import TwoNormals

LAW = TwoNormals(0.5, 0.2, -1.0, 1.0)
BANDWIDTHS = (0.3, 0.5)
N_POINTS = 50


def clusters(n_rows: int, n_features: int = 1, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Two normal clusters of equal size around -.4 and .5 in every column, moved into [-1, 1].

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
    >>> data, truth = clusters(1000)
    >>> truth.tolist(), bool(np.abs(data.read(0, 1000)["X"]).max() <= 1)
    ([[-0.4], [0.5]], True)
    """
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    truth = np.repeat([[-0.4], [0.5]], n_features, axis=1)

    rows = LAW.rows(truth[::-1])
    return Generation("densities.clusters", placing).dataset(n_rows, np.zeros(n_features), rows=rows)[0], truth


class DensityDistance(TruthMetric):
    """Densities, by the means of kernels (which are at most 1) at fresh points."""

    answer = Answer.DENSITIES
    what = (
        f"root mean squared error of the means of Gaussian kernels, at most 1 each, at {N_POINTS} points of the law "
        f"(bandwidths {BANDWIDTHS[0]} and {BANDWIDTHS[1]})"
    )

    def error(self, model: Any) -> float:
        wrong = [self._kernel_means(model, h) - self._truth(h) for h in BANDWIDTHS]
        return float(np.sqrt(np.mean(np.square(wrong))))

    def trivial(self) -> float:
        return float(np.sqrt(np.mean([np.var(self._truth(h)) for h in BANDWIDTHS])))

    def reference(self, X: Array, y: Any) -> Any:
        def density(points: Array, bandwidth: float) -> Array:
            scale = (bandwidth * math.sqrt(2 * math.pi)) ** X.shape[1]
            return np.array([np.exp(-((X - at) ** 2).sum(axis=1) / (2 * bandwidth**2)).mean() for at in points]) / scale

        return SimpleNamespace(density=density)

    @property
    def _points(self) -> Array:
        return self.world.X[:N_POINTS]

    def _kernel_means(self, model: Any, bandwidth: float) -> Array:
        scale = (bandwidth * math.sqrt(2 * math.pi)) ** self.world.truth.shape[1]
        return np.asarray(model.density(self._points, bandwidth)) * scale

    def _truth(self, bandwidth: float) -> Array:
        return LAW.kernel_means(self.world.truth, self._points, bandwidth)


PROBLEMS = (Problem("clusters", "densities: numbers in two clusters", clusters, parameters(d=1), (DensityDistance,)),)

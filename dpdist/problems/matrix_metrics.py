"""How far subspaces and matrices are from the truth, which is the matrix ``E x x'`` of the rows."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.metrics import Array, TruthMetric

REFERENCE_ROUNDS = 50


class MatrixMetric(TruthMetric):
    """Compares with a symmetric matrix; the reference is the one of the training rows."""

    def trivial(self) -> float:
        p = len(self.world.truth)
        return self._distance(np.eye(p) * np.trace(self.world.truth) / p)

    def error(self, model: Any) -> float:
        return self._distance(getattr(model, self.answer.attribute))

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(**{self.answer.attribute: second_moments(X)})

    def _distance(self, matrix: Array) -> float:
        """Relative, in the spectral norm."""
        return float(np.linalg.norm(matrix - self.world.truth, 2) / np.linalg.norm(self.world.truth, 2))


class SecondMomentDistance(MatrixMetric):
    """Second moments, as released."""

    answer = Answer.SECOND_MOMENTS
    what = "spectral distance to the true second moments, relative to their norm"


class CovarianceDistance(MatrixMetric):
    """Covariance matrices of rows that have no mean."""

    answer = Answer.COVARIANCE
    what = "spectral distance to the true covariance, relative to its norm"


class PrecisionDistance(MatrixMetric):
    """Inverses of covariance matrices."""

    answer = Answer.PRECISION
    what = "Frobenius distance to the true precision matrix, relative to its norm"

    def trivial(self) -> float:
        """Of taking the columns for independent, each with its true variance."""
        return self._distance(np.diag(1 / np.diag(self.world.truth)))

    def reference(self, X: Array, y: Any) -> Any:
        S = second_moments(X)
        return SimpleNamespace(precision_=np.linalg.inv(S) if len(X) > 2 * len(S) else np.diag(1 / np.diag(S)))

    def _distance(self, matrix: Array) -> float:
        truth = np.linalg.inv(self.world.truth)
        return float(np.linalg.norm(matrix - truth) / np.linalg.norm(truth))


class SubspaceDistance(TruthMetric):
    """Subspaces of the largest eigenvalues, by their projectors."""

    answer = Answer.SUBSPACE
    what = "Frobenius distance of the projector on the components from the true one"

    def error(self, model: Any) -> float:
        found, k = np.asarray(model.components_), self._rank
        overlap = float(np.sum((found @ leading(self.world.truth, k)) ** 2))
        return math.sqrt(max(0.0, len(found) + k - 2 * overlap))

    def trivial(self) -> float:
        """That of a random subspace (root mean square)."""
        k = self._rank
        return math.sqrt(2 * k * (1 - k / len(self.world.truth)))

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(components_=leading(second_moments(X), self._rank).T)

    @property
    def _rank(self) -> int:
        return int(self.world.parameters["n_components"])


class SparseSubspaceDistance(SubspaceDistance):
    """The same where few columns matter, and the reference knows how many."""

    def reference(self, X: Array, y: Any) -> Any:
        found = sparse_leading(second_moments(X), self._rank, int(self.world.parameters["n_nonzero"]))
        return SimpleNamespace(components_=found.T)


def second_moments(X: Array) -> Array:
    """``X'X / n``, without privacy."""
    return np.asarray(X.T @ X / len(X), dtype=np.float64)


def leading(matrix: Array, k: int) -> Array:
    """Eigenvectors of the k largest eigenvalues, as columns.

    >>> np.abs(leading(np.diag([1.0, 3.0, 2.0]), 2)).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    return np.asarray(np.linalg.eigh(matrix)[1][:, : -k - 1 : -1])


def sparse_leading(matrix: Array, k: int, n_nonzero: int) -> Array:
    """The same with few nonzero rows: orthogonal iteration that keeps the longest (Wang, Lu and Liu 2014).

    >>> np.abs(sparse_leading(np.diag([1.0, 3.0, 2.9]), 1, 1)).round(9).tolist()
    [[0.0], [1.0], [0.0]]
    """
    U = leading(matrix, k)
    for _ in range(REFERENCE_ROUNDS):
        U = np.linalg.qr(matrix @ U)[0]
        U[np.argsort(np.einsum("ij,ij->i", U, U))[: len(U) - max(k, n_nonzero)]] = 0.0
        U = np.linalg.qr(U)[0]
    return np.asarray(U)

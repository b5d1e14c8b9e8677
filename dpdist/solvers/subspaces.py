"""Principal subspaces of noisy symmetric matrices, dense and sparse.

A released second moment is indefinite: noise gives it negative eigenvalues that may be larger in size than the small
positive ones, so everything here goes by the algebraically largest eigenvalues and never by their size.

`fantope_pca` is Fantope projection and selection (Vu, Cho, Lei and Rohe 2013; seed 000, Algorithm 6.1.47): the
k-subspace that is best for ``<S, X> - penalty ||X||_1`` over the Fantope ``{0 <= X <= I, tr X = k}``, the convex hull
of the projections of rank k, by the alternating direction method of multipliers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from dpdist.constraints import soft_threshold

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

SUPPORT = 1e-3
"""A column is in the support where its part of the projection's diagonal is above this, relative to the largest."""


def top_eigenspace(matrix: Matrix, k: int) -> tuple[Vector, Matrix]:
    """The k algebraically largest eigenvalues, largest first, and their eigenvectors.

    Parameters
    ----------
    matrix : array of shape (p, p)
        Symmetric; it may have negative eigenvalues.
    k : int

    Returns
    -------
    values : array of shape (k,)
    vectors : array of shape (p, k)
        Orthonormal columns; the entry of each that is the largest in size is positive, so that equal matrices give
        equal vectors.

    Examples
    --------
    >>> values, vectors = top_eigenspace(np.diag([1.0, -3.0, 2.0]), 2)
    >>> values.tolist(), vectors.T.tolist()
    ([2.0, 1.0], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    """
    p = len(matrix)
    if not 1 <= k <= p:
        raise ValueError(f"k must be from 1 to the number of columns, {p}; got {k}")
    values, vectors = eigh((matrix + matrix.T) / 2, subset_by_index=[p - k, p - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(k)]
    return values.copy(), vectors * np.where(largest < 0, -1.0, 1.0) + 0.0


def subspace_error(A: Matrix, B: Matrix) -> float:
    """``||A A' - B B'||_F`` of two matrices of k orthonormal columns: 0 to ``sqrt(2 min(k, p - k))``.

    The square is twice that of the sines of the angles between the subspaces, ``2 (k - ||A'B||_F^2)``.

    Examples
    --------
    >>> subspace_error(np.eye(3)[:, :1], np.eye(3)[:, 1:2]) == math.sqrt(2)
    True
    """
    if A.shape != B.shape:
        raise ValueError(f"two subspaces of one dimension, given as (p, k) matrices: got {A.shape} and {B.shape}")
    rest = A - B @ (B.T @ A)  # not k - ||A'B||^2, which cancels where they are close
    return math.sqrt(2.0) * float(np.linalg.norm(rest))


def chance_error(p: int, k: int) -> float:
    """The `subspace_error` of a subspace drawn at random, root mean square: ``sqrt(2 k (1 - k / p))``.

    >>> round(chance_error(15, 2), 2)
    1.86
    """
    return math.sqrt(2 * k * (1 - k / p))


def predicted_subspace_error(noise_std: float, p: int, k: int, gap: float) -> float:
    """What noise does to the top k-subspace, to first order: ``s sqrt(k (p - k)) / gap``; no more than chance.

    Parameters
    ----------
    noise_std : float
        s, of an entry of ``svec`` of the matrix: ``sqrt(2)`` times that of an entry off the diagonal.
    p, k : int
    gap : float
        Between the k-th eigenvalue and the next one.

    Examples
    --------
    >>> round(predicted_subspace_error(0.01, 30, 3, 0.1), 3)
    0.9
    """
    return min(noise_std * math.sqrt(k * (p - k)) / gap, chance_error(p, k))


def expected_subspace_error(
    matrix: Matrix, k: int, off_diagonal_std: float, diagonal_std: float, n_rows: float
) -> float:
    """How far the top k-subspace of a noisy second moment is from that of the exact one: root mean square.

    For eigenvalues l and eigenvectors u of the noisy matrix, ``sqrt(2 sum_i a_i / (1 + a_i))`` over the first k, with
    ``a_i = sum_{j > k} v_ij / (l_i - l_j)^2`` and v_ij the variance of ``u_i' E u_j``: of the noise, and of the rows
    (normal ones: ``l_i l_j / n``). To first order that is the error for the true eigenvalues; those of a noisy matrix
    lie further apart, and a spike among noise of total variance ``p s^2 = x l^2`` has ``a = x / (1 - x)`` and the
    squared sine x (Benaych-Georges and Nadakuditi 2011), which ``a / (1 + a)`` gives back, noise alone included.

    Parameters
    ----------
    matrix : array of shape (p, p)
        Symmetric, as released.
    k : int
    off_diagonal_std, diagonal_std : float
        Of the noise in an entry.
    n_rows : float
        How many rows the mean is of.

    Examples
    --------
    >>> round(expected_subspace_error(np.diag([0.5, 0.1, 0.1]), 1, 0.02, 0.02 * math.sqrt(2), 1e9), 3)
    0.1
    """
    values, vectors = eigh((matrix + matrix.T) / 2)
    top, rest = values[-k:], values[:-k]
    together = np.square(vectors[:, -k:]).T @ np.square(vectors[:, :-k])
    noise = off_diagonal_std**2 + (diagonal_std**2 - 2 * off_diagonal_std**2) * together
    rows = np.outer(np.maximum(top, 0.0), np.maximum(rest, 0.0)) / n_rows
    with np.errstate(divide="ignore", invalid="ignore"):
        turned = np.nan_to_num(((noise + rows) / np.square(top[:, None] - rest)).sum(axis=1), nan=np.inf)
        shares = 1.0 / (1.0 + 1.0 / turned)
    return min(math.sqrt(2 * float(shares.sum())), chance_error(len(matrix), k))


def fantope_project(matrix: Matrix, k: int) -> Matrix:
    """The nearest matrix with eigenvalues in [0, 1] and trace k.

    Its eigenvalues are ``clip(w - theta, 0, 1)``; their sum is piecewise linear in theta with breakpoints at ``w`` and
    ``w - 1``, so theta is found exactly between two of them.

    Examples
    --------
    >>> fantope_project(np.diag([3.0, 0.5, 0.25]), 2).round(12).diagonal().tolist()
    [1.0, 0.625, 0.375]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * fantope_values(values, k)) @ vectors.T


def fantope_values(values: Vector, k: int) -> Vector:
    """The same of eigenvalues: the nearest numbers in [0, 1] with the sum k."""
    if not 1 <= k <= len(values):
        raise ValueError(f"k must be from 1 to the number of columns, {len(values)}; got {k}")
    breaks = np.sort(np.concatenate([values, values - 1.0]))
    low, high = 0, len(breaks) - 1  # the sum falls from p >= k at the first to 0 at the last

    def total(theta: float) -> float:
        return float(np.clip(values - theta, 0.0, 1.0).sum())

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(breaks[middle]) >= k else (low, middle)
    above, below = total(breaks[low]), total(breaks[high])
    theta = breaks[low]
    if above > below:
        theta += (above - k) * (breaks[high] - breaks[low]) / (above - below)
    found: Vector = np.clip(values - theta, 0.0, 1.0)
    return found


@dataclass(frozen=True)
class SparseProjection:
    """What `fantope_pca` found.

    Attributes
    ----------
    projection : array of shape (p, p)
        In the Fantope: trace k, eigenvalues in [0, 1].
    sparse : array of shape (p, p)
        The same, but exactly sparse and in the Fantope up to the tolerance only.
    n_iter : int
    converged : bool
    """

    projection: Matrix
    sparse: Matrix
    n_iter: int
    converged: bool

    def support(self, k: int) -> NDArray[np.bool_]:
        """The columns that the subspace uses: diagonal above `SUPPORT` of the largest, the k largest at least."""
        diagonal = self.sparse.diagonal()
        chosen: NDArray[np.bool_] = diagonal > SUPPORT * max(float(diagonal.max()), 0.0)
        if chosen.sum() < k:
            chosen = np.zeros(len(diagonal), dtype=np.bool_)
            chosen[np.argsort(-diagonal, kind="stable")[:k]] = True
        return chosen


def fantope_pca(matrix: Matrix, k: int, penalty: float, tol: float = 1e-3, max_iter: int = 500) -> SparseProjection:
    """Maximise ``<S, X> - penalty ||X||_1`` over the Fantope ``{0 <= X <= I, tr X = k}``.

    Parameters
    ----------
    matrix : array of shape (p, p)
        S, symmetric, in any units: ``penalty`` has the same.
    k : int
    penalty : float
        On the size of all entries; 0 gives the projection on the top k-subspace.
    tol : float, default 1e-3
        Both residuals fall below ``tol sqrt(k)`` (Frobenius norm).
    max_iter : int, default 500

    Returns
    -------
    SparseProjection

    Examples
    --------
    >>> v = np.array([0.8, 0.6, 0.0, 0.0]); S = np.outer(v, v) + 0.05 * np.ones((4, 4))
    >>> fantope_pca(S, 1, penalty=0.1).support(1).tolist()
    [True, True, False, False]
    """
    S = (matrix + matrix.T) / 2
    p = len(S)
    if not (1 <= k <= p and penalty >= 0):
        raise ValueError(f"k must be from 1 to {p} and the penalty at least 0; got k={k}, penalty={penalty}")
    step = float(np.abs(S).max()) or 1.0
    sparse, dual = np.zeros((p, p)), np.zeros((p, p))
    projection, n_iter, converged = sparse, 0, False
    while n_iter < max_iter and not converged:
        projection = fantope_project(sparse - dual + S / step, k)
        before, sparse = sparse, soft_threshold(projection + dual, penalty / step)
        dual = dual + projection - sparse
        primal, moved = float(np.linalg.norm(projection - sparse)), float(np.linalg.norm(sparse - before))
        converged = max(primal, moved) <= tol * math.sqrt(k)
        if n_iter < 100 and primal > 10 * moved:
            step, dual = step * 2, dual / 2
        elif n_iter < 100 and moved > 10 * primal:
            step, dual = step / 2, dual * 2
        n_iter += 1
    return SparseProjection(projection, sparse, n_iter, converged)


def sparse_eigenspace(
    matrix: Matrix, k: int, penalty: float, refit: bool = True
) -> tuple[Vector, Matrix, NDArray[np.bool_]]:
    """Eigenvalues and vectors of the k-subspace that `fantope_pca` finds, and its support.

    Parameters
    ----------
    matrix : array of shape (p, p)
    k : int
    penalty : float
    refit : bool, default True
        The top k-subspace of the matrix within the support, whose entries are exactly 0 outside: without the shrinkage
        of the penalty. Otherwise that of the projection, as in the original.

    Returns
    -------
    values : array of shape (k,)
        ``v' S v`` of each vector, largest first.
    vectors : array of shape (p, k)
    support : array of shape (p,)

    Examples
    --------
    >>> v = np.array([0.8, 0.6, 0.0, 0.0]); S = np.outer(v, v) + 0.05 * np.ones((4, 4))
    >>> values, vectors, support = sparse_eigenspace(S, 1, penalty=0.1)
    >>> vectors[2:].tolist(), support.tolist()
    ([[0.0], [0.0]], [True, True, False, False])
    """
    found = fantope_pca(matrix, k, penalty)
    support = found.support(k)
    if not refit:
        _, vectors = top_eigenspace(found.projection, k)
        within, inner = top_eigenspace(vectors.T @ matrix @ vectors, k)  # in the order of the variances
        return within, vectors @ inner, support
    values, vectors = eigenspace_within(matrix, k, support)
    return values, vectors, support


def eigenspace_within(matrix: Matrix, k: int, support: NDArray[np.bool_]) -> tuple[Vector, Matrix]:
    """`top_eigenspace` of the rows and columns of the support; the vectors are exactly 0 outside.

    >>> eigenspace_within(np.diag([1.0, 3.0, 2.0]), 1, np.array([True, False, True]))[1].ravel().tolist()
    [0.0, 0.0, 1.0]
    """
    places = np.flatnonzero(support)
    values, inner = top_eigenspace(matrix[np.ix_(places, places)], k)
    vectors = np.zeros((len(matrix), k))
    vectors[places] = inner
    return values, vectors


def largest_diagonal(matrix: Matrix, count: int) -> NDArray[np.bool_]:
    """The columns with the largest entries of the diagonal, so many of them.

    >>> largest_diagonal(np.diag([1.0, 3.0, 2.0]), 2).tolist()
    [False, True, True]
    """
    chosen: NDArray[np.bool_] = np.zeros(len(matrix), dtype=np.bool_)
    chosen[np.argsort(-np.diag(matrix), kind="stable")[:count]] = True
    return chosen

"""Sparse precision matrices: ``min -log det T + <S, T> + penalty sum_{i != j} |T_ij|`` over positive definite T.

Only pairs of columns are penalised, as in scikit-learn. The published form has the diagonal in the penalty as well,
which adds the penalty to every variance: at the penalties that noise asks for, that was half of the error. What it was
good for, a minimiser for every S without negative eigenvalues, holds without it where S is positive definite: floor the
eigenvalues of a released second moment at a positive number first (`dpdist.solvers.spectral.psd_floor`), else the
objective may be unbounded below. At the minimum ``<S, T> + penalty sum_{i != j} |T_ij| = d`` (seed 000, (6.83); spec
06, section 5).

`glasso_capped` solves the same problem under ``T <= cap I`` in a number of steps that is fixed beforehand and enough
for every input: what a private release of the solution needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dpdist.constraints import soft_threshold

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Precision:
    """What `glasso` found.

    Attributes
    ----------
    precision : array of shape (d, d)
        Positive definite, with exact zeros.
    gap : float
        The objective is at most this above the minimum: a certificate, from a feasible point of the dual.
    n_iter : int
        Of the block that took most.
    """

    precision: Matrix
    gap: float
    n_iter: int


def glasso_objective(S: Matrix, precision: Matrix, penalty: float) -> float:
    """``-log det T + <S, T> + penalty sum_{i != j} |T_ij|``; infinite where T is not positive definite."""
    sign, log_det = np.linalg.slogdet(precision)
    if sign <= 0 or np.linalg.eigvalsh(precision)[0] <= 0:
        return math.inf
    return float(-log_det + (S * precision).sum() + (_of_pairs(len(S), penalty) * np.abs(precision)).sum())


def _of_pairs(d: int, penalty: float) -> Matrix:
    """The penalty of every entry: none on the diagonal."""
    return penalty * (1.0 - np.eye(d))


def glasso_gap(S: Matrix, precision: Matrix, penalty: float) -> float:
    """At most so far above the minimum: primal minus dual at ``T^-1``, each pair within the penalty of S.

    Examples
    --------
    >>> S = np.diag([1.0, 2.0]); glasso_gap(S, np.diag([1 / 1.0, 1 / 2.0]), 0.5) < 1e-12
    True
    """
    primal = glasso_objective(S, precision, penalty)
    if math.isinf(primal):
        return math.inf
    inverse = np.linalg.inv(precision)
    free = _of_pairs(len(S), penalty)
    dual = np.clip((inverse + inverse.T) / 2, S - free, S + free)
    values = np.linalg.eigvalsh(dual)
    return max(0.0, primal - float(np.log(values).sum()) - len(S)) if values[0] > 0 else math.inf


def glasso(matrix: Matrix, penalty: float, tol: float = 1e-8, max_iter: int = 5000) -> Precision:
    """The minimiser, block by block.

    Two columns that no chain of entries above ``penalty`` joins have a zero between them (Witten, Friedman and Simon
    2011; Mazumder and Hastie 2012), so the connected parts are solved one by one: each by the alternating direction
    method of multipliers, until the duality gap is certified.

    Parameters
    ----------
    matrix : array of shape (d, d)
        S; without negative eigenvalues, and with a positive diagonal.
    penalty : float
        Positive.
    tol : float, default 1e-8
        Gap, for each column.
    max_iter : int, default 5000

    Raises
    ------
    ValueError
        Where the problem has no minimiser, because S has a variance that is not positive, or negative eigenvalues that
        the penalty does not make up for.

    Examples
    --------
    >>> S = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.05], [0.0, 0.05, 1.0]])
    >>> found = glasso(S, 0.1)
    >>> bool(found.precision[0, 1] < 0), float(found.precision[0, 2]), found.gap < 1e-7
    (True, 0.0, True)
    """
    S = (matrix + matrix.T) / 2
    if not (math.isfinite(penalty) and penalty > 0):
        raise ValueError(f"penalty must be a positive number, got {penalty!r}")
    _check_bounded(S, penalty)
    n_blocks, labels = connected_components(np.abs(S) > penalty, directed=False)
    precision, gap, n_iter = np.zeros_like(S), 0.0, 0
    for block in range(n_blocks):
        places = np.flatnonzero(labels == block)
        part = _glasso_block(S[np.ix_(places, places)], penalty, tol * len(places), max_iter)
        precision[np.ix_(places, places)] = part.precision
        gap, n_iter = gap + part.gap, max(n_iter, part.n_iter)
    return Precision(precision, gap, n_iter)


def _check_bounded(S: Matrix, penalty: float) -> None:
    if (least := float(np.diag(S).min())) <= 0:
        raise ValueError(
            f"the graphical lasso has no minimiser here: the matrix has a variance of {least:.3g}, and only pairs are "
            "penalised. Floor its eigenvalues at a positive number first (psd_floor)"
        )
    lowest = float(np.linalg.eigvalsh(S)[0])
    if lowest < 0 and lowest <= -penalty * (len(S) - 1):
        raise ValueError(
            f"the graphical lasso has no minimiser here: the matrix has an eigenvalue of {lowest:.3g}, and no matrix "
            f"within {penalty:.3g} of each of its pairs is positive. Floor its eigenvalues at a positive number first "
            "(psd_floor)"
        )


def _glasso_block(S: Matrix, penalty: float, tol: float, max_iter: int) -> Precision:
    d = len(S)
    if d == 1:
        return Precision(1.0 / S, 0.0, 0)
    variances, level = S.diagonal(), _of_pairs(d, penalty)
    mu = float((variances**2).mean())
    sparse, dual = np.diag(1.0 / variances), np.zeros((d, d))
    for t in range(1, max_iter + 1):
        values, vectors = np.linalg.eigh(mu * (sparse - dual) - S)
        root = np.sqrt(values**2 + 4 * mu)
        # the positive root of mu x^2 - w x - 1; for w < 0 written without cancellation
        dense = (vectors * np.where(values > 0, (values + root) / (2 * mu), 2 / (root - values))) @ vectors.T
        before, sparse = sparse, soft_threshold(dense + dual, level / mu)
        dual = dual + dense - sparse
        if t % 5 == 0:
            gap = glasso_gap(S, sparse, penalty)
            if gap <= tol:
                return Precision(sparse, gap, t)
            primal, moved = np.linalg.norm(dense - sparse), np.linalg.norm(sparse - before)
            if t < 200 and primal > 5 * moved:
                mu, dual = mu * 2, dual / 2
            elif t < 200 and moved > 5 * primal:
                mu, dual = mu / 2, dual * 2
    if math.isinf(gap):
        raise ValueError(
            f"the graphical lasso found no minimiser in {max_iter} steps: the smallest eigenvalue of the matrix is "
            f"{float(np.linalg.eigvalsh(S)[0]):.3g}. Floor its eigenvalues at a positive number first (psd_floor)"
        )
    return Precision(sparse, gap, max_iter)


# --- under a cap of the eigenvalues, in a public number of steps ------------------------------------------------------


def glasso_capped(matrix: Matrix, penalty: float, cap: float, n_steps: int) -> Matrix:
    """The minimiser over ``0 < T <= cap I``, by exactly ``n_steps`` steps of FISTA on the dual.

    The dual is ``max g(W)`` over the W that have the diagonal of S and their other entries within ``penalty`` of its
    own, ``g(W) = min_{0 < T <= cap} -log det T + <W, T>``. Its gradient is ``T(W)``, the eigenvalues w of W turned into
    ``min(1/w, cap)`` (``cap`` where w is not positive), and has the Lipschitz constant ``cap^2``. Nothing is stopped
    early: the steps do not depend on S.

    Parameters
    ----------
    matrix : array of shape (d, d)
        S, any symmetric matrix: the capped problem always has one minimiser.
    penalty, cap : float
    n_steps : int
        T; `capped_error` says how far the result may be from the minimiser.

    Returns
    -------
    array of shape (d, d)
        With eigenvalues in (0, cap]; its sparsity is approximate.

    Examples
    --------
    >>> glasso_capped(np.diag([1.0, 0.0]), 0.1, cap=4.0, n_steps=200).round(6).tolist()
    [[1.0, 0.0], [0.0, 4.0]]
    """
    S = (matrix + matrix.T) / 2
    free = _of_pairs(len(S), penalty)
    low, high = S - free, S + free
    W, point, momentum = S, S, 1.0
    for _ in range(n_steps):
        before, W = W, np.clip(point + _capped_inverse(point, cap) / cap**2, low, high)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = W + (momentum - 1) / following * (W - before)
        momentum = following
    return _capped_inverse(W, cap)


def capped_error(d: int, penalty: float, cap: float, n_steps: int, largest: float) -> float:
    """How far `glasso_capped` may be from the minimiser (Frobenius norm), for every matrix of that size.

    ``2 cap^2 b / (T + 1)``: the dual starts within ``b = penalty sqrt(d (d - 1))`` of its solution, because d (d - 1)
    entries may move by the penalty. FISTA leaves ``2 cap^2 b^2 / (T + 1)^2`` of its value, and a concave function with
    that Lipschitz constant has ``||T(W) - T(W*)||_F^2 <= 2 cap^2 (g* - g(W))``. Rounding of the T eigen-decompositions
    adds ``2 T e``, where e bounds the error of one gradient (inexact accelerated steps: Schmidt, Le Roux and Bach
    2011); e is taken as ``64 d 2^-52 (cap^2 (largest + 3 penalty d) + cap sqrt(d))``, tens of times what backward
    stable routines do.

    Parameters
    ----------
    d : int
    penalty, cap : float
    n_steps : int
    largest : float
        Public bound of the Frobenius norm of S.

    Examples
    --------
    >>> round(capped_error(12, 0.05, 4.0, 200, 1.0), 3)
    0.091
    """
    rounding = 64 * d * 2.0**-52 * (cap**2 * (largest + 3 * penalty * d) + cap * math.sqrt(d))
    return 2 * cap**2 * penalty * math.sqrt(d * (d - 1)) / (n_steps + 1) + 2 * (n_steps + 1) * rounding


def _capped_inverse(W: Matrix, cap: float) -> Matrix:
    values, vectors = np.linalg.eigh(W)
    return (vectors * (1.0 / np.maximum(values, 1.0 / cap))) @ vectors.T

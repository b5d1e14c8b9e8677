"""Fits of many small blocks of rows at once: least squares and logistic regression, one solution per block.

For sample-and-aggregate, where a block of ``size`` consecutive rows is fitted without privacy and only the aggregate
of the solutions is released. A block's solution is a function of its own rows, computed in a fixed order, so it has the
same bits wherever the block is and whatever lies beside it. Nothing here raises, for any rows: where there is no
solution (too few good rows, a singular system, an overflow) it is NaN. The number of steps is public.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import writable
from dpdist.kernels.compiled import kernel

NEWTON_STEPS = 10
"""Of a logistic fit."""
SMALLEST_PIVOT = 1e-12
"""A pivot of a Cholesky factorisation below this part of the diagonal entry counts as 0."""


def least_squares_blocks(
    X: NDArray[np.floating], y: NDArray[np.float64], size: int, *, alpha: float = 0.0, intercept: bool = True
) -> NDArray[np.float64]:
    """``argmin_w sum_i (<x_i, w> + b - y_i)^2 / (2 size) + alpha ||w||^2 / 2`` of every block.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
    y : ndarray of shape (n,)
        Rows with an entry that is not finite are left out of their block.
    size : int
        Rows per block; rows after the last complete block are left out.
    alpha : float
        Ridge penalty, not applied to the intercept.
    intercept : bool
        Whether there is one, the last parameter.

    Returns
    -------
    ndarray of shape (n // size, d + intercept)

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [1.0], [1.0], [1.0]])
    >>> least_squares_blocks(X, np.array([1.0, 3.0, 5.0, 1.0, 2.0, 3.0]), 3).round(9)
    array([[ 2.,  1.],
           [nan, nan]])
    """
    p = X.shape[1] + intercept
    X, y = writable(np.ascontiguousarray(X)), writable(np.ascontiguousarray(y))
    out = np.empty((len(y) // size, p))
    _least_squares(X, y, size, float(alpha), np.empty((p, p)), np.ones((2, p)), out)
    return out


def logistic_blocks(
    X: NDArray[np.floating], y: NDArray[np.float64], size: int, *, alpha: float = 0.0, intercept: bool = True
) -> NDArray[np.float64]:
    """``argmin_w sum_i ln(1 + exp(-y_i (<x_i, w> + b))) / size + alpha ||w||^2 / 2`` of every block, by Newton steps.

    ``NEWTON_STEPS`` steps from 0, each shortened by ``ln(1 + r) / r`` with ``r`` the largest change of a margin: the
    objective cannot rise then (Bach 2010), so that separable blocks give a direction and no overflow.

    Parameters
    ----------
    X, size, alpha, intercept
        As in `least_squares_blocks`.
    y : ndarray of shape (n,)
        -1 or +1; a row with another label is left out.

    Returns
    -------
    ndarray of shape (n // size, d + intercept)
    """
    p = X.shape[1] + intercept
    X, y = writable(np.ascontiguousarray(X)), writable(np.ascontiguousarray(y))
    out = np.empty((len(y) // size, p))
    _logistic(X, y, size, float(alpha), np.empty((p, p)), np.ones((3, p)), out)
    return out


@kernel
def _least_squares(X, y, size, alpha, matrix, vectors, out):  # type: ignore[no-untyped-def]
    d, p = X.shape[1], out.shape[1]
    row, vector = vectors[0], vectors[1]
    for block in range(out.shape[0]):
        matrix[:] = 0.0
        vector[:] = 0.0
        for i in range(block * size, (block + 1) * size):
            good = math.isfinite(y[i])
            for j in range(d):
                row[j] = X[i, j]
                good &= math.isfinite(row[j])
            if good:
                for a in range(p):
                    vector[a] += row[a] * y[i]
                    for b in range(a, p):
                        matrix[a, b] += row[a] * row[b]
        for j in range(d):
            matrix[j, j] += alpha * size
        _solve(matrix, vector)
        for j in range(p):
            out[block, j] = vector[j]


@kernel
def _logistic(X, y, size, alpha, matrix, vectors, out):  # type: ignore[no-untyped-def]
    d, p = X.shape[1], out.shape[1]
    row, step, w = vectors[0], vectors[1], vectors[2]
    for block in range(out.shape[0]):
        w[:] = 0.0
        for _ in range(NEWTON_STEPS):
            matrix[:] = 0.0
            step[:] = 0.0
            for i in range(block * size, (block + 1) * size):
                if _load(X, y, i, row):
                    margin = 0.0
                    for j in range(p):
                        margin += row[j] * w[j]
                    chance = 1 / (1 + math.exp(y[i] * margin))  # of the other label
                    curvature = chance * (1 - chance)
                    for a in range(p):
                        step[a] += y[i] * chance * row[a]
                        for b in range(a, p):
                            matrix[a, b] += curvature * row[a] * row[b]
            for j in range(d):
                matrix[j, j] += alpha * size
                step[j] -= alpha * size * w[j]
            _solve(matrix, step)
            reach = 0.0
            for i in range(block * size, (block + 1) * size):
                if _load(X, y, i, row):
                    change = 0.0
                    for j in range(p):
                        change += row[j] * step[j]
                    if not abs(change) <= reach:  # also if it is NaN
                        reach = abs(change)
            shrink = math.log1p(reach) / reach if reach > 0 else 1.0
            for j in range(p):
                w[j] += shrink * step[j]
        for j in range(p):
            out[block, j] = w[j]


@kernel
def _load(X, y, i, row):  # type: ignore[no-untyped-def]
    """The features of a row with a label that counts; False where it is a null row."""
    good = abs(y[i]) == 1.0
    for j in range(X.shape[1]):
        row[j] = X[i, j]
        good &= math.isfinite(row[j])
    return good


@kernel
def _solve(matrix, vector):  # type: ignore[no-untyped-def]
    """Solve in place, by Cholesky's factorisation of the upper triangle; NaN where it is not positive definite."""
    p = len(vector)
    for a in range(p):
        smallest = SMALLEST_PIVOT * matrix[a, a]
        for c in range(a):
            matrix[a, a] -= matrix[c, a] * matrix[c, a]
        if not matrix[a, a] > smallest:
            vector[:] = np.nan
            return
        pivot = math.sqrt(matrix[a, a])
        matrix[a, a] = pivot
        for c in range(a):
            for b in range(a + 1, p):
                matrix[a, b] -= matrix[c, a] * matrix[c, b]
        for b in range(a + 1, p):
            matrix[a, b] /= pivot
    for a in range(p):
        for c in range(a):
            vector[a] -= matrix[c, a] * vector[c]
        vector[a] /= matrix[a, a]
    for a in range(p - 1, -1, -1):
        for b in range(a + 1, p):
            vector[a] -= matrix[a, b] * vector[b]
        vector[a] /= matrix[a, a]

"""Symmetric matrices as vectors with the same inner product.

The upper triangle row by row, as `dpdist.kernels.moments` packs it, with the entries off the diagonal times sqrt(2):
``<svec(A), svec(B)> = <A, B>_F``, so that noise and norms mean the same for the vector and for the matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import kernel
from dpdist.kernels.moments import unpack_symmetric

ROOT2 = math.sqrt(2.0)


def packed_size(size: int) -> int:
    """Entries of the upper triangle of a matrix of that size.

    >>> packed_size(3)
    6
    """
    return size * (size + 1) // 2


def packed_scale(size: int) -> NDArray[np.float64]:
    """1 for the packed entries of the diagonal, sqrt(2) for the others."""
    rows, columns = np.triu_indices(size)
    return np.where(rows == columns, 1.0, ROOT2)


def svec(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The vector of a symmetric matrix.

    Examples
    --------
    >>> matrix = np.array([[1.0, 2.0], [2.0, -1.0]])
    >>> bool(np.isclose(np.linalg.norm(svec(matrix)), np.linalg.norm(matrix)))
    True
    """
    return matrix[np.triu_indices(len(matrix))] * packed_scale(len(matrix))


def smat(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix of a vector, the inverse of `svec`.

    >>> smat(svec(np.array([[1.0, 2.0], [2.0, -1.0]]))).round(12).tolist()
    [[1.0, 2.0], [2.0, -1.0]]
    """
    size = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    return unpack_symmetric(vector / packed_scale(size))


@kernel
def products_into(X: Any, weight: float, out: Any) -> None:
    """``weight svec(x x')`` of every row of X, into the first columns of ``out``.

    Parameters
    ----------
    X : ndarray of shape (m, d)
    weight : float
    out : ndarray of shape (m, D), ``D >= d (d + 1) / 2``
    """
    m, d = X.shape
    for i in range(m):
        at = 0
        for j in range(d):
            out[i, at] = weight * X[i, j] * X[i, j]
            at += 1
            scaled = weight * ROOT2 * X[i, j]
            for k in range(j + 1, d):
                out[i, at] = scaled * X[i, k]
                at += 1

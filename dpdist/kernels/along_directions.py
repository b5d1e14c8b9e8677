"""Coordinates of rows along a few public directions, and what is left of their length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import writable
from dpdist.kernels.block_steps import NORM2_HIGH, NORM2_LOW
from dpdist.kernels.clip import row_norms
from dpdist.kernels.compiled import kernel

LANES = 8
"""Directions that are multiplied at a time."""


def coordinates(X: NDArray[Any], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(x'U, sqrt(max(0, |x|^2 - |x'U|^2)))`` of each row, for orthonormal columns of U: as long as the row.

    A row has the same bits alone and in company. One with a number that is not finite is NaN; one whose square would be
    out of range becomes 0, or as long as the range allows.

    Examples
    --------
    >>> coordinates(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]]), np.array([[0.6], [0.8], [0.0]]))
    array([[5., 0.],
           [0., 2.]])
    """
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    d, k = directions.shape
    padded = np.zeros((d, -(-k // LANES) * LANES))
    padded[:, :k] = directions
    products, norms2 = np.empty((len(X), padded.shape[1])), np.empty(len(X))
    _products(writable(X), padded, products, norms2)
    rare = ~((norms2 >= NORM2_LOW) & (norms2 <= NORM2_HIGH))
    if rare.any():
        few = np.array(X[rare], dtype=np.float64)
        few[~np.isfinite(few).all(axis=1)] = np.nan
        with np.errstate(all="ignore"):
            longest = math.sqrt(NORM2_HIGH) / 2
            long = np.abs(few).max(axis=1) > longest / d
            few[long] /= np.abs(few[long]).max(axis=1, keepdims=True)
            few[long] *= longest / row_norms(few[long])[:, None]
        again, squares = np.empty((len(few), padded.shape[1])), np.empty(len(few))
        _products(few, padded, again, squares)
        products[rare], norms2[rare] = again, squares
    found = np.empty((len(X), k + 1))
    found[:, :k] = products[:, :k]
    left = norms2.copy()
    for column in range(k):
        left -= np.square(found[:, column])
    found[:, k] = np.sqrt(np.maximum(left, 0.0))
    return found


@kernel
def _products(X, directions, products, norms2):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for i in range(n):
        norm2 = 0.0
        for j in range(d):
            norm2 += np.float64(X[i, j]) * np.float64(X[i, j])
        norms2[i] = norm2
        for first in range(0, directions.shape[1], LANES):
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
            for j in range(d):
                x = np.float64(X[i, j])
                a0 += x * directions[j, first]
                a1 += x * directions[j, first + 1]
                a2 += x * directions[j, first + 2]
                a3 += x * directions[j, first + 3]
                a4 += x * directions[j, first + 4]
                a5 += x * directions[j, first + 5]
                a6 += x * directions[j, first + 6]
                a7 += x * directions[j, first + 7]
            products[i, first] = a0
            products[i, first + 1] = a1
            products[i, first + 2] = a2
            products[i, first + 3] = a3
            products[i, first + 4] = a4
            products[i, first + 5] = a5
            products[i, first + 6] = a6
            products[i, first + 7] = a7

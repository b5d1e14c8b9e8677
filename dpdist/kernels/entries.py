"""Rows mapped to entries in [-1, 1], or into the unit ball, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.unit_vectors import row_product


@kernel
def finite_rows(X: Any, finite: Any) -> None:
    """Which rows have no entry that is not finite.

    Parameters
    ----------
    X : array of float32 or float64, shape (m, d)
    finite : array of bool, shape (m,)
    """
    m, d = X.shape
    for i in range(m):
        beyond = 0
        for j in range(d):
            beyond += not abs(X[i, j]) < np.inf
        finite[i] = not beyond


@kernel
def box_values(X: Any, low: float, high: float, centre: float, radius: float, out: Any) -> None:
    """``clip((clip(x, low, high) - centre) / radius, -1, 1)``; a row with an entry that is not finite gives zeros.

    Parameters
    ----------
    X : array of float32 or float64, shape (m, d)
    low, high, centre, radius : float
    out : array of float64, shape (m, d)
    """
    m, d = X.shape
    largest = np.finfo(np.float64).max
    for i in range(m):
        beyond = 0
        for j in range(d):
            x = np.float64(X[i, j])
            beyond += not abs(x) <= largest
            scaled = (min(max(x, low), high) - centre) / radius
            out[i, j] = min(max(scaled, -1.0), 1.0)
        if beyond:
            for j in range(d):
                out[i, j] = 0.0


@inlined_kernel
def _divided(X: Any, i: int, unit: float, out: Any) -> Any:
    """The row divided by ``unit``, and its sum of squares."""
    for j in range(X.shape[1]):
        out[i, j] = X[i, j] / unit
    return row_product(out, out, i, X.shape[1])


@kernel
def ball_values(X: Any, radius: float, target: float, out: Any) -> None:
    """``x / radius``, scaled down to norm ``target`` where it is longer; a row that is not finite gives zeros.

    Parameters
    ----------
    X : array of float32 or float64, shape (m, d)
    radius : float
    target : float
        ``1 - kappa(d)`` of `dpdist.kernels.clip`, so that the exact norm of the result is at most 1.
    out : array of float64, shape (m, d)
    """
    m, d = X.shape
    for i in range(m):
        unit = radius
        squares = _divided(X, i, unit, out)
        if not squares < 1e200:  # too long to be squared, or not finite
            unit = 0.0
            for j in range(d):
                unit = max(unit, abs(np.float64(X[i, j])))
            squares = _divided(X, i, unit, out)
        if not squares < np.inf:
            for j in range(d):
                out[i, j] = 0.0
            continue
        norm = np.sqrt(squares)
        if norm > target or unit != radius:
            factor = target / norm
            for j in range(d):
                out[i, j] *= factor

"""Sums of a loss at many points at once, in integers: tiles of rows and points, each a matrix product and a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.clip import clip_l2, sanitise
from dpdist.kernels.grid import to_units
from dpdist.losses import Loss

_ROWS, _POINTS = 64, 512


def loss_table(
    X: NDArray[Any],
    y: NDArray[Any],
    points: NDArray[np.float64],
    loss: Loss,
    *,
    row_norm: float,
    bound: float,
    grid: float,
    intercept: float = 0.0,
    centred: bool = False,
) -> NDArray[np.int64]:
    """``sum_i clamp(l(<x_i, w_k>, y_i) - bound, -bound, bound)`` for every point ``w_k``, truncated to a grid.

    A row with a non-finite entry or label contributes 0, as does a value that is not a number. With ``centred``,
    ``l(0, y_i)`` is taken off in place of ``bound``.

    Examples
    --------
    >>> from dpdist.losses import Sigmoid
    >>> X, y = np.array([[1.0], [np.nan]]), np.array([1.0, 1.0])
    >>> loss_table(X, y, np.array([[0.0], [1e9]]), Sigmoid(), row_norm=1.0, bound=0.5, grid=2.0**-32) / 2**32
    array([ 0. , -0.5])
    """
    X, y, weight = sanitise(X, y, loss.labels)
    rows = clip_l2(X, row_norm)[weight > 0]
    y = y[weight > 0]
    if intercept:
        rows = np.column_stack([rows, np.full(len(rows), intercept)])
    total = np.zeros(len(points), dtype=np.int64)
    with np.errstate(all="ignore"):
        for start in range(0, len(rows), _ROWS):
            some, labels = rows[start : start + _ROWS], y[start : start + _ROWS, None]
            base = loss.value(np.zeros_like(labels), labels) if centred else bound
            for first in range(0, len(points), _POINTS):
                values = loss.value(_margins(some, points[first : first + _POINTS]), labels) - base
                units = np.trunc(np.clip(values, -bound, bound) / grid)
                found = units.sum(axis=0)
                if not np.isfinite(found).all():  # values that are no numbers
                    found = to_units(units, 1.0).sum(axis=0)
                total[first : first + _POINTS] += found.astype(np.int64)
    return total


def _margins(rows: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """``rows @ points.T``, feature by feature: the bits of a row's are the same wherever it stands, which BLAS does not
    promise, and which a sum needs of which one row is replaced."""
    margins = np.zeros((len(rows), len(points)))
    for column, weights in zip(rows.T, points.T, strict=True):
        margins += column[:, None] * weights
    return margins

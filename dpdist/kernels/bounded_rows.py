"""Rows with a label, made harmless in one pass: cut entry by entry, scaled down, and zero where a number is missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import writable
from dpdist.kernels.clip import kappa
from dpdist.kernels.compiled import kernel

Floats = NDArray[np.float64]


def bounded_rows(
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    row_norm: float | None = None,
    feature_bound: float | None = None,
    scale_labels: bool = False,
) -> tuple[Floats, Floats]:
    """Rows with entries of at most ``feature_bound``, then of norm at most ``row_norm``, and their labels.

    A record with a number that is not finite becomes zeros, label included.

    Parameters
    ----------
    X : ndarray of shape (m, d)
    y : ndarray of shape (m,) or (m, 1)
    row_norm, feature_bound : float, optional
        Public.
    scale_labels : bool
        Whether the label of a row that is scaled down is scaled with it: a linear relation of the two then stays.

    Examples
    --------
    >>> X, y = bounded_rows(np.array([[3.0, 4.0], [np.nan, 1.0]]), np.array([7.0, 8.0]), row_norm=1.0)
    >>> X.round(9).tolist(), y.tolist()
    ([[0.6, 0.8], [0.0, 0.0]], [7.0, 0.0])
    """
    X = writable(np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64))
    y = np.array(y, dtype=np.float64).reshape(len(X))
    out = np.empty(X.shape)
    limit = math.inf if row_norm is None else row_norm * (1 - kappa(X.shape[1]))
    _bounded(writable(X), y, limit, math.inf if feature_bound is None else feature_bound, scale_labels, out)
    return out, y


@kernel
def _bounded(X, y, limit, bound, scale_labels, out):  # type: ignore[no-untyped-def]
    m, d = X.shape
    for i in range(m):
        finite = np.isfinite(y[i])
        largest = 0.0
        for j in range(d):
            value = np.float64(X[i, j])
            finite = finite and np.isfinite(value)
            value = min(max(value, -bound), bound)
            out[i, j] = value
            largest = max(largest, abs(value))
        if not finite:
            y[i] = 0.0
            for j in range(d):
                out[i, j] = 0.0
            continue
        unit = 1.0 if 1e-100 < largest < 1e100 else max(largest, 1e-300)  # squares neither overflow nor vanish
        square = 0.0
        for j in range(d):
            square += (out[i, j] / unit) ** 2 if unit != 1.0 else out[i, j] * out[i, j]
        root = math.sqrt(square)
        if root > limit / unit:
            for j in range(d):
                out[i, j] = out[i, j] / unit * (limit / root)
            if scale_labels:
                y[i] = y[i] / unit * (limit / root)

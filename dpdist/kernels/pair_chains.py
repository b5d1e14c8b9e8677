"""Online descent over a stream of rows: each new row against those of opposite class before it, or in a buffer.

The loss of a positive row i and a negative row j is ``ln(1 + exp(-2 <v, x_i - x_j>))``; pairs of one class have none.
When row t arrives,

    v <- project(v - eta_t (gradient of the mean over the past + ridge v))

onto the ball of norm ``radius`` (Pairwise GIGA; seed 000, section 3.3). All sums are added up in the order of the rows,
so that a stream gives the same points wherever it is stored.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.compiled import kernel
from dpdist.losses.loss import LARGEST_EXPONENT, fast_exp

Floats = NDArray[np.float64]


def pair_chain(
    X: NDArray[Any],
    y: NDArray[Any],
    steps: Floats,
    ridge: float,
    radius: float,
    row_norm: float,
    past: NDArray[np.int32] | None = None,
) -> Floats:
    """The point behind every row.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows are clipped to ``row_norm``.
    y : ndarray of shape (n,)
        +1 or -1; a row with another label, or with a number that is not finite, is in no pair.
    steps : ndarray of shape (n,)
        ``eta_t``; 0: no step.
    ridge, radius, row_norm : float
    past : ndarray of int32 of shape (n, s), optional
        Numbers of the rows that each row is compared with, -1 for none. Default: all before it.

    Returns
    -------
    ndarray of shape (n, d)

    Examples
    --------
    >>> X, y = np.array([[0.5], [-0.5]]), np.array([1.0, -1.0])
    >>> pair_chain(X, y, np.array([0.0, 1.0]), 0.1, 10.0, 1.0).tolist()  # 2 k(0) (x_i - x_j)
    [[0.0], [1.0]]
    """
    y = np.asarray(y, dtype=np.float64).reshape(len(X))
    Z, labels = bounded_rows(X, y, row_norm=row_norm)
    points, scratch = np.zeros(Z.shape), np.zeros((2, Z.shape[1]))
    if past is None:
        sides, counts = np.empty((2, *Z.shape)), np.zeros(2, np.int64)  # rows of each class side by side
        _against_all(Z, labels, np.asarray(steps), ridge, radius, scratch, sides, counts, points)
    else:
        _against_some(Z, labels, np.asarray(steps), ridge, radius, past, scratch, points)
    return points


def chain_error(steps: Floats, ridge: float, radius: float, row_norm: float, n_features: int) -> Floats:
    """Largest distance of the computed points from the exact ones, point by point, for any rows.

    A gradient is off by the rounding of a mean of t terms of norm ``4 R`` whose scores are off by ``(d + 4) u R B``, a
    point by that of a few sums and of the projection; a step does not enlarge what is there.
    """
    u, t = 2.0**-53, np.arange(1, len(steps) + 1)
    gradient = (2 * t + 4 * n_features + 100) * u * 4 * row_norm * (1 + 2 * row_norm * radius)
    point = 8 * (n_features + 16) * u * radius
    found = np.zeros(len(steps))
    before = 0.0
    for i, eta in enumerate(steps):
        if eta > 0:
            before = (1 - eta * ridge) * before + eta * (gradient[i] + ridge * point) + point
        found[i] = before
    return found


@kernel
def _pull(Z, j, own, side, v, apart, pull):  # type: ignore[no-untyped-def]
    """Add ``k(side (s_t - s_j)) (x_t - x_j)`` to the pull."""
    other = 0.0
    for a in range(v.size):
        other += Z[j, a] * v[a]
    margin = 2.0 * side * (own - other)
    e = fast_exp(max(-abs(margin), -LARGEST_EXPONENT))
    k = (e if margin > 0.0 else 1.0) / (1.0 + e)
    for a in range(v.size):
        pull[a] += k * (apart[a] - Z[j, a])


@kernel
def _step(v, pull, factor, shrink, radius):  # type: ignore[no-untyped-def]
    square = 0.0
    for a in range(v.size):
        v[a] = shrink * v[a] + factor * pull[a]
        square += v[a] * v[a]
    if square > radius * radius:
        short = radius / math.sqrt(square)
        for a in range(v.size):
            v[a] *= short


@kernel
def _against_all(Z, y, steps, ridge, radius, scratch, sides, counts, points):  # type: ignore[no-untyped-def]
    n, d = Z.shape
    v, pull = scratch[0], scratch[1]
    for t in range(n):
        side = y[t]
        counted = abs(side) == 1.0
        opposite = 0 if side < 0.0 else 1
        if steps[t] > 0.0:
            own = 0.0
            for a in range(d):
                pull[a] = 0.0
                own += Z[t, a] * v[a]
            if counted:
                for j in range(counts[opposite]):
                    _pull(sides[opposite], j, own, side, v, Z[t], pull)
            factor = 2.0 * side * steps[t] / t if counted else 0.0
            _step(v, pull, factor, 1.0 - steps[t] * ridge, radius)
        for a in range(d):
            points[t, a] = v[a]
        if counted:
            for a in range(d):
                sides[1 - opposite, counts[1 - opposite], a] = Z[t, a]
            counts[1 - opposite] += 1


@kernel
def _against_some(Z, y, steps, ridge, radius, past, scratch, points):  # type: ignore[no-untyped-def]
    n, d = Z.shape
    v, pull = scratch[0], scratch[1]
    for t in range(n):
        side = y[t]
        if steps[t] > 0.0:
            own, held = 0.0, 0
            for a in range(d):
                pull[a] = 0.0
                own += Z[t, a] * v[a]
            for slot in range(past.shape[1]):
                j = past[t, slot]
                if j < 0:
                    continue
                held += 1
                if abs(side) == 1.0 and y[j] == -side:
                    _pull(Z, j, own, side, v, Z[t], pull)
            factor = 2.0 * side * steps[t] / held if abs(side) == 1.0 else 0.0
            _step(v, pull, factor, 1.0 - steps[t] * ridge, radius)
        for a in range(d):
            points[t, a] = v[a]

"""Sums over all pairs of rows of opposite classes, for the price of one pass: scores in bins, the sum in integers.

The gradient of the mean of ``phi(2 <w, x_i - x_j>)`` over pairs of a positive row i and a negative row j, with
``phi(u) = ln(1 + e^-u)``, is proportional to

    V = sum_{i, j} k(s_i - s_j) (x_i - x_j),    k(t) = 1 / (1 + e^(2 t)),    s = <w, x>.

Where a score counts as the middle of its bin, V follows from how many rows each class has in each bin, and from the
sums of their features there. One pass adds these up (`binned_rows`); `opposite_pairs` makes V of them.

Rows are truncated to multiples of ``2**-20`` of their bound and k to multiples of ``2**-20`` in [0, 1], so that every
pair adds an integer vector that is no longer than the bounds say, and V is exact: a billion rows are 10^17 pairs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.block_pass import scale_row
from dpdist.kernels.block_steps import NORM2_HIGH, NORM2_LOW
from dpdist.kernels.clip import kappa
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import power_grid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

N_BINS = 512
ROW_BITS, KERNEL_BITS = 20, 20
SMALLEST_WIDTH = 1e-200


def row_grid(row_norm: float) -> float:
    """Of the features of a row."""
    return power_grid(row_norm, ROW_BITS)


def pair_grid(row_norm: float) -> float:
    """Of what a pair adds."""
    return row_grid(row_norm) * 2.0**-KERNEL_BITS


def binned_rows(
    X: NDArray[Any], y: NDArray[Any], w: Floats, row_norm: float, weights: Integers | None = None
) -> Integers:
    """How many rows each class has in each bin of scores, and the sums of their features, in units of `row_grid`.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows are clipped to ``row_norm``.
    y : ndarray of shape (n,)
        +1 or -1; a row with another label, or with a number that is not finite, adds nothing.
    w : ndarray of shape (d,)
        The point whose scores are binned, from ``-row_norm ||w||`` to ``row_norm ||w||``.
    row_norm : float
    weights : ndarray of int64 of shape (n,), optional
        How often each row counts.

    Returns
    -------
    ndarray of int64, of shape (2, N_BINS, 1 + d)
        Of the positive class, then of the negative one.

    Examples
    --------
    >>> X, y = np.array([[0.5], [0.25], [-0.5]]), np.array([1.0, 1.0, -1.0])
    >>> table = binned_rows(X, y, np.ones(1), 1.0)
    >>> table[..., 0].sum(axis=1).tolist(), (table[..., 1].sum(axis=1) * row_grid(1.0)).tolist()
    ([2, 1], [0.75, -0.5])
    """
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    y, w = np.asarray(y, dtype=np.float64).reshape(len(X)), np.ascontiguousarray(w, dtype=np.float64)
    counts = np.ones(len(X)) if weights is None else weights.astype(np.float64)
    table, width = np.zeros((2, N_BINS, 1 + len(w))), bin_width(w, row_norm)
    limit, per_score = row_norm * (1 - kappa(len(w))), 1 / width if width > 0 else 0.0
    _add_rows(X, y, counts, w, limit, per_score, 1 / row_grid(row_norm), table)
    return table.astype(np.int64)


def bin_width(w: Floats, row_norm: float) -> float:
    """Of the scores of rows of that norm; 0, for one bin, where they are too small or too large to be told apart."""
    width = 2 * float(np.linalg.norm(w)) * row_norm / N_BINS
    return width if SMALLEST_WIDTH < width < 1 / SMALLEST_WIDTH else 0.0


def opposite_pairs(positive: Integers, negative: Integers, width: float, n_rows: int) -> NDArray[Any]:
    """V of two classes that were binned, in units of `pair_grid`; Python integers.

    Parameters
    ----------
    positive, negative : ndarray of shape (N_BINS, 1 + d)
    width : float
        Of a bin.
    n_rows : int
        At least as many as either counts.

    Examples
    --------
    >>> X, y = np.array([[0.5], [-0.5]]), np.array([1.0, -1.0])
    >>> V = opposite_pairs(*binned_rows(X, y, np.zeros(1), 1.0), 0.0, 2)
    >>> float(V[0] * pair_grid(1.0))  # 1/2 (x_1 - x_2)
    0.5
    """
    of_positive, of_negative = np.zeros((2, N_BINS), dtype=np.int64)
    _meet(_shares(width), positive[:, 0].copy(), negative[:, 0].copy(), of_positive, of_negative)
    return _exact(of_positive, positive[:, 1:], n_rows) - _exact(of_negative, negative[:, 1:], n_rows)


def _shares(width: float) -> Integers:
    """``k`` of the middles of two bins, in [0, 1] and integers: by how many bins the positive row is ahead.

    From ``N_BINS - 1`` bins behind to as many ahead.
    """
    apart = np.arange(N_BINS) * width
    with np.errstate(over="ignore"):
        wrong, right = 1 / (1 + np.exp(-2 * apart)), 1 / (1 + np.exp(2 * apart))
    shares = np.concatenate([wrong[:0:-1], right])
    return np.clip(np.trunc(shares * 2.0**KERNEL_BITS), 0, 2**KERNEL_BITS).astype(np.int64)


def _exact(counts: Integers, sums: Integers, n_rows: int) -> NDArray[Any]:
    """``counts @ sums`` in Python integers, by limbs whose products add up within 64 bits.

    Counts are at most ``n_rows 2**KERNEL_BITS``, and the absolute sums at most ``n_rows 2**ROW_BITS`` together.
    """
    bits = 62 - ROW_BITS - int(n_rows).bit_length()
    total: NDArray[Any] = np.zeros(sums.shape[1], dtype=object)
    for limb in range(math.ceil((KERNEL_BITS + int(n_rows).bit_length()) / bits)):
        part = (counts >> (limb * bits)) & (2**bits - 1)
        total = total + (part @ sums).astype(object) * 2 ** (limb * bits)
    return total


@kernel
def _meet(shares, positive, negative, of_positive, of_negative):  # type: ignore[no-untyped-def]
    """What each bin of one class meets in all bins of the other, by rows; empty bins are met by nobody."""
    n = len(positive)
    behind = shares[::-1].copy()
    for here in range(n):
        if negative[here] != 0:
            for other in range(n):
                of_positive[other] += negative[here] * shares[n - 1 - here + other]
        if positive[here] != 0:
            for other in range(n):
                of_negative[other] += positive[here] * behind[n - 1 - here + other]


@kernel
def _add_rows(X, y, counts, w, limit, per_score, per_unit, table):  # type: ignore[no-untyped-def]
    d, middle, last = X.shape[1], table.shape[1] // 2, table.shape[1] - 1.0
    whole, z = d - d % 4, np.empty(d)
    for i in range(len(X)):
        if abs(y[i]) != 1.0:
            continue
        s0, s1, s2, s3, q0, q1, q2, q3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(0, whole, 4):
            x0, x1 = np.float64(X[i, j]), np.float64(X[i, j + 1])
            x2, x3 = np.float64(X[i, j + 2]), np.float64(X[i, j + 3])
            s0, s1, s2, s3 = s0 + x0 * w[j], s1 + x1 * w[j + 1], s2 + x2 * w[j + 2], s3 + x3 * w[j + 3]
            q0, q1, q2, q3 = q0 + x0 * x0, q1 + x1 * x1, q2 + x2 * x2, q3 + x3 * x3
        for j in range(whole, d):
            x0 = np.float64(X[i, j])
            s0, q0 = s0 + x0 * w[j], q0 + x0 * x0
        score, square = (s0 + s1) + (s2 + s3), (q0 + q1) + (q2 + q3)
        rare = not ((square >= NORM2_LOW) & (square <= NORM2_HIGH))
        if rare:
            scale, size = scale_row(X, i, z)
            if scale < 0.0:
                continue
            score = 0.0
            for j in range(d):
                score += z[j] * w[j]
            factor = min(scale, limit / size) if size > 0.0 else 0.0
        else:
            factor = min(1.0, limit / math.sqrt(square))
        place = min(max(math.floor(score * factor * per_score) + middle, 0.0), last)
        sums, weight = table[0 if y[i] > 0.0 else 1, int(place)], counts[i]
        sums[0] += weight
        if rare:
            for j in range(d):
                sums[1 + j] += weight * np.trunc(z[j] * factor * per_unit)
        else:
            for j in range(d):
                sums[1 + j] += weight * np.trunc(np.float64(X[i, j]) * factor * per_unit)

"""Exact second moments of clipped rows.

The rows are truncated to a grid *before* they are multiplied, and the products are integers that add exactly.
Truncating the products instead would break the sensitivity: ``||x x' - y y'||_F <= sqrt(2) r**2`` uses
``<x x', y y'> = <x, y>**2 >= 0``, which entrywise truncation of the products destroys.

Rows may have weights of either sign (Hessians): a row is scaled by ``sqrt(|weight|)`` before it is truncated, and the
sum is ``Z' diag(sign) Z``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import DataError
from dpdist.kernels.block_pass import writable
from dpdist.kernels.block_steps import NORM2_HIGH, NORM2_LOW
from dpdist.kernels.clip import check_bound, clip_l2, kappa, row_norms, unit_l2
from dpdist.kernels.compiled import kernel
from dpdist.kernels.grid import fits_int64, power_grid, to_units
from dpdist.kernels.unit_vectors import row_product

FACTOR_BITS = 20  # an entry of a row has at most 2**20 units,
PANEL_ROWS = 2**12  # so a panel's products add up to at most 2**52: exact in float64 in whatever order BLAS adds

Weights = Callable[[int, int], NDArray[np.float64]]
"""From the places of rows, first and last, to their weights: finite numbers, at most ``weight_bound`` in size."""


def moment_grid(radius: float) -> float:
    """Size of one unit of `second_moment` for rows of norm at most r: ``h**2``, ``h = 2**(ceil(log2 r) - 20)``.

    >>> moment_grid(1.0) == 2.0**-40
    True
    """
    return power_grid(radius, FACTOR_BITS) ** 2


def moment_radius(row_norm: float, intercept: float = 0.0, labels: float = 0.0, weight_bound: float = 1.0) -> float:
    """The norm of a row with all that is joined to it: the root of the largest trace that a row adds.

    Parameters
    ----------
    row_norm, intercept : float
    labels : float, default 0
        Bound of the label column, scaled as it is joined.
    weight_bound : float, default 1

    Examples
    --------
    >>> moment_radius(3.0, labels=4.0), moment_radius(1.0, weight_bound=0.25)
    (5.0, 0.5)
    """
    radius = math.hypot(row_norm, intercept)
    radius = math.hypot(radius, labels) if labels else radius
    return math.sqrt(weight_bound) * radius


def second_moment(
    X: ArrayLike,
    row_norm: float,
    *,
    intercept: float = 0.0,
    unit: bool = False,
    labels: tuple[ArrayLike, float, float] | None = None,
    paired: bool = False,
    weights: Weights | None = None,
    weight_bound: float = 1.0,
    rows: NDArray[np.int64] | None = None,
    whole: bool = False,
) -> NDArray[Any]:
    """Exact ``sum_i s_i z_i z_i'`` of clipped rows, packed upper triangle, in units of ``moment_grid(radius)``.

    ``z_i`` is row i, clipped to l2 norm ``row_norm`` and followed by the constant feature ``intercept`` if that is
    positive and by the scaled label if there are any, all times ``sqrt(|weight|)``, truncated toward zero to multiples
    of ``h = sqrt(moment_grid(radius))``, ``radius`` as `moment_radius` has it. ``s_i`` is the sign of the weight.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Any floats; a row with a non-finite entry is a null row and contributes nothing, not even its intercept.
    row_norm : float
        Public bound of the norm of a row, enforced.
    intercept : float, default 0
        Public constant feature.
    unit : bool, default False
        Scale rows to the bound, shorter ones as well; zero rows stay zero.
    labels : (y, bound, scale), optional
        Numbers that are clamped to ``+-bound`` and joined to the rows, times ``scale``; where one is not finite, the
        row is a null row.
    paired : bool, default False
        Of the differences ``(x_0 - x_1) / sqrt(2), (x_2 - x_3) / sqrt(2), ...`` (of labels as well) instead of the
        rows: they have the covariance of the rows and no mean. A last row without a partner is left out; where a
        difference is not finite, the pair is a null row.
    weights : callable, optional
    weight_bound : float, default 1
        Public bound of the size of a weight.
    rows : ndarray of int64, optional
        Use these rows only, in whatever order; ``weights`` are asked for places in this list.
    whole : bool, default False
        Scale what is joined to a row down with it: a row longer than its bound counts by the square of one factor.

    Returns
    -------
    ndarray of int64, of shape (D (D + 1) / 2,)
        Row by row, ``D`` the number of columns with those that are joined; see `unpack_symmetric`. Python integers
        (dtype object) from ``2**23`` rows on, a rule that depends on the row count only.

    Notes
    -----
    Replacing one row changes the (full) matrix by ``v v' - w w'`` with ``|v|, |w| <= radius`` (truncation does not
    make an entry larger): Frobenius norm ``sqrt(|v|^4 + |w|^4 - 2 <v,w>^2) <= sqrt(2) radius**2``, eigenvalues in
    ``[-radius**2, radius**2]``, so each eigenvalue of the sum moves by at most ``radius**2`` (Weyl). Adding or
    removing a row: ``radius**2`` in both. With weights of both signs a replacement may add up:
    ``v v' + w w'``, of norm ``|v|^2 + |w|^2`` at most.

    Examples
    --------
    >>> packed = second_moment([[0.5, 0.25], [30.0, 40.0], [np.nan, 1.0]], row_norm=1.0)
    >>> (unpack_symmetric(packed.astype(float)) * moment_grid(1.0)).round(4)
    array([[0.61  , 0.605 ],
           [0.605 , 0.7025]])
    """
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    row_norm = check_bound(row_norm, "row_norm")
    if intercept < 0 or not math.isfinite(intercept):
        raise ValueError(f"intercept must be a constant that is not negative, got {intercept!r}; 0 for none")
    if weights is not None and (unit or paired or labels is not None):
        raise ValueError("weights go with plain rows: no label column, no pairs, no rows of unit norm")
    if whole and (unit or paired):
        raise ValueError("what is joined to a row is scaled down with plain rows: no pairs, no rows of unit norm")
    y, label_bound, label_scale = (None, 0.0, 0.0) if labels is None else labels
    if y is not None:
        y = np.asarray(y, dtype=np.float64)
        label_bound, label_scale = check_bound(label_bound, "label_bound"), check_bound(label_scale, "label_scale")
        if y.shape != (len(X),):
            raise DataError(f"y must have one label for each of the {len(X)} rows of X, got shape {y.shape}")
    X = np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    n, d = len(X) // 2 if paired else len(X) if rows is None else len(rows), X.shape[1]
    h = power_grid(moment_radius(row_norm, intercept, label_bound * label_scale, weight_bound), FACTOR_BITS)
    margin = 1 - kappa(d)
    constant = float(to_units(intercept, h)) if weights is None else intercept * margin / h
    size = d + (intercept > 0) + (y is not None)
    wide = not fits_int64(n, 4**FACTOR_BITS)
    total = np.zeros(size * (size + 1) // 2, dtype=object if wide else np.int64)
    product = np.empty((size, size))
    units, norms2, factors, places = (
        np.empty((min(n, PANEL_ROWS), size)),
        np.empty(min(n, PANEL_ROWS)),
        np.empty(min(n, PANEL_ROWS)),
        np.empty(min(n, PANEL_ROWS), np.intp),
    )
    for start in range(0, n, PANEL_ROWS):
        stop = min(start + PANEL_ROWS, n)
        part = _differences(X, start, stop) if paired else X[start:stop] if rows is None else X[rows[start:stop]]
        weight = _ALIKE if weights is None else weights(start, stop)
        panel, norm2, place = units[: stop - start], norms2[: stop - start], places[: stop - start]
        joined = factors[: stop - start]  # by which what is joined to a row is scaled
        rare, n_positive = _fill(
            writable(part), weight, row_norm * margin, 1 / h, constant, unit, whole, panel, norm2, joined, place
        )
        if rare:
            out = ~((norm2 >= NORM2_LOW) & (norm2 <= NORM2_HIGH))
            root = np.sqrt(abs(weight[out])) if weights is not None else np.ones(np.count_nonzero(out))
            bounded = (unit_l2 if unit else clip_l2)(part[out], row_norm)
            panel[place[out], :d] = to_units(bounded * root[:, None], h)
            finite = np.isfinite(part[out]).all(axis=1)
            if whole:
                joined[out] = _shrunk(part[out], row_norm * margin)
            panel[place[out], d:] = np.where(finite, np.trunc(constant * root * joined[out]), 0.0)[:, None]
        if y is not None:
            label = y[start:stop] if not paired else _differences(y, start, stop)
            good = np.isfinite(label)
            if rare:
                good[out] &= finite
            clamped = np.clip(label, -label_bound, label_bound) * (label_scale * margin) * joined
            panel[:, size - 1] = np.trunc(np.where(good, clamped, 0.0) / h)
            panel[~good] = 0.0
        part_total = np.zeros(len(total), dtype=np.int64) if wide else total
        for sign, lines in ((1, panel[:n_positive]), (-1, panel[n_positive:])):
            if len(lines):
                _add_packed(part_total, np.matmul(lines.T, lines, out=product), sign)
        if wide:
            total += part_total.astype(object)
    return total


_ALIKE = np.empty(0)
"""The weights of rows that all have weight 1."""


def _differences(values: NDArray[Any], start: int, stop: int) -> NDArray[np.float64]:
    """Of the pairs ``start:stop`` of consecutive rows, over sqrt(2)."""
    pairs = values[2 * start : 2 * stop]
    return np.subtract(pairs[::2], pairs[1::2], dtype=np.float64) * math.sqrt(0.5)


def _shrunk(X: NDArray[Any], limit: float) -> NDArray[np.float64]:
    """By which rows of extreme norms are scaled down to it; 1 for rows that are not finite, which count as zeros."""
    with np.errstate(all="ignore"):
        factors = np.minimum(1.0, limit / row_norms(np.asarray(X, dtype=np.float64)))
    return np.where(np.isfinite(factors), factors, 1.0)


@kernel
def _add_packed(total, product, sign):  # type: ignore[no-untyped-def]
    """The upper triangle of a matrix of exact floats, row by row, added to integers."""
    at = 0
    for i in range(len(product)):
        for j in range(i, len(product)):
            total[at] += sign * np.int64(product[i, j])
            at += 1


@kernel
def _fill(X, weights, limit, per_unit, constant, unit, whole, panel, norms2, joined, place):  # type: ignore[no-untyped-def]
    """Clipped, weighted rows in units, with the constant feature; rows of negative weight come last, from the end.

    Returns whether a squared norm is out of the safe range, and how many rows are not of negative weight; ``place``
    tells which line of the panel a row went to.
    """
    n, d = X.shape
    rare, front, back = False, 0, n
    for k in range(n):
        root = 1.0
        at = front
        if weights.size > 0:
            root = math.sqrt(abs(weights[k]))
            if weights[k] < 0.0:
                back -= 1
                at = back
            else:
                front += 1
        else:
            front += 1
        place[k] = at
        norm2 = row_product(X, X, k, d)
        norms2[k] = norm2
        if not (NORM2_LOW <= norm2 <= NORM2_HIGH):
            rare = True
        factor = limit / math.sqrt(norm2)
        factor = factor if unit else min(1.0, factor)
        joined[k] = factor if whole else 1.0
        factor *= root * per_unit  # times a power of two: no other rounding
        for j in range(d):
            panel[at, j] = np.trunc(np.float64(X[k, j]) * factor)
        for j in range(d, panel.shape[1]):
            panel[at, j] = np.trunc(constant * root * joined[k])
    return rare, front


def unpack_symmetric(packed: NDArray[Any]) -> NDArray[Any]:
    """The symmetric matrix of a packed upper triangle (row by row, as `numpy.triu_indices` lists it).

    >>> unpack_symmetric(np.array([1, 2, 3]))
    array([[1, 2],
           [2, 3]])
    """
    size = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    if packed.ndim != 1 or size * (size + 1) // 2 != len(packed):
        raise ValueError(f"a packed upper triangle has D (D + 1) / 2 entries, got shape {packed.shape}")
    matrix = np.empty((size, size), dtype=packed.dtype)
    rows, columns = np.triu_indices(size)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix

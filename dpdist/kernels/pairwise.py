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
from numba import types
from numpy.typing import NDArray

from dpdist.kernels.block_pass import cached_rows, padded_size, scale_row, scratch, writable
from dpdist.kernels.block_steps import (
    LANES,
    MARGIN,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    WIDE,
    WORK_SIZE,
    _call,
    _i64,
    _load,
    _prefetch_half,
    _remainders,
    _splat,
    _vec,
    cgutils,
    dots_and_norms2,
    intrinsic,
)
from dpdist.kernels.clip import kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
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


def binned_rows(X: NDArray[Any], y: NDArray[Any], w: Floats, row_norm: float) -> Integers:
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
    y, d = np.ascontiguousarray(y, dtype=np.float64).reshape(len(X)), X.shape[1]
    size = padded_size(d) - 1
    weights, sums, work = scratch(size + 1, (2 * N_BINS + 1) * size, WORK_SIZE)
    weights[:d] = w
    sums, counts = sums.reshape(-1, size), np.zeros(2 * N_BINS + 1, dtype=np.int64)
    width, (block, ahead) = bin_width(w, row_norm), cached_rows(X)
    limit, per_score = row_norm * (1 - kappa(d)), 1 / width if width > 0 else 0.0
    per_unit = 1 / row_grid(row_norm)
    index, z = np.empty((2, block), dtype=np.int64), np.empty(d)
    _add_rows(writable(X), writable(y), weights, limit, per_score, per_unit, ahead, work, index, z, counts, sums)
    table = np.column_stack([counts[:-1], sums[:-1, :d].astype(np.int64)])
    return table.reshape(2, N_BINS, 1 + d)


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
    shares = _shares(width)
    _meet(shares, shares[::-1].copy(), positive[:, 0].copy(), negative[:, 0].copy(), of_positive, of_negative)
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
def _meet(shares, behind, positive, negative, of_positive, of_negative):  # type: ignore[no-untyped-def]
    """What each bin of one class meets in all bins of the other, by rows; empty bins are met by nobody."""
    n = len(positive)
    for here in range(n):
        if negative[here] != 0:
            for other in range(n):
                of_positive[other] += negative[here] * shares[n - 1 - here + other]
        if positive[here] != 0:
            for other in range(n):
                of_negative[other] += positive[here] * behind[n - 1 - here + other]


@intrinsic
def _add_to_bins(typingctx: Any, table: Any, X: Any, rows: Any, places: Any, work: Any, n: Any, ahead: Any) -> Any:
    """``table[places[k], j] += trunc(c[k] X[rows[k], j])``, ``k < n``, c from UNITS; rows of the table fill vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table, matrix, index, places, work = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:5], args[:5], strict=True)
        )
        d = cgutils.unpack_tuple(builder, matrix.shape)[1]
        width = cgutils.unpack_tuple(builder, table.shape)[1]

        def columns(start: Any, n_vectors: int, mask: Any = None) -> None:
            with cgutils.for_range(builder, args[5]) as loop:
                row, place = (builder.load(builder.gep(each.data, [loop.index])) for each in (index, places))
                base = builder.gep(matrix.data, [builder.add(builder.mul(row, d), start)])
                sums = builder.gep(table.data, [builder.add(builder.mul(place, width), start)])
                where = builder.gep(work.data, [builder.add(loop.index, _i64(UNITS))])
                scale = _splat(builder, builder.load(where))
                for i in range(n_vectors):
                    x = _load(builder, base, _i64(i * LANES), mask if i == n_vectors - 1 else None)
                    _prefetch_half(builder, base, args[6], i, 1)
                    units = _call(builder, "trunc", builder.fmul(scale, x))
                    part = builder.bitcast(builder.gep(sums, [_i64(i * LANES)]), _vec.as_pointer())
                    builder.store(builder.fadd(builder.load(part, align=8), units), part, align=8)

        wide = builder.and_(d, _i64(-WIDE * LANES))
        with cgutils.for_range_slice(builder, _i64(0), wide, _i64(WIDE * LANES), _i64) as (start, _):
            columns(start, WIDE)
        for n_vectors, mask in _remainders(builder, builder.sub(d, wide)):
            columns(wide, n_vectors, mask)
        return context.get_dummy_value()

    return types.void(table, X, rows, places, work, n, ahead), codegen


@kernel
def _add_rows(X, y, w, limit, per_score, per_unit, ahead, work, both, z, counts, table):  # type: ignore[no-untyped-def]
    """Block by block: dot products and norms, then the bins of all rows, then the rows to the sums of their bins.

    The last row of the table takes rows that count nowhere, so that no step asks which these are.
    """
    nowhere, middle, last = len(counts) - 1, N_BINS // 2, N_BINS - 1.0
    index, places, block = both[0], both[1], both.shape[1]
    for start in range(0, len(X), block):
        n = min(block, len(X) - start)
        for k in range(n):
            index[k] = start + k
        dots_and_norms2(X, index, n, w, work, ahead)
        rare = False
        for k in range(n):
            square, label = work[NORM2 + k], y[start + k]
            ordinary = (square >= NORM2_LOW) & (square <= NORM2_HIGH)
            factor = min(1.0, limit / math.sqrt(square))
            first = 0 if label > 0.0 else N_BINS
            bin_ = _bin(work[MARGIN + k] * factor * per_score, middle, last)
            places[k] = first + bin_ if ordinary & (abs(label) == 1.0) else nowhere
            work[UNITS + k] = factor * per_unit
            rare |= not ordinary
        for k in range(n):
            counts[places[k]] += 1
        _add_to_bins(table, X, index, places, work, n, ahead)
        if rare:
            for k in range(n):
                square = work[NORM2 + k]
                if (abs(y[start + k]) == 1.0) & (not ((square >= NORM2_LOW) & (square <= NORM2_HIGH))):
                    place = 0 if y[start + k] > 0.0 else N_BINS
                    _add_rare(X, start + k, w, limit, per_score, per_unit, z, counts[place:], table[place:])


@inlined_kernel
def _bin(score, middle, last):  # type: ignore[no-untyped-def]
    """Of a score in bins; the first one if it is no number, as that of a row that counts nowhere may be."""
    found = np.floor(score) + middle
    found = found if found > 0.0 else 0.0
    return np.int64(found if found < last else last)


@kernel
def _add_rare(X, row, w, limit, per_score, per_unit, z, counts, table):  # type: ignore[no-untyped-def]
    """One row whose squares may overflow or vanish, to the bins of its class."""
    scale, size = scale_row(X, row, z)
    if scale < 0.0:
        return
    score = 0.0
    for j in range(z.size):
        score += z[j] * w[j]
    factor = min(scale, limit / size) if size > 0.0 else 0.0
    place = _bin(score * factor * per_score, N_BINS // 2, N_BINS - 1.0)
    counts[place] += 1
    for j in range(z.size):
        table[place, j] += np.trunc(z[j] * factor * per_unit)

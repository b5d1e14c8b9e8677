"""A public vector that is added to the gradient of every row, before it is bounded.

For rows ``z_i`` (clipped, with the constant feature) and a vector s the step of `dpdist.kernels.block_pass` forms

    v_i = l'(u_i, y_i) z_i + s

in the scratch of a block, and what follows bounds and adds v in place of a multiple of the row. Where the two nearly
cancel, v is small, and nothing that is computed from their norms and their product knows how small: so v is rounded
once and kept, and what is bounded is the norm (or the entries) of these very numbers.

A row that counts as empty stays so: it contributes nothing, and not s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.kernels.block_pass import Rows, aligned, padded_size, scale_row
from dpdist.kernels.block_steps import (
    DERIVATIVE,
    FACTOR,
    LABEL,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    dots_and_norms2,
)
from dpdist.kernels.clip import LARGEST_BOUND
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.kernels.vector_steps import clip_factors, shift_rows

DERIVATIVE_CAP = 2.0**500  # as without a vector: larger derivatives are bounded anyway
LARGEST_FLOAT = float(np.finfo(np.float64).max)


class Shift(NamedTuple):
    """The vector, and the scratch of a block."""

    vector: NDArray[np.float64]
    padded: NDArray[np.float64]  # with zeros to whole vectors
    last: float  # of the constant feature
    sums: NDArray[np.float64]
    constants: NDArray[np.float64]


def shift_of(vector: ArrayLike, rows: Rows) -> Shift:
    """Check a public vector, and allocate the scratch."""
    shift, d = np.array(vector, dtype=np.float64), rows.X.shape[1]
    constant = rows.intercept > 0
    if shift.shape != (d + constant,) or not (np.abs(shift) <= LARGEST_BOUND).all():
        raise ValueError(f"shift must be {d + constant} numbers of at most 2**200 in size, got shape {shift.shape}")
    last = float(shift[d]) if constant else 0.0
    padded = aligned(padded_size(d))
    padded[:d] = shift[:d]
    return Shift(shift[:d].copy(), padded, last, aligned(rows.block * d).reshape(-1, d), aligned(rows.block))


@inlined_kernel
def write_shifted(rows, n, shift, rare, ahead):  # type: ignore[no-untyped-def]
    """Write the v of a block to ``shift`` and their squared norms to NORM2, after `differentiate`.

    ``rows.places`` then numbers its rows. Blocks with an empty, a short or a long row take the slower way, to the same
    bits.
    """
    work = rows.work
    for k in range(n):
        c = work[DERIVATIVE + k]
        rare |= not ((abs(c) < np.inf) & (abs(work[LABEL + k]) < np.inf))
        c = min(max(c, -DERIVATIVE_CAP), DERIVATIVE_CAP)
        shift.constants[k] = c * rows.intercept + shift.last
        work[UNITS + k] = c * work[FACTOR + k]
    if rare:
        add_shift(rows, n, shift)
        dots_and_norms2(shift.sums, rows.places, n, rows.weights, work, 0)
    else:
        shift_rows(rows.X, rows.places, n, shift.padded, work, shift.sums, ahead)
        for k in range(n):
            rows.places[k] = k


@kernel
def add_shift(rows, n, shift):  # type: ignore[no-untyped-def]
    """Write the v of a block to ``shift``, row by row; ``rows.places`` then numbers its rows."""
    X, work, sums, d = rows.X, rows.work, shift.sums, rows.X.shape[1]
    for k in range(n):
        c, place = work[DERIVATIVE + k], rows.places[k]
        rows.places[k] = k
        if not ((abs(c) < np.inf) & (abs(work[LABEL + k]) < np.inf)):
            sums[k, :] = 0.0
            shift.constants[k] = 0.0
            continue
        c = min(max(c, -DERIVATIVE_CAP), DERIVATIVE_CAP)
        shift.constants[k] = c * rows.intercept + shift.last
        if (work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH):
            _add_multiple(X, place, c * work[FACTOR + k], shift.vector, sums, k)
            continue
        scale, size = scale_row(X, place, rows.z)
        if size == 0.0:
            for j in range(d):
                sums[k, j] = shift.vector[j]
            continue
        scale = min(scale, rows.row_limit / size)
        for j in range(d):
            sums[k, j] = c * (rows.z[j] * scale) + shift.vector[j]  # may overflow, and is never NaN


@inlined_kernel
def _add_multiple(X, place, factor, vector, sums, k):  # type: ignore[no-untyped-def]
    for j in range(X.shape[1]):
        sums[k, j] = factor * np.float64(X[place, j]) + vector[j]


@inlined_kernel
def clip_shifted(rows, n, shift, clip_limit):  # type: ignore[no-untyped-def]
    """Write what the rows of ``shift`` are to be multiplied by to UNITS, given their squared norms."""
    work = rows.work
    if rows.intercept > 0.0:
        for k in range(n):
            work[NORM2 + k] += shift.constants[k] * shift.constants[k]
    if clip_factors(work, n, clip_limit):
        for k in range(n):
            if not ((work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH)):
                work[UNITS + k] = _scaled_factor(shift, k, clip_limit)


@kernel
def _scaled_factor(shift, k, clip_limit):  # type: ignore[no-untyped-def]
    """The same for a long or a short row, which is scaled by a power of two first."""
    sums, last = shift.sums, shift.constants[k]
    largest = abs(last)
    for j in range(sums.shape[1]):
        largest = max(largest, abs(sums[k, j]))
    if largest == 0.0:
        return 1.0
    exponent, norm2 = math.frexp(min(largest, LARGEST_FLOAT))[1], 0.0
    shift.constants[k] = last = math.ldexp(last, -exponent)
    for j in range(sums.shape[1]):
        sums[k, j] = math.ldexp(min(max(sums[k, j], -LARGEST_FLOAT), LARGEST_FLOAT), -exponent)
        norm2 += sums[k, j] * sums[k, j]
    norm = math.sqrt(norm2 + last * last)
    return min(math.ldexp(1.0, exponent), clip_limit / norm)  # the row was 2**exponent times what is kept now

"""One pass over rows, block by block: what the sums over rows of a generalised linear model have in common.

Blocks of rows that fit the first-level cache go through three steps: (1) margins and squared norms, (2) derivative of
the loss and factors of the whole block, (3) what a sum makes of a row, added to exact totals. The rows are read from
memory once. A sum is a step of compiled code that `each_block` calls for every block; compilers see one loop, as if the
step were written in it.

Rows whose squared norm leaves ``[2**-400, 2**400]`` (zero, subnormal, huge and non-finite rows) are set aside and
scaled by a power of two first.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.errors import DataError
from dpdist.kernels.block_steps import (
    DERIVATIVE,
    LABEL,
    LANES,
    MARGIN,
    MOST_ROWS,
    NORM2,
    NORM2_HIGH,
    NORM2_LOW,
    UNITS,
    WIDE,
    WORK_SIZE,
    borrow,
    call_block,
    dots_and_norms2,
    row_factors,
)
from dpdist.kernels.clip import check_bound, kappa
from dpdist.kernels.compiled import inlined_kernel, kernel
from dpdist.losses import Loss

MAX_ROWS = 2**31  # int64 holds the totals of fewer rows of at most 2**32 units
BLOCK_BYTES = 9600  # of rows in a block: two thirds of the first-level cache are left for what is fetched ahead
_LINE = 16  # numbers in two lines of the caches
AHEAD_BYTES = 2**14  # between the rows at hand and those that are asked for
# Wide rows ask for the block that comes next. Two blocks of float64 fit in the first-level cache, or they are in the
# second; float32, which is more work for every byte, comes from there as fast, and larger blocks cost less in between.
WIDE_BYTES, WIDER_BYTES, WIDE_FLOAT32_BYTES = 2**14, 2**18, 2**17
LEAST_ROWS = 4  # of a block in the second-level cache, whose margins are formed side by side


class Rows(NamedTuple):
    """The rows of a pass, and the scratch of its blocks."""

    X: NDArray[Any]
    y: NDArray[np.float64]
    weights: NDArray[np.float64]  # padded with zeros to whole vectors, then the weight of the constant feature
    chosen: NDArray[np.int64]
    gather: bool  # whether only the chosen rows count
    n: int
    block: int
    ahead: int  # numbers of X between what is computed with and what is asked for
    address: int  # of the derivative of a block
    params: NDArray[np.float64]
    real_labels: bool
    row_limit: float
    intercept: float
    work: NDArray[np.float64]
    places: NDArray[np.int64]  # of the rows of a block
    z: NDArray[np.float64]
    totals: NDArray[np.float64]


@inlined_kernel
def each_block(rows, step, terms, flush, most, result):  # type: ignore[no-untyped-def]
    """Call ``step(rows, start, n, ahead, terms, result)`` for every block.

    ``flush(totals, result)`` moves the float64 totals to the result before they are those of more than ``most`` rows.
    """
    # the caller holds all arrays, so there is no need to count references for every block
    rows, terms, result = borrow(rows), borrow(terms), borrow(result)
    pending = 0
    for start in range(0, rows.n, rows.block):
        n = min(rows.block, rows.n - start)
        if rows.gather:
            for k in range(n):
                rows.places[k] = rows.chosen[start + k]
        else:
            for k in range(n):
                rows.places[k] = start + k
        if pending + n > most:
            flush(rows.totals, result)
            pending = 0
        pending += n
        step(rows, start, n, rows.ahead, terms, result)
    flush(rows.totals, result)


@inlined_kernel
def differentiate(rows, X, y, weights, n, ahead):  # type: ignore[no-untyped-def]
    """Steps 1 and 2: margins, labels, norms, factors and derivatives of a block to its scratch; are any rows rare?

    A label outside the declared set becomes NaN.
    """
    work = rows.work
    dots_and_norms2(X, rows.places, n, weights, work, ahead)
    shift = rows.intercept * weights[weights.size - 1]
    for k in range(n):
        work[LABEL + k] = y[rows.places[k]]
    rare = row_factors(work, n, rows.row_limit, shift, not rows.real_labels)
    if rare:
        for k in range(n):
            if not ((work[NORM2 + k] >= NORM2_LOW) & (work[NORM2 + k] <= NORM2_HIGH)):
                scale, size = scale_row(X, rows.places[k], rows.z)
                if scale < 0.0:
                    work[LABEL + k] = np.nan
                dot = 0.0
                for j in range(X.shape[1]):
                    dot += rows.z[j] * weights[j]
                work[MARGIN + k] = dot * min(scale, rows.row_limit / size) + shift if size > 0.0 else shift
    call_block(rows.address, rows.params, work, n)
    return rare


@inlined_kernel
def weigh(rows, n, limit):  # type: ignore[no-untyped-def]
    """After `differentiate` without a limit: rows longer than ``limit`` count by the square of its ratio to their norm.

    Their margins stay as they are, so that derivatives are those of one weighted loss.
    """
    work = rows.work
    for k in range(n):
        norm2 = work[NORM2 + k]
        if (norm2 >= NORM2_LOW) & (norm2 <= NORM2_HIGH):
            if norm2 > limit * limit:
                work[DERIVATIVE + k] *= limit * limit / norm2
        else:
            scale, size = scale_row(rows.X, rows.places[k], rows.z)
            if size > 0.0:
                ratio = min(1.0, limit / scale / size)
                work[DERIVATIVE + k] *= ratio * ratio


@inlined_kernel
def set_aside(rows, X, n, add_rare, terms):  # type: ignore[no-untyped-def]
    """Add the rare rows of a block one by one, and close the gaps in index and units; how many other rows there are.

    ``add_rare(rows, c, scale, size, terms)`` is called for the row ``scale * rows.z`` with the derivative c and
    ``size`` the norm of z.
    """
    kept = 0
    for k in range(n):
        if (rows.work[NORM2 + k] >= NORM2_LOW) & (rows.work[NORM2 + k] <= NORM2_HIGH):
            rows.places[kept] = rows.places[k]
            rows.work[UNITS + kept] = rows.work[UNITS + k]
            kept += 1
        else:
            c = rows.work[DERIVATIVE + k]
            scale, size = scale_row(X, rows.places[k], rows.z)
            if scale >= 0.0 and c != 0.0:
                if size > 0.0:
                    scale = min(scale, rows.row_limit / size)
                add_rare(rows, c, scale, size, terms)
    return kept


@kernel
def scale_row(X, row, z):  # type: ignore[no-untyped-def]
    """For ``x = X[row]``, write ``x * 2**-e`` with largest entry in [1, 2) to ``z``; return ``(2**e, norm of z)``.

    ``(0, 0)`` for a zero row, whose ``z`` is 0 as well; ``(-1, 0)`` for a row that is not finite.
    """
    largest = 0.0
    for j in range(X.shape[1]):
        size = abs(np.float64(X[row, j]))
        if not size < np.inf:
            return -1.0, 0.0
        largest = max(largest, size)
    if largest == 0.0:
        z[: X.shape[1]] = 0.0  # what was there before may be no number, and 0 times that is none either
        return 0.0, 0.0
    exponent = math.frexp(largest)[1] - 1
    norm2 = 0.0
    for j in range(X.shape[1]):
        z[j] = math.ldexp(np.float64(X[row, j]), -exponent)
        norm2 += z[j] * z[j]
    return math.ldexp(1.0, exponent), math.sqrt(norm2)


@contextlib.contextmanager
def rows_of(
    X: ArrayLike,
    y: ArrayLike,
    w: ArrayLike,
    loss: Loss,
    *,
    row_norm: float,
    intercept: float,
    chosen: NDArray[np.int64] | None,
    most: int = MOST_ROWS,
    second: bool = False,
) -> Iterator[Rows]:
    """Check what the sums have in common, and allocate their scratch.

    Blocks have at most ``most`` rows. ``second`` asks for the second derivative. A loss without compiled code is called
    back in NumPy for every block; what it raises is raised when the pass is over.
    """
    X, y = _matrix(X), np.ascontiguousarray(y, dtype=np.float64)
    d = X.shape[1]
    intercept = check_bound(intercept, "intercept") if intercept != 0 else 0.0
    if y.shape != (len(X),):
        raise DataError(f"y must have one label for each of the {len(X)} rows of X, got shape {y.shape}")
    gather = chosen is not None
    index = np.ascontiguousarray(chosen, dtype=np.int64) if chosen is not None else np.empty(0, dtype=np.int64)
    if gather and index.size and not (index.min() >= 0 and index.max() < len(X)):
        raise IndexError("rows must be positions of rows of X")
    n = index.size if gather else len(X)
    if max(n, len(X)) >= MAX_ROWS:
        raise DataError(f"a call takes fewer than 2**31 rows, got {len(X)}; split the rows")
    address = loss.second_block_address() if second else loss.block_address()
    block, ahead = cached_rows(X)
    block, ahead = block if address else MOST_ROWS, 0 if gather else ahead
    block, width, failures = min(block, most), padded_size(d), list[BaseException]()
    weights, totals, z, places, work = scratch(width, width, d, block, WORK_SIZE)
    if not address:
        function = loss.second_derivative if second else loss.derivative
        called = _BLOCK(lambda u, y, params, out, n: _differentiate_in_numpy(function, work, n, failures))
        address = ctypes.cast(called, ctypes.c_void_p).value or 0
    yield Rows(
        writable(X), writable(y), padded(w, d, intercept, "w", weights), writable(index), gather, n, block, ahead,
        address, loss.params, loss.labels == "real", row_norm * (1 - kappa(d + 1)), intercept, work,
        places.view(np.int64), z, totals,
    )  # fmt: skip
    if failures:
        raise failures[0]


_BLOCK = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_ssize_t)


def _differentiate_in_numpy(function: Any, work: NDArray[np.float64], n: int, failures: list[BaseException]) -> None:
    """Step 2 of a block for a loss without compiled code, called by compiled code, which knows no exceptions."""
    if not failures:
        try:
            with np.errstate(all="ignore"):
                u, label = work[MARGIN : MARGIN + n], work[LABEL : LABEL + n]
                work[DERIVATIVE : DERIVATIVE + n] = function(u, label)
        except BaseException as failure:
            failures.append(failure)


def cached_rows(X: NDArray[Any]) -> tuple[int, int]:
    """How many rows a block has that stays in the cache, and how many numbers ahead of it are asked for."""
    d, row_bytes = X.shape[1], X.shape[1] * X.itemsize
    if d <= WIDE * LANES:
        return min(256, BLOCK_BYTES // row_bytes // 8 * 8), AHEAD_BYTES // X.itemsize
    if X.itemsize == 4:
        block = min(max(LEAST_ROWS, WIDE_FLOAT32_BYTES // row_bytes), 32)
    elif 2 * row_bytes <= WIDE_BYTES:
        block = WIDE_BYTES // row_bytes
    else:
        block = min(max(LEAST_ROWS, WIDER_BYTES // row_bytes), 16)
    block = 1 << block.bit_length() - 1
    return block, block * d


def padded_size(d: int) -> int:
    """Of d numbers in whole vectors, and one for the constant feature."""
    return -(-d // LANES) * LANES + 1


def padded(w: ArrayLike, d: int, intercept: float, name: str, zeros: NDArray[np.float64]) -> NDArray[np.float64]:
    """A parameter in whole vectors, and the weight of the constant feature, written to `zeros` of `padded_size`."""
    w = np.asarray(w, dtype=np.float64)
    if w.shape != (d + (intercept > 0),) or not np.isfinite(w).all():
        raise ValueError(f"{name} must be {d + (intercept > 0)} finite numbers, got shape {w.shape}")
    zeros[:d], zeros[-1] = w[:d], w[d] if intercept > 0 else 0.0
    return zeros


def _matrix(X: ArrayLike) -> NDArray[Any]:
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"X must be a matrix with at least one column, got shape {X.shape}")
    return np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)


def aligned(size: int) -> NDArray[np.float64]:
    """Zeros that start on a cache line and share none with other arrays (two lines are fetched together)."""
    return scratch(size)[0]


def scratch(*sizes: int) -> list[NDArray[np.float64]]:
    """Several such arrays; one allocation, because of small partitions each costs as much as the sums of 30 rows."""
    ends = list(itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes))
    buffer = np.zeros(ends[-1] + 2 * _LINE)
    start = -buffer.ctypes.data // 8 % _LINE
    return [buffer[start + first : start + first + size] for first, size in zip([0, *ends], sizes, strict=False)]


def writable(a: NDArray[Any]) -> NDArray[Any]:
    """The same memory, typed as writable: kernels only read, and numba would compile again for read-only arrays."""
    if a.flags.writeable and a.flags.aligned:
        return a
    if not a.flags.aligned:
        return a.copy()
    interface = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False)}
    return np.asarray(SimpleNamespace(__array_interface__=interface, owner=a))

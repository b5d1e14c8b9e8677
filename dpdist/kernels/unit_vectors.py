"""Random vectors around a given one: the arithmetic of the reports of vectors.

All of them report ``a g + b v`` for a standard normal vector g, with two numbers a, b per user that depend on
``<g, v>`` and ``||g||`` and on the law of the report. The vector v may have one coordinate that is not reported, which
makes its norm 1; g has one more coordinate for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.compiled import inlined_kernel, kernel

UNITS = 2.0**20
"""Reports are rounded to this part of their scale."""


@inlined_kernel
def row_product(A: Any, B: Any, i: int, d: int) -> Any:
    """Of the first d columns of two rows, in float64; four sums at a time, since one would wait for each addition."""
    p = q = r = s = 0.0
    for j in range(0, d - 3, 4):
        p += np.float64(A[i, j]) * np.float64(B[i, j])
        q += np.float64(A[i, j + 1]) * np.float64(B[i, j + 1])
        r += np.float64(A[i, j + 2]) * np.float64(B[i, j + 2])
        s += np.float64(A[i, j + 3]) * np.float64(B[i, j + 3])
    for j in range(d - d % 4, d):
        p += np.float64(A[i, j]) * np.float64(B[i, j])
    return (p + q) + (r + s)


@inlined_kernel
def scaled_products(G: Any, V: Any, i: int, d: int, scale: float) -> Any:
    """`row_product` of a row of G with that of V times ``scale``, and with itself; G and V are read once."""
    p = q = r = s = 0.0
    e = f = g = h = 0.0
    for j in range(0, d - 3, 4):
        p += G[i, j] * (V[i, j] * scale)
        q += G[i, j + 1] * (V[i, j + 1] * scale)
        r += G[i, j + 2] * (V[i, j + 2] * scale)
        s += G[i, j + 3] * (V[i, j + 3] * scale)
        e += G[i, j] * G[i, j]
        f += G[i, j + 1] * G[i, j + 1]
        g += G[i, j + 2] * G[i, j + 2]
        h += G[i, j + 3] * G[i, j + 3]
    for j in range(d - d % 4, d):
        p += G[i, j] * (V[i, j] * scale)
        e += G[i, j] * G[i, j]
    return (p + q) + (r + s), (e + f) + (g + h)


@kernel
def lifted_products(G: Any, V: Any, dot: Any, norm2: Any, scale: Any) -> None:
    """``<g, u>`` and ``||g||^2`` per row, ``u = scale (v, sqrt(1 - ||v||^2))`` of norm 1.

    Parameters
    ----------
    G : ndarray of shape (m, d + 1)
    V : ndarray of shape (m, d)
        Norms at most 1.
    dot, norm2, scale : ndarray of shape (m,)
        Written. The scale is 1, or repairs a rounding error that put the norm of v above 1.
    """
    m, d = V.shape
    for i in range(m):
        v2 = row_product(V, V, i, d)
        last = np.sqrt(max(0.0, 1.0 - v2))
        scale[i] = 1.0 / np.sqrt(v2 + last * last)
        with_v, with_itself = scaled_products(G, V, i, d, scale[i])
        dot[i] = with_v + G[i, d] * last * scale[i]
        norm2[i] = with_itself + G[i, d] * G[i, d]


@kernel
def rounded_reports(G: Any, V: Any, a: Any, b: Any, limit: float, reports: Any) -> None:
    """``round(2**20 (a g + b v))`` per row, clamped to ``+-limit``; the columns of G beyond those of V are left out."""
    m, d = V.shape
    for i in range(m):
        for j in range(d):
            value = np.rint((a[i] * G[i, j] + b[i] * V[i, j]) * UNITS)
            reports[i, j] = np.int32(min(max(value, -limit), limit))


@kernel
def rounded_sum(G: Any, V: Any, a: Any, b: Any, limit: float, total: Any) -> None:
    """Adds up what `rounded_reports` would write, exactly; at most 2**28 rows."""
    m, d = V.shape
    for i in range(m):
        for j in range(d):
            value = np.rint((a[i] * G[i, j] + b[i] * V[i, j]) * UNITS)
            total[j] += np.int64(min(max(value, -limit), limit))


def products(G: NDArray[np.float64], V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``<g, v>`` and ``||g||`` per row, for vectors of any norm."""
    return np.einsum("ij,ij->i", G, V), np.sqrt(np.einsum("ij,ij->i", G, G))

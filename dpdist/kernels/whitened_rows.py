"""Rows in a public frame: columns divided by their sizes, the row clipped, then centred and turned.

Every row is mapped by itself, coordinate by coordinate in one order, so that it becomes the same numbers wherever it is
stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.kernels.bounded_rows import bounded_rows
from dpdist.kernels.compiled import kernel

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """What rows are mapped by: ``(u - centre) axes``, u the row over ``scales``, clipped to norm ``longest``.

    Attributes
    ----------
    scales : ndarray of shape (d,)
    longest : float
    centre : ndarray of shape (d,)
    axes : ndarray of shape (d, d)
    """

    scales: Floats
    longest: float = math.inf
    centre: Floats | None = None
    axes: Floats | None = None


def framed_rows(X: NDArray[Any], y: NDArray[Any], row_norm: float, frame: Frame) -> tuple[Floats, Floats]:
    """Rows of norm at most ``row_norm`` in a frame, and their labels; a null row has the label 0.

    Examples
    --------
    >>> X, y = np.array([[3.0, 4.0], [np.nan, 1.0]]), np.ones(2)
    >>> frame = Frame(np.array([1.0, 2.0]), centre=np.array([1.0, 0.0]), axes=np.eye(2))
    >>> Z, labels = framed_rows(X, y, 10.0, frame)
    >>> Z[0].tolist(), labels.tolist()
    ([2.0, 2.0], [1.0, 0.0])
    """
    rows, labels = bounded_rows(X, y, row_norm=row_norm)
    rows *= 1 / frame.scales
    if frame.axes is None or frame.centre is None:
        return rows, labels
    rows, labels = bounded_rows(rows, labels, row_norm=frame.longest)
    out = np.empty(rows.shape)
    _turn(rows, np.ascontiguousarray(frame.axes), frame.centre, out)
    return out, labels


def size_counts(X: NDArray[Any], row_norm: float, octaves: int) -> NDArray[np.int64]:
    """How many entries of each column have a size in each octave below ``row_norm``, of rows that are clipped to it.

    Returns
    -------
    ndarray of shape (d, octaves)
        First those from ``row_norm / 2`` to ``row_norm``, then those in the octave below it, and so on. Smaller ones,
        and those of rows with a number that is not finite, are not counted.

    Examples
    --------
    >>> size_counts(np.array([[0.9, 0.0], [0.3, -0.6], [np.inf, 0.1]]), 1.0, 3).tolist()
    [[1, 1, 0], [1, 0, 0]]
    """
    rows, _ = bounded_rows(X, np.zeros(len(X)), row_norm=row_norm)
    counts = np.zeros((X.shape[1], octaves), dtype=np.int64)
    _count(rows, 1 / row_norm, counts)
    return counts


@kernel
def _turn(rows, axes, centre, out):  # type: ignore[no-untyped-def]
    d = rows.shape[1]
    for i in range(len(rows)):
        for k in range(d):
            out[i, k] = 0.0
        for j in range(d):
            apart = rows[i, j] - centre[j]
            for k in range(d):
                out[i, k] += apart * axes[j, k]


@kernel
def _count(rows, per_norm, counts):  # type: ignore[no-untyped-def]
    octaves = counts.shape[1]
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            size = abs(rows[i, j]) * per_norm
            if size > 0.0:
                below = -math.frexp(size)[1]
                if below < octaves:
                    counts[j, max(below, 0)] += 1

"""Coefficients of smooth functions on a box in products of Chebyshev polynomials, that is of cosines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cosine_series(function: Callable[[Floats], Any], n_features: int, degree: int) -> Floats:
    """``C_r`` with ``function(u) ~ sum_r C_r prod_j T_{r_j}(u_j)`` for u in [-1, 1]^p, for all r below ``degree``.

    By interpolation in Chebyshev nodes, of which there are at least twice as many as the degree, so that faster
    cosines are not mistaken for slower ones.

    Parameters
    ----------
    function : callable
        From an array of points, shape (m, p), to m numbers.
    n_features, degree : int

    Examples
    --------
    >>> cosine_series(lambda u: 2 * u[:, 0] ** 2, 1, 3).round(12).tolist()
    [1.0, 0.0, 1.0]
    """
    nodes = chebyshev_nodes(n_nodes(n_features, degree))
    points = np.stack(np.meshgrid(*[nodes] * n_features, indexing="ij"), axis=-1).reshape(-1, n_features)
    values = np.asarray(function(points), dtype=np.float64)
    return series_of_nodes(values.reshape((len(nodes),) * n_features), degree)


def n_nodes(n_features: int, degree: int) -> int:
    """How many nodes an axis has."""
    return max(2 * degree, 32) if n_features <= 2 else 2 * degree


def chebyshev_nodes(n: int) -> Floats:
    """``cos(pi (i + 1/2) / n)``."""
    return np.asarray(np.cos(math.pi * (np.arange(n) + 0.5) / n))


def series_of_nodes(values: Floats, degree: int) -> Floats:
    """The coefficients of a function whose values at the nodes are given, one axis for each number."""
    found: Floats = scipy.fft.dctn(values, type=2)[(slice(degree),) * values.ndim] / values.size
    for axis in range(values.ndim):
        np.moveaxis(found, axis, 0)[0] /= 2
    return found

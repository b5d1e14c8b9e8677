"""Polynomials that tell 0 from 1, 2, ..., k: disjunctions of k bits from conjunctions of a few."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def chebyshev_differences(k: int, degree: int) -> NDArray[np.float64]:
    """Forward differences at 0, from the 0th to that of ``degree``, of a polynomial that is 0 at 0 and near 1 after.

    ``g(s) = 1 - T_t((k + 1 - 2 s)/(k - 1)) / T_t((k + 1)/(k - 1))``, with T_t the Chebyshev polynomial, has
    ``|g(s) - 1| <= chebyshev_gap(k, t)`` at ``s = 1, ..., k`` (``g(s) = s`` for k = 1). By Newton
    ``g(s) = sum_m difference_m C(s, m)``, and ``C(s, m)`` counts the sets of m bits that are all 1.

    Examples
    --------
    >>> chebyshev_differences(3, 2).round(3).tolist()
    [0.0, 0.857, -0.571]
    """
    s = np.arange(degree + 1.0)
    values = s if k == 1 else 1 - _chebyshev((k + 1 - 2 * s) / (k - 1), degree) * chebyshev_gap(k, degree)
    differences = []
    for _ in s:
        differences.append(values[0])
        values = np.diff(values)
    return np.array([0.0, *differences[1:]])


def chebyshev_gap(k: int, degree: int) -> float:
    """How far the polynomial is from 1 at ``1, ..., k``: ``1 / T_t((k + 1)/(k - 1))``; 0 for k = 1."""
    return 0.0 if k == 1 else float(1 / math.cosh(degree * math.acosh((k + 1) / (k - 1))))


def _chebyshev(x: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    return np.polynomial.Chebyshev.basis(degree)(x)

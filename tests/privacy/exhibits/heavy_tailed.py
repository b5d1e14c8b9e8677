"""Printed versions of heavy-tailed methods that break their guarantee."""

from __future__ import annotations

import math

import numpy as np


def printed_trimmed_scale(x: np.ndarray, m: int, t: float, width: float) -> float:
    """The noise scale of the trimmed mean as printed (seed 000, Algorithm 3.2.6): the range of ALL entries.

    ``max((x_(n) - x_(1)) / (n - 2 m), exp(-m t) (b - a))``. It is an upper bound for the analysis of the error. As a
    scale it is not smooth: one entry far out multiplies it, so that the size of the noise tells of the entry.
    """
    return max((x.max() - x.min()) / (x.size - 2 * m), math.exp(-m * t) * width)


def printed_catoni_std(scale: float, n_rows: int, epsilon: float, delta: float, n_scalars: int) -> float:
    """The noise on a mean of truncated numbers as printed (seed 000, Algorithm 3.2.8), for ``n_scalars`` of them.

    ``sigma^2 = n_scalars (4 sqrt(2) s / (3 n))^2 / (2 e)`` with ``e = sqrt(L + epsilon) - sqrt(L)`` and
    ``L = ln(1/delta)``. It is right with the square of e, which is what rho-zCDP converts to.
    """
    e = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    return 4 * math.sqrt(2) * scale / (3 * n_rows) * math.sqrt(n_scalars / (2 * e))

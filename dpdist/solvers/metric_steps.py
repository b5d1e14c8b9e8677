"""Proximal steps in a metric: what a constraint or a penalty makes of a preconditioned step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Prox = Callable[[Vector, float], Vector]

DIGITS = 1e-7
"""Relative distance from the minimum at which it counts as found."""
MOST_STEPS = 2000


def in_metric(prox: Prox, metric: Matrix) -> Prox:
    """``argmin_w  penalty(w) + (w - v)' metric (w - v) / (2 step)``, for a penalty whose proximal step is ``prox``.

    By accelerated proximal gradients from v, whose number follows from the condition of the metric alone: public
    arithmetic on released numbers.

    Parameters
    ----------
    prox : callable
        ``(v, step) -> w``, see `dpdist.constraints.proximal`.
    metric : array of shape (d, d)
        Positive definite.

    Examples
    --------
    >>> def box(v, step):
    ...     return np.clip(v, 0.0, 1.0)
    >>> metric = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> in_metric(box, metric)(np.array([2.0, 0.0]), 1.0).round(4)  # not the nearest point, which is [1, 0]
    array([1. , 0.5])
    """
    values = np.linalg.eigvalsh(metric)
    largest, least = float(values[-1]), max(float(values[0]), 1e-12 * float(values[-1]))
    root = math.sqrt(largest / least)
    momentum = (root - 1) / (root + 1)
    steps = min(MOST_STEPS, math.ceil(root * math.log(1 / DIGITS)) + 1)

    def step_map(v: Vector, step: float) -> Vector:
        at = before = prox(v, step / largest)
        for _ in range(steps):
            ahead = at + momentum * (at - before)
            before, at = at, prox(ahead - metric @ (ahead - v) / largest, step / largest)
        return at

    return step_map

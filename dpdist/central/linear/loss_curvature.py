"""What Newton steps know of a loss for two classes before a row is read."""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.losses import Loss
from dpdist.solvers.margins import Curvature, Level

FARTHEST = 25.0
"""Largest margin that is the best one for all rows."""


def loss_curvature(loss: Loss) -> Curvature:
    """What is public of a loss for two classes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def average(std: float) -> float:
        return float(
            weights @ (loss.second_derivative(std * nodes, 1.0) + loss.second_derivative(std * nodes, -1.0)) / 2
        )

    signs = np.array([1.0, -1.0])
    down, up = loss.derivative(np.zeros(2), signs)
    value = float(loss.value(np.zeros(2), signs).max())
    at_zero = float(loss.second_derivative(0.0, 1.0))
    if down != -up:
        return Curvature(at_zero, average, value)

    def level(mean: float) -> Level:
        shares = (1 + mean * signs) / 2

        def slope(margin: float) -> float:
            return float(shares @ loss.derivative(np.full(2, margin), signs))

        ends = slope(-FARTHEST), slope(FARTHEST)
        margin = scipy.optimize.brentq(slope, -FARTHEST, FARTHEST) if ends[0] < 0 < ends[1] else 0.0
        there = loss.derivative(np.full(2, margin), signs)
        curvature = float(shares @ loss.second_derivative(np.full(2, margin), signs))
        return Level(margin, curvature, float(there.sum()) / 2, float((there[0] - there[1]) / (2 * down)))

    return Curvature(at_zero, average, value, float(up), level)

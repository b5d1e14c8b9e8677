"""`Curvature`: what is public of the second derivative of a loss, and what margins a linear model at 0 tells of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MARGINS = 5.0
"""Variance of the predictors of rows before anything is known of them: margins of two or three."""
STEEPEST = 0.94
"""Largest standard deviation of linearised margins over what there can be; beyond it the prior would explode."""


class Level(NamedTuple):
    """The best margin for all rows, and the loss there.

    ``curvature`` is the mean of ``l''``; ``l'(margin, y) = offset + scale l'(0, y)`` for both labels.
    """

    margin: float
    curvature: float
    offset: float
    scale: float


@dataclass(frozen=True)
class Curvature:
    """What is public of the second derivative of a loss.

    ``at_zero`` is ``l''(0, y)``, the same for all labels; ``average(s)`` its mean at normal margins of standard
    deviation s; ``value_at_zero`` is the loss at 0, and all that can be gained where no loss is negative. Where
    ``|l'(0, y)|`` is ``slope_at_zero`` for both labels, ``level(m)`` is the best margin for labels of mean m.
    """

    at_zero: float
    average: Callable[[float], float]
    value_at_zero: float = math.inf
    slope_at_zero: float = math.inf
    level: Callable[[float], Level] | None = None

    def linearised(self, margins: float) -> float:
        """The standard deviation of margins that a linear model at 0 sees, where the true one is ``margins``."""
        return margins * self.average(margins) / self.at_zero

    def margins(self, linearised: float) -> float:
        """The inverse of `linearised`, which saturates."""
        grid = np.linspace(0.0, 8.0, 401)
        seen = np.maximum.accumulate([self.linearised(float(m)) for m in grid])
        return float(np.interp(min(linearised, STEEPEST * seen[-1]), seen, grid))

    def at_margins(self, margins: float) -> float:
        """The mean curvature there, relative to that at 0: that of the quadratic whose gradient normal rows have at 0.

        With second moment A and the minimiser w it is ``-average(s) A w``, s that of ``w'z`` (Stein's lemma).
        """
        return self.average(margins) / self.at_zero

    def larger_margins(self, factor: float) -> float:
        """By how much the variance of margins is larger, where a linear model at 0 sees that factor."""
        return self.margins(math.sqrt(MARGINS * factor)) ** 2 / MARGINS

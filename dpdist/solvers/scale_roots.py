"""The scale by which least squares becomes a generalised linear model, from public linear predictors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCALES = np.geomspace(1e-3, 200.0, 60)
FARTHEST = 50.0


def root_scale(
    mean: Callable[[Floats], Any], slope: Callable[[Floats], Any], predictors: Floats, level: float
) -> tuple[float, float, bool]:
    """``(c, a)`` with ``c E slope(c t + a) = 1`` and ``E mean(c t + a) = level``, for predictors t of public rows.

    The smallest of the c on a grid around which the sign changes; where it does nowhere, the c that comes nearest.

    Parameters
    ----------
    mean, slope : callable
        Of the label given the linear predictor, increasing; and its derivative.
    predictors : array
    level : float
        The mean of the labels.

    Returns
    -------
    scale, intercept : float
    found : bool

    Examples
    --------
    >>> t = np.random.default_rng(0).normal(size=1000)
    >>> root_scale(lambda u: 2 * u, lambda u: np.full_like(u, 2.0), t - t.mean(), 1.0)
    (0.5, 0.5, True)
    """

    def intercept(c: float) -> float:
        def off(a: float) -> float:
            return float(np.mean(mean(c * predictors + a))) - level

        low, high = off(-FARTHEST), off(FARTHEST)
        if low > 0 or high < 0 or low == high:  # noise took the level out of what labels can have
            return 0.0 if low == high else (-FARTHEST if low > 0 else FARTHEST)
        return float(scipy.optimize.brentq(off, -FARTHEST, FARTHEST, xtol=1e-9))

    def excess(c: float) -> float:
        return float(c * np.mean(slope(c * predictors + intercept(c)))) - 1.0

    with np.errstate(over="ignore"):
        values = np.array([excess(c) for c in SCALES])
        changes = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
        if len(changes):
            c = float(scipy.optimize.brentq(excess, *SCALES[changes[0] : changes[0] + 2]))
        else:
            c = float(SCALES[np.argmax(values)])
        return c, intercept(c), bool(len(changes))

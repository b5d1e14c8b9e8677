"""The scale by which least squares becomes a generalised linear model, from public linear predictors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCALES = np.geomspace(1e-3, 200.0, 60)
FARTHEST = 50.0
FALL = 1e-3
"""By less the mean slope of a finite number of rows may fall from one c to the next."""
STEP = 1e-4
"""Of the differences that the second derivative of a mean is made of."""


def root_scale(
    mean: Callable[[Floats], Any], slope: Callable[[Floats], Any], predictors: Floats, level: float
) -> tuple[float, float, bool]:
    """``(c, a)`` with ``c E slope(c t + a) = 1`` and ``E mean(c t + a) = level``, for predictors t of public rows.

    The smallest of the c on a grid around which the sign changes, as long as the left side of the first equation grows;
    where it does nowhere, the c that comes nearest. Where predictors take few values, it falls once c t is beyond the
    labels that differ, and rises again when the intercept lies at one of the values: what is met there is no scale.

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
        falls = np.flatnonzero(np.diff(values) < -FALL)
        values = values[: falls[0] + 1] if len(falls) else values
        changes = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
        if len(changes):
            c = float(scipy.optimize.brentq(excess, *SCALES[changes[0] : changes[0] + 2]))
        else:
            c = float(SCALES[np.argmax(values)])
        return c, intercept(c), bool(len(changes))


class ScaleResponse(NamedTuple):
    """How the root of `root_scale` moves: the first line of a matrix is that of the scale, the second of the level.

    Attributes
    ----------
    predictors : array of shape (n,)
    by_row : array of shape (n, 2)
        With each public row, n times what one of them weighs.
    by_numbers : array of shape (2, p + 1)
        With the coefficients of the predictors, and with the mean of the labels.
    """

    predictors: Floats
    by_row: Floats
    by_numbers: Floats


def scale_response(
    mean: Callable[[Floats], Any], slope: Callable[[Floats], Any], rows: Floats, w: Floats, c: float, a: float
) -> ScaleResponse | None:
    """The derivatives of the root (c, a) for predictors ``rows @ w``; None where a small change leaves none.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 1))
    >>> found = scale_response(np.tanh, lambda u: 1 - np.tanh(u) ** 2, rows, np.array([0.3]), 1.1, 0.1)
    >>> found.by_numbers.shape, found.by_row.shape
    ((2, 2), (1000, 2))
    """
    t = rows @ w
    with np.errstate(over="ignore", invalid="ignore"):
        u = c * t + a
        first = np.asarray(slope(u), dtype=np.float64)
        second = (np.asarray(slope(u + STEP)) - np.asarray(slope(u - STEP))) / (2 * STEP)
        off = np.column_stack([c * first - 1, np.asarray(mean(u)) - np.mean(mean(u))])
        by_root = np.array(
            [[np.mean(first + c * t * second), c * np.mean(second)], [np.mean(t * first), np.mean(first)]]
        )
        by_coef = np.vstack([c * c * second @ rows, c * first @ rows]) / len(rows)
    everything = np.column_stack([by_coef, [0.0, -1.0]])
    if not (np.isfinite(by_root).all() and np.isfinite(everything).all() and np.isfinite(off).all()):
        return None
    if abs(np.linalg.det(by_root)) < 1e-12:
        return None
    return ScaleResponse(t, -np.linalg.solve(by_root, off.T).T, -np.linalg.solve(by_root, everything))

"""The scale by which least squares becomes a generalised linear model, from public linear predictors.

Of all models ``mean(c t + a)`` of one predictor t the one of maximum likelihood has ``E mean = E y`` and
``E t mean = E t y``, and least squares say that ``E t y = E t^2`` for centred t. For normal predictors ``E t mean`` is
``c E mean' E t^2`` (Stein), which makes the second equation that of the source, ``c E mean' = 1``. For others only the
equation of the likelihood has the best c: where 2 % of the labels are positive (by statistics, 1e5 users, epsilon 1)
the source's had a log-loss of .415, this one has .068 and a constant .070. Its left side grows with c, so that there is
one root at most. Rows that were shortened, by a factor g, tell of g y and ``g t y`` instead: with these weights the
equations hold of them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCALES = (1e-3, 200.0)
FARTHEST = 50.0
HUGE = 1e280
"""Stands for means that overflow, as those of exponentials do."""


def root_scale(
    mean: Callable[[Floats], Any],
    predictors: Floats,
    level: float,
    target: float,
    weights: Floats | float = 1.0,
    error: float = 0.0,
) -> tuple[float, float, bool]:
    """``(c, a)`` with ``E g t mean(c t + a) = target`` and ``E g mean(c t + a) = level``, for public predictors t.

    Labels of two classes have no larger ``E t y`` than if the largest t all had one of them. Where the noise in reports
    makes it larger, as it does where one class is rare, no c solves the equation. Then c is that of the largest one
    less a standard error, which is next to none where the error is as large.

    Parameters
    ----------
    mean : callable
        Of the label given the linear predictor, increasing.
    predictors : array
    level, target : float
        ``E g y`` and ``E g t y``.
    weights : array or float
        g.
    error : float
        Standard error of the target.

    Returns
    -------
    scale, intercept : float
    found : bool

    Examples
    --------
    >>> t = np.random.default_rng(0).normal(size=1000)
    >>> t -= t.mean()
    >>> c, a, found = root_scale(lambda u: 2 * u, t, 1.0, np.mean(t * t))
    >>> round(c, 6), round(a, 6), found
    (0.5, 0.5, True)
    """
    t = predictors

    def means(c: float, a: float) -> Floats:
        return np.clip(np.nan_to_num(mean(c * t + a), posinf=HUGE, neginf=-HUGE), -HUGE, HUGE)

    def intercept(c: float) -> float:
        def off(a: float) -> float:
            return float(np.mean(weights * means(c, a))) - level

        end = FARTHEST + c * float(np.abs(t).max(initial=0.0))
        low, high = off(-end), off(end)
        if low > 0 or high < 0 or low == high:  # noise took the level out of what labels can have
            return 0.0 if low == high else (-end if low > 0 else end)
        return float(scipy.optimize.brentq(off, -end, end, xtol=1e-9))

    def product(log_c: float) -> float:
        c = float(np.exp(log_c))
        return float(np.mean(weights * t * means(c, intercept(c))))

    with np.errstate(over="ignore", invalid="ignore"):
        least, most = (product(end) for end in np.log(SCALES))
        found = bool(least < target <= most)
        wanted = target if found else min(target, most - error)
        if wanted <= least:
            c = SCALES[0]
        else:
            c = float(np.exp(scipy.optimize.brentq(lambda at: product(at) - wanted, *np.log(SCALES), xtol=1e-10)))
        return c, intercept(c), found


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
    mean: Callable[[Floats], Any],
    slope: Callable[[Floats], Any],
    rows: Floats,
    w: Floats,
    c: float,
    a: float,
    weights: Floats | float = 1.0,
    squares: Floats | float = 1.0,
) -> ScaleResponse | None:
    """The derivatives of the root (c, a) for predictors ``t = rows @ w`` and the target ``E s t^2``, s the ``squares``.

    None where a small change leaves no root.

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
        means, slopes = (weights * np.asarray(of(u), dtype=np.float64) for of in (mean, slope))
        beside = t * means - squares * t * t
        off = np.column_stack([beside - beside.mean(), means - means.mean()])
        by_root = np.array([[np.mean(t * t * slopes), np.mean(t * slopes)], [np.mean(t * slopes), np.mean(slopes)]])
        by_coef = np.vstack([(means + c * t * slopes - 2 * squares * t) @ rows, c * slopes @ rows]) / len(rows)
    everything = np.column_stack([by_coef, [0.0, -1.0]])
    if not (np.isfinite(by_root).all() and np.isfinite(everything).all() and np.isfinite(off).all()):
        return None
    if abs(np.linalg.det(by_root)) < 1e-12:
        return None
    return ScaleResponse(t, -np.linalg.solve(by_root, off.T).T, -np.linalg.solve(by_root, everything))

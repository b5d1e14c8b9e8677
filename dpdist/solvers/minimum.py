"""Minimising a smooth, strongly convex function to a distance that is known before the function is.

The loop is the information-theoretic exact method of Taylor and Drori (2023), whose last iterate is as close to the
minimiser as any method can guarantee. Its number of rounds is fixed in advance, and `distance_after` bounds the
distance from the minimiser for *every* function with the two constants, with wrong gradients and in floating point.
That makes it usable where a solver runs on private data before noise is drawn: no convergence test, no early stop,
nothing that depends on the data.

With ``q = alpha/L``, ``A_0 = 0``, ``z_0 = x_0``:

    A_{k+1}  = ((1 + q) A_k + 2 (1 + sqrt((1 + A_k)(1 + q A_k)))) / (1 - q)^2
    beta_k   = A_k / ((1 - q) A_{k+1})
    delta_k  = ((1 - q)^2 A_{k+1} - (1 + q) A_k) / (2 (1 + q + q A_k))
    y_k      = (1 - beta_k) z_k + beta_k (y_{k-1} - g_{k-1} / L)
    z_{k+1}  = (1 - q delta_k) z_k + q delta_k y_k - (delta_k / L) g_k

``phi_k = (1 - q) A_k psi_{k-1} / L + (1 + q A_k) ||z_k - x*||^2`` never grows, where
``psi_k = f(y_k) - f* - ||g_k||^2 / (2 L) - alpha ||y_k - g_k / L - x*||^2 / (2 (1 - q)) >= 0``:
``phi_k - phi_{k+1}`` is ``(1 - q) A_k / L`` times the interpolation inequality of the class between ``y_{k-1}`` and
``y_k`` plus ``(1 - q)(A_{k+1} - A_k) / L`` times the one between ``x*`` and ``y_k``.

>>> import numpy as np
>>> from dpdist.solvers.loops import drive
>>> loop = exact_method(np.zeros(2), smoothness=10.0, strong_convexity=1.0, n_rounds=40)
>>> drive(loop, lambda w: np.array([10.0, 1.0]) * (w - 1.0)).round(6)
array([1., 1.])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from dpdist.solvers.loops import Loop, Vector

U = 2.0**-53
MOST_ROUNDS = 100_000
"""Passes that nobody would wait for: how many more it would take is not asked."""
SETTLED = 1e100
"""Where ``A_k`` no longer shows in the other two, which have their limits then; it would overflow some rounds later."""


def _schedule(q: float) -> Iterator[tuple[float, float, float]]:
    """``(beta_k, delta_k, A_{k+1})`` for k = 0, 1, ..."""
    a = 0.0
    while True:
        root = 1 + math.sqrt((1 + a) * (1 + q * a))
        following = ((1 + q) * a + 2 * root) / (1 - q) ** 2
        yield a / ((1 - q) * following), root / (1 + q + q * a), following
        if following < SETTLED:
            a = following


def exact_method(x0: Vector, smoothness: float, strong_convexity: float, n_rounds: int) -> Loop:
    """The loop; it yields the points whose gradients are wanted next, and returns the last ``z``.

    Parameters
    ----------
    x0 : array
    smoothness, strong_convexity : float
        ``L`` and ``alpha``, ``alpha <= L / 2``.
    n_rounds : int
        Number of gradients.
    """
    q = strong_convexity / smoothness
    z = shifted = x0
    for (beta, delta, _), _ in zip(_schedule(q), range(n_rounds), strict=False):
        y = (1 - beta) * z + beta * shifted
        g = yield y
        shifted = y - g / smoothness
        z = (1 - q * delta) * z + q * delta * y - (delta / smoothness) * g
    return z


def rounds_until(distance: float, smoothness: float, strong_convexity: float, start: float) -> int:
    """Rounds after which exact gradients lead from distance ``start`` to ``distance``, or `MOST_ROUNDS`.

    About ``sqrt(L / alpha) ln(2 start / distance)``.

    >>> rounds_until(1e-6, smoothness=2500.0, strong_convexity=1.0, start=100.0)
    944
    """
    q = strong_convexity / smoothness
    for k, (_, _, a) in zip(range(MOST_ROUNDS), _schedule(q), strict=False):
        if start <= distance * math.sqrt(1 + q * a):
            return k + 1
    return MOST_ROUNDS


@lru_cache(maxsize=256)
def distance_after(
    n_rounds: int, smoothness: float, strong_convexity: float, start: float, gradient_error: float
) -> float:
    """Bound of ``||z_N - x*||`` for every function of the class; infinite where rounding errors might take over.

    Parameters
    ----------
    n_rounds : int
    smoothness, strong_convexity : float
    start : float
        Bound of ``||x_0 - x*||``, and of ``||x*||``.
    gradient_error : float
        Bound of the error of a gradient at points of norm at most ``4 start``.

    Notes
    -----
    Let ``Y_k`` be the points that exact gradients would have given with the ``z_k`` at hand, and ``D_k`` a bound of
    ``||y_k - Y_k||``. A gradient step is a ``(1 - q)``-contraction, so ``D_k <= beta_k ((1 - q) D_{k-1} + E/L) + r``,
    ``r`` the rounding of a point. The exact step from ``(z_k, Y_k)`` does not raise phi; the actual one ends within
    ``p_k <= delta_k ((1 - q) D_k + E/L) + (1 + delta_k) r`` of it, because ``q v - (grad f(Y + v) - grad f(Y))/L`` is
    at most ``(1 - q) |v|`` long. Hence ``sqrt(phi_{k+1}) <= sqrt(phi_k) + sqrt(1 + q A_{k+1}) p_k``, from
    ``sqrt(phi_0) = ||x_0 - x*||`` to ``||z_N - x*|| <= sqrt(phi_N / (1 + q A_N))``.

    All points are combinations of points that are no farther from ``x*`` than some ``z_k``, so they stay within
    ``4 start`` of 0 as long as the bound stays below ``3 start``, which is checked.

    >>> f"{distance_after(944, 2500.0, 1.0, 100.0, 0.0):.3g}", f"{distance_after(944, 2500.0, 1.0, 100.0, 1e-9):.3g}"
    ('1.04e-06', '1.07e-06')
    """
    q = strong_convexity / smoothness
    rounding = 16 * U * 4 * start
    relative, off, root_phi = gradient_error / smoothness, 0.0, start
    distance, before = start, 0.0
    for (beta, delta, a), _ in zip(_schedule(q), range(n_rounds), strict=False):
        off = beta * ((1 - q) * off + relative) + rounding
        missed = delta * ((1 - q) * off + relative) + (1 + delta) * rounding
        if a == before:  # settled: sqrt((1 + q A_k) / (1 + q A_{k+1})) has its limit
            distance = distance * (1 - math.sqrt(q)) * (1 + 1e-12) + missed
        else:
            root_phi += math.sqrt(1 + q * a) * missed
            distance = root_phi / math.sqrt(1 + q * a)
        before = a
        if not distance + off <= 3 * start:
            return math.inf
    return distance * (1 + 1e-9)

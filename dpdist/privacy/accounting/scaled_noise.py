"""Gaussian noise whose scale follows the data: the exact privacy profile where the scale is a smooth bound.

A release ``f + (S / gamma) N(0, I_p)`` whose S is a beta-smooth bound of the sensitivity of f (neighbours:
``|f - f'| <= min(S, S')`` and ``|ln S - ln S'| <= beta``, Nissim, Raskhodnikova and Smith 2007) is between neighbours a
pair of normal laws with centres ``|a| <= gamma min(s, s')`` apart and ``|ln s - ln s'| <= beta``. With
``D(P, Q) = integral (p - e^epsilon q)_+`` it is (epsilon, delta)-DP where no such pair has ``D > delta``.
`smooth_delta` bounds all of them; `smooth_gamma` is the largest gamma, hence the least noise, that keeps to delta.

*The distance.* ``D = 1 - integral min(p, e^epsilon q)``, and by layers that integral is one over volumes of
intersections of two balls around the centres, which shrinks as the centres part: the largest ``|a|`` is the worst.

*The scales.* Let the smaller one be 1, the other r in ``[1, e^beta]``, and ``r1 <= r <= r2`` two neighbouring points of
a grid. As ``N(a, r^2)`` has a density of at least ``(r1/r2)^p`` times that of ``N(a, r1^2)``, and of at most
``(r2/r1)^p`` times that of ``N(a, r2^2)``, with ``e = p ln(r2/r1)``

    D_epsilon(N(0, 1), N(a, r^2)) <= D_{epsilon - e}(N(0, 1), N(a, r1^2))
    D_epsilon(N(a, r^2), N(0, 1)) <= e^e D_{epsilon - e}(N(a, r2^2), N(0, 1)),

so that finitely many pairs bound all. Each is a ball's probability under two normal laws, an integral over one number.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpdist.errors import BudgetError

GRID = 24
"""Intervals of ``[0, beta]``: their width costs ``p beta / 24`` of epsilon, a hundredth where p beta is at most a
quarter of it."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(160)
REACH = 10.0
"""Of a chi variable, about the root of its degrees of freedom: beyond it there is less than 1e-20."""
TAIL = 1e-18
"""What the tails that are left out and rounding add to a probability, at most."""
ROUNDING = 1e-7
"""Relative error of a profile that is allowed for: quadrature and special functions are ten thousand times as exact."""


def pair_delta(epsilon: float, distance: float, own: float, other: float, size: int) -> float:
    """``D(N(0, own^2 I), N(distance e_1, other^2 I))`` in ``size`` dimensions.

    Along the line through both centres the set where the density of the first is larger by ``e^epsilon`` is an interval
    (or what is outside one) that depends on the distance from the line only, a chi variable with ``size - 1`` degrees.

    Examples
    --------
    >>> round(pair_delta(1.0, 0.5, 1.0, 1.0, 3), 6)                     # scales alike: the Gaussian mechanism
    0.00683
    """
    if own == other:
        u = max(distance / own, 1e-300)
        value = special.ndtr(u / 2 - epsilon / u) - math.exp(epsilon) * special.ndtr(-u / 2 - epsilon / u)
        return float(value) + TAIL
    bent = own**-2 - other**-2
    left = distance**2 / other**2 - 2 * (epsilon - size * math.log(other / own))
    middle = distance / (bent * other**2)  # the ball is around minus that
    square = left / bent + middle**2
    if square <= 0:
        return TAIL if bent > 0 else max(1 - math.exp(epsilon), 0.0) + TAIL
    chances = [
        _chance(math.sqrt(square), abs(middle), math.copysign(centre, centre * middle), scale, left / bent, size - 1)
        for scale, centre in ((own, 0.0), (other, distance))
    ]
    first, second = (beyond if bent < 0 else within for within, beyond in chances)
    return max(first - math.exp(epsilon) * second, 0.0) + TAIL


def _chance(
    radius: float, middle: float, centre: float, scale: float, near: float, degrees: int
) -> tuple[float, float]:
    """Of being in the ball of that radius around ``-middle``, and of being outside, for a normal law of that scale.

    ``near`` is ``radius^2 - middle^2``: the end of the ball that is near 0 is the difference of two numbers that are
    alike. Both chances are sums of tails, so that small ones keep their digits.
    """
    radii, weights = _chi(degrees, radius / scale)
    half = np.sqrt(np.maximum(radius**2 - (scale * radii) ** 2, 0.0))
    high = ((near - (scale * radii) ** 2) / (middle + half) - centre) / scale
    low = (-middle - half - centre) / scale
    outside = special.ndtr(low) + special.ndtr(-high)
    inside = np.where(high < 0, special.ndtr(high) - special.ndtr(low), special.ndtr(-low) - special.ndtr(-high))
    rest = float(special.gammaincc(degrees / 2, (radius / scale) ** 2 / 2)) if degrees else 0.0
    return float(weights @ inside), float(weights @ outside) + rest


def smooth_delta(epsilon: float, gamma: float, beta: float, size: int) -> float:
    """A bound of delta for ``f + (S / gamma) N(0, I)`` with a beta-smooth S, in ``size`` dimensions."""
    scales = np.exp(np.linspace(0.0, beta, GRID + 1))
    lost = size * beta / GRID
    worst = 0.0
    for smaller, larger in pairwise(scales):
        narrow = pair_delta(epsilon - lost, gamma, 1.0, float(smaller), size)
        wide = math.exp(lost) * pair_delta(epsilon - lost, gamma, float(larger), 1.0, size)
        worst = max(worst, narrow, wide)
    return worst * (1 + ROUNDING)


@lru_cache(maxsize=256)
def smooth_gamma(epsilon: float, delta: float, beta: float, size: int) -> float:
    """The largest gamma for which `smooth_delta` is at most delta, rounded down.

    Examples
    --------
    >>> beta = 1.0 / (4 * (3 + math.log(2e6)))
    >>> round(smooth_gamma(1.0, 1e-6, beta, 3), 3)
    0.175
    """
    if smooth_delta(epsilon, 1e-9, beta, size) > delta:
        raise BudgetError(
            f"no noise whose scale follows the data is known to be enough for epsilon={epsilon:g}, delta={delta:g} and "
            f"{size} coordinates: take a larger delta"
        )
    low, high = 1e-9, 1.0
    while smooth_delta(epsilon, high, beta, size) <= delta:
        low, high = high, 2 * high
    while high - low > 1e-6 * low:
        middle = math.sqrt(low * high)
        if smooth_delta(epsilon, middle, beta, size) <= delta:
            low = middle
        else:
            high = middle
    return low


def _chi(degrees: int, most: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights for the mean of a function of a chi variable, where it is below ``most``.

    Of functions of ``sqrt(most^2 - x^2)``: in the angle whose sine is ``x / most`` they are smooth.
    """
    if not degrees:
        return np.zeros(1), np.ones(1)
    low = max(0.0, math.sqrt(degrees) - REACH)
    high = min(most, math.sqrt(degrees) + REACH)
    if high <= low:
        return np.zeros(1), np.zeros(1)
    first, last = math.asin(low / most), math.asin(high / most)
    angles = first + (last - first) * (NODES + 1) / 2
    nodes = most * np.sin(angles)
    logs = (degrees - 1) * np.log(nodes) - nodes**2 / 2 - special.gammaln(degrees / 2) - (degrees / 2 - 1) * math.log(2)
    return nodes, WEIGHTS * (last - first) / 2 * most * np.cos(angles) * np.exp(logs)

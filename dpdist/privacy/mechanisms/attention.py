"""The centre of attention: a point that most of many points lie close to, with noise fitted to how close (NRS).

Nissim, Raskhodnikova and Smith (2007) release the result of an estimator that has no bounded sensitivity: fit it to
``m`` disjoint blocks of rows, and look for a result that more than half of the others are close to. If they agree, one
row can move it only a little, and the noise may be small; a smooth bound on how little is what the noise is scaled by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.scaled_noise import smooth_gamma
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers, dyadic_above, rounded_gaussian

MOST_EPSILON = 1.0
"""Up to here the smoothness of the bound is chosen well."""
SLACK = 2.0**-36
"""Part by which computed distances, their maximum and the scale of the noise are off at most, together."""
_ROWS = 128  # of the distance table at a time


@dataclass(frozen=True)
class CentreOfAttention(Mechanism):
    """Gaussian noise around the point that more than half of the points are closest to, scaled by a smooth bound.

    The input is an ``(m, p)`` matrix of integers, one point per block of rows; one person changes one point, to any
    other within the ``diameter`` (the declared sensitivity). With ``r_i(t)`` the distance of point ``i`` to its t-th
    nearest one (``t = 1`` is itself), ``R_j(t)`` the j-th smallest of ``r_1(t) .. r_m(t)``, and
    ``t0 = floor((m + 1) / 2) + 1``, the release is

        centre  argmin_i r_i(t0)  +  (S / gamma) N(0, I_p)
        S = max_{k >= 0} e^{-beta k} min(diameter, 2 R_{2+k}(t0 + 1 + k)),   R = infinity where t0 + 1 + k > m
        beta = epsilon / (4 (p + ln((e^{epsilon/2} + 1) / delta)))
        gamma  the largest for which the release is (epsilon, delta)-DP, by its exact profile

    Parameters
    ----------
    delta : float
        Of one release.
    strength : float, optional
        Its epsilon, at most 1.

    Notes
    -----
    *Why S is a smooth bound.* Let x and x' differ in one point. Where ``t + 1`` points lie within a radius around an
    unchanged point in x, ``t`` do in x'; of the ``j + 1`` points with the smallest such radii at least ``j`` are
    unchanged: ``R'_j(t) <= R_{j+1}(t + 1)``. Hence every term of S(x') is at most the following term of S(x) times
    ``e^beta``, and ``S(x') <= e^beta S(x)``. The balls with ``t0`` points around the two centres share an
    unchanged point, because ``2 (t0 - 1) > m - 1``, so the centres are at most ``R_1(t0) + R'_1(t0) <= 2 R_2(t0 + 1)``
    apart: the term ``k = 0``. (Means of the largest ``r_i(t)`` in place of order statistics are not smooth: a single
    point that leaves its cluster raises them from 0.)

    *Why the noise is enough.* On neighbours the release has two normal laws, whose centres are at most
    ``min(S, S')`` apart and whose scales differ by ``e^beta`` at most. The distance of any such pair at ``e^epsilon``
    is at most delta: `dpdist.privacy.accounting.scaled_noise` bounds them all, and takes the least noise.
    The condition that is printed instead, ``gamma = epsilon / (5 sqrt(2 ln(2/delta')))`` (Nissim, Raskhodnikova and
    Smith 2007; seed 000, section 3.2), is enough as well, and has 4.6 times the noise at epsilon = 1, delta = 1e-6, and
    4 to 11 times it for epsilon from .1 to 1, delta from 1e-9 to 1e-3 and up to 100 coordinates.

    *Floating point.* The points are integers on a public grid and so is the noise: a rounded Gaussian of exactly the
    scale that was computed, added to integers, is post-processing of the continuous mechanism. That the computed scale
    is off by a relative `SLACK` at most is paid for by as much less beta and more S.

    The scale depends on the points, so it is shown nowhere: `noise_std` is NaN. The running time of sorting depends on
    them as well.

    Examples
    --------
    >>> from dpdist.privacy.randomness.bits import SystemBits
    >>> points = np.arange(-2000, 2000)[:, None]
    >>> mechanism = CentreOfAttention(1e-6).at(1.0)
    >>> mechanism.cost
    Cost(kind='approximate', parameter=1.0, delta=1e-06)
    >>> bool(abs(mechanism.release(points, 2.0**33, SystemBits())[0]) < 2.0**21)
    True
    """

    tag: ClassVar[str] = "CentreOfAttention"

    delta: float
    strength: float | None = None

    norm: ClassVar[float] = 2
    one_change_only: ClassVar[str] = "the centre of attention hides one changed point only"

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise BudgetError(f"the centre of attention needs delta in (0, 1), got {self.delta!r}; take 1e-6, say")
        super().__post_init__()

    @property
    def cost(self) -> Cost:
        """(epsilon, delta)-DP."""
        return Cost("approximate", calibrated(self.strength), self.delta)

    def noise_std(self, sensitivity: float) -> float:
        """NaN: it depends on the points."""
        return math.nan

    def beta(self, size: int) -> float:
        """How smooth the scale of the noise has to be, for points with ``size`` coordinates."""
        return calibrated(self.strength) / (4 * (size + self._log))

    def gamma(self, size: int) -> float:
        """The bound over the standard deviation of the noise, for points with ``size`` coordinates."""
        return smooth_gamma(calibrated(self.strength), self.delta, self.beta(size), size)

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """The private centre of the rows of ``units``, which are at most ``sensitivity_units`` apart."""
        if calibrated(self.strength) > MOST_EPSILON:
            raise BudgetError(
                f"the centre of attention is offered up to epsilon = {MOST_EPSILON:g}, got {self.strength:g}"
            )
        units = np.asarray(units)
        if units.dtype.kind != "i" or units.ndim != 2 or not units.size:
            raise TypeError("the centre of attention takes a matrix of integers, one row per point")
        check_positive("sensitivity_units", sensitivity_units)
        centre, bound = attention(units, sensitivity_units, self.beta(units.shape[1]))
        scale = dyadic_above(Fraction(bound) / Fraction(self.gamma(units.shape[1]) * (1 - SLACK)))
        released: Integers = units[centre] + rounded_gaussian(scale, units.shape[1], bits).astype(object)
        return released

    @property
    def _log(self) -> float:
        return math.log((math.exp(calibrated(self.strength) / 2) + 1) / self.delta)


def attention(points: NDArray[Any], diameter: float, beta: float) -> tuple[int, float]:
    """``(argmin_i r_i(t0), S)`` as in `CentreOfAttention`; neither is private.

    Parameters
    ----------
    points : ndarray of integers, shape (m, p)
        Below ``2**52`` in size.
    diameter : float
        No two points are further apart.
    beta : float

    Notes
    -----
    Time ``m^2 (p + log m)``, memory ``m^2 / 2`` numbers.
    """
    m = len(points)
    t0 = (m + 1) // 2 + 1
    columns = points.T.astype(np.float64)
    # r_i(t) for t >= t0; a single point has no other within any radius
    radii = np.full((m, max(1, m - t0 + 1)), math.inf)
    for first in range(0, m, _ROWS):
        squares = np.zeros((len(points[first : first + _ROWS]), m))
        for column in columns:
            squares += (column[first : first + _ROWS, None] - column) ** 2
        squares.sort(axis=1)
        radii[first : first + _ROWS, : max(0, m - t0 + 1)] = np.sqrt(squares[:, t0 - 1 :])
    largest = [min(diameter, 2 * float(np.partition(radii[:, k + 1], k + 1)[k + 1])) for k in range(m - t0)]
    terms = np.array([*largest, diameter]) * np.exp(-(beta - SLACK) * np.arange(len(largest) + 1))
    return int(np.argmin(radii[:, 0])), float(terms.max()) * (1 + SLACK)

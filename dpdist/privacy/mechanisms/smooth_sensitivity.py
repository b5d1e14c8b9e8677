"""Noise whose scale follows the data, smoothly enough to be private itself.

Where a statistic f moves little on most datasets and a lot on a few, noise for the worst case drowns it. A *t-smooth
bound* S satisfies, for all neighbours, ``|f - f'| <= min(S, S')`` and ``|ln S - ln S'| <= t`` (Nissim, Raskhodnikova
and Smith 2007). `ArsinhNormal` releases

    f + (S / s) sinh(Y),    Y standard normal    (the noise of Bun and Steinke 2019),

which costs half the square of the length of a path, as below. The scale S is private: nobody is told it, so the release
has no public standard deviation.

>>> mechanism = ArsinhNormal().at(0.2)
>>> mechanism.cost.kind, round(mechanism.cost.parameter, 6), mechanism.smoothness
('zcdp', 0.02, 0.1)
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import mpmath
import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import MPMATH, Integers, rounded_gaussian

SMOOTH_BITS = 40
"""Smooth bounds are integers in units of the grid times ``2**-SMOOTH_BITS``."""

RATIOS = (0.0, 0.375, 0.4375, 0.5, 0.5625, 0.625, 0.75, 1.0, 1.5, 2.0, 4.0)
NORMS = (0.8660, 0.9443, 0.9713, 1.0018, 1.0354, 1.0721, 1.1529, 1.3404, 1.7799, 2.2642, 4.3297)
"""No less than ``g(1, ratio)`` of `ArsinhNormal`: 0.2 % above what numerical integration finds, as the tests show."""
SLOPE = 1.0684
"""The same of ``g(0, 1)``, by which it grows from there."""
PIECES = 16
"""Of the path, in the bound of its length."""
_SHIFT_BITS = 20  # shifts are multiples of 2**-20, so that the last bit of an exponential decides nothing

_NORMAL_BITS = 256  # Y is a multiple of 2**-256
_EXACT = mpmath.MPContext()  # of its own, and never changed: the global precision is shared between threads
_EXACT.prec = 512


@dataclass(frozen=True)
class ArsinhNormal(Mechanism):
    """``f + (S / s) sinh(Y)`` for every coordinate of a vector, each with a smooth bound of its own.

    ``strength`` is that of the whole vector, in the sense that a release costs ``strength**2 / 2`` zCDP, as much as a
    Gaussian release with that mu. Each of the ``size`` coordinates is a mechanism of strength ``e = strength /
    sqrt(size)`` with ``t = e / 2`` and ``s = e`` times `largest_shift`, and they compose.

    Parameters
    ----------
    size : int
        Number of coordinates.

    Notes
    -----
    *What it costs.* Move f linearly and ln S linearly from the dataset with the smaller bound to its neighbour. The
    derivative of the log-density along the way is ``a psi + c chi`` of a standard normal y, with ``psi = (y + tanh y) /
    cosh y`` and ``chi = y tanh y - 1 / cosh(y)^2``. Its mean is 0, c is ``ln S'/S``, at most t, and at the place l of
    the way ``|a| <= s exp(-c l)``, because ``|f - f'|`` is at most the smaller bound and the noise has grown by then.
    Let ``g(a, c)`` be the least number with ``E exp(k (a psi + c chi)) <= exp(k^2 g^2 / 2)`` for all k. If g is at most
    v all along, the Renyi divergence of order alpha between the ends is at most ``alpha v^2 / 2``, in both directions
    (Donsker-Varadhan along the path). Walk faster where g is small, so that it is the same everywhere: it then is

        L(c) = integral over l in [0, 1] of g(s exp(-c l), c),

    the length of the path, and the divergence is at most ``alpha L^2 / 2``. With g bounded by its largest value instead
    the noise would be 1.03 (e = 0.1) to 1.16 times (e = 0.6 and more) as large.

    *Why the ends of c are enough.* g is a norm (Buldygin and Kozachenko 2000; Hoelder's inequality with the exponents
    ``(g + g') / g`` and ``(g + g') / g'`` is the triangle inequality), and even in a and in c alone, since psi is odd
    and chi is even. So it grows in ``a >= 0`` and in ``c >= 0`` and is convex; ``exp(-c l)`` is convex in c; a convex
    function that grows, of convex ones, is convex. So L is, and is largest at c = 0, where it is ``s g(1, 0)``, or
    at c = t. Between the `RATIOS` a convex function lies below its chord, and the trapezoidal rule is above the
    integral of one: both bounds are on the safe side.

    *Why integers are as private as real numbers here.* f is an integer, so ``f + round((S/s) sinh(Y)) = round(f + (S/s)
    sinh(Y))`` is post-processing of the mechanism whose cost is bounded. S is a rational number that satisfies the two
    conditions exactly. Y is drawn exactly, rounded to a multiple of ``2**-256``, and sinh is evaluated with 512 bits:
    the result differs from the exact one only where ``(S/s) sinh(Y)`` lies within ``2**-150`` of the border between two
    integers, as long as ``S / s < 2**80``. That is a distance in total variation below ``2**-140`` per coordinate,
    which vanishes in the rounding of any delta. How long a draw takes depends on neither f nor S.
    """

    tag: ClassVar[str] = "ArsinhNormal"

    size: int = 1
    strength: float | None = None

    norm: ClassVar[float] = math.inf
    one_row_only: ClassVar[str] = (
        "noise that follows the data (ArsinhNormal) is proved where neighbours differ in one row. Truncate instead of "
        "trimming"
    )
    replace_one_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size!r}")
        super().__post_init__()

    @property
    def cost(self) -> Cost:
        """rho-zCDP with rho = strength**2 / 2."""
        return Cost("zcdp", calibrated(self.strength) ** 2 / 2)

    @property
    def smoothness(self) -> float:
        """The t of the smooth bound that this needs."""
        return self._each / 2

    @property
    def shift(self) -> float:
        """The s of the noise."""
        return self._each * largest_shift(self._each)

    @property
    def _each(self) -> float:
        return calibrated(self.strength) / math.sqrt(self.size)

    def noise_std(self, sensitivity: float) -> float:
        """NaN: the scale of the noise follows the data and is not public."""
        calibrated(self.strength)
        return math.nan

    def scale(self, bound: float) -> float:
        """Standard deviation of the noise at a smooth bound, ``1.79 bound / s``. For bounds from public numbers."""
        return math.sqrt((math.e**2 - 1) / 2) * bound / self.shift

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """Noise on the first row of ``units``, by the smooth bounds in the second.

        Parameters
        ----------
        units : ndarray of integers, shape (2, size)
            Statistics, and their smooth bounds in ``2**-SMOOTH_BITS`` of their units.
        sensitivity_units : float
            Not needed: every bound is a bound of a sensitivity.
        bits : Bits
        """
        units = np.asarray(units)
        if units.dtype.kind not in "iO" or units.shape != (2, self.size):
            raise TypeError(f"expected integers of shape (2, {self.size}), got {units.dtype} of shape {units.shape}")
        normals = rounded_gaussian(Fraction(2**_NORMAL_BITS), self.size, bits)
        per_unit = Fraction(self.shift) * 2**SMOOTH_BITS
        released = [
            int(value) + _rounded_sinh(Fraction(int(bound)) / per_unit, int(normal))
            for value, bound, normal in zip(*units, normals, strict=True)
        ]
        small = all(-(2**62) < value < 2**62 for value in released)
        return np.array(released, dtype=np.int64 if small else object)


def path_length(shift: float, t: float) -> float:
    """No less than the L(t) of `ArsinhNormal`, for ``s = shift``.

    >>> round(path_length(1.0, 0.5), 3), round(path_length(1.0, 1e-3), 3)   # the scale grows, and the shift counts less
    (0.851, 0.866)
    """
    found = []
    for piece in range(PIECES + 1):
        a = shift * math.exp(-t * piece / PIECES)
        found.append(a * float(np.interp(t / a, RATIOS, NORMS)) + SLOPE * max(t - RATIOS[-1] * a, 0.0))
    return float(math.fsum(found) - (found[0] + found[-1]) / 2) / PIECES


@functools.lru_cache(maxsize=256)
def largest_shift(e: float) -> float:
    """The largest ``s / e`` with which both ends of `ArsinhNormal` are at most e, for ``t = e / 2``.

    >>> [round(largest_shift(e), 3) for e in (1e-3, 0.1, 0.3, 1.0, 10.0)]
    [0.998, 1.023, 1.074, 1.155, 1.155]
    """
    steps: int = 2**_SHIFT_BITS
    low, high = 0, int(steps / NORMS[0])
    while low < high:
        middle = (low + high + 1) // 2
        fits = path_length(e * middle / steps, e / 2) <= e
        low, high = (middle, high) if fits else (low, middle - 1)
    return low / steps


def _rounded_sinh(scale: Fraction, normal: int) -> int:
    """The integer nearest to ``scale * sinh(normal / 2**256)``."""
    with MPMATH:
        noise = _EXACT.mpf(scale.numerator) / scale.denominator * _EXACT.sinh(_EXACT.ldexp(normal, -_NORMAL_BITS))
        return int(_EXACT.nint(noise))

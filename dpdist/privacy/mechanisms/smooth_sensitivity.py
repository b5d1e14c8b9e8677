"""Noise whose scale follows the data, smoothly enough to be private itself.

Where a statistic f moves little on most datasets and a lot on a few, noise for the worst case drowns it. A *t-smooth
bound* S satisfies, for all neighbours, ``|f - f'| <= min(S, S')`` and ``|ln S - ln S'| <= t`` (Nissim, Raskhodnikova
and Smith 2007). `ArsinhNormal` releases

    f + (S / s) sinh(Y),    Y standard normal    (the noise of Bun and Steinke 2019),

which costs ``v(s, t) / 2`` of zCDP, v as below. The scale S is private: nobody is told it, so the release has no public
standard deviation.

>>> mechanism = ArsinhNormal().at(0.2)
>>> mechanism.cost.kind, round(mechanism.cost.parameter, 6), mechanism.smoothness
('zcdp', 0.02, 0.1)
"""

from __future__ import annotations

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

SHIFT = 0.99
"""``s`` per unit of strength; the bound would allow 0.9998, and the rest is left for its numerical evaluation."""

_NORMAL_BITS = 256  # Y is a multiple of 2**-256
_EXACT = mpmath.MPContext()  # of its own, and never changed: the global precision is shared between threads
_EXACT.prec = 512


@dataclass(frozen=True)
class ArsinhNormal(Mechanism):
    """``f + (S / s) sinh(Y)`` for every coordinate of a vector, each with a smooth bound of its own.

    ``strength`` is that of the whole vector, in the sense that a release costs ``strength**2 / 2`` zCDP, as much as a
    Gaussian release with that mu. Each of the ``size`` coordinates is a mechanism of strength ``e = strength /
    sqrt(size)`` with ``t = e / 2`` and ``s = 0.99 e``, and they compose.

    Parameters
    ----------
    size : int
        Number of coordinates.

    Notes
    -----
    *What it costs.* ``v(s, t) = sup_k (2 / k^2) ln E exp(k (s psi(Y) + t chi(Y)))`` with
    ``psi = (y + tanh y) / cosh y`` and ``chi = y tanh y - 1 / cosh(y)^2``. Move f linearly and ln S linearly from one
    dataset to its neighbour. The derivative of the log-density along the way is ``a psi + c chi`` with ``|a| <= s`` and
    ``|c| <= t``, the first because ``|f - f'|`` is at most the smaller of the two bounds. A path whose score satisfies
    ``ln E exp(k score) <= v k^2 / 2`` for all k has Renyi divergence at most ``alpha v / 2`` between its ends, in both
    orders (Donsker-Varadhan along the path). v is convex and even in ``(a, c)``, so its largest value is that of a
    corner. With the t and s here, ``v(s, t) <= e^2``: the tests compute it.

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
    def _each(self) -> float:
        return calibrated(self.strength) / math.sqrt(self.size)

    def noise_std(self, sensitivity: float) -> float:
        """NaN: the scale of the noise follows the data and is not public."""
        calibrated(self.strength)
        return math.nan

    def scale(self, bound: float) -> float:
        """Standard deviation of the noise at a smooth bound: ``1.79 bound / s``. For bounds from public numbers."""
        return math.sqrt((math.e**2 - 1) / 2) * bound / (SHIFT * self._each)

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
        per_unit = Fraction(SHIFT) * Fraction(self._each) * 2**SMOOTH_BITS
        released = [
            int(value) + _rounded_sinh(Fraction(int(bound)) / per_unit, int(normal))
            for value, bound, normal in zip(*units, normals, strict=True)
        ]
        small = all(-(2**62) < value < 2**62 for value in released)
        return np.array(released, dtype=np.int64 if small else object)


def _rounded_sinh(scale: Fraction, normal: int) -> int:
    """The integer nearest to ``scale * sinh(normal / 2**256)``."""
    with MPMATH:
        noise = _EXACT.mpf(scale.numerator) / scale.denominator * _EXACT.sinh(_EXACT.ldexp(normal, -_NORMAL_BITS))
        return int(_EXACT.nint(noise))

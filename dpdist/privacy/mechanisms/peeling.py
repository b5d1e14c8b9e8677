"""Peeling: which coordinates of a vector are the largest, and how large they are, privately.

The released vector has the full length and is zero outside of the chosen coordinates, so that its noise grows with how
many are kept, not with how many there are. What has to be known is that no entry of the vector moves by more than
``sensitivity`` between neighbours (l-infinity).

- `Peel`: ``k`` exponential mechanisms on the absolute values, then Gaussian noise on the chosen entries; accounted by
  zCDP, the default wherever delta > 0.
- `LaplacePeel`: ``k`` report-noisy-max selections and Laplace noise, purely epsilon-DP (Dwork, Su and Zhang
  2021; Cai, Wang and Zhang 2021; seed 003, Algorithm 4, as corrected).

A chosen coordinate is never chosen again. The printed algorithm searches all coordinates in every round: it mostly
keeps one and the same, and values of one coordinate that is released ``k`` times move ``sqrt(k)`` times further than
the vector does, so noise that rests on the l2 sensitivity of the vector no longer hides them.

>>> from dpdist.privacy.randomness.bits import SystemBits
>>> v = np.array([0, 10**9, -7, -10**9])
>>> released = Peel(2).at(1.0).release(v, sensitivity_units=10.0, bits=SystemBits())
>>> np.flatnonzero(released)
array([1, 3])
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
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.mechanisms.selection import noisy_max, select_top
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers, dyadic_above, rounded_gaussian, rounded_laplace

WHICH = 0.5
"""Share of rho that pays for the choice of coordinates; the rest pays for their values."""


_ROUNDED = 1 - 2.0**-48
"""Strengths that come out of a square root are lowered by more than its rounding error."""


def peel(
    v: NDArray[Any],
    k: int,
    sensitivity: float,
    rho: float,
    bits: Bits,
    which: float = WHICH,
    l2_sensitivity: float = math.inf,
) -> Integers:
    """Keep ``k`` coordinates of an integer vector, ``rho``-zCDP in total (`peeling-zcdp`).

    Parameters
    ----------
    v : ndarray of integers, shape (d,)
    k : int
        How many are kept, ``1 <= k <= d``.
    sensitivity : float
        Largest change of any entry between neighbours, in units.
    rho : float
    bits : Bits
        Source of randomness.
    which : float, default 0.5
        Share of rho for the selections.
    l2_sensitivity : float, optional
        Largest change of the whole vector in the l2 norm, where one is known.

    Returns
    -------
    ndarray of integers, shape (d,)
        Zero outside of the chosen coordinates.

    Notes
    -----
    The k picks are exponential mechanisms at ``eps0 = sqrt(8 which rho / k)`` on ``|v|``, whose entries move by at most
    ``sensitivity`` too, each ``eps0**2 / 8``-zCDP (`dpdist.privacy.mechanisms.selection.select_top`). Given the
    coordinates, the k values move by at most ``D = min(sqrt(k) sensitivity, l2_sensitivity)`` in the l2 norm, because
    they are different coordinates, so Gaussian noise of ``D / sqrt(2 (1 - which) rho)`` on each costs ``(1 - which)
    rho``; adaptive composition adds the two.
    """
    check_positive("rho", rho)
    v = _vector(v, k)
    chosen = select_top(_sizes(v), 2 * sensitivity, math.sqrt(8 * which * rho / k) * _ROUNDED, k, bits)
    distance = min(math.sqrt(k) * sensitivity / _ROUNDED, l2_sensitivity)
    scale = _scale(distance, math.sqrt(2 * (1 - which) * rho) * _ROUNDED)
    return _with_noise(v, chosen, rounded_gaussian(scale, k, bits))


def laplace_peel(v: NDArray[Any], k: int, sensitivity: float, epsilon0: float, bits: Bits) -> Integers:
    """Keep ``k`` coordinates of an integer vector with Laplace noise of scale ``2 sensitivity / epsilon0`` everywhere.

    Each of the k picks is a report-noisy-max selection among the coordinates that are left, ``epsilon0``-DP; each of
    the k values is ``epsilon0 / 2``-DP. Together ``1.5 k epsilon0``-DP, and ``5/8 k epsilon0**2``-zCDP.

    Parameters are those of `peel`, with the epsilon of one pick in place of rho.
    """
    v = _vector(v, k)
    sizes, remaining = _sizes(v), np.arange(v.size)
    chosen = np.empty(k, dtype=np.int64)
    for i in range(k):
        place = noisy_max(sizes[remaining], sensitivity, epsilon0, bits)
        chosen[i] = remaining[place]
        remaining = np.delete(remaining, place)
    return _with_noise(v, chosen, rounded_laplace(_scale(sensitivity, epsilon0 / 2), k, bits))


# --- the same as calibrated objects -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Peeling(Mechanism):
    """Releases a full-length vector with ``n_nonzero`` noisy entries; sensitivity is that of a single entry."""

    n_nonzero: int
    strength: float | None = None

    norm: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_nonzero < 1:
            raise BudgetError(f"n_nonzero must be at least 1, got {self.n_nonzero!r}")


@dataclass(frozen=True)
class Peel(_Peeling):
    """`peel` at ``rho = strength**2 / 2``, so that it costs as much as a Gaussian release with that mu.

    Parameters
    ----------
    n_nonzero : int
        How many coordinates are kept.
    which : float, default 0.5
        Share of the cost for the choice of coordinates.

    Examples
    --------
    >>> mechanism = Peel(8).at(0.1)
    >>> mechanism.cost.kind, round(mechanism.cost.parameter, 6), round(mechanism.noise_std(sensitivity=1.0), 6)
    ('zcdp', 0.005, 40.0)
    """

    tag: ClassVar[str] = "Peel"

    which: float = WHICH

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.which < 1:
            raise BudgetError(f"which, the share for the choice of coordinates, must lie in (0, 1), got {self.which!r}")

    @property
    def cost(self) -> Cost:
        """rho-zCDP with rho = strength**2 / 2."""
        return Cost("zcdp", calibrated(self.strength) ** 2 / 2)

    def noise_std(self, sensitivity: float) -> float:
        """Standard deviation of the noise of a chosen entry."""
        return sensitivity * math.sqrt(self.n_nonzero / (1 - self.which)) / calibrated(self.strength)

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """The chosen entries with noise, zeros elsewhere."""
        return peel(units, self.n_nonzero, sensitivity_units, self.cost.parameter, bits, self.which)


@dataclass(frozen=True)
class LaplacePeel(_Peeling):
    """`laplace_peel` at a total ``epsilon = strength``: the purely private version."""

    tag: ClassVar[str] = "LaplacePeel"

    @property
    def cost(self) -> Cost:
        """Pure epsilon-DP."""
        return Cost("pure", calibrated(self.strength))

    @property
    def _epsilon0(self) -> float:
        return calibrated(self.strength) / (1.5 * self.n_nonzero) * _ROUNDED

    def noise_std(self, sensitivity: float) -> float:
        """Standard deviation of the noise of a chosen entry."""
        return math.sqrt(2) * 2 * sensitivity / self._epsilon0

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """The chosen entries with noise, zeros elsewhere."""
        return laplace_peel(units, self.n_nonzero, sensitivity_units, self._epsilon0, bits)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _vector(v: NDArray[Any], k: int) -> Integers:
    v = np.asarray(v)
    if v.dtype.kind not in "iO":
        raise TypeError(f"peeling works on integers (int64 or Python integers), got {v.dtype}")
    if v.ndim != 1 or not 1 <= k <= v.size:
        raise ValueError(f"cannot keep {k} coordinates of an array of shape {v.shape}; k must lie between 1 and d")
    return v


def _sizes(v: Integers) -> Integers:
    """Absolute values; that of the smallest int64 needs Python integers."""
    return abs(v.astype(object) if v.dtype != object and v.min() == -(2**63) else v)


def _scale(sensitivity: float, strength: float) -> Fraction:
    check_positive("sensitivity", sensitivity)
    return dyadic_above(Fraction(sensitivity) / Fraction(strength))


def _with_noise(v: Integers, chosen: NDArray[np.int64], noise: Integers) -> Integers:
    released = np.zeros(v.size, dtype=object)
    released[chosen] = v[chosen].astype(object) + noise.astype(object)
    small = all(-(2**62) < value < 2**62 for value in released[chosen])
    return released.astype(np.int64) if small else released

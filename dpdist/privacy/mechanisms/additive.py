"""Additive noise on integers: what is released and what it costs are one object.

The input is a vector of integers (a sum in units of its grid), the noise is integer and exact
(`dpdist.privacy.randomness.discrete`), so the guarantee has no floating-point gap. A mechanism is calibrated by one
number, its ``strength``, which is both what the accountant charges and what sets the scale of the noise.

>>> from dpdist.privacy.randomness.bits import SystemBits
>>> mechanism = Gaussian().at(0.25)
>>> mechanism.cost, mechanism.noise_std(sensitivity=2.0)
(Cost(kind='gaussian', parameter=0.25), 8.0)
>>> mechanism.release(np.array([0, 2**40]), sensitivity_units=2.0**33, bits=SystemBits()).dtype
dtype('int64')
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.mechanisms.norms import FROBENIUS
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import (
    Integers,
    discrete_gaussian,
    discrete_laplace,
    dyadic_above,
    rounded_gaussian,
    rounded_laplace,
)

_SAFE = 2**62
_PIECE = 2**14  # draws at a time, of very many: the sampler holds some 300 bytes for each
_ROOT_HALF = Fraction(math.isqrt(2**127) + 1, 2**64)  # just above 1 / sqrt(2)


@functools.lru_cache(256)
def _scale(sensitivity_units: float, strength: float) -> Fraction:
    """Of the noise, the same in many rounds."""
    return dyadic_above(Fraction(sensitivity_units) / Fraction(strength))


@dataclass(frozen=True)
class _IntegerNoise(Mechanism):
    strength: float | None = None

    @abstractmethod
    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        """Integer noise of that scale."""

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """``units`` plus fresh integer noise of scale ``sensitivity_units / strength``.

        Parameters
        ----------
        units : ndarray of int64 or of Python integers
            The un-noised integers, any shape.
        sensitivity_units : float
            Their sensitivity in the mechanism's ``norm``, in the same units.
        bits : Bits
            `dpdist.privacy.randomness.bits.SystemBits` for a release that is to be private.

        Returns
        -------
        ndarray
            Same shape. int64 if every *released* integer is below 2**62 in size, else Python integers: the type is a
            function of the released values, so it reveals nothing more. Nothing ever wraps around.

        Notes
        -----
        The scale is rounded up (by a relative 2**-40 at most), so the release costs at most `cost`.
        """
        units = np.asarray(units)
        if units.dtype.kind not in "iO":
            raise TypeError(f"a mechanism releases integers (int64 or Python integers), got {units.dtype}")
        check_positive("sensitivity_units", sensitivity_units)
        scale = _scale(float(sensitivity_units), float(calibrated(self.strength)))
        noise = self._noise(scale, units.shape, bits)
        if noise.dtype != object and units.dtype != object and _below(units, _SAFE):
            released = units.astype(np.int64) + noise  # two numbers below 2**62 in size
        else:
            released = np.asarray(units.astype(object) + noise.astype(object), dtype=object)
        return released.astype(np.int64 if _below(released, _SAFE) else object)


@dataclass(frozen=True)
class Gaussian(_IntegerNoise):
    """Rounded Gaussian noise, the default: exactly mu-GDP, like the continuous Gaussian.

    ``strength`` is ``mu = l2-sensitivity / noise_std``. For integers ``k``, ``k + round(N) = round(k + N)``, so the
    release is post-processing of the continuous mechanism, in any dimension and under adaptive composition
    (Dong, Roth and Su 2022).

    >>> Gaussian().at(0.5).noise_std(1.0)
    2.0
    """

    tag: ClassVar[str] = "Gaussian"

    norm: ClassVar[float] = 2

    @property
    def cost(self) -> Cost:
        """mu-GDP."""
        return Cost("gaussian", calibrated(self.strength))

    def noise_std(self, sensitivity: float) -> float:
        """``sensitivity / mu``; rounding adds a variance of at most 1/12 unit**2."""
        return sensitivity / calibrated(self.strength)

    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        return rounded_gaussian(scale, shape, bits)


@dataclass(frozen=True)
class SymmetricGaussian(_IntegerNoise):
    """Rounded Gaussian noise for a packed symmetric matrix: exactly mu-GDP in the Frobenius norm.

    ``strength`` is ``mu = Frobenius sensitivity / s``; the noise has standard deviation s on the diagonal and
    ``s / sqrt(2)`` off it, so that its density falls with the Frobenius norm of the matrix: a difference of matrices of
    that norm D costs ``sum_i D_ii^2 / s^2 + sum_{i<j} D_ij^2 / (s^2 / 2) = D^2 / s^2`` of mu^2, as in `Gaussian`. The
    law does not change under rotations, and the spectral norm of the noise is about ``s sqrt(2 d)`` for d columns.
    That is half the variance off the diagonal that `Gaussian` on the packed entries needs (seed 006, `m2-goe`).

    >>> SymmetricGaussian().at(0.5).noise_std(1.0)
    2.0
    """

    tag: ClassVar[str] = "SymmetricGaussian"

    norm: ClassVar[float] = FROBENIUS

    @property
    def cost(self) -> Cost:
        """mu-GDP."""
        return Cost("gaussian", calibrated(self.strength))

    def noise_std(self, sensitivity: float) -> float:
        """``sensitivity / mu``, of an entry of the diagonal; the others have that over ``sqrt(2)``."""
        return sensitivity / calibrated(self.strength)

    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        (n,) = shape
        size = (math.isqrt(8 * n + 1) - 1) // 2
        if size * (size + 1) // 2 != n:
            raise ValueError(f"a packed symmetric matrix has d (d + 1) / 2 entries, got {n}")
        rows = np.arange(size)
        on_diagonal = rows * size - rows * (rows - 1) // 2  # row i begins with its diagonal entry
        off_diagonal = np.ones(n, dtype=np.bool_)
        off_diagonal[on_diagonal] = False
        noise = np.zeros(n, dtype=np.int64 if 40 * scale < _SAFE else object)
        for places, std in ((on_diagonal, scale), (np.flatnonzero(off_diagonal), dyadic_above(scale * _ROOT_HALF))):
            for start in range(0, len(places), _PIECE):
                piece = places[start : start + _PIECE]
                drawn = rounded_gaussian(std, len(piece), bits)
                noise = noise if drawn.dtype != object else noise.astype(object, copy=False)
                noise[piece] = drawn
        return noise


@dataclass(frozen=True)
class DiscreteGaussian(_IntegerNoise):
    """Discrete Gaussian noise: ``mu**2 / 2``-zCDP (Canonne, Kamath and Steinke 2020).

    ``strength`` is ``mu = l2-sensitivity / sigma``. The GDP guarantee of the continuous Gaussian does not carry over
    to this law, and accounting by zCDP needs 6 to 9 % more noise: prefer `Gaussian`.
    """

    tag: ClassVar[str] = "DiscreteGaussian"

    norm: ClassVar[float] = 2

    @property
    def cost(self) -> Cost:
        """rho-zCDP with rho = mu**2 / 2."""
        return Cost("zcdp", calibrated(self.strength) ** 2 / 2)

    def noise_std(self, sensitivity: float) -> float:
        """``sensitivity / mu``, an upper bound."""
        return sensitivity / calibrated(self.strength)

    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        return discrete_gaussian(scale, shape, bits)


@dataclass(frozen=True)
class Laplace(_IntegerNoise):
    """Rounded Laplace noise: pure epsilon-DP, and every accounting of the continuous Laplace mechanism.

    ``strength`` is ``epsilon = l1-sensitivity / scale``. Post-processing of the continuous mechanism (Dwork, McSherry,
    Nissim and Smith 2006), like `Gaussian`.
    """

    tag: ClassVar[str] = "Laplace"

    norm: ClassVar[float] = 1

    @property
    def cost(self) -> Cost:
        """The privacy loss of a Laplace release at epsilon."""
        return Cost("laplace", calibrated(self.strength))

    def noise_std(self, sensitivity: float) -> float:
        """``sqrt(2) sensitivity / epsilon``; rounding adds a variance of at most 1/12 unit**2."""
        return math.sqrt(2) * sensitivity / calibrated(self.strength)

    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        return rounded_laplace(scale, shape, bits)


@dataclass(frozen=True)
class DiscreteLaplace(_IntegerNoise):
    """Discrete Laplace (two-sided geometric) noise: pure epsilon-DP (Ghosh, Roughgarden and Sundararajan 2009).

    ``strength`` is ``epsilon = l1-sensitivity / scale``: ``P(x) / P(x + c) <= exp(|c| / scale)``.
    """

    tag: ClassVar[str] = "DiscreteLaplace"

    norm: ClassVar[float] = 1

    @property
    def cost(self) -> Cost:
        """Pure epsilon-DP."""
        return Cost("pure", calibrated(self.strength))

    def noise_std(self, sensitivity: float) -> float:
        """``sqrt(2) sensitivity / epsilon``, an upper bound."""
        return math.sqrt(2) * sensitivity / calibrated(self.strength)

    def _noise(self, scale: Fraction, shape: tuple[int, ...], bits: Bits) -> Integers:
        return discrete_laplace(scale, shape, bits)


def _below(values: Integers, bound: int) -> bool:
    return not values.size or bool(-bound < values.min() and values.max() < bound)

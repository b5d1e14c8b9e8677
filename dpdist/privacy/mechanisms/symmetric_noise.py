"""Noise for packed symmetric matrices under epsilon alone, and a Wishart matrix as noise.

`dpdist.privacy.mechanisms.additive.SymmetricGaussian` is the one to use where delta > 0. For d columns and the nuclear
norm ``2 b`` or the Frobenius norm ``sqrt(2) b`` between neighbours, the standard deviation off the diagonal is

=================== ======================================== ==================================
mechanism           standard deviation off the diagonal      guarantee
=================== ======================================== ==================================
`TwoSidedWishart`   ``b sqrt(2 (d + 1)) / epsilon``          epsilon
`SymmetricKNorm`    ``b sqrt(D + 1) / epsilon``              epsilon; D = d (d + 1) / 2
`ApproximateWishart`  ``b sqrt(d + q)``                      (epsilon, delta)
=================== ======================================== ==================================

The laws are those of real numbers, of which as many digits are drawn as the released integers need
(`dpdist.privacy.randomness.matrices`): they are exact, and there is no gap that depends on the rounding of
floating-point numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.approximate_wishart import extra_degrees
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated, check_positive
from dpdist.privacy.mechanisms.norms import FROBENIUS, NUCLEAR
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers, dyadic_above
from dpdist.privacy.randomness.matrices import Reals, decided, gram_enclosed, rounded_ratio


@dataclass(frozen=True)
class _MatrixNoise(Mechanism):
    """Noise for a matrix of ``size`` columns, drawn in integers.

    Parameters
    ----------
    size : int
        Columns.
    """

    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BudgetError(f"a matrix has at least one column, got {self.size!r}")
        super().__post_init__()

    def entry_stds(self, sensitivity: float) -> tuple[float, float]:
        """Standard deviations of the noise: of an entry of the diagonal, and of another one."""
        raise NotImplementedError

    def noise_std(self, sensitivity: float) -> float:
        """Of an entry of the diagonal."""
        return self.entry_stds(sensitivity)[0]

    def _noise(self, sensitivity_units: float, bits: Bits) -> Integers:
        """The packed noise."""
        raise NotImplementedError

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """``units``, a packed matrix of integers, plus fresh noise; Python integers."""
        units = np.asarray(units)
        if units.dtype.kind not in "iO":
            raise TypeError(f"a mechanism releases integers (int64 or Python integers), got {units.dtype}")
        if units.shape != (self.size * (self.size + 1) // 2,):
            raise ValueError(f"noise for {self.size} columns, and a packed matrix of shape {units.shape}")
        check_positive("sensitivity_units", sensitivity_units)
        return np.asarray(units.astype(object) + self._noise(sensitivity_units, bits), dtype=object)


@dataclass(frozen=True)
class _PureMatrixNoise(_MatrixNoise):
    strength: float | None = None

    @property
    def cost(self) -> Cost:
        """Pure epsilon-DP."""
        return Cost("pure", calibrated(self.strength))


@dataclass(frozen=True)
class TwoSidedWishart(_PureMatrixNoise):
    """``c (W - W')`` for two Wishart matrices with d + 1 degrees of freedom: epsilon-DP in the nuclear norm.

    ``strength`` is ``epsilon = nuclear sensitivity / (2 c)``. With ``a = 1 / (2 c)``, a Wishart matrix with d + 1
    degrees of freedom and scale c has a density proportional to ``exp(-a tr P)`` on ``P >= 0``: the power of its
    determinant is exactly 0, so **no other degrees of freedom will do**. The difference has
    ``q(Z) = K int_{P >= 0, P >= Z} exp(-a tr P - a tr(P - Z)) dP``. For ``B >= 0``: with Z + B the domain shrinks and
    the integrand gains ``exp(a tr B)``, so ``q(Z + B) <= exp(a tr B) q(Z)``; substituting ``P + B`` for P the domain
    grows, so ``q(Z + B) >= exp(-a tr B) q(Z)``. A symmetric difference is ``D+ - D-`` with both parts positive, so the
    log-ratio is at most ``a (tr D+ + tr D-)``, a times its nuclear norm. (spec 06, ``m2-two-sided-wishart``; the
    published one-sided form, whose noise is never negative, is not private: seed 000, Theorem 6.3.4.)

    In one column it is Laplace noise of scale ``2 c``.

    >>> noise = TwoSidedWishart(size=20).at(1.0)
    >>> [round(std, 2) for std in noise.entry_stds(2.0)]   # rows of norm 1: nuclear norm 2
    [9.17, 6.48]
    """

    tag: ClassVar[str] = "TwoSidedWishart"

    norm: ClassVar[float] = NUCLEAR

    def entry_stds(self, sensitivity: float) -> tuple[float, float]:
        c = sensitivity / (2 * calibrated(self.strength))
        return 2 * c * math.sqrt(self.size + 1), c * math.sqrt(2 * (self.size + 1))

    def _noise(self, sensitivity_units: float, bits: Bits) -> Integers:
        scale = dyadic_above(Fraction(sensitivity_units) / (2 * Fraction(calibrated(self.strength))))
        numbers = Reals("normal", (2, self.size, self.size + 1), bits)

        def enclose() -> tuple[Integers, Integers]:
            middle, error = gram_enclosed(numbers.centres[0])
            taken, off = gram_enclosed(numbers.centres[1])
            middle -= taken
            del taken  # of a wide matrix it is large
            below = scale.denominator << (2 * numbers.places)
            low, high = (rounded_ratio(scale.numerator * (middle + sign * (error + off)), below) for sign in (-1, 1))
            return low, high

        return decided(enclose, numbers)


@dataclass(frozen=True)
class SymmetricKNorm(_PureMatrixNoise):
    """Noise with a density proportional to ``exp(-epsilon ||Z||_F / Delta)``: epsilon-DP in the Frobenius norm.

    ``strength`` is ``epsilon = Frobenius sensitivity / scale``: a shift by ``Delta`` moves the logarithm of the density
    by at most epsilon. The norm of Z is ``scale`` times a Gamma number of shape **D = d (d + 1) / 2** (one less gives
    another density, and no guarantee), its direction uniform (Hardt and Talwar 2010). Less noise than
    `TwoSidedWishart` for 2 and 3 columns.

    >>> noise = SymmetricKNorm(size=2).at(1.0)
    >>> [round(std, 2) for std in noise.entry_stds(math.sqrt(2))]
    [2.83, 2.0]
    """

    tag: ClassVar[str] = "SymmetricKNorm"

    norm: ClassVar[float] = FROBENIUS

    @property
    def entries(self) -> int:
        """D, the dimension of the matrices: the shape of the Gamma law."""
        return self.size * (self.size + 1) // 2

    def entry_stds(self, sensitivity: float) -> tuple[float, float]:
        std = sensitivity * math.sqrt(self.entries + 1) / calibrated(self.strength)
        return std, std / math.sqrt(2)

    def _noise(self, sensitivity_units: float, bits: Bits) -> Integers:
        scale = dyadic_above(Fraction(sensitivity_units) / Fraction(calibrated(self.strength)))
        n = self.entries
        lengths, directions = Reals("exponential", (n,), bits), Reals("normal", (n,), bits)
        rows, columns = np.triu_indices(self.size)
        weights = [1 if on else 2 for on in rows == columns]  # entries off the diagonal are divided by sqrt(2)

        def enclose() -> tuple[Integers, Integers]:
            low, high = [], []
            length, square = int(sum(lengths.centres)), sum(int(g) ** 2 for g in directions.centres)
            below = scale.denominator << lengths.places
            for g, weight in zip(map(int, directions.centres), weights, strict=True):
                norm, off = math.isqrt(weight * square), math.isqrt(weight * n) + 2  # of |g - centre| and both roots
                if norm <= off:  # so near to 0 that its direction is not known at all
                    return np.zeros(n, dtype=object), np.ones(n, dtype=object)
                ends = [
                    Fraction(scale.numerator * max(length + a, 0) * (g + b), below * (norm + c))
                    for a in (-n, n)
                    for b in (-1, 1)
                    for c in (-off, off)
                ]
                low.append(math.floor(min(ends) + Fraction(1, 2)))
                high.append(math.floor(max(ends) + Fraction(1, 2)))
            return np.array(low, dtype=object), np.array(high, dtype=object)

        return decided(enclose, lengths, directions)


@dataclass(frozen=True)
class ApproximateWishart(_MatrixNoise):
    """``b (W - (d + q) I)``, W a Wishart matrix with ``d + q`` degrees of freedom: (epsilon, delta)-DP.

    ``strength`` is epsilon, ``delta`` its delta; q is the least number of extra degrees of freedom whose privacy loss,
    computed by quadrature, is within both (`dpdist.privacy.accounting.approximate_wishart`): 2 to 14 times fewer than
    published (seed 000, Lemma 6.3.1). The mean is public and is taken away. For replacing one row, whose product with
    itself is of rank one, and for units of one row: the accounting is that of a removal and an addition. Kept for
    comparison: `SymmetricGaussian` needs less noise.

    >>> noise = ApproximateWishart(size=20, delta=1e-6).at(1.0)
    >>> noise.extra, noise.cost
    (58, Cost(kind='approximate', parameter=1.0, delta=1e-06))
    """

    tag: ClassVar[str] = "ApproximateWishart"

    delta: float = 1e-6
    strength: float | None = None

    norm: ClassVar[float] = NUCLEAR
    one_row_only: ClassVar[str] = (
        "a Wishart matrix as noise is proved where neighbours differ in one row; use mechanism='goe' or 'wishart'"
    )
    one_change_only: ClassVar[str] = one_row_only
    replace_one_only: ClassVar[bool] = True

    @property
    def extra(self) -> int:
        """q: degrees of freedom beyond the number of columns."""
        return extra_degrees(calibrated(self.strength), self.delta)

    @property
    def cost(self) -> Cost:
        """(epsilon, delta), no more."""
        return Cost("approximate", calibrated(self.strength), self.delta)

    def entry_stds(self, sensitivity: float) -> tuple[float, float]:
        off = sensitivity / 2 * math.sqrt(self.size + self.extra)
        return math.sqrt(2) * off, off

    def _noise(self, sensitivity_units: float, bits: Bits) -> Integers:
        degrees, scale = self.size + self.extra, dyadic_above(Fraction(sensitivity_units) / 2)
        numbers = Reals("normal", (self.size, degrees), bits)
        rows, columns = np.triu_indices(self.size)

        def enclose() -> tuple[Integers, Integers]:
            middle, error = gram_enclosed(numbers.centres)
            middle[rows == columns] -= degrees << (2 * numbers.places)
            below = scale.denominator << (2 * numbers.places)
            low, high = (rounded_ratio(scale.numerator * (middle + sign * error), below) for sign in (-1, 1))
            return low, high

        return decided(enclose, numbers)

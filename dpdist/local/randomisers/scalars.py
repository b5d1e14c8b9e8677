"""Reports of a number in [-1, 1].

=================== ============================================== ==================== ========================
randomiser          report                                         guarantee            noise at epsilon 1, 2, 4
=================== ============================================== ==================== ========================
`Hybrid`            one of the next two, by a public coin          pure epsilon         2.07, 1.02, .47
`OneBit`            a sign                                         pure epsilon         2.16, 1.31, 1.04
`Piecewise`         a number, likely near the true one             pure epsilon         2.29, 1.11, .49
`LaplaceScalar`     the number plus Laplace noise                  pure epsilon         2.83, 1.41, .71
`GaussianScalar`    the number plus normal noise                   (epsilon, delta)     8.4, 4.5, 2.4
`LaplaceBox`        several numbers, each with Laplace noise       pure epsilon         (2.83, 1.41, .71) size
=================== ============================================== ==================== ========================

(Standard deviation of a decoded report for the number where it is largest; the Gaussian at delta = 1e-6.) The first
three are discrete laws whose probabilities are counted in integers (`dpdist.kernels.scalar_reports`), and the Laplace
noise is drawn exactly: the guarantee has no floating-point gap. Gaussian reports are simulation grade.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.scalar_reports import LARGEST, ScalarLaw, cell_law, mixed_law, scalar_reports, sign_law
from dpdist.local.randomisers.scalar_sums import sum_of_reports
from dpdist.local.survey.protocol import Domain, Randomiser
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.randomness.draws import Draws
from dpdist.privacy.randomness.inversion import laplace_by_inversion

_ONE = 2.0**53
HYBRID_FROM = 0.61
"""Below this epsilon, nothing has a smaller worst variance than a sign."""
LAPLACE_TAIL = 32
"""Laplace reports are clamped at the range and so many scales (beyond them: a chance of 1e-14)."""
GAUSSIAN_TAIL = 13
"""Gaussian ones at so many standard deviations, or times the range (beyond them: a chance of 4e-33)."""

Reporter = Literal["hybrid", "one-bit", "piecewise"]


def best_scalar(epsilon: float) -> Hybrid:
    """The randomiser with the least noise where it is largest.

    >>> best_scalar(1.0).noise_std < min(OneBit(1, 1.0).noise_std, LaplaceScalar(1, 1.0).noise_std)
    True
    """
    return Hybrid(1, epsilon)


@lru_cache(maxsize=256)
def scalar_law(reporter: str, epsilon: float) -> ScalarLaw:
    """The integers of a reporter; `scalar_reports` draws from it, for arrays of numbers."""
    if reporter == "one-bit" or (reporter == "hybrid" and epsilon <= HYBRID_FROM):
        return sign_law(epsilon)
    if reporter == "piecewise":
        return cell_law(epsilon)
    return mixed_law(epsilon, -math.expm1(-min(epsilon, LARGEST) / 2))


@dataclass(frozen=True)
class _Scalar(Randomiser):
    size: int
    epsilon: float

    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        if self.size != 1 or not 1e-6 <= self.epsilon < math.inf:
            raise BudgetError(
                f"{self.name!r} reports one number with a finite epsilon of at least 1e-6, got size={self.size!r} and "
                f"epsilon={self.epsilon!r}; for several numbers use SampleCoordinates"
            )

    @property
    def width(self) -> int:
        return 1

    @property
    @abstractmethod
    def _scale(self) -> float:
        """What a unit of a report stands for."""

    @property
    def influence(self) -> float:
        return 2 * self.units * self._scale

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.array([reports.sum(dtype=np.int64)])

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        return total * (self._scale / n_users)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.abs(reports.astype(np.int64)) <= self.units


@dataclass(frozen=True)
class _Counted(_Scalar):
    """A law that is counted in words."""

    has_counts: ClassVar[bool] = True

    @property
    def law(self) -> ScalarLaw:
        """The law in integers."""
        return scalar_law(self.name, self.epsilon)

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype(np.int8 if self.units < 128 else np.int32)

    @property
    def units(self) -> int:
        return self.law.units

    @property
    def noise_std(self) -> float:
        return self.law.noise_std

    @property
    def _scale(self) -> float:
        return 1.0 / self.law.slope

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        return scalar_reports(values[:, 0], draws.words(len(values)), self.law).astype(self.report)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """By binomial splits (`dpdist.local.randomisers.scalar_sums`)."""
        return np.array([sum_of_reports(values[:, 0], counts, self.law, generator)])


@dataclass(frozen=True)
class OneBit(_Counted):
    """One sign, which is positive with probability ``1/2 + v / (2 c)``, ``c = (e^epsilon + 1) / (e^epsilon - 1)``.

    Decoded as ``+-c``: unbiased, with variance ``c^2 - v^2`` (Duchi, Jordan and Wainwright 2018; seed 000, section
    5.1). Either sign has a probability between ``1 / (e^epsilon + 1)`` and its complement.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> bit = OneBit(1, epsilon=1.0)
    >>> round(bit.noise_std, 3), bit.randomise(np.array([[0.5], [-1.0]]), SystemDraws()).shape
    (2.164, (2,))
    """

    tag: ClassVar[str] = "OneBit"

    name: ClassVar[str] = "one-bit"

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.abs(reports.astype(np.int64)) == 1


@dataclass(frozen=True)
class Piecewise(_Counted):
    """A number in ``[-C, C]``, ``C = (s + 1)/(s - 1)``, ``s = e^(epsilon/2)``: in a band around v with s to 1.

    The band of length ``C - 1`` is centred at ``v (C + 1)/2``, and its density is e^epsilon times that of the rest.
    Unbiased, with variance ``v^2 / (s - 1) + (s + 3) / (3 (s - 1)^2)`` (Wang, Xiao, Yang, Zhao, Hui, Shin, Shin and Yu
    2019). The line is cut into 2**21 cells, which are drawn with probabilities counted in integers; the band begins at
    a cell, so that the mean is off by at most 2**-21.

    Examples
    --------
    >>> round(Piecewise(1, epsilon=4.0).noise_std, 3)
    0.491
    """

    tag: ClassVar[str] = "Piecewise"

    name: ClassVar[str] = "piecewise"


@dataclass(frozen=True)
class Hybrid(_Counted):
    """`Piecewise` with probability ``1 - e^(-epsilon/2)``, otherwise `OneBit`; for epsilon <= 0.61 always `OneBit`.

    The coin knows nothing of the number, and both kinds of reports are epsilon-private. Its variance is the same for
    all numbers, and in the worst case the smallest of the three (Wang et al. 2019).

    Examples
    --------
    >>> [round(Hybrid(1, epsilon).noise_std, 2) for epsilon in (1.0, 2.0, 4.0)]
    [2.07, 1.02, 0.47]
    """

    tag: ClassVar[str] = "Hybrid"

    name: ClassVar[str] = "hybrid"


@dataclass(frozen=True)
class LaplaceScalar(_Scalar):
    """The number plus Laplace noise of scale ``2 / epsilon``; standard deviation ``2 sqrt(2) / epsilon``.

    Seed 000, Algorithm 5.1.30. The number is rounded to a grid of ``1 / steps`` and the noise is discrete Laplace,
    drawn exactly, for the distance ``2 steps`` of the ends of the range: pure epsilon without a floating-point gap.

    Examples
    --------
    >>> round(LaplaceScalar(1, epsilon=2.0).noise_std, 4)
    1.4142
    """

    tag: ClassVar[str] = "LaplaceScalar"

    name: ClassVar[str] = "laplace"

    @property
    def steps(self) -> int:
        """Units from 0 to 1; fewer for a small epsilon, where the noise would not fit in 32 bits."""
        return max(1, math.floor(2**20 * min(1.0, 8 * self.epsilon)))

    @property
    def noise_scale(self) -> int:
        """Of the noise, in units; rounded up, because a sampler of whole scales is faster."""
        return math.ceil(2 * self.steps / Fraction(self.epsilon))

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def units(self) -> int:
        return self.steps + LAPLACE_TAIL * self.noise_scale

    @property
    def noise_std(self) -> float:
        return 2 * math.sqrt(2) / self.epsilon

    @property
    def _scale(self) -> float:
        return 1.0 / self.steps

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int32]:
        steps = _whole_steps(values[:, 0], self.steps)
        noise = laplace_by_inversion(self.noise_scale, len(steps), draws)
        return np.clip(steps + noise, -self.units, self.units).astype(np.int32)


def _whole_steps(values: NDArray[np.float64], steps: int) -> NDArray[np.int64]:
    """Numbers in [-1, 1] on their grid; what is none counts as 0."""
    rounded = np.rint(values * steps)
    np.clip(rounded, -steps, steps, out=rounded)
    rounded[np.isnan(rounded)] = 0.0
    return rounded.astype(np.int64)


@dataclass(frozen=True)
class LaplaceBox(Randomiser):
    """Several numbers in [-1, 1], each plus Laplace noise of scale ``2 size / epsilon``; to see what sampling saves.

    Two records are at most ``2 size`` apart in the l1 norm. As `LaplaceScalar`, by whole steps and exact noise.

    Examples
    --------
    >>> round(LaplaceBox(9, epsilon=1.0).noise_std, 2)
    25.46
    """

    tag: ClassVar[str] = "LaplaceBox"

    size: int
    epsilon: float

    name: ClassVar[str] = "laplace-box"
    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        if not (1 <= self.size <= 2**16 and 1e-3 <= self.epsilon < math.inf):
            raise BudgetError(
                f"{self.name!r} reports up to {2**16} numbers with a finite epsilon of at least .001, got "
                f"size={self.size!r} and epsilon={self.epsilon!r}"
            )

    @property
    def steps(self) -> int:
        """Units from 0 to 1; few, so that sums of noise that is so large fit."""
        return 2**10

    @property
    def noise_scale(self) -> int:
        """Of the noise, in units; rounded up."""
        return math.ceil(2 * self.steps * self.size / Fraction(self.epsilon))

    @property
    def width(self) -> int:
        return self.size

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype((np.int64, (self.size,)))

    @property
    def units(self) -> int:
        return self.steps + LAPLACE_TAIL * self.noise_scale

    @property
    def noise_std(self) -> float:
        return 2 * math.sqrt(2) * self.size / self.epsilon

    @property
    def influence(self) -> float:
        return 2 * self.units / self.steps

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int64]:
        steps = _whole_steps(values, self.steps)
        noise = laplace_by_inversion(self.noise_scale, values.shape, draws)
        return np.asarray(np.clip(steps + noise, -self.units, self.units).astype(np.int64))

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(reports.sum(axis=0, dtype=np.int64))

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        return total / (self.steps * n_users)

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.abs(reports) <= self.units).all(axis=1))


@dataclass(frozen=True)
class GaussianScalar(_Scalar):
    """The number plus normal noise of standard deviation ``2 / mu``, for comparisons: the others have less.

    mu is the largest for which mu-GDP is (epsilon, delta)-DP; 2 is the distance of the ends of the range.

    Examples
    --------
    >>> round(GaussianScalar(1, 1.0, 1e-6).noise_std, 2)
    8.45
    """

    tag: ClassVar[str] = "GaussianScalar"

    delta: float = 1e-6

    name: ClassVar[str] = "gaussian-scalar"
    has_sums: ClassVar[bool] = True
    has_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 1:
            raise BudgetError(f"{self.name!r} needs delta between 0 and 1, got {self.delta!r}")

    @property
    def cost(self) -> Cost:
        return Cost("gaussian", _mu(self.epsilon, self.delta))

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def noise_std(self) -> float:
        return 2.0 / _mu(self.epsilon, self.delta)

    @property
    def units(self) -> int:
        return GAUSSIAN_TAIL * 2**20

    @property
    def _scale(self) -> float:
        return max(1.0, self.noise_std) / 2**20

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int32]:
        noisy = np.clip(values[:, 0], -1.0, 1.0) + self.noise_std * draws.normals(len(values))
        return np.clip(np.rint(noisy / self._scale), -self.units, self.units).astype(np.int32)

    def draw_sum(self, values: NDArray[Any], generator: np.random.Generator) -> NDArray[np.int64]:
        """One normal number for all of them."""
        return self._draw_around(float(values.sum()), len(values), generator)

    def draw_counted(
        self, values: NDArray[Any], counts: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        return self._draw_around(float(counts @ values[:, 0]), int(counts.sum()), generator)

    def _draw_around(self, total: float, n_users: int, generator: np.random.Generator) -> NDArray[np.int64]:
        noise = math.sqrt(n_users) * self.noise_std * generator.standard_normal()
        return np.array([np.rint((total + noise) / self._scale)]).astype(np.int64)


_mu = lru_cache(maxsize=256)(gdp_mu)  # it is asked for in every block of users

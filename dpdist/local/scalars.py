"""Reports of a number in [-1, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.protocol import Domain, Randomiser
from dpdist.privacy.draws import Draws

_ONE = 2.0**53


def smallest_chance(epsilon: float) -> float:
    """``1 / (e^epsilon + 1)`` rounded up to a multiple of 2**-53, so that its odds are at most e^epsilon exactly."""
    return math.ceil(_ONE / (math.exp(epsilon) + 1.0) * (1 + 2.0**-50)) / _ONE


@dataclass(frozen=True)
class OneBit(Randomiser):
    """One sign, which is positive with probability ``1/2 + v / (2 c)``, ``c = (e^epsilon + 1) / (e^epsilon - 1)``.

    Decoded as ``+-c``: unbiased, with variance ``c^2 - v^2`` (Duchi, Jordan and Wainwright 2018; seed 000, section
    5.1). The probability is a multiple of 2**-53 between ``1 / (e^epsilon + 1)`` and its complement, enforced on the
    integers, so the guarantee has no floating-point gap.

    Examples
    --------
    >>> from dpdist.privacy.draws import SystemDraws
    >>> bit = OneBit(1, epsilon=1.0)
    >>> round(bit.noise_std, 3), bit.randomise(np.array([[0.5], [-1.0]]), SystemDraws()).shape
    (2.164, (2,))
    """

    size: int
    epsilon: float

    name: ClassVar[str] = "one-bit"
    domain: ClassVar[Domain] = "box"

    @property
    def width(self) -> int:
        return 1

    @property
    def report(self) -> np.dtype[Any]:
        return np.dtype(np.int8)

    @property
    def noise_std(self) -> float:
        return self.influence

    @property
    def influence(self) -> float:
        return 1.0 / (1.0 - 2.0 * smallest_chance(self.epsilon))

    @property
    def units(self) -> int:
        return 1

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[np.int8]:
        low = smallest_chance(self.epsilon)
        chance = np.clip(0.5 + values[:, 0] * (0.5 - low), low, 1.0 - low)
        return np.where(draws.uniforms(len(values)) < chance, 1, -1).astype(np.int8)

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        return np.array([reports.sum(dtype=np.int64)])

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        return total * self.influence / n_users

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        return np.abs(reports) == 1

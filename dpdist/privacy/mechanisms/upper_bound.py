"""An upper bound of a count: (epsilon, delta)-DP, where delta is that the bound is none.

Its `Cost` is a pair: delta is a public field of the mechanism, epsilon is what the plan calibrates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.mechanisms.additive import Laplace
from dpdist.privacy.mechanisms.mechanism import Mechanism, calibrated
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers


@dataclass(frozen=True)
class UpperBound(Mechanism):
    """A private number that is at least the true count on both of two neighbours, but with probability ``delta``.

    Laplace noise, and so much on top that the sum is rarely too small: pure epsilon-DP by itself. The delta of its
    cost pays for whatever relies on the bound: later releases whose guarantee needs it hold whenever it is one.

    >>> from dpdist.privacy.randomness.bits import SystemBits
    >>> bound = UpperBound(delta=1e-9).at(1.0).release(np.array([1000]), 1.0, SystemBits())
    >>> bool(1001 <= bound[0] < 1100)
    True
    """

    tag: ClassVar[str] = "UpperBound"

    delta: float
    strength: float | None = None

    norm: ClassVar[float] = 1

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise BudgetError(f"an upper bound needs delta in (0, 1), got {self.delta!r}; take 1e-8, say")
        super().__post_init__()

    @property
    def cost(self) -> Cost:
        """(epsilon, delta)-DP, the failure of the bound included."""
        return Cost("approximate", calibrated(self.strength), self.delta)

    def noise_std(self, sensitivity: float) -> float:
        """Standard deviation of the noise."""
        return Laplace(calibrated(self.strength)).noise_std(sensitivity)

    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """``units`` plus Laplace noise plus the margin."""
        epsilon = calibrated(self.strength)
        tail = max(0.0, math.log(1 / (2 * self.delta))) * (1 + 1e-9)  # P(Laplace < -tail scale) = delta
        margin = math.ceil(sensitivity_units * (1 + tail * (1 + 2.0**-39) / epsilon)) + 1
        return Laplace(epsilon).release(np.asarray(units, dtype=object) + margin, sensitivity_units, bits)

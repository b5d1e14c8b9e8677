"""What every mechanism is: its noise and its cost in one object, and what its proof asks of whoever uses it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers


@dataclass(frozen=True)
class Mechanism(ABC):
    """Integers in, private integers out.

    A coordinator knows mechanisms by what is declared here, and none by its name.
    """

    norm: ClassVar[float]
    """The norm (1, 2, inf or one of `dpdist.privacy.mechanisms.norms`) in which the sensitivity of the release is
    measured."""
    in_units: ClassVar[bool] = True
    """Whether what is released is in the units of what is given: numbers, not the index of a candidate."""
    one_row_only: ClassVar[str] = ""
    """Where the proof needs units of one row each: why, and what to use for others."""
    one_change_only: ClassVar[str] = ""
    """Where the proof needs a query that one unit changes once, however many rows it owns: why."""
    replace_one_only: ClassVar[bool] = False
    """Whether the proof needs neighbours that differ in one row of a public number of rows."""

    def __post_init__(self) -> None:
        if self.strength is not None:
            check_positive("strength", self.strength)

    @property
    @abstractmethod
    def strength(self) -> float | None:
        """Sensitivity over noise; None until calibrated."""

    def at(self, strength: float) -> Self:
        """The same mechanism, calibrated."""
        return replace(self, strength=strength)  # type: ignore[call-arg] # a field of every mechanism

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """What one release costs."""

    @property
    def reported(self) -> Cost | None:
        """What one report costs, where the sum is one of reports that are private already; elsewhere None."""
        return None

    @property
    def smoothness(self) -> float | None:
        """Where the noise follows the data: how much the logarithm of the bound may move between neighbours."""
        return None

    @abstractmethod
    def noise_std(self, sensitivity: float) -> float:
        """Standard deviation of the noise of one coordinate, in the units of ``sensitivity``."""

    @abstractmethod
    def release(self, units: NDArray[Any], sensitivity_units: float, bits: Bits) -> Integers:
        """``units`` plus fresh noise."""


def calibrated(strength: float | None) -> float:
    """The strength, or an error if the mechanism was never calibrated."""
    if strength is None:
        raise BudgetError("this mechanism has no strength yet: call .at(strength), or calibrate the plan it belongs to")
    return strength


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive finite number (all callers pass public numbers)."""
    if not (math.isfinite(value) and value > 0):
        raise BudgetError(f"{name} must be a positive finite number, got {value!r}")

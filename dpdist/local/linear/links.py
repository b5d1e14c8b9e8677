"""Known monotone functions between linear predictor and label: ``y = f(<x, theta>) + noise``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError

Floats = NDArray[np.float64]
LARGEST_LABEL = 1e12
"""Labels are cut at it before they are put into a link, so that nothing overflows."""
PREDICTORS = np.geomspace(1e-3, 50.0, 101)
"""Public linear predictors at which a function is looked at."""
ROUNDED = 1e-9
"""What rounding leaves of a difference that is 0, in parts of its terms."""


def is_even(function: Callable[[Floats], Floats], sign: float = 1.0) -> bool:
    """Whether ``f(-u) = sign f(u)`` at all public predictors at which both are numbers.

    The mean slope of an even function is 0 over any law that is symmetric around 0, so that labels with such a mean are
    uncorrelated with the features.

    >>> is_even(np.cos), is_even(np.exp), is_even(np.sin, -1.0)
    (True, False, True)
    """
    with np.errstate(all="ignore"):
        above, below = (np.asarray(function(u), dtype=np.float64) for u in (PREDICTORS, -PREDICTORS))
        same = np.abs(above - sign * below) <= ROUNDED * (np.abs(above) + np.abs(below))
    known = np.isfinite(above) & np.isfinite(below)
    return bool(known.any() and np.broadcast_to(same, known.shape)[known].all())


def refuse_even(name: str, value: Callable[[Floats], Floats], slope: Callable[[Floats], Floats]) -> None:
    """Refuse an even mean of the label, before anybody is asked."""
    if is_even(value) or is_even(slope, -1.0):
        raise BudgetError(
            f"{name} is an even function of the linear predictor: its mean slope is 0, labels are uncorrelated with "
            "features that are symmetric around 0, and no number of users would tell the coefficients. Choose one that "
            "increases, or fit products of the features in place of the features"
        )


class Link(ABC):
    """An increasing function with slopes between two positive public numbers.

    A link of your own is a frozen dataclass, whose ``repr`` is what the users are told about it. The slopes are
    enforced where the privacy of a report rests on them, so a wrong one costs accuracy only.

    Attributes
    ----------
    slopes : tuple of two floats
        ``0 < a <= f' <= b``.
    """

    @property
    @abstractmethod
    def slopes(self) -> tuple[float, float]: ...

    @abstractmethod
    def value(self, u: Floats) -> Floats:
        """f."""

    @abstractmethod
    def derivative(self, u: Floats) -> Floats:
        """f'."""

    def inverse(self, y: Floats) -> Floats:
        """``u`` with ``f(u) = y``, by a fixed number of steps ``u - 2 (f(u) - y) / (a + b)``.

        They contract by ``(b - a)/(b + a)``, to 2**-40 of where they begin.
        """
        a, b = self.slopes
        u = (y - self.value(np.zeros(1))) * 2 / (a + b)
        rate = (b - a) / (b + a)
        for _ in range(0 if rate == 0 else min(1000, math.ceil(-40 / math.log2(rate)))):
            u = u - 2 / (a + b) * (self.value(u) - y)
        return u


@dataclass(frozen=True)
class Identity(Link):
    """The linear model."""

    tag: ClassVar[str] = "Identity"

    @property
    def slopes(self) -> tuple[float, float]:
        return 1.0, 1.0

    def value(self, u: Floats) -> Floats:
        return u

    def derivative(self, u: Floats) -> Floats:
        return np.ones_like(u)

    def inverse(self, y: Floats) -> Floats:
        return y


@dataclass(frozen=True)
class Wave(Link):
    """``f(u) = slope u + cos(u)``, the example of seed 000, section 5.3.6.

    Examples
    --------
    >>> link = Wave(8.0)
    >>> bool(np.allclose(link.inverse(link.value(np.linspace(-5, 5, 11))), np.linspace(-5, 5, 11), atol=1e-9))
    True
    """

    tag: ClassVar[str] = "Wave"

    slope: float = 8.0

    @property
    def slopes(self) -> tuple[float, float]:
        return self.slope - 1, self.slope + 1

    def value(self, u: Floats) -> Floats:
        return self.slope * u + np.cos(u)

    def derivative(self, u: Floats) -> Floats:
        return self.slope - np.sin(u)


IDENTITY = Identity()
LINKS: Mapping[str, Link] = MappingProxyType({"identity": IDENTITY, "wave": Wave()})
"""What a link can be called by name."""

"""What the frequency oracles share: exact odds, and how often a category is supported by mistake."""

from __future__ import annotations

import functools
import math
import numbers
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.local.survey.protocol import Domain, Randomiser


@functools.cache
def odds(epsilon: float) -> Fraction:
    """A rational number just below ``e^epsilon``: no ratio of two probabilities of a report may exceed it.

    >>> 0 < math.e - odds(1.0) < 1e-14
    True
    """
    return Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))


@dataclass(frozen=True)
class FrequencyOracle(Randomiser):
    """A randomiser of categories, whose decoder estimates how frequent each of them is.

    Parameters
    ----------
    size : int
        Number of categories, at least 2.
    epsilon : float
        From 1e-6 to 100.
    """

    size: int
    epsilon: float

    domain: ClassVar[Domain] = "category"

    def __post_init__(self) -> None:
        if not isinstance(self.size, numbers.Integral) or self.size < 2:
            raise BudgetError(f"size must be the number of categories, a whole number of at least 2, got {self.size!r}")
        if not isinstance(self.epsilon, numbers.Real) or not 1e-6 <= self.epsilon <= 100:
            raise BudgetError(f"epsilon must be a number from 1e-6 to 100, got {self.epsilon!r}")

    @abstractmethod
    def variance(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """``n`` times the variance of the decoded frequencies of ``n`` users with these true ones."""

    @property
    def noise_std(self) -> float:
        return float(np.sqrt(self.variance(np.array([0.0, 1.0])).max()))

    @property
    def usual_variance(self) -> float:
        """For a rare category."""
        return float(self.variance(np.zeros(1))[0])

    @property
    def units(self) -> int:
        return 1


class SupportOracle(FrequencyOracle):
    """An oracle whose every report supports some of the categories; the server counts supporters.

    With p the chance that a report supports its sender's category and q that it supports another given one, the
    estimate is ``(count / n - q) / (p - q)``, with variance ``(f p (1 - p) + (1 - f) q (1 - q)) / (n (p - q)^2)`` at
    frequency f (Wang, Blocki, Li and Jha 2017). A dishonest report moves it by ``1 / (n (p - q))`` at most.
    """

    @property
    @abstractmethod
    def chances(self) -> tuple[Fraction, Fraction]:
        """p and q."""

    def variance(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        p, q = self.chances
        own, other = float(p * (1 - p) / (p - q) ** 2), float(q * (1 - q) / (p - q) ** 2)
        return frequencies * own + (1 - frequencies) * other

    @property
    def influence(self) -> float:
        p, q = self.chances
        return float(1 / (p - q))

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        p, q = self.chances
        return (np.asarray(total, dtype=np.float64) / n_users - float(q)) * float(1 / (p - q))


def counts_of(
    values: NDArray[Any], size: int, counts: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], int]:
    """How many users have each category, and how many have none; of every value ``counts`` users, or one."""
    if counts is None:
        found = np.bincount(values + 1, minlength=size + 1)
    else:
        found = np.zeros(size + 1, dtype=np.int64)  # weights of bincount are float64, which holds 2**53 users
        np.add.at(found, values + 1, counts)
    return found[1:], int(found[0])

"""Reports of a vector with entries in [-1, 1]: a few of its coordinates, drawn at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.kernels.scalar_reports import ScalarLaw, scalar_reports
from dpdist.local.randomisers.scalars import Reporter, scalar_law
from dpdist.local.survey.protocol import Domain, Sampled, SamplingRandomiser
from dpdist.privacy.randomness.draws import Draws

EPSILON_EACH = 2.5
"""With so much epsilon for each, two coordinates tell more than one."""
COMPILED_FROM = 64
"""So many users are worth a compiled draw; the coordinates are the same."""
REPORTERS = ("hybrid", "one-bit", "piecewise")


@dataclass(frozen=True)
class SampleCoordinates(SamplingRandomiser):
    """Reports about k coordinates, drawn without replacement, each with ``epsilon / k``.

    The drawn coordinates are part of the report and know nothing of the record; given them, the report is k reports
    about numbers in [-1, 1] that compose to epsilon. The server divides the sum of the reports about a coordinate by
    their number, so its error depends on the noise and hardly on the values; it is unbiased as long as there is a
    report about the coordinate (there are about ``n k / d``; without one, the estimate is 0). With
    ``k = epsilon / 2.5`` the standard deviation of a coordinate is the best there is, up to constants:
    ``c sqrt(d / k)``, where sending all of them with ``epsilon / d`` each would cost ``c d`` (Duchi, Jordan and
    Wainwright 2018; Wang et al. 2019; seed 000, Lemma 5.1.6).

    Poisoned reports: those about one coordinate compete with the ``n k / d`` honest ones about it.

    Parameters
    ----------
    size : int
    epsilon : float
    n_sampled : int or "auto"
        k; "auto" is ``clip(floor(epsilon / 2.5), 1, size)``.
    reporter : {"hybrid", "one-bit", "piecewise"}
        "one-bit" if a report must be short: a sign and the number of the coordinate.

    Examples
    --------
    >>> from dpdist.privacy.randomness.draws import SystemDraws
    >>> randomiser = SampleCoordinates(128, epsilon=1.0, reporter="one-bit")
    >>> report = randomiser.randomise(np.ones((1, 128)), SystemDraws())
    >>> report["value"].shape, round(randomiser.noise_std, 1)
    ((1, 1), 27.0)
    """

    tag: ClassVar[str] = "SampleCoordinates"

    size: int
    epsilon: float
    n_sampled: int | Literal["auto"] = "auto"
    reporter: Reporter = "hybrid"

    name: ClassVar[str] = "sample-coordinates"
    domain: ClassVar[Domain] = "box"

    def __post_init__(self) -> None:
        if self.reporter not in REPORTERS:
            raise BudgetError(
                f"reporter={self.reporter!r} is not known; choose one of {', '.join(map(repr, REPORTERS))}"
            )
        if not (1 <= self.size < 2**31 and 1e-6 <= self.epsilon < math.inf):
            raise BudgetError(
                f"{self.name!r} needs a size of at least 1 and a finite epsilon of at least 1e-6, got "
                f"size={self.size!r} and epsilon={self.epsilon!r}"
            )
        if self.n_sampled == "auto":
            k = int(np.clip(self.epsilon // EPSILON_EACH, 1, self.size))
            object.__setattr__(self, "n_sampled", k)
        elif not (isinstance(self.n_sampled, int) and 1 <= self.n_sampled <= self.size):
            raise BudgetError(
                f"n_sampled must be 'auto' or a whole number from 1 to {self.size}, got {self.n_sampled!r}"
            )

    @property
    def k(self) -> int:
        """How many coordinates a user reports."""
        return int(self.n_sampled)

    @property
    def law(self) -> ScalarLaw:
        """Of the report about one coordinate; the product of the k laws is epsilon-private."""
        return scalar_law(self.reporter, self.epsilon / self.k)

    @property
    def slope(self) -> float:
        """The mean of a report about a number is this times the number."""
        return self.law.slope

    @property
    def spread(self) -> float:
        """Variance of a decoded report about a number, at most, with what the choice of the users adds to it."""
        return max(self.law.variance(0.0), self.law.variance(1.0) + 1.0)

    @property
    def width(self) -> int:
        return 2 * self.k

    @property
    def report(self) -> np.dtype[Any]:
        value = np.int8 if self.units < 128 else np.int32
        return np.dtype([("coordinate", np.int32, (self.k,)), ("value", value, (self.k,))])

    @property
    def noise_std(self) -> float:
        """With what the choice of the users adds to the square at most, ``d/k - 1`` (their values differ by 2)."""
        share = self.size / self.k
        return math.sqrt(share * self.law.noise_std**2 + share - 1)

    @property
    def influence(self) -> float:
        return 2 * self.size / self.k * self.units / self.law.slope

    @property
    def units(self) -> int:
        return self.law.units

    def sample(self, n_users: int, draws: Draws) -> Sampled:
        words = draws.words(n_users * self.width).reshape(n_users, self.width)
        return Sampled(_distinct(words[:, : self.k], self.size), words[:, self.k :])

    def randomise_at(self, sampled: Sampled, values: NDArray[np.float64]) -> NDArray[Any]:
        reports = np.empty(len(values), self.report)
        reports["coordinate"] = sampled.coordinates
        reports["value"] = scalar_reports(values, sampled.words, self.law)
        return reports

    def accumulate(self, reports: NDArray[Any]) -> NDArray[np.int64]:
        """The sums of the reports about every coordinate, then their numbers."""
        drawn, values = reports["coordinate"].ravel(), reports["value"].ravel()
        total = np.zeros(2 * self.size, np.int64)
        np.add.at(total, drawn, values)
        total[self.size :] = np.bincount(drawn, minlength=self.size)
        return total

    def summarise_at(self, sampled: Sampled, values: NDArray[np.float64]) -> NDArray[np.int64]:
        from dpdist.kernels.sampled_coordinates import sampled_sum  # a device does without numba

        total = np.zeros(2 * self.size, np.int64)
        sampled_sum(sampled.coordinates, values, sampled.words, *self.law, total)
        return total

    def decode(self, total: NDArray[np.float64], n_users: int) -> NDArray[np.float64]:
        return self.means(total[: self.size], total[self.size :])

    def means(self, sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimates of numbers from the sums of so many reports about them."""
        return sums / np.maximum(counts, 1.0) / self.law.slope

    def valid(self, reports: NDArray[Any]) -> NDArray[np.bool_]:
        drawn, values = np.sort(reports["coordinate"], axis=1), np.abs(reports["value"].astype(np.int64))
        known = (drawn[:, 0] >= 0) & (drawn[:, -1] < self.size) & (drawn[:, 1:] > drawn[:, :-1]).all(axis=1)
        one_bit = self.law.units == 1
        return np.asarray(known & (values <= self.units).all(axis=1) & ((values > 0).all(axis=1) | (not one_bit)))


def _distinct(words: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    """As many different coordinates per row as there are words (Floyd; Bentley 1987)."""
    n, k = words.shape
    drawn = np.empty((n, k), np.int64)
    if n >= COMPILED_FROM:
        from dpdist.kernels.sampled_coordinates import distinct_coordinates  # a device does without numba

        distinct_coordinates(words, size, drawn)
        return drawn
    for i in range(k):
        last = size - k + i
        at = (((words[:, i] >> np.uint64(32)) * np.uint64(last + 1)) >> np.uint64(32)).astype(np.int64)
        taken = (drawn[:, :i] == at[:, None]).any(axis=1)
        drawn[:, i] = np.where(taken, last, at)
    return drawn

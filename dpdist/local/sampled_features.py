"""Methods that ask every user about a few features of the record, drawn at random, and answer questions of all of them.

The features are numbers in [-1, 1] with tickets (`dpdist.local.statistics.ticketed`); what is drawn is public and knows
nothing of the record. Any answer is a linear map of the estimates, so its error is known from the numbers of reports.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.coordinates import Reporter, SampleCoordinates
from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Oracle

USERS_A_FEATURE = 200
"""For each feature (each ticket of it) there must be so many users: below, answers are noise, and who happens to be
asked about what costs more than half a percent of the variance."""


@dataclass(frozen=True)
class SampledFeatures(LocalMethod):
    """One question to all users: a few features of their record, drawn at random."""

    unit: ClassVar[float] = 1.0
    """What 1 in a report stands for."""

    @property
    @abstractmethod
    def statistic(self) -> Ticketed:
        """What is asked of a record."""

    @property
    def reporter(self) -> Reporter:
        """A value of size 1 has no better report than a bit."""
        return "one-bit"

    @property
    def randomiser(self) -> SampleCoordinates:
        """The law of a report."""
        return SampleCoordinates(self.statistic.size, float(self.public.budget.epsilon), "auto", self.reporter)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [LocalProtocol(self.statistic, self.randomiser)]

    @property
    def n_reports(self) -> int:
        """About features, of all users."""
        return self.public.n_rows * self.randomiser.k

    @property
    def needed(self) -> int:
        """So few users can be asked about all features."""
        return USERS_A_FEATURE * self.statistic.size

    @abstractmethod
    def smaller(self) -> Iterator[tuple[str, Self]]:
        """What asks about fewer features, the most of them first, and how it is said."""

    def check_enough(self) -> None:
        """Refuse more features than users can be asked about, with the most that they can."""
        n = self.public.n_rows
        if n < self.needed:
            fits = next((f"{said} fits" for said, asked in self.smaller() if n >= asked.needed), "take fewer columns")
            raise BudgetError(
                f"{n} users are too few for {self.features_asked}: at least {USERS_A_FEATURE} for each are needed; "
                f"{fits}, or {self.needed} users"
            )

    @property
    @abstractmethod
    def features_asked(self) -> str:
        """How many of what, in words."""

    @property
    def foreseen_reports(self) -> NDArray[np.float64]:
        """About each feature, in the mean."""
        return np.asarray(self.statistic.n_tickets * (self.n_reports / self.statistic.size))

    def stds(self, n_reports: NDArray[Any]) -> NDArray[np.float64]:
        """Of the estimates of the features, at most: the noise of so many reports, and who happened to be asked."""
        return self.unit * math.sqrt(self.randomiser.spread) / np.sqrt(np.maximum(n_reports, 1))

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        statistic, law = self.statistic, self.randomiser
        sums, counts = (statistic.of_features(part) for part in np.split(self.total(oracle), 2))
        estimates = statistic.restore(law.means(sums, counts))
        return {"estimates": estimates, "n_reports": counts.astype(np.int64)}

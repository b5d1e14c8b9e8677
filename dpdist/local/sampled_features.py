"""Methods that ask every user about a few features of the record, drawn at random, and answer questions of all of them.

The features are numbers in [-1, 1] with tickets (`dpdist.local.statistics.ticketed`); what is drawn is public and knows
nothing of the record. Any answer is a linear map of the estimates, so its error is known from the numbers of reports.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import BudgetError
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.coordinates import Reporter, SampleCoordinates
from dpdist.local.statistics.ticketed import Ticketed
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Oracle

FEWEST = 5
"""Expected reports about a ticket; with fewer, some features might be asked of nobody."""


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

    def check_enough(self, way_out: str) -> None:
        """Refuse more features than users can be asked about."""
        size, needed = self.statistic.size, FEWEST * self.statistic.size
        if self.n_reports < needed:
            raise BudgetError(
                f"{self.public.n_rows} users are too few for {size} features (about {self.n_reports / size:.1f} "
                f"reports about each, and {FEWEST} are needed): {way_out}, or "
                f"{math.ceil(needed / self.randomiser.k)} users"
            )

    @property
    def foreseen_reports(self) -> NDArray[np.float64]:
        """About each feature, in the mean."""
        return np.asarray(self.statistic.n_tickets * (self.n_reports / self.statistic.size))

    def stds(self, n_reports: NDArray[Any]) -> NDArray[np.float64]:
        """Of the estimates of the features, at most: the noise of so many reports, and who happened to be asked."""
        law = self.randomiser.law
        spread = max(law.variance(0.0), law.variance(1.0) + 1.0)
        return self.unit * math.sqrt(spread) / np.sqrt(np.maximum(n_reports, 1))

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        statistic = self.statistic
        sums, counts = (statistic.of_features(part) for part in np.split(self.total(oracle), 2))
        estimates = statistic.restore(sums / np.maximum(counts, 1.0) / self.randomiser.law.slope)
        return {"estimates": estimates, "n_reports": counts.astype(np.int64)}

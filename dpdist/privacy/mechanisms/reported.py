"""What it costs that users report for themselves: no noise is added to their sum, it is in it already."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.closed_forms import gdp_mu
from dpdist.privacy.accounting.cost import Cost
from dpdist.privacy.accounting.releases import Releases, columns
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits
from dpdist.privacy.randomness.discrete import Integers


@dataclass(frozen=True)
class Reported(Mechanism):
    """The line of a plan that pays for one report of every user.

    Its cost is that of a single report, whoever sees it, so it is not calibrated: the report is what it is. A
    coordinator accepts it only for a query whose rows are randomised at this very cost
    (`dpdist.engine.query.Query.reported`).

    Parameters
    ----------
    cost : Cost
        Of one report.

    Examples
    --------
    >>> Reported(Cost("pure", 1.0)).at(0.1).cost
    Cost(kind='pure', parameter=1.0)
    """

    tag: ClassVar[str] = "Reported"

    report: Cost

    norm: ClassVar[float] = math.inf

    @property
    def strength(self) -> float:
        """The parameter of the cost."""
        return self.report.parameter

    def at(self, strength: float) -> Self:
        """Itself: a protocol is made for its epsilon."""
        return self

    @property
    def cost(self) -> Cost:
        """What one report costs."""
        return self.report

    @property
    def reported(self) -> Cost:
        """The same."""
        return self.report

    def noise_std(self, sensitivity: float) -> float:
        """``sensitivity``, where the query of reports tells the standard deviation of one of them."""
        return sensitivity

    def release(self, units: Any, sensitivity_units: float, bits: Bits) -> Integers:
        """The sum of the reports as it is."""
        integers: Integers = units
        return integers


def reported_budget(releases: Sequence[Releases], budget: Budget) -> tuple[Budget, str]:
    """What reports cost the user who pays most, and the accountant that says so.

    Raises
    ------
    BudgetError
        When it is more than ``budget``.
    """
    pure, mu = 0.0, 0.0
    for column in columns(releases):
        kinds = {release.cost.kind for release in column}
        if len(kinds) > 1 or not kinds <= {"pure", "gaussian"}:
            raise BudgetError(f"the reports of one user must be all pure or all Gaussian, got {sorted(kinds)}")
        if kinds == {"pure"}:
            pure = max(pure, math.fsum(r.count * r.cost.parameter for r in column))
        else:
            mu = max(mu, math.sqrt(math.fsum(r.count * r.cost.parameter**2 for r in column)))
    if pure > budget.epsilon or (mu > 0 and mu > gdp_mu(budget.epsilon, budget.delta)):
        raise BudgetError(
            f"the reports of one user cost more than epsilon = {budget.epsilon:g}, delta = {budget.delta:g}: make the "
            "protocol for a smaller epsilon, or ask every user once"
        )
    return (Budget(pure), "pure") if mu == 0 else (budget, "gdp")

"""What one run costs the account of its dataset."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpdist.errors import BudgetError
from dpdist.privacy.budget import Budget, Neighbours


@dataclass(frozen=True)
class Charge:
    """The cost of one run, for the rows it reads.

    Parameters
    ----------
    epsilon, delta : float
        The run is (epsilon, delta)-DP under `neighbours`.
    neighbours : Neighbours
    mu : float, optional
        Given if all noise is Gaussian: the run is mu-GDP. Needed by an account whose rule is "gaussian".
    split, fold : str and int, optional
        Given together if the run reads one fold of a named split only. The folds of one split are disjoint and chosen
        by a rule that does not depend on the rows' values (the slot under replace-one, a row key under
        add-or-remove-one), so a row pays for one of them: the account takes the maximum inside a split. Folds of
        different splits overlap: their maxima add, and add to the charges on all rows.

    Examples
    --------
    >>> Charge(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE).under_replace_one().epsilon
    2.0
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    mu: float | None = None
    split: str | None = None
    fold: int | None = None

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)  # the same ranges, the same messages
        if self.mu is not None and not (math.isfinite(self.mu * self.mu) and self.mu > 0):  # squares of mu are added
            raise BudgetError(f"mu must be a positive number with a finite square or None, got {self.mu!r}")
        if (self.split is None) != (self.fold is None):
            raise BudgetError(f"give split and fold together or neither, got {self.split!r} and {self.fold!r}")

    def under_replace_one(self) -> Charge:
        """Convert an add-or-remove-one cost: a replacement is a removal and an addition (group privacy, two steps)."""
        if self.neighbours is Neighbours.REPLACE_ONE:
            return self
        return replace(
            self,
            epsilon=2 * self.epsilon,
            delta=(1 + math.exp(self.epsilon)) * self.delta,
            mu=None if self.mu is None else 2 * self.mu,
            neighbours=Neighbours.REPLACE_ONE,
        )

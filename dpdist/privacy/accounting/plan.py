"""Everything a run will release, with the noise that makes it meet the budget.

A plan is written down before any data is seen, calibrated, charged, and then released item by item. What is released
and what is accounted are one object, so they cannot drift apart.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from dpdist.errors import BudgetError
from dpdist.html import card, records
from dpdist.identity import ADDED, plain, tag_of
from dpdist.privacy.accounting.releases import FixedSize, Poisson, Releases, Sampling, column_rho, columns
from dpdist.privacy.accounting.stream_paths import StreamPath
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.guarantee import Guarantee, rounded_up
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.protected_units import ALL_DATA, Protected, owner_in


@dataclass(frozen=True)
class Item:
    """One line of a plan: a mechanism that is used ``count`` times.

    Parameters
    ----------
    name : str
        Unique in the plan.
    mechanism : Mechanism
        `dpdist.privacy.accounting.calibration.calibrate` sets its strength, whatever it was before.
    count : int, default 1
    share : float, default 1
        Part of the budget, relative to the other items: of mu^2 (rho) when delta > 0, of epsilon when delta = 0. All
        ``count`` releases together get it. Items of one fold add up; of one split the most expensive fold counts.
    sampling : Poisson or FixedSize, optional
        None: every row takes part.
    fold : (split, index), optional
        The part of a disjoint split that the item reads; None: all rows. Parts are dealt by slot, never by values.
    passes : int, default 1
        How often each release goes through the rows (a solver that runs before its noise does so many times).
    path : StreamPath, optional
        For releases that rows pay for unequally: one for each turn of the path, in its order.
    """

    tag: ClassVar[str] = "Item"

    name: str
    mechanism: Mechanism
    count: int = 1
    share: float = 1.0
    sampling: Sampling | None = None
    fold: tuple[Hashable, int] | None = None
    passes: int = 1
    path: StreamPath | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise BudgetError(f"an item needs a name, a non-empty string, got {self.name!r}")
        try:
            if isinstance(self.count, bool) or operator.index(self.count) < 1:
                raise TypeError
        except TypeError:
            raise BudgetError(
                f"item {self.name!r}: count must be an integer of at least 1, got {self.count!r}"
            ) from None
        if not (math.isfinite(self.share) and self.share > 0):
            raise BudgetError(f"item {self.name!r}: share must be a positive finite number, got {self.share!r}")
        if not (self.sampling is None or isinstance(self.sampling, Poisson | FixedSize)):
            raise BudgetError(
                f"item {self.name!r}: sampling must be Poisson(...) or FixedSize(...), got {self.sampling!r}"
            )
        if self.fold is not None and not (isinstance(self.fold, tuple) and len(self.fold) == 2):
            raise BudgetError(f"item {self.name!r}: fold must be a pair (split, index), got {self.fold!r}")
        if self.path is not None and self.count != self.path.n_releases:
            raise BudgetError(
                f"item {self.name!r}: its path has {self.path.n_releases} releases, and its count is {self.count}"
            )

    @property
    def rate(self) -> float:
        """Probability that a row takes part."""
        return 1.0 if self.sampling is None else self.sampling.rate

    @property
    def releases(self) -> Releases:
        """What the item costs, once its mechanism has a strength."""
        paid = None if self.path is None else self.path.paid
        return Releases(self.mechanism.cost, self.count, self.sampling, self.fold, paid)


@dataclass(frozen=True, repr=False)
class Plan:
    """A calibrated plan; `dpdist.privacy.accounting.calibration.calibrate` makes one.

    Attributes
    ----------
    items : tuple of Item
        With calibrated mechanisms; ``plan[name]`` finds one.
    budget : Budget
        What was asked for.
    spent : Budget
        What the plan composes to, never above the budget.
    neighbours : Neighbours
    accountant : str
    protects : Protected
        What of a row may be anything: all data, or the label only.
    """

    items: tuple[Item, ...]
    budget: Budget
    spent: Budget
    neighbours: Neighbours
    accountant: str
    protects: Protected = ALL_DATA
    _by_name: dict[str, Item] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {item.name: item for item in self.items})

    def __getitem__(self, name: str) -> Item:
        try:
            return self._by_name[name]
        except KeyError:
            raise BudgetError(f"the plan has no item {name!r}; it has {sorted(self._by_name)}") from None

    @property
    def releases(self) -> tuple[Releases, ...]:
        """What `dpdist.privacy.accounting.composition` adds up."""
        return tuple(item.releases for item in self.items)

    @property
    def n_releases(self) -> int:
        """Number of releases, over all parts of all splits."""
        return sum(item.count for item in self.items)

    @property
    def total_mu(self) -> float | None:
        """mu of the whole plan, if it is all Gaussian releases of all rows of their parts; else None."""
        if any(r.sampling is not None or r.cost.kind != "gaussian" for r in self.releases):
            return None
        return math.sqrt(2 * max(column_rho(c) for c in columns(self.releases)))

    def describe(self) -> list[dict[str, Any]]:
        """One dict of plain values per item, for reports and the ledger.

        ``paid`` says how many of the releases the dearest row pays in full, where rows pay unequally.
        """
        return [
            {
                "name": item.name,
                "mechanism": tag_of(item.mechanism),
                "count": int(item.count),
                "share": float(item.share),
                "strength": None if item.mechanism.strength is None else float(item.mechanism.strength),
                "cost": item.mechanism.cost.kind,
                "parameter": float(item.mechanism.cost.parameter),
                "sampling": None if item.sampling is None else repr(item.sampling),
                "fold": None if item.fold is None else f"{item.fold[0]}[{item.fold[1]}]",
                **({} if item.path is None else {"paid": float(item.path.paid)}),
            }
            for item in self.items
        ]

    def digest(self) -> str:
        """SHA-256 of everything public in the plan: a run is resumed only under the same one."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        public = {name: plain(getattr(self, name)) for name in ("items", "budget", "neighbours", "accountant")}
        return hashlib.sha256(json.dumps(public, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def guarantee(
        self, simulation: bool, unit: str = "row", rows_per_unit: int = 1, ledger_alone: bool = False
    ) -> Guarantee:
        """What holds once everything in the plan has been released."""
        counts = Counter[str]()
        for item in self.items:
            counts[tag_of(item.mechanism)] += item.count
        kinds = " and ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return Guarantee(
            epsilon=self.spent.epsilon,
            delta=self.spent.delta,
            neighbours=self.neighbours,
            accountant=self.accountant,
            simulation=simulation,
            unit=owner_in(unit),
            rows_per_unit=rows_per_unit,
            mechanisms=f"{kinds} release{'s' * (self.n_releases != 1)}",
            n_releases=self.n_releases,
            mu=self.total_mu,
            protects=self.protects.what,
            model="local" if all(item.mechanism.reported is not None for item in self.items) else "central",
            ledger_alone=ledger_alone,
            parts=self.protects.per_row,
        )

    @property
    def _together(self) -> str:
        """What holds for all parts of a row that are protected one by one."""
        n = self.protects.per_row
        return f" (all {n} of a row: epsilon {rounded_up(n * self.spent.epsilon)})" if n > 1 else ""

    def _repr_html_(self) -> str:
        title = f"Plan: epsilon {rounded_up(self.spent.epsilon)}, delta {rounded_up(self.spent.delta)}"
        asked = f"of ({self.budget.epsilon:g}, {self.budget.delta:g}), {self.neighbours.value}, by {self.accountant}"
        asked += "" if self.protects == ALL_DATA else f"; protects {self.protects.what}{self._together}"
        return card(title, records(self.describe(), asked))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        described = self.describe()
        head: tuple[str, ...] = ("name", "mechanism", "count", "strength", "cost", "sampling", "fold")
        head += ("paid",) * any("paid" in row for row in described)
        rows = [head] + [
            tuple(
                "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
                for cell in (row.get(key) for key in head)
            )
            for row in described
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        table = "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        )
        part = "" if self.protects == ALL_DATA else f" for {self.protects.what}{self._together}"
        return (
            f"Plan: ({self.spent.epsilon:.6g}, {self.spent.delta:g})-DP{part} of ({self.budget.epsilon:g}, "
            f"{self.budget.delta:g}), {self.neighbours.value}, by {self.accountant}\n{table}"
        )

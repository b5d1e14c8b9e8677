"""Everything a run will release, and the noise that makes it meet the budget.

A plan is written down before any data is seen, calibrated, charged, and then released item by item. What is released
and what is accounted are one object, so they cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from dpdist.errors import BudgetError
from dpdist.html import card, records
from dpdist.privacy import accounting, composition
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.composition import FixedSize, Poisson, Releases, Sampling
from dpdist.privacy.guarantee import Guarantee, rounded_up
from dpdist.privacy.mechanisms import Mechanism
from dpdist.privacy.reported import Reported, reported_budget

# How far below the budget epsilon may stay, relative to it; a PLD takes some 0.1 s a call.
_TOLERANCE = {"pld": 2e-5}
_DEFAULT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Item:
    """One line of a plan: a mechanism that is used ``count`` times.

    Parameters
    ----------
    name : str
        Unique in the plan.
    mechanism : Mechanism
        `calibrate` sets its strength, whatever it was before.
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
    """

    name: str
    mechanism: Mechanism
    count: int = 1
    share: float = 1.0
    sampling: Sampling | None = None
    fold: tuple[Hashable, int] | None = None
    passes: int = 1

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

    @property
    def rate(self) -> float:
        """Probability that a row takes part."""
        return 1.0 if self.sampling is None else self.sampling.rate

    @property
    def releases(self) -> Releases:
        """What the item costs, once its mechanism has a strength."""
        return Releases(self.mechanism.cost, self.count, self.sampling, self.fold)


def _canonical(value: Any) -> Any:
    """Plain JSON of public parameters; anything without an obvious one is refused rather than identified by chance."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, enum.Enum):
        return _canonical(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _canonical(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [_canonical(v) for v in value]
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, float) or hasattr(value, "__float__"):
        return float(value).hex()
    raise BudgetError(f"a plan is identified by plain public values, got a {type(value).__name__}")


@dataclass(frozen=True, repr=False)
class Plan:
    """A calibrated plan; `calibrate` makes one.

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
    """

    items: tuple[Item, ...]
    budget: Budget
    spent: Budget
    neighbours: Neighbours
    accountant: str
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
        """What `dpdist.privacy.composition` adds up."""
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
        return math.sqrt(2 * max(composition.column_rho(c) for c in composition.columns(self.releases)))

    @property
    def total_rho(self) -> float | None:
        """zCDP of the whole plan; None with samples (whose zCDP would ignore the amplification), or if it has none."""
        if any(r.sampling is not None or r.cost.kind == "approximate" for r in self.releases):
            return None
        return max(composition.column_rho(c) for c in composition.columns(self.releases))

    def describe(self) -> list[dict[str, Any]]:
        """One dict of plain values per item, for reports and the ledger."""
        return [
            {
                "name": item.name,
                "mechanism": type(item.mechanism).__name__,
                "count": int(item.count),
                "share": float(item.share),
                "strength": None if item.mechanism.strength is None else float(item.mechanism.strength),
                "cost": item.mechanism.cost.kind,
                "parameter": float(item.mechanism.cost.parameter),
                "sampling": None if item.sampling is None else repr(item.sampling),
                "fold": None if item.fold is None else f"{item.fold[0]}[{item.fold[1]}]",
            }
            for item in self.items
        ]

    def digest(self) -> str:
        """SHA-256 of everything public in the plan: a run is resumed only under the same one."""
        public = {name: _canonical(getattr(self, name)) for name in ("items", "budget", "neighbours", "accountant")}
        return hashlib.sha256(json.dumps(public, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def guarantee(self, simulation: bool, unit: str = "row") -> Guarantee:
        """What holds once everything in the plan has been released."""
        counts = Counter[str]()
        for item in self.items:
            counts[type(item.mechanism).__name__] += item.count
        kinds = " and ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        return Guarantee(
            epsilon=self.spent.epsilon,
            delta=self.spent.delta,
            neighbours=self.neighbours,
            accountant=self.accountant,
            simulation=simulation,
            unit=unit,
            mechanisms=f"{kinds} release{'s' * (self.n_releases != 1)}",
            n_releases=self.n_releases,
            mu=self.total_mu,
            model="local" if all(isinstance(item.mechanism, Reported) for item in self.items) else "central",
        )

    def _repr_html_(self) -> str:
        title = f"Plan: epsilon {rounded_up(self.spent.epsilon)}, delta {rounded_up(self.spent.delta)}"
        asked = f"of ({self.budget.epsilon:g}, {self.budget.delta:g}), {self.neighbours.value}, by {self.accountant}"
        return card(title, records(self.describe(), asked))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = ("name", "mechanism", "count", "strength", "cost", "sampling", "fold")
        rows = [head] + [
            tuple(
                "" if row[key] is None else f"{row[key]:.6g}" if isinstance(row[key], float) else str(row[key])
                for key in head
            )
            for row in self.describe()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        table = "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        )
        return (
            f"Plan: ({self.spent.epsilon:.6g}, {self.spent.delta:g})-DP of ({self.budget.epsilon:g}, "
            f"{self.budget.delta:g}), {self.neighbours.value}, by {self.accountant}\n{table}"
        )


def _shares(items: Sequence[Item]) -> list[float]:
    """Shares that sum to 1 along the most expensive row: all-row items plus the dearest fold of every split."""
    whole = math.fsum(item.share for item in items if item.fold is None)
    folds: dict[tuple[Hashable, int], list[float]] = {}
    for item in items:
        if item.fold is not None:
            folds.setdefault(item.fold, []).append(item.share)
    dearest: dict[Hashable, float] = {}
    for (split, _), shares in folds.items():
        dearest[split] = max(dearest.get(split, 0.0), math.fsum(shares))
    total = whole + math.fsum(dearest.values())
    return [item.share / total for item in items]


def _at(items: Sequence[Item], strengths: Sequence[float]) -> tuple[Item, ...]:
    return tuple(replace(i, mechanism=i.mechanism.at(s)) for i, s in zip(items, strengths, strict=True))


def _largest(epsilon_at: Callable[[float], float], target: float, start: float, tolerance: float) -> float:
    """Largest multiplier with ``epsilon_at(m) <= target``, to a relative tolerance in epsilon; the safe end.

    Secant steps in log-log coordinates inside a bracket (Illinois variant), aimed at the middle of the accepted
    window so that either side can land in it: four to eight calls.
    """
    aim = math.log(target) + math.log1p(-tolerance / 2)
    x = math.log(start)
    safe: tuple[float, float] | None = None
    over: tuple[float, float] | None = None
    last = 0
    for _ in range(200):
        epsilon = epsilon_at(math.exp(x))
        height = min(math.log(epsilon) - aim, 30.0) if epsilon > 0 else -30.0
        if target * (1 - tolerance) <= epsilon <= target:
            return math.exp(x)
        side = 1 if epsilon > target else -1
        if side < 0:
            over = (over[0], over[1] / 2) if over and last == side else over
            safe = (x, height)
        else:
            safe = (safe[0], safe[1] / 2) if safe and last == side else safe
            over = (x, height)
        last = side
        if safe is None or over is None:
            x += math.copysign(min(1.2 * abs(height), math.log(4)), -height)
            continue
        width = over[0] - safe[0]
        if width < tolerance / 10:  # a step of the accountant, not a root
            break
        x = safe[0] + width * min(max(safe[1] / (safe[1] - over[1]), 1e-3), 1 - 1e-3)
    if safe is None:
        raise BudgetError(f"no amount of noise brings these releases down to epsilon = {target:g}; raise the budget")
    return math.exp(safe[0])


def _strengths(items: Sequence[Item], m: float, delta: float, neighbours: Neighbours) -> list[float]:
    """Strength of every item at the multiplier m, by the rule in `calibrate`."""
    shares = _shares(items)
    if delta > 0:
        return [m * math.sqrt(s / i.count) / i.rate for s, i in zip(shares, items, strict=True)]
    strengths = []
    for share, item in zip(shares, items, strict=True):
        epsilon = m * share / item.count
        fits = Poisson if neighbours is Neighbours.ADD_OR_REMOVE_ONE else FixedSize
        if isinstance(item.sampling, fits):  # the inverse of ln(1 + q (e^eps - 1)), which does not overflow
            epsilon += math.log1p((1 / item.rate - 1) * -math.expm1(-epsilon))
        strengths.append(epsilon / item.mechanism.at(1.0).cost.epsilon)
    return strengths


def calibrate(items: Sequence[Item], budget: Budget, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> Plan:
    """Give every mechanism the largest strength with which the whole plan still meets the budget.

    One number ``m`` is solved for. With delta > 0 an item gets ``m sqrt(share/count)``, divided by its sampling rate,
    so that shares are shares of mu^2; with delta = 0 each of its releases gets ``m share/count`` of epsilon. Shares are
    normalised along the row that pays most: all-row items plus, for every split, its dearest fold.

    An all-Gaussian plan is solved in closed form (``m = gdp_mu(epsilon, delta)``), a pure one as well; the others by
    bracketing ``ln m`` and returning its safe end. Where several accountants fit, the one that allows the largest m
    is taken (`dpdist.privacy.composition.accountants`; a simpler one if it is as good to 0.1 %). No data and no
    randomness are involved: equal arguments give equal plans.

    Parameters
    ----------
    items : sequence of Item
    budget : Budget
    neighbours : Neighbours

    Returns
    -------
    Plan

    Raises
    ------
    BudgetError
        For names used twice, Gaussian noise with delta = 0, and mixtures that no accountant supports.

    Examples
    --------
    >>> from dpdist.privacy.mechanisms import Gaussian
    >>> items = [Item("step size", Gaussian(), share=1), Item("gradient", Gaussian(), count=30, share=99)]
    >>> plan = calibrate(items, Budget(1.0, 1e-6))
    >>> round(plan["gradient"].mechanism.noise_std(sensitivity=2.0), 2)
    46.51
    >>> print(plan)
    Plan: (1, 1e-06)-DP of (1, 1e-06), replace-one, by gdp
    name       mechanism  count  strength   cost      sampling  fold
    step size  Gaussian   1      0.0236704  gaussian
    gradient   Gaussian   30     0.0429995  gaussian

    Notes
    -----
    The guarantee holds for adaptive releases: parameters of a query may depend on earlier releases, the strengths,
    counts, rates and folds may not.
    """
    return _calibrated(tuple(items), budget, neighbours)


@lru_cache(maxsize=128)  # a privacy-loss plan takes a good part of a second, and fits are often repeated
def _calibrated(items: tuple[Item, ...], budget: Budget, neighbours: Neighbours) -> Plan:
    twice = sorted(name for name, count in Counter(item.name for item in items).items() if count > 1)
    if twice:
        raise BudgetError(f"item names must be unique in a plan; used more than once: {twice}")
    if all(isinstance(item.mechanism, Reported) for item in items):
        spent, accountant = reported_budget([item.releases for item in items], budget)
        return Plan(items, budget, spent, neighbours, accountant)
    epsilon, delta = budget.epsilon, budget.delta
    names = composition.accountants([i.releases for i in _at(items, [1.0] * len(items))], delta, neighbours)

    def at(m: float) -> tuple[Item, ...]:
        return _at(items, _strengths(items, m, delta, neighbours))

    def epsilon_at(m: float, accountant: str) -> float:
        calibrated = at(m)
        for item in calibrated:
            kind, parameter = item.mechanism.cost.kind, item.mechanism.cost.parameter
            # at these strengths the noise is negligible: only delta, not the noise, would hide who was drawn
            if item.sampling is not None and parameter > (40 if kind == "gaussian" else 1000):
                raise BudgetError(
                    f"item {item.name!r}: with delta = {delta:g} a sample of rate {item.rate:g} would need no noise at "
                    "all; choose delta far below the probability that a row is drawn"
                )
        return composition.total_epsilon([i.releases for i in calibrated], delta, neighbours, accountant, epsilon)

    best, accountant = 0.0, names[0]
    for name in names:
        if delta == 0:
            m = epsilon
        elif name == "gdp":
            m = accounting.gdp_mu(epsilon, delta)
        else:
            mu = accounting.gdp_mu(epsilon, delta)
            # a sampled Gaussian costs about q^2 T (e^(mu_1^2) - 1) of mu^2 (Bu, Dong, Long and Su 2020)
            parts = [math.sqrt(s / i.count) / i.rate for s, i in zip(_shares(items), items, strict=True) if i.sampling]
            start = min([mu, *(math.sqrt(math.log1p((mu * p) ** 2)) / p for p in parts)])
            tolerance = _TOLERANCE.get(name, _DEFAULT_TOLERANCE)
            m = _largest(partial(epsilon_at, accountant=name), epsilon, start, tolerance)
        if m > best * 1.001:
            best, accountant = m, name
    # forty bits: the last ones depend on the build of the mathematical library, and a digest must not
    mantissa, exponent = math.frexp(best)
    m = math.ldexp(math.floor(mantissa * 2**40), exponent - 40)
    while (total := epsilon_at(m, accountant)) > epsilon:
        m *= 1 - 2.0**-40
    pure = accountant == "pure"
    return Plan(at(m), budget, Budget(total, 0.0 if pure else delta), neighbours, accountant)

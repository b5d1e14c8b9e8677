"""The least noise with which a plan still meets its budget: a function of public numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from dpdist.errors import BudgetError
from dpdist.privacy.accounting import closed_forms as accounting
from dpdist.privacy.accounting import composition
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.accounting.profiles import ROUGH
from dpdist.privacy.accounting.releases import FixedSize, Poisson
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.mechanisms.reported import reported_budget
from dpdist.privacy.protected_units import ALL_DATA, Protected

# How far below the budget epsilon may stay, relative to it; a PLD takes some 0.1 s a call.
_TOLERANCE = {"pld": 2e-5}
_ROUGH_TOLERANCE = 1e-3
_DEFAULT_TOLERANCE = 1e-9


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
        full = [i.count if i.path is None else i.path.paid for i in items]
        return [m * math.sqrt(s / n) / i.rate for s, n, i in zip(shares, full, items, strict=True)]
    strengths = []
    for share, item in zip(shares, items, strict=True):
        epsilon = m * share / item.count
        fits = Poisson if neighbours is Neighbours.ADD_OR_REMOVE_ONE else FixedSize
        if isinstance(item.sampling, fits):  # the inverse of ln(1 + q (e^eps - 1)), which does not overflow
            epsilon += math.log1p((1 / item.rate - 1) * -math.expm1(-epsilon))
        strengths.append(epsilon / item.mechanism.at(1.0).cost.epsilon)
    return strengths


def calibrate(
    items: Sequence[Item],
    budget: Budget,
    neighbours: Neighbours = Neighbours.REPLACE_ONE,
    protects: Protected = ALL_DATA,
) -> Plan:
    """Give every mechanism the largest strength with which the whole plan still meets the budget.

    One number ``m`` is solved for. With delta > 0 an item gets ``m sqrt(share/count)``, divided by its sampling rate,
    so that shares are shares of mu^2; with delta = 0 each of its releases gets ``m share/count`` of epsilon. Shares are
    normalised along the row that pays most: all-row items plus, for every split, its dearest fold. Where rows pay
    unequally (`Item.path`), count is what the dearest of them pays.

    An all-Gaussian plan is solved in closed form (``m = gdp_mu(epsilon, delta)``), a pure one as well; the others by
    bracketing ``ln m`` and returning its safe end. Where several accountants fit, the one that allows the largest m
    is taken (`dpdist.privacy.accounting.composition.accountants`; a simpler one if it is as good to 0.1 %). No data and
    no randomness are involved: equal arguments give equal plans.

    Parameters
    ----------
    items : sequence of Item
    budget : Budget
    neighbours : Neighbours
    protects : Protected, optional
        What of a row the plan is about; the noise does not depend on it.

    Returns
    -------
    Plan

    Raises
    ------
    BudgetError
        For names used twice, Gaussian noise with delta = 0, and mixtures that no accountant supports.

    Examples
    --------
    >>> from dpdist.privacy.mechanisms.additive import Gaussian
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
    return replace(_calibrated(tuple(items), budget, neighbours, ROUGH.get()), protects=protects)


@lru_cache(maxsize=128)  # a privacy-loss plan takes a good part of a second, and fits are often repeated
def _calibrated(items: tuple[Item, ...], budget: Budget, neighbours: Neighbours, rough: bool) -> Plan:
    twice = sorted(name for name, count in Counter(item.name for item in items).items() if count > 1)
    if twice:
        raise BudgetError(f"item names must be unique in a plan; used more than once: {twice}")
    if items and all(item.mechanism.reported is not None for item in items):
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
            tolerance = _ROUGH_TOLERANCE if rough else _TOLERANCE.get(name, _DEFAULT_TOLERANCE)
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

"""The rules by which the charges on one dataset add up and are kept within its limit (privacy filters). No storage.

Which rule adds the charges of a dataset up is chosen when its limit is set and then stays:

``"basic"``
    epsilons add and deltas add. Holds for every mix of mechanisms, and stays true when each charge is chosen after
    looking at all earlier results (a fully adaptive privacy filter: Rogers, Roth, Ullman, Vadhan 2016).
``"gaussian"``
    for charges that are ``mu``-GDP (all noise Gaussian): ``sum mu_i^2 <= mu(limit)^2`` with ``mu(limit)`` the largest
    mu that satisfies the limit. Also fully adaptive (Koskela, Tobaben, Honkela 2022; Smith, Thakurta 2022), and k runs
    cost about the square root of k times one run instead of k times.

One account uses one rule. If a run could choose the rule that happens to have room, the choice would depend on earlier
results, the failure events of both rules would have to be added, and the limit would only hold with twice its delta.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

from dpdist.errors import BudgetError, BudgetExceeded
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.closed_forms import gdp_epsilon, gdp_mu
from dpdist.privacy.accounting.totals import Sums, rounded
from dpdist.privacy.budget import Budget, Neighbours

Composition = Literal["basic", "gaussian"]

TOLERANCE = 1e-9
"""Relative slack of a limit and of a repeated charge, so that rounding does not refuse a run at exactly the limit."""


@dataclass(frozen=True)
class Limit:
    """What may be spent on a dataset in total, between which neighbours, and the rule that adds charges up."""

    budget: Budget
    neighbours: Neighbours
    composition: Composition


@dataclass(frozen=True)
class Amount:
    """A total or a remainder; unlike a `Budget` it may be zero.

    In an account with the rule "gaussian", ``mu`` is the exact figure and ``epsilon`` what it means at the limit's
    delta. Elsewhere ``mu`` is None unless every charge carries one.
    """

    epsilon: float
    delta: float
    mu: float | None = None

    def __str__(self) -> str:
        """In six digits: a calibrated charge of 1 is 1, not .999999999998."""
        exact = "" if self.mu is None else f", mu {self.mu:.6g}"
        return f"epsilon {self.epsilon:.6g}, delta {self.delta:.6g}{exact}"


def _mu(sums: Sums) -> float | None:
    """``sqrt(sum mu_i^2)``, None if a charge carries no mu."""
    return None if sums.mu_squared is None else math.sqrt(rounded(sums.mu_squared))


def total(limit: Limit | None, sums: Sums) -> Amount:
    """What charges come to by the rule of their account, "basic" without a limit."""
    mu = _mu(sums)
    if limit is not None and limit.composition == "gaussian" and mu is not None:
        return Amount(gdp_epsilon(mu, limit.budget.delta), limit.budget.delta if mu else 0.0, mu)
    return Amount(rounded(sums.epsilon), rounded(sums.delta), mu)


@functools.cache
def _limit_mu(budget: Budget) -> float:
    """The largest mu that satisfies a limit: a search, which every charge on the account would repeat."""
    return gdp_mu(budget.epsilon, budget.delta)


def left(limit: Limit, spent: Amount) -> Amount:
    """Return what one more charge on all rows may cost."""
    if limit.composition == "gaussian":
        spent_mu = math.inf if spent.mu is None else spent.mu
        mu = math.sqrt(max(0.0, _limit_mu(limit.budget) ** 2 - spent_mu**2))
        return Amount(gdp_epsilon(mu, limit.budget.delta), limit.budget.delta, mu)
    epsilon, delta = (
        0.0 if of - gone <= of * TOLERANCE else of - gone  # what calibration has left of a limit that is used up
        for of, gone in ((limit.budget.epsilon, spent.epsilon), (limit.budget.delta, spent.delta))
    )
    return Amount(epsilon, delta)


def check_suits(dataset_id: str, limit: Limit | None, neighbours: Neighbours, charge: Charge) -> None:
    """Refuse a charge that the account cannot add up: another relation, or no mu where the rule needs one."""
    if charge.neighbours is not neighbours:
        way_out = (
            "a replace-one cost says nothing about adding or removing a row, so there is no conversion: "
            "run the plan under add-or-remove-one"
            if charge.neighbours is Neighbours.REPLACE_ONE
            else "convert the charge with Charge.under_replace_one() (epsilon -> 2 epsilon, "
            "delta -> (1 + e^epsilon) delta, mu -> 2 mu), or run the plan under replace-one"
        )
        raise BudgetError(
            f"the account of {dataset_id!r} counts {neighbours.value} neighbours and the charge is made under "
            f"{charge.neighbours.value}: {way_out}"
        )
    if limit is not None and limit.composition == "gaussian" and charge.mu is None:
        raise BudgetError(
            f'the account of {dataset_id!r} adds charges up by the rule "gaussian" and this one carries no mu: '
            'use a plan with Gaussian noise only (where there is a mechanism to choose: mechanism="goe"), or keep the '
            'account with composition="basic"'
        )


def check_fits(
    dataset_id: str, limit: Limit | None, charge: Charge, spent: Sums, after: Sums, way_out: str = ""
) -> None:
    """The filter: raise `BudgetExceeded` unless what would be spent with the charge, `after`, is within the limit.

    ``way_out`` is what else the message says.
    """
    if limit is None:
        return
    if limit.composition == "gaussian":
        mu = _mu(after)
        fits = mu is not None and mu**2 <= _limit_mu(limit.budget) ** 2 * (1 + TOLERANCE)
    else:
        then = total(limit, after)
        fits = then.epsilon <= limit.budget.epsilon * (1 + TOLERANCE)
        fits = fits and then.delta <= limit.budget.delta * (1 + TOLERANCE)
    if fits:
        return
    before, exact = total(limit, spent), limit.composition == "gaussian"
    raise BudgetExceeded(
        f"the charge does not fit into the limit of {dataset_id!r} (rule {limit.composition!r}, "
        f"{limit.neighbours.value}): limit {_show(limit.budget)}, spent {_show(before, exact)}, asked "
        f"{_show(charge, exact)}, left {_show(left(limit, before), exact)}. "
        f"Nothing was charged. Ask for less, or let the owner of the data raise the limit.{way_out}"
    )


def _show(amount: Budget | Charge | Amount, exact: bool = False) -> str:
    mu = "" if not exact or isinstance(amount, Budget) or amount.mu is None else f", mu {amount.mu:.6g}"
    return f"(epsilon {amount.epsilon:.6g}, delta {amount.delta:.6g}{mu})"

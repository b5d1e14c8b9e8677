"""Running totals of an account, exact, so that a charge costs the same after ten years as on the first day.

Every run keeps what its account had spent once it was charged, as a bank statement shows a balance on each line; the
next charge reads the last line instead of all of them. Floats that are added one by one drift, so the totals are kept
as what they are, rational numbers, and rounded once, to the nearest float, where they are compared or shown: however
many charges there are, the balance is what `math.fsum` of all of them gives, bit by bit.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from dpdist.errors import BudgetError
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.ledger.damage import as_written


class Sums(NamedTuple):
    """What some charges come to: their epsilons, their deltas, and the squares of their mu (None: one carries none)."""

    epsilon: Fraction
    delta: Fraction
    mu_squared: Fraction | None

    @classmethod
    def of(cls, charge: Charge) -> Sums:
        """One charge."""
        mu_squared = None if charge.mu is None else Fraction(charge.mu**2)
        return cls(Fraction(charge.epsilon), Fraction(charge.delta), mu_squared)

    def plus(self, other: Sums) -> Sums:
        """Both together."""
        return self._each(operator.add, other)

    def minus(self, other: Sums) -> Sums:
        """Without what the other holds."""
        return self._each(operator.sub, other)

    def dearest(self, other: Sums) -> Sums:
        """The larger of each number."""
        return self._each(max, other)

    def _each(self, combine: Callable[[Any, Any], Fraction], other: Sums) -> Sums:
        pairs = zip(self, other, strict=True)
        return Sums(*(None if a is None or b is None else combine(a, b) for a, b in pairs))  # type: ignore[arg-type]


NOTHING = Sums(Fraction(0), Fraction(0), Fraction(0))


@dataclass(frozen=True)
class Balance:
    """What is spent once a run is charged.

    Attributes
    ----------
    total : Sums
        On the account: the charges on all rows, and the dearest fold of every split.
    fold, split : Sums or None
        Of a run that reads one fold: on that fold, and on the dearest fold of its split so far.
    """

    total: Sums
    fold: Sums | None = None
    split: Sums | None = None


def charged(charge: Charge, total: Sums, fold: Sums, split: Sums) -> Balance:
    """The balance after a charge; before it `total`, and `fold` and `split` on the rows it reads, were spent."""
    price = Sums.of(charge)
    if charge.split is None:
        return Balance(total.plus(price))
    fold = fold.plus(price)
    dearest = split.dearest(fold)
    return Balance(total.plus(dearest.minus(split)), fold, dearest)


def balances(charges: Iterable[Charge]) -> Iterator[Balance]:
    """The balance after each of the charges on one account, from the charges alone."""
    total, folds, splits = NOTHING, dict[Any, Sums](), dict[Any, Sums]()
    for charge in charges:
        part = (charge.split, charge.fold)
        balance = charged(charge, total, folds.get(part, NOTHING), splits.get(charge.split, NOTHING))
        total = balance.total
        if balance.fold is not None and balance.split is not None:
            folds[part], splits[charge.split] = balance.fold, balance.split
        yield balance


def rounded(exact: Fraction) -> float:
    """The nearest float."""
    try:
        return float(exact)
    except OverflowError:
        raise BudgetError("the charges on one account add up to more than a number can hold: charge less") from None


def encoded(sums: Sums | None) -> str | None:
    """Sums as JSON: for each the floats, largest first, that add up to it exactly; the first is the rounded sum."""
    if sums is None:
        return None
    return json.dumps({name: None if exact is None else _parts(exact) for name, exact in sums._asdict().items()})


@as_written
@functools.lru_cache(maxsize=64)  # a run reads the balance of its account at every release
def decoded(text: str | None) -> Sums:
    """What `encoded` wrote; nothing spent where there is nothing."""
    if text is None:
        return NOTHING
    parts = json.loads(text)
    mu_squared = None if parts["mu_squared"] is None else _whole(parts["mu_squared"])
    return Sums(_whole(parts["epsilon"]), _whole(parts["delta"]), mu_squared)


def _parts(exact: Fraction) -> list[float]:
    parts = []
    while exact:
        parts.append(rounded(exact))
        exact -= Fraction(parts[-1])
    return parts


def _whole(parts: Iterable[float]) -> Fraction:
    return sum(map(Fraction, parts), Fraction(0))

"""What a Wishart matrix as noise costs: its exact privacy loss, by quadrature in one dimension.

Noise ``b W`` with ``W`` of ``d + q`` degrees of freedom, and one row v with ``|v|^2 = b`` (the worst: the density falls
log-concavely along ``v v'``). The likelihood ratio depends on ``t ~ chi^2_{q+1}`` alone, with ``u = 1 / t``:

* the row is added: ``log(Q / P) = (q - 1)/2 log(1 - u) + 1/2``, and Q = 0 where t < 1;
* it is removed: ``log(Q / P) = (q - 1)/2 log(1 + u) - 1/2``, which is never below -1/2.

``delta(epsilon) = E (1 - e^epsilon Q / P)_+``. Replacing a row is a removal and an addition:
``delta <= min over e of delta_rem(e) + e^e delta_add(epsilon - e)``. (spec 06, section 1; seed 000, Lemma 6.3.1, whose
``q = (14 / epsilon^2) log(4 / delta)`` is private and 2 to 14 times as large.)
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import scipy
from scipy.special import gammaln

from dpdist.errors import BudgetError

MOST_DEGREES = 1_000_000
_SLACK = 1e-6
"""Relative error given away for the quadrature."""


def added_delta(q: int, epsilon: float) -> float:
    """Of adding a row: ``P`` is the law without it.

    >>> 0 < added_delta(12, 1.0) < added_delta(6, 1.0)
    True
    """

    def kept(t: float) -> float:
        return 1.0 if t <= 1 else -math.expm1(epsilon + 0.5 + (q - 1) / 2 * math.log1p(-1 / t))

    # the ratio grows with t, so what counts is below the point where it is e^-epsilon
    end = 1 / -math.expm1(-2 * (epsilon + 0.5) / (q - 1))
    return _mean(kept, q, end)


def removed_delta(q: int, epsilon: float) -> float:
    """Of removing a row; 0 from ``epsilon = 1/2`` on."""
    if epsilon >= 0.5:
        return 0.0
    start = 1 / math.expm1(2 * (0.5 - epsilon) / (q - 1))

    def kept(t: float) -> float:
        return -math.expm1(epsilon - 0.5 + (q - 1) / 2 * math.log1p(1 / t))

    return _mean(kept, q, math.inf, start)


def replaced_delta(q: int, epsilon: float) -> float:
    """Of replacing a row, at most.

    >>> round(replaced_delta(12, 1.0), 4) < 0.01
    True
    """
    parts = np.minimum(np.linspace(0, 1, 41) * epsilon, 0.5)
    return min(removed_delta(q, e) + math.exp(e) * added_delta(q, epsilon - e) for e in np.unique(parts))


@lru_cache(maxsize=256)
def extra_degrees(epsilon: float, delta: float) -> int:
    """The least q for which replacing a row is (epsilon, delta)-DP.

    >>> extra_degrees(1.0, 1e-5)
    45
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise BudgetError(f"a Wishart matrix as noise needs epsilon > 0 and delta > 0, got {epsilon!r} and {delta!r}")
    low, high = 2, 4  # q = 2 is never enough where q = 3 is not: delta falls with q
    while replaced_delta(high, epsilon) > delta:
        low, high = high, 2 * high
        if high > MOST_DEGREES:
            raise BudgetError(
                f"a Wishart matrix as noise would need more than {MOST_DEGREES:,} degrees of freedom at epsilon = "
                f"{epsilon:g} and delta = {delta:g}: use mechanism='goe'"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if replaced_delta(middle, epsilon) > delta else (low, middle)
    return high


def _mean(value, q: int, end: float, start: float = 0.0) -> float:  # type: ignore[no-untyped-def]
    """``E value(t)`` over ``start < t < end`` for a chi-squared t with q + 1 degrees of freedom, rounded up."""
    degrees = q + 1
    constant = -degrees / 2 * math.log(2) - float(gammaln(degrees / 2))

    def density(t: float) -> float:
        return math.exp((degrees / 2 - 1) * math.log(t) - t / 2 + constant) if t > 0 else 0.0

    middle, width = degrees - 1.0, math.sqrt(2.0 * degrees)
    end = min(end, middle + 60 * width + 200)
    if start >= end:
        return 0.0
    knots = sorted({start, end, *(k for k in (1.0, *(middle + j * width for j in range(-6, 7))) if start < k < end)})
    total = sum(
        scipy.integrate.quad(lambda t: value(t) * density(t), a, b, limit=200, epsabs=0, epsrel=1e-9)[0]
        for a, b in itertools.pairwise(knots)
    )
    return max(0.0, float(total)) * (1 + _SLACK)

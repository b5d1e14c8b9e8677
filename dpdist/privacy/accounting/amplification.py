"""What a sum of local reports tells of one user, if a trusted shuffler hides who sent which.

A report by itself is ``epsilon_0``-LDP. Whoever sees only the reports of n users in a random order learns much less: by
about ``sqrt(e^epsilon_0 / n)``. That assumes a shuffler that everybody trusts, and that all n users do send; nothing in
this library is one (a scheduler sees who sends what). So the number is stated under that assumption, always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc

from dpdist.errors import BudgetError
from dpdist.privacy.guarantee import rounded_up

ASSUMPTION = "shuffle model assumed"
_WIDTH = 12.0  # standard deviations of the number of clones that are looked at; the rest counts as a failure
_STEPS = 4096  # numbers of clones that are told apart
_SLACK = 1e-9  # relative error that tails of the binomial distribution may have


@dataclass(frozen=True)
class Shuffled:
    """An (epsilon, delta) guarantee that rests on a shuffler.

    Attributes
    ----------
    epsilon, delta : float
        Towards whoever sees the shuffled reports only.
    local_epsilon : float
        Towards everybody else, the shuffler included.
    n_users : int
    assumption : str
        Always "shuffle model assumed".
    """

    epsilon: float
    delta: float
    local_epsilon: float
    n_users: int

    @property
    def assumption(self) -> str:
        return ASSUMPTION

    @property
    def text(self) -> str:
        """What holds, and on which condition."""
        return (
            f"{ASSUMPTION}: if a trusted shuffler mixes the reports of all {self.n_users} users, what it passes on is "
            f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-differentially private; the reports themselves "
            f"are {rounded_up(self.local_epsilon)}-LDP without any assumption."
        )

    def __str__(self) -> str:
        return self.text


def shuffle_epsilon(local_epsilon: float, n_users: int, delta: float) -> Shuffled:
    """How private shuffled reports of one common randomiser are; a numerical upper bound.

    With ``E = e^epsilon_0``, any other user's report is with some probability as good as one drawn from either of the
    two laws that the changed user's report may have; of all randomisers the worst is that for which this probability is
    ``2 / (E + 1)`` (Feldman, McMillan and Talwar 2022 and 2023). So the bound is the distance of the numbers of copies
    of both kinds: ``(A + D, C - A + 1 - D)`` with ``C ~ Bin(n - 1, 2 / (E + 1))``, ``A ~ Bin(C, 1/2)`` and
    ``D ~ Bernoulli(E / (E + 1))``, against the same with the two exchanged. Given C, that is a difference of tails,
    since the likelihood ratio increases with the first number.

    It holds for pure epsilon_0-LDP reports of one randomiser that was fixed beforehand and that all users apply: not
    for Gaussian reports, different epsilons, or questions that depend on earlier answers.

    Parameters
    ----------
    local_epsilon : float
        epsilon_0, of one report.
    n_users : int
        All of whom send a report.
    delta : float

    Examples
    --------
    >>> found = shuffle_epsilon(1.0, 2000, 1e-6)
    >>> round(found.epsilon, 3), found.assumption
    (0.103, 'shuffle model assumed')
    """
    if not 0 < local_epsilon <= 50:
        raise BudgetError(f"local_epsilon must be a number in (0, 50], got {local_epsilon!r}")
    if not isinstance(n_users, int | np.integer) or isinstance(n_users, bool) or n_users < 1:
        raise BudgetError(f"n_users must be a whole number of at least 1, got {n_users!r}")
    if not 0 < delta < 1:
        raise BudgetError(f"delta must be a number in (0, 1), got {delta!r}")
    low, high = 0.0, float(local_epsilon)
    if shuffle_delta(local_epsilon, n_users, 0.0) <= delta:
        high = 0.0
    while high - low > 1e-6 * high + 1e-12:
        middle = (low + high) / 2
        if shuffle_delta(local_epsilon, n_users, middle) <= delta:
            high = middle
        else:
            low = middle
    return Shuffled(high, float(delta), float(local_epsilon), int(n_users))


def shuffle_delta(local_epsilon: float, n_users: int, epsilon: float) -> float:
    """The delta that goes with an epsilon after shuffling; see `shuffle_epsilon`.

    >>> shuffle_delta(1.0, 2000, 1.0)
    0.0
    """
    if epsilon >= local_epsilon:
        return 0.0
    odds, factor = math.exp(local_epsilon), math.exp(epsilon)
    chance, others = 2 / (odds + 1), n_users - 1
    middle, half = others * chance, _WIDTH * math.sqrt(others * chance) + 40
    first, last = max(0, math.floor(middle - half)), min(others, math.ceil(middle + half))
    # one more copy is a coin added to either count whatever the data are: it can only hide more, so a run of numbers of
    # copies is no worse than its first
    edges = np.unique(np.linspace(first, last + 1, min(last + 2 - first, _STEPS)).astype(np.int64))
    reached = np.where(edges > 0, bdtrc(np.maximum(edges - 1, 0), others, chance), 1.0)
    reached[-1] = 0.0  # the last run has no end
    weights, copies = reached[:-1] - reached[1:], edges[:-1]
    missed = float(bdtr(first - 1, others, chance)) if first else 0.0
    # first number a of copies for which the likelihood ratio exceeds e^epsilon
    least = np.floor((copies + 1) * (factor * odds - 1) / ((odds - 1) * (1 + factor))) + 1
    one_less, same = _at_least(least - 1, copies), _at_least(least, copies)
    own = (odds * one_less + same) / (1 + odds)
    other = (one_less + odds * same) / (1 + odds)
    excess = np.maximum(own * (1 + _SLACK) - factor * other * (1 - _SLACK), 0.0)
    return min(1.0, float(np.sum(weights * excess)) * (1 + _SLACK) + missed)


def _at_least(number: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """``P(Bin(copies, 1/2) >= number)``."""
    inside = np.clip(number - 1, 0, copies)
    tail = bdtrc(inside, copies, 0.5)
    return np.where(number <= 0, 1.0, np.where(number > copies, 0.0, tail))

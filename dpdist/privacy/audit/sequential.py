"""Audits that may be watched, and stopped, at any time: bets against a claim, fair only if the claim is true.

A guarantee bounds every event S by lines, ``P(S) <= a P'(S) + b``: one line ``(e^epsilon, delta)`` for an epsilon, and
the tangents ``(e^s, delta_mu(s))`` of its trade-off curve for a mu. On a pair of runs, one on either dataset, the
payoff ``G = 1[S happened] - a 1'[S happened] - b`` then has no positive mean. A gambler who stakes the fraction
``lambda <= 1/(a + b)`` of the capital has ``prod (1 + lambda G)`` in the end, a nonnegative supermartingale that starts
at 1: it ever reaches ``1/alpha`` with a chance of at most alpha (Ville), however often one looks, and whatever decides
when to stop. Reaching it contradicts the claim (Gonzalez, Dulce-Rubio, Ramdas and Ribero 2025, arXiv 2509.07055; bets
for bounded means: Waudby-Smith and Ramdas 2024).

Nobody knows the best event, line and stake beforehand, so the capital is divided among many gamblers, more of it to
those who would have done well on trial runs; a mixture of fair bets is fair.

When an audit ends (`SequentialAudit.verdict`):

* ``"caught"``: the capital against the claim reached ``1/alpha``;
* ``"passed"``: no gambler, at their pace so far plus two standard errors, would get there in the runs that are left.
  This can miss a fault, never invent one. Of what leaks nothing it takes some fifty runs to say so;
* ``"passed"``, too, if the runs are used up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dpdist.privacy.accounting.closed_forms import gdp_delta

Floats = NDArray[np.float64]
Verdict = Literal["caught", "passed"]

STEPS, UP_TO = 10, 2
"""A bound is a multiple of the claim over `STEPS`, of at most `UP_TO` times the claim."""
STAKES = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.75, 0.9, 0.97])
"""In units of the largest stake that cannot ruin."""
TANGENTS = (0.0, 0.75, 1.5)
"""The lines of a mu have the slopes ``e^(mu t)``; smaller ones are those of complements and exchanged datasets."""
PACE_ERRORS, LEAST = 2.0, 40
"""Of fewer runs standard errors say too little to give up."""
LEVELS = np.linspace(0.02, 0.98, 21)
"""Events are that a score is beyond one of these quantiles of the trial scores."""


def epsilon_lines(epsilon: float, delta: float) -> Floats:
    """The line ``(a, b)`` of (epsilon, delta)."""
    return np.array([[math.exp(epsilon), delta]])


def mu_lines(mu: float) -> Floats:
    """Lines ``(a, b)`` of mu-Gaussian privacy.

    >>> mu_lines(1.0)[0].round(6).tolist()  # total variation: 2 Phi(mu / 2) - 1
    [1.0, 0.382925]
    """
    if mu == 0:
        return np.array([[1.0, 0.0]])
    return np.array([[math.exp(mu * t), gdp_delta(mu * t, mu)] for t in TANGENTS])


@dataclass
class Bets:
    """Gamblers against every number of a ladder of claims, from 0 to beyond the claimed one.

    The bound is the largest number that is contradicted together with all smaller ones: it is wrong only if the first
    number of the ladder that is true was contradicted, so the chance is that of one test.

    Parameters
    ----------
    lines : sequence of ndarray of shape (m, 2)
        Of each number of the ladder.
    log_limit : float
        ``ln(1/alpha)``.
    trial : ndarray of shape (2, 2, n_events)
        `counted` in trial runs; it decides how much each gambler gets.
    """

    lines: Sequence[Floats]
    log_limit: float
    trial: NDArray[np.int64]
    contradicted: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        a, b = np.stack([np.broadcast_to(each, (len(self.lines[-1]), 2)) for each in self.lines]).transpose(2, 0, 1)
        stakes = STAKES / (a + b)[..., None]
        happened, happened_prime = np.indices((2, 2))
        payoffs = happened - a[..., None, None] * happened_prime - b[..., None, None]
        gains = 1 + stakes[..., None, None] * payoffs[:, :, None]
        self._log_gains = np.log(gains).reshape(len(self.lines), -1, 4)  # of a number, a gambler, and what happened
        before = self._log_capital(self.trial)
        even = np.full_like(before[0], -math.log(before[0].size))
        known = before - logsumexp(before, axis=(1, 2), keepdims=True)
        self._log_weights = np.logaddexp(even, known) - math.log(2)
        self.contradicted = np.zeros(len(self.lines), dtype=bool)

    def look(self, counts: NDArray[np.int64]) -> None:
        """See which claims the runs so far contradict; what was contradicted once stays so."""
        self.contradicted |= logsumexp(self._log_weights + self._log_capital(counts), axis=(1, 2)) >= self.log_limit

    @property
    def bound(self) -> int:
        """How many numbers, from the smallest on, are contradicted."""
        return int(np.logical_and.accumulate(self.contradicted).sum())

    def hopeless(self, counts: NDArray[np.int64], which: int, n_left: int) -> bool:
        """Whether nobody who bets against that number could still win, by the rule at the top of this module."""
        n = int(counts[:, :, 0].sum())
        seen, gains = _by_direction(counts) / n, self._log_gains[which]
        pace = gains @ seen
        error = np.sqrt(np.maximum(gains**2 @ seen - pace**2, 0.0) / n)
        hoped = self._log_weights[which] + n * pace + n_left * (pace + PACE_ERRORS * error)
        return bool(hoped.max() < self.log_limit)

    def _log_capital(self, counts: NDArray[np.int64]) -> Floats:
        return np.asarray(self._log_gains @ _by_direction(counts).astype(np.float64))


def counted(one: Floats, other: Floats, thresholds: Floats) -> NDArray[np.int64]:
    """In how many pairs of runs a score reached a threshold: neither (0, 0), only that of ``one`` (1, 0), ...

    >>> counted(np.array([0.0, 2.0, 3.0]), np.array([0.0, 0.0, 2.0]), np.array([1.0]))[:, :, 0].tolist()
    [[1, 0], [1, 1]]
    """
    hits = one[:, None] >= thresholds
    hits_prime = other[:, None] >= thresholds
    pairs = [[(~hits & ~hits_prime), (~hits & hits_prime)], [(hits & ~hits_prime), (hits & hits_prime)]]
    return np.array([[each.sum(axis=0) for each in row] for row in pairs])


def _by_direction(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Also for the events' complements and for exchanged datasets: shape (4, 4 n_events)."""
    complements, exchanged = counts[::-1, ::-1], counts.transpose(1, 0, 2)
    each = [counts, complements, exchanged, exchanged[::-1, ::-1]]
    return np.concatenate([one.reshape(4, -1) for one in each], axis=1)


class SequentialAudit:
    """Bounds on the privacy loss from pairs of runs as they come, and when to stop.

    Parameters
    ----------
    trial, trial_prime : ndarray
        Scores of runs that choose events and gamblers; they are counted in no bound. Whatever decided what a score is
        must not have seen the runs that are counted.
    epsilon, delta : float
        As claimed.
    mu : float, optional
        As claimed, where the guarantee is a mu.
    max_runs : int
        Pairs of runs that are counted at most.
    confidence : float
        Of each bound, at all times together.

    Examples
    --------
    Half of the noise is caught, all of it passes, long before the runs are used up:

    >>> rng = np.random.default_rng(0)
    >>> def audit(mean):
    ...     found = SequentialAudit(rng.normal(mean, 1, 50), rng.normal(0, 1, 50), 2.0, 0.01, mu=0.896, max_runs=2000)
    ...     while found.verdict is None:
    ...         found.add(rng.normal(mean, 1, 10), rng.normal(0, 1, 10))
    ...     return found.verdict, found.n_runs < 1000
    >>> audit(2 * 0.896), audit(0.896)
    (('caught', True), ('passed', True))
    """

    def __init__(
        self,
        trial: Floats,
        trial_prime: Floats,
        epsilon: float,
        delta: float,
        *,
        mu: float | None = None,
        max_runs: int,
        confidence: float = 1 - 1e-6,
    ) -> None:
        self.epsilon, self.delta, self.mu, self.max_runs = epsilon, delta, mu, max_runs
        self.thresholds = np.unique(np.quantile(np.concatenate([trial, trial_prime]), LEVELS))
        before, log_limit = counted(trial, trial_prime, self.thresholds), -math.log1p(-confidence)
        ladder = np.arange(UP_TO * STEPS + 1) / STEPS
        self._bets = [Bets([epsilon_lines(epsilon * part, delta) for part in ladder], log_limit, before)]
        if mu is not None:
            self._bets.append(Bets([mu_lines(mu * part) for part in ladder[1:]], log_limit, before))
        self._counts = np.zeros_like(before)

    def add(self, one: Floats, other: Floats) -> None:
        """The scores of as many further runs on the one dataset as on the other."""
        self._counts = self._counts + counted(one, other, self.thresholds)
        for bets in self._bets:
            bets.look(self._counts)

    @property
    def n_runs(self) -> int:
        """Counted on either dataset."""
        return int(self._counts[:, :, 0].sum())

    @property
    def epsilon_lower(self) -> float:
        """More than this, at the given delta; 0 says nothing."""
        return self.epsilon * max(0, self._bets[0].bound - 1) / STEPS

    @property
    def mu_lower(self) -> float | None:
        """The same of a mu."""
        return None if self.mu is None else self.mu * self._bets[1].bound / STEPS

    @property
    def caught(self) -> bool:
        """Whether a claim is contradicted, by itself or together with all that are smaller."""
        return any(bets.contradicted[which] for bets, which in self._claims)

    @property
    def verdict(self) -> Verdict | None:
        """None as long as more runs may tell."""
        if self.caught:
            return "caught"
        left = self.max_runs - self.n_runs
        if left <= 0:
            return "passed"
        if self.n_runs < LEAST:
            return None
        over = all(bets.hopeless(self._counts, which, left) for bets, which in self._claims)
        return "passed" if over else None

    @property
    def _claims(self) -> list[tuple[Bets, int]]:
        return [(bets, len(bets.lines) - 1 - (UP_TO - 1) * STEPS) for bets in self._bets]

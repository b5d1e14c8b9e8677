"""Empirical lower bounds on the privacy loss. For synthetic rows only.

A guarantee is proved; an audit can only contradict it. Use them in this order:

1. `dpdist.privacy.audit.sensitivity_fuzz` compares a query's exact sums on adversarial neighbours with its declared
   sensitivity. It costs nothing statistically and finds most mistakes.
2. `audit_two_point` runs a mechanism many times on two neighbouring datasets. For Gaussian noise read ``mu_lower``:
   at one threshold it is far sharper than ``epsilon_lower``.
3. `audit_one_run` inserts many canaries and runs once: a smoke test for gross errors in whole pipelines.

Always audit a control that is broken on purpose (half the noise) beside the real mechanism: an audit that does not
catch the control says nothing about the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special


@dataclass(frozen=True)
class AuditResult:
    """What the observed outputs contradict: with probability at least `confidence` each bound is below the true loss.

    ``epsilon_lower`` is for the given delta; ``mu_lower`` (None where the audit gives none) bounds the mu of Gaussian
    DP. Each holds at `confidence` by itself. ``n_runs`` counts the runs (or canaries) it was evaluated on.
    """

    epsilon_lower: float
    mu_lower: float | None
    delta: float
    confidence: float
    n_runs: int


def clopper_pearson(successes: int, trials: int, tail: float) -> tuple[float, float]:
    """Return exact one-sided bounds of a probability: each is wrong with probability at most `tail`.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 1000, 0.025)
    >>> low, round(high, 5)
    (0.0, 0.00368)
    """
    low = float(special.betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = float(special.betainccinv(successes + 1, trials - successes, tail)) if successes < trials else 1.0
    return low, high


def event_bound(hits: int, hits_prime: int, n_runs: int, delta: float, confidence: float = 0.95) -> tuple[float, float]:
    """Lower bounds (epsilon, mu) from one event that was fixed before these runs.

    The event S happened `hits` times in `n_runs` runs on D and `hits_prime` times in as many runs on D'. With p the
    lower Clopper-Pearson bound of P(S) and q the upper bound of P'(S), each at half the error,

    ``epsilon >= ln((p - delta)/q)``, ``epsilon >= ln((1 - q - delta)/(1 - p))`` (the complement, from D' to D) and
    ``mu >= Phi^-1(p) - Phi^-1(q)``

    hold together with probability `confidence`, because all three use the same two bounds. However large the loss is,
    epsilon comes out below ``ln(n_runs / 3.7)``.

    Examples
    --------
    >>> [round(event_bound(n, 0, n, 0.0)[0], 1) for n in (1_000, 10_000, 100_000)]
    [5.6, 7.9, 10.2]
    """
    tail = (1 - confidence) / 2
    p, q = clopper_pearson(hits, n_runs, tail)[0], clopper_pearson(hits_prime, n_runs, tail)[1]
    direct = math.log((p - delta) / q) if p > delta else 0.0
    mirrored = math.log((1 - q - delta) / (1 - p)) if 1 - q > delta else 0.0
    mu = float(special.ndtri(p) - special.ndtri(q)) if p > 0 and q < 1 else 0.0
    return max(0.0, direct, mirrored), max(0.0, mu)


def two_point_bound(
    scores: np.ndarray,
    scores_prime: np.ndarray,
    delta: float,
    confidence: float = 0.95,
    *,
    pilot_fraction: float = 0.2,
) -> AuditResult:
    """Lower bounds on epsilon and mu from scores of independent runs on two neighbouring datasets.

    The first `pilot_fraction` of the runs chooses the event (a threshold and a side, separately for epsilon and for
    mu), the others count it, so the Clopper-Pearson bounds of `event_bound` apply to an event fixed in advance.

    Parameters
    ----------
    scores, scores_prime : numpy.ndarray
        One number per run (NaN counts as the lowest), equally many for both: for Gaussian-like outputs the projection
        ``<output, M0(D) - M0(D')>`` with M0 the noiseless answer, in any scale; either dataset may score higher.
    delta : float
        The delta for which epsilon is bounded.
    confidence : float
        Probability with which each bound holds.

    Examples
    --------
    Gaussian noise with mu = 2 is not mistaken for more, and a claim of mu = 1 is contradicted:

    >>> rng = np.random.default_rng(0)
    >>> result = two_point_bound(rng.normal(2, 1, 5000), rng.normal(0, 1, 5000), delta=1e-6)
    >>> 1 < result.mu_lower < 2
    True
    """
    arrays = [np.asarray(a, dtype=np.float64).ravel() for a in (scores, scores_prime)]
    if arrays[0].size != arrays[1].size:
        raise ValueError(f"equally many runs on both datasets are needed, got {arrays[0].size} and {arrays[1].size}")
    n_pilot = int(arrays[0].size * pilot_fraction)
    n_runs = arrays[0].size - n_pilot
    if not (n_pilot and n_runs):
        raise ValueError(f"{arrays[0].size} runs are too few to choose an event on one part and to count it on another")
    arrays = [np.where(np.isnan(array), -np.inf, array) for array in arrays]  # an output like any other
    best = [(-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]  # (bound on the pilot, threshold, side) for epsilon and for mu
    for side in (1.0, -1.0):
        pilot = [np.sort(side * array[:n_pilot]) for array in arrays]
        # Quantiles of the pooled pilot, denser in the upper tail, where the best event for epsilon lies.
        levels = np.concatenate([np.linspace(0.005, 0.995, 199), 1 - np.geomspace(0.005, 1 / n_pilot, 40)])
        pooled = np.sort(np.concatenate(pilot))
        for threshold in np.unique(pooled[np.rint(levels * (pooled.size - 1)).astype(int)]):
            # The pilot's own bound, not its estimate: the estimate of a rare event is too noisy to choose by.
            hits = [n_pilot - int(np.searchsorted(ordered, threshold)) for ordered in pilot]
            bounds = event_bound(hits[0], hits[1], n_pilot, delta, confidence)
            best = [max(old, (bound, float(threshold), side)) for old, bound in zip(best, bounds, strict=True)]
    found = []
    for which, (_, threshold, side) in enumerate(best):
        hits = [int(np.count_nonzero(side * array[n_pilot:] >= threshold)) for array in arrays]
        found.append(event_bound(hits[0], hits[1], n_runs, delta, confidence)[which])
    return AuditResult(found[0], found[1], delta, confidence, n_runs)


def audit_two_point(
    run_on_d: Callable[[], Any],
    run_on_d_prime: Callable[[], Any],
    n_runs: int,
    delta: float,
    confidence: float = 0.95,
    *,
    projection: np.ndarray | None = None,
) -> AuditResult:
    """Run a mechanism on two neighbouring datasets and bound its privacy loss from below.

    Parameters
    ----------
    run_on_d, run_on_d_prime : callable
        Each call runs the mechanism once with fresh randomness and returns its output, a number or an array. D and D'
        should be the worst neighbours known.
    n_runs : int
        Runs per dataset on which the event is counted; a quarter of that is run before to choose the event.
    delta, confidence : float
        As in `two_point_bound`.
    projection : numpy.ndarray, optional
        The score of an output is its inner product with this: give the noiseless answer on D minus that on D'.
        Not needed for outputs that are one number.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> result = audit_two_point(lambda: rng.laplace(1.0), lambda: rng.laplace(0.0), 4000, delta=0.0)  # epsilon = 1
    >>> 0.7 < result.epsilon_lower < 1
    True
    """
    weights = np.ones(1) if projection is None else np.asarray(projection, dtype=np.float64).ravel()

    def score(output: Any) -> float:
        return float(np.asarray(output, dtype=np.float64).ravel() @ weights)

    n_pilot = max(1, n_runs // 4)
    scores = [np.array([score(run()) for _ in range(n_pilot + n_runs)]) for run in (run_on_d, run_on_d_prime)]
    # The half keeps int() from rounding the pilot down to one run less.
    return two_point_bound(scores[0], scores[1], delta, confidence, pilot_fraction=(n_pilot + 0.5) / (n_pilot + n_runs))


def one_run_bound(n_correct: int, n_guesses: int, n_canaries: int, delta: float, confidence: float = 0.95) -> float:
    """Lower bound on epsilon from guesses about canaries that were included by independent fair coins in one run.

    Under (epsilon, delta)-DP (adding or removing one of the m canaries), with ``q = 1/(1 + e^-epsilon)`` and
    B ~ Bin(r, q), r guesses of which v are correct have the p-value

    ``P(B >= v) + 2 m delta max_{i=1..v} (1/i) sum_{j=1..i} P(B = v - j)``;

    the bound is the largest epsilon rejected. Source: Steinke, Nasr, Jagielski 2023.

    Examples
    --------
    >>> round(one_run_bound(1000, 1000, 1000, 0.0), 2), round(one_run_bound(600, 1000, 1000, 0.0), 3)
    (5.81, 0.297)
    """
    if not 0 <= n_correct <= n_guesses <= n_canaries:
        raise ValueError(f"need correct <= guesses <= canaries, got {n_correct}, {n_guesses}, {n_canaries}")
    r, v = n_guesses, n_correct
    counts = np.arange(v)[::-1]  # v - 1, v - 2, ..., 0
    log_choose = special.gammaln(r + 1) - special.gammaln(counts + 1) - special.gammaln(r - counts + 1)

    def p_value(epsilon: float) -> float:
        tail = float(special.betainc(v, r - v + 1, special.expit(epsilon)))
        pmf = np.exp(log_choose + counts * special.log_expit(epsilon) + (r - counts) * special.log_expit(-epsilon))
        return tail + 2 * n_canaries * delta * float(np.max(np.cumsum(pmf) / np.arange(1, v + 1)))

    level = 1 - confidence
    if v == 0 or p_value(0.0) >= level:
        return 0.0
    # DP at epsilon implies DP at every larger epsilon, so any rejected value is a valid bound; `low` always is one.
    low, high = 0.0, 1.0
    while p_value(high) < level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) < level else (low, middle)
    return low


def audit_one_run(
    scores: np.ndarray,
    included: np.ndarray,
    n_guesses: int | Sequence[int],
    delta: float,
    confidence: float = 0.95,
) -> AuditResult:
    """Lower bound on epsilon from one run with canaries.

    Parameters
    ----------
    scores : numpy.ndarray
        One per canary: the larger, the more the output looks as if the canary was in the data.
    included : numpy.ndarray of bool
        The independent fair coins that decided it.
    n_guesses : int or sequence of int
        Guess "in" for the top half of that many scores, "out" for the bottom half, abstain between. The best of several
        numbers is reported and the error probability divided among them.

    Examples
    --------
    Canaries with unit contributions on orthogonal axes under Gaussian noise of scale 1 (epsilon 4.38 at delta 1e-5):

    >>> rng = np.random.default_rng(2)
    >>> included = rng.random(1000) < 0.5
    >>> result = audit_one_run(included + rng.normal(0, 1, 1000), included, (100, 300), delta=1e-5)
    >>> 0.5 < result.epsilon_lower < 4.38
    True
    """
    scores, included = np.asarray(scores), np.asarray(included, dtype=bool)
    if scores.shape != included.shape or scores.ndim != 1:
        raise ValueError(f"one score and one coin per canary are needed, got shapes {scores.shape}, {included.shape}")
    choices = [n_guesses] if isinstance(n_guesses, int) else list(n_guesses)
    order = np.argsort(scores, kind="stable")
    bounds = []
    for choice in choices:
        half = choice // 2
        correct = int(included[order[len(order) - half :]].sum()) + int((~included[order[:half]]).sum())
        level = 1 - (1 - confidence) / len(choices)
        bounds.append(one_run_bound(correct, 2 * half, scores.size, delta, level))
    return AuditResult(max(bounds), None, delta, confidence, scores.size)

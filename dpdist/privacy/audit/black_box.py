"""Audits of whatever can be run on either of two neighbours: which pair gives away most, by which score, then bets.

Trial runs choose a pair of neighbours and the linear combination of everything that is released which tells the two
apart best; fresh runs are scored by it and go to a `dpdist.privacy.audit.sequential.SequentialAudit` until that has its
verdict. An audit can contradict a guarantee, not prove it: these neighbours are bad ones, not the worst for every
method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.audit.sequential import SequentialAudit, Verdict
from dpdist.privacy.audit.worst_neighbours import Pair

Vectors = NDArray[np.float64]
Score = Callable[[Vectors], Vectors]
Runs = Callable[[Pair, int], tuple[Vectors, Vectors]]
"""As many runs on either dataset of a pair, of each everything that it makes public as one vector."""

CONFIDENCE = 1 - 1e-6


@dataclass(frozen=True)
class Claim:
    """A guarantee as it is claimed; with a mu, where all noise is Gaussian."""

    epsilon: float
    delta: float
    mu: float | None = None


@dataclass(frozen=True)
class Finding:
    """What an audit found.

    Attributes
    ----------
    verdict : {"caught", "passed"}
        See `dpdist.privacy.audit.sequential`.
    epsilon_lower : float
        The loss is more than that, at the claimed delta; wrong with a chance of at most ``1 - CONFIDENCE``.
    mu_lower : float or None
    n_runs : int
        Counted, on either dataset.
    neighbours : str
        The pair.
    """

    verdict: Verdict
    epsilon_lower: float
    mu_lower: float | None
    n_runs: int
    neighbours: str


def audit_black_box(
    run: Runs,
    pairs: Mapping[str, Pair],
    claim: Callable[[], Claim],
    *,
    n_trials: int,
    n_learn: int,
    n_runs: int,
    n_at_once: int,
    more_scores: Callable[[Pair], Iterable[Score]] = lambda pair: (),
) -> Finding:
    """Try to catch ``run`` leaking more than it claims.

    Parameters
    ----------
    run : callable
    pairs : mapping of str to Pair
        Neighbours, by name.
    claim : callable
        What is claimed; asked after the trial runs.
    n_trials : int
        Runs on either dataset of each pair that choose the pair.
    n_learn : int
        Further runs on the chosen one, from which the score is learnt, too.
    n_runs : int
        Runs on either dataset that are counted at most.
    n_at_once : int
        Runs between two looks.
    more_scores : callable
        Other scores of the outputs on a pair that may tell them apart, beside Fisher's.
    """
    best: tuple[float, str, Score | None] = (-1.0, "", None)
    half = n_trials // 2
    seen: dict[str, tuple[Vectors, Vectors]] = {}
    for name, pair in pairs.items():
        one, other = seen[name] = run(pair, n_trials)
        # compared on the half that Fisher's score has not seen
        for given in (None, *more_scores(pair)):
            score = given or score_of(one[:half], other[:half])
            best = max(best, (apart(score(one[half:]), score(other[half:])), name, given), key=lambda found: found[0])
    _, name, given = best
    one, other = (np.concatenate(each) for each in zip(seen[name], run(pairs[name], n_learn), strict=True))
    score = given or score_of(one, other)
    trial = score(one), score(other)
    asked = claim()
    audit = SequentialAudit(
        trial[0], trial[1], asked.epsilon, asked.delta, mu=asked.mu, max_runs=n_runs, confidence=CONFIDENCE
    )
    while (verdict := audit.verdict) is None:
        one, other = run(pairs[name], min(n_at_once, n_runs - audit.n_runs))
        audit.add(score(one), score(other))
    return Finding(verdict, audit.epsilon_lower, audit.mu_lower, audit.n_runs, name)


def apart(one: Vectors, other: Vectors) -> float:
    """Distance of the means of two samples, in units of their spread."""
    return float(abs(one.mean() - other.mean()) / (one.std() + other.std() + 1e-300))


def score_of(one: Vectors, other: Vectors) -> Score:
    """The linear score that tells two samples apart best (Fisher's), of numbers in robust units and cut at 10."""
    pooled = np.concatenate([one, other])
    centre = np.median(pooled, axis=0)
    spread = 1.4826 * np.median(np.abs(pooled - centre), axis=0)  # the standard deviation of a normal law
    spread = np.where(spread > 0, spread, np.maximum(np.abs(pooled - centre).max(axis=0), 1e-300))

    def scaled(values: Vectors) -> Vectors:
        cut: Vectors = np.clip((values - centre) / spread, -10.0, 10.0)
        return cut

    means = [scaled(sample).mean(axis=0) for sample in (one, other)]
    within = np.concatenate([scaled(sample) - mean for sample, mean in zip((one, other), means, strict=True)])
    weights = _solve_ridge(within / np.sqrt(len(within)), 0.05, means[0] - means[1])
    return lambda values: scaled(values) @ weights


def _solve_ridge(W: Vectors, ridge: float, v: Vectors) -> Vectors:
    """``(W'W + ridge I)^-1 v``, by the smaller of the two systems."""
    n, d = W.shape
    if d <= n:
        return np.asarray(np.linalg.solve(W.T @ W + ridge * np.eye(d), v))
    return np.asarray((v - W.T @ np.linalg.solve(W @ W.T + ridge * np.eye(n), W @ v)) / ridge)

"""Dawid and Skene's model of a crowd: what an expectation-maximisation step computes of totals, and a plain twin.

A task j has a true class; user i gives the class l with probability ``pi[i, k, l]`` where k is true, independently of
all else (Dawid and Skene 1979). With two classes one number says it all, the chance ``p_i`` of a right answer (the
one-coin model, seed 000, eq. 7.1 to 7.8). What arrives may be randomised responses: these follow the same model, with
``pi`` times the channel, so that the same steps find labels from them.

>>> rng = np.random.default_rng(0)
>>> truth = rng.integers(0, 2, 300)
>>> right = rng.random((20, 300)) < np.where(np.arange(20) < 10, 0.9, 0.5)[:, None]
>>> found, abilities = one_coin(np.where(right, truth, 1 - truth))
>>> bool(np.mean((found > 0.5) == truth) > 0.99), bool(abilities[:10].min() > 0.8)
(True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

Floats = NDArray[np.float64]

PRIOR = 1.0
"""Answers of either kind that a user is thought to have given beside their own: few answers tell little."""
CLOSE = 1e-4
"""Rounds end when no probability of a label moves by more."""
STRONG = 3.0
"""From this strength of the signal on, rounds are repeated; below, they would fit noise."""
MANY = 1e9
"""Answers that outweigh those of any user."""
SLACK = 0.1
"""By this part the variance beside the labels may exceed that of independent users, for models that are not exact."""
FEWEST_SHARED = 5
"""Pairs of users with fewer tasks in common tell nothing of how alike they are."""


@dataclass(frozen=True)
class Prior:
    """What is thought of a user of whom nothing is known: as much as so many answers tell.

    Attributes
    ----------
    mean : float
        Of an answer's agreement with the labels, from -1 to 1.
    n_answers : float
    """

    mean: float = 0.0
    n_answers: float = 2 * PRIOR


COIN = Prior()
"""A right and a wrong answer."""


def prior_of(answers: NDArray[np.uint8], labels: Floats) -> Prior:
    """How users agree with labels, as those do whose answers are given; what does not differ by chance alone.

    The agreement of user i, a mean over c_i answers, varies by ``tau^2 + s^2 / c_i``: with abilities, and by chance. A
    user is then thought to be like all others as far as ``s^2 / tau^2`` answers say it (James and Stein), with
    ``tau^2`` two standard errors below its estimate. Where nothing but chance is seen, all users count alike, and their
    votes decide.

    Parameters
    ----------
    answers : array of shape (n, m)
        0 and 1; anything else is no answer.
    labels : array of shape (m,)
        Chances of the label 1.
    """
    signs = np.where(answers == 1, 1.0, np.where(answers == 0, -1.0, 0.0))
    given, certain = np.abs(signs), 2 * labels - 1
    counts = given.sum(axis=1)
    some = counts > 0
    if some.sum() < 2:
        return COIN
    signs, given, counts = signs[some], given[some], counts[some]
    agreement = signs @ certain / counts
    mean = float(counts @ agreement / counts.sum())
    noise = given @ certain**2 / counts
    chance = float(np.mean(noise - agreement**2 / np.maximum(counts, 1)))
    spread = float(np.var(agreement, ddof=1)) * max(1 - 2 * math.sqrt(2 / len(counts)), 0.0)  # two standard errors less
    between = spread - float(np.mean(noise / counts))
    if mean <= 0 or between <= chance * 1e-9:
        return Prior(max(mean, 1e-3 * float(np.abs(certain).max() or 1.0)), MANY)
    return Prior(mean, min(chance / between, MANY))


def label_posterior(log_odds: Floats) -> Floats:
    """Chances of the classes of every task from sums of log-odds (one column), or of log-likelihoods (one for each)."""
    if log_odds.ndim == 1:
        ones = expit(log_odds)
        return np.column_stack([1.0 - ones, ones])
    return np.asarray(softmax(log_odds, axis=1))


def signal_strength(symbols: NDArray[np.uint8], n_classes: int) -> float:
    """``sqrt(v^2) sqrt(n m)``, by how alike the reports of pairs of users are: above 1 their common part can be seen.

    With ``g_ij`` the correlation of two users over the tasks that both answered, ``v^2`` is the mean of ``g_ij^2`` less
    what chance makes of it, ``1 / c_ij`` for c_ij common tasks (spec 07, section 3.7, and correction 20). There are no
    more users than pairs can be made of them, which are few where tasks are shared by few.

    Parameters
    ----------
    symbols : array of shape (s, m)
        Reports of some of the users; a symbol that is no class is no answer.
    n_classes : int
    """
    n, m = symbols.shape
    alike, shared = np.zeros((n, n)), np.zeros((n, n))
    for start in range(0, m, 1 << 14):
        part = symbols[:, start : start + (1 << 14)]
        there = (part < n_classes).astype(np.float32)
        shared += there @ there.T
        for k in range(n_classes):
            chosen = (part == k).astype(np.float32)
            alike += chosen @ chosen.T
    pairs = (shared >= FEWEST_SHARED) & ~np.eye(n, dtype=bool)
    if not pairs.any():
        return 0.0
    c = shared[pairs]
    g = (n_classes * alike[pairs] / c - 1) / (n_classes - 1)
    square = float(np.mean(g**2 - 1 / ((n_classes - 1) * c)))
    return math.sqrt(max(square, 0.0) * math.sqrt(pairs.sum()) * float(c.mean()) * (n_classes - 1))


def err_together(
    margins: Floats, by_agreement: Floats, counts: Floats, labels: Floats, agreements: Floats, n_answers: Floats
) -> bool:
    """Whether what the vote says beside the labels varies more than it would if users erred independently.

    With agreements ``A_i = sum_j s_ij u_j``, for signs s of answers and ``u = 2 y - 1``, the numbers ``D_j = sum_i (1 -
    r A_i) s_ij``, ``r = sum A / sum A^2``, have weights that are orthogonal to the abilities: whatever all users
    answer by their abilities cancels, however hard a task is. What is left is chance, with the variance ``sum_i f_i (1
    - r A_i)^2 (1 - f_i a_i^2)`` for users who answered a share f_i of the tasks, with a mean agreement a_i. Users who
    copy from each other, or always say the same, are found to be able by whoever trusts them, and the others' answers
    are in D: it varies by more. Its mean is left out, since a class may be voted for more often than others.

    Parameters
    ----------
    margins : array of shape (m,)
        Votes for the class 1 less those for 0.
    by_agreement : array of shape (m,)
        The same, of users who count for their agreement: ``sum_i s_ij A_i``. What a task adds to this by itself, as
        one of those that agreements are made of, is taken off.
    counts : array of shape (m,)
        Answers to each task.
    labels : array of shape (m,)
        Chances of the label 1.
    agreements, n_answers : array of shape (n,)
        A, and how many answers each user gave.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.choice([-1, 1], 2000)
    >>> signs = np.where(rng.random((60, 2000)) < 0.7, truth, -truth)
    >>> copied = np.where(np.arange(60)[:, None] < 20, signs[0], signs)
    >>> [
    ...     err_together(s.sum(axis=0), s.T @ (s @ u), np.full(2000, 60), (u + 1) / 2, s @ u, np.full(60, 2000))
    ...     for s, u in ((signs, truth), (copied, signs[0]))
    ... ]
    [False, True]
    """
    m = len(margins)
    certain = 2 * labels - 1
    mean = agreements / np.maximum(n_answers, 1)
    square = float(np.sum(agreements**2 - n_answers * (1 - mean**2) * np.mean(certain**2)))
    ratio = float(agreements.sum()) / max(square, 1e-12 * float(agreements @ agreements), 1e-300)
    beside = margins - ratio * (by_agreement - counts * certain)
    share, weights = n_answers / m, 1 - ratio * agreements
    chance = float(np.sum(share * weights**2 * (1 - share * mean**2)))
    return float(np.var(beside)) > chance * (1 + SLACK + 4 * math.sqrt(2 / m))


def one_coin(
    answers: NDArray[np.integer],
    *,
    projection: float | None = None,
    n_rounds: int = 20,
    start: Floats | None = None,
    prior: float = PRIOR,
) -> tuple[Floats, Floats]:
    """Labels and abilities from answers 0 and 1 (anything else is no answer), without privacy, in floating point.

    Parameters
    ----------
    answers : array of shape (n, m)
    projection : float, optional
        Abilities are kept in ``[projection, 1 - projection]``. Default: ``1 / (2 m)``.
    n_rounds : int
    start : array of shape (m,), optional
        Chances of the label 1. Default: the share of ones.
    prior : float
        With 0 and without projection, no round makes `objective` smaller.

    Returns
    -------
    probabilities : array of shape (m,)
        Of the label 1.
    abilities : array of shape (n,)
    """
    signs = np.where(answers == 1, 1.0, np.where(answers == 0, -1.0, 0.0))
    n_answers = np.abs(signs).sum(axis=1)
    low = 1 / (2 * answers.shape[1]) if projection is None else projection
    y = 0.5 + signs.sum(axis=0) / (2 * np.maximum(np.abs(signs).sum(axis=0), 1)) if start is None else start
    p = np.full(len(signs), 0.5)
    for _ in range(n_rounds):
        before = y
        p = np.clip(0.5 + signs @ (2 * y - 1) / (2 * np.maximum(n_answers + 2 * prior, 1)), low, 1 - low)
        y = expit(signs.T @ logit(p))
        if np.abs(y - before).max() < CLOSE:
            break
    return y, p


def dawid_skene(answers: NDArray[np.floating], n_classes: int, n_rounds: int = 20) -> tuple[Floats, Floats]:
    """Labels and confusion matrices from answers (anything but a class is no answer), without privacy.

    Returns
    -------
    probabilities : array of shape (m, n_classes)
    confusion : array of shape (n, n_classes, n_classes)
        The chances of each user's answers, one row for every label.
    """
    given = np.stack([answers == k for k in range(n_classes)]).astype(np.float64)
    y = ((given.sum(axis=1) + 1 / n_classes) / (given.sum(axis=(0, 1)) + 1)).T
    confusion = np.empty((answers.shape[0], n_classes, n_classes))
    for _ in range(n_rounds):
        before = y
        counts = PRIOR + np.einsum("lij,jk->ikl", given, y)
        confusion = counts / counts.sum(axis=2, keepdims=True)
        logs = np.log(y.mean(axis=0) + 1e-12) + np.einsum("lij,ikl->jk", given, np.log(confusion))
        y = label_posterior(logs)
        if np.abs(y - before).max() < CLOSE:
            break
    return y, confusion


def objective(answers: NDArray[np.integer], y: Floats, p: Floats) -> float:
    """What rounds of the one-coin model maximise: the expected log-likelihood and the entropy of the labels (eq. 7.4,
    with ``1 - y_j`` for the ``1 - y_i`` that is printed)."""
    ones, zeros = answers == 1, answers == 0
    likelihood = 0.0
    for label, weight in ((1, y), (0, 1 - y)):
        right, wrong = (ones, zeros) if label else (zeros, ones)
        terms = np.where(right, np.log(p)[:, None], 0.0) + np.where(wrong, np.log1p(-p)[:, None], 0.0)
        likelihood += float((terms @ weight).sum())
    inside = np.clip(y, 1e-300, 1 - 1e-16)
    return likelihood - float(np.sum(inside * np.log(inside) + (1 - inside) * np.log1p(-inside)))


def theory_report(n_users: int, n_tasks: int, epsilon: float, abilities: Floats) -> dict[str, float | bool]:
    """What the theorems about private Dawid and Skene say of a crowd, and whether they apply (seed 000, 7.1.2, 7.1.3).

    Printed with corrections: the proof of the first needs ``v >= 16 ln(1/lambda) sqrt(ln m / n)`` for the lambda that
    it lets choose, and that lies in an interval which is empty at any practical m (spec 07, section 3.4, D2). Nothing
    is gated on it.

    Returns
    -------
    dict
        ``wisdom``: the collective private wisdom v; ``label_error``: ``2 exp(-n v / 2)``; ``ability_error``: ``(6 /
        epsilon) sqrt(ln m / m)``; ``lambda_low``, ``lambda_high``; ``applies``.

    Examples
    --------
    >>> report = theory_report(100, 2000, 1.0, np.linspace(0.6, 0.9, 100))
    >>> round(report["label_error"], 3), round(report["lambda_low"]), report["applies"]
    (0.1, 16, False)
    """
    wisdom = math.tanh(epsilon / 2) ** 2 * float(np.mean((2 * np.asarray(abilities) - 1) ** 2))
    shrinks = math.sqrt(math.log(max(n_tasks, 2)) / n_tasks)
    low = 16 / wisdom * shrinks if wisdom else math.inf
    high = 1 / 8 - shrinks / 2
    needed = 16 * math.log(1 / low) * math.sqrt(math.log(max(n_tasks, 2)) / n_users) if 0 < low < 1 else math.inf
    return {
        "wisdom": wisdom,
        "label_error": 2 * math.exp(-n_users * wisdom / 2),
        "ability_error": 6 / epsilon * shrinks,
        "lambda_low": low,
        "lambda_high": high,
        "applies": n_users <= n_tasks and low <= high and wisdom >= needed,
    }

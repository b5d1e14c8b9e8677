"""Labels from the reports of a crowd, as a loop that asks for sums of them and only ever sees those.

Private Dawid and Skene (seed 000, Algorithm 7.1.54): labels from the vote, then in turns the abilities that agree with
the labels, and the labels that users of these abilities vote for. The start, which the source leaves open, is made of
reports like everything else.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from dpdist.kernels.bit_planes import LARGEST
from dpdist.local.crowd.answer_protocol import AnswerProtocol, EachUser, Request, SomeReports, Votes, Weighted, in_units
from dpdist.solvers.dawid_skene import CLOSE, COIN, STRONG, err_together, label_posterior, prior_of, signal_strength

Floats = NDArray[np.float64]
Asking = Generator[Request, Floats, Any]
Start = Literal["votes", "spectral"]

MOST_ROUNDS = 30
SPECTRAL_ROUNDS = 20
SAMPLE = 500
"""Of so many users reports are compared in pairs."""
SAMPLE_NUMBERS = 2**22


@dataclass(frozen=True)
class Rule:
    """How labels are found.

    Attributes
    ----------
    start : {"votes", "spectral"}
    n_rounds : int or None
        None: one where the signal is weak, else until the labels stay (30 at most).
    """

    tag: ClassVar[str] = "CrowdRule"

    start: str = "votes"
    n_rounds: int | None = None

    @property
    def most_passes(self) -> int:
        """How often the reports are read, at most."""
        rounds = MOST_ROUNDS + 2 if self.n_rounds is None else self.n_rounds  # and two looks at who errs together
        return 3 + rounds + (SPECTRAL_ROUNDS if self.start == "spectral" else 0)


@dataclass(frozen=True, eq=False)
class Truth:
    """What was found.

    Attributes
    ----------
    probabilities : array of shape (m, n_classes)
        Of the labels.
    shares : array of shape (m, n_classes)
        Of the answers, unbiased.
    users : array of shape (n,) or (n, n_classes, n_classes)
        Chances of a right answer, or of every answer for every label, of each user.
    n_rounds : int
    strength : float or None
        Of the signal, where it was looked at.
    together : bool
        Whether users err together, so that the labels are those of the vote.
    """

    probabilities: Floats
    shares: Floats
    users: Floats
    n_rounds: int
    strength: float | None
    together: bool = False


def infer(protocol: AnswerProtocol, n_users: int, rule: Rule) -> Generator[Request, Floats, Truth]:
    """The requests of all passes, in turn; it is sent what the reports answer."""
    statistic = protocol.statistic
    votes = yield Votes()
    shares = protocol.estimate(votes, n_users)
    labels = _by_vote(protocol, votes, n_users)
    strength, sample = None, None
    if rule.n_rounds is None:
        sample = yield from _sample(protocol, n_users)
        strength = signal_strength(sample, statistic.n_classes)
    n_rounds = rule.n_rounds or (MOST_ROUNDS if strength is None or strength >= STRONG else 1)
    if rule.start == "spectral":
        labels = yield from _spectral(protocol, labels)
    done = 0
    for done in range(1, n_rounds + 1):  # noqa: B007 - it counts
        numbers, scale = in_units(labels)
        prior = COIN if sample is None or statistic.n_classes > 2 else prior_of(sample, labels[:, 1])
        total = yield Weighted(numbers, scale, prior=prior)
        before, labels = labels, _labels(protocol, total, labels, scale)
        if np.abs(labels - before).max() < CLOSE:
            break
    numbers, scale = in_units(labels)
    found = yield EachUser(numbers, scale)
    if statistic.n_classes > 2:
        return Truth(labels, shares, _confusions(protocol, found, scale, labels), done, strength)
    together = False
    if rule.n_rounds is None and n_rounds > 1:
        by_agreement = yield Weighted(numbers, scale, linear=True)
        by_agreement *= 2 * statistic.n_tasks * scale / LARGEST
        margins, counts = _margins(protocol, votes, n_users)
        together = err_together(margins, by_agreement, counts, labels[:, 1], *_of_users(protocol, found, scale))
    if together:
        labels = by_shares(shares, protocol.standard_errors(votes, n_users))
        numbers, scale = in_units(labels)
        found = yield EachUser(numbers, scale)
    agreement = _agreements(protocol, found, scale)
    return Truth(
        labels, shares, np.clip(0.5 + agreement / (2 * protocol.randomiser.slope), 0, 1), done, strength, together
    )


def _margins(protocol: AnswerProtocol, votes: Floats, n_users: int) -> tuple[Floats, Floats]:
    """Reports of the class 1 less those of the class 0, and of both, for every task."""
    if protocol.statistic.as_bits:
        return 2 * votes - n_users, np.full(len(votes), float(n_users))
    seen = votes.reshape(protocol.statistic.n_tasks, -1)
    return seen[:, 1] - seen[:, 0], seen[:, 0] + seen[:, 1]


def _by_vote(protocol: AnswerProtocol, votes: Floats, n_users: int) -> Floats:
    """The shares of the classes among the reports."""
    if protocol.statistic.as_bits:
        ones = votes / n_users
        return np.column_stack([1 - ones, ones])
    n_classes = protocol.statistic.n_classes
    seen = votes.reshape(protocol.statistic.n_tasks, -1)[:, :n_classes]
    return np.asarray((seen + 1 / n_classes) / (seen.sum(axis=1, keepdims=True) + 1))


def _sample(protocol: AnswerProtocol, n_users: int) -> Asking:
    """The reports of a part of the users, as symbols."""
    row = int(np.prod(protocol.randomiser.report.shape))
    n = min(n_users, max(min(SAMPLE, SAMPLE_NUMBERS // row), 50))
    users = tuple((np.arange(n) * n_users // n).tolist())
    reports = (yield SomeReports(users)).reshape(n, row).astype(np.uint8)
    if protocol.statistic.as_bits:
        reports = np.unpackbits(reports, axis=1, count=protocol.statistic.n_tasks, bitorder="little")
    return reports


def _spectral(protocol: AnswerProtocol, labels: Floats) -> Asking:
    """Labels along the direction in which reports vary most together, found by its powers, from the vote on.

    The direction is that of ``S' S`` for signs s of reports: a user counts for how much they agree with it, so that
    users who are wrong more often than right count against what they say. Its sign is that of the vote.
    """
    signed = labels[:, 1] - labels[:, 0]
    for _ in range(SPECTRAL_ROUNDS):
        labels = np.column_stack([-signed, signed]) / 2 + 0.5
        numbers, scale = in_units(labels)
        total = yield Weighted(numbers, scale, linear=True)
        size = float(np.abs(total).max()) or 1.0
        # a total is the sum of s_ij w_i, and w_i the mean of s_ij and of what came before
        before, signed = signed / (np.linalg.norm(signed) or 1.0), total / size
        if np.linalg.norm(signed / np.linalg.norm(signed) - before) < 1e-3:
            break
    weight = np.linalg.norm(signed)
    ones = expit(4 * signed / (weight / np.sqrt(len(signed))) if weight else signed)
    return np.column_stack([1 - ones, ones])


def _labels(protocol: AnswerProtocol, total: Floats, labels: Floats, scale: float) -> Floats:
    """Chances of the classes from the weighted votes."""
    logs = total * (protocol.span(scale) / LARGEST)
    if protocol.statistic.n_classes == 2:
        return label_posterior(logs)
    return label_posterior(logs.reshape(labels.shape) + np.log(labels.mean(axis=0) + 1e-12))


def _of_users(protocol: AnswerProtocol, found: Floats, scale: float) -> tuple[Floats, Floats]:
    """``sum_j s_ij (2 y_j - 1)`` of every user, and how many reports of a class they sent."""
    if protocol.statistic.as_bits:
        return found * (scale / LARGEST), np.full(len(found), float(protocol.statistic.n_tasks))
    sums, n_answers = found.reshape(-1, 2).T
    return sums * (scale / LARGEST), n_answers


def _agreements(protocol: AnswerProtocol, found: Floats, scale: float) -> Floats:
    """How much the reports of each user agree with the labels, from -1 to 1."""
    m = protocol.statistic.n_tasks
    sums, n_answers = _of_users(protocol, found, scale)
    if protocol.statistic.unanswered == "symbol":  # reports of tasks without an answer agree with nothing
        slope, q = protocol.randomiser.slope, float(protocol.randomiser.chances[1])
        n_answers = m * np.clip(1 - (1 - n_answers / m - q) / slope, 1 / m, 1.0)
    return np.asarray(sums / np.maximum(n_answers, 1))


def _confusions(protocol: AnswerProtocol, found: Floats, scale: float, labels: Floats) -> Floats:
    """The chances of each user's answers, one row for every label, without what the channel takes."""
    n_classes, k = protocol.statistic.n_classes, protocol.randomiser.n_symbols
    slope, q = protocol.randomiser.slope, float(protocol.randomiser.chances[1])
    table = found.reshape(-1, n_classes**2 + k)
    reported = table[:, n_classes**2 :]
    seen = table[:, : n_classes**2].reshape(-1, n_classes, n_classes) * (scale / LARGEST)
    seen += reported[:, None, :n_classes] / n_classes
    tasks = seen.sum(axis=2, keepdims=True)
    if protocol.statistic.unanswered == "symbol":
        tasks = np.broadcast_to(labels.sum(axis=0)[:, None], tasks.shape)
    shares = (seen / np.maximum(tasks, 1e-9) - q) / slope
    shares = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1e-3)
    return _on_simplex(shares)


def _on_simplex(rows: Floats) -> Floats:
    """The nearest vectors that are not negative and sum to one, along the last axis."""
    ordered = -np.sort(-rows, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, rows.shape[-1] + 1)
    last = (ordered > excess).sum(axis=-1, keepdims=True) - 1
    return np.maximum(rows - np.take_along_axis(excess, last, axis=-1), 0.0)


def by_shares(shares: Floats, errors: Floats) -> Floats:
    """How sure a vote is: the chance that the class with the largest share has it without noise, by normal tails."""
    if shares.shape[1] == 2:
        ones = ndtr((shares[:, 1] - shares[:, 0]) / np.maximum(2 * errors[:, 1], 1e-12))
        return np.column_stack([1 - ones, ones])
    scores = shares / np.maximum(errors, 1e-12)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))

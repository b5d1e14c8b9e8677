"""A randomised response to every task, and what is asked of these reports.

What a pass of expectation-maximisation needs of a user's reports follows from public numbers: how often the user agrees
with the labels so far, hence their ability, hence what their reports count for in the next labels. So a pass is one
read of the rows, and what leaves it is a sum over users, in whole numbers: it does not depend on the order of users or
tasks, on partitions or on workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpdist.errors import BudgetError
from dpdist.kernels.bit_planes import LARGEST, column_sums, pack_words, row_sums, words_of
from dpdist.kernels.symbol_counts import by_column, by_row, counts
from dpdist.local.randomisers.answer_responses import BitResponses, SymbolResponses
from dpdist.local.statistics.task_answers import TaskAnswers
from dpdist.local.survey.protocol import Block, LocalProtocol
from dpdist.privacy.randomness.draws import Draws
from dpdist.solvers.dawid_skene import COIN, PRIOR, Prior

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Votes:
    """How often every symbol was reported, for every task."""


@dataclass(frozen=True)
class SomeReports:
    """The reports of users at these positions, which know nothing of the answers."""

    users: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Weighted:
    """The votes of users who count for what they are worth, at these labels.

    Attributes
    ----------
    labels : array of int64, shape (m, n_classes)
        Chances of the classes, less ``1 / n_classes``, in units of ``scale / LARGEST``.
    scale : float
    linear : bool
        Whether a user counts for how often they agree with the labels, in place of the log-odds of their ability.
    prior : Prior
        Of two classes: what is thought of a user before their reports are looked at.
    """

    labels: Integers
    scale: float
    linear: bool = False
    prior: Prior = COIN


@dataclass(frozen=True, eq=False)
class EachUser:
    """How much each user agrees with the labels, and unless it is all of them how many answers they sent; of more than
    two classes how often they reported each class where another one is the label, and every symbol."""

    labels: Integers
    scale: float


Request = Votes | SomeReports | Weighted | EachUser


def in_units(labels: Floats) -> tuple[Integers, float]:
    """Chances of classes as whole numbers, and their scale."""
    centred = labels - 1 / labels.shape[1]
    scale = float(np.abs(centred).max()) or 1.0
    return np.rint(centred * (LARGEST / scale)).astype(np.int64), scale


def law_of(answers: TaskAnswers, epsilon: float) -> BitResponses | SymbolResponses:
    """The randomised response to each of the answers.

    >>> law_of(TaskAnswers(5, n_classes=2, unanswered="symbol"), 1.0)
    SymbolResponses(size=5, epsilon=1.0, k=3, mask=False)
    """
    if answers.as_bits:
        return BitResponses(answers.n_tasks, epsilon)
    return SymbolResponses(answers.n_tasks, epsilon, answers.n_symbols, answers.unanswered == "public")


@dataclass(frozen=True)
class AnswerProtocol(LocalProtocol):
    """A randomised response to every task: the guarantee is about one answer.

    Parameters
    ----------
    statistic : TaskAnswers
    randomiser : BitResponses or SymbolResponses
    """

    tag: ClassVar[str] = "AnswerProtocol"

    statistic: TaskAnswers
    randomiser: BitResponses | SymbolResponses

    def __post_init__(self) -> None:
        super().__post_init__()
        asked, law = self.statistic, self.randomiser
        masked = isinstance(law, SymbolResponses) and law.mask
        offered = (isinstance(law, BitResponses), law.n_symbols, masked)
        if offered != (asked.as_bits, asked.n_symbols, asked.unanswered == "public"):
            raise BudgetError(
                f"answers of {asked.n_classes} classes with unanswered={asked.unanswered!r} are "
                f"{asked.n_symbols} symbols, and {law!r} is no law of their reports: `law_of` has it"
            )

    @property
    def projection(self) -> float:
        """Chances of a report to be right lie between it and 1 less it: no channel leads further."""
        return max(float(self.randomiser.chances[1]), 1 / (2 * max(self.statistic.n_tasks, 2)))

    @property
    def units(self) -> int:
        return LARGEST

    def estimate(self, total: Floats, n_users: int) -> Floats:
        """The share of every class among the answers, shape (m, n_classes)."""
        shares = super().estimate(total, n_users)
        if self.statistic.as_bits:
            return np.column_stack([1 - shares, shares])
        shares = shares.reshape(self.statistic.n_tasks, -1)
        if self.statistic.unanswered != "symbol":
            return shares
        answered = np.maximum(1 - shares[:, -1:], 1e-9)
        return np.asarray(shares[:, :-1] / answered)

    def standard_errors(self, total: Floats, n_users: int) -> Floats:
        """Of the shares of `estimate`, in their shape: how much randomised responses vary, and who answered.

        A share among the answers is a ratio of numbers of reports; its variance is that of ``s_k - R_k sum_l s_l``
        over the share of tasks that were answered, squared (delta method).
        """
        seen, slope = np.asarray(total, dtype=np.float64), self.randomiser.slope
        if self.statistic.as_bits:
            seen = np.column_stack([n_users - seen, seen])
        seen = seen.reshape(self.statistic.n_tasks, -1)
        reports = np.maximum(seen.sum(axis=1, keepdims=True), 1)
        chances = seen / reports
        answered = np.ones((len(seen), 1))
        if self.statistic.unanswered == "symbol":
            q = float(self.randomiser.chances[1])
            answered = np.maximum(1 - (chances[:, -1:] - q) / slope, 1e-9)
            chances = chances[:, :-1]
            of_all = self.estimate(total, n_users)
            first = chances * (1 - 2 * of_all) + of_all**2 * chances.sum(axis=1, keepdims=True)
            mean = chances - of_all * chances.sum(axis=1, keepdims=True)
            variance = first - mean**2
        else:
            variance = chances * (1 - chances)
        return np.asarray(np.sqrt(np.maximum(variance, 1 / reports) / reports) / (slope * answered))

    def reports(self, block: Block, draws: Draws) -> NDArray[Any]:
        """Words of bits, or symbols; one row per user."""
        values = self.statistic.values(block)
        if isinstance(self.randomiser, BitResponses):
            return self.randomiser.respond(values, draws)
        return self.randomiser.randomise(values, draws)

    def summarise(self, block: Block, draws: Draws, state: Any = None) -> NDArray[np.int64]:
        if not isinstance(state, Weighted):
            return super().summarise(block, draws)
        return self.votes(self.reports(block, draws), state)

    def votes(self, reports: NDArray[Any], state: Weighted) -> NDArray[np.int64]:
        """The weighted votes of users who sent these, `reports`."""
        reports = np.ascontiguousarray(reports)
        if self.statistic.n_classes > 2:
            tables = self._tables(by_row(reports, state.labels), counts(reports, self.randomiser.n_symbols)[1], state)
            return by_column(reports, tables).ravel()
        m, (ones, there) = self.statistic.n_tasks, self._signs(reports)
        agreements, n_answers = _agreements(ones, there, state.labels, m)
        if state.linear:
            weights = np.rint(agreements / (2 * m))
        else:
            seen = np.asarray(agreements * (state.scale / LARGEST), dtype=np.float64)
            weights = self._log_odds(seen, n_answers, state)
        numbers = weights.astype(np.int64)
        sums, _ = column_sums(ones, numbers, m)
        return 2 * sums - (numbers.sum() if there is None else column_sums(there, numbers, m)[0])

    def of_users(self, block: Block, draws: Draws, state: SomeReports | EachUser) -> NDArray[np.int64]:
        """What is asked of each user, one row per user: the report in bytes, or the counts of `EachUser`."""
        if isinstance(state, SomeReports):
            return self.randomiser.randomise(self.statistic.values(block), draws).astype(np.int64)
        return self.users(self.reports(block, draws), state)

    def users(self, reports: NDArray[Any], state: EachUser) -> NDArray[np.int64]:
        """The counts of users who sent these, `reports`."""
        reports = np.ascontiguousarray(reports)
        if self.statistic.n_classes == 2:
            of_user = _agreements(*self._signs(reports), state.labels, self.statistic.n_tasks)
            return np.column_stack(of_user[:1] if self.statistic.as_bits else of_user)
        found = by_row(reports, state.labels).reshape(len(reports), -1)
        return np.hstack([found, counts(reports, self.randomiser.n_symbols)[1]])

    def arrived(self, sent: NDArray[Any], request: Request) -> NDArray[np.int64]:
        """What is asked of reports that came from devices, as these sent them."""
        if isinstance(request, Votes):
            return self.accumulate(sent)
        if isinstance(request, SomeReports):
            return sent[list(request.users)].astype(np.int64)
        reports = words_of(sent) if isinstance(self.randomiser, BitResponses) else sent
        return self.votes(reports, request) if isinstance(request, Weighted) else self.users(reports, request)

    def _signs(self, reports: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
        """Reports of two classes as words: where they are the class 1, and where they are a class, if not everywhere.

        A sum over bits takes a tenth of the time of one over bytes.
        """
        if isinstance(self.randomiser, BitResponses):
            return reports, None
        return pack_words(reports == 1), pack_words(reports < 2)

    def _log_odds(self, agreements: Floats, n_answers: NDArray[Any], state: Weighted) -> Floats:
        """Those of the chance that a user's report is right, in units of `span` over `LARGEST`."""
        prior = state.prior
        p = 0.5 + (agreements + prior.n_answers * prior.mean) / (2 * (n_answers + prior.n_answers))
        low = 1 - self.highest(state.scale)
        return np.rint(logit(np.clip(p, low, 1 - low)) * (LARGEST / self.span(state.scale)))

    def _tables(self, agreements: Integers, reported: Integers, state: Weighted) -> Integers:
        """What a report of a class (last axis) counts for a label, for every user; of more than two classes."""
        n_classes = self.statistic.n_classes
        seen = agreements * (state.scale / LARGEST) + reported[:, None, :n_classes] / n_classes
        chances = (seen + PRIOR) / (seen + PRIOR).sum(axis=2, keepdims=True)
        low, high = float(self.randomiser.chances[1]), float(self.randomiser.chances[0])
        logs = np.log(np.clip(chances, low, max(high, 1 - (n_classes - 1) * low)))
        logs -= logs.mean(axis=1, keepdims=True)
        return np.asarray(np.rint(logs * (LARGEST / self.span(state.scale))).astype(np.int64))

    def highest(self, scale: float) -> float:
        """The largest chance of a report to be right: no channel leads further, nor do labels so near to a half."""
        return min(1 - self.projection, 0.5 + scale)

    def span(self, scale: float) -> float:
        """What `LARGEST` stands for in the sums of `Weighted`."""
        if self.statistic.n_classes == 2:
            return float(logit(self.highest(scale)))
        low = float(self.randomiser.chances[1])
        return float(np.log(1 / low))


def size_of(request: Request, protocol: LocalProtocol, n_users: int) -> int:
    """How many numbers answer a request."""
    assert isinstance(protocol, AnswerProtocol)
    m, n_classes, n_symbols = protocol.statistic.n_tasks, protocol.statistic.n_classes, protocol.randomiser.n_symbols
    if isinstance(request, Votes):
        return m if protocol.statistic.as_bits else m * n_symbols
    if isinstance(request, SomeReports):
        return len(request.users) * int(np.prod(protocol.randomiser.report.shape))
    if isinstance(request, Weighted):
        return m if n_classes == 2 else m * n_classes
    of_user = 2 - protocol.statistic.as_bits if n_classes == 2 else n_classes**2 + n_symbols
    return n_users * of_user


def _agreements(
    ones: NDArray[np.uint64], there: NDArray[np.uint64] | None, labels: Integers, m: int
) -> tuple[Integers, Integers]:
    """``sum_j s_ij (2 y_j - 1)`` of every user, in units, and of how many reports; s is 1 or -1, y the label's chance.

    ``there`` says which of the reports are of a class; None: all m.
    """
    numbers = labels[:, 1]
    sums, _ = row_sums(ones, numbers)
    if there is None:
        return 2 * (2 * sums - numbers.sum()), np.full(len(ones), m)
    of_all, n_answers = row_sums(there, numbers)
    return 2 * (2 * sums - of_all), n_answers

"""How labels are found from a crowd: the methods of `dpdist.local.crowd.truth_inference.TruthInference`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpdist.errors import BudgetError
from dpdist.estimators.parameters import check_count, choice
from dpdist.local.crowd.answer_passes import AnswerPasses
from dpdist.local.crowd.answer_protocol import AnswerProtocol, law_of
from dpdist.local.crowd.label_inference import MOST_ROUNDS, Rule, by_shares
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.answer_responses import BitResponses, SymbolResponses
from dpdist.local.randomisers.coordinates import SampleCoordinates
from dpdist.local.statistics.task_answers import AnswerSigns, TaskAnswers
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Reports
from dpdist.method import DECIDED, Line, Noted, Oracle, Public, by_name
from dpdist.privacy.accounting.plan import Plan
from dpdist.solvers.dawid_skene import STRONG, theory_report

Floats = NDArray[np.float64]

TYPICAL_ABILITY = 0.7
"""Of the users that a prediction is about."""


@dataclass(frozen=True)
class Crowd(Noted):
    """What a user of `TruthInference` states."""

    tag: ClassVar[str] = "Crowd"

    answers: TaskAnswers
    unit: str = "answer"


@dataclass(frozen=True)
class CrowdMethod(LocalMethod):
    """Reports about every answer, or of every record about one task."""

    statement: Crowd = field(default=None, kw_only=True, repr=False, metadata=DECIDED)  # type: ignore[assignment]

    unsure: ClassVar[str] = (
        "labels of tasks are classes, and how likely each is stands in label_probabilities_. Of method='shares' "
        "standard_error_ is the noise in the share of each answer"
    )
    measures: ClassVar[str] = (
        f"share of wrong labels by a vote of users who all answered and are right {TYPICAL_ABILITY:.0%} of the time"
    )

    def decide(self, public: Public, statement: Crowd) -> Self:
        return self._with(public, statement)

    @property
    def theory(self) -> str:
        """What is proved of the method for users of typical ability, after a semicolon; empty where nothing is."""
        return ""

    @property
    def law(self) -> BitResponses | SymbolResponses:
        """Of the reports about every answer."""
        return law_of(self.statement.answers, float(self.public.budget.epsilon))

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        answers = self.statement.answers
        if self.statement.unit == "answer":
            return [AnswerProtocol(answers, self.law)]
        signs = AnswerSigns(answers.n_tasks, answers.n_classes, answers.packed)
        return [LocalProtocol(signs, SampleCoordinates(signs.size, float(self.public.budget.epsilon), 1, "one-bit"))]

    def expected_error(self, plan: Plan) -> float:
        answers, n = self.statement.answers, self.public.n_rows
        if self.statement.unit == "answer":
            slope = self.law.slope
        else:
            law: Any = self.protocols[0].randomiser
            n, slope = n / law.size, 1 / law.law.noise_std
        wrong = (1 - TYPICAL_ABILITY) / (answers.n_classes - 1)
        against = float(ndtr(-math.sqrt(n) * slope * (TYPICAL_ABILITY - wrong) * math.sqrt(answers.n_classes / 2)))
        return min((answers.n_classes - 1) * against, 1 - 1 / answers.n_classes)


class AnswerShares(CrowdMethod):
    """The share of every answer to every task: what randomised responses tell by themselves, unbiased."""

    tag, name = "AnswerShares", "shares"

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        protocol, n = self.protocols[0], self.public.n_rows
        total, m, n_classes = self.total(oracle), self.statement.answers.n_tasks, self.statement.answers.n_classes
        if isinstance(protocol, AnswerProtocol):
            return {"shares": protocol.estimate(total, n), "standard_error": protocol.standard_errors(total, n)}
        law: Any = protocol.randomiser
        sums, counts = np.split(total, 2)
        means = law.means(sums, counts)
        errors = math.sqrt(law.spread) / np.sqrt(np.maximum(counts, 1)) / 2
        ones = (1 + means) / 2
        if n_classes == 2:
            return {"shares": np.column_stack([1 - ones, ones]), "standard_error": np.column_stack([errors, errors])}
        return {"shares": ones.reshape(m, n_classes), "standard_error": errors.reshape(m, n_classes)}


class MajorityVote(AnswerShares):
    """The answer that most reports support; of two classes with equally many the second (seed 000, eq. 7.18)."""

    tag, name = "MajorityVote", "majority"

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        found = super().solve(oracle)
        certain = by_shares(found["shares"], found["standard_error"])
        return {**found, "labels": labels_of(certain), "label_probabilities": certain}


@dataclass(frozen=True)
class DawidSkene(CrowdMethod):
    """Labels and abilities in turns: users who agree with the labels so far count for more in the next ones.

    Private Dawid and Skene (seed 000, Algorithm 7.1.54), from all reports, which are drawn once and read in every pass.
    Where the signal is weak, rounds fit noise and lose to the vote; one of them is safe.

    Parameters
    ----------
    init : {"votes", "spectral"}
        First labels: by vote, or along the direction in which reports vary most together (more passes; for crowds whose
        mean ability is hardly better than chance).
    n_rounds : int or "auto"
        "auto" makes 1 where the strength of the signal, as estimated from reports, is below 3, else up to 30, until no
        label moves. Of two classes, users then count alike as far as their reports show no difference, and where they
        seem to err together, the labels are those of the vote.
    """

    tag, name = "DawidSkene", "dawid-skene"

    init: str = "votes"
    n_rounds: int | str = "auto"

    def __post_init__(self) -> None:
        choice("init", self.init, ("votes", "spectral"))
        if self.n_rounds != "auto":
            check_count("n_rounds", self.n_rounds)

    def decide(self, public: Public, statement: Crowd) -> Self:
        if statement.unit == "record":
            raise BudgetError(
                "method='dawid-skene' learns from many answers of a user how able they are, and with unit='record' a "
                "user sends one: use method='majority', or unit='answer'"
            )
        if self.init == "spectral" and statement.answers.n_classes > 2:
            raise BudgetError("init='spectral' is for two classes: use init='votes'")
        return super().decide(public, statement)

    @property
    def theory(self) -> str:
        answers, public = self.statement.answers, self.public
        if answers.n_classes > 2:
            return ""
        able = np.array([TYPICAL_ABILITY])
        found = theory_report(public.n_rows, answers.n_tasks, float(public.budget.epsilon), able)
        met = "these are met" if found["applies"] else "these are not met, and no fit depends on them"
        return (
            f"; of rounds for such users theorems 7.1.2 and 7.1.3 of seed 000 say, at a collective private wisdom of "
            f"{found['wisdom']:.3g}: labels wrong at most {found['label_error']:.3g}, abilities within "
            f"{found['ability_error']:.3g}, if lambda lies between {found['lambda_low']:.3g} and "
            f"{found['lambda_high']:.3g}, there are no more users than tasks and the wisdom suffices; {met}"
        )

    def queries(self) -> Sequence[Reports]:
        rounds = None if self.n_rounds == "auto" else int(self.n_rounds)
        return [AnswerPasses(self.protocols[0], self.fidelity, Rule(self.init, rounds), self.public.n_rows)]

    def lines(self) -> list[Line]:
        return [replace(line, passes=query.passes) for line, query in zip(super().lines(), self.queries(), strict=True)]

    def solve(self, oracle: Oracle) -> Mapping[str, Any]:
        query = self.queries()[0]
        assert isinstance(query, AnswerPasses)
        found = query.found(self.total(oracle))
        users = "abilities" if self.statement.answers.n_classes == 2 else "confusion"
        why = "as many as were asked for, or until no label moved"
        if found.strength is not None:
            weak = found.strength < STRONG
            why = f"the strength of the signal is {found.strength:.2g}, {'below' if weak else 'at least'} {STRONG:g}: "
            why += "more rounds would fit noise" if weak else f"until no label moved, at most {MOST_ROUNDS}"
        if found.together:
            why += "; the vote varies more beside these labels than if users erred by themselves, so it decides"
        return {
            "labels": labels_of(found.probabilities),
            "label_probabilities": found.probabilities,
            "shares": found.shares,
            users: found.users,
            "n_rounds": found.n_rounds,
            "rounds_reason": why,
            "signal_strength": found.strength,
        }


METHODS = by_name(DawidSkene, MajorityVote, AnswerShares)
"""How labels are found, by name."""


def labels_of(probabilities: Floats) -> NDArray[np.int64]:
    """The likeliest class of every task; of two that are equally likely the second."""
    if probabilities.shape[1] == 2:
        return (probabilities[:, 1] >= probabilities[:, 0]).astype(np.int64)
    return np.asarray(probabilities.argmax(axis=1))

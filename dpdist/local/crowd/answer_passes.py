"""Passes over the reports of a crowd: every response is drawn once, under one key, and read in all of them.

A response is a function of the run's key. It is drawn again in each pass and is the same one, because another one would
be a second report of the same answer: T passes would cost T epsilon. All that the passes do is post-processing of these
reports, so rounds may end when they have converged, and what is done next may depend on what was found; nothing sees an
answer itself, neither the first labels nor the number of rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.query import Ask, Block
from dpdist.errors import BudgetError
from dpdist.local.crowd.answer_protocol import AnswerProtocol, Request, SomeReports, Votes, Weighted, size_of
from dpdist.local.crowd.label_inference import Rule, Truth, infer
from dpdist.local.survey.reports import Reports
from dpdist.privacy.mechanisms.mechanism import Mechanism
from dpdist.privacy.randomness.bits import Bits
from dpdist.solvers.loops import drive

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AnswerPasses(Reports):
    """All passes over the same reports: the rows are asked as often as `infer` has questions, under one key.

    What is released are the answers to all questions, one behind another, from which anybody can follow the passes.

    Parameters
    ----------
    rule : Rule
    n_rows : int
    """

    tag: ClassVar[str] = "AnswerPasses"

    rule: Rule = Rule()  # noqa: RUF009 - it is frozen
    n_rows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fidelity != "report":
            raise BudgetError(
                "passes read the report of every user again, and fidelity='sum' draws none: use fidelity='report', or "
                "method='majority', which needs sums only"
            )

    @property
    def passes(self) -> int:
        return self.rule.most_passes

    def explore(self, ask: Ask, state: Any, mechanism: Mechanism, bits: Bits) -> NDArray[Any]:
        """All passes, under one fresh key."""
        key = bits.words(4).tobytes()

        def asked(request: Request) -> NDArray[Any]:
            found: Any = ask((key, request))
            if isinstance(found, list):
                found = np.concatenate([rows for _, rows in sorted(found, key=lambda part: part[0])])
            return np.asarray(found)

        return self._answers(asked)

    def of_collected(self, reports: Any) -> Floats:
        """All passes, over reports that are in memory: as many bytes as were sent."""
        sent, protocol = reports.one_by_one(), self.protocol
        assert isinstance(protocol, AnswerProtocol)
        return self._answers(lambda request: protocol.arrived(sent, request)).astype(np.float64)

    def _answers(self, ask: Callable[[Request], NDArray[Any]]) -> NDArray[Any]:
        """What all requests are answered, one behind another."""
        answers: list[NDArray[Any]] = []

        def asked(request: Request) -> Floats:
            answers.append(ask(request).ravel())
            return answers[-1].astype(np.float64)

        drive(self.infer(), asked)
        return np.concatenate(answers)

    def infer(self) -> Generator[Request, Floats, Truth]:
        """What the passes ask, and what they find."""
        assert isinstance(self.protocol, AnswerProtocol)
        return infer(self.protocol, self.n_rows, self.rule)

    def found(self, released: Floats) -> Truth:
        """What the passes found, from what was released."""
        at = 0

        def again(request: Request) -> Floats:
            nonlocal at
            start, at = at, at + size_of(request, self.protocol, self.n_rows)
            return released[start:at]

        return drive(self.infer(), again)

    def summarise_at(self, first: int, block: Block, state: Any, rows: NDArray[np.int64] | None) -> Any:
        key, request = state
        if isinstance(request, Votes | Weighted):
            return super().summarise_at(first, block, state, rows)
        assert isinstance(self.protocol, AnswerProtocol)
        parts = []
        for at, users, draws in self.parts(first, block, key):
            found = self.protocol.of_users(users, draws, request)
            if isinstance(request, SomeReports):
                asked = [user - at for user in request.users if at <= user < at + len(found)]
                found = found[asked]
            parts.append((at, found))
        return parts

    def combine(self, total: Any, summary: Any, wide: bool) -> Any:
        if isinstance(summary, list):  # rows of users, which are put in order in the end
            return summary if total is None else total + summary
        return super().combine(total, summary, wide)

"""Methods in the local model: one question for each group of users, who answer once.

The groups are disjoint and asked one after another, so that a question may depend on earlier groups' answers, and the
whole costs each user a single report.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpdist.engine.query import Query
from dpdist.errors import BudgetError
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Fidelity, Reports
from dpdist.method import DECIDED, Line, Method, Oracle, Vector
from dpdist.privacy.budget import Budget
from dpdist.privacy.mechanisms.reported import Reported
from dpdist.privacy.protected_units import Protected


@dataclass(frozen=True)
class LocalMethod(Method):
    """A method whose users randomise their own rows.

    Attributes
    ----------
    fidelity : {"report", "sum"}
        As in `dpdist.local.survey.simulation.simulate`.
    """

    parameter = "method"

    fidelity: Fidelity = field(default="report", kw_only=True, repr=False, metadata=DECIDED)

    @property
    @abstractmethod
    def protocols(self) -> Sequence[LocalProtocol]:
        """The question to each group of users."""

    def queries(self) -> Sequence[Reports]:
        """What is asked of each group: one report of every user, or several passes over the same reports."""
        return [Reports(protocol, self.fidelity) for protocol in self.protocols]

    def lines(self) -> list[Line]:
        queries, n = self.queries(), len(self.protocols)
        return [
            Line(line_of(t), Reported(query.reported), query, fold=None if n == 1 else (f"slots-{n}", t))
            for t, query in enumerate(queries)
        ]

    @property
    def budget(self) -> Budget:
        """What the dearest report costs."""
        randomisers = [protocol.randomiser for protocol in self.protocols]
        if not randomisers:
            raise BudgetError("there is no question to ask")
        return Budget(max(r.epsilon for r in randomisers), max(r.delta for r in randomisers))

    @property
    def protects(self) -> Protected:
        return self.protocols[0].protects

    @property
    def align(self) -> int:
        return max(query.block_rows for query in self.queries())

    def estimate(self, oracle: Oracle, group: int = 0, state: Any = None) -> Vector:
        """What the reports of a group give."""
        return self.protocols[group].estimate(self.total(oracle, group, state), oracle.size(line_of(group)))

    def total(self, oracle: Oracle, group: int = 0, state: Any = None) -> Vector:
        """The sum of the reports of a group; an array of parameters is kept in the history of the fit."""
        if isinstance(state, np.ndarray):
            oracle.visit(state)
        return oracle.ask(line_of(group), state)


class Answered(Oracle):
    """Answers with the sum of reports that came from real users, to the one question of a method."""

    def __init__(self, total: Vector, n_users: int) -> None:
        self.history: list[Vector] = []
        self._total = total
        self._n_users = n_users

    def ask(self, name: str, state: Any = None, query: Query | None = None) -> Vector:
        return self._total

    def size(self, name: str) -> int:
        return self._n_users


def line_of(group: int) -> str:
    """The name of the line that asks a group."""
    return f"reports of group {group + 1}"

"""What every estimator in the local model shares: users who report once, in groups that are asked one after another.

A subclass decides its protocols from public numbers, one per group, before anybody is asked; it may then put public
values into a question that earlier groups' answers gave (sequential interaction). Since the groups are disjoint and
every user answers once, the whole costs each user a single report.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import ROWS, Dataset, Units
from dpdist.data.folds import split_slots
from dpdist.engine.checks import check_one_report
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError
from dpdist.fitting.door import Door
from dpdist.fitting.estimator import PrivateEstimator
from dpdist.local.protocol import LocalProtocol
from dpdist.local.reports import Fidelity, Reports
from dpdist.privacy.budget import Budget
from dpdist.privacy.calibration import calibrate
from dpdist.privacy.plan import Item, Plan
from dpdist.privacy.reported import Reported


class Questions:
    """The questions of one run: each goes to its own group of users, once."""

    def __init__(self, door: Door, queries: Sequence[Reports], sizes: Sequence[int]) -> None:
        self._door = door
        self._queries = queries
        self.sizes = sizes
        """Number of users in every group (public)."""

    def ask(self, group: int = 0, state: Any = None) -> NDArray[np.float64]:
        """The estimate that the group's reports give.

        Parameters
        ----------
        group : int
        state : object
            Public values that the question depends on; an array of parameters is kept in the history of the fit.
        """
        protocol = self._queries[group].protocol
        return protocol.estimate(self.total(group, state), self.sizes[group])

    def total(self, group: int = 0, state: Any = None) -> NDArray[np.float64]:
        """The sum of the group's reports."""
        if isinstance(state, np.ndarray):
            self._door.history.append(state)
        return self._door.release(_name(group), self._queries[group], state)


class LocalEstimator(PrivateEstimator):
    """An estimator whose users randomise their own rows.

    Subclasses have the parameters ``epsilon``, ``delta``, ``fidelity``, ``ledger``, ``cluster``, ``run_id``,
    ``random_state`` and ``verbose``.

    Parameters
    ----------
    epsilon : float
        What the report of a user may tell, whoever sees it; every user sends one.
    delta : float, optional
        For methods with Gaussian reports only; the others have a pure guarantee and ignore it.
    fidelity : {"report", "sum"}
        As in `dpdist.local.simulation.simulate`.
    """

    fidelity: Fidelity

    @abstractmethod
    def _protocols(self, n_rows: int, n_features: int) -> Sequence[LocalProtocol]:
        """The question to each group of users: everything decided from public numbers."""

    def protocol(self, n_rows: int, n_features: int, group: int = 0) -> LocalProtocol:
        """What a user of a group is asked, for devices (`LocalProtocol.randomise`) and `dpdist.local.simulate`."""
        self._check_parameters()
        return self._protocols(n_rows, n_features)[group]

    def plan(self, n_rows: int, n_features: int, units: Units = ROWS) -> Plan:
        """What a fit would ask, at which cost: from public numbers, without any data."""
        self._check_units(units)
        self._check_parameters()
        protocols = self._protocols(n_rows, n_features)
        return calibrate(_items(protocols), _budget(protocols), protects=protocols[0].protects)

    def _check_units(self, units: Units) -> None:
        check_one_report(units)

    @contextmanager
    def _questions(
        self,
        dataset: Dataset,
        arrays: Mapping[str, Prepare],
        protocols: Sequence[LocalProtocol],
        computation: str = "",
        queries: Sequence[Reports] | None = None,
    ) -> Iterator[Questions]:
        """The questions to the users of ``dataset``, while the run lasts; sets what `PrivateEstimator._run` sets.

        ``queries``, where the same reports are read in several passes, default to a `Reports` for each protocol.
        """
        queries = queries or [Reports(protocol, self.fidelity) for protocol in protocols]
        align = max(query.block_rows for query in queries)
        sizes = [fold.n_rows for fold in split_slots(dataset.n_rows, len(protocols))]
        budget, protects = _budget(protocols), protocols[0].protects
        with self._run(dataset, arrays, _items(protocols), computation, align, budget, protects) as door:
            yield Questions(door, queries, sizes)
        self.fidelity_ = self.fidelity


def _name(group: int) -> str:
    return f"reports of group {group + 1}"


def _items(protocols: Sequence[LocalProtocol]) -> list[Item]:
    n = len(protocols)
    return [
        Item(_name(t), Reported(protocol.cost), fold=None if n == 1 else (f"slots-{n}", t))
        for t, protocol in enumerate(protocols)
    ]


def _budget(protocols: Sequence[LocalProtocol]) -> Budget:
    """What the dearest report costs; the groups are disjoint."""
    if not protocols:
        raise BudgetError("there is no question to ask")
    randomisers = [protocol.randomiser for protocol in protocols]
    return Budget(max(r.epsilon for r in randomisers), max(r.delta for r in randomisers))

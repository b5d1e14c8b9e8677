"""A population that answers one question: what a collection of reports would give, before anybody is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import DataError
from dpdist.identity import text
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Fidelity, Reports
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Budget
from dpdist.privacy.guarantee import Guarantee
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.reported import Reported


@dataclass(frozen=True, eq=False)
class Collected:
    """The sum of the reports of many users, and what it says.

    Attributes
    ----------
    protocol : LocalProtocol
    total : ndarray
        The sum of the reports, in the units of the protocol's decoder; private, as every report is.
    n_users : int
    guarantee : Guarantee
    fidelity : {"report", "sum"} or None
        How it was simulated; None for real reports.
    """

    protocol: LocalProtocol
    total: NDArray[np.float64]
    n_users: int
    guarantee: Guarantee
    fidelity: Fidelity | None

    def one_by_one(self) -> NDArray[Any]:
        """The reports themselves, one row for each user, where they were kept."""
        raise DataError(
            "only the sum of these reports was kept, and the method goes through all of them again and again: fit it "
            "to what `dpdist.local.aggregate` makes of the store that they are in"
        )

    @property
    def estimate(self) -> NDArray[np.float64]:
        """The decoded mean of the statistic (or frequency of the categories); unbiased."""
        return self.protocol.estimate(self.total, self.n_users)

    @property
    def standard_error(self) -> float:
        """Of a coordinate of the decoded mean, at the worst values that users can have; a public number.

        In the units of the statistic's bounded values.
        """
        return float(self.protocol.noise_std / np.sqrt(self.n_users))


def simulate(
    protocol: LocalProtocol,
    population: Dataset | Mapping[str, Any],
    *,
    state: Any = None,
    fidelity: Fidelity = "report",
    ledger: Ledger | None = None,
    cluster: Any = None,
    run_id: str | None = None,
    random_state: int | None = None,
) -> Collected:
    """Let every row of a population answer as a user would: randomised row by row, inside the map stage.

    Parameters
    ----------
    protocol : LocalProtocol
    population : Dataset or mapping of str to array
        One row per user; NumPy or Dask arrays, or a stored dataset that is streamed.
    state : object
        Public values that the statistic needs.
    fidelity : {"report", "sum"}
        "report": every user's report is drawn. "sum": the sum of the reports of a block of users is drawn from its
        exact law, where there is one; much faster, and the same distribution.
    ledger, cluster, run_id, random_state
        As in `dpdist.engine.coordinator.Coordinator`. The users of a stored dataset are charged for their report.

    Returns
    -------
    Collected

    Examples
    --------
    >>> from dpdist.local.statistics.bounded_values import Box
    >>> from dpdist.local.randomisers.scalars import OneBit
    >>> ages = np.random.default_rng(0).uniform(20, 60, size=(50_000, 1))
    >>> protocol = LocalProtocol(Box(1, low=0.0, high=100.0), OneBit(1, epsilon=1.0))
    >>> found = simulate(protocol, {"X": ages}, random_state=0)
    >>> bool(abs(found.estimate - 40) < 3)
    True
    """
    dataset = population if isinstance(population, Dataset) else Dataset.from_arrays(**population)
    missing = [name for name in protocol.arrays if name not in dataset.arrays]
    if missing:
        raise DataError(
            f"{protocol.name} asks for {missing[0]!r}, and the population has {sorted(dataset.arrays)}; name its "
            "arrays with dataset.select(X=..., y=...)"
        )
    query = Reports(protocol, fidelity)
    item = Item("reports", Reported(protocol.cost))
    with Coordinator(
        dataset,
        Budget(protocol.randomiser.epsilon, protocol.randomiser.delta),
        arrays=dict.fromkeys(protocol.arrays, np.asarray),
        ledger=ledger,
        cluster=cluster,
        run_id=run_id,
        random_state=random_state,
        align=query.block_rows,
        computation=text(state),
        protects=protocol.protects,
    ) as coordinator:
        plan = coordinator.plan([item])
        total = coordinator.release(query, plan["reports"], state)
        return Collected(protocol, total, dataset.n_rows, coordinator.guarantee, fidelity)

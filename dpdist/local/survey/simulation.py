"""A population that answers one question: what a collection of reports would give, before anybody is asked."""

from __future__ import annotations

import numbers
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpdist.data import Dataset
from dpdist.engine.coordinator import Coordinator
from dpdist.errors import BudgetError, DataError
from dpdist.identity import text
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.reports import Fidelity, Reports
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.budget import Budget
from dpdist.privacy.guarantee import Guarantee
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.mechanisms.reported import Reported
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed


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

    Examples
    --------
    >>> from dpdist.local import Mean, simulate
    >>> protocol = Mean(low=0.0, high=1.0, epsilon=1.0).protocol(50_000, 1)
    >>> found = simulate(protocol, {"X": np.full((50_000, 1), 0.3)}, random_state=0)
    >>> found.n_users, found.estimate.round(2), round(found.standard_error, 2)
    (50000, array([0.31]), 0.01)
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
    population: Dataset | Mapping[str, Any] | None = None,
    *,
    counts: ArrayLike | None = None,
    n_users: int | None = None,
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
    counts : array of whole numbers, optional
        A population that is given by a histogram: how many users have each record of ``population``, a mapping of
        different records; without one, each category of a question about ``0, ..., k - 1``. The sum of all reports is
        drawn from its exact law, at a cost that does not depend on the number of users, where it has one: unary
        encodings, randomised response, Hadamard, one-bit, piecewise, hybrid and Gaussian reports. There is none for
        local hashing and subset selection (the supports of one report depend on each other) and for clamped Laplace
        reports.
    n_users : int, optional
        What the counts have to add up to.
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

    Eight billion users, from a histogram of their ages:

    >>> people = np.full(100, 80_000_000)
    >>> found = simulate(protocol, {"X": np.arange(100.0)[:, None]}, counts=people, random_state=0)
    >>> found.n_users, bool(abs(found.estimate - 49.5) < .02)
    (8000000000, True)
    """
    if not isinstance(protocol, LocalProtocol):
        raise DataError(
            f"a simulation asks by a LocalProtocol, such as Histogram(...).protocol(n_users, 1), got {protocol!r:.60}; "
            "of a file that dpdist question wrote it is Survey.read(path).protocol"
        )
    if not isinstance(population, Dataset | Mapping | None):
        raise DataError(
            f"a population is a mapping such as {{'X': array}}, or a dataset, such as Dataset.open('rows.zarr'); got "
            f"{type(population).__name__}"
        )
    if counts is not None:
        if (ledger, cluster, run_id) != (None, None, None) or isinstance(population, Dataset) or fidelity != "report":
            raise DataError(
                "counts= makes up a population: expected a mapping of different records to arrays, and no fidelity=, "
                "ledger=, cluster= or run_id=, because nobody's data is read and no report is drawn"
            )
        return _from_counts(protocol, population, counts, n_users, state, random_state)
    if population is None or n_users is not None:
        raise DataError("expected a population, or counts= (with n_users= as a check) of one that is made up")
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


def _from_counts(
    protocol: LocalProtocol,
    population: Mapping[str, Any] | None,
    counts: ArrayLike,
    n_users: int | None,
    state: Any,
    random_state: int | None,
) -> Collected:
    if not protocol.randomiser.has_counts:
        raise BudgetError(
            f"{protocol.name} has no exact law of the sum of reports that could be drawn from counts: give the users "
            "one by one, or take a randomiser that has one (unary encodings, krr, hadamard-response, one-bit, "
            "piecewise, hybrid, gaussian)"
        )
    if population is None:
        if protocol.statistic.domain != "category":
            raise DataError(f"counts= for {protocol.name} needs the records that are counted: {{'X': ...}}")
        population = {"X": np.arange(protocol.statistic.size)}
    block = {name: np.asarray(rows) for name, rows in population.items()}
    missing = [name for name in protocol.arrays if name not in block]
    if missing:
        raise DataError(f"{protocol.name} asks for {missing[0]!r}, and the population has {sorted(block)}")
    users = _checked(counts, len(block[protocol.arrays[0]]), n_users)
    total_users = int(users.sum())
    if total_users * protocol.units >= 2**62:
        raise DataError(f"the sum of the reports of {total_users} users may not fit in 64 bits; split them")
    key = secrets.token_bytes(32) if random_state is None else run_key_from_seed(random_state)
    stream = Stream(key, protocol.name, parameters=text(protocol), state=text(state), fidelity="counts")
    drawn = protocol.draw_counted(block, users, stream.generator(0), state)
    budget = Budget(protocol.randomiser.epsilon, protocol.randomiser.delta)
    plan = calibrate([Item("reports", Reported(protocol.cost))], budget, protects=protocol.protects)
    guarantee = plan.guarantee(simulation=True, unit="user")
    return Collected(protocol, drawn.astype(np.float64) * protocol.grid, total_users, guarantee, "sum")


def _checked(counts: ArrayLike, n_records: int, n_users: int | None) -> NDArray[np.int64]:
    """Whole numbers of users, one for each record; one error for all that can be wrong with them."""
    try:
        given = np.asarray(counts)
        with np.errstate(invalid="ignore"):
            whole = given.astype(np.int64)
        fits = given.shape == (n_records,) and given.dtype.kind in "iuf" and bool((given == whole).all())
    except (TypeError, ValueError, OverflowError):
        fits = False
    known = n_users is None or (isinstance(n_users, numbers.Integral) and not isinstance(n_users, bool))
    total = sum(whole.tolist()) if fits else 0
    if not fits or not known or whole.min(initial=0) < 0 or not 0 < total < 2**62 or total != (n_users or total):
        asked = "" if n_users is None else f", that add up to n_users={n_users!r}"
        raise DataError(
            f"counts must be {n_records} whole numbers of users, one for each record, none of them negative and "
            f"not all 0{asked}"
        )
    return whole

"""What a run tells whoever watches it: public numbers and released names, nothing else.

A watcher is any function of one event. `watching` registers it for the runs that are made inside a ``with`` block (of
this thread, as with Dask's progress bars), so that nothing needs a parameter for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dpdist.privacy.accounting.plan import Plan


@dataclass(frozen=True)
class Planned:
    """The plan is made, and the ledger could pay for it; nothing is read yet.

    Attributes
    ----------
    run_id, dataset_id : str
    plan : Plan
    n_rows : int or None
        None where the number of rows is private.
    goes_on : bool
        Whether the run was charged before and goes on; else nothing is charged yet.
    """

    run_id: str
    dataset_id: str
    plan: Plan
    n_rows: int | None
    goes_on: bool = False


@dataclass(frozen=True)
class Loading:
    """The workers begin to read their shards (how many may tell how many rows there are)."""


@dataclass(frozen=True)
class Charged:
    """The ledger has the charge of the whole plan; noise may be drawn."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Asked:
    """A part of a long round of reports is done.

    Attributes
    ----------
    done_rows, n_rows : int
        Of the rows that this round asks; their number is public where rows are reports.
    """

    done_rows: int
    n_rows: int


@dataclass(frozen=True)
class Released:
    """A private value exists.

    Attributes
    ----------
    done, planned : int
        Releases so far, and in all.
    name : str
        The line of the plan.
    rate : float
        Share of the rows that was asked: 1, or the rate of a sample.
    replayed : bool
        Whether the value came from the journal of an earlier life of the run.
    """

    done: int
    planned: int
    name: str
    rate: float
    replayed: bool


Event = Planned | Loading | Charged | Asked | Released
Watcher = Callable[[Event], None]

_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("dpdist_watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell ``watcher`` what the runs inside the block do.

    Examples
    --------
    >>> import numpy as np
    >>> from dpdist import Budget, Dataset
    >>> from dpdist.engine.coordinator import Coordinator
    >>> from dpdist.privacy.accounting.plan import Item
    >>> from dpdist.privacy.mechanisms.additive import Laplace
    >>> from dpdist.queries.minimizers import RowCount
    >>> rows = {"dataset": Dataset.from_arrays(X=np.zeros((500, 3))), "arrays": {"X": np.asarray}}
    >>> with watching(lambda event: print(type(event).__name__)), Coordinator(budget=Budget(1.0), **rows) as run:
    ...     count = run.plan([Item("rows", Laplace(), count=2)])["rows"]
    ...     for _ in range(2):
    ...         _ = run.release(RowCount(), count)
    Planned
    Loading
    Charged
    Released
    Released
    """
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def tell(event: Event) -> None:
    """Pass an event to all watchers."""
    for watcher in _watchers.get():
        watcher(event)

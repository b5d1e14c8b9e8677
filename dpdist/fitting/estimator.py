"""What every estimator shares: one run from the opened ledger to the stored guarantee.

`PrivateEstimator` knows the parameters that all of them have (budget, relation, ledger, cluster ...) and keeps
scikit-learn's conventions for them. A subclass says what is asked of the rows and what becomes of the answers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from sklearn.base import clone

from dpdist.data import ROWS, Dataset, Units
from dpdist.engine.coordinator import Coordinator
from dpdist.engine.progress import Asked, Event, Released, watching
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError, MissingBound
from dpdist.fitting.door import Door
from dpdist.fitting.parameters import check_count
from dpdist.fitting.representation import ReadableFit
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.ledger import Ledger
from dpdist.privacy.plan import Item
from dpdist.privacy.units import ALL_DATA, Protected


class PrivateEstimator(ReadableFit):
    """An estimator that owns the run of a `Coordinator`.

    Subclasses have these parameters, with the meaning that they have in `dpdist.central.minimizer.Minimizer`; one
    without ``n_public`` or ``neighbours`` works under replace-one only.

    Parameters
    ----------
    epsilon, delta : float
        The budget of this fit.
    neighbours : {"replace-one", "add-or-remove-one"}
        Between which datasets the guarantee holds.
    n_public : int, optional
        Declared number of rows to divide by; required where the true one is private.
    ledger : Ledger or path, optional
        Where the budget is charged.
    cluster : str, Client or cluster, optional
        Where the rows are read.
    run_id : str, optional
        Name of this fit, to be able to resume it after a crash.
    random_state : int, optional
        Simulation only: noise from a seed, no guarantee.
    verbose : int, default 0
        1 prints a line per release to standard error.
    """

    epsilon: float
    delta: float | None
    neighbours: str = Neighbours.REPLACE_ONE.value
    n_public: int | None = None
    ledger: Any
    cluster: Any
    run_id: str | None
    random_state: int | None
    verbose: int

    @property
    def _budget(self) -> Budget:
        return Budget(self.epsilon, self.delta or 0.0)

    @contextmanager
    def _run(
        self,
        dataset: Dataset,
        arrays: Mapping[str, Prepare],
        items: Sequence[Item],
        computation: str,
        align: int = 1,
        budget: Budget | None = None,
        protects: Protected = ALL_DATA,
    ) -> Iterator[Door]:
        """The door to the rows of ``dataset``, while the plan of ``items`` is being carried out.

        Sets ``plan_``, ``guarantee_``, ``releases_`` and ``history_``. Call `Budget.warn_if_delta_is_large` before, in
        ``fit`` itself, so that the warning names the caller's line.

        Parameters
        ----------
        dataset : Dataset
        arrays : mapping of str to callable
            What is read, with the public row-wise map of each array.
        items : sequence of Item
        computation : str
            Whatever the states depend on besides the releases; a ``run_id`` stands for one such description.
        align : int, default 1
            Rows that have to be read together.
        budget : Budget, optional
            Default: that of the parameters.
        protects : Protected, optional
            What of a row the items are about.
        """
        with ExitStack() as opened:
            if self.verbose:
                opened.enter_context(watching(_print_release))
            ledger = self.ledger
            if isinstance(ledger, str | os.PathLike):
                ledger = opened.enter_context(closing(Ledger(ledger)))
            coordinator = opened.enter_context(
                Coordinator(
                    dataset,
                    budget or self._budget,
                    arrays=arrays,
                    neighbours=Neighbours(self.neighbours),
                    ledger=ledger,
                    cluster=self.cluster,
                    run_id=self.run_id,
                    random_state=self.random_state,
                    align=align,
                    computation=computation,
                    protects=protects,
                )
            )
            self.plan_ = coordinator.plan(items)
            door = Door(coordinator, self.plan_)
            yield door
            self.guarantee_ = coordinator.guarantee
            self.releases_ = coordinator.releases
            self.history_ = door.history

    def _check_units(self, units: Units) -> None:
        """Refuse a dataset by whose rows it has, before anything is said about how many there are."""

    def _divisor(self, n_rows: int, units: Units = ROWS) -> int:
        """The public number that sums over the rows are divided by."""
        if self.n_public is not None:
            return self.n_public
        if not units.counted:
            raise MissingBound(
                f"how many rows there are is private where one {units.name} may own 0 to {units.max_rows} of them: "
                "declare n_public, about how many there are and known without counting, to divide by. Or write the "
                f"dataset anew with dpdist ingest --unit, which gives each {units.name} {units.max_rows} rows"
            )
        if Neighbours(self.neighbours) is Neighbours.ADD_OR_REMOVE_ONE:
            raise MissingBound(
                "neighbours='add-or-remove-one' keeps the number of rows private: declare n_public, the number to "
                "divide by (an order of magnitude is enough)"
            )
        return n_rows

    def _check_parameters(self) -> None:
        """Refuse wrong parameters before any data is read; subclasses add theirs."""
        if self.neighbours not in {relation.value for relation in Neighbours} | set(Neighbours):
            raise BudgetError(
                f"neighbours={self.neighbours!r} is not known; choose 'replace-one' or 'add-or-remove-one'"
            )
        if self.ledger == ":memory:":
            raise BudgetError(
                "ledger=':memory:' would forget what was spent (a ledger in memory is not kept when a model is "
                "pickled): pass a Ledger object or the path of a file"
            )
        if self.n_public is not None:
            check_count("n_public", self.n_public)
        if self.random_state is not None:
            check_count("random_state", self.random_state, low=0)

    def __sklearn_clone__(self) -> PrivateEstimator:
        # the clones of a grid search charge one ledger and use one cluster: both are places, not values
        shared = {name: getattr(self, name) for name in ("ledger", "cluster")}
        others = {name: clone(v, safe=False) for name, v in self.get_params(deep=False).items() if name not in shared}
        return type(self)(**others, **shared)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(self.ledger, Ledger):
            state["ledger"] = self.ledger.path if self.ledger.pays_for_unnamed is None else self.ledger
        if not isinstance(self.cluster, str):
            state["cluster"] = None
        return state


def _print_release(event: Event) -> None:
    if isinstance(event, Released):
        print(f"dpdist: release {event.done} of {event.planned} ({event.name})", file=sys.stderr, flush=True)
    elif isinstance(event, Asked):
        print(f"dpdist: {event.done_rows:,} of {event.n_rows:,} users", file=sys.stderr, flush=True)

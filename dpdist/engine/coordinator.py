"""The only way to the data in the central model.

A `Coordinator` plans (from public numbers), charges the ledger, asks the shards, adds noise, journals, and hands out
the released value. Nobody else ever sees an un-noised sum, and noise meets data in one place: `Coordinator._draw`.

The order of things, which is what makes a crash harmless:

1. `Coordinator.plan` calibrates the noise and asks the ledger whether it can pay: a run that can't be paid for is
   refused before any row is read;
2. the shards are loaded (an unreadable chunk stops the run here, for free), then the whole plan is charged, durably;
   rows that will not stay in memory are summed for the first question while they are read, so that one pass does both:
   the workers keep these sums until they are asked, after the charge;
3. each release is recorded, summed, and drawn; its value is committed to the journal before anybody gets to see it.

A run that is started again under the same ``run_id`` finds its charge and its released values: it pays nothing for
them and draws no second noise. A release that was charged and never committed is drawn anew under the same charge,
because nobody can have seen the first draw: the journal has one writer, the newest (fencing). What is written where,
and what is refused because something of it was lost: `dpdist.privacy.ledger.paid_run`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import secrets
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.data import Dataset, Fold
from dpdist.engine import progress
from dpdist.engine.checks import check_asked, check_fold, check_plannable
from dpdist.engine.memory import DatasetMemory
from dpdist.engine.pieces import aligned, cut, joined, pieces_of
from dpdist.engine.query import Query
from dpdist.engine.sampling import Batch
from dpdist.engine.shards import Prepare, Round, ShardPlan, kept_row_bytes
from dpdist.engine.workers import Workers, connect
from dpdist.errors import BudgetError, DataError, LedgerError
from dpdist.identity import tag_of, text
from dpdist.privacy.accounting.calibration import calibrate
from dpdist.privacy.accounting.charge import Charge
from dpdist.privacy.accounting.plan import Item, Plan
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.guarantee import Guarantee
from dpdist.privacy.ledger.journal import AnyJournal
from dpdist.privacy.ledger.ledger import Ledger
from dpdist.privacy.ledger.paid_run import PaidRun
from dpdist.privacy.ledger.records import edition_of
from dpdist.privacy.protected_units import ALL_DATA, About, Protected
from dpdist.privacy.randomness.bits import StreamBits, SystemBits
from dpdist.privacy.randomness.streams import Stream, run_key_from_seed
from dpdist.privacy.tracebacks import forgetful

log = logging.getLogger("dpdist")

RESIDENT_SHARE = 0.5
"""Shards stay in memory when the prepared data takes at most this share of the workers' memory."""


def stay(kept_bytes: int, sent_bytes: int, memory: float) -> bool:
    """Whether prepared rows stay in so much memory of the workers.

    ``sent_bytes`` are of rows of this process, which are sent to the workers: where they would grow too large, they are
    prepared again in every round.
    """
    return kept_bytes <= max(sent_bytes, RESIDENT_SHARE * memory)


@dataclass(frozen=True)
class Release:
    """A private value that left the coordinator, with the noise it carries."""

    index: int
    name: str
    release_id: str
    value: NDArray[np.float64]
    noise_std: float
    sensitivity: float


class Coordinator:
    """Plans, charges, releases.

    Parameters
    ----------
    dataset : Dataset
    budget : Budget
        What this run may spend.
    arrays : mapping of str to callable
        The arrays that the queries read, each with the public row-wise map applied to it on reading.
    neighbours : Neighbours
    ledger : Ledger, optional
        Default: the user's ledger file; one in memory for arrays without a ``dataset_id``, whose random id is gone
        with the process.
    journal : Journal, optional
        Default: the ledger's own. Another one has to be kept as long as the ledger is: it says what was seen.
    cluster : str, distributed.Client or cluster object, optional
        See `dpdist.engine.workers.connect`.
    run_id : str, optional
        Name of the run; give the same again to resume it after a crash. Default: random.
    random_state : int, optional
        For simulation and tests: noise and batches come from this seed, and there is no guarantee.
    align : int, default 1
        Rows that have to be read together: every range that a task holds begins at a multiple of it, whatever the
        partitions are.
    computation : str, optional
        Public description of whatever the states depend on besides earlier releases (step size, tolerance ...).
        A ``run_id`` that was used for another computation is refused instead of replayed.
    protects : Protected, optional
        What of a row the queries randomise, where that is less than all of it (`dpdist.privacy.protected_units`).

    Examples
    --------
    >>> from dpdist import Budget, Dataset
    >>> from dpdist.privacy.accounting.plan import Item
    >>> from dpdist.privacy.mechanisms.additive import Gaussian
    >>> from dpdist.queries.class_counts import ClassCounts
    >>> signs = np.random.default_rng(0).choice([-1.0, 1.0], size=10_000, p=[0.3, 0.7])
    >>> dataset, read = Dataset.from_arrays(X=signs[:, None], y=signs), {"X": np.asarray, "y": np.asarray}
    >>> with Coordinator(dataset, Budget(1.0, 1e-6), arrays=read, random_state=0) as coordinator:
    ...     plan = coordinator.plan([Item("counts", Gaussian())])
    ...     counts = coordinator.release(ClassCounts(), plan["counts"])
    >>> counts.round(-2).tolist(), round(coordinator.guarantee.epsilon, 6)
    ([3000.0, 7000.0], 1.0)
    """

    def __init__(
        self,
        dataset: Dataset,
        budget: Budget,
        *,
        arrays: Mapping[str, Prepare],
        neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
        ledger: Ledger | None = None,
        journal: AnyJournal | None = None,
        cluster: Any = None,
        run_id: str | None = None,
        random_state: int | None = None,
        align: int = 1,
        computation: str = "",
        protects: Protected = ALL_DATA,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise DataError(f"dataset takes a Dataset, such as Dataset.open('rows.zarr'), got {dataset!r:.60}")
        if not isinstance(budget, Budget):
            raise BudgetError(f"budget takes a Budget, such as Budget(1.0, 1e-6), got {budget!r}")
        self.dataset = dataset
        self.budget = budget
        self.neighbours = Neighbours(neighbours)
        self.run_id = run_id or secrets.token_hex(16)
        self.simulation = random_state is not None
        self.releases: list[Release] = []
        self._arrays = arrays
        if not isinstance(ledger, Ledger | None):
            raise LedgerError(f"ledger takes a Ledger object, such as Ledger('ledger.sqlite'), got {ledger!r}")
        self._owned = ledger is None
        self._ledger = ledger or Ledger(":memory:" if dataset.anonymous else None)
        account = (self._ledger.pays_for_unnamed if dataset.anonymous else None) or dataset.account
        self._named = not dataset.anonymous or account != dataset.account
        self._memory = DatasetMemory(dataset, account, self._ledger)
        self._paid = PaidRun(
            self._ledger,
            journal or self._ledger.journal,
            dataset.id,
            self.run_id,
            account=account,
            named=self._named,
            witnesses=(*self._ledger.witnesses, self._memory),
        )
        self._cluster = cluster
        self._align = align
        self._computation = computation
        self._protects = protects
        self._run_key = None if random_state is None else run_key_from_seed(random_state)
        self._plan: Plan | None = None
        self._digest = ""
        self._last: tuple[Item, Query, float, str] | None = None
        self._used: Counter[str] = Counter()
        self._workers: Workers | None = None
        self._ranges: Sequence[tuple[int, int]] = ()
        self._charged = False
        self._early: Round | None = None

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of shards, cluster connection and files."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        self._paid.close()
        if self._owned:
            self._ledger.close()

    def plan(self, items: Sequence[Item], queries: Mapping[str, Query] | None = None) -> Plan:
        """Calibrate the noise of ``items`` to the budget, and see that the ledger can pay for it.

        Parameters
        ----------
        items : sequence of Item
        queries : mapping of str to Query, optional
            What will be asked, by the name of its item, where that is known: what `release` would refuse is refused
            now, before anything is charged.

        Raises
        ------
        BudgetExceeded
            When it can't. No row has been read.
        Forgotten
            When ledger, journal, or what remembers them, was lost, exchanged or restored from a copy.
        """
        if self._plan is not None:
            raise BudgetError("this coordinator has a plan already; make a new Coordinator for another run")
        for item in items:
            check_plannable(item, self.dataset.schema.units, self.neighbours)
        plan = calibrate(items, self.budget, self.neighbours, self._protects)
        for name, query in (queries or {}).items():
            self._sensitivity(plan[name], query)
        digest = self._digest_of(plan)
        self._paid.open(digest, self._charge_of(plan), About(self.dataset.schema.unit, plan.protects))
        if not self._named and self._ledger.has_unnamed():
            warnings.warn(
                f"{self._ledger.path} has charges for arrays without a name, and these have none either: each run has "
                "an account of its own, and nothing adds up what is learned about the same people. To add it up, name "
                "their account: Dataset.from_arrays(X=X, y=y, account='survey-2026'); or, where the arrays are not "
                "yours to name, as in a grid search, ledger=Ledger(path, account='survey-2026')",
                UserWarning,
                stacklevel=2,
            )
        self._plan, self._digest = plan, digest
        progress.tell(progress.Planned(self.run_id, self.dataset.id, plan, self.n_rows, self._paid.goes_on))
        return plan

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is public."""
        public = self.neighbours is Neighbours.REPLACE_ONE and self.dataset.schema.units.counted
        return self.dataset.n_rows if public else None

    @property
    def guarantee(self) -> Guarantee:
        """What holds once the plan is carried out, whether or not every release of it was used."""
        units, alone = self.dataset.schema.units, self._memory.is_missing
        return self._planned().guarantee(self.simulation, units.name, units.max_rows, ledger_alone=alone)

    @forgetful
    def release(self, query: Query, item: Item, state: Any = None, rows: Fold | None = None) -> NDArray[np.float64]:
        """Ask every shard, add the planned noise, and return the private value.

        Parameters
        ----------
        query : Query
        item : Item
            The line of the plan that pays: ``plan["gradient"]``. Each can be used ``item.count`` times.
        state : object
            Public values that the query needs (the current parameter).
        rows : Fold, optional
            The fold to ask; must be the one that the plan charged. Default: all rows.
        """
        sensitivity, name = self._known(item, query)
        index = self._take(item, query, rows)
        release_id = self._release_id(index, name, item)
        value = self._paid.value(release_id)
        replayed = value is not None
        if value is None:
            self.dataset.need(*self._asked(query, rows))
            self._begin(self._foreseen(query, item, state, rows))
            self._record(release_id, index, item, sensitivity)
            value = self._paid.commit(release_id, self._draw(query, item, state, rows, sensitivity, index))
        noise_std = item.mechanism.noise_std(sensitivity)
        self.releases.append(Release(index, item.name, release_id, value, noise_std, sensitivity))
        self._report(item, replayed)
        return value

    @forgetful  # once more: Ctrl-C may come while `release` is about to forget
    def _draw(
        self, query: Query, item: Item, state: Any, rows: Fold | None, sensitivity: float, index: int
    ) -> NDArray[np.float64]:
        """Where noise meets data: the one function that sees an un-noised sum."""
        assert self._workers is not None
        workers, batch = self._workers, self._batch(query, item, index)
        early, self._early = self._early, None

        def ask(query: Query, state: Any) -> NDArray[Any]:
            total: NDArray[Any] | None = None
            start, stop = self._asked(query, rows)
            # rounds of reports can be long, and how many rows there are is public: they are asked in pieces
            pieces = [(start, stop)] if query.reported is None else pieces_of(self._ranges, start, stop)
            for first, last in pieces:
                asked = Round(query, state, first, last, self.dataset.n_rows, batch)
                if early is not None and early.query is query and early.state is state:
                    asked = early
                for summary in workers.map(asked):
                    total = query.combine(total, summary, asked.wide)
                if len(pieces) > 1:
                    progress.tell(progress.Asked(last - start, stop - start))
            assert total is not None, "a dataset has at least one row"
            return total

        bits = SystemBits() if self._run_key is None else StreamBits(self._stream("noise", query, item, index))
        links, drawn = query.links(state), list[NDArray[np.float64]]()
        link, point = next(links)
        while True:
            if link is not query and self._sensitivity(item, link) != sensitivity:
                raise BudgetError(f"what {type(query).__name__} draws together has to be equally sensitive")
            statistic, grid = link.statistic(link.explore(functools.partial(ask, link), point, item.mechanism, bits))
            self._paid.check()
            private = item.mechanism.release(statistic, sensitivity / grid, bits)
            drawn.append(np.asarray(private).astype(np.float64) * (grid if item.mechanism.in_units else 1.0))
            if len(drawn) == query.together:
                return np.concatenate(drawn) if query.together > 1 else drawn[0]
            link, point = links.send(drawn[-1])

    def was_released(self, query: Query, item: Item) -> bool:
        """Whether the next release is one of an earlier life of this run: then its rows are not read."""
        _, name = self._known(item, query)
        return self._paid.value(self._release_id(sum(self._used.values()), name, item)) is not None

    def drawn(self, name: str, n: int) -> int:
        """A public number from 0 to ``n - 1``, each as likely, that has nothing to do with the rows.

        It follows from the name of the run (random, unless it was given) and from what was planned, so that a run which
        is taken up again finds it again; in a simulation from the seed.
        """
        plan = self._planned()
        key = self._run_key or hashlib.sha256(repr((self.run_id, self.dataset.id, self._digest)).encode()).digest()
        stream = Stream(key, "drawn", name=name, n=n, plan=plan.digest())
        return int(stream.generator(0).integers(n))

    def _asked(self, query: Query, rows: Fold | None) -> tuple[int, int]:
        return (query.window or (0, self.dataset.n_rows)) if rows is None else (rows.start, rows.stop)

    def _foreseen(self, query: Query, item: Item, state: Any, rows: Fold | None) -> Round | None:
        """What the rows will be asked first, unless it draws anything (that follows the charge) or is not known yet."""
        explores = type(query).explore is not Query.explore
        if explores or query.reported is not None or item.sampling is not None:
            return None
        return Round(query, state, *self._asked(query, rows), self.dataset.n_rows)

    def _begin(self, first: Round | None = None) -> None:
        """Load the shards, then charge the plan; both once, and in this order."""
        if self._charged:
            return
        self._workers, self._early = connect(self._cluster), first
        shards = self._shard_plans(self._workers)
        progress.tell(progress.Loading())
        self._workers.place(shards)
        plan = self._planned()
        label = ", ".join(f"{item.count} x {item.name}" for item in plan.items)
        self._paid.charge(label)
        self._charged = True
        progress.tell(progress.Charged(plan.spent.epsilon, plan.spent.delta))

    def _shard_plans(self, workers: Workers) -> list[tuple[ShardPlan, dict[str, list[Any]]]]:
        """Deal the partitions to one shard per worker thread, in turn, so that a fold reaches all of them."""
        partitions = aligned(self.dataset.partitions, self._align)
        row_bytes = kept_row_bytes(self._arrays, self.dataset.arrays)
        kept = sum(stop - start for start, stop in partitions) * row_bytes
        resident = stay(kept, self.dataset.nbytes if self.dataset.in_memory else 0, workers.memory)
        if all(item.mechanism.reported is not None for item in self._planned().items):
            partitions = cut(partitions, self._align, workers.n_threads)
        elif resident:
            partitions = joined(partitions, row_bytes, workers.n_threads)
        self._ranges = partitions
        n_shards = max(1, min(workers.n_threads, len(partitions)))
        plans = []
        for i in range(n_shards):
            ranges = tuple(partitions[i::n_shards])
            sources = {name: [self.dataset.source(name)] * len(ranges) for name in self._arrays}
            plans.append((ShardPlan(ranges, self._arrays, resident, self._early), sources))
        return plans

    def _sensitivity(self, item: Item, query: Query) -> float:
        """Of the query to one unit; refuses one that the item does not pay for."""
        units = self.dataset.schema.units
        return check_asked(item, query, self.neighbours, units, self._protects, self._align, self.n_rows)

    def _take(self, item: Item, query: Query, rows: Fold | None) -> int:
        plan = self._planned()
        fold = None if rows is None else (rows.split_id, rows.index)
        if plan[item.name] != item or item.fold != fold:
            raise BudgetError(
                f"{item.name!r} for fold {fold} is not what the plan paid for; "
                "release with plan[name] and the fold it names"
            )
        if rows is not None and rows != self.dataset.split(_parts_of(rows), self.neighbours)[rows.index]:
            raise BudgetError(
                f"the fold {fold} of this dataset is not rows {rows.start} to {rows.stop}: take it from "
                "dataset.split(...), whose folds are disjoint, or the budget would not cover what is read"
            )
        if rows is not None:
            check_fold(query, rows)
        if self._used[item.name] >= item.count:
            raise BudgetError(f"the plan allows {item.count} releases of {item.name!r}, and all of them are spent")
        if item.path is not None and query.turn != self._used[item.name]:
            raise BudgetError(
                f"release {self._used[item.name]} of {item.name!r} was asked as number {query.turn}: the releases of a "
                "stream are paid for in their order, each once"
            )
        self._used[item.name] += 1
        return sum(self._used.values()) - 1

    def _record(self, release_id: str, index: int, item: Item, sensitivity: float) -> None:
        cost = item.mechanism.cost
        self._paid.announce(
            release_id,
            index,
            item.name,
            tag_of(item.mechanism),
            item.mechanism.noise_std(sensitivity),
            sensitivity,
            f"{cost.kind} {cost.parameter:.6g}",
        )

    def _known(self, item: Item, query: Query) -> tuple[float, str]:
        """Sensitivity and name of a query, found once where one is asked in many rounds."""
        if self._last is None or self._last[0] is not item or self._last[1] is not query:
            self._last = item, query, self._sensitivity(item, query), text(query)
        return self._last[2:]

    def _release_id(self, index: int, query: str, item: Item) -> str:
        """Names a release by public numbers only; a query with other parameters is another release."""
        what = (self.run_id, self.dataset.id, self._digest, index, item.name, item.fold)
        return hashlib.sha256(f"{text(what)[:-1]}, {query})".encode()).hexdigest()

    def _digest_of(self, plan: Plan) -> str:
        """Names the plan, the computation and the rows: what a resumed run must have in common with its first life."""
        what = (plan.digest(), self.simulation, self._computation)
        return edition_of(hashlib.sha256(repr(what).encode()).hexdigest(), self.dataset.schema.edition)

    def _batch(self, query: Query, item: Item, index: int) -> Batch | None:
        if item.sampling is None:
            return None
        key = os.urandom(16) if self._run_key is None else self._stream("batch", query, item, index).key
        return Batch(key, item.sampling.rate, self.dataset.schema.max_rows_per_unit)

    def _stream(self, purpose: str, query: Query, item: Item, index: int) -> Stream:
        """Simulated randomness: the key holds everything that changes the meaning of the draw."""
        assert self._run_key is not None
        plan = self._planned().digest()
        return Stream(self._run_key, purpose, plan=plan, query=text(query), item=item.name, index=index)

    def _charge_of(self, plan: Plan) -> Charge:
        return Charge(plan.spent.epsilon, plan.spent.delta, self.neighbours, plan.total_mu)

    def _planned(self) -> Plan:
        if self._plan is None:
            raise BudgetError("nothing is planned yet: call plan([...]) before release(...)")
        return self._plan

    def _report(self, item: Item, replayed: bool) -> None:
        done, planned = len(self.releases), self._planned().n_releases
        log.info("release %d of %d: %s", done, planned, item.name)
        progress.tell(progress.Released(done, planned, item.name, item.rate, replayed))


def _parts_of(fold: Fold) -> int:
    """How many folds there are in the split of one."""
    return int(fold.split_id.rpartition("-")[2])

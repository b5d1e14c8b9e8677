"""Where the map stage runs: threads of this process, or the workers of a Dask cluster.

Both offer the same three calls: `place` puts the shards where they will stay, `map` asks all of them the same thing,
`close` lets them go. A round costs one task per worker thread, not one per partition. Task names are explicit and
random: Dask's own names are hashes of the arguments, hence of private data, and show on its dashboard.
"""

from __future__ import annotations

import functools
import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import dask
from dask.system import CPU_COUNT
from distributed import Client, get_client
from distributed.deploy.cluster import Cluster
from distributed.system import MEMORY_LIMIT
from numpy.typing import NDArray

from dpdist.data.sources import DaskSource, NumpySource
from dpdist.engine import waits
from dpdist.engine.connection import Connection, Lost, losses, new_client
from dpdist.engine.shards import Failure, Round, Shard, ShardPlan, load_shard, summarise_shard
from dpdist.engine.versions import difference, versions
from dpdist.engine.watch import Watch
from dpdist.errors import ClusterError, ClusterUnavailable, DataError, DataUnavailable

Sources = Mapping[str, Sequence[Any]]
REPLACEMENTS = 3
SAME_IMAGE = "run client and workers from one image, or install the same versions (dpdist doctor shows all of them)"


class Workers(Protocol):
    """Somewhere to run the map stage."""

    n_threads: int
    memory: float

    def place(self, plans: Sequence[tuple[ShardPlan, Sources]]) -> None:
        """Load the shards, or make sure that they can be streamed; raises DataError if one can't be read."""
        ...

    def map(self, ask: Round) -> list[NDArray[Any]]:
        """The summaries of all shards that have rows in the asked range."""
        ...

    def close(self) -> None:
        """Let go of the shards, and of the connection if this object made it."""
        ...


class LocalThreads:
    """The threads of this process, as many as Dask would use: the embedded default.

    A round has a task for every thread and nothing to schedule: a pool is asked directly. The thread that asks does the
    last task itself instead of waiting, so that rows of one shard wake no other thread.
    """

    def __init__(self) -> None:
        self.n_threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
        self.memory = float(MEMORY_LIMIT)
        self._pool = ThreadPoolExecutor(max(1, self.n_threads - 1), thread_name_prefix="dpdist")
        self._shards: list[Shard | Failure] = []

    def place(self, plans: Sequence[tuple[ShardPlan, Sources]]) -> None:
        self._shards = self._run([functools.partial(load_shard, *plan) for plan in plans])
        _raise_failures(self._shards)

    def map(self, ask: Round) -> list[NDArray[Any]]:
        return _summaries(self._run([functools.partial(summarise_shard, shard, ask) for shard in self._shards]))

    def close(self) -> None:
        self._shards = []
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        *others, own = tasks
        under_way = [self._pool.submit(task) for task in others]
        try:
            last = own()
            return [*(future.result() for future in under_way), last]
        except BaseException:  # Ctrl-C: what has not begun is not begun
            for future in under_way:
                future.cancel()
            raise


class DistributedWorkers:
    """The workers of a Dask cluster. Shards stay in worker memory; a lost one is read again, by whoever is there."""

    def __init__(self, client: Client, owned: bool) -> None:
        self._name = f"dpdist-{secrets.token_hex(8)}"
        self._stage = itertools.count()
        self._plans: Sequence[tuple[ShardPlan, Sources]] = ()
        self._shards: list[Any] = []
        self._pieces: list[Any] = []
        self._versions = versions()
        self._connection = Connection(client, owned)
        self._watch = Watch(self._connection)
        try:
            self._meet()
        except BaseException:
            self.close()
            raise
        there = self._watch.workers.values()
        self.n_threads = sum(worker["nthreads"] for worker in there)
        self.memory = float(sum(worker.get("memory_limit") or MEMORY_LIMIT for worker in there))

    def place(self, plans: Sequence[tuple[ShardPlan, Sources]]) -> None:
        self._plans = plans
        # the loaded shards stay where they are; only whether that worked comes back
        _raise_failures(self._ask("check", "Nothing was charged in this attempt.", _failure_of))

    def map(self, ask: Round) -> list[NDArray[Any]]:
        resume = "What was charged is recorded: run again with the same run_id to resume."
        return _summaries(self._ask("round", resume, summarise_shard, ask))

    def close(self) -> None:
        self._shards, self._pieces, self._plans = [], [], ()
        self._connection.close()

    def _meet(self) -> None:
        """Before anything is charged: whatever the workers would compute has to be what was planned."""
        for address, there in sorted(self._versions_there().items()):
            if isinstance(there, Mapping):
                differs = difference(self._versions, there)
            else:  # it has no dpdist, or one that cannot be asked
                differs = f"no usable dpdist ({type(there).__name__}) instead of {self._versions['dpdist']}"
            if differs:
                raise ClusterError(f"the worker {address} has {differs}: {SAME_IMAGE}. Nothing was charged")

    def _versions_there(self) -> dict[str, Any]:
        """Of the workers that answer, once some do; a cluster that never had any is not waited for long."""
        began, any_seen = time.monotonic(), False
        self._watch.begin("A run that was charged can be resumed with its run_id.")
        while True:
            try:
                answers = self._watch.ask_all(versions, waits.PATIENCE)  # a worker may have to import dpdist first
                if answers:
                    return answers
                any_seen = any_seen or bool(self._watch.silent)
                loss = Lost("no worker of the cluster answers")
            except Lost as lost:
                any_seen, loss = True, lost
            if any_seen:
                self._watch.recover(loss)
            elif time.monotonic() - began > waits.CONNECT:
                raise ClusterUnavailable(
                    f"the scheduler has no workers (waited {waits.CONNECT:g} s); start some with 'dask worker ADDRESS' "
                    "before fitting. A run that was charged can be resumed with its run_id."
                )
            else:
                time.sleep(0.1)

    def _ask(self, stage: str, advice: str, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What a task finds on every shard; what is lost on the way is asked again, of whoever is there.

        A stage is a pure function of rows and state, so asking twice changes nothing.
        """
        self._watch.begin(advice)
        for attempt in itertools.count():
            try:
                if not self._shards:
                    self._send()
                return self._results(stage, task, *arguments)
            except Lost as lost:
                loss = lost
            self._shards, self._pieces = [], []
            if attempt == REPLACEMENTS:
                raise ClusterUnavailable(
                    f"workers were lost in {REPLACEMENTS + 1} attempts at one round (at last: {loss}); look at their "
                    f"logs (memory limit?). {advice}"
                )
            self._watch.recover(loss)
        raise AssertionError("unreachable")

    def _results(self, stage: str, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        number = next(self._stage)
        futures = [
            self._submit(f"{stage}-{number}-{i}", task, shard, *arguments) for i, shard in enumerate(self._shards)
        ]
        found: list[Any] = self._watch.result(lambda client: client.gather(futures, asynchronous=True), futures)
        return found

    def _send(self) -> None:
        """Deal the shards; Dask chooses where they are loaded, so that a loss leaves none without a place."""
        number = next(self._stage)
        slots = [address for address, worker in self._watch.workers.items() for _ in range(worker["nthreads"])]
        for i, ((plan, sources), slot) in enumerate(zip(self._plans, itertools.cycle(slots), strict=False)):
            sent = {name: self._to_worker(column, plan.ranges, slot) for name, column in sources.items()}
            self._pieces.append(sent)
            self._shards.append(self._submit(f"shard-{number}-{i}", load_shard, plan, sent))

    def _submit(self, name: str, task: Callable[..., Any], *arguments: Any) -> Any:
        client = self._connection.client
        with losses(client):
            return client.submit(
                _on_same_versions, self._versions, task, *arguments,
                key=f"{self._name}-{name}", pure=False, workers=self._watch.only,
            )  # fmt: skip

    def _to_worker(self, column: Sequence[Any], ranges: Sequence[tuple[int, int]], slot: str) -> Sequence[Any]:
        """A store is opened by the worker; rows of this process, or of a Dask collection, are sent there."""
        source = column[0]
        if isinstance(source, NumpySource):
            rows = [source.read(*each) for each in ranges]
            sent: Sequence[Any] = self._watch.result(
                lambda client: client.scatter(rows, workers=[slot], hash=False, asynchronous=True)
            )
            return sent
        if isinstance(source, DaskSource):
            client = self._connection.client
            pieces = [source.array[start - source.first : stop - source.first] for start, stop in ranges]
            with losses(client):
                return list(client.compute(pieces, workers=self._watch.only))
        return column


def connect(cluster: str | Mapping[str, Any] | Client | Cluster | None) -> Workers:
    """Threads of this process, or a cluster.

    ``None`` uses the active Dask client if there is one and threads otherwise, ``"threads"`` always threads; else a
    scheduler's address, a mapping with the address and TLS files (`dpdist.engine.security.scheduler_credentials`), a
    `distributed.Client`, or a cluster object such as `distributed.LocalCluster`.
    """
    if cluster is None:
        try:
            return DistributedWorkers(get_client(), owned=False)
        except ValueError:
            return LocalThreads()
    if isinstance(cluster, str) and cluster == "threads":
        return LocalThreads()
    if isinstance(cluster, Client):
        return DistributedWorkers(cluster, owned=False)
    return DistributedWorkers(new_client(cluster), owned=True)


def _on_same_versions(expected: Mapping[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    """A task, on a worker that is what the run began with; others may have joined since."""
    if differs := difference(expected, versions()):
        raise ClusterError(f"a worker that joined has {differs}: {SAME_IMAGE}; then resume the run with its run_id")
    return function(*arguments)


def _failure_of(shard: Shard | Failure) -> Failure | None:
    return shard if isinstance(shard, Failure) else None


def _raise_failures(results: Sequence[Any]) -> None:
    for result in results:
        if isinstance(result, Failure):
            raise (DataUnavailable if result.away else DataError)(result.message)


def _summaries(results: Sequence[Any]) -> list[NDArray[Any]]:
    _raise_failures(results)
    return [result for result in results if result is not None]

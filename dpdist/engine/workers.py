"""Where the map stage runs: threads of this process, or the workers of a Dask cluster.

Both offer the same three calls: `place` puts the shards where they will stay, `map` asks all of them the same thing,
`close` lets them go. A round costs one task per worker thread, not one per partition. Task names are explicit and
random: Dask's own names are hashes of the arguments, hence of private data, and show on its dashboard.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import dask
import dask.threaded
from dask.system import CPU_COUNT
from distributed import Client, get_client
from distributed.client import FutureCancelledError
from distributed.deploy.cluster import Cluster
from distributed.scheduler import KilledWorker
from distributed.system import MEMORY_LIMIT
from numpy.typing import NDArray

from dpdist.data.sources import DaskSource, NumpySource
from dpdist.engine.security import door, refusal
from dpdist.engine.shards import Failure, Round, Shard, ShardPlan, load_shard, summarise_shard
from dpdist.engine.versions import difference, versions
from dpdist.errors import ClusterError, DataError, DataUnavailable

Sources = Mapping[str, Sequence[Any]]
CONNECT_TIMEOUT = 10.0
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
    """The threads of this process, by Dask's threaded scheduler: the embedded default."""

    def __init__(self) -> None:
        self.n_threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
        self.memory = float(MEMORY_LIMIT)
        self._name = f"dpdist-{secrets.token_hex(4)}"
        self._shards: list[Shard | Failure] = []

    def place(self, plans: Sequence[tuple[ShardPlan, Sources]]) -> None:
        self._shards = self._run([functools.partial(load_shard, *plan) for plan in plans], "load")
        _raise_failures(self._shards)

    def map(self, ask: Round) -> list[NDArray[Any]]:
        tasks = [functools.partial(summarise_shard, shard, ask) for shard in self._shards]
        return _summaries(self._run(tasks, "round"))

    def close(self) -> None:
        self._shards = []

    def _run(self, tasks: Sequence[Any], stage: str) -> list[Any]:
        graph = {f"{self._name}-{stage}-{i}": (task,) for i, task in enumerate(tasks)}
        return list(dask.threaded.get(graph, list(graph), num_workers=self.n_threads))


class DistributedWorkers:
    """The workers of a Dask cluster. Shards stay in worker memory; a lost one is read again from the store."""

    def __init__(self, client: Client, owned: bool) -> None:
        self._client = client
        self._owned = owned
        self._name = f"dpdist-{secrets.token_hex(8)}"
        self._round = itertools.count()
        self._plans: Sequence[tuple[ShardPlan, Sources]] = ()
        self._shards: list[Any] = []
        self._pieces: list[Any] = []
        self._versions = versions()
        self.n_threads = len(self._slots())
        self._refuse_other_versions()
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        self.memory = float(sum(w.get("memory_limit") or MEMORY_LIMIT for w in workers))

    def place(self, plans: Sequence[tuple[ShardPlan, Sources]]) -> None:
        self._plans = plans
        with _connected():
            self._send()
        # the loaded shards stay where they are; only whether that worked comes back
        checks = self._client.map(
            _failure_of, self._shards, key=[f"{self._name}-check-{next(self._round)}" for _ in self._shards], pure=False
        )
        try:
            with _connected():
                _raise_failures(self._gather(checks))
        except (FutureCancelledError, KilledWorker):
            raise ClusterError(
                "workers were lost while they loaded the data; look at their logs (memory limit?). "
                "Nothing was charged in this attempt."
            ) from None

    def map(self, ask: Round) -> list[NDArray[Any]]:
        for attempt in itertools.count():
            number = next(self._round)
            with _connected():
                futures = [
                    self._client.submit(
                        _on_same_versions,
                        self._versions,
                        summarise_shard,
                        shard,
                        ask,
                        key=f"{self._name}-round-{number}-{i}",
                        pure=False,
                    )
                    for i, shard in enumerate(self._shards)
                ]
                try:
                    return _summaries(self._gather(futures))
                except (FutureCancelledError, KilledWorker):
                    # Data that was sent to a lost worker is not in any store: send it again. The round is a pure
                    # function of rows and state, so asking twice changes nothing.
                    if attempt == REPLACEMENTS:
                        raise ClusterError(
                            f"workers were lost in {REPLACEMENTS + 1} attempts at one round; look at their logs "
                            "(memory limit?). What was charged is recorded: run again with the same run_id to resume."
                        ) from None
                    self._send()
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._shards, self._pieces, self._plans = [], [], ()
        if self._owned:
            self._client.close()

    def _slots(self) -> list[str]:
        """The address of the worker of every thread that is there now."""
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_TIMEOUT)
        except TimeoutError:
            self.close()
            raise ClusterError(
                f"the scheduler has no workers (waited {CONNECT_TIMEOUT:g} s); start some with "
                "'dask worker ADDRESS' before fitting. A run that was charged can be resumed with its run_id."
            ) from None
        return [address for address, n in sorted(self._client.nthreads().items()) for _ in range(n)]

    def _refuse_other_versions(self) -> None:
        """Before anything is charged: whatever the workers would compute has to be what was planned."""
        answers = self._client.run(versions, on_error="return")
        for address, there in sorted(answers.items()):
            if isinstance(there, Mapping):
                differs = difference(self._versions, there)
            else:  # it has no dpdist, or one that cannot be asked
                differs = f"no usable dpdist ({type(there).__name__}) instead of {self._versions['dpdist']}"
            if differs:
                self.close()
                raise ClusterError(f"the worker {address} has {differs}: {SAME_IMAGE}. Nothing was charged")

    def _send(self) -> None:
        number = next(self._round)
        slots = self._slots()
        self._pieces = []
        self._shards = []
        for i, ((plan, sources), slot) in enumerate(zip(self._plans, itertools.cycle(slots), strict=False)):
            sent = {name: self._to_worker(column, plan.ranges, slot) for name, column in sources.items()}
            self._pieces.append(sent)
            self._shards.append(
                self._client.submit(
                    _on_same_versions, self._versions, load_shard, plan, sent,
                    key=f"{self._name}-shard-{number}-{i}", pure=False, workers=[slot], allow_other_workers=True,
                )
            )  # fmt: skip

    def _to_worker(self, column: Sequence[Any], ranges: Sequence[tuple[int, int]], slot: str) -> Sequence[Any]:
        """A store is opened by the worker; rows of this process, or of a Dask collection, are sent there."""
        source = column[0]
        if isinstance(source, NumpySource):
            return self._client.scatter([source.read(*rows) for rows in ranges], workers=[slot], hash=False)
        if isinstance(source, DaskSource):
            pieces = [source.array[start:stop] for start, stop in ranges]
            return self._client.compute(pieces, workers=[slot], allow_other_workers=True)
        return column

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        return list(self._client.gather(list(futures)))


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """Within it, a scheduler that is gone is one clear error, whatever Dask makes of it."""
    try:
        yield
    except (OSError, TimeoutError, RuntimeError) as error:  # tasks return what goes wrong in them, and raise nothing
        problem = type(error).__name__
    else:
        return
    raise ClusterError(
        f"the connection to the scheduler was lost ({problem}). What was charged is recorded: run again with the same "
        "run_id to resume."
    )


def connect(cluster: str | Mapping[str, Any] | Client | Cluster | None) -> Workers:
    """Threads of this process, or a cluster.

    ``None`` uses the active Dask client if there is one and threads otherwise, ``"threads"`` always threads; else a
    scheduler's address, a mapping with the address and TLS files (`dpdist.engine.security.door`), a
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


def new_client(cluster: str | Mapping[str, Any] | Cluster) -> Client:
    """A connection of our own; raises `ClusterError` with the reason if there is none to be had."""
    address, security = door(cluster) if isinstance(cluster, str | Mapping) else (None, None)
    try:
        return Client(address or cluster, timeout=CONNECT_TIMEOUT, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        problem = type(error).__name__ if address is None or security is None else refusal(address, security)
    raise ClusterError(
        f"cannot reach the Dask scheduler {address or cluster!r} within {CONNECT_TIMEOUT:g} s: {problem}. "
        "The address is like tcp://host:8786 or tls://host:8786; cluster='threads' runs in this process. Nothing was "
        "charged by this attempt."
    )


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

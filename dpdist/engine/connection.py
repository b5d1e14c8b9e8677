"""A connection to a scheduler whose every use ends, and which can be made anew.

Dask waits without limit for a scheduler or a worker that is stopped, and says in half a dozen ways that one is gone.
Here an answer comes within seconds of this process's monotonic clock, or there is one exception: `Lost`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from distributed import Client
from distributed.client import ClosedClientError
from distributed.deploy.cluster import Cluster
from distributed.scheduler import KilledWorker
from distributed.security import Security

from dpdist.engine import waits
from dpdist.engine.security import refusal, scheduler_credentials
from dpdist.errors import ClusterError, ClusterUnavailable

T = TypeVar("T")


class Lost(Exception):
    """The connection, or what was asked over it, is gone; says how, for people. It may be asked again."""


class Connection:
    """A Dask client, or its successors.

    Parameters
    ----------
    client : distributed.Client
    owned : bool
        Whether to close it; a client that was given to us is left as it is, also where it is of no use any more.

    Attributes
    ----------
    address : str
        The scheduler's.
    client : distributed.Client
    """

    def __init__(self, client: Client, owned: bool) -> None:
        scheduler = client.scheduler
        if scheduler is None:
            raise ClusterError("the Dask client is closed: make another, or name the scheduler's address")
        self.address, self._security = str(scheduler.address), client.security
        self.client = client
        self._owned = owned

    def begin(self, ask: Callable[[Client], Awaitable[T]]) -> Future[T]:
        """Ask in the background; whatever Dask makes of a loss is `Lost`."""
        client = self.client

        async def asked() -> T:
            with losses(client):
                return await ask(client)

        return _started(asked(), client)

    def call(self, ask: Callable[[Client], Awaitable[T]], seconds: float | None = None) -> T:
        """An answer within ``seconds`` (default: `waits.ANSWER`), or `Lost`."""
        future = self.begin(ask)
        try:
            return future.result(waits.ANSWER if seconds is None else seconds)
        except TimeoutError:
            pass
        finally:
            future.cancel()
        raise Lost(f"the scheduler {self.address} does not answer")

    def workers(self) -> dict[str, Mapping[str, Any]]:
        """What the scheduler says of each of its workers, by address."""

        async def ask(client: Any) -> Any:
            return await client.scheduler.identity(n_workers=-1)

        return dict(sorted(self.call(ask)["workers"].items()))

    def ask_workers(
        self, function: Callable[..., Any], workers: Iterable[str], seconds: float | None = None
    ) -> dict[str, Any]:
        """What ``function`` returns on each worker, asked past Dask's queues; nothing of those that do not answer.

        An exception that it raises there is an answer.
        """
        limit = waits.ANSWER if seconds is None else seconds
        addresses = list(workers)

        async def one(client: Client, address: str) -> Any:
            try:
                found = await asyncio.wait_for(client.run(function, workers=[address], on_error="return"), limit)
            except TimeoutError as silent:
                return silent
            return found[address]

        async def ask(client: Client) -> list[Any]:
            return await asyncio.gather(*(one(client, address) for address in addresses))

        answers = zip(addresses, self.call(ask, limit + 2.0), strict=True)
        return {address: answer for address, answer in answers if not isinstance(answer, OSError)}

    def ask_scheduler(self, function: Callable[..., Any]) -> Any:
        """What ``function`` returns on the scheduler; an exception that it raises there is an answer, too."""

        async def ask(client: Client) -> Any:
            try:
                return await client.run_on_scheduler(function)
            except _LOSSES:
                raise
            except Exception as error:
                return error

        return self.call(ask)

    def renew(self, seconds: float) -> None:
        """Another client at the same address, for which no message of the old one waits; `Lost` if there is none."""
        self.close()
        why = ""
        try:
            self.client = _client(self.address, self._security, seconds)
            self._owned = True
        except _LOSSES as error:
            why = type(error).__name__
        if why:
            raise Lost(f"the scheduler {self.address} cannot be reached ({why})")

    def close(self) -> None:
        """Let go of a client of ours; where the scheduler is gone, that is no reason for another error."""
        if self._owned:
            self._owned = False
            with contextlib.suppress(Exception):
                self.client.close(timeout=2.0)


_LOSSES = (OSError, RuntimeError, CancelledError, ClosedClientError, KilledWorker)
"""Tasks return what goes wrong in them, and raise nothing of this."""


@contextlib.contextmanager
def losses(client: Client) -> Iterator[None]:
    """Within it, what is gone is `Lost`, whatever Dask makes of it."""
    why = ""
    try:
        yield
    except _LOSSES as error:
        why = type(error).__name__
    except AttributeError:  # of a client that has closed itself and forgotten its scheduler
        if client.scheduler is not None:
            raise
        why = "closed"
    if why == KilledWorker.__name__:
        raise Lost("workers died one after another with one task")
    if why:
        raise Lost(f"the connection was lost, or workers with what they held ({why})")


def new_client(cluster: str | Mapping[str, Any] | Cluster, seconds: float | None = None) -> Client:
    """A connection of our own, within ``seconds`` (default: `waits.CONNECT`).

    Raises `ClusterError` with the reason if there is none to be had, `ClusterUnavailable` if there may be one later.
    """
    limit = waits.CONNECT if seconds is None else seconds
    kind: type[ClusterError] = ClusterUnavailable
    address, security = scheduler_credentials(cluster) if isinstance(cluster, str | Mapping) else (None, None)
    try:
        return _client(address or cluster, security, limit)
    except (*_LOSSES, ValueError, TypeError) as error:
        problem = type(error).__name__
    if address is not None and security is not None:
        kind, problem = refusal(address, security)
    raise kind(
        f"cannot reach the Dask scheduler {address or cluster!r} within {limit:g} s: {problem}. "
        "The address is like tcp://host:8786 or tls://host:8786; cluster='threads' runs in this process. Nothing was "
        "charged by this attempt."
    )


class _Connection(Client):
    """A client that is closed by whoever has it, and not by the garbage collector.

    To close one takes the lock under which Dask starts the loop of another, and the collector may come just there: then
    that thread waits for itself, and everybody who wants a connection after it.
    """

    def __del__(self) -> None:
        """Nothing."""


def _client(address: Any, security: Security | None, seconds: float) -> Client:
    """Dask's own limit does not hold for a scheduler that is stopped: it waits for its greeting."""
    found: Future[Client] = Future()

    def connect() -> None:
        client: Any = _Connection.__new__(_Connection)  # in hand also where it cannot be made
        try:
            client.__init__(address, timeout=seconds, set_as_default=False, security=security)
        except BaseException as error:
            with contextlib.suppress(Exception):
                client.close(timeout=2.0)
            with contextlib.suppress(Exception):
                found.set_exception(error)
            return
        if not found.set_running_or_notify_cancel():  # too late: nobody waits for it any more
            client.close(timeout=2.0)
            return
        found.set_result(client)

    threading.Thread(target=connect, daemon=True, name="dpdist-connect").start()
    try:
        return found.result(seconds + 2.0)
    finally:
        found.cancel()


def _started(asked: Coroutine[Any, Any, T], client: Any) -> Future[T]:
    with contextlib.suppress(RuntimeError):  # its loop is closed
        return asyncio.run_coroutine_threadsafe(asked, client.loop.asyncio_loop)
    asked.close()
    raise Lost("the connection is closed")

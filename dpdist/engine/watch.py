"""Waiting for a cluster as long as it works on what it was asked, and for a stated time where nothing moves.

Progress is a task that ended or a worker that computes: a round may last hours. All times are of this process's
monotonic clock, which goes on evenly whatever is done to the clocks of the machines.

=================================  ===================================================================================
without progress                   what happens
=================================  ===================================================================================
for `NOTICE` (10 s), and again     every worker is asked directly, and messages that are stuck are sent (`liveness`)
twice                              `Lost`: over a new connection, those who answer are asked the same again
for `PATIENCE` (120 s)             one `ClusterUnavailable`; the run resumes
=================================  ===================================================================================

A cluster without workers, and a scheduler that is gone, are waited for with the same patience.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from distributed import Client

from dpdist.engine import waits
from dpdist.engine.connection import Connection, Lost
from dpdist.engine.liveness import Sign, flush, sign_of_life
from dpdist.errors import ClusterUnavailable

T = TypeVar("T")


class Watch:
    """Over the stages of a run: the loading of its shards, and every round.

    Attributes
    ----------
    workers : dict of str to mapping
        Those that answered when all were asked, by address, with what the scheduler says of them.
    silent : frozenset of str
        Those that did not, and are done without.
    """

    def __init__(self, connection: Connection) -> None:
        self.workers: dict[str, Mapping[str, Any]] = {}
        self.silent: frozenset[str] = frozenset()
        self._connection = connection
        self._unheard: dict[str, float] = {}
        self._done = 0
        self.begin("")

    @property
    def only(self) -> list[str] | None:
        """Where tasks have to run: anywhere, except where nobody answers."""
        return list(self.workers) if self.silent else None

    def begin(self, advice: str) -> None:
        """A stage begins; ``advice`` says what to do when patience with it is over."""
        self._advice = advice
        self._progress = time.monotonic()

    def ask_all(self, function: Callable[..., Any], seconds: float) -> dict[str, Any]:
        """Ask every worker, and know from then on who is there."""
        listed = self._connection.workers()
        answers = self._connection.ask_workers(function, listed, seconds)
        self.workers = {address: what for address, what in listed.items() if address in answers}
        self.silent = frozenset(listed) - frozenset(answers)
        return answers

    def result(self, ask: Callable[[Client], Awaitable[T]], futures: Sequence[Any] = ()) -> T:
        """What was asked, when it is there; `Lost` when it has to be asked again.

        Parameters
        ----------
        ask : callable
            Takes the client.
        futures : sequence of distributed.Future
            What has to be computed first. After that, or if there is none, what is asked is a transfer.
        """
        self._unheard, self._done = {}, 0
        waiting = self._connection.begin(ask)  # never cancelled: it ends with its futures, and Dask's parts of it too
        quiet = 0
        while quiet < 2:
            try:
                found = waiting.result(waits.NOTICE)
            except TimeoutError:
                quiet = 0 if self._moves(futures) else quiet + 1
            else:
                self._progress = time.monotonic()
                return found
        raise Lost("nobody works on what was asked")

    def recover(self, loss: Lost) -> None:
        """Make the connection anew and wait until some worker answers; `ClusterUnavailable` when patience is over."""
        why, connected = str(loss), False
        while (left := waits.PATIENCE - (time.monotonic() - self._progress)) > 0:
            left = max(left, 1.0)
            try:
                if not connected:
                    self._connection.renew(min(waits.CONNECT, left))
                    connected = True
                if self.ask_all(sign_of_life, min(waits.ANSWER, left)):
                    return
                why = "no worker of the cluster answers" if self.silent else "the cluster has no workers"
            except Lost as again:
                why, connected = str(again), False
            time.sleep(1.0)
        raise ClusterUnavailable(
            f"{why}; waited {waits.PATIENCE:g} s for progress. Look at the cluster's logs. {self._advice}"
        )

    def _moves(self, futures: Sequence[Any]) -> bool:
        """Look for a sign of progress; help what is stuck."""
        before, self._done = self._done, sum(future.done() for future in futures)
        signs, unheard = self._look()
        now = time.monotonic()
        self._unheard = {address: self._unheard.get(address, now) for address in unheard}
        if any(now - since > waits.PATIENCE for since in self._unheard.values()):
            raise Lost("a worker does not answer, while others work")
        if self._done > before or any(sign.computes for sign in signs):
            self._progress = now
            return True
        under_way = self._done == len(futures) or any(sign.fetches for sign in signs)
        return bool(signs) and not unheard and under_way and now - self._progress < waits.TRANSFER

    def _look(self) -> tuple[list[Sign], set[str]]:
        """What the workers do, and which of them do not answer."""
        try:
            asked = set(self._connection.workers()) - self.silent
            answers = self._connection.ask_workers(sign_of_life, asked)
            self._connection.ask_scheduler(flush())
        except Lost:  # of the scheduler nothing is heard either
            return [], set()
        return [sign for sign in answers.values() if isinstance(sign, Sign)], asked - set(answers)

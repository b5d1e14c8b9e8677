"""Is anybody at work? What workers say when they are asked directly, past the messages that may be stuck.

Dask sends most of its messages in batches, a few milliseconds after one another: it waits for a time on the wall clock
(``distributed.batched``), and where that clock goes back a day meanwhile, for a day. Questions as asked here are not
batched, so they get through, and whoever is asked sends what waits there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sign:
    """What a worker is doing."""

    computes: bool
    fetches: bool


def sign_of_life(dask_worker: Any) -> Sign:
    """Asked of a worker: whether a thread computes, and whether rows or results are on their way to it."""
    state = dask_worker.state
    sign = Sign(bool(state.executing or state.long_running), bool(state.in_flight_tasks))
    send_now = flush()
    send_now(dask_worker)
    return sign


def flush() -> Callable[[Any], None]:
    """Asked of the scheduler, too, which need not have dpdist: a function within a function is sent as it is."""

    def send_now(dask_scheduler: Any) -> None:
        """Let the batches of a scheduler or a worker go out; a time that is not there is not waited for."""
        one = getattr(dask_scheduler, "batched_stream", None)
        streams = [one] if one is not None else []
        for name in ("stream_comms", "client_comms"):
            streams += getattr(dask_scheduler, name, {}).values()
        for stream in streams:
            stream.next_deadline = None
            stream.waker.set()

    return send_now

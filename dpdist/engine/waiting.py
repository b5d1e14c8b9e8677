"""Waiting for the workers of a cluster that is just being started, as pods are."""

from __future__ import annotations

import time

from dpdist.engine import waits
from dpdist.engine.connection import Connection, Lost, new_client
from dpdist.errors import ClusterUnavailable


def wait_for_workers(address: str, n_workers: int, patience: float) -> int:
    """Wait until a scheduler answers and has ``n_workers`` workers; return how many there are.

    A run deals its data to the workers that it finds, so it should not begin with the first one. When ``patience``
    seconds are over, it goes on with those that are there: results do not depend on their number.

    Raises
    ------
    ClusterUnavailable
        When there is no scheduler, or not one worker.
    ClusterError
        At once, when it will not let us in: wrong certificates get no better by waiting.
    """
    give_up = time.monotonic() + patience
    connection: Connection | None = None
    while True:
        found, problem = 0, ""
        try:
            if connection is None:
                client = new_client(address, min(waits.CONNECT, max(give_up - time.monotonic(), 0.1)))
                connection = Connection(client, owned=True)
            found = len(connection.workers())
        except (ClusterUnavailable, Lost) as error:  # no name yet, nothing listens, or it was started anew
            problem = str(error)
        if connection is not None and (problem or found >= n_workers or time.monotonic() > give_up):
            connection.close()
            connection = None
        if found >= n_workers or time.monotonic() > give_up:
            break
        time.sleep(0.5)
    if problem:
        raise ClusterUnavailable(
            f"no scheduler at {address} after {patience:g} s: look at the scheduler's pod and its log. Nothing was "
            f"charged by this attempt ({problem})"
        )
    if found == 0:
        raise ClusterUnavailable(
            f"the scheduler {address} has no workers after {patience:g} s: look at the workers' pods (can they be "
            "scheduled, is the image there, is the memory limit enough?). Nothing was charged by this attempt"
        )
    return found

"""Waiting for the workers of a cluster that is just being started, as pods are."""

from __future__ import annotations

import contextlib
import time

from distributed import Client

from dpdist.engine.security import door
from dpdist.errors import ClusterError


def wait_for_workers(address: str, n_workers: int, patience: float) -> int:
    """Wait until a scheduler answers and has ``n_workers`` workers; return how many there are.

    A run deals its data to the workers that it finds, so it should not begin with the first one. When ``patience``
    seconds are over, it goes on with those that are there: results do not depend on their number.

    Raises
    ------
    ClusterError
        When there is no scheduler, or not one worker.
    """
    give_up = time.monotonic() + patience

    def left() -> float:
        return max(give_up - time.monotonic(), 0.1)

    host, security = door(address)
    while True:
        try:
            client = Client(host, security=security, timeout=min(left(), 10.0), set_as_default=False)
            break
        except (OSError, TimeoutError) as error:  # its name is not known yet, or nothing listens
            if time.monotonic() > give_up:
                raise ClusterError(
                    f"no scheduler at {address} after {patience:g} s ({type(error).__name__}): look at the scheduler's "
                    "pod and its log. Nothing was charged by this attempt"
                ) from None
            time.sleep(0.5)
    with client:
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(n_workers, timeout=left())
        found = len(client.scheduler_info(n_workers=-1)["workers"])
    if found == 0:
        raise ClusterError(
            f"the scheduler {address} has no workers after {patience:g} s: look at the workers' pods (can they be "
            "scheduled, is the image there, is the memory limit enough?). Nothing was charged by this attempt"
        )
    return found

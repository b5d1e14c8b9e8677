"""How long something remote that is away is waited for: by this process's own clock, never by a number of attempts.

A restart, a failover or a storm of refusals is over in seconds; a run that has charged its budget should see it through
and not end. What is still away after `PATIENCE` ends the run with one error (`dpdist.errors.Unavailable`), and the same
run goes on once it is started again.
"""

from __future__ import annotations

import random
import time

PATIENCE = 45.0
"""Seconds, from the first failure of what is tried on."""
_FIRST, _LONGEST = 0.1, 2.0


class Patience:
    """The waiting for one thing; the clock starts at the first `wait`, and no jump of the system's clock matters."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._pause = _FIRST

    def wait(self) -> bool:
        """Sleep before the next attempt, longer each time; False, and at once, where there is to be none."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE
        if now >= self._until:
            return False
        # not all workers at the same moments: together they would be the next storm
        time.sleep(min(self._pause * random.uniform(0.5, 1.0), self._until - now))
        self._pause = min(2 * self._pause, _LONGEST)
        return True

"""How long something remote that is away is waited for: by this process's own clock, never by a number of attempts.

A restart, a failover or a storm of refusals is over in seconds; a run that has charged its budget should see it through
and not end. What is still away after `PATIENCE` ends the run with one error (`dpdist.errors.Unavailable`), and the same
run goes on once it is started again.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
import time
from collections.abc import Iterator

PATIENCE = 45.0
"""Seconds, from the first failure of what is tried on; the last attempt may end a few seconds later."""
_FIRST, _LONGEST = 0.1, 2.0
_hurried = contextvars.ContextVar("hurried", default=False)


class Patience:
    """The waiting for one thing; no jump of the system's clock matters to it.

    Parameters
    ----------
    since : float, optional
        When it began (``time.monotonic``), for attempts that take long to fail; by default with the first `wait`.
    """

    def __init__(self, since: float | None = None) -> None:
        self._since = since
        self._pause = _FIRST

    def wait(self) -> bool:
        """Sleep before the next attempt, longer each time; False, and at once, where there is to be none."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        left = self._since + PATIENCE - now
        if left <= 0 or _hurried.get():
            return False
        # not all workers at the same moments: together they would be the next storm
        time.sleep(min(self._pause * random.uniform(0.5, 1.0), left))
        self._pause = min(2 * self._pause, _LONGEST)
        return True


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Within it nothing is waited for: for what is tidied up, or said, after the patience for it has ended."""
    token = _hurried.set(True)
    try:
        yield
    finally:
        _hurried.reset(token)

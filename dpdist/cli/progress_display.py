"""What a person sees of a run while it goes on: rounds, rows a second, time left, budget. On stderr.

On a terminal a few lines are kept up to date; elsewhere (a log file, a container) plain lines come every few seconds.
All of it is made of `dpdist.engine.progress` events, which carry public numbers only; the number of rows is not among
them where it is private, and then no speed is shown.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dpdist.cli.output import cost
from dpdist.engine.progress import Asked, Charged, Event, Loading, Planned, Released, watching
from dpdist.errors import DpdistError
from dpdist.privacy.accounting.filter import Amount

EVERY = 2.0
"""Seconds between plain lines."""
_RECENT = 20

Left = Callable[[str], Amount | None]


@contextlib.contextmanager
def showing(*, quiet: bool = False, left: Left | None = None) -> Iterator[None]:
    """Show on stderr how the fits inside the block go.

    A display that cannot be written to falls silent: it never stops a run that is paid for.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    left : callable, optional
        What is left of the limit of a dataset, given its id, None without a limit: ``ledger.remaining``.
    """
    if quiet:
        yield
        return
    tally = Tally(left)
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    display = Screen(tally) if live else Lines(tally)
    with display, watching(display.tell):
        yield


class Tally:
    """What the events of one run add up to.

    Attributes
    ----------
    stage : str
        What is being done, or the name of the newest release.
    done, planned : int
    part : float
        How much of the round that goes on is done, where a long round tells.
    rows_per_second : float or None
        Over the last rounds; None where the number of rows is private, and before the first round.
    budget : str
        What is planned or charged, and what is left of the dataset's limit.
    """

    def __init__(self, left: Left | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._left = left
        self._clock = clock
        self._clear()

    def _clear(self) -> None:
        self.stage = "planning"
        self.done = 0
        self.planned = 0
        self.part = 0.0
        self.rows_per_second: float | None = None
        self.budget = ""
        self._run_id = ""
        self._n_rows: int | None = None
        self._charge = "charged"
        self._pace: tuple[float, float] | None = None  # seconds a round, and when that was found; read by a thread
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT + 1)
        self._round_began = self._clock()

    def tell(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case Planned():
                self._clear()
                self.stage, self.planned = "planned", event.plan.n_releases
                self._charge = "goes on, charged before" if event.goes_on else "charged"
                ahead = self._charge if event.goes_on else "to be charged"
                self.budget = f"{ahead}: {cost(event.plan.spent.epsilon, event.plan.spent.delta)}"
                self._run_id, self._n_rows = event.run_id, event.n_rows
            case Loading():
                self.stage = "reading the data"
            case Charged():
                self.stage = "charged"
                self.budget = f"{self._charge}: {cost(event.epsilon, event.delta)}{self._rest()}"
                self._recent.append((self._clock(), 0.0))
                self._round_began = self._clock()
            case Asked():
                self.part = event.done_rows / event.n_rows
                now = self._clock()
                seconds = max(now - self._round_began, 1e-9)
                self._pace = seconds / self.part, now
                self.rows_per_second = event.done_rows / seconds
            case Released():
                self.done, self.planned = event.done, event.planned
                self.part, self._round_began = 0.0, self._clock()
                self.stage = f"{event.name}, from the journal" if event.replayed else event.name
                if not event.replayed:
                    self._recent.append((self._clock(), event.rate))
                    self._measure()

    @property
    def finished(self) -> bool:
        """Whether the last release has been made."""
        return 0 < self.planned == self.done

    def seconds_left(self) -> float | None:
        """At the speed of the last rounds, and from now on; None before the first."""
        pace = self._pace
        if pace is None:
            return None
        round_time, when = pace
        return max(0.0, (max(self.planned, 1) - self.done - self.part) * round_time - (self._clock() - when))

    def speed_and_time(self) -> list[str]:
        """Both in words, as far as they are known."""
        rows, rest = self.rows_per_second, self.seconds_left()
        words = [] if rows is None else [f"{_short(rows)} rows/s"]
        return words if rest is None or self.finished else [*words, f"about {_duration(rest)} left"]

    def _measure(self) -> None:
        times, rates = zip(*self._recent, strict=True)
        if len(times) < 2:
            return
        # the first of them only starts the clock
        seconds = max(times[-1] - times[0], 1e-9)
        self._pace = seconds / (len(times) - 1), times[-1]
        self.rows_per_second = None if self._n_rows is None else self._n_rows * sum(rates[1:]) / seconds

    def _rest(self) -> str:
        rest = None
        with contextlib.suppress(DpdistError):  # a display does not stop a run
            rest = self._left(self._run_id) if self._left else None
        return "" if rest is None else f"; left of the dataset's limit: {cost(rest.epsilon, rest.delta)}"


class Lines:
    """Plain lines: what happens once at once, rounds at most every two seconds, and the last one."""

    def __init__(self, tally: Tally, clock: Callable[[], float] = time.monotonic) -> None:
        self._tally = tally
        self._clock = clock
        self._last = -EVERY

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def tell(self, event: Event) -> None:
        """Take in one event, and print a line about it if it is time for one."""
        self._tally.tell(event)
        tally = self._tally
        match event:
            case Planned():
                words = [f"run {event.run_id} on dataset {event.dataset_id}", f"{tally.planned} rounds", tally.budget]
            case Loading():
                words = [tally.stage]
            case Charged():
                words = [tally.budget]
            case Asked():
                if self._clock() - self._last < EVERY:
                    return
                self._last = self._clock()
                where = f"{tally.part:.0%} of {event.n_rows:,} rows"
                if tally.planned:  # reports are added up without a plan
                    where = f"round {tally.done + 1} of {tally.planned}, {where}"
                words = [where, *tally.speed_and_time()]
            case Released():
                if self._clock() - self._last < EVERY and not tally.finished:
                    return
                self._last = self._clock()
                words = [f"round {tally.done} of {tally.planned} ({tally.stage})", *tally.speed_and_time()]
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"dpdist: {', '.join(words)}", err=True)


class Screen:
    """Two lines that a terminal keeps up to date."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        # what is printed to stdout inside the block stays on stdout
        self._live = Live(self, console=Console(stderr=True), refresh_per_second=4, redirect_stdout=False)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._live.stop()

    def tell(self, event: Event) -> None:
        """Take in one event; the screen shows it at its next refresh."""
        self._tally.tell(event)

    def __rich__(self) -> RenderableType:
        tally = self._tally
        first = Table.grid(padding=(0, 2))
        for _ in range(4):
            first.add_column(no_wrap=True)
        bar = ProgressBar(total=max(tally.planned, 1), completed=tally.done + tally.part, width=20)
        rounds = f"{tally.done}/{tally.planned} rounds" if tally.planned else ""
        first.add_row(bar, rounds, ", ".join(tally.speed_and_time()), Text(tally.stage))
        return Group(first, Text(tally.budget, no_wrap=True, overflow="ellipsis"))


def _short(number: float) -> str:
    """Three digits and a letter.

    Examples
    --------
    >>> _short(950), _short(1_234_567), _short(2.5e9)
    ('950', '1.23M', '2.5G')
    """
    for letter in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.3g}{letter}"
        number /= 1000
    return f"{number:.4g}G"


def _duration(seconds: float) -> str:
    """Examples: ``8 s``, ``2 min 05 s``, ``3 h 10 min``.

    Examples
    --------
    >>> _duration(7.6), _duration(125), _duration(11400)
    ('8 s', '2 min 05 s', '3 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

"""`progress`: what a person sees of a command that does one thing many times, on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

import click

EVERY = 5.0
"""Seconds between lines, where there is no terminal."""

Tell = Callable[..., None]
"""``tell(done, total, about="")``: which of how many has begun or ended, and what it is."""


@contextlib.contextmanager
def progress(name: str, quiet: bool = False, *, what: str = "run") -> Iterator[Tell | None]:
    """A bar on a terminal, else a line every five seconds; None where nothing is to be shown.

    What cannot be written to falls silent.

    Parameters
    ----------
    name : str
        Of what goes on.
    quiet : bool
        Show nothing.
    what : str
        What is counted, for the lines.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(name, total=None)

            def move(done: int, total: int, about: str = "") -> None:
                bar.update(task, completed=done, total=total, description=f"{name}  {about}" if about else name)

            yield move
    else:
        last = time.monotonic()

        def tell(done: int, total: int, about: str = "") -> None:
            nonlocal last
            if time.monotonic() - last >= EVERY:
                last = time.monotonic()
                with contextlib.suppress(OSError, ValueError):
                    click.echo(f"dpdist: {name}, {what} {done} of {total}{f' ({about})' if about else ''}", err=True)

        yield tell

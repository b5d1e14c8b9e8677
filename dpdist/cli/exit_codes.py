"""What the command line says, and how it exits, when a command does not come to its end.

====  =====================================================================
code  when
====  =====================================================================
0     done
1     a bug in dpdist
2     the command, a file or a setting is wrong (any `DpdistError`)
3     refused by the ledger (`BudgetExceeded`, `Fenced`, `Forgotten`)
75    away for longer than it is waited for, so try again (any `Unavailable`)
130   interrupted (Ctrl-C)
141   whoever read the output stopped reading (as in ``dpdist ... | head``)
143   terminated (SIGTERM: a scheduler, ``kill``, ``timeout``)
====  =====================================================================

The text of an exception that dpdist did not raise on purpose may quote values of the data, so it is not shown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import click

from dpdist.errors import BudgetExceeded, DpdistError, Fenced, Forgotten, Unavailable

DONE, BUG, WRONG, REFUSED, TRY_AGAIN = 0, 1, 2, 3, os.EX_TEMPFAIL
INTERRUPTED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGPIPE

_FIXES = {
    errno.ENOENT: "check the name; relative paths start from the current directory",
    errno.EACCES: "give this account the right to it, or name another place",
    errno.EPERM: "give this account the right to it, or name another place",
    errno.EISDIR: "expected a file: name one inside this directory, or next to it",
    errno.ENOTDIR: "expected a directory: check every part of the path",
    errno.EEXIST: "choose another place, or delete what is there",
    errno.ENOSPC: "make room and start again",
    errno.EDQUOT: "make room and start again",
    errno.EROFS: "name a place that can be written",
}
_CURSOR_BACK = b"\x1b[?25h"


class Stopped(KeyboardInterrupt):
    """The first Ctrl-C or SIGTERM; handled like any `KeyboardInterrupt`, so that everything is closed on the way."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM stop the block as cleanly as Ctrl-C does, and the second of either end the process at once.

    A stop that comes while things are being closed could otherwise be swallowed where Python has to ignore exceptions
    (finalisers, the joining of threads at exit). Signals that the parent told this process to ignore stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.getsignal(number) for number in ours}
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            if os.isatty(2):  # written past all buffers: a handler may interrupt a print
                os.write(2, _CURSOR_BACK + b"\nstopping; press Ctrl-C again to stop at once\n")
        raise Stopped(number)

    for number, handler in ours.items():
        if before[number] is handler:
            signal.signal(number, stop)
    try:
        yield
    finally:
        if not stopped:
            for number, old in before.items():
                signal.signal(number, old)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings as sentences, not as lines of source code."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"dpdist: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def report(error: BaseException) -> int:
    """Say on stderr what went wrong and what to do, and return the exit code.

    Notes on a `DpdistError` or a `KeyboardInterrupt` (``error.add_note``) are printed below its message: a command adds
    what only it knows, such as how to go on.
    """
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            error.show()
            return WRONG
        case DpdistError():
            _say(str(error) or type(error).__name__, error)
            if isinstance(error, BudgetExceeded | Fenced | Forgotten):
                return REFUSED
            return TRY_AGAIN if isinstance(error, Unavailable) else WRONG
        case KeyboardInterrupt() | click.Abort():
            number = getattr(error, "number", signal.SIGINT)
            _say("terminated (SIGTERM)" if number == signal.SIGTERM else "interrupted", error)
            return 128 + number
        case BrokenPipeError() if _nobody_reads():
            return UNREAD
        case OSError() if sentence := _os_problem(error):
            _say(sentence)
            return WRONG
        case MemoryError():
            _say("the memory of this machine is used up; use smaller partitions, or workers with more memory")
            return WRONG
    return _bug(error)


def _say(message: str, error: BaseException | None = None) -> None:
    # stderr may be what is broken: then the exit code has to do
    with contextlib.suppress(OSError, ValueError):
        for line in (f"dpdist: {message}", *getattr(error, "__notes__", ())):
            click.echo(line, err=True)


def _bug(error: BaseException) -> int:
    if os.environ.get("DPDIST_DEBUG") == "1":
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)
        how = "Its traceback is above; it may quote private values: read it before you pass it on."
    else:
        how = "DPDIST_DEBUG=1 shows its traceback, which may quote private values: read it before you pass it on."
    _say(f"an unexpected {type(error).__name__}, which is a bug in dpdist: please report it. {how}")
    return BUG


def _os_problem(error: OSError) -> str:
    """One sentence about a file or the system, from the error's number and file name only; "" if it has neither."""
    name = error.filename
    if error.errno is None:
        if not isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
            return ""  # a library's own text, which may quote anything
        name, number = (error.args or ("",))[0], _number_of(error)
    else:
        number = error.errno
    fix = _FIXES.get(number, "check the file, the disk and the connection it is on")
    where = f"{_public(str(name))}: " if name not in (None, "") else ""
    return f"{where}{os.strerror(number)}; {fix}"


def _number_of(error: OSError) -> int:
    kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR}
    return kinds.get(type(error), errno.ENOTDIR)


def _public(name: str) -> str:
    """Drop the user names, keys and signatures that a URL may carry."""
    return re.sub(r"(://[^?]*)\?.*$", r"\1", re.sub(r"//[^/@]*@", "//", name))


def _nobody_reads() -> bool:
    """Whether the reader of stdout is gone; another broken pipe (a scheduler's, say) has to be reported."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def forget_unwritten() -> None:
    """Let go of output that cannot be written, or Python would complain about it again at its exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

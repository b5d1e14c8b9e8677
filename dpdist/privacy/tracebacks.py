"""Exceptions that take no private value with them.

A traceback holds the frames that it went through, and these their local variables: un-noised sums, noise, values that
are drawn and not delivered. Whoever gets the exception (a debugger, a reporter of errors, a notebook) could read them,
and a value that nobody was to see could not be drawn again. So the local variables go, and the lines stay.

>>> @forgetful
... def draw():
...     total = 42
...     raise OSError("the disk is full")
>>> try:
...     draw()
... except OSError as error:
...     below = error.__traceback__.tb_next.tb_next.tb_frame
>>> below.f_code.co_name, below.f_locals
('draw', {})
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpdist.errors import DpdistError

P = ParamSpec("P")
T = TypeVar("T")


def forgetful(function: Callable[P, T]) -> Callable[P, T]:
    """Let no exception leave with the local variables of this function, or of what it has called.

    The frame in which the exception is caught keeps its own. One of dpdist's own errors leaves without those that it
    came from, whose texts may quote what they failed on.
    """

    @functools.wraps(function)
    def guarded(*arguments: P.args, **named: P.kwargs) -> T:
        before = sys.exception()  # what the caller is handling already is not ours to empty
        try:
            return function(*arguments, **named)
        except BaseException as error:  # Ctrl-C comes anywhere
            del arguments, named
            _forget(error, before)
            raise

    return guarded


def _forget(error: BaseException, before: BaseException | None) -> None:
    left: list[BaseException | None] = [error]
    seen = {id(before)}
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        left += [each.__cause__, each.__context__]
        left += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    if isinstance(error, DpdistError):
        error.__cause__, error.__context__ = None, before

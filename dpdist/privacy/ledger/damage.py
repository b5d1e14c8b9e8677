"""What is on file and cannot be what was written: one error, wherever it is read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpdist.errors import LedgerError

P = ParamSpec("P")
T = TypeVar("T")


def as_written(function: Callable[P, T]) -> Callable[P, T]:
    """Raise `LedgerError` where a function that reads what was written finds something else.

    Examples
    --------
    >>> @as_written
    ... def number(text):
    ...     return int(text)
    >>> number("1"), number("l")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpdist.errors.LedgerError: the ledger or its journal is damaged: an entry cannot be read as what was written (...
    """

    @functools.wraps(function)
    def read(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            raise LedgerError(
                "the ledger or its journal is damaged: an entry cannot be read as what was written (the disk, or "
                "somebody, has changed it). Restore the newest copy, and keep what is there: deleted, it would forget "
                "what was spent. Nothing may be released until then"
            ) from None

    return read

"""What can go wrong, each with one class; every message says what was wrong, what was expected and what to do."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class DpdistError(Exception):
    """Base of every error that dpdist raises on purpose."""


class Unavailable(DpdistError):
    """Something remote was away for longer than it is waited for: the same run, started again, goes on.

    The base of such errors (exit code 75), whatever else they are; what only a person can mend is none of them.
    """


class DataError(DpdistError, ValueError):
    """A dataset that cannot be used: wrong shapes, dtypes, or chunks that cannot be read."""


class DataUnavailable(DataError, Unavailable):
    """The store of a dataset is away; nothing is said about what it holds."""


class MissingBound(DpdistError, ValueError):
    """A public bound that the caller has to declare was not given; it is never read off the data."""


class BudgetError(DpdistError, ValueError):
    """A budget or a plan that makes no sense (epsilon <= 0, Gaussian noise without delta ...)."""


class NoIntervals(DpdistError, AttributeError):
    """No standard error or interval of this fit would be valid; says why, and of what fit one would be."""


class BudgetExceeded(DpdistError):
    """The ledger refuses: the charge does not fit into what is left of the dataset's limit."""


class LedgerError(DpdistError):
    """The ledger or the journal cannot be read or written durably."""


class LedgerUnavailable(LedgerError, Unavailable):
    """The database of the ledger or of the journal is away, or locked by another process."""


class Forgotten(LedgerError):
    """A ledger, a journal or the record of a run has lost, or is not, what another of them remembers: restore it."""


class Fenced(DpdistError):
    """Another process has taken over this run; this one must stop before it draws any noise."""


class ClusterError(DpdistError):
    """A cluster that cannot be used: a wrong address, certificates that it refuses, workers with other versions."""


class ClusterUnavailable(ClusterError, Unavailable):
    """The scheduler cannot be reached, or there are no workers that do what was asked."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is like an unknown one, as a question; empty where none is.

    Examples
    --------
    >>> did_you_mean("epsilom", ["epsilon", "delta"]), did_you_mean("six", ["epsilon", "delta"])
    ("did you mean 'epsilon'?", '')
    """
    names = list(known)
    if not isinstance(name, str):
        return ""
    near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.lower() == name.lower()]
    return f"did you mean {near[0]!r}?" if near else ""


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called into the library, however many of its own frames are in between."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("dpdist", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)

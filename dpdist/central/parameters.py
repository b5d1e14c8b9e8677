"""Checks of public parameters, made before any data is read and anything is charged."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dpdist.errors import BudgetError, MissingBound

SMALLEST, LARGEST = 1e-60, 1e60
"""Bounds outside this range would overflow or vanish when they are squared."""


def check_bound(name: str, value: Any) -> None:
    """A public bound: a positive number that can be squared."""
    if not _is_real(value) or not SMALLEST <= value <= LARGEST:
        raise MissingBound(f"{name} must be a positive finite number (between 1e-60 and 1e60), got {value!r}")


def check_between(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """A number in ``[low, high]``."""
    if not _is_real(value) or not low <= value <= high or math.isinf(value):
        raise BudgetError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


def check_count(name: str, value: Any, low: int = 1) -> None:
    """A whole number of at least ``low``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
        raise BudgetError(f"{name} must be a whole number of at least {low}, got {value!r}")


def check_offers(name: str, value: Any, method: str, examples: str) -> None:
    """An object with the method that a loop will call."""
    if not callable(getattr(value, method, None)):
        raise BudgetError(f"{name} must have a method {method!r}, for example {examples}; got {value!r}")


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)

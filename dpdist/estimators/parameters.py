"""Checks of public parameters, made before any data is read and anything is charged."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from dpdist.errors import BudgetError, MissingBound, did_you_mean

SMALLEST, LARGEST = 1e-60, 1e60
"""Bounds outside this range would overflow or vanish when they are squared."""
NUMBERS = (bool, int, float, np.bool_, np.number)
"""Types of labels that are numbers."""


def check_bound(name: str, value: Any) -> None:
    """A public bound: a positive number that can be squared."""
    if isinstance(value, np.generic):
        value = value.item()
    if not _is_real(value) or not SMALLEST <= value <= LARGEST:
        raise MissingBound(f"{name} must be a positive finite number (between 1e-60 and 1e60), got {value!r}")


def keep_plain(holder: Any, names: Iterable[str]) -> None:
    """Make NumPy's numbers among the fields of a frozen object Python's: the square of ``np.uint8(200)`` is 64."""
    held = vars(holder)  # not by name: to be read here is not to be used
    for name in names:
        if isinstance(held[name], np.generic):
            object.__setattr__(holder, name, held[name].item())


def check_between(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """A number in ``[low, high]``."""
    if not _is_real(value) or not low <= value <= high or math.isinf(value):
        raise BudgetError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


def check_end(name: str, value: Any, largest: float) -> None:
    """An end of the one range that all columns have."""
    if np.ndim(value):
        raise BudgetError(
            f"{name} is one number for all columns, got {value!r}. Where columns have ranges of their own, declare "
            "them when the table is ingested (dpdist ingest --range COLUMN=LO:HI): each becomes -1 to 1, and low=-1.0, "
            "high=1.0 hold for all"
        )
    check_between(name, value, -largest, largest)


def need_delta(delta: float, released: str) -> None:
    """Refuse Gaussian noise without delta, before what is ``released`` with it is planned."""
    if delta == 0:
        raise BudgetError(
            f"{released} are released with Gaussian noise, which needs delta > 0: pass delta, far below 1/n_rows, for "
            "example delta=1e-6"
        )


def check_count(name: str, value: Any, low: int = 1) -> None:
    """A whole number of at least ``low``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
        raise BudgetError(f"{name} must be a whole number of at least {low}, got {value!r}")


def public_vector(name: str, value: Any) -> tuple[float, ...]:
    """A public vector as plain numbers.

    >>> public_vector("start", [1, 2.5])
    (1.0, 2.5)
    """
    wanted = f"{name} must be a list of finite numbers (up to 1e60)"
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        raise BudgetError(f"{wanted}, got lists of different lengths") from None
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
        got = f"an array of shape {array.shape}" if array.dtype.kind in "iuf" and array.ndim else f"{value!r:.60}"
        raise BudgetError(f"{wanted}, got {got}")
    wrong = np.flatnonzero(~(np.abs(array.astype(np.float64)) <= LARGEST))
    if wrong.size:
        raise BudgetError(f"{wanted}, got {array[wrong[0]]!s} at position {wrong[0]}")
    return tuple(float(number) for number in array)


def check_classes(classes: Any, wanted: str, most: float = math.inf) -> None:
    """The declared labels: a list of two or more that differ, texts only, or numbers only.

    Which label is the positive one, and what a run is known by, follows from their order. A set has none: that of texts
    is another one in each process. A generator is empty behind the first look at it, and no label equals NaN: rows
    would count as empty, and be paid for.

    >>> check_classes({"no"}, "classes must be a list of two labels", most=2)
    Traceback (most recent call last):
    dpdist.errors.MissingBound: classes must be a list of two labels, got a set: pass a list, in an order that stays
    """
    if isinstance(classes, Mapping | AbstractSet | Iterator):
        raise MissingBound(f"{wanted}, got a {type(classes).__name__}: pass a list, in an order that stays")
    labels = list(classes) if np.iterable(classes) and not isinstance(classes, str | bytes) else []
    if len(labels) > 1 and not of_one_kind(labels):
        raise MissingBound(f"{wanted}, texts only, or numbers only; got {classes!r}")
    if any(label != label for label in labels):
        raise MissingBound(f"{wanted}, got {classes!r}: no label equals NaN, and rows without one count as empty")
    if not 2 <= len(labels) <= most or len(set(labels)) < len(labels):
        raise MissingBound(f"{wanted}, got {classes!r}")


def of_one_kind(classes: Sequence[Any] | None) -> bool:
    """Whether they are texts only, or numbers only."""
    labels = [] if classes is None else list(classes)
    return bool(labels) and any(all(isinstance(label, kind) for label in labels) for kind in (str, NUMBERS))


def check_offers(name: str, value: Any, method: str, examples: str) -> None:
    """An object with the method that a loop will call."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        hint = f"; write {value.__name__}(...)" if isinstance(value, type) else ""
        raise BudgetError(f"{name} must have a method {method!r}, for example {examples}; got {value!r}{hint}")


def choice(name: str, value: str, allowed: Sequence[str]) -> str:
    """``value``, or the error that names what there is."""
    if not isinstance(value, str) or value not in allowed:
        hint = f"{did_you_mean(value, allowed)} choose one of {', '.join(map(repr, allowed))}".lstrip()
        raise BudgetError(f"{name}={value!r} is not known; {hint}")
    return value


def need_bound(name: str, value: Any, meaning: str | None = None) -> float:
    """A public bound that was given; ``meaning`` is for the error, by default as in `BOUNDS`."""
    if value is None:
        raise MissingBound(f"{name} is missing: {meaning or BOUNDS[name]}")
    check_bound(name, value)
    return float(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)


BOUNDS = {
    "row_norm": (
        "pass a public bound on the l2 norm of a row's features, known without looking at the data (1.0 for normalised "
        "rows, sqrt(n_features) for features in [-1, 1]); longer rows are scaled down to it or count less. It is never "
        "taken from the data, because a bound that follows the data leaks it"
    ),
    "feature_bound": (
        "pass a public bound on the size of a single feature, about two or three times its usual size; larger entries "
        "are cut off at it"
    ),
    "residual_bound": (
        "pass a public bound on the difference of label and prediction, about the usual size of the labels; larger "
        "residuals are cut off at it"
    ),
    "second_moment": (
        "pass a public guess of the mean square of what is averaged: of an entry for means, of a coordinate of a row's "
        "gradient (in the units of the labels times the features) for models; it sets the scale beyond which "
        "contributions are damped, and may be wrong by a factor of 10"
    ),
    "constraint": "this solver needs a bounded set, for example constraint=L1Ball(1.0)",
    "n_nonzero": "pass how many coefficients may differ from 0, about twice as many as are expected to matter",
    "clip_norm": (
        "pass a public bound on the l2 norm of a row's gradient (largest residual that should count, times row_norm); "
        "larger gradients are scaled down to it"
    ),
    "label_bound": "pass a public bound on the size of a label; larger ones are clipped to it",
}
"""What each public bound is, for whoever forgot it."""

"""What a user sets and the chosen method does not read is refused: it would be ignored without a word.

A parameter counts as read where the way to a plan (`Estimator._method`) asks the estimator for it, and then the method
its statement, if the statement has it. Where ``"auto"`` chose a method that does not read it and others do, that is a
warning: statements about the data are what it chooses by.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product
from typing import Any, ClassVar, Protocol

from sklearn.base import clone

from dpdist.errors import BudgetError, DataError, DpdistError, MissingBound, did_you_mean, warn_caller
from dpdist.method import Choice, Method, Public, noting

Read = Collection[tuple[type, str]]


class Chooses(Protocol):
    """What has to be known of an estimator: what it offers, what all estimators share, what it may suppose."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    offers: ClassVar[Mapping[str, Mapping[str, type[Choice]]]]
    common: ClassVar[frozenset[str]]
    supposing: ClassVar[Mapping[str, Any]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters."""


MOST_NAMED = 3
"""So many ways to have a parameter read are named."""


def refuse_unread(model: Chooses, public: Public, method: Method, read: Read) -> None:
    """Refuse parameters that differ from their defaults and were not read."""
    for name, value in _set_by_user(model):
        if _is_read(name, model, method, read):
            continue
        chosen = ", ".join(f"{owner}={getattr(model, owner)!r}" for owner in model.offers)
        known = _readers(name, model, public)
        says = f"{name}={value!r} has nobody to read it" + f" with {chosen}" * bool(chosen)
        if known and getattr(model, method.parameter, None) == "auto":
            warn_caller(f"{says}, which became {method.name!r}: {method.reason}. It is read with {' or '.join(known)}")
            continue
        raise BudgetError(f"{says}: leave it out" + f", or choose {' or '.join(known)}" * bool(known))


def refuse_beside(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What ``fit`` reads beside rows and labels, of what it was ``given``; the rest is refused.

    ``sample_weight=None`` is what scikit-learn's tools pass where there are no weights.

    Raises
    ------
    DataError
        For weights of single rows, which scikit-learn's estimators take.
    TypeError
        For anything else, as Python does.
    """
    kind: type = type(model)
    known = _beside(kind)
    if given.get("sample_weight") is not None:
        instead = "; classes are weighed by class_weight={...}, public numbers" * hasattr(model, "class_weight")
        raise DataError(
            f"{kind.__name__} takes no sample_weight: the weight of a row is data about that row, and the bound that "
            f"it would need multiplies the noise of all. Leave it out{instead}"
        )
    for name in given:
        if name not in [*known, "sample_weight"]:
            near, own = did_you_mean(name, known), name in model.get_params(deep=False)
            hint = f": write {kind.__name__}({name}=...)" if own else f"; {near}" if near else ""
            raise TypeError(f"{kind.__name__}.fit takes {' and '.join(['X, y', *known])}, and no {name!r}{hint}")
    return {name: value for name, value in given.items() if name in known}


@functools.cache
def _beside(kind: type) -> list[str]:
    """The parameters by name of ``fit``; a subclass of a user may pass to it what its own does not take."""
    fits = [vars(each)["fit"] for each in kind.__mro__ if "fit" in vars(each)]
    named = [each for fit in fits for each in inspect.signature(fit).parameters.values()]
    return list(dict.fromkeys(each.name for each in named if each.kind is each.KEYWORD_ONLY))


def _set_by_user(model: Chooses) -> Iterator[tuple[str, Any]]:
    defaults = _defaults(type(model))
    for name, value in model.get_params(deep=False).items():
        default = defaults[name]
        same = value is default or (isinstance(value, str | numbers.Number) and value == default)
        if name not in model.common and not same:
            yield name, value


@functools.cache
def _defaults(kind: type) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


def _is_read(name: str, model: Chooses, method: Method, read: Read) -> bool:
    statement = method.statement
    stated = dataclasses.is_dataclass(statement) and name in {f.name for f in dataclasses.fields(statement)}
    asked = (type(statement), name) in read or name in method.solves_with
    return (type(model), name) in read and (asked or not stated)


def _readers(name: str, model: Chooses, public: Public) -> list[str]:
    """What to choose so that a parameter of the statement is read: one other object, or where that is none, two."""
    missing = {k: v for k, v in model.supposing.items() if getattr(model, k) is None}
    offers = [[(owner, kind) for kind in offered] for owner, offered in model.offers.items()]
    singles = [(pick,) for picks in offers for pick in picks]
    pairs = [pair for some, others in combinations(offers, 2) for pair in product(some, others)]
    for picks in (singles, pairs):
        found = [pick for pick in picks if _would_read(name, model, public, {**missing, **dict(pick)})]
        if found:
            return [" with ".join(f"{owner}={kind!r}" for owner, kind in pick) for pick in found[:MOST_NAMED]]
    return []


def _would_read(name: str, model: Chooses, public: Public, choices: Mapping[str, Any]) -> bool:
    other = clone(model).set_params(**choices)
    try:
        other._check_parameters()
        with noting() as read:
            try:
                method = other._decided(public)
                method.lines()
            except MissingBound:  # of another parameter, which can be passed
                return any(read_name == name for kind, read_name in read if kind is not type(other))
    except DpdistError:
        return False
    return _is_read(name, other, method, read)

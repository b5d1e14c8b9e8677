"""Parameters that are objects with parameters of their own: ``solver=FrankWolfe(n_rounds=40)``.

A name is the object with its defaults. ``set_params(solver__n_rounds=40)`` puts another object in the place of the old
one, because these are frozen: scikit-learn would set the attribute of the old one. What nobody reads is refused, with
who would read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, clone

from dpdist.errors import BudgetError, did_you_mean
from dpdist.method import Choice

Offered = Mapping[str, type[Choice]]
"""What a parameter may be, by name."""


def chosen(parameter: str, value: Any, offered: Offered, auto: bool = True) -> Any:
    """The object that a parameter stands for; ``"auto"`` stays, for the estimator to decide, if it can.

    Raises
    ------
    BudgetError
        For a name that is not known, and for an object of another kind.
    """
    if isinstance(value, str):
        if value == "auto" and auto:
            return value
        if value in offered:
            return offered[value]()
        names = ", ".join(map(repr, ["auto", *offered] if auto else offered))
        hint = f"{did_you_mean(value, offered)} choose one of {names}".lstrip()
        raise BudgetError(f"{parameter}={value!r} is not known; {hint}")
    if not isinstance(value, tuple(offered.values())):
        hint = f"; write {value.__name__}()" if isinstance(value, type) and value in offered.values() else ""
        if isinstance(value, Choice) and type(value).parameter:
            hint = f", which is for {type(value).parameter}="
        raise BudgetError(
            f"{parameter} takes a name or an object: {_names(offered)}, or for example {_example(offered)}; got "
            f"{value!r}{hint}"
        )
    made: Any = value
    for field in dataclasses.fields(made):
        given = getattr(made, field.name)
        if field.metadata.get("decided") and (type(given) is not type(field.default) or given != field.default):
            raise BudgetError(
                f"{parameter}={type(made).__name__}({field.name}=...): a fit decides {field.name}, and would not read "
                f"it from there; leave it out. {type(made).__name__} has "
                f"{', '.join(made.parameters()) or 'no parameters'}"
            )
    return value


def readers(parameter: str, offered: Offered) -> list[str]:
    """The classes that have a parameter of that name."""
    return sorted({kind.__name__ for kind in offered.values() if parameter in kind.parameters()})


class ChoosesObjects(BaseEstimator):
    """An estimator some of whose parameters are objects, which `get_params` looks into and `set_params` replaces.

    Attributes
    ----------
    offers : mapping
        What each of these parameters may be.
    """

    offers: ClassVar[Mapping[str, Offered]] = {}
    _names: ClassVar[tuple[str, ...]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse a parameter that belongs to one of the objects in words that say so."""
        known = cls._get_param_names()
        for name in kwargs:
            if name not in known:
                raise TypeError(cls._lacks(name, kwargs[name]))
        made: Self = super().__new__(cls)
        return made

    @classmethod
    def _get_param_names(cls) -> list[str]:
        if "_names" not in vars(cls):  # scikit-learn reads the signature anew whenever it is asked
            cls._names = tuple(super()._get_param_names())
        return list(cls._names)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters; with ``deep`` those of objects as well, as ``solver__n_rounds``."""
        found: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            for name, value in list(found.items()):
                found |= {f"{name}__{field}": getattr(value, field) for field in _fields(value)}
        return found

    def set_params(self, **params: Any) -> ChoosesObjects:
        """Set parameters, all of them or, where one is refused, none; those of objects after plain ones."""
        rehearsal = type(self).__new__(type(self))
        for name, value in vars(self).items():
            rehearsal.__dict__[name] = clone(value, safe=False) if isinstance(value, BaseEstimator) else value
        rehearsal._set(params)
        self._set(params)
        return self

    def _set(self, params: Mapping[str, Any]) -> None:
        plain = {name: value for name, value in params.items() if "__" not in name}
        for name, value in plain.items():
            if name not in self._get_param_names():
                raise BudgetError(self._lacks(name, value))
        nested: dict[str, dict[str, Any]] = {}
        others = {}
        for name, value in params.items():
            owner, _, field = name.partition("__")
            if not field:
                continue
            present = plain.get(owner, getattr(self, owner, None))
            if self.offered(owner) or _fields(present):
                nested.setdefault(owner, {})[field] = value
            elif owner in self._get_param_names() and not hasattr(present, "set_params"):
                raise BudgetError(
                    f"{name}={value!r} has nobody to read it while {owner}={present!r}: set {owner} to an object that "
                    f"has a parameter {field!r} first"
                )
            else:
                others[name] = value
        super().set_params(**plain, **others)
        for owner, fields in nested.items():
            setattr(self, owner, self._replaced(owner, fields))

    def offered(self, parameter: str) -> Offered:
        """What a parameter may be, where that depends on others; empty for one that is no object."""
        return self.offers.get(parameter, {})

    def _replaced(self, owner: str, fields: Mapping[str, Any]) -> Any:
        offered = self.offered(owner)
        value = getattr(self, owner)
        name = next(iter(fields))
        if isinstance(value, str) and value == "auto":
            known = readers(name, offered)
            which = f"it belongs to {', '.join(known)}" if known else f"none of {_names(offered)} has it"
            raise BudgetError(
                f"{owner}__{name}={fields[name]!r} has nobody to read it while {owner}='auto': {which}. Set {owner} "
                "first"
            )
        value = chosen(owner, value, offered) if offered else value
        for name in fields:
            if isinstance(value, Choice) and name not in value.parameters():
                raise BudgetError(f"{owner}__{name}: {value.lacks(name)}")
            if name not in _fields(value):
                own = list(_fields(value))
                near = did_you_mean(name, own)
                end = f"; {near}" if near else "."
                raise BudgetError(
                    f"{owner}__{name}: {type(value).__name__} has no parameter {name!r}{end} It has "
                    f"{', '.join(own) or 'none'}"
                )
        return dataclasses.replace(value, **fields)

    @classmethod
    def _lacks(cls, name: str, value: Any) -> str:
        """That there is no parameter of that name, and where it would be set, or what was probably meant."""
        says, own = cls._who_reads(name, value), cls._get_param_names()
        hint = f": {says}" if says else f"; {did_you_mean(name, own) or 'it has ' + ', '.join(own)}"
        return f"{cls.__name__} has no parameter {name!r}{hint}"

    @classmethod
    def _who_reads(cls, name: str, value: Any) -> str:
        """Where a parameter that is not the estimator's own would be set; empty where nowhere."""
        if name in getattr(cls, "__dataclass_fields__", ()):
            return f"its {name} is fixed"
        for owner, offered in cls.offers.items():
            known = readers(name, offered)
            if known:
                more = f" (or of {', '.join(known[1:])})" if len(known) > 1 else ""
                return f"it belongs to {owner}; write {owner}={known[0]}({name}={value!r}){more}"
        return ""


def _fields(value: Any) -> Iterable[str]:
    """The parameters of an object, if it is one of ours."""
    if isinstance(value, Choice):
        return value.parameters()
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and "tag" in vars(type(value)):
        return [f.name for f in dataclasses.fields(value) if f.init]
    return ()


def _names(offered: Offered) -> str:
    return ", ".join(map(repr, offered))


def _example(offered: Offered) -> str:
    kind = next((kind for kind in offered.values() if kind.parameters()), next(iter(offered.values())))
    return f"{kind.__name__}({', '.join(f'{name}=...' for name in list(kind.parameters())[:1])})"

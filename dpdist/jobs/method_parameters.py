"""What a method leaves to set: the parameters of its estimator and of the objects among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpdist.jobs.kinds import Kind, object_of, parameters_of, shown
from dpdist.jobs.registry import OWNED_BY_OTHER_KEYS, RegisteredMethod, estimator_class
from dpdist.jobs.yaml_lines import Entry

if TYPE_CHECKING:
    from dpdist.method import Choice


def free_parameters(method: RegisteredMethod, estimator: str) -> dict[str, Kind]:
    """What a job may set under ``params``, and the kinds of the values."""
    cls = estimator_class(estimator)
    taken = {*OWNED_BY_OTHER_KEYS, *method.parameters} - set(offers(cls))
    return {name: kind for name, kind in parameters_of(cls).items() if name not in taken}


def offers(estimator: type, method: RegisteredMethod | None = None) -> Mapping[str, Mapping[str, type[Choice]]]:
    """The parameters of an estimator that are objects, and what each may be (for a method, where that matters)."""
    found: Mapping[str, Mapping[str, type[Choice]]] = getattr(estimator, "offers", {})
    if method is None or not found:
        return found
    model: Any = estimator(**{name: value for name, value in method.parameters.items() if name not in found})
    return {name: model.offered(name) for name in found}


def fixed_parameters(method: RegisteredMethod, estimator: type) -> dict[str, Any]:
    """The parameters that make an estimator this method, objects made."""
    objects = offers(estimator, method)
    return {
        name: object_of(value, objects[name]) if isinstance(value, Mapping) and name in objects else value
        for name, value in method.parameters.items()
    }


def belongs(
    name: str, entry: Entry, objects: Mapping[str, Mapping[str, type[Choice]]], method: RegisteredMethod
) -> str:
    """Where a parameter of one of the objects is written; empty where none has it."""
    for owner, offered in objects.items():
        fixed = method.parameters.get(owner)
        if fixed == "auto":
            continue
        for kind in offered.values() if fixed is None else [type(object_of(fixed, offered))]:
            if name in kind.parameters():
                value = f"{{{name}: {shown(entry.value)}}}"
                return f"it belongs to {owner}; write {owner}: {value if fixed else f'{{{kind.__name__}: {value}}}'}"
    return ""


def of_another(name: str, method: RegisteredMethod) -> str:
    """Which other estimator of the method reads a parameter; empty where none does, or where there is no other."""
    others = [other for other in method.estimators[1:] if name in free_parameters(method, other)]
    if not others:
        return ""
    return (
        f"{method.id} fits {method.estimators[0]} where the job names no estimator, and {', '.join(others)} would read "
        f"it: write estimator: {others[0]}"
    )

"""The published JSON Schemas (2020-12) of jobs and of results.

``schemas/*.json`` hold what does not depend on which methods there are. `schema` fills in the methods, generators,
estimators, losses, penalties and constraints of the installed version, from the same tables that the loader uses, so
that an editor or a scheduler can check a job without dpdist. A schema can't say all: whether a bound is missing, the
estimator knows.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpdist.errors import DpdistError
from dpdist.jobs.following import made_of_moments, releases_moments
from dpdist.jobs.kinds import OBJECTS, Kind, classes, kind_of, object_of, parameters_of
from dpdist.jobs.method_parameters import offers
from dpdist.jobs.registry import (
    ALIASES,
    AUTO,
    ESTIMATORS,
    METHODS,
    OWNED_BY_OTHER_KEYS,
    RegisteredMethod,
    estimator_class,
)
from dpdist.jobs.sections import PASSWORD, STORES, of_another_kind, problem_kind
from dpdist.losses import LOSSES
from dpdist.problems.catalog import PROBLEMS

if TYPE_CHECKING:
    from dpdist.method import Choice

NAMES = ("job", "run")


def schema(name: str) -> dict[str, Any]:
    """A published schema by its name, complete for this version.

    Examples
    --------
    >>> schema("job")["properties"]["method"]["enum"][:2]
    ['dp-gd', 'dp-agd']
    """
    if name not in NAMES:
        raise DpdistError(f"there is no schema {name!r}; expected one of: {', '.join(NAMES)}")
    text = importlib.resources.files("dpdist.jobs").joinpath("schemas", f"{name}.schema.json").read_text("utf-8")
    found = json.loads(text)
    if name == "job":
        _fill_in(found)
    return found


def _fill_in(job: dict[str, Any]) -> None:
    job["properties"]["method"]["enum"] = [*METHODS, *ALIASES, AUTO]
    for name in STORES:
        job["properties"][name]["not"] = {"type": "string", "pattern": f"{PASSWORD}|{of_another_kind(name)}"}
    defs = job["$defs"]
    common = defs.pop("generated")
    defs |= {f"data-{name}": _generator(common, name, problem.parameters) for name, problem in PROBLEMS.items()}
    defs |= _objects()
    defs |= {f"params-{name}": _params(name) for name in ESTIMATORS}
    job["properties"]["data"]["oneOf"] = [{"$ref": f"#/$defs/data-{name}"} for name in PROBLEMS]
    job["properties"]["data"]["oneOf"].append({"$ref": "#/$defs/stored"})
    job["allOf"] = [
        {"if": _says("estimator", [name]), "then": {"properties": {"params": {"$ref": f"#/$defs/params-{name}"}}}}
        for name in ESTIMATORS
    ]
    job["allOf"] += [_method(method) for method in METHODS.values()]
    job["allOf"].append(_then())
    job["allOf"].append({"if": _says("method", [AUTO]), "then": _automatic()})


def _says(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"properties": {key: {"enum": list(values)}}, "required": [key]}


def _automatic() -> dict[str, Any]:
    """The estimator, which has to be named."""
    return {"required": ["estimator"], "properties": {"estimator": {"enum": list(ESTIMATORS)}}}


def _method(method: RegisteredMethod) -> dict[str, Any]:
    """Its estimators, the parameters it fixes, and whether it needs a delta."""
    number = {"$ref": "#/$defs/number"}
    none = {"anyOf": [{"const": 0}, {"type": "null"}]}
    budgets: dict[str, dict[str, Any]] = {
        "epsilon": {"properties": {"delta": none}},
        "(epsilon, delta)": {"properties": {"delta": {**number, "exclusiveMinimum": 0}}, "required": ["delta"]},
        "either": {},
    }
    properties = {
        "estimator": {"enum": [*method.estimators, None]},
        "params": _fixed(method),
        "budget": budgets[method.guarantee],
    }
    default = {"params": {"$ref": f"#/$defs/params-{method.estimators[0]}"}}
    estimators = [
        {"required": ["estimator"], "properties": {"estimator": {"type": "string"}}},
        {"properties": default},
    ]
    names = [method.id, *method.aliases]
    return {"if": _says("method", names), "then": {"properties": properties, "anyOf": estimators}}


def _then() -> dict[str, Any]:
    """What may follow an estimator that releases second moments, and that nothing may follow another one."""
    rules, moments = [], []
    for estimator in filter(releases_moments, ESTIMATORS):
        methods = [method for method in METHODS.values() if method.estimators[0] == estimator]
        ids = [name for method in methods for name in (method.id, *method.aliases)]
        moments.append({"anyOf": [_says("method", ids), _says("estimator", [estimator])]})
        known = made_of_moments(methods[0].trust)
        may = {
            "properties": {name: _following(method) for name, method in known.items()},
            "additionalProperties": False,
        }
        rules.append({"if": moments[-1], "then": {"properties": {"then": may}}})
    nothing = {"properties": {"then": {"maxProperties": 0}}}
    rules.append({"if": {"not": {"anyOf": moments}}, "then": nothing})
    return {"allOf": rules}


def _following(method: RegisteredMethod) -> dict[str, Any]:
    """Its parameters, without those of the release."""
    cls: Any = estimator_class(method.estimators[0])
    values = {**_params(method.estimators[0]), "additionalProperties": False}
    values["properties"] = {name: value for name, value in values["properties"].items() if name in cls.of_answer}
    return {"allOf": [values, _fixed(method)]}


def _fixed(method: RegisteredMethod) -> dict[str, Any]:
    """What a job may not set, and what it may set of an object whose kind the method fixes."""
    objects = offers(estimator_class(method.estimators[0]), method)
    fixed = {name: value for name, value in method.parameters.items() if name in objects}
    kinds = {name: type(object_of(value, objects[name])) for name, value in fixed.items() if value != "auto"}
    taken = [name for name in method.parameters if name not in kinds]
    rules: dict[str, Any] = {"propertyNames": {"not": {"enum": taken}}}
    rules["properties"] = {name: {"anyOf": [_choice_fields(kind), _choice(kind)]} for name, kind in kinds.items()}
    return rules


def _choice(kind: type[Choice]) -> dict[str, Any]:
    """``{FrankWolfe: {n_rounds: 40}}``."""
    accepted = [_choice_fields(kind), {"type": "null"}]
    one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", "properties": {kind.__name__: {"anyOf": accepted}}, **one}


def _choice_fields(kind: type[Choice]) -> dict[str, Any]:
    """``{n_rounds: 40}``."""
    fields = {name: _value(kind_of(field.type)) for name, field in kind.parameters().items()}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _generator(common: dict[str, Any], name: str, keys: Any) -> dict[str, Any]:

    free = {key: _or_null(_value(problem_kind(default))) for key, default in keys.items()}
    known = {key: _or_null(value) for key, value in common["properties"].items() if key in keys}
    own = {"generate": {"const": name}, "path": {"type": "null"}}
    return {**common, "properties": {**free, **known, **own}, "additionalProperties": False}


def _params(estimator: str) -> dict[str, Any]:
    """What a job may set of an estimator."""

    kinds = parameters_of(estimator_class(estimator))
    values = {name: _value(kind) for name, kind in kinds.items() if name not in OWNED_BY_OTHER_KEYS}
    for name, offered in offers(estimator_class(estimator)).items():
        # a method may fix the kind, so that its parameters alone are written; `_fixed` says which then
        objects = [form for kind in offered.values() for form in (_choice(kind), _choice_fields(kind))]
        values[name] = {"anyOf": [{"enum": [*offered, "auto"]}, {"type": "null"}, *objects]}
    return {"type": ["object", "null"], "properties": values, "additionalProperties": False}


def _objects() -> dict[str, Any]:
    """Losses, penalties and constraints, each written as ``{Name: value}`` or ``{Name: {field: value}}``."""

    found = {}
    for family in OBJECTS:
        properties = {name: _arguments(cls) for name, cls in classes(family).items()}
        one = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
        found[family] = {"type": "object", "properties": properties, **one}
    return found


def _arguments(cls: Any) -> dict[str, Any]:

    fields = {f.name: _value(kind_of(f.type)) for f in dataclasses.fields(cls)}
    required = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
    accepted: list[Any] = [
        {"type": "object", "properties": fields, "required": required, "additionalProperties": False},
    ]
    if fields and required in ([], list(fields)[:1]):
        accepted.append(next(iter(fields.values())))
    if not required:
        accepted.append({"type": "null"})
    return {"anyOf": accepted}


def _value(kind: Kind) -> dict[str, Any]:

    forms: dict[str, dict[str, Any]] = {
        "number": {"$ref": "#/$defs/number"},
        "whole": {"$ref": "#/$defs/whole"},
        "truth": {"type": "boolean"},
        "text": {"enum": list(LOSSES)} if "loss" in kind else {"type": "string"},
        "list": {"type": "array", "items": {"type": ["number", "string", "boolean"]}},
        "numbers": {"type": "array", "items": {"$ref": "#/$defs/number"}},
        "none": {"type": "null"},
        **{family: {"$ref": f"#/$defs/{family}"} for family in OBJECTS},
    }
    if "any" in kind:
        return {}
    accepted = [form for name, form in forms.items() if name in kind]
    return accepted[0] if len(accepted) == 1 else {"anyOf": accepted}


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [value, {"type": "null"}]}

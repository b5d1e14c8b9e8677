"""Which method ``method: auto`` became: the registered one that fixes what the estimator decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpdist.jobs.job import Job
from dpdist.jobs.job_data import Size
from dpdist.jobs.registry import AUTO, METHODS, RegisteredMethod
from dpdist.method import Choice, Method


def chosen_method(job: Job, model: Any, size: Size) -> tuple[RegisteredMethod, str | None]:
    """The method of a job, and where it says ``method: auto`` why it is this one.

    Of several that fix what was decided it is the one that fixes most. Where there is none, the id stays ``auto``, and
    the title names what was decided.
    """
    if job.method.id != AUTO:
        return job.method, None
    decided = model.decided(size.n_rows, size.n_features, size.units)
    pure = model.plan(size.n_rows, size.n_features, size.units).spent.delta == 0
    fitting = [
        method
        for method in METHODS.values()
        if job.estimator in method.estimators
        and method.guarantee in ("either", "epsilon" if pure else "(epsilon, delta)")
        and _fixes(method, decided, model)
    ]
    if not fitting:
        names = [getattr(_found(name, decided, model), "name", "") for name in model.offers]
        said = ", ".join(filter(None, names)) or decided.name
        return replace(job.method, title=f"What the estimator chose ({said})"), decided.reason
    return max(fitting, key=_fixed), decided.reason


def _fixed(method: RegisteredMethod) -> tuple[int, int, bool]:
    """How much makes a method what it is."""
    fields = sum(
        len(values) for fixed in method.parameters.values() if isinstance(fixed, Mapping) for values in fixed.values()
    )
    return len(method.needs), len(method.parameters) + fields, method.convex is not None


def _fixes(method: RegisteredMethod, decided: Method, model: Any) -> bool:
    """Whether everything that makes a registered method is so."""
    default = type(model)()
    left = decided.parameter not in (*method.parameters, *method.needs) and hasattr(model, decided.parameter)
    if left and getattr(model, decided.parameter) != getattr(default, decided.parameter):
        return False  # what the method leaves to the estimator was asked for
    if method.convex is not None and decided.statement.loss.convex != method.convex:
        return False
    alike = (_is(_found(name, decided, model), fixed) for name, fixed in method.parameters.items())
    given = (getattr(model, name) not in (None, getattr(default, name)) for name in method.needs)
    return all(alike) and all(given)


def _found(name: str, decided: Method, model: Any) -> Any:
    """What a parameter of the estimator has become."""
    if name == decided.parameter:
        return decided
    stated = getattr(decided.statement, name, None)
    return stated if isinstance(stated, Choice) else getattr(model, name)


def _is(found: Any, fixed: Any) -> bool:
    if not isinstance(found, Choice):
        return bool(found == fixed)
    ((name, values),) = fixed.items() if isinstance(fixed, Mapping) else ((fixed, {}),)
    return name == "auto" or (found.name == name and all(_has(found, *each) for each in values.items()))


def _has(found: Choice, field: str, fixed: Any) -> bool:
    """Whether a field is as fixed; what is averaged follows from the rows, which are fixed beside it."""
    has = getattr(found, field, None)
    return bool(has == fixed) or (field == "combine" and has == "auto")

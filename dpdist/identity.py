"""What a release, a plan and a simulated stream are named by: tags that never change, and public parameters.

A class whose objects take part in a name has a ``tag``, a short text that is its own and stays when the class is
renamed; a field that is renamed keeps its old name as ``field(metadata={"stored": "old_name"})``, and one that is added
counts only where it is not its default (``field(metadata=ADDED)``), so that what was named before keeps its name.
Nothing here looks at a class name or at a ``repr``. Equal parameters have one name however they were written: 1, 1.0
and ``np.float64(1)`` are one number where a parameter is a float.

Only public parameters come here. An array counts by its type, shape and SHA-256; that would tell a private one from
its neighbour, so no query and no mechanism holds one.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dpdist.errors import BudgetError

ADDED: Mapping[str, Any] = MappingProxyType({"added": True})
"""Metadata of a field whose default stands for what was done before there was one."""


_PLAIN = frozenset((float, int, str, bool, type(None)))


class NotNamed(BudgetError):
    """A parameter that has no lasting name, so that a run with it could not be told from another."""


def tagged(tag: str) -> Callable[[Any], Any]:
    """Name a function, so that a run which uses it can be resumed.

    Examples
    --------
    >>> @tagged("first-coefficient")
    ... def first(model):
    ...     return model.coef_[:1]
    >>> text(first)
    "tagged('first-coefficient')"
    """
    if not (isinstance(tag, str) and tag and tag.isprintable()):
        raise BudgetError(f"a tag is a short text that never changes, got {tag!r}")

    def name(function: Any) -> Any:
        function.tag = tag
        return function

    return name


def tag_of(value: Any) -> str:
    """The tag of an object's class: its own, because one that is inherited would name two classes alike."""
    kind = type(value)
    tag = vars(kind).get("tag")
    if not isinstance(tag, str):
        raise NotNamed(
            f"{kind.__name__} has no tag of its own: give the class one, a short text that never changes, for example "
            f'tag: ClassVar[str] = "{kind.__name__}"'
        )
    return tag


def text(value: Any) -> str:
    """A value as text, ``Tag(parameter=1.0, ...)``: what names releases and simulated streams.

    Examples
    --------
    >>> from dpdist.losses import Huber
    >>> text(Huber(2)), text(Huber(np.float64(2)))
    ('Huber(threshold=2.0)', 'Huber(threshold=2.0)')
    """
    if type(value) in _PLAIN:  # most of what a name is made of
        return repr(value)
    if _is_record(value):
        return f"{tag_of(value)}({', '.join(f'{name}={text(below)}' for name, below in parameters(value))})"
    if isinstance(value, tuple | list):
        items = [text(below) for below in value]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.str}, {value.shape}, {_digest(value)})"
    if callable(value):
        return f"tagged({_function_tag(value)!r})"
    if isinstance(value, str):
        return repr(str(value))
    if value is None or isinstance(value, bool | enum.Enum):
        return repr(value)
    return repr(_number(value))


def plain(value: Any) -> Any:
    """A value as plain JSON, floats as hexadecimal text: what plans and methods are identified by.

    Examples
    --------
    >>> from dpdist.constraints import L2Ball
    >>> plain(L2Ball(1)) == plain(L2Ball(1.0)) == {"type": "L2Ball", "radius": (1.0).hex()}
    True
    """
    if _is_record(value):
        return {"type": tag_of(value), **{name: plain(below) for name, below in parameters(value)}}
    if isinstance(value, tuple | list):
        return [plain(below) for below in value]
    if isinstance(value, np.ndarray):
        return {"type": "array", "dtype": value.dtype.str, "shape": list(value.shape), "sha256": _digest(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if callable(value):
        return {"type": "tagged", "tag": _function_tag(value)}
    if value is None or isinstance(value, str | bool):
        return value
    number = _number(value)
    return number.hex() if isinstance(number, float) else number


def _is_record(value: Any) -> bool:
    return hasattr(type(value), "__dataclass_fields__")


def parameters(value: Any) -> Iterator[tuple[str, Any]]:
    """Stored names and values of the parameters of an object, a dataclass.

    Fields that follow from others (``init=False``) or from the state that is asked (``metadata={"named": False}``) are
    none, nor are those that were added since and have their default. A class whose parameters are not its fields says
    by ``named_by`` what they are.
    """
    if hasattr(value, "named_by"):
        yield from value.named_by()
        return
    kind: Any = type(value)
    for field, stored, annotation in _named_fields(kind):
        given = getattr(value, field.name)
        if not (field.metadata.get("added") and given == field.default):
            yield stored, coerced(given, annotation)


@functools.cache
def _named_fields(kind: type) -> list[tuple[dataclasses.Field[Any], str, str]]:
    """The parameters of a class: each release is named by those of a query, and each plan by those of all its lines."""
    fields = (field for field in dataclasses.fields(kind) if field.init and field.metadata.get("named", True))
    return [(field, stored_name(field), str(field.type)) for field in fields]


def stored_name(field: dataclasses.Field[Any]) -> str:
    """What a field is called where names are kept: as it was called first."""
    return str(field.metadata.get("stored", field.name))


def coerced(value: Any, annotation: str) -> Any:
    """A whole number as a float where the parameter is one, so that equal parameters have one name."""
    if not _is_float(annotation):
        return value
    if isinstance(value, tuple):
        return tuple(coerced(below, annotation) for below in value)
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return float(value) if whole else value


@functools.cache
def _is_float(annotation: str) -> bool:
    words = set(re.findall(r"\w+", annotation))
    return "float" in words and "int" not in words


def _number(value: Any) -> int | float:
    if isinstance(value, np.bool_):
        return bool(value)
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, float | np.floating):
        return float(value)
    raise NotNamed(
        f"a run is named by plain public parameters (numbers, texts, arrays, objects and functions with a tag), got a "
        f"{type(value).__name__}"
    )


def _function_tag(function: Any) -> str:
    tag = getattr(function, "tag", None)
    if not isinstance(tag, str):
        name = getattr(function, "__qualname__", type(function).__name__)
        raise NotNamed(f"the function {name} has no tag: name it with @dpdist.identity.tagged('a-name-that-stays')")
    return tag


def _digest(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.hasobject:
        raise NotNamed("an array of Python objects has no lasting name: pass numbers")
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()

"""What a key of a job may hold: kinds of values, read off the annotations of an estimator's parameters.

A kind is a set of words: ``number``, ``whole``, ``truth``, ``text``, ``list``, ``numbers`` (a list of them), ``none``,
``any``, and ``loss``, ``penalty``, ``constraint`` for objects written as ``{ElasticNet: 1.0e-4}`` or
``{Box: {low: -1, high: 1}}``. One description serves the loader and the published schema. Whether a value is in range
is for the estimator to say.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpdist import constraints, losses
from dpdist.jobs.yaml_lines import Entry, Problem, nearest, number

if TYPE_CHECKING:
    from dpdist.method import Choice

Kind = frozenset[str]

_WORDS = {
    "float": "number",
    "int": "whole",
    "bool": "truth",
    "str": "text",
    "None": "none",
    "Sequence": "list",
    "list": "list",
    "tuple": "list",
    "Loss": "loss",
    "Penalty": "penalty",
    "SmoothPenalty": "penalty",
    "Sequence[float]": "numbers",
    "Constraint": "constraint",
}
_SAID = {
    "number": "a number",
    "whole": "a whole number",
    "truth": "true or false",
    "text": "a text",
    "list": "a list",
    "numbers": "a list of numbers",
    "loss": "a loss such as {Huber: {threshold: 1.0}}",
    "penalty": "a penalty such as {ElasticNet: 1.0e-4}",
    "constraint": "a constraint such as {L2Ball: 10.0}",
    "none": "null",
}
_NUMBER = frozenset({"number"})
OBJECTS = ("loss", "penalty", "constraint")
_METHODS = {"loss": {"derivative"}, "penalty": {"prox", "gradient"}, "constraint": {"project"}}


@functools.cache
def classes(family: str) -> Mapping[str, type]:
    """The built-in classes of a family: what can be written as ``{Name: ...}``.

    Examples
    --------
    >>> sorted(classes("penalty"))
    ['ElasticNet', 'GemanMcClure', 'Quartic']
    """
    return {
        name: thing
        for name, thing in vars(losses if family == "loss" else constraints).items()
        if isinstance(thing, type) and dataclasses.is_dataclass(thing) and not inspect.isabstract(thing)
        if _METHODS[family] & set(dir(thing))
    }


def kind_of(annotation: Any, default: Any = inspect.Parameter.empty) -> Kind:
    """The kind of a parameter, from its annotation (a text) or else from its default.

    Examples
    --------
    >>> sorted(kind_of("float | None")), sorted(kind_of("str | Loss")), sorted(kind_of("Any"))
    (['none', 'number'], ['loss', 'text'], ['any'])
    """
    if annotation is inspect.Parameter.empty:
        if default is None or default is inspect.Parameter.empty:
            return frozenset({"any", "none"})
        annotation = type(default)
    if isinstance(annotation, type):
        annotation = annotation.__name__
    parts = [part.strip() for part in _alternatives(str(annotation))]
    words = {_WORDS.get(part, _WORDS.get(part.split("[")[0], "any")) for part in parts}
    return frozenset(words | ({"none"} if default is None else set()))


def _alternatives(annotation: str) -> list[str]:
    """The parts of ``A | B[C | D]`` between the bars outside of brackets."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parameters_of(callable_: Any) -> dict[str, Kind]:
    """The named parameters of a class or function and their kinds."""
    found = inspect.signature(callable_).parameters.values()
    return {p.name: kind_of(p.annotation, p.default) for p in found if p.kind is not p.VAR_KEYWORD}


def said(kind: Kind) -> str:
    """A kind in words.

    Examples
    --------
    >>> said(kind_of("float | None"))
    'a number or null'
    """
    return " or ".join(words for name, words in _SAID.items() if name in kind)


def shown(value: Any) -> str:
    """A value in a message, cut to a readable length."""
    if isinstance(value, dict):
        return f"the mapping {{{', '.join(map(str, list(value)[:3]))}{', ...' if len(value) > 3 else ''}}}"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def object_of(fixed: str | Mapping[str, Any], offered: Mapping[str, type[Choice]]) -> Choice:
    """The object that a method fixes: by its name, or as ``{name: {parameter: value}}``."""
    ((name, values),) = {fixed: {}}.items() if isinstance(fixed, str) else fixed.items()
    return offered[name](**values)


class Reader:
    """Turns entries into values of a kind, and collects what is wrong with them.

    `read` gives None for a value that cannot be used: look at ``problems`` before using what was read.
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def add(self, key: str, where: str, text: str) -> Any:
        """Note a problem; returns None, the value of what cannot be used."""
        self.problems.append(Problem(key, where, text))
        return None

    def read(self, entry: Entry, key: str, kind: Kind) -> Any:
        """The value of an entry as one of ``kind``."""
        value, anything = entry.value, "any" in kind
        if entry.refused:
            return None
        if value is None and ("none" in kind or anything):
            return None
        if isinstance(value, bool):
            if "truth" in kind or (anything and not _is_word(entry)):
                return value
            got = _word(entry) if _is_word(entry) else f"got {shown(value)}"
            return self.add(key, entry.where, f"expected {said(kind) or 'a value'}, {got}")
        if isinstance(value, str) and ("text" in kind or anything):
            if "loss" in kind and value not in losses.LOSSES:
                return self.add(key, entry.where, f"unknown loss {value!r}; {nearest(value, losses.LOSSES)}")
            return value
        if isinstance(value, int | float | str):
            found = _as_number(value, kind)
            if found is not None:
                return found
        elif isinstance(value, list) and "numbers" in kind:
            return [self.read(item, key, _NUMBER) for item in value]
        elif isinstance(value, list) and ("list" in kind or anything):
            return [self._item(item, key) for item in value]
        elif isinstance(value, dict) and (anything or set(OBJECTS) & kind):
            return self._object(entry, key, kind)
        return self.add(key, entry.where, f"expected {said(kind)}, got {shown(value)}{_hint(value, kind)}")

    def choice(self, entry: Entry, key: str, offered: Mapping[str, type[Choice]], fixed: Any = None) -> Any:
        """The value of a parameter that is a name or an object with parameters of its own.

        Written as ``frank-wolfe``, ``{FrankWolfe: {n_rounds: 40}}`` or, where the method ``fixed`` its kind,
        ``{n_rounds: 40}``.
        """
        value, kinds = entry.value, {kind.__name__: kind for kind in offered.values()}
        present = None if fixed is None else object_of(fixed, offered)
        if present is not None:
            mine = type(present).__name__
            for name in value if isinstance(value, dict) else ():
                if name in kinds and name != mine:
                    text = f"the method fixes its kind at {mine}; write {{{mine}: ...}}, or choose another method"
                    return self.add(f"{key}.{name}", entry.where, text)
            kinds = {mine: type(present)}
        for name in value if isinstance(value, dict) else ():
            if name in offered and (present is None or name not in present.parameters()):
                text = f"{name} is a name; with parameters it is written {offered[name].__name__}: {{...}}"
                return self.add(f"{key}.{name}", value[name].where, text)
        if isinstance(value, dict) and present is not None and not set(value) & set(kinds):
            return self._made(entry, key, type(present), dict(vars(present)))
        if isinstance(value, dict) and len(value) == 1:
            ((name, arguments),) = value.items()
            if name in kinds:
                return self._made(arguments, f"{key}.{name}", kinds[name], {})
            readers = [mine for mine, kind in kinds.items() if name in kind.parameters()]
            text = f"unknown kind {name!r}; {nearest(name, kinds)}"
            if readers:
                made = f"{{{readers[0]}: {{{name}: {shown(arguments.value)}}}}}"
                text = f"it belongs to {', '.join(readers)}; write {made}"
            return self.add(f"{key}.{name}", arguments.where, text)
        names = [*offered, "auto"]
        if isinstance(value, str) and present is None:
            if value in names:
                return value
            return self.add(key, entry.where, f"unknown name {value!r}; {nearest(value, names)}")
        example = next((kind for kind in kinds.values() if kind.parameters()), None)
        shape = (
            "" if example is None else f" such as {{{example.__name__}: {{{next(iter(example.parameters()))}: ...}}}}"
        )
        what = f"one object{shape}" if present is not None else f"a name or one object{shape}"
        return self.add(key, entry.where, f"expected {what}, got {shown(value)}")

    def _made(self, entry: Entry, key: str, kind: type[Choice], present: dict[str, Any]) -> Any:
        """An object of a kind, with what the entry says in the place of what was ``present``."""
        before = len(self.problems)
        values = self._arguments(entry, key, kind, kind.parameters())
        if len(self.problems) > before or entry.has_refused:
            return None
        try:
            return kind(**{name: value for name, value in present.items() if name in kind.parameters()} | values)
        except (ValueError, TypeError, OverflowError) as error:
            name = str(error).partition(" ")[0]  # what an object refuses it names first
            at = entry.value[name] if name in values and isinstance(entry.value, dict) else entry
            return self.add(key if at is entry else f"{key}.{name}", at.where, str(error))

    def _item(self, item: Entry, key: str) -> Any:
        if isinstance(item.value, list | dict) or item.value is None:
            return self.add(key, item.where, f"expected a list of numbers or texts, but it holds {shown(item.value)}")
        if _is_word(item):
            return self.add(key, item.where, f"expected a list of numbers or texts, {_word(item)}")
        return item.value

    def _object(self, entry: Entry, key: str, kind: Kind) -> Any:
        """An instance of the class that ``{Name: arguments}`` names."""
        families = [family for family in OBJECTS if family in kind] or list(OBJECTS)
        known = {name: cls for family in families for name, cls in classes(family).items()}
        if len(entry.value) != 1:
            text = f"expected {said(kind) or 'one {Name: value}'}, one name and its value, got {shown(entry.value)}"
            return self.add(key, entry.where, text)
        ((name, arguments),) = entry.value.items()
        if name not in known:
            other = [family for family in OBJECTS if name in classes(family)]
            what = f"{name} is a {other[0]}, not a {families[0]}" if other else f"unknown {families[0]} {name!r}"
            return self.add(f"{key}.{name}", arguments.where, f"{what}; {nearest(name, known)}")
        before = len(self.problems)
        values = self._arguments(arguments, f"{key}.{name}", known[name])
        if len(self.problems) > before or arguments.has_refused:
            return None
        try:
            return known[name](**values)
        except (ValueError, TypeError, OverflowError) as error:
            return self.add(f"{key}.{name}", arguments.where, str(error))

    def _arguments(self, entry: Entry, key: str, cls: type, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``{Box: {low: -1, high: 1}}`` by name; ``{L2Ball: 10.0}`` is the first field; null takes the defaults."""
        fields = known if known is not None else {f.name: f for f in dataclasses.fields(cls)}
        given = entry.value if isinstance(entry.value, dict) else {}
        if entry.value is not None and not isinstance(entry.value, dict):
            if not fields:
                self.add(key, entry.where, f"{cls.__name__} takes no value; write {cls.__name__}: {{}}")
                return {}
            given = {next(iter(fields)): entry}
        # a choice (`dpdist.method.Choice`) knows whose a parameter is that it lacks
        lacks = getattr(cls, "lacks", lambda name: f"unknown field of {cls.__name__}; {nearest(name, fields)}")
        for name, value in given.items():
            if name not in fields:
                self.add(f"{key}.{name}", value.where, lacks(name))
        for name, field in fields.items():
            if field.default is dataclasses.MISSING and name not in given:
                wanted = ", ".join(f"{f}: ..." for f in fields)
                self.add(f"{key}.{name}", entry.where, f"missing; write {cls.__name__}: {{{wanted}}}")
        return {
            name: self.read(value, f"{key}.{name}", kind_of(fields[name].type))
            for name, value in given.items()
            if name in fields
        }


def _as_number(value: int | float | str, kind: Kind) -> int | float | None:
    """A number of the kind, whichever way it is written; None if it is none."""
    given = number(value) if isinstance(value, str) else value
    if given is None or "any" in kind:
        return given
    try:
        real = float(given)
    except OverflowError:
        return None
    if "whole" in kind and math.isfinite(real) and given == int(given):
        return int(given)
    return real if "number" in kind else None


def _is_word(entry: Entry) -> bool:
    """Whether a truth value was written as a word that may have been meant as a name."""
    return isinstance(entry.value, bool) and entry.raw.lower() not in ("true", "false")


def _word(entry: Entry) -> str:
    return f"but YAML reads {entry.raw} as {shown(entry.value)}; to mean the word, quote it: '{entry.raw}'"


def _hint(value: Any, kind: Kind) -> str:
    if "text" in kind and isinstance(value, int | float):
        return f"; to mean a text, quote it: '{value}'"
    if isinstance(value, str) and value.lower() in ("inf", "+inf", "-inf", "infinity") and "number" in kind:
        return "; infinity is written .inf"
    return ""

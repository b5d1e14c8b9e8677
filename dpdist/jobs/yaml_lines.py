"""YAML that remembers where everything stands, and never guesses what a value is.

PyYAML reads YAML 1.1, in which ``1e-6`` is a string, ``no`` is false, ``010`` is 8 and ``1:30`` is 90. Here ``1e-6`` is
a number, a word such as ``no`` keeps how it was spelled (`Entry.raw`), so that whoever expects a name can refuse it,
and numbers that YAML versions disagree about are problems. Tags, aliases and repeated keys are refused.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpdist.errors import DpdistError, did_you_mean

LARGEST_FILE = 1_000_000
"""Bytes of a job file: more is a data file given by mistake."""
_NUMBER = re.compile(r"[-+]?(([0-9][0-9_]*)(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a job: the dotted key, where it stands, and what was expected."""

    key: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.text}" if self.key else f"{self.where}: {self.text}"


class JobError(DpdistError):
    """A job that cannot be run; ``problems`` holds all that is wrong with it.

    Examples
    --------
    >>> print(JobError("job.yaml", [Problem("data.n", "line 3", "expected a whole number, got 'many'")]))
    job.yaml, line 3: data.n: expected a whole number, got 'many'
    """

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            message = f"{name}, {self.problems[0]}"
        else:
            message = "\n  ".join([f"{name}: {len(self.problems)} problems", *map(str, self.problems)])
        super().__init__(message)


@dataclass(frozen=True)
class Entry:
    """A value of the file: a scalar, a list of entries or a mapping of names to entries.

    ``where`` is ``"line 3"`` (that of the key, in a mapping) or the ``--set`` argument; ``raw`` a scalar as written;
    ``refused`` that there is a problem with it already.
    """

    value: Any
    where: str
    raw: str = ""
    refused: bool = False

    @property
    def has_refused(self) -> bool:
        """Whether there is a problem with it, or with a value in it, already."""
        value = self.value
        within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return self.refused or any(entry.has_refused for entry in within)

    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.value, dict):
            return {name: entry.plain() for name, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return self.value


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was probably meant, and what there is.

    Examples
    --------
    >>> nearest("epsilom", ["epsilon", "delta"])
    "did you mean 'epsilon'? There are: delta, epsilon"
    """
    names = sorted(known)
    near = did_you_mean(name, names)
    there = f"here are: {', '.join(names)}" if names else "here are none"
    return f"{near} T{there}" if near else f"t{there}"


def number(text: str) -> int | float | None:
    """What a text means as a number: ``1e-6`` and ``.inf`` do, ``inf`` and ``0x10`` do not.

    Examples
    --------
    >>> number("1e-6"), number("1_000"), number("-.inf"), number("six")
    (1e-06, 1000, -inf, None)
    """
    if _INFINITE.fullmatch(text):
        return -math.inf if text.startswith("-") else math.inf
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        return None
    digits = text.replace("_", "")
    value = int(digits) if re.fullmatch("[-+]?[0-9]+", digits) else float(digits)
    return value if abs(value) < math.inf else None


class _Loader(yaml.SafeLoader):
    """Positions and scalars only: nothing is constructed, and nothing is shared."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            problem = f"the alias *{event.anchor} is not read in jobs; write the value out"
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)  # type: ignore[arg-type]
        if getattr(event, "tag", None) is not None:
            problem = f"the tag {event.tag} is not read in jobs; write a plain value"
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a job file, or a `JobError` that says why there is none."""
    name = str(path)

    def refused(where: str, text: str) -> JobError:
        return JobError(name, [Problem("", where, text)])

    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        folder = Path(path).parent
        others = [p.name for p in folder.iterdir() if p.suffix in (".yaml", ".yml")] if folder.is_dir() else []
        near = difflib.get_close_matches(Path(path).name, others, n=1, cutoff=0.75)
        hint = f"; did you mean {str(folder / near[0])!r}?" if near else "; check the path"
        raise refused("the job file", f"not found (paths are relative to the current folder){hint}") from None
    except IsADirectoryError:
        raise refused("the job file", "this is a directory; name the YAML file in it") from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise refused("the job file", f"it cannot be read ({problem})") from None
    if len(data) > LARGEST_FILE:
        raise refused("the job file", f"more than {LARGEST_FILE} bytes; a job is a short YAML file, not the data")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refused(f"line {line}", f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8") from None


def parse(text: str, name: str, problems: list[Problem], argument: str | None = None) -> Entry:
    """Read one YAML document (or, with ``argument``, the value of a ``--set``) with the positions of its values.

    A text that is not YAML raises `JobError`; single values that cannot be used are added to ``problems``.
    """
    where = argument or "line 1"
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return Entry(None, where) if node is None else _entry(node, "", where, problems, argument)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and argument is None:
            where = f"line {mark.line + 1}, column {mark.column + 1}"
        detail = ": ".join(part for part in (error.context, error.problem) if part)
    except yaml.reader.ReaderError as error:
        if argument is None:
            where = f"line {text.count(chr(10), 0, error.position) + 1}"
        detail = f"the character {error.character!r} is not allowed"
    except RecursionError:
        detail = "brackets are nested too deeply"
    raise JobError(name, [Problem("", where, f"this is not YAML as jobs use it: {detail}")])


def _entry(node: yaml.Node, key: str, where: str, problems: list[Problem], argument: str | None) -> Entry:
    def line(of: yaml.Node) -> str:
        return argument or f"line {of.start_mark.line + 1}"

    if isinstance(node, yaml.MappingNode):
        found: dict[str, Entry] = {}
        for name_node, value_node in node.value:
            at = line(name_node)
            name = name_node.value
            if not isinstance(name, str):
                problems.append(Problem(key, at, "a key must be a name, not a list or a mapping"))
                continue
            inner = f"{key}.{name}" if key else name
            if name in found:
                problems.append(Problem(inner, at, f"this key is given twice (first: {found[name].where})"))
            found[name] = _entry(value_node, inner, at, problems, argument)
        return Entry(found, where)
    if isinstance(node, yaml.SequenceNode):
        return Entry([_entry(item, key, line(item), problems, argument) for item in node.value], where)
    before = len(problems)
    value = _scalar(node, key, where, problems)
    return Entry(value, where, node.value, refused=len(problems) > before)


def _scalar(node: yaml.Node, key: str, where: str, problems: list[Problem]) -> Any:
    """A scalar by the rules of the module."""
    raw, tag = node.value, node.tag.removeprefix(_TAG)
    if tag == "null":
        return None
    if tag == "bool":
        return raw.lower() in ("true", "yes", "on")
    plain = node.style is None  # type: ignore[attr-defined]
    if plain and re.fullmatch("[-+]?0[0-9_]+", raw):
        text = f"{raw} is 8-based to some readers of YAML; leave out the leading zero, or quote it"
        problems.append(Problem(key, where, text))
        return raw
    value = number(raw) if plain else None
    if value is None and tag in ("int", "float"):
        shown = raw if len(raw) <= 40 else raw[:37] + "..."
        problems.append(Problem(key, where, f"{shown} is not a number that can be used; write digits, or quote a name"))
    return raw if value is None else value

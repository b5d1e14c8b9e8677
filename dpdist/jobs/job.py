"""A job: a YAML file that says what to fit, to which data, under which budget; checked as a whole before it runs.

`load_job` reports everything that is wrong at once, with key and line (or ``--set`` argument) and the nearest valid
name. What only the estimator knows (which bound is missing, which values are out of range) it says itself, and
`locating` adds key and line to that.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpdist.data.stores import shown as without_secrets
from dpdist.jobs.following import Following, check_judged
from dpdist.jobs.kinds import Reader, parameters_of, shown
from dpdist.jobs.method_parameters import fixed_parameters
from dpdist.jobs.registry import AUTO, RegisteredMethod, estimator_class
from dpdist.jobs.sections import KEYS, Sections
from dpdist.jobs.shipped import job_file
from dpdist.jobs.yaml_lines import Entry, JobError, Problem, parse, read_text
from dpdist.problems.catalog import PROBLEMS

__all__ = ["Job", "JobError", "job_of", "load_job", "locating", "make_estimator", "override", "put"]

VERSION = 1
"""Of the format of jobs. A format in which a job of today would mean something else gets the next number."""
_SECRET = re.compile("secret|key|token|password", re.IGNORECASE)


@dataclass(frozen=True)
class Job:
    """A job that can be run.

    Attributes
    ----------
    method : RegisteredMethod
    estimator : str
        Name of the estimator's class.
    data : mapping
        ``generate`` and all keys of that problem, or ``path`` with ``arrays``, ``id``, ``account`` and
        ``storage_options``.
    params : mapping
        Parameters of the estimator, losses and penalties as objects.
    then : tuple of Following
        What is made of the released second moment.
    epsilon, delta : float
    ledger, journal, output : str or None
    cluster : str, mapping or None
        ``"threads"``, an address, ``address``, ``ca_file``, ``cert_file`` and ``key_file`` of a scheduler with TLS, or
        ``workers``, ``threads_per_worker`` and ``memory_limit`` of a local cluster.
    asked : mapping
        The same as plain JSON values, without secrets.
    source : str
        The job file.
    locations : mapping
        Where each dotted key stands.
    """

    method: RegisteredMethod
    estimator: str
    data: Mapping[str, Any] = field(repr=False)  # may hold secrets
    params: Mapping[str, Any]
    then: tuple[Following, ...]
    epsilon: float
    delta: float
    ledger: str | None
    journal: str | None
    cluster: str | Mapping[str, Any] | None
    output: str | None
    asked: Mapping[str, Any] = field(repr=False)
    source: str = field(repr=False)
    locations: Mapping[str, str] = field(repr=False)


def load_job(path: str | os.PathLike[str], settings: Sequence[str] = ()) -> Job:
    """Read and check a job file.

    Parameters
    ----------
    path : path of a YAML file, or id of a method
        See `dpdist.jobs.shipped.job_file`.
    settings : sequence of str
        Overrides such as ``"budget.epsilon=0.5"``; values are YAML.

    Raises
    ------
    JobError
        Names everything that is wrong.
    """
    path = job_file(path)
    source = str(path)
    problems: list[Problem] = []
    root = parse(read_text(path), source, problems)
    if root.value is None:
        text = f"the file is empty; a job has {', '.join(KEYS)}"
        raise JobError(source, [Problem("", root.where, text)])
    if not isinstance(root.value, dict):
        got = "a list" if isinstance(root.value, list) else "other text"  # not shown: it may be a table of rows
        text = f"expected keys with values ({', '.join(KEYS)}), got {got}"
        raise JobError(source, [Problem("", root.where, text)])
    for setting in settings:
        override(root, setting, source, problems)
    return job_of(root, source, problems)


def job_of(root: Entry, source: str, problems: list[Problem]) -> Job:
    """The job that a parsed mapping describes; `JobError` names what is wrong with it, and the ``problems`` so far."""
    _check_version(root, source)
    sections = Sections(root, Reader(problems))
    method = sections.method()
    estimator = sections.estimator(method)
    data, params, (epsilon, delta) = sections.data(), sections.params(method, estimator), sections.budget(method)
    then = sections.then(method, estimator)
    ledger, journal, output = (sections.store(name) for name in ("ledger", "journal", "output"))
    cluster = sections.cluster()
    if method is not None and method.id == AUTO:
        problems += _public_rows(root, data)
    if problems or method is None or estimator is None:
        raise JobError(source, sorted(problems, key=_line))
    written, following = root.value.get("params"), root.value.get("then")
    asked = {
        "method": method.id,
        "estimator": estimator,
        "data": _masked(data),
        "params": _plain(written.plain() or {}) if written else {},
        **({"then": {name: params or {} for name, params in _plain(following.plain()).items()}} if then else {}),
        "budget": {"epsilon": epsilon, "delta": delta},
        "ledger": ledger,
        "journal": journal,
        "cluster": cluster,
        "output": output,
    }
    locations = dict(_locations(root, ""))
    job = Job(
        method,
        estimator,
        data,
        params,
        then,
        epsilon,
        delta,
        ledger,
        journal,
        cluster,
        output,
        asked,
        source,
        locations,
    )
    if "generate" in data:
        with locating(job):
            PROBLEMS[data["generate"]].check(make_estimator(job), data, f"{method.id} ({estimator})")
        check_judged(job, PROBLEMS[data["generate"]])
    return job


def _check_version(root: Entry, source: str) -> None:
    """Refuse a job of another version as a whole: what else is wrong with it says nothing."""
    entry = root.value.get("version")
    if entry is None or entry.value is None or (entry.value == VERSION and not isinstance(entry.value, bool)):
        return
    newer = isinstance(entry.value, int | float) and entry.value > VERSION
    fix = "install a newer dpdist to run it" if newer else f"write version: {VERSION} and what 'dpdist schema job' says"
    text = f"this dpdist reads version {VERSION} of the format of jobs, got {shown(entry.value)}; {fix}"
    raise JobError(source, [Problem("version", entry.where, text)])


def _public_rows(root: Entry, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Refuse what an estimator would choose by in a fit, but not in a plan."""
    text = f"method: {AUTO} goes by public numbers only; name a method that reads public rows, such as krr-rff-pub"
    for key in ("public", "public_rows"):
        if data.get(key):
            yield Problem(f"data.{key}", root.value["data"].value[key].where, text)


def make_estimator(job: Job, **managed: Any) -> Any:
    """The estimator with the parameters of method and job, the budget, and ``managed`` ones (ledger, run_id ...)."""
    cls = estimator_class(job.estimator)
    budget = {name: getattr(job, name) for name in ("epsilon", "delta") if name in parameters_of(cls)}
    return cls(**{**fixed_parameters(job.method, cls), **job.params}, **budget, **managed)


@contextlib.contextmanager
def locating(job: Job) -> Iterator[None]:
    """Within it, an error that is about a parameter (a missing bound, a value out of range) names its key and line.

    For what checks parameters: ``with locating(job): estimator.plan(n_rows, n_features)``. Other errors pass.
    """
    try:
        yield
    except ValueError as error:  # MissingBound, BudgetError and DataError are such
        key = _named(str(error), parameters_of(estimator_class(job.estimator)), job.locations)
        if key is None:
            raise
        at = key
        while at not in job.locations and "." in at:
            at = at.rpartition(".")[0]
        text = _as_in_a_job(str(error).removeprefix(f"{key}: "))
        raise JobError(job.source, [Problem(key, job.locations.get(at, "line 1"), text)]) from error


_OBJECT = re.compile(r"\b(\w+)=([A-Z]\w*)\(([\w=., ]*)\)")


def _as_in_a_job(text: str) -> str:
    """What an estimator advises in Python, as YAML.

    >>> _as_in_a_job("pass it, with gradient=ClipNorm(clip_norm=...)")
    'pass it, with gradient: {ClipNorm: {clip_norm: ...}}'
    """

    def written(found: re.Match[str]) -> str:
        arguments = found[3].replace("=", ": ")
        return f"{found[1]}: {{{found[2]}: {f'{{{arguments}}}' if '=' in found[3] else arguments or '{}'}}}"

    return _OBJECT.sub(written, text)


def _named(text: str, parameters: Iterable[str], given: Iterable[str]) -> str | None:
    """The dotted key that a message is about: its first word, else the first ``name=``, else a name that is no word.

    A name is that of a parameter or, of those that are ``given``, of a field of an object: ``params.solver.start``.
    """
    keys = {key.rpartition(".")[2]: key for key in given if re.match(r"params\.\w+\.", key)}
    keys |= {name: f"params.{name}" for name in parameters}
    keys |= {"epsilon": "budget.epsilon", "delta": "budget.delta", "ledger": "ledger", "cluster": "cluster"}
    dotted = re.match(r"(data|params|budget|cluster)\.\w+", text)
    if dotted:
        return dotted[0]
    names = re.match(r"\w+", text), *re.finditer(r"\w+(?==)", text), *re.finditer(r"\w*_\w*|epsilon|delta", text)
    return next((keys[name[0]] for name in names if name and name[0] in keys), None)


def override(root: Entry, setting: str, source: str, problems: list[Problem]) -> None:
    """Put the value of ``a.b=value``, the argument of a ``--set``, into the tree."""
    key, equals, text = (part.strip() for part in setting.partition("="))
    secret = _SECRET.search(key) or key.startswith("data.storage_options")
    value = "***" if secret else without_secrets(text)
    where = f"--set {key}{equals}{value if len(value) <= 60 else value[:57] + '...'}"
    if not equals or not all(key.split(".")):
        problems.append(Problem("", where, "expected key=value, for example --set budget.epsilon=0.5"))
        return
    try:
        entry = parse(text, source, problems, where)
    except JobError as error:
        problems += error.problems
    else:
        put(root, key, entry, problems)


def put(root: Entry, key: str, value: Entry, problems: list[Problem]) -> None:
    """Set a dotted key of the tree, making the mappings on the way."""
    names = key.split(".")
    entry = root
    for depth, name in enumerate(names[:-1], start=1):
        below = entry.value.get(name)
        if below is None or below.value is None:
            below = entry.value[name] = Entry({}, value.where)
        if not isinstance(below.value, dict):
            text = f"it is {shown(below.value)} ({below.where}) and has no keys; set it as a whole"
            problems.append(Problem(".".join(names[:depth]), value.where, text))
            return
        entry = below
    entry.value[names[-1]] = value


def _line(problem: Problem) -> tuple[bool, int]:
    """The order of the file, then the overrides."""
    line = re.match("line ([0-9]+)", problem.where)
    return line is None, int(line[1]) if line else 0


def _locations(entry: Entry, key: str) -> Iterable[tuple[str, str]]:
    if key:
        yield key, entry.where
    if isinstance(entry.value, dict):
        for name, below in entry.value.items():
            yield from _locations(below, f"{key}.{name}" if key else name)


def _plain(value: Any) -> Any:
    """JSON has no infinity: it becomes the text ``.inf``, which a job reads as a number again."""
    if isinstance(value, Mapping):
        return {name: _plain(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return value


def _masked(data: Mapping[str, Any]) -> Any:
    """``data`` without the secrets that open a store."""

    def hide(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: "***" if _SECRET.search(name) else hide(below) for name, below in value.items()}
        return [hide(below) for below in value] if isinstance(value, list) else value

    hidden = {name: hide(value) if name == "storage_options" else value for name, value in data.items()}
    hidden |= {name: without_secrets(data[name]) for name in ("path", "store") if data.get(name)}
    return _plain(hidden)

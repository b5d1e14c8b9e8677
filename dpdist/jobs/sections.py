"""The sections of a job file: which keys each has, and what their values may be.

Every reader of a section takes what it can use and adds what it cannot to the problems, so that all of them are known
at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dpdist.engine.addresses import ADDRESS
from dpdist.errors import BudgetError, DataError
from dpdist.jobs.following import Following, made_of_moments, releases_moments
from dpdist.jobs.kinds import Kind, Reader, kind_of, shown
from dpdist.jobs.method_parameters import belongs, free_parameters, of_another, offers
from dpdist.jobs.registry import (
    AUTO,
    ESTIMATORS,
    METHODS,
    OWNED_BY_OTHER_KEYS,
    RegisteredMethod,
    automatic,
    estimator_class,
    named,
    not_found,
)
from dpdist.jobs.yaml_lines import Entry, nearest
from dpdist.objects import SCHEMES as OBJECT_SCHEMES
from dpdist.privacy.budget import check_account
from dpdist.privacy.ledger.postgres import SCHEMES as DATABASE_SCHEMES
from dpdist.problems.catalog import PROBLEMS, readers

if TYPE_CHECKING:
    pass

KEYS = ("method", "estimator", "data", "params", "then", "budget", "ledger", "journal", "cluster", "output", "version")
STORED_KEYS = ("path", "arrays", "id", "account", "public", "storage_options")
CLUSTER_KEYS: Mapping[str, Any] = {"workers": None, "threads_per_worker": 1, "memory_limit": "auto"}
"""Keys of a local cluster with their defaults; ``workers`` has to be given."""
REMOTE_KEYS = ("address", "ca_file", "cert_file", "key_file")
"""Keys of a cluster that runs already."""
OBJECTS, DATABASES = (tuple(s.removesuffix("://") for s in some) for some in (OBJECT_SCHEMES, DATABASE_SCHEMES))
MEMORY = r"[0-9]+(\.[0-9]+)? ?([kKMGTP]i?)?B"
LARGEST = 2**53
"""Of counts: more rows than a float64 counts exactly are a slip."""
STORES = {
    "ledger": ("a file or postgresql://USER@HOST/DATABASE", DATABASES),
    "journal": ("a file, s3://BUCKET/PREFIX or postgresql://USER@HOST/DATABASE", (*OBJECTS, *DATABASES)),
    "output": ("a directory or s3://BUCKET/PREFIX", OBJECTS),
}
"""Keys that may be addresses, and the protocols of those."""
PASSWORD = r"://[^/@]*:[^/@]*@|://.*[?&](password|sig|signature|token)="
_TEXT, _NUMBER, _WHOLE = (frozenset({kind}) for kind in ("text", "number", "whole"))


def of_another_kind(name: str) -> str:
    """A pattern of the addresses that cannot be the value of a key of `STORES`.

    Examples
    --------
    >>> [bool(re.search(of_another_kind("ledger"), text)) for text in ("l.sqlite", "postgresql://h/d", "s3://b/l")]
    [False, False, True]
    """
    return rf"^(?!({'|'.join(STORES[name][1])})://)[A-Za-z][A-Za-z0-9+.-]*://"


def problem_kind(default: Any) -> Kind:
    """The kind of a generator's key, from its default; None stands for a text that may be left out."""
    return _TEXT if default is None else kind_of(type(default))


class Sections:
    """Reads the sections of one job.

    Parameters
    ----------
    root : Entry
        The mapping of the whole file.
    reader : Reader
        Collects what is wrong.
    """

    def __init__(self, root: Entry, reader: Reader) -> None:
        self.root = root
        self.reader = reader
        self.add = reader.add
        self._known(root, "", KEYS)

    def text(self, name: str, section: Entry | None = None, prefix: str = "") -> str | None:
        """A text; None where there is none."""
        entry = _given(section or self.root, name)
        if entry is None:
            return None
        text = self.reader.read(entry, prefix + name, _TEXT)
        if text is not None and not text.strip():
            return self.add(prefix + name, entry.where, "expected a text, got an empty one")
        return text

    def store(self, name: str) -> str | None:
        """A path or an address, which will be written into records: none with a password in it."""
        text, entry = self.text(name), _given(self.root, name)
        if text is None or entry is None:
            return None
        if re.search(PASSWORD, text):
            return self.add(
                name,
                entry.where,
                "has a password in its address, and records of runs quote it: leave it out, and set it in the "
                "environment (PGPASSWORD or PGPASSFILE, AWS_SECRET_ACCESS_KEY ...)",
            )
        if re.search(of_another_kind(name), text):
            return self.add(name, entry.where, f"expected {STORES[name][0]}, got {shown(text)}")
        return text

    def method(self) -> RegisteredMethod | None:
        """The registry's entry."""
        name, entry = self.text("method"), _given(self.root, "method")
        if entry is None:
            return self.add(
                "method",
                _location(self.root, "method"),
                "missing; write method: auto and an estimator, such as estimator: LogisticRegression, or method: NAME. "
                f"There are: {', '.join(METHODS)}",
            )
        if name == AUTO:
            return self._automatic(entry)
        if name is None or (found := named(name)) is not None:
            return None if name is None else found
        return self.add("method", entry.where, f"unknown method {name!r}; {not_found(name)}")

    def _automatic(self, method: Entry) -> RegisteredMethod | None:
        """What decides itself: the estimator, which the job has to name."""
        name, entry = self.text("estimator"), _given(self.root, "estimator")
        if entry is None:
            text = f"missing; method: {AUTO} needs to know what to fit. There are: {', '.join(ESTIMATORS)}"
            return self.add("estimator", method.where, text)
        if name is None or name in ESTIMATORS:
            return None if name is None else automatic(name)
        return self.add("estimator", entry.where, f"unknown estimator {name!r}; {nearest(name, ESTIMATORS)}")

    def estimator(self, method: RegisteredMethod | None) -> str | None:
        """The name of one of the method's estimators."""
        name, entry = self.text("estimator"), _given(self.root, "estimator")
        if method is None:
            return None
        if entry is None:
            return method.estimators[0]
        if name is None or name in method.estimators:
            return name
        text = f"no estimator {name!r} for {method.id}; {nearest(name, method.estimators)}"
        return self.add("estimator", entry.where, text)

    def params(self, method: RegisteredMethod | None, estimator: str | None) -> dict[str, Any]:
        """Parameters of the estimator, with objects made."""
        section = self._section("params")
        for name in () if method is None else method.needs:
            if section is None or _given(section, name) is None:
                where = _location(section or self.root, name)
                self.add(f"params.{name}", where, f"missing; {method.id if method else ''} needs it")
        if section is None or method is None or estimator is None:
            return {}
        return self._parameters(section, "params", method, estimator)

    def then(self, method: RegisteredMethod | None, estimator: str | None) -> tuple[Following, ...]:
        """What is made of the released second moment."""
        section = self._section("then")
        if section is None or method is None or estimator is None or not section.value:
            return ()
        if not releases_moments(estimator):
            text = f"{estimator} releases no second moment, of which more could be made; write method: m2-goe"
            return self.add("then", section.where, text) or ()
        known, found = made_of_moments(method.trust), []
        for name, entry in section.value.items():
            key = f"then.{name}"
            if name not in known:
                text = f"no method of this name makes anything of this second moment; {nearest(name, known)}"
                self.add(key, entry.where, text)
            elif entry.value is not None and not isinstance(entry.value, dict):
                self.add(key, entry.where, f"expected keys with values, got {shown(entry.value)}")
            else:
                of_answer = estimator_class(known[name].estimators[0]).of_answer  # type: ignore[attr-defined]
                params = Entry({}, entry.where) if entry.value is None else entry
                values = self._parameters(params, key, known[name], known[name].estimators[0], of_answer)
                found.append(Following(known[name], values))
        return tuple(found)

    def _parameters(
        self,
        section: Entry,
        prefix: str,
        method: RegisteredMethod,
        estimator: str,
        only: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Parameters of an estimator (``only`` these), with objects made."""
        kinds, objects = free_parameters(method, estimator), offers(estimator_class(estimator), method)
        values = {}
        for name, entry in section.value.items():
            key = f"{prefix}.{name}"
            if name in OWNED_BY_OTHER_KEYS:
                self.add(key, entry.where, f"not a key of {prefix}: {OWNED_BY_OTHER_KEYS[name]} sets it")
            elif only is not None and name in kinds and name not in only:
                self.add(key, entry.where, f"it is of the release, and params.{name} sets it; leave it out")
            elif name in objects and entry.value is not None and not entry.refused:
                fixed = method.parameters.get(name)
                if fixed == "auto" or (fixed is not None and isinstance(entry.value, str)):
                    self._fixed(method, name, key, entry)
                else:
                    values[name] = self.reader.choice(entry, key, objects[name], fixed)
            elif name in method.parameters:
                self._fixed(method, name, key, entry)
            elif name not in kinds:
                other = "" if _given(self.root, "estimator") else of_another(name, method)
                hint = belongs(name, entry, objects, method) or other or nearest(name, kinds)
                self.add(key, entry.where, f"{estimator} has no such parameter; {hint}")
            else:
                values[name] = self.reader.read(entry, key, kinds[name])
        return values

    def _fixed(self, method: RegisteredMethod, name: str, key: str, entry: Entry) -> None:
        fixed = f"the method {method.id} fixes it at {method.parameters[name]!r}"
        self.add(key, entry.where, f"{fixed}; leave it out, or choose another method")

    def budget(self, method: RegisteredMethod | None) -> tuple[float, float]:
        """Epsilon and delta."""
        section = self._section("budget", "budget: {epsilon: 1.0, delta: 1.0e-6}")
        if section is None:
            return math.nan, math.nan
        self._known(section, "budget", ("epsilon", "delta"))
        entry = _given(section, "epsilon")
        if entry is None:
            text = "missing; write the largest epsilon this run may spend, such as 1.0"
            epsilon = self.add("budget.epsilon", _location(section, "epsilon"), text)
        else:
            epsilon = self.reader.read(entry, "budget.epsilon", _NUMBER)
            if epsilon is not None and not 0 < epsilon < math.inf:
                self.add("budget.epsilon", entry.where, f"expected a positive finite number, got {shown(epsilon)}")
        entry = _given(section, "delta")
        delta = 0.0 if entry is None else self.reader.read(entry, "budget.delta", _NUMBER)
        where = _location(section, "delta")
        if delta is None:
            return epsilon, math.nan
        if not 0 <= delta < 1:
            self.add("budget.delta", where, f"expected a number of at least 0 and below 1, got {shown(delta)}")
        elif method is not None and method.guarantee == "epsilon" and delta > 0:
            self.add("budget.delta", where, f"the guarantee of {method.id} is one of epsilon alone; leave delta out")
        elif method is not None and method.guarantee == "(epsilon, delta)" and delta == 0:
            text = f"{method.id} needs a delta above 0, far below 1 / (number of rows), such as 1.0e-6"
            self.add("budget.delta", where, text if entry else f"missing; {text}")
        return epsilon, delta

    def data(self) -> dict[str, Any]:
        """Where the rows come from: all keys of a generator, or a stored group."""
        section = self._section("data", "data: {generate: logit, n: 100000, d: 50} or data: {path: rows.zarr}")
        if section is None:
            return {}
        generate, path = _given(section, "generate"), _given(section, "path")
        if generate is not None and path is not None:
            text = f"given together with data.generate ({generate.where}), and only one can say where the rows are"
            self.add("data.path", path.where, text)
        elif generate is not None:
            return self._generated(section, generate)
        elif path is not None:
            return self._stored(section)
        else:
            text = f"expected generate (one of: {', '.join(sorted(PROBLEMS))}) or path (a Zarr group)"
            self.add("data", section.where, text)
            self._known(section, "data", ("generate", *STORED_KEYS, "n", "d", "random_state"))
        return {}

    def _generated(self, section: Entry, generate: Entry) -> dict[str, Any]:
        name = self.text("generate", section, "data.")
        if name is None:
            return {}
        if name not in PROBLEMS:
            text = f"unknown generator {name!r}; {nearest(name, PROBLEMS)}"
            return self.add("data.generate", generate.where, text) or {}
        problem = PROBLEMS[name]
        known = ("generate", *problem.parameters)
        elsewhere = [key for key in section.value if key not in known and readers(key)]
        for key in elsewhere:
            text = f"{name} does not read it, {readers(key)}; {name} reads {', '.join(problem.parameters)}"
            self.add(f"data.{key}", section.value[key].where, text)
        self._known(section, "data", known, also=("path", *elsewhere))
        values: dict[str, Any] = {}
        for key, default in problem.parameters.items():
            entry = _given(section, key)
            value = None if entry is None else self.reader.read(entry, f"data.{key}", problem_kind(default))
            if entry is None or value is None:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and value > LARGEST:
                self.add(f"data.{key}", entry.where, f"expected a number up to 2**53, got {shown(value)}")
                continue
            try:
                values[key] = problem.resolve({key: value})[key]
            except DataError as error:
                self.add(f"data.{key}", entry.where, str(error).removeprefix(f"data.{key} "))
        return {"generate": name, **problem.parameters, **values}

    def _stored(self, section: Entry) -> dict[str, Any]:
        self._known(section, "data", STORED_KEYS, also=("generate",))
        values: dict[str, Any] = {name: self.text(name, section, "data.") for name in ("path", "id", "public")}
        values["account"] = self._account(section)
        for key in ("arrays", "storage_options"):
            entry = _given(section, key)
            if entry is None:
                continue
            if not isinstance(entry.value, dict):
                self.add(f"data.{key}", entry.where, "expected keys with values")  # not shown: it may be a secret
            elif key == "arrays":
                values[key] = {n: self.reader.read(e, f"data.arrays.{n}", _TEXT) for n, e in entry.value.items()}
            else:
                values[key] = entry.plain()
        return {key: value for key, value in values.items() if value is not None}

    def _account(self, section: Entry) -> str | None:
        name, entry = self.text("account", section, "data."), _given(section, "account")
        if name is None or entry is None:
            return None
        try:
            return check_account(name)
        except BudgetError as error:
            return self.add("data.account", entry.where, str(error))

    def cluster(self) -> str | dict[str, Any] | None:
        """Where the map stage runs."""
        entry = _given(self.root, "cluster")
        if entry is None:
            return None
        value = entry.value
        if isinstance(value, dict):
            return self._remote_cluster(entry) if "address" in value else self._local_cluster(entry)
        if value == "threads" or (isinstance(value, str) and re.fullmatch(ADDRESS, value)):
            return value
        text = f"expected threads, the address of a scheduler (tcp://host:8786) or {{workers: 2}}, got {shown(value)}"
        if isinstance(value, str) and re.fullmatch(r"[\w.-]+:[0-9]+", value):
            text += f"; did you mean 'tcp://{value}'?"
        return self.add("cluster", entry.where, text)

    def _remote_cluster(self, section: Entry) -> dict[str, Any]:
        self._known(section, "cluster", REMOTE_KEYS)
        values = {name: self.text(name, section, "cluster.") for name in REMOTE_KEYS}
        address, files = values["address"], [name for name in REMOTE_KEYS[1:] if values[name]]
        if address is not None and not re.fullmatch(ADDRESS, address):
            text = f"expected the address of a scheduler (tls://host:8786), got {shown(address)}"
            self.add("cluster.address", _location(section, "address"), text)
        elif address is not None and files and not address.startswith(("tls://", "wss://")):
            text = f"it is not encrypted, and {files[0]} is given: write tls://host:8786"
            self.add("cluster.address", _location(section, "address"), text)
        return {name: value for name, value in values.items() if value is not None}

    def _local_cluster(self, section: Entry) -> dict[str, Any]:
        self._known(section, "cluster", CLUSTER_KEYS)
        values = dict(CLUSTER_KEYS)
        for name in ("workers", "threads_per_worker"):
            entry = _given(section, name)
            if entry is not None:
                values[name] = self.reader.read(entry, f"cluster.{name}", _WHOLE)
                if values[name] is not None and not 1 <= values[name] <= LARGEST:
                    text = f"expected a whole number of at least 1, got {shown(values[name])}"
                    self.add(f"cluster.{name}", entry.where, text)
        if _given(section, "workers") is None:
            self.add("cluster.workers", _location(section, "workers"), "missing; write the number of worker processes")
        entry = _given(section, "memory_limit")
        if entry is not None:
            limit = values["memory_limit"] = entry.value
            size = isinstance(limit, str) and (limit == "auto" or re.fullmatch(MEMORY, limit))
            if not size and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                text = f"expected a size such as 2GiB, or auto, got {shown(limit)}"
                self.add("cluster.memory_limit", entry.where, text)
        return values

    def _known(self, section: Entry, key: str, known: Iterable[str], also: tuple[str, ...] = ()) -> None:
        for name, entry in section.value.items():
            if name not in known and name not in also:
                inner, hint = f"{key}.{name}" if key else name, nearest(name, known)
                if "." in name:
                    hint = f"a.b=... is for --set; in the file write a: {{b: ...}}. {hint}"
                elif name.isdecimal() and entry.value is None:
                    hint = f"a number has a point and no comma, as in 0.5. {hint.capitalize()}"
                self.add(inner, entry.where, f"unknown key; {hint}")

    def _section(self, key: str, required: str = "") -> Entry | None:
        """A mapping of the root; None if there is none."""
        entry = _given(self.root, key)
        if entry is None:
            if required:
                self.add(key, _location(self.root, key), f"missing; write {required}")
        elif not isinstance(entry.value, dict):
            example = f"; write {required}" if required else ""
            self.add(key, entry.where, f"expected keys with values, got {shown(entry.value)}{example}")
        else:
            return entry
        return None


def _given(section: Entry, name: str) -> Entry | None:
    """The entry of a key; null is the same as leaving it out."""
    entry = section.value.get(name)
    return None if entry is None or entry.value is None else entry


def _location(section: Entry, name: str) -> str:
    """Where a key stands, or should."""
    entry = section.value.get(name)
    return section.where if entry is None else entry.where

"""``dpdist methods``: what a job can ask for."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import click

from dpdist.cli.job_name import JobName
from dpdist.cli.output import as_json, as_list, as_table, deliver
from dpdist.errors import DpdistError


@click.command("methods")
@click.argument("method", type=JobName(files=False), metavar="[ID]", required=False)
@click.option("--job", "job_", is_flag=True, help="Print the job of the method ID, to begin one of your own.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def command(method: str | None, job_: bool, json_: bool) -> None:
    """List the methods that a job can name; with ID, describe one of them.

    A method is an estimator with some of its parameters fixed. The list shows who has to be trusted with the rows
    (central: the process that runs the job; local: nobody but the users themselves), the kind of guarantee, and the
    estimators of which a job takes the first unless it names another. With ID the parameters are listed that a job can
    set. Every method comes with a job on generated data: 'dpdist run ID' runs it, and --job prints it. An ID of the
    literature that is another name of a method, a part of one or a value of a parameter is answered with that.

    \b
    Examples:
      dpdist methods
      dpdist methods dp-sgd
      dpdist methods dp-sgd --job > mine.yaml
      dpdist methods --json | jq -r '.methods[].id'
    """
    from dpdist.jobs.registry import METHODS, NO_METHODS, named, not_found
    from dpdist.jobs.shipped import job_text

    if job_ and json_:
        raise click.UsageError("--job prints YAML, and --json an object: give one of them")
    if method is None:
        if job_:
            raise click.UsageError("--job needs the ID of a method")
        entries = [entry.summary for entry in METHODS.values()]
        deliver(as_json({"methods": entries}) if json_ else _table(entries))
        return
    entry = named(method)
    if entry is None and method in NO_METHODS and not job_:
        other = NO_METHODS[method].summary
        deliver(as_json(other) if json_ else _other(other))
        return
    if entry is None:
        raise DpdistError(f"there is no method {method!r}; {not_found(method)}")
    if job_:
        deliver(job_text(entry.id).removesuffix("\n"))
        return
    found = {**entry.summary, "estimator_parameters": {name: _parameters(entry, name) for name in entry.estimators}}
    deliver(as_json(found) if json_ else _details(found))


def _table(entries: list[dict[str, Any]]) -> str:
    rows = [{**entry, "estimators": ", ".join(entry["estimators"])} for entry in entries]
    titles = {"id": "Method", "trust": "Trust", "guarantee": "Guarantee", "title": "What it is"}
    return as_table(rows, titles)


def _other(found: dict[str, Any]) -> str:
    facts = [
        ("Id", f"{found['id']}, no method of its own"),
        ("What it is", found["what"]),
        *([("Part of", ", ".join(found["methods"]))] if found["methods"] else []),
        *(
            [("In a job", ", ".join(f"{key}: {value}" for key, value in found["settings"].items()))]
            if found["settings"]
            else []
        ),
        *([("Library", found["library"])] if found["library"] else []),
    ]
    return as_list(facts)


def _details(found: dict[str, Any]) -> str:
    first = found["estimators"][0]
    facts = [
        ("Method", f"{found['id']}: {found['title']}"),
        *([("Also called", ", ".join(found["aliases"]))] if found["aliases"] else []),
        ("Trust", found["trust"]),
        ("Guarantee", found["guarantee"]),
        ("Estimators", ", ".join(found["estimators"])),
        ("Fixed", ", ".join(f"{name}: {value}" for name, value in found["parameters"].items()) or "nothing"),
        *([("To be set", ", ".join(found["needs"]))] if found["needs"] else []),
        ("Released", ", ".join(name.rstrip("_") for name in found["outputs"])),
        ("Source", f"{found['source']} (spec {found['spec']})"),
        ("Job", f"dpdist run {found['id']} ({found['pipeline']})"),
    ]
    lines = [as_list(facts), "", f"Parameters of {first} (key params of a job):"]
    for parameter in found["estimator_parameters"][first]:
        default = "" if parameter["default"] is None else f", default {parameter['default']}"
        lines.append(f"  {parameter['name']}: {parameter['takes']}{default}")
        lines += textwrap.wrap(parameter["what"], 96, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def _parameters(method: Any, estimator: str) -> list[dict[str, Any]]:
    """Name, kind, default and description of what a job can set."""
    from dpdist.jobs.kinds import object_of, said
    from dpdist.jobs.method_parameters import free_parameters, offers
    from dpdist.jobs.registry import estimator_class

    cls = estimator_class(estimator)
    defaults = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    # an estimator may refer to another one of the method for what they have in common
    texts = {
        name: text for each in (*method.estimators, estimator) for name, text in _texts(estimator_class(each)).items()
    }
    objects = offers(cls)
    found = []
    for name, kind in free_parameters(method, estimator).items():
        fixed = method.parameters.get(name)
        if name in objects and fixed is not None:
            found += [] if fixed == "auto" else _fields(name, object_of(fixed, objects[name]))
            continue
        takes = f"{', '.join(objects[name])}, or an object" if name in objects else said(kind) or "any value"
        default = None if defaults[name] in (None, inspect.Parameter.empty) else defaults[name]
        found.append({"name": name, "takes": takes, "default": default, "what": texts.get(name, "")})
    return found


def _fields(name: str, fixed: Any) -> list[dict[str, Any]]:
    """The same for the parameters of an object whose kind the method fixes."""
    from dpdist.jobs.kinds import kind_of, said

    texts = _texts(type(fixed))
    return [
        {
            "name": f"{name}.{field}",
            "takes": said(kind_of(of.type)) or "any value",
            "default": getattr(fixed, field),
            "what": texts.get(field, ""),
        }
        for field, of in fixed.parameters().items()
    ]


def _texts(of: type) -> dict[str, str]:
    """The descriptions of parameters in the docstrings of a class and those it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(of.__mro__):
        section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n|\Z)", inspect.cleandoc(each.__doc__ or ""), re.DOTALL)
        for names, text in re.findall(r"^(\w[\w, ]*) : .*\n((?:    .*\n?)*)", section[1] if section else "", re.M):
            for name in names.split(", ") if text.strip() else ():
                found[name] = " ".join(text.split()).replace("``", "")
    return found

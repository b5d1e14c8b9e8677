"""A job on Kubernetes: what is submitted, and whether its results would survive. Speaks to no cluster.

A run is a job with a name. Every attempt at it is a DaskJob of its own, ``<run>-1``, ``<run>-2`` ..., because a
DaskJob runs once and a name that is used again finds pods of its last life (dask-kubernetes issue 695). Every attempt
gives ``--resume`` and the same output to ``dpdist run``: the record there holds the run's id, under which
ledger and journal know what was paid and released. An attempt at a finished run writes down again what is there; one
that starts while an old runner still lives on a lost node fences that off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from dpdist.data.stores import shown
from dpdist.errors import DpdistError
from dpdist.jobs.job import Job
from dpdist.jobs.sections import PASSWORD
from dpdist.objects import is_object_store
from dpdist.privacy.ledger.postgres import is_address

API = "kubernetes.dask.org/v1"
PART_OF, RUN, ATTEMPT = "app.kubernetes.io/part-of", "dpdist/run", "dpdist/attempt"
CLUSTER, COMPONENT, RUNNER = "dask.org/cluster-name", "dask.org/component", "job-runner"
OUTCOME, ARGUMENTS = "dpdist/outcome", "dpdist/arguments"
TEMPLATES = ("runner", "scheduler", "worker")
JOB_FOLDER, JOB_FILE = "/etc/dpdist/job", "job.yaml"
NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""Of a run: with the number of the attempt it has to name services (DNS labels), and DaskClusters (53 letters)."""


class SubmissionError(DpdistError):
    """A job that cannot be submitted, a run that is not there, or one that failed on the cluster."""


def check_name(name: str) -> str:
    """The name of a run, if it can be one.

    Examples
    --------
    >>> check_name("nightly-2026-01-31")
    'nightly-2026-01-31'
    """
    if not NAME.fullmatch(name):
        raise SubmissionError(
            f"{name!r} cannot name a run: expected up to 40 lower-case letters, digits and '-', beginning with a letter"
        )
    return name


def name_of(source: str, suffix: str) -> str:
    """A name for a run of a job file.

    Examples
    --------
    >>> name_of("jobs/Flight_delays.yaml", "x7k2")
    'flight-delays-x7k2'
    """
    stem = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(source).stem.lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"run-{stem}"
    return f"{stem[:30].strip('-')}-{suffix}"


def check_job(job: Job, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a job that could lose its results or its ledger with a pod, or would show a secret.

    Parameters
    ----------
    job : Job
    templates : mapping
        The pod templates of the namespace, by the names in `TEMPLATES`.

    Raises
    ------
    SubmissionError
        Names all that is wrong.
    """
    problems = []
    runner, worker = templates["runner"], templates["worker"]
    if job.output is None:
        problems.append("output is missing: name a directory for the results with --output or the key output")
    elif not is_object_store(job.output):
        problems += _lost("output", job.output, runner)
    ledger, key = job.ledger, "ledger"
    if ledger is None:
        ledger, key = _environment(runner).get("DPDIST_LEDGER"), "DPDIST_LEDGER of the template dpdist-runner"
    if ledger is None and "generate" not in job.data:
        problems.append(
            "ledger is missing: a file in the pod's home would be lost with the pod. Name a PostgreSQL database or a "
            "file on a claim with the key ledger, or set DPDIST_LEDGER in the template dpdist-runner"
        )
    elif job.ledger is None and "generate" in job.data and is_object_store(job.output):
        problems.append(
            "ledger is missing, and a store cannot hold it: name a PostgreSQL database or a file on a claim"
        )
    elif ledger is not None and not is_address(ledger):
        problems += _lost(key, ledger, runner)
    if job.journal is not None and not is_address(job.journal) and not is_object_store(job.journal):
        problems += _lost("journal", job.journal, runner)
    if (path := job.data.get("path")) is not None and not is_object_store(path):
        for name, template in (("runner", runner), ("worker", worker)):
            if _claim(path, template) is None:
                problems.append(
                    f"data.path {shown(path)} is on no claim that the template dpdist-{name} mounts "
                    f"({_mounts(template)}), so its pods could not read it: name a path there, or an object store"
                )
    if (store := job.data.get("store")) is not None and not is_object_store(store):
        problems += _lost("data.store", store, runner)
    secrets = [name for name in job.data.get("storage_options") or {} if _SECRET.search(name)]
    if secrets:
        problems.append(
            f"data.storage_options has secrets ({', '.join(sorted(secrets))}), and the job is stored in a ConfigMap: "
            "put them into the Secret dpdist-store, whose keys become environment variables (AWS_SECRET_ACCESS_KEY ...)"
        )
    if path is not None and re.search(PASSWORD, path):
        problems.append("data.path has a password in its address: leave it out, and set it in a Secret")
    if problems:
        raise SubmissionError("\n  ".join(["this job cannot run on the cluster:", *problems]))


_SECRET = re.compile("secret|key|token|password", re.IGNORECASE)


def _lost(key: str, path: str, template: Mapping[str, Any]) -> list[str]:
    """What is wrong with a path that has to outlive the pod."""
    claim = _claim(path, template)
    if claim is None:
        return [
            f"{key} {shown(path)} would be lost with the pod: expected a path on a claim that the template "
            f"dpdist-runner mounts ({_mounts(template)}), or the address of a store that outlives it"
        ]
    return [f"{key} {shown(path)} is on the claim {claim}, which is mounted read-only"] if _read_only(path, template) \
        else []  # fmt: skip


def _environment(template: Mapping[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in template["spec"]["containers"][0].get("env", []) if "value" in e}


def _claims(template: Mapping[str, Any]) -> dict[PurePosixPath, tuple[str, bool]]:
    """Where the first container has claims, and whether they are read-only."""
    spec = template["spec"]
    names = {v["name"]: v["persistentVolumeClaim"] for v in spec.get("volumes", []) if "persistentVolumeClaim" in v}
    return {
        PurePosixPath(m["mountPath"]): (
            names[m["name"]]["claimName"],
            bool(m.get("readOnly") or names[m["name"]].get("readOnly")),
        )
        for m in spec["containers"][0].get("volumeMounts", [])
        if m["name"] in names
    }


def _location(path: str, template: Mapping[str, Any]) -> tuple[str, bool] | None:
    found, parts = None, PurePosixPath(path)
    if not parts.is_absolute() or ".." in parts.parts:
        return None
    mounts = {PurePosixPath(m["mountPath"]) for m in template["spec"]["containers"][0].get("volumeMounts", [])}
    claims = _claims(template)
    for above in (parts, *parts.parents):
        if above in mounts:  # the nearest one is what is there
            found = claims.get(above)
            break
    return found


def _claim(path: str, template: Mapping[str, Any]) -> str | None:
    found = _location(path, template)
    return None if found is None else found[0]


def _read_only(path: str, template: Mapping[str, Any]) -> bool:
    found = _location(path, template)
    return found is not None and found[1]


def _mounts(template: Mapping[str, Any]) -> str:
    return ", ".join(f"{at}: {claim}" for at, (claim, _) in _claims(template).items()) or "it mounts none"


def config_map(run: str, text: str, arguments: Sequence[str], owner: Mapping[str, Any] | None) -> dict[str, Any]:
    """The job's file and the options of ``dpdist run``, the same for all attempts; owns them."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"dpdist-run-{run}",
            "labels": _labels(run),
            "annotations": {ARGUMENTS: json.dumps(list(arguments))},
            **({} if owner is None else {"ownerReferences": [_reference(owner)]}),
        },
        "immutable": True,
        "data": {JOB_FILE: text},
    }


def dask_job(
    run: str,
    number: int,
    templates: Mapping[str, Mapping[str, Any]],
    *,
    arguments: Sequence[str],
    workers: int,
    image: str | None,
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    """The DaskJob of one attempt.

    Parameters
    ----------
    run, number : str, int
    templates : mapping
    arguments : sequence of str
        Options for ``dpdist run``.
    workers : int
    image : str or None
        For all pods, in place of the templates' image.
    owner : mapping
        The run's ConfigMap as the cluster returned it.
    """
    name = f"{run}-{number}"
    specs = {kind: _copied(templates[kind]["spec"]) for kind in TEMPLATES}
    scheme = "tls" if "tls" in specs["scheduler"]["containers"][0].get("args", ()) else "tcp"
    address = {"name": "DASK_SCHEDULER_ADDRESS", "value": f"{scheme}://{name}-scheduler:8786"}
    for kind, spec in specs.items():
        container = spec["containers"][0]
        if image is not None:
            container["image"] = image
        if kind != "scheduler":
            container["env"] = [*container.get("env", []), address]
    runner = specs["runner"]["containers"][0]
    command = ["python", "-m", "dpdist.cli.runner", "--workers", str(workers), "--", f"{JOB_FOLDER}/{JOB_FILE}"]
    # $(NAME) in an argument would be replaced by an environment variable
    runner["args"] = [*command, *(word.replace("$(", "$$(") for word in arguments)]
    job_volume = {"name": "dpdist-job", "configMap": {"name": owner["metadata"]["name"]}}
    specs["runner"]["volumes"] = [*specs["runner"].get("volumes", []), job_volume]
    mount = {"name": "dpdist-job", "mountPath": JOB_FOLDER, "readOnly": True}
    runner["volumeMounts"] = [*runner.get("volumeMounts", []), mount]
    ports = [{"name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm"}]  # and none of a dashboard
    selector = {CLUSTER: name, COMPONENT: "scheduler"}
    return {
        "apiVersion": API,
        "kind": "DaskJob",
        "metadata": {
            "name": name,
            "labels": {**_labels(run), ATTEMPT: str(number)},  # the operator gives them to all pods
            "ownerReferences": [_reference(owner)],
        },
        "spec": {
            "job": {"spec": specs["runner"]},
            "cluster": {
                "spec": {
                    "scheduler": {
                        "spec": specs["scheduler"],
                        "service": {"type": "ClusterIP", "selector": selector, "ports": ports},
                    },
                    "worker": {"replicas": workers, "spec": specs["worker"]},
                }
            },
        },
    }


def _labels(run: str) -> dict[str, str]:
    return {PART_OF: "dpdist", RUN: run}


def _reference(owner: Mapping[str, Any]) -> dict[str, str]:
    """With its owner an object is deleted."""
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(below) for key, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value

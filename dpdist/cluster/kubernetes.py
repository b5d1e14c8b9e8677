"""Runs in one namespace of a Kubernetes cluster, through the DaskJobs of the dask-kubernetes operator.

Which cluster, and as whom, is said as for kubectl: by ``KUBECONFIG`` or ``~/.kube/config``, or in a pod by its service
account. The rights that are needed are in ``deploy/base/rbac.yaml``.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpdist.cluster.attempt import Attempt, attempt_of
from dpdist.cluster.submission import (
    API,
    ARGUMENTS,
    CLUSTER,
    COMPONENT,
    OUTCOME,
    PART_OF,
    RUN,
    RUNNER,
    TEMPLATES,
    SubmissionError,
)

POLL = 1.0
"""Seconds between two looks; watching would miss what happens while its connection is down."""
UNREACHABLE = 120.0
"""Seconds for which the API server may be away while somebody waits."""


class Unreachable(SubmissionError):
    """The API server does not answer."""


class Namespace:
    """What dpdist does in a namespace.

    Parameters
    ----------
    name : str or None
        None for that of the current context.
    context : str, optional
        Of the kubeconfig.
    """

    def __init__(self, name: str | None = None, context: str | None = None) -> None:
        try:
            import kr8s
            from kr8s import objects
        except ImportError:
            raise SubmissionError(
                "submitting to Kubernetes needs the package kr8s: pip install 'dpdist[kubernetes]'"
            ) from None
        self._kr8s: Any = kr8s
        self._objects: Any = objects
        self._daskjob: Any = objects.new_class("DaskJob", API, asyncio=False, namespaced=True)
        self._daskcluster: Any = objects.new_class("DaskCluster", API, asyncio=False, namespaced=True)
        with self._speaking("connect"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions that kr8s has not been tested with
            self._api = kr8s.api(context=context, namespace=name)
            self.name = str(self._api.namespace)

    @contextlib.contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Say in our words what is wrong with the cluster, or with the rights there."""
        import httpx

        try:
            yield
        except self._kr8s.ServerError as error:
            code = getattr(error.response, "status_code", None)
            if code is None or code >= 500 or code == 429:
                raise Unreachable(f"cannot {what}: the API server answered {code or 'nothing'}") from None
            hint = ""
            if code in (401, 403):
                hint = " (the rights that dpdist needs are in deploy/base/rbac.yaml)"
            elif code == 404:
                hint = " (is the dask-kubernetes operator installed, with its CRDs?)"
            raise SubmissionError(f"cannot {what}: {error}{hint}") from None
        except (self._kr8s.APITimeoutError, self._kr8s.ConnectionClosedError, httpx.TransportError, OSError) as error:
            raise Unreachable(f"cannot {what}: no connection to the API server ({type(error).__name__})") from None
        except ValueError as error:  # of kr8s, where it finds no or a wrong configuration
            raise SubmissionError(
                f"cannot {what}: {error}; expected a kubeconfig (KUBECONFIG or ~/.kube/config) or a service account"
            ) from None

    def _list(self, kind: Any, what: str, **selectors: Any) -> list[dict[str, Any]]:
        with self._speaking(f"list {what}"):
            found = kind.list(api=self._api, namespace=self.name, **selectors)
            return [each.raw.to_dict() if hasattr(each.raw, "to_dict") else dict(each.raw) for each in found]

    def _create(self, kind: Any, body: Mapping[str, Any], what: str) -> dict[str, Any] | None:
        """None if there is one of that name."""
        made = kind(dict(body), namespace=self.name, api=self._api)
        with self._speaking(f"make {what}"):
            try:
                made.create()
            except self._kr8s.ServerError as error:
                if getattr(error.response, "status_code", None) == 409:
                    return None
                raise
        return dict(made.raw.to_dict() if hasattr(made.raw, "to_dict") else made.raw)

    def templates(self) -> dict[str, dict[str, Any]]:
        """The pod templates of the namespace."""
        found = {t["metadata"]["name"]: t["template"] for t in self._list(self._objects.PodTemplate, "podtemplates")}
        missing = [f"dpdist-{kind}" for kind in TEMPLATES if f"dpdist-{kind}" not in found]
        if missing:
            raise SubmissionError(
                f"the namespace {self.name} has no pod templates {', '.join(missing)}: prepare it with "
                "'kubectl apply -k deploy/overlays/...', or name another with --namespace"
            )
        return {kind: found[f"dpdist-{kind}"] for kind in TEMPLATES}

    def owner_job(self, name: str) -> dict[str, Any]:
        """A Job, to which a run shall belong."""
        jobs = self._list(self._objects.Job, "jobs", field_selector=f"metadata.name={name}")
        if not jobs:
            raise SubmissionError(f"there is no Job {name} in the namespace {self.name}, given with --owner")
        return {"apiVersion": "batch/v1", "kind": "Job", **jobs[0]}

    def register(self, config_map: Mapping[str, Any]) -> dict[str, Any]:
        """Store the job of a run, or find it there; refuses another job under the same name."""
        run = config_map["metadata"]["labels"][RUN]
        made = self._create(self._objects.ConfigMap, config_map, f"the run {run}")
        if made is None:
            made = self.run(run)
            same = made["metadata"]["annotations"].get(ARGUMENTS) == config_map["metadata"]["annotations"][ARGUMENTS]
            if made["data"] != config_map["data"] or not same:
                raise SubmissionError(
                    f"there is a run {run} of another job, or with other options, in the namespace {self.name}: "
                    "choose another --name"
                )
        return {"apiVersion": "v1", "kind": "ConfigMap", **made}

    def runs(self) -> list[dict[str, Any]]:
        """The ConfigMaps of all runs, oldest first."""
        found = self._list(self._objects.ConfigMap, "runs", label_selector=f"{PART_OF}=dpdist,{RUN}")
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    def run(self, name: str) -> dict[str, Any]:
        """The ConfigMap of a run."""
        found = [each for each in self.runs() if each["metadata"]["labels"][RUN] == name]
        if not found:
            raise SubmissionError(f"there is no run {name} in the namespace {self.name}; 'dpdist status' lists them")
        return found[0]

    def attempts(self, run: str | None = None) -> dict[str, list[Attempt]]:
        """The attempts at a run, or at every run, in their order."""
        label = f"{PART_OF}=dpdist,{RUN}" + ("" if run is None else f"={run}")
        jobs = self._list(self._daskjob, "DaskJobs", label_selector=label)  # before the pods: see attempt_of
        pods = self._list(self._objects.Pod, "pods", label_selector=f"{label},{COMPONENT}={RUNNER}")
        runners = {pod["metadata"]["labels"][CLUSTER]: pod for pod in pods}
        found: dict[str, list[Attempt]] = {}
        for job in jobs:
            attempt = attempt_of(job, runners.get(job["metadata"]["name"]), time.time())
            found.setdefault(job["metadata"]["labels"][RUN], []).append(attempt)
        return {name: sorted(each, key=lambda attempt: attempt.number) for name, each in found.items()}

    def start(self, dask_job: Mapping[str, Any]) -> None:
        """Start an attempt; that somebody else started it just now is all right."""
        self._create(self._daskjob, dask_job, f"the DaskJob {dask_job['metadata']['name']}")

    def give_up(self, attempt: Attempt, outcome: str) -> None:
        """Note why an attempt is over, and end its pods: the operator does so only when it sees the runner end."""
        with self._speaking(f"end {attempt.name}"):
            for job in self._daskjob.list(
                api=self._api, namespace=self.name, field_selector=f"metadata.name={attempt.name}"
            ):
                job.patch({"metadata": {"annotations": {OUTCOME: outcome}}})
            kinds = (self._daskcluster, attempt.name), (self._objects.Pod, f"{attempt.name}-runner")
            for kind, name in kinds:
                for each in kind.list(api=self._api, namespace=self.name, field_selector=f"metadata.name={name}"):
                    with contextlib.suppress(self._kr8s.NotFoundError):
                        each.delete(propagation_policy="Background")

    def logs(self, attempt: Attempt, follow: bool) -> Iterator[str]:
        """Lines of the runner's log."""
        name = f"{attempt.name}-runner"
        with self._speaking(f"read the log of {name}"):
            pods = list(
                self._objects.Pod.list(api=self._api, namespace=self.name, field_selector=f"metadata.name={name}")
            )
            if not pods:
                raise SubmissionError(f"{attempt.name} has no runner pod: {attempt.reason or 'it is deleted'}")
            yield from pods[0].logs(container="runner", follow=follow, timeout=None)


def follow(
    namespace: Namespace,
    run: str,
    start: Callable[[int], None],
    retries: int,
    tell: Callable[[Attempt], None],
) -> Attempt:
    """Wait for a run, starting its first and every further attempt; return the one that decided.

    What was begun before is taken up: who waits can be killed and started again. An attempt that failed for a reason
    that lies outside of the job, or lost its runner, is followed by the next one, up to ``retries`` times.
    """
    told: tuple[str, str, str] | None = None
    away_since: float | None = None
    while True:
        try:
            attempts = namespace.attempts(run).get(run, [])
            for each in attempts:
                if each.state == "lost" and not each.noted:
                    namespace.give_up(each, each.reason)
            last = attempts[-1] if attempts else None
            if last is None:
                start(1)
            else:
                if (last.name, last.state, last.reason) != told:
                    told = last.name, last.state, last.reason
                    tell(last)
                if last.over:
                    if last.state == "done" or not last.again or last.number > retries:
                        return last
                    start(last.number + 1)
            away_since = None
        except Unreachable:
            away_since = time.monotonic() if away_since is None else away_since
            if time.monotonic() - away_since > UNREACHABLE:
                raise
        time.sleep(POLL)

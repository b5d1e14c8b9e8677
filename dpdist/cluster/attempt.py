"""What became of an attempt at a run on Kubernetes, read from its DaskJob and its runner pod.

The pod decides. The status of a DaskJob stays what it was when its runner pod disappears, or when the operator was away
at the wrong moment (dask-kubernetes issues 829 and 975).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dpdist.cluster.submission import ATTEMPT, OUTCOME

OPERATOR_PATIENCE = 60.0
"""Seconds in which the operator takes notice of a DaskJob."""
DELETION_PATIENCE = 30.0
"""Seconds after its grace period in which a deleted pod disappears, unless its node is lost."""
IMAGE_PATIENCE = 120.0
"""Seconds for which an image or a volume may be missing: a registry can fail for a moment."""
HOPELESS = {
    "CreateContainerConfigError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
}
FINAL = {1, 2, 3}
"""Exit codes after which another attempt ends the same way: a bug, a wrong setting, refused by the ledger."""


@dataclass(frozen=True)
class Attempt:
    """What became of one attempt.

    Attributes
    ----------
    name : str
        Of its DaskJob.
    number : int
    state : str
        "waiting" (for the operator, nodes or images), "running", "done", "failed", "lost" or "cancelled".
    reason : str
        In words; what a failed runner said last.
    exit_code : int or None
    again : bool
        Whether another attempt can help.
    started, finished : str or None
        Of the runner, as the cluster's clock has it.
    run_id : str or None
        Under which ledger and journal know the run, once it is done.
    noted : bool
        Whether it was given up, so that its pods are gone.
    """

    name: str
    number: int
    state: str
    reason: str = ""
    exit_code: int | None = None
    again: bool = False
    started: str | None = None
    finished: str | None = None
    run_id: str | None = None
    noted: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.state not in ("waiting", "running")


def attempt_of(job: Mapping[str, Any], pod: Mapping[str, Any] | None, now: float) -> Attempt:
    """What became of an attempt.

    Parameters
    ----------
    job : mapping
        Its DaskJob, read before the pod: the operator makes the pod before it says ClusterCreated.
    pod : mapping or None
        Its runner pod, if there is one.
    now : float
        Seconds since the epoch.
    """
    meta, status = job["metadata"], (job.get("status") or {}).get("jobStatus")
    name, number = str(meta["name"]), int(meta["labels"][ATTEMPT])

    outcome = (meta.get("annotations") or {}).get(OUTCOME)

    def attempt(state: str, reason: str = "", **more: Any) -> Attempt:
        again, noted = state == "lost", outcome is not None
        return Attempt(name, number, state, reason, **{"again": again, "noted": noted, **_times(pod), **more})

    if outcome is not None:
        if outcome == "cancelled":
            return attempt("cancelled", "cancelled by dpdist cancel")
        if pod is None or _phase(pod) not in ("Succeeded", "Failed"):
            return attempt("lost", outcome)
    if pod is None:
        return attempt(*_without_pod(status, now - _seconds(meta["creationTimestamp"])))
    phase = _phase(pod)
    if phase == "Succeeded":
        return attempt("done", exit_code=0)
    deleted = pod["metadata"].get("deletionTimestamp")
    if phase == "Failed":
        failed = _failed(attempt, pod)
        # the operator does not look at the end of a pod that is being deleted
        return (
            replace(failed, state="lost", reason="the runner pod was deleted") if deleted and failed.again else failed
        )
    if deleted is not None or phase == "Unknown":
        since = _seconds(deleted or meta["creationTimestamp"])
        if now - since > DELETION_PATIENCE:
            return attempt("lost", "the node of the runner pod does not answer")
        return attempt("running", "the runner pod is being deleted")
    if phase == "Running":
        return attempt("running")
    reason, hopeless = _waiting(pod)
    if hopeless and now - _seconds(pod["metadata"]["creationTimestamp"]) > IMAGE_PATIENCE:
        return attempt("failed", reason)
    return attempt("waiting", reason)


def _without_pod(status: str | None, age: float) -> tuple[Any, ...]:
    """State and reason, where there is no runner pod."""
    if status == "Successful":
        return "done", "its pod is gone"
    if status == "Failed":
        return "failed", "its pod is gone, and with it the reason"
    if status in ("ClusterCreated", "Running"):
        return "lost", "the runner pod was deleted"
    if age > OPERATOR_PATIENCE:
        return "waiting", "nothing acts on the DaskJob: does the dask-kubernetes operator run and watch this namespace?"
    return "waiting", "for the operator"


def _failed(attempt: Any, pod: Mapping[str, Any]) -> Attempt:
    status = pod["status"]
    ended = _ended(pod)
    code = ended.get("exitCode")
    message = str(ended.get("message") or "").strip()
    said = _last_words(pod).get("error") or message
    why = status.get("reason") or ended.get("reason")
    why = "" if why in (None, "Error", "Completed") else f"{why}: {status.get('message') or ''}".rstrip(": ")
    reason = " - ".join(part for part in (why, said) if part) or f"exit code {code}"
    result: Attempt = attempt("failed", reason, exit_code=code, again=code not in FINAL)
    return result


def _waiting(pod: Mapping[str, Any]) -> tuple[str, bool]:
    """What a pending pod waits for, and whether that is likely to be a mistake."""
    for container in pod["status"].get("containerStatuses", []):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if (reason := waiting.get("reason")) not in (None, "ContainerCreating", "PodInitializing"):
            return f"{reason}: {waiting.get('message') or container.get('image')}", reason in HOPELESS
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason')}: {condition.get('message') or ''}", False
    return "for the runner pod to start", False


def _times(pod: Mapping[str, Any] | None) -> dict[str, Any]:
    if pod is None:
        return {}
    ended = _ended(pod)
    started = ended.get("startedAt") or pod["status"].get("startTime")
    return {"started": started, "finished": ended.get("finishedAt"), "run_id": _last_words(pod).get("run_id")}


def _last_words(pod: Mapping[str, Any]) -> dict[str, str]:
    """What `dpdist.cli.runner` left in the termination message."""
    try:
        words = json.loads(_ended(pod).get("message") or "{}")
    except ValueError:  # the end of the log, of a process that was killed
        return {}
    return words if isinstance(words, dict) else {}


def _ended(pod: Mapping[str, Any]) -> dict[str, Any]:
    for container in pod["status"].get("containerStatuses", []):
        if ended := (container.get("state") or {}).get("terminated"):
            return dict(ended)
    return {}


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod["status"].get("phase") or "Pending")


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()

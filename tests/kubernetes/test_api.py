"""Every manifest, and what a submission makes, before a real API server (of Kubernetes 1.20; see `for_old_api`)."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.cluster import ControlPlane, for_old_api
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kustomize import build
from tests.test_deploy import KUSTOMIZATIONS, OVERLAYS, runs

pytestmark = pytest.mark.kubernetes

SUBMIT, RUN = (f"system:serviceaccount:dpdist:dpdist-{name}" for name in ("submit", "run"))
MAY = {
    "create daskjobs.kubernetes.dask.org",
    "patch daskjobs.kubernetes.dask.org",
    "list daskjobs.kubernetes.dask.org",
    "delete daskclusters.kubernetes.dask.org",
    "create configmaps",
    "list configmaps",
    "list podtemplates",
    "list pods",
    "delete pods",
    "get pods/log",
    "list jobs.batch",
}
MAY_NOT = {
    "get secrets",
    "list secrets",
    "create pods",
    "create pods/exec",
    "patch configmaps",
    "delete configmaps",
    "patch podtemplates",
    "create networkpolicies.networking.k8s.io",
    "delete daskjobs.kubernetes.dask.org",
    "create roles.rbac.authorization.k8s.io",
    "create jobs.batch",
    "create serviceaccounts/token",
}


@pytest.fixture(scope="module")
def prepared(api: ControlPlane) -> ControlPlane:
    """Without claims, of which the overlays have different ones that cannot be changed into each other."""
    objects = for_old_api(build(DEPLOY / "overlays/laptop"))
    api.apply([each for each in objects if each["kind"] != "PersistentVolumeClaim"])
    return api


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_the_server_takes_every_manifest(prepared, name):
    objects = for_old_api(build(DEPLOY / name))
    said = prepared.apply(objects, "--dry-run=server")
    assert said.count("server dry run") == len(objects)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_server_takes_a_submission(prepared, name):
    job = runs(build(DEPLOY / name))
    job["metadata"]["namespace"] = "dpdist"
    assert "created (server dry run)" in prepared.apply([job], "--dry-run=server")
    kept = json.loads(prepared.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(job)))
    runner = kept["spec"]["job"]["spec"]  # nothing was dropped on the way: the CRD is pruned to what it knows
    assert runner["containers"][0]["securityContext"] == job["spec"]["job"]["spec"]["containers"][0]["securityContext"]
    assert runner["volumes"] == job["spec"]["job"]["spec"]["volumes"]


def allowed(cluster: ControlPlane, account: str, what: str, namespace: str = "dpdist") -> bool:
    verb, resource = what.split()
    resource, _, part = resource.partition("/")
    more = ["--subresource", part] if part else []
    said = cluster.run("kubectl", "auth", "can-i", verb, resource, *more, "-n", namespace, "--as", account, check=False)
    assert said.stdout.strip() in ("yes", "no"), said.stderr
    return said.stdout.strip() == "yes"


def test_who_submits_has_these_rights_and_no_others(prepared):
    assert {what for what in MAY | MAY_NOT if allowed(prepared, SUBMIT, what)} == MAY
    assert not {what for what in MAY if allowed(prepared, SUBMIT, what, "default")}


def test_pods_of_a_run_have_no_rights(prepared):
    assert not {what for what in MAY | MAY_NOT if allowed(prepared, RUN, what)}

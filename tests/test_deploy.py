"""The manifests and the image recipe of ``deploy/``, checked without a cluster.

`tests.kubernetes.kustomize` stands in for kustomize. Core kinds are validated against the schemas of current
Kubernetes versions, the operator's kinds against the CRDs it ships. What a real API server and real pods say is in
``tests/kubernetes``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 - brings its configuration
import jsonschema
import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement

from dpdist.cli.submit import command as submit
from dpdist.cluster.submission import TEMPLATES, config_map, dask_job
from dpdist.jobs.job import load_job
from tests.kubernetes.kustomize import build

DEPLOY = Path(__file__).parents[1] / "deploy"
KUSTOMIZATIONS = ("overlays/laptop", "overlays/production", "notebooks")
OVERLAYS = KUSTOMIZATIONS[:2]
VERSIONS = ("1.31", "1.34", "1.37")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def built() -> dict[str, list[Object]]:
    return {name: build(DEPLOY / name) for name in KUSTOMIZATIONS}


def crds() -> dict[str, Object]:
    """The schemas of the operator's kinds, in which what is not named is not allowed."""
    import dask_kubernetes

    folder = Path(dask_kubernetes.__path__[0]) / "operator/deployment/helm/dask-kubernetes-operator/crds"
    found = {}
    for path in folder.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        [version] = crd["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        # every object has them, so that CRDs do not name them
        schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
        found[crd["spec"]["names"]["kind"]] = strict(schema)
    return found


def strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(below) for name, below in schema.items()}
    if "properties" in schema and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed


def runs(objects: list[Object]) -> Object:
    """The DaskJob that `dpdist submit` makes from the templates."""
    found = {o["metadata"]["name"]: o["template"] for o in objects if o["kind"] == "PodTemplate"}
    templates = {kind: found[f"dpdist-{kind}"] for kind in TEMPLATES}
    owner = config_map("a-run", "", [], None)
    owner["metadata"]["uid"] = "b1946ac9"
    options = {"arguments": ["--output", "/runs/a"], "workers": 3, "image": "example.org/dpdist:1", "owner": owner}
    return dask_job("a-run", 1, templates, **options)


def pods(objects: list[Object]) -> dict[str, Object]:
    """Every pod that comes of the objects, and of a submission, by where it stands."""
    found = {}
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "PodTemplate":
            found[name] = each["template"]["spec"]
        elif each["kind"] == "CronJob":
            found[name] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif each["kind"] == "DaskCluster":
            found |= {f"{name}/{kind}": each["spec"][kind]["spec"] for kind in ("scheduler", "worker")}
    if any(o["kind"] == "PodTemplate" for o in objects):
        spec = runs(objects)["spec"]
        cluster = spec["cluster"]["spec"]
        found["DaskJob/runner"] = spec["job"]["spec"]
        found |= {f"DaskJob/{kind}": cluster[kind]["spec"] for kind in ("scheduler", "worker")}
    return found


def complaints(pod: Object) -> list[str]:
    """What Pod Security "restricted", and we, have against a pod."""
    found = []
    security = pod.get("securityContext", {})
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        found.append("may run as root")
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        found.append("has no seccomp profile")
    if any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        found.append("shares the host's namespaces")
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= allowed:
            found.append(f"volume {volume['name']}")
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            found.append(f"volume {volume['name']} has no limit")
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        rights = container.get("securityContext", {})
        if rights.get("allowPrivilegeEscalation") is not False or rights.get("privileged"):
            found.append("may gain rights")
        if rights.get("capabilities") != {"drop": ["ALL"]}:
            found.append("has capabilities")
        if rights.get("readOnlyRootFilesystem") is not True:
            found.append("writes to its root file system")
        if rights.get("runAsUser") == 0 or rights.get("runAsNonRoot") is False:
            found.append("runs as root")
        if "memory" not in container.get("resources", {}).get("limits", {}):
            found.append("has no memory limit")
        if "hostPort" in str(container.get("ports")):
            found.append("takes a port of the host")
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_core_kinds_are_valid(built, name, version):
    checked = 0
    for each in built[name]:
        if "dask.org" not in each["apiVersion"]:
            kubernetes_validate.validate(each, version, strict=True)
            checked += 1
    assert checked >= 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_of_a_submission_are_valid(built, name, version):
    for where, pod in pods(built[name]).items():
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        if "PodTemplate" not in where or "runner" not in where:  # the runner's command comes with the submission
            kubernetes_validate.validate(whole, version, strict=True)


def test_the_operators_kinds_are_valid(built):
    schemas = crds()
    checked = set()
    for name in KUSTOMIZATIONS:
        ours = [each for each in built[name] if "dask.org" in each["apiVersion"]]
        ours += [runs(built[name])] if name in OVERLAYS else []
        for each in ours:
            jsonschema.Draft7Validator(schemas[each["kind"]]).validate(each)
            checked.add(each["kind"])
    assert checked == {"DaskJob", "DaskCluster", "DaskAutoscaler"}


def test_a_wrong_daskjob_is_noticed(built):
    job = runs(built["overlays/laptop"])
    job["spec"]["job"]["spec"]["containerz"] = job["spec"]["job"]["spec"].pop("containers")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(crds()["DaskJob"]).validate(job)


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_pods_are_restricted(built, name):
    found = {where: complaints(pod) for where, pod in pods(built[name]).items()}
    assert found and not {where: what for where, what in found.items() if what}


def test_a_careless_pod_is_noticed():
    pod = {"containers": [{"name": "x"}], "hostNetwork": True, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    assert len(complaints(pod)) >= 8


@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_only_the_submitting_pod_has_a_token(built, name):
    with_token = [where for where, pod in pods(built[name]).items() if pod["automountServiceAccountToken"]]
    assert with_token == (["CronJob/dpdist-nightly"] if name in OVERLAYS else [])


@pytest.mark.parametrize("name", OVERLAYS)
def test_rights_are_few(built, name):
    roles = [each for each in built[name] if each["kind"] in ("Role", "ClusterRole")]
    [role] = roles
    assert role["kind"] == "Role"
    granted = {f"{r}:{v}" for rule in role["rules"] for r in rule["resources"] for v in rule["verbs"]}
    assert not [each for each in granted if "*" in each or "secrets" in each or "exec" in each]
    writing = {each for each in granted if each.split(":")[1] not in ("get", "list")}
    assert writing == {
        "daskjobs:create",
        "daskjobs:patch",
        "daskclusters:delete",
        "configmaps:create",
        "pods:delete",
    }


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_network_is_closed(built, name):
    policies = {o["metadata"]["name"]: o["spec"] for o in built[name] if o["kind"] == "NetworkPolicy"}
    assert policies["dpdist-default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    [rule] = policies["dpdist-scheduler"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8786}]
    [peer] = rule["from"]
    assert list(peer) == ["podSelector"]  # of this namespace only
    [among] = peer["podSelector"]["matchExpressions"]
    assert among["values"] == ["worker", "job-runner"]
    assert "ingress" not in policies["dpdist-runner"] and "ingress" not in policies["dpdist-submit"]
    assert "0.0.0.0/0" not in str(policies)


@pytest.mark.parametrize("name", OVERLAYS)
def test_there_is_no_dashboard(built, name):
    cluster = runs(built[name])["spec"]["cluster"]["spec"]
    assert [port["name"] for port in cluster["scheduler"]["service"]["ports"]] == ["tcp-comm"]
    for kind in ("scheduler", "worker"):
        assert "--no-dashboard" in cluster[kind]["spec"]["containers"][0]["args"]
    assert "--no-nanny" in cluster["worker"]["spec"]["containers"][0]["args"]


def settings(objects: list[Object]) -> dict[str, Any]:
    """Dask's settings, as a pod sees them."""
    [found] = [o["data"] for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "dpdist-dask"]
    return dict(dask.config.merge(*(yaml.safe_load(text) for text in found.values())))


@pytest.mark.parametrize("name", OVERLAYS)
def test_dask_knows_every_setting(built, name):
    def leaves(tree: Any, known: Any, where: str) -> None:
        for key, value in tree.items():
            assert key in known, f"{where}.{key}"
            if isinstance(value, dict):
                leaves(value, known[key], f"{where}.{key}")

    ours = settings(built[name])
    defaults = dask.config.merge(*dask.config.defaults)
    leaves(ours, {**defaults}, "")
    memory = ours["distributed"]["worker"]["memory"]
    assert memory == {"target": False, "spill": False, "pause": False, "terminate": False}
    for side in ("scheduler", "worker"):
        assert ours["distributed"][side]["http"]["routes"] == ["distributed.http.health"]


def test_production_is_encrypted(built):
    objects = built["overlays/production"]
    comm = settings(objects)["distributed"]["comm"]
    assert comm["require-encryption"] is True and comm["tls"]["ca-file"]
    spec = runs(objects)["spec"]
    runner, cluster = spec["job"]["spec"], spec["cluster"]["spec"]
    address = {e["name"]: e.get("value") for e in runner["containers"][0]["env"]}["DASK_SCHEDULER_ADDRESS"]
    assert address == "tls://a-run-1-scheduler:8786"
    for pod in (runner, cluster["scheduler"]["spec"], cluster["worker"]["spec"]):
        assert {"name": "tls", "mountPath": "/etc/dpdist/tls", "readOnly": True} in pod["containers"][0]["volumeMounts"]


def test_secrets_are_named_and_go_where_they_are_needed(built):
    objects = built["overlays/production"]
    assert not [o for o in objects if o["kind"] == "Secret"]
    spec = runs(objects)["spec"]
    cluster = spec["cluster"]["spec"]
    runner, worker, scheduler = (
        str(pod) for pod in (spec["job"]["spec"], cluster["worker"]["spec"], cluster["scheduler"]["spec"])
    )
    assert "dpdist-ledger" in runner and "dpdist-ledger" not in worker + scheduler
    assert "dpdist-store" in runner and "dpdist-store" in worker and "dpdist-store" not in scheduler


def test_the_notebooks_cluster_has_the_pods_of_a_run(built):
    [cluster] = [o["spec"] for o in built["notebooks"] if o["kind"] == "DaskCluster"]
    templates = {o["metadata"]["name"]: o["template"]["spec"] for o in build(DEPLOY / "base") if "template" in o}
    assert cluster["worker"]["spec"] == templates["dpdist-worker"]
    ours = yaml.safe_load(yaml.safe_dump(cluster["scheduler"]["spec"]).replace("http-dashboard", "health"))
    route = ours["containers"][0]["env"].pop()
    assert route["name"] == "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"
    assert yaml.safe_load(route["value"]) == ["distributed.http.health", "distributed.http.scheduler.api"]
    assert ours == templates["dpdist-scheduler"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_nightly_command_exists(built, name):
    [cron] = [o["spec"] for o in built[name] if o["kind"] == "CronJob"]
    [container] = cron["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    program, word, *arguments = container["args"]
    assert (program, word) == ("dpdist", "submit")
    given = submit.make_context("submit", [each.replace("$(RUN)", "night") for each in arguments]).params
    assert given["wait"] and given["retries"] == 3 and given["name"] == given["owner"] == "night"
    assert cron["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_patch_of_the_nightly_job_that_the_readme_shows(tmp_path, name):
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("site"))
    overlay = tmp_path / "deploy" / name
    patch = re.search(r"```yaml\n(apiVersion.*?)```", (DEPLOY / "README.md").read_text(), re.S)[1]
    (overlay / "nightly.yaml").write_text(patch)
    listed = (overlay / "kustomization.yaml").read_text().replace("patches:\n", "patches:\n  - path: nightly.yaml\n")
    (overlay / "kustomization.yaml").write_text(listed)
    [told] = [o for o in build(overlay) if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "dpdist-nightly"]
    (tmp_path / "job.yaml").write_text(told["data"]["job.yaml"])
    job = load_job(tmp_path / "job.yaml")
    assert job.asked["data"]["path"] == "/data/rows.zarr" and job.asked["params"]["classes"] == ["no", "yes"]


def test_the_image_is_pinned_and_has_no_tools():
    text = (DEPLOY / "Containerfile").read_text()
    [base] = re.findall(r"^ARG PYTHON=(\S+)", text, re.M)
    assert re.fullmatch(r"docker.io/library/python:3\.\d+\.\d+-slim-\w+", base)
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    assert len(stages) == 2 and all(stage.startswith("${PYTHON}") for stage in stages)
    assert "apt-get" not in stages[1] and "pip install" not in stages[1] and "COPY --from=build" in stages[1]
    assert re.findall(r"^USER (\S+)", stages[1], re.M) == ["10001:10001"]
    assert text.count("compileall -q") == text.count("--invalidation-mode unchecked-hash") == 2
    assert "HOME=/tmp" in stages[1] and "NUMBA_CACHE_DIR=/tmp/numba" in stages[1]


def test_the_constraints_name_one_version_of_every_requirement():
    import tomllib

    lines = (DEPLOY / "constraints.txt").read_text().split()
    pinned = dict(line.lower().replace("_", "-").split("==") for line in lines)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in ("kubernetes", "postgres", "s3"):
        wanted += project["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        version = pinned[requirement.name.lower()]
        assert requirement.specifier.contains(version), f"{requirement} and {version}"

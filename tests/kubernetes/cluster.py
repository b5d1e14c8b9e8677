"""A real Kubernetes for tests, from the programs that ``node/build.sh`` made: the API alone, or a node with pods."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = "DPDIST_KUBE_CACHE"
BUILT = "DPDIST_KUBE_IMAGE"  # a docker archive of `IMAGE`, built by deploy/Containerfile, in place of our imitation
IMAGE = "localhost/dpdist:dev"
USER = 10001
ADDRESS = "10.77.0.1"  # the node's, as pods see it
SOURCES = ("dpdist", "pipelines", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def for_old_api(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for the API of 1.20, which knows CronJobs as v1beta1, without time zones and podFailurePolicy."""
    old = json.loads(json.dumps(list(objects)))
    for each in old:
        if each["kind"] == "CronJob":
            each["apiVersion"] = "batch/v1beta1"
            del each["spec"]["timeZone"]
            del each["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]
    return list(old)


class Cluster:
    """What both kinds have: a folder, and commands that speak to the API."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache

    def command(self, *words: object) -> list[str]:
        raise NotImplementedError

    def run(self, *words: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        command = self.command(*words)
        options = {"capture_output": True, "text": True, "timeout": 300, **options}
        done = subprocess.run(command, env=self.environment(), **options)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(*words), env=self.environment(), text=True, **options)

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def kubectl(self, *words: object, **options: Any) -> str:
        return str(self.run("kubectl", *words, **options).stdout)

    def get(self, *words: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def apply(self, objects: Sequence[dict[str, Any]], *options: str) -> str:
        return self.kubectl("apply", *options, "-f", "-", input=yaml.safe_dump_all(objects))

    def install_crds(self) -> None:
        import dask_kubernetes

        charts = Path(dask_kubernetes.__path__[0]) / "operator/deployment/helm/dask-kubernetes-operator/crds"
        self.kubectl("apply", "-f", charts)
        self.kubectl("wait", "--for", "condition=established", "--timeout", "60s", "crd", "--all")


class ControlPlane(Cluster):
    """etcd, API server, controllers; no pods run. Any user."""

    def __enter__(self) -> ControlPlane:
        subprocess.run([HERE / "node/control-plane.sh", "up", self.folder, self.cache], check=True, capture_output=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([HERE / "node/control-plane.sh", "down", self.folder], check=True)

    def command(self, *words: object) -> list[str]:
        return [*map(str, words)]

    def environment(self) -> dict[str, str]:
        path = f"{self.cache / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig"), "PATH": path}


class Node(Cluster):
    """One whole node; needs root."""

    def __enter__(self) -> Node:
        image = os.environ.get(BUILT) or build_image(self.cache)
        began = time.monotonic()
        node = [HERE / "node/node.sh", "up", self.folder, self.cache, image]
        done = subprocess.run(node, capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable})
        assert done.returncode == 0, done.stdout + done.stderr
        self.seconds = time.monotonic() - began
        self.operator: subprocess.Popen[str] | None = None
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.operator.kill()
            self.operator.wait()
        if keep := os.environ.get("DPDIST_KUBE_LOGS"):
            shutil.copytree(self.folder / "logs", keep, dirs_exist_ok=True)
        subprocess.run([HERE / "node/node.sh", "down", self.folder], check=True)

    def command(self, *words: object) -> list[str]:
        return [str(HERE / "node/node.sh"), "run", str(self.folder), *map(str, words)]

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """This thread is in the node's network: connections and servers that it makes are there, and stay there."""
        leader = (self.folder / "leader").read_text().split()[0]
        c = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{leader}/ns/net") as nodes:
            assert c.setns(nodes.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert c.setns(ours.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def publish(self, port: int) -> None:
        """Pods reach a server on the node's loopback at `ADDRESS`."""
        to = ("-p", "tcp", "-d", ADDRESS, "--dport", port, "-j", "DNAT", "--to-destination", f"127.0.0.1:{port}")
        self.run("iptables", "-t", "nat", "-A", "PREROUTING", *to)
        self.run("sysctl", "-q", "net.ipv4.conf.all.route_localnet=1")

    def start_operator(self, namespace: str) -> None:
        self.install_crds()
        words = (sys.executable, "-m", "kopf", "run", "-m", "dask_kubernetes.operator.controller", "-n", namespace)
        with open(self.folder / "logs/operator.log", "w") as log:
            self.operator = self.start(*words, stdout=log, stderr=log)

    def volumes(self, namespace: str, *claims: str) -> None:
        """A folder of the node for each claim; returns when all are bound."""
        objects = []
        for claim in claims:
            place = self.volume(claim)
            place.mkdir(parents=True)
            os.chown(place, USER, USER)
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": claim},
                    "spec": {
                        "capacity": {"storage": "100Gi"},
                        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                        "claimRef": {"namespace": namespace, "name": claim},
                        "hostPath": {"path": str(place)},
                    },
                }
            )
        self.apply(objects)

    def volume(self, claim: str) -> Path:
        """Where the contents of a claim are."""
        return self.folder / "volumes" / claim


def tls_secret(folder: Path) -> dict[str, Any]:
    """The Secret of the production overlay, with a new certificate that is its own authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    files = ("-keyout", folder / "tls.key", "-out", folder / "tls.crt")
    openssl = ["openssl", "req", "-x509", *key, "-subj", "/CN=dpdist", *files]
    subprocess.run(openssl, check=True, capture_output=True)
    certificate, private = (folder / "tls.crt").read_text(), (folder / "tls.key").read_text()
    return secret("dpdist-tls", {"ca.crt": certificate, "tls.crt": certificate, "tls.key": private})


def secret(name: str, values: dict[str, str]) -> dict[str, Any]:
    """A Secret in the namespace of the overlays."""
    meta = {"name": name, "namespace": "dpdist"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values}


def build_image(cache: Path) -> Path:
    """The image of this source: an environment made as ``deploy/Containerfile`` makes it, with the same constraints.

    The environment is kept in the cache; only dpdist itself is installed anew.
    """
    constraints = ROOT / "deploy/constraints.txt"
    environment, stamp = cache / "image", cache / "image.txt"
    python = environment / "bin/python"
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    wanted = constraints.read_text() + (ROOT / "pyproject.toml").read_text()
    source = cache / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for name in SOURCES:  # a copy: building leaves files beside the source
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        binaries = ["--only-binary", ":all:", "--no-binary", "dpdist"]
        subprocess.run([*pip, *binaries, "-c", constraints, f"{source}[kubernetes,postgres,s3]"], check=True)
        stamp.write_text(wanted)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", source], check=True)
    out = cache / "dpdist.tar"
    subprocess.run([sys.executable, HERE / "node/image.py", "env", python, IMAGE, out], check=True, capture_output=True)
    return out

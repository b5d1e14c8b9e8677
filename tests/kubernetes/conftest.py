"""A control plane or a whole node for these tests, from the folder named in DPDIST_KUBE_CACHE.

tests/kubernetes/node/build.sh cache                                              once: 4 to 12 minutes
DPDIST_KUBE_CACHE=cache python -m pytest tests/kubernetes -m kubernetes -n 0      the node's tests need root
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import CACHE, ControlPlane, Node, for_old_api
from tests.kubernetes.kustomize import build

DEPLOY = Path(__file__).parents[2] / "deploy"
NUMBERS: dict[str, object] = {}


@pytest.fixture(scope="session")
def cache() -> Path:
    place = os.environ.get(CACHE)
    if place is None:
        pytest.skip(f"{CACHE} is not set: it names the folder that tests/kubernetes/node/build.sh has filled")
    found = Path(place).resolve()
    assert (found / "images/pause.tar").exists(), f"{CACHE}={place} is not complete: run build.sh again"
    return found


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """On a file system on which overlayfs can write, which a container's own is not."""
    place = Path(tempfile.mkdtemp(prefix="dpdist-kube-", dir=os.environ.get("DPDIST_KUBE_TMP")))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def api(cache: Path, folder: Path) -> Iterator[ControlPlane]:
    with ControlPlane(folder / "api", cache) as cluster:
        cluster.install_crds()
        yield cluster


@pytest.fixture(scope="session")
def node(cache: Path, folder: Path) -> Iterator[Node]:
    assert os.getuid() == 0, "a node needs root; as another user run tests/kubernetes/test_api.py alone"
    with Node(folder / "node", cache) as cluster:
        NUMBERS["node up (s)"] = round(cluster.seconds, 1)
        cluster.start_operator("dpdist")
        cluster.apply(for_old_api(build(DEPLOY / "overlays/laptop")))
        cluster.volumes("dpdist", "dpdist-runs", "dpdist-data")
        yield cluster


@pytest.fixture
def numbers() -> dict[str, object]:
    """What was measured; shown at the end."""
    return NUMBERS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if NUMBERS:
        terminalreporter.section("measured on the node")
        for name, value in NUMBERS.items():
            terminalreporter.line(f"{name}: {value}")

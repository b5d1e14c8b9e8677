"""A worker with other versions is refused: at once before anything is charged, later before it computes anything."""

from __future__ import annotations

import pytest

from dpdist import Ledger
from dpdist.engine.progress import Charged, watching
from dpdist.engine.versions import versions
from dpdist.engine.workers import connect
from dpdist.errors import ClusterError
from tests.faults import jobs
from tests.faults.cluster import RealCluster, names, until


def shim(folder, name, version):
    """A folder whose metadata come before the installed ones."""
    info = folder / f"shim-{name}" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": str(info.parent)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("versions"), 1) as cluster:
        yield cluster.ready()


@pytest.mark.parametrize(("name", "version"), [("dpdist", "0.0.7"), ("numba", "0.1.2"), ("numpy", "1.0.0")])
def test_before_anything_is_charged(cluster, tmp_path, name, version):
    jobs.write(tmp_path / "rows.zarr")
    ledger, events = Ledger(tmp_path / "ledger.sqlite"), []
    cluster.start_worker(env=shim(tmp_path, name, version))
    try:
        cluster.ready(2)
        told = version if name == "dpdist" else ".".join(version.split(".")[:2])
        with watching(events.append), pytest.raises(ClusterError) as refused:
            jobs.run(tmp_path / "rows.zarr", ledger, "run", cluster.address)
        assert f"has {name} {told} instead of {versions()[name]}: run client and workers from one image" in str(
            refused.value
        )
        assert "Nothing was charged" in str(refused.value)
        assert not any(isinstance(event, Charged) for event in events) and ledger.accounts() == []
    finally:
        cluster.workers.pop().kill()
        with cluster.client(1) as client:
            until(lambda: len(client.nthreads()) == 1)


def test_a_patch_of_numpy_is_forgiven(cluster, tmp_path):
    minor = versions()["numpy"]
    cluster.start_worker(env=shim(tmp_path, "numpy", f"{minor}.999"))
    try:
        cluster.ready(2)
        connect(cluster.address).close()
    finally:
        cluster.workers.pop().kill()
        with cluster.client(1) as client:
            until(lambda: len(client.nthreads()) == 1)


def test_a_worker_that_joins_in_the_middle_of_a_run_computes_nothing(tmp_path):
    jobs.write(tmp_path / "rows.zarr")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with RealCluster(tmp_path, 1) as cluster:
        cluster.ready()

        def replace() -> None:
            cluster.start_worker(env=shim(tmp_path, "dpdist", "0.0.7"))
            cluster.ready(2)
            cluster.workers[0].kill()

        with jobs.at_release(2, replace), pytest.raises(ClusterError, match=r"that joined has dpdist 0\.0\.7"):
            jobs.run(tmp_path / "rows.zarr", ledger, "run", cluster.address)
        cluster.workers[1].kill()
        cluster.start_worker()
        with cluster.client(1) as client:
            until(lambda: names(client) == ["w2"])
        with jobs.at_release(0, None) as replayed:
            jobs.run(tmp_path / "rows.zarr", ledger, "run", cluster.address)
    assert replayed == [True, True, False, False, False, False]
    assert len(ledger.history(ledger.accounts()[0])) == 1

"""TLS with real scheduler and worker processes: who has the right certificate gets in, and nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading

import dask
import numpy as np
import pytest
from distributed import Client

from dpdist import Dataset, Ledger, LogisticRegression
from dpdist.central import GradientDescent
from dpdist.cli.exit_codes import report
from dpdist.engine.security import certificates_required
from dpdist.engine.waiting import wait_for_workers
from dpdist.engine.workers import connect
from dpdist.errors import ClusterError
from dpdist.jobs.job import JobError, load_job
from dpdist.jobs.run import run_job
from tests.faults.cluster import RealCluster, make_certificates, within


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ours(folder):
    return make_certificates(folder, "ours")


@pytest.fixture(scope="module")
def theirs(folder):
    return make_certificates(folder, "theirs")


@pytest.fixture(scope="module")
def cluster(folder, ours):
    with RealCluster(folder / "cluster", 2, tls=ours) as cluster:
        yield cluster.ready()


@pytest.fixture(scope="module")
def store(folder):
    X = np.random.default_rng(0).normal(size=(4000, 3)) / 2
    Dataset.from_arrays(folder / "rows.zarr", X=X, y=(X[:, 0] > 0).astype(int), partition_rows=500)
    return str(folder / "rows.zarr")


def fit(store, **options):
    model = LogisticRegression(
        classes=[0, 1],
        row_norm=1.0,
        epsilon=1.0,
        delta=1e-6,
        solver=GradientDescent(n_rounds=3),
        random_state=0,
        ledger=Ledger(":memory:"),
        **options,
    )
    return model.fit(Dataset.open(store)).coef_


def test_a_mapping_with_files_gets_in(cluster, ours, store):
    assert np.array_equal(fit(store, cluster=ours.cluster(cluster.address)), fit(store, cluster="threads"))
    with cluster.client() as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    assert len(workers) == 2 and all(address.startswith("tls://") for address in workers)


def test_dasks_own_configuration_gets_in(cluster, ours, store, monkeypatch):
    import dask

    files = {"ca-file": str(ours.ca), "client": {"cert": str(ours.cert), "key": str(ours.key)}}
    with dask.config.set({"distributed.comm.tls": {**dask.config.get("distributed.comm.tls"), **files}}):
        connect(cluster.address).close()
        partly = {"address": cluster.address, "ca_file": str(ours.ca)}
        connect(partly).close()


def test_a_job_names_its_certificates(cluster, ours, store, tmp_path):
    job = {
        "method": "dp-gd",
        "data": {"path": store},
        "params": {"classes": [0, 1], "row_norm": 1.0, "solver": {"n_rounds": 2}},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "ledger": str(tmp_path / "ledger.sqlite"),
        "cluster": ours.cluster(cluster.address),
        "output": str(tmp_path / "run"),
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    assert run_job(load_job(tmp_path / "job.yaml"))["status"] == "done"
    # another address, the same certificates
    job["cluster"] = ours.cluster("tls://127.0.0.1:1")
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    other = load_job(tmp_path / "job.yaml", [f"output={tmp_path / 'other'}"])
    assert run_job(other, scheduler=cluster.address)["status"] == "done"


def test_no_certificate_is_named_before_anybody_is_asked(cluster, ours):
    with pytest.raises(ClusterError, match="asks its clients for a certificate, and ca_file and cert_file are not"):
        connect(cluster.address)
    with pytest.raises(ClusterError, match="cert_file is not given"):
        connect({"address": cluster.address, "ca_file": str(ours.ca)})


def test_a_client_without_a_certificate_is_refused_by_the_scheduler(cluster, ours):
    """Whatever the client checks, it is the scheduler that closes the door: a bare TLS connection shows it."""
    assert certificates_required(cluster.address) is True
    with cluster.client() as client:
        worker = next(iter(client.nthreads()))
    assert certificates_required(worker) is True
    # the same question to a server that does not ask for one
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.cert, ours.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with context.wrap_socket(server.accept()[0], server_side=True) as tls:
                tls.send(b"welcome")

        thread = threading.Thread(target=greet)
        thread.start()
        assert certificates_required(f"tls://127.0.0.1:{server.getsockname()[1]}") is False
        thread.join()


def test_a_certificate_of_another_authority_is_refused(cluster, ours, theirs, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 2.0)
    stranger = {**theirs.cluster(cluster.address), "ca_file": str(ours.ca)}
    with pytest.raises(
        ClusterError, match=r"it refused our certificate \(.*UNKNOWN_CA.*Nothing was charged"
    ) as refused:
        connect(stranger)
    assert report(refused.value) == 2
    tls = {"ca-file": ours.ca, "client.cert": theirs.cert, "client.key": theirs.key}
    configured = dask.config.set({f"distributed.comm.tls.{name}": str(path) for name, path in tls.items()})
    with configured, pytest.raises(ClusterError, match="it refused our certificate"):
        within(60, lambda: wait_for_workers(cluster.address, 1, 600.0))


def test_a_wrong_authority_is_named(cluster, ours, theirs, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 2.0)
    wrong = {**ours.cluster(cluster.address), "ca_file": str(theirs.ca)}
    with pytest.raises(ClusterError, match="its certificate was not signed by the authority in ca_file") as refused:
        connect(wrong)
    assert report(refused.value) == 2


def test_a_plain_client_is_refused(cluster, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 2.0)
    plain = cluster.address.replace("tls://", "tcp://")
    with pytest.raises(ClusterError, match="if it is encrypted, write tls://"):
        connect(plain)
    with pytest.raises((OSError, TimeoutError)):
        Client(plain, timeout=2, set_as_default=False)


def test_a_plain_scheduler_is_named(ours, tmp_path, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 2.0)
    with RealCluster(tmp_path, 1) as plain:
        plain.ready()
        with pytest.raises(ClusterError, match="it does not speak TLS") as refused:
            connect(ours.cluster(plain.address.replace("tcp://", "tls://")))
    assert report(refused.value) == 2


def test_nobody_there(ours, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 1.0)
    for cluster in ("tcp://127.0.0.1:1", ours.cluster("tls://127.0.0.1:1")):
        with pytest.raises(ClusterError, match=r"nothing answers there \(ConnectionRefusedError\)") as away:
            connect(cluster)
        assert report(away.value) == 75


def test_a_scheduler_that_ends_in_the_handshake_may_be_back_later(ours, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=end, daemon=True).start()
        with pytest.raises(ClusterError, match="the connection was closed") as away:
            connect(ours.cluster(f"tls://127.0.0.1:{server.getsockname()[1]}"))
        server.shutdown(socket.SHUT_RDWR)
    assert report(away.value) == 75


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ca_file": "nowhere.pem"}, r"cluster.ca_file 'nowhere.pem' cannot be read \(No such file"),
        ({"cert_file": "THEIRS"}, "KEY_VALUES_MISMATCH"),
        ({"ca_file": "JUNK"}, "are not PEM files"),
        ({"key_file": "LOCKED"}, "locked with a passphrase"),
        ({"address": "tcp://127.0.0.1:8786"}, "which is not encrypted, but certificates are given"),
        ({"certfile": "x"}, "no key 'certfile'"),
        ({"address": "127.0.0.1:8786"}, r"'127.0.0.1:8786' is not the address of a scheduler: expected tcp://"),
        ({"address": "https://127.0.0.1:8786"}, "is not the address of a scheduler"),
        ({"address": "tls://127.0.0.1"}, "is not the address of a scheduler"),
    ],
    ids=["missing", "mismatch", "junk", "locked", "plain", "unknown", "no protocol", "another protocol", "no port"],
)
def test_files_that_do_not_fit(ours, theirs, tmp_path, change, said):
    (tmp_path / "junk").write_text("this is no certificate")
    (tmp_path / "locked").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    files = {"THEIRS": theirs.cert, "JUNK": tmp_path / "junk", "LOCKED": tmp_path / "locked"}
    change = {key: str(files.get(value, value)) for key, value in change.items()}
    with pytest.raises(ClusterError, match=said) as wrong:
        connect({**ours.cluster("tls://127.0.0.1:8786"), **change})
    assert report(wrong.value) == 2


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"address": "host:8786"}, "expected the address of a scheduler"),
        ({"address": "tcp://host:8786", "ca_file": "ca.pem"}, "it is not encrypted, and ca_file is given"),
        ({"address": "tls://host:8786", "workers": 2}, "unknown key"),
        ({"address": "tls://host:8786", "key_file": 5}, "cluster.key_file"),
    ],
)
def test_a_job_with_a_wrong_cluster_is_refused(tmp_path, cluster, said):
    job = {"method": "dp-gd", "data": {"generate": "logit"}, "params": {"row_norm": 1.0, "classes": [-1, 1]}}
    (tmp_path / "job.yaml").write_text(json.dumps({**job, "budget": {"epsilon": 1, "delta": 1e-6}, "cluster": cluster}))
    with pytest.raises(JobError, match=said):
        load_job(tmp_path / "job.yaml")

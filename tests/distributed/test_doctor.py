"""``dpdist doctor`` on real deployments: a sound one passes, and each fault that one can have is named with its fix."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from dpdist import Budget, Dataset, Ledger
from dpdist.engine.doctor import Finding, clocks, examine_cluster
from dpdist.engine.doctor_stores import examine_journal, examine_ledger
from dpdist.privacy.ledger.journal import Journal
from tests.cli.command import call
from tests.distributed.test_versions import shim
from tests.faults.clock import COMPILER, JumpingClock
from tests.faults.cluster import RealCluster, make_certificates, names, until, within
from tests.s3 import BUCKET


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("doctor") / "rows.zarr"
    X = np.random.default_rng(0).normal(size=(400, 2))
    Dataset.from_arrays(place, X=X, y=(X[:, 0] > 0).astype(int), partition_rows=100)
    return place


@pytest.fixture(scope="module")
def disk():
    """A folder on a disk that is kept, as pytest's may not be."""
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(dir=os.path.expanduser("~"))
    yield folder
    shutil.rmtree(folder)


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    assert all(one.says and (one.fix or one.status == "ok") for one in findings)
    return {one.check: one for one in findings}


def own_address() -> str | None:
    """An address of this machine that others could reach."""
    done = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False)
    return next((word for word in done.stdout.split() if word.count(".") == 3), None)


# -- a sound deployment -------------------------------------------------------------------------------------------

SOUND = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s", "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3"}


def test_a_sound_deployment_passes(tmp_path, store, capsys, disk):
    keys = make_certificates(tmp_path, "ours")
    ledger = f"{disk}/sound.sqlite"
    Ledger(ledger).set_limit("d", Budget(1.0))
    job = {
        "method": "dp-gd",
        "data": {"path": str(store)},
        "params": {"classes": [0, 1], "row_norm": 1.0},
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "ledger": ledger,
    }
    with RealCluster(tmp_path / "c", 2, tls=keys, env=SOUND, worker=["--memory-limit", "2GB"]) as cluster:
        cluster.ready()
        job["cluster"] = keys.cluster(cluster.address)
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        said = call(capsys, "doctor", tmp_path / "job.yaml", "--json")
        options = ["--ca-file", keys.ca, "--cert-file", keys.cert, "--key-file", keys.key]
        again = call(capsys, "doctor", "--cluster", cluster.address, *options, "--data", store)
        closed = call(capsys, "doctor", "--cluster", cluster.address)
    found = json.loads(said.out)
    states = {one["check"]: one["status"] for one in found["findings"]}
    checks = ["workers", "encryption", "versions", "dashboard", "clocks", "spilling", "memory", "lost workers", "data"]
    assert {name: states[name] for name in checks} == dict.fromkeys(checks, "ok")
    assert states["ledger"] == "ok" and set(states) == {*checks, "ledger"}
    assert (said.code, found["ok"]) == (0, True)
    assert (
        again.code == 0
        and "fix:" not in again.out
        and "every worker reads 2 arrays" in again.out.replace("\n      ", " ")
    )
    assert closed.code == 2 and closed.out.startswith("fail  cluster: ") and "ca_file and cert_file" in closed.out
    assert Ledger(ledger).accounts() == ["d"], "the trial charge is gone"


def test_the_help_and_an_empty_question(capsys):
    assert "fail" in call(capsys, "doctor", "--help").out
    asked = call(capsys, "doctor")
    assert asked.code == 2 and "nothing to examine" in asked.err


def test_threads_and_the_jobs_own_processes(tmp_path, capsys, store):
    job = {
        "method": "dp-gd", "data": {"path": str(store)}, "params": {"classes": [0, 1], "row_norm": 1.0},
        "budget": {"epsilon": 1.0, "delta": 1e-6}, "ledger": str(tmp_path / "new.sqlite"),
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    said = call(capsys, "doctor", tmp_path / "job.yaml", "--set", "cluster=threads")
    assert said.out.startswith("ok    cluster: the map stage runs in threads of this process")
    assert not (tmp_path / "new.sqlite").exists()
    said = call(capsys, "doctor", tmp_path / "job.yaml", "--set", "cluster={workers: 1}", "--json")
    states = {one["check"]: one["status"] for one in json.loads(said.out)["findings"]}
    assert states["spilling"] == states["encryption"] == states["dashboard"] == states["data"] == "ok"


# -- clusters with faults -----------------------------------------------------------------------------------------


def test_a_cluster_with_dasks_own_settings(tmp_path, store, disk):
    """Everything at once: open to the network, plain, with its pages, and with workers that differ in all ways."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    default = {
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "['distributed.http.scheduler.info', 'distributed.http.health']",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "0.6",
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "0.7",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    }
    scheduler = ["--host", "0.0.0.0", "--dashboard-address", ":0"]
    with RealCluster(Path(disk, "bad"), 0, env=default, scheduler=scheduler) as cluster:
        port = cluster.address.rpartition(":")[2]
        cluster.address = f"tcp://{address}:{port}"
        env = {}
        if COMPILER is not None:
            clock = JumpingClock(tmp_path)
            clock.jump(3600)
            env = clock.env
        hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {store.parent} && exec "$0" "$@"']
        root = os.getuid() == 0
        cluster.start_worker("--memory-limit", "1GB", "--host", address, env=env)
        cluster.start_worker("--memory-limit", "0", "--host", address, before=hidden if root else [])
        with cluster.client() as client:
            found = by_check(examine_cluster(client, Dataset.open(str(store))))
    assert found["encryption"].status == "fail" and "3 of 3 parties" in found["encryption"].says
    assert found["dashboard"].status == "fail" and "the scheduler at 0.0.0.0:" in found["dashboard"].says
    assert found["spilling"].status == "fail" and f"to {disk}/bad" in found["spilling"].says
    assert found["memory"].status == "warn" and "have no memory limit" in found["memory"].says
    assert found["lost workers"].status == "warn" and "noticed after 300 s" in found["lost workers"].says
    assert found["allowed failures"].status == "warn" and "after 1 workers" in found["allowed failures"].says
    assert found["versions"].status == "ok"
    if COMPILER is not None:
        assert found["clocks"].status == "warn" and "by up to 3600 s" in found["clocks"].says
    if root:
        assert found["data"].status == "fail" and "1 of 2 workers" in found["data"].says


def test_a_worker_with_another_version(tmp_path):
    with RealCluster(tmp_path, 1) as cluster:
        cluster.start_worker(env=shim(tmp_path, "dpdist", "0.0.7"))
        cluster.ready()
        found = by_check(examine_cluster(cluster.address))
        assert found["versions"].status == "fail" and "dpdist: 0.0.7, " in found["versions"].says
        assert found["other checks"].status == "warn"
        cluster.workers[1].kill()
        cluster.start_worker(env=shim(tmp_path, "cloudpickle", "0.0.1"))
        with cluster.client(1) as client:
            until(lambda: names(client) == ["w0", "w2"])
            found = by_check(examine_cluster(client))
    assert found["versions"].status == "warn" and "cloudpickle: 0.0.1, " in found["versions"].says


def test_nannies_and_no_workers_and_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.CONNECT", 1.0)
    with (
        RealCluster(tmp_path, 0, env=SOUND, nanny=True) as cluster,
        Client(cluster.address, timeout=60, set_as_default=False) as client,
    ):
        found = by_check(examine_cluster(client))
        assert found["workers"].status == "fail" and found["encryption"].status == "ok"
        cluster.start_worker()
        client.wait_for_workers(1)
        found = by_check(examine_cluster(client))
        assert "have a nanny" in found["lost workers"].says
    (gone,) = examine_cluster(cluster.address)
    assert gone.status == "fail" and "nothing answers there" in gone.says


def test_a_worker_that_is_stopped(tmp_path, store, monkeypatch):
    monkeypatch.setattr("dpdist.engine.waits.ANSWER", 3.0)
    monkeypatch.setattr("dpdist.engine.doctor.PATIENCE", 5.0)
    with RealCluster(tmp_path, 2) as cluster:
        cluster.ready()
        os.kill(cluster.workers[0].pid, signal.SIGSTOP)
        found = by_check(within(60.0, lambda: examine_cluster(cluster.address, Dataset.open(str(store)))))
        assert found["workers"].status == "fail" and "1 of 2 workers" in found["workers"].says
        assert found["versions"].status == found["data"].status == "ok", "the other one is examined"
        os.kill(cluster.scheduler.pid, signal.SIGSTOP)
        (gone,) = within(60.0, lambda: examine_cluster(cluster.address))
    assert gone.status == "fail" and "cannot reach the Dask scheduler" in gone.says


def test_a_short_time_to_live(monkeypatch):
    import dask

    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "5s"}),
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
    ):
        assert "compiles its kernels" in by_check(examine_cluster(cluster))["lost workers"].says


def test_clocks_are_compared_up_to_the_time_of_the_answer():
    assert next(clocks({"a": (100.0, 99.0, 101.0), "b": (90.0, 89.0, 120.0)})).status == "ok"
    (late,) = clocks({"a": (100.0, 99.0, 101.0), "b": (90.0, 99.0, 101.0)})
    assert late.status == "warn" and late.says.startswith("b differ from this machine's clock by up to 9 s")


# -- ledgers ------------------------------------------------------------------------------------------------------


def test_a_ledger_in_memory_is_no_ledger(disk):
    place = f"/dev/shm/dpdist-doctor-{os.getpid()}.sqlite"
    Ledger(place).close()
    try:
        found = examine_ledger(place)
    finally:
        for end in ("", "-wal", "-shm"):
            if os.path.exists(place + end):
                os.unlink(place + end)
    assert found[0].status == "fail" and "a restart forgets what was spent" in found[0].says


def test_ledger_files(disk):
    path = f"{disk}/ledger.sqlite"
    assert by_check(examine_ledger(path))["ledger"].says == f"{path} does not exist; the first run makes it"
    assert not os.path.exists(path) and not [name for name in os.listdir(disk) if name.startswith(".")]
    Ledger(path).close()
    assert by_check(examine_ledger(path))["ledger"].status == "ok"
    assert Ledger(path).accounts() == []
    Journal(f"{disk}/journal.sqlite").close()
    assert by_check(examine_journal(f"{disk}/journal.sqlite"))["journal"].status == "ok"
    with open(f"{disk}/damaged.sqlite", "wb") as file:
        file.write(b"SQLite format 3\0" + bytes(range(256)) * 64)
    assert by_check(examine_ledger(f"{disk}/damaged.sqlite"))["ledger"].status == "fail"
    missing = by_check(examine_ledger("/proc/nowhere/ledger.sqlite"))["ledger"]
    assert missing.status == "fail" and "cannot be made" in missing.says


def test_postgresql(postgres_server, monkeypatch):
    monkeypatch.setattr("dpdist.patience.PATIENCE", 0.5)
    postgres_server.stop()
    (gone,) = examine_ledger(postgres_server.address)
    assert gone.status == "fail" and "cannot be used" in gone.says
    postgres_server.start("-c fsync=off")
    (forgetful,) = examine_ledger(postgres_server.address)
    assert forgetful.status == "fail" and "fsync=off" in forgetful.says
    postgres_server.stop()
    postgres_server.start("-c default_transaction_read_only=on")
    (replica,) = examine_ledger(postgres_server.address)
    assert replica.status == "fail" and "read-only" in replica.says
    postgres_server.stop()
    postgres_server.start()
    found = by_check(examine_ledger(postgres_server.address))
    assert found["ledger"].status == "ok" and "no tables yet" in found["ledger"].says
    assert found["ledger clocks"].status == "ok" and found["ledger copies"].status == "warn"
    Ledger(postgres_server.address).set_limit("d", Budget(1.0))
    found = by_check(examine_ledger(postgres_server.address))
    assert found["ledger"].status == "ok" and "a trial charge was written and taken back" in found["ledger"].says
    assert Ledger(postgres_server.address).accounts() == ["d"]
    address = own_address()
    if address is not None:
        postgres_server.stop()
        with open(postgres_server.data / "pg_hba.conf", "a") as rules:
            rules.write(f"host all all {address}/32 trust\n")
        postgres_server.start(f"-c listen_addresses={address},127.0.0.1")
        found = by_check(examine_ledger(postgres_server.address.replace("127.0.0.1", address)))
        assert found["ledger encryption"].status == "fail" and "sslmode=verify-full" in found["ledger encryption"].fix


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_the_clock_of_the_ledger(postgres_server, tmp_path, capsys):
    """Ours is off, which is the same: the command runs in a process with another clock."""
    import sys

    clock = JumpingClock(tmp_path)
    clock.jump(-500)
    done = subprocess.run(
        [sys.executable, "-m", "dpdist.cli", "doctor", "--ledger", postgres_server.address],
        env={**os.environ, **clock.env}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and "warn  ledger clocks: the ledger differ" in done.stdout and "500 s" in done.stdout


# -- journals in object stores ------------------------------------------------------------------------------------


@pytest.fixture
def account(s3_account, monkeypatch, impatient):
    return monkeypatch


def test_an_object_store(account):
    (found,) = examine_journal(f"s3://{BUCKET}/journal")
    assert found.status == "ok" and "only once" in found.says
    account.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    (found,) = examine_journal(f"s3://{BUCKET}/journal")
    assert found.status == "fail" and "credentials" in found.fix and "wrong" not in found.says


class Careless(http.server.BaseHTTPRequestHandler):
    """A store that takes whatever it is given, as often as it is given."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_store_that_overwrites(account):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Careless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        account.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        (found,) = examine_journal(f"s3://{BUCKET}/journal")
        server.shutdown()
    assert found.status == "fail" and "made twice" in found.says


def test_what_is_away_is_said_without_patience(capsys):
    began = time.monotonic()
    said = call(capsys, "doctor", "--ledger", "postgresql://nobody@127.0.0.1:1/dpdist", "--json")
    assert said.code != 0 and "check that the server runs" in said.out
    assert time.monotonic() - began < 20  # where it is asked again, 45 and more

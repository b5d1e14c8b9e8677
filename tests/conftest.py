"""Settings that have to be made before anything is imported, and the servers of all tests that need one."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits

from tests.postgres import PostgresServer
from tests.s3 import KEY, SECRET, Faults, S3Server

# Each of the processes of a run of the tests, and each worker that they start, has a core at most: products of matrices
# by a second thread wait for it most of their time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]), "blas")  # for NumPy, which a plugin imports before this file

# scikit-learn skips its array-API check of an estimator without it
os.environ.setdefault("SCIPY_ARRAY_API", "1")


def _is_roomy_memory(place: str) -> bool:
    """Whether there is a disk in memory, with room for what a run of the tests writes, whose programs may be run."""
    if not os.access(place, os.W_OK) or os.statvfs(place).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(place).free > 2**32


# What tests write waits for no disk, as every charge and value does on one. The processes that they start inherit it.
if "TMPDIR" not in os.environ and _is_roomy_memory("/dev/shm"):
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"

# The ledger of whoever runs the tests is not theirs to charge.
os.environ.pop("DPDIST_LEDGER", None)
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="dpdist-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

# A shell starts background jobs with Ctrl-C ignored, which all processes from there on inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LIMITS = {"slow": 3600, "kubernetes": 1800, "faults": 1800}
"""Seconds for a test with this mark; without one, it is the ``timeout`` of pyproject.toml."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test waits for ever: after its time it fails, with the stacks of all threads."""
    for item in items:
        limits = [seconds for mark, seconds in LIMITS.items() if item.get_closest_marker(mark)]
        if limits and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(limits)))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is away is asked once."""
    monkeypatch.setattr("dpdist.patience.PATIENCE", 0.0)
    monkeypatch.setattr("dpdist.objects.RETRIES", {"max_retries": 0})


@pytest.fixture
def kept_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the doctor, the folder of a test is on a disk that is kept, also where it is in memory."""
    monkeypatch.setattr("dpdist.engine.doctor_stores.MEMORY", frozenset())


@pytest.fixture(scope="session")
def postgres_machine() -> Iterator[PostgresServer]:
    """A real server, one for each process of the tests."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_server(postgres_machine: PostgresServer) -> PostgresServer:
    """The same server, running as it does every day, and empty."""
    postgres_machine.renew()
    return postgres_machine


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real server, one for each process of the tests."""
    server = S3Server()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def s3_account(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The environment of somebody who may use the server."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.address)
    return s3_server


@pytest.fixture
def s3_faults(s3_account: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """The same server, behind a proxy."""
    proxy = Faults(s3_account)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    yield proxy
    proxy.shutdown()
    proxy.server_close()

"""A scheduler and workers as processes of their own, which leave logs and can be hurt one by one."""

from __future__ import annotations

import contextlib
import contextvars
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client

from tests.ports import free_port

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "['distributed.http.health']",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "['distributed.http.health']",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_LOGGING__DISTRIBUTED": "info",
}
"""The settings that the project ships."""


@dataclass(frozen=True)
class Certificates:
    """PEM files of one party: the authority, and its own certificate with its key."""

    ca: Path
    cert: Path
    key: Path

    @property
    def words(self) -> list[str]:
        """Options of Dask's commands."""
        return ["--tls-ca-file", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key)]

    def cluster(self, address: str) -> dict[str, str]:
        """What a job or an estimator takes as ``cluster``."""
        return {"address": address, "ca_file": str(self.ca), "cert_file": str(self.cert), "key_file": str(self.key)}


def make_certificates(folder: Path, name: str) -> Certificates:
    """An authority of its own, and one certificate that it signed."""
    ca, ca_key, cert, key, request = (folder / f"{name}-{part}.pem" for part in ("ca", "ca-key", "cert", "key", "req"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    commands = [
        ["req", "-x509", *new, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", f"/CN={name} authority"],
        ["req", *new, "-keyout", key, "-out", request, "-subj", f"/CN={name}"],
        ["x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-set_serial", "1", "-days", "2", "-out", cert],
    ]
    for command in commands:
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return Certificates(ca, cert, key)


class RealCluster:
    """Processes of ``dask scheduler`` and ``dask worker``, with a folder for logs and local directories.

    Parameters
    ----------
    folder : Path
    workers : int
    tls : Certificates, optional
    env : mapping, optional
        Environment of all processes, beside `QUIET`.
    scheduler, worker : sequence of str
        More options of the two commands; workers have no nanny unless ``nanny``.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        tls: Certificates | None = None,
        env: Mapping[str, str] | None = None,
        scheduler: Sequence[str] = (),
        worker: Sequence[str] = (),
        nanny: bool = False,
    ) -> None:
        self.folder = folder
        self.tls = tls
        self.env = {**QUIET, **(env or {})}
        self._scheduler_options = list(scheduler)
        self._worker_options = [*worker, *([] if nanny else ["--no-nanny"])]
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.address = f"{'tls' if tls else 'tcp'}://127.0.0.1:{free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._numbers = 0
        self.start_scheduler()
        for _ in range(workers):
            self.start_worker()

    def start_scheduler(self) -> None:
        """Also again, at the same address, after it was killed."""
        host, _, port = self.address.rpartition(":")
        words = ["--host", host, "--port", port, "--no-show", "--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("dask_scheduler", "scheduler", [*words, *self._scheduler_options], {})

    def start_worker(self, *options: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()) -> None:
        """One more; ``before`` is put before the command."""
        name = f"w{len(self.workers)}"
        words = [self.address, "--host", "127.0.0.1", "--nthreads", "1", "--name", name, "--no-dashboard"]
        words += ["--local-directory", str(self.folder / "local"), *self._worker_options, *options]
        self.workers.append(self._start("dask_worker", name, words, env or {}, before))

    def _start(
        self, module: str, name: str, words: Sequence[str], env: Mapping[str, str], before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        self._numbers += 1
        command = [*before, sys.executable, "-m", f"distributed.cli.{module}", *words]
        command += self.tls.words if self.tls else []
        path = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), str(ROOT)])
        with open(self.folder / "logs" / f"{self._numbers:02d}-{name}.log", "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **self.env, **env, "PYTHONPATH": path},
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def client(self, workers: int | None = None) -> Client:
        """A client, once the workers are there."""
        security: Any = None
        if self.tls:
            from dpdist.engine.security import scheduler_credentials

            security = scheduler_credentials(self.tls.cluster(self.address))[1]
        client = Client(self.address, timeout=60, set_as_default=False, security=security)
        client.wait_for_workers(len(self.workers) if workers is None else workers, timeout=90)
        return client

    def ready(self, workers: int | None = None) -> RealCluster:
        """Wait for the workers."""
        self.client(workers).close()
        return self

    @contextlib.contextmanager
    def supervised(self, seconds: float = 0.5) -> Iterator[RealCluster]:
        """Meanwhile another worker is started for each that ended, after a while, as pods are."""
        over = threading.Event()

        def supervise() -> None:
            while not over.wait(0.05):
                for i, worker in enumerate(self.workers[:]):
                    if worker.poll() is not None and not over.wait(seconds):
                        self.start_worker("--name", f"w{i}-{self._numbers}")  # a name that is taken is refused
                        self.workers[i] = self.workers.pop()

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        try:
            yield self
        finally:
            over.set()
            supervisor.join()

    def kill_workers(self, *which: int) -> None:
        """These of the workers, or all, with what they started; as when pods are deleted by force."""
        for i in which or range(len(self.workers)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.workers[i].pid, signal.SIGKILL)
            self.workers[i].wait(20)

    def log(self) -> str:
        """Everything that anybody wrote."""
        return "\n".join(path.read_text(errors="replace") for path in sorted((self.folder / "logs").iterdir()))

    def close(self) -> None:
        """End what was started here: whole process groups, so that children of nannies go too."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait(20)

    def __enter__(self) -> RealCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def names(client: Client) -> list[str]:
    """Of the workers that the scheduler knows."""
    return sorted(str(worker["name"]) for worker in client.scheduler_info(n_workers=-1)["workers"].values())


def until(condition: Any, seconds: float = 30.0) -> None:
    """Wait until something is true."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.05)


def within(seconds: float, function: Callable[[], T]) -> T:
    """What a function returns or raises; where it does not end in time, the test fails and says where it stood."""
    found: Future[T] = Future()
    context = contextvars.copy_context()  # whoever watches goes on to watch

    def run() -> None:
        try:
            found.set_result(context.run(function))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        if found.done():
            raise
        faulthandler.dump_traceback(file=sys.__stderr__)
    raise AssertionError(f"still waiting after {seconds:g} s; the stacks of all threads are on stderr")

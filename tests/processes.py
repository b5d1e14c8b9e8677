"""Processes that tests start and kill: forks of one that has imported the library, which none has to wait for."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context

PROCESSES = multiprocessing.get_context("forkserver")
# the one list for all tests: the first that starts a process decides what the process of their forks has imported
IMPORTED = ["dpdist.central", "dpdist.local", "dpdist.cli.run", "distributed.nanny", "psycopg", "pytest"]
PROCESSES.set_forkserver_preload(IMPORTED)


@contextlib.contextmanager
def worker_processes(n_workers: int, **options: Any) -> Iterator[LocalCluster]:
    """A cluster of this machine, whose workers are such forks too: their environment is that of the first of them."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context()  # which has a list of its own
        PROCESSES.set_forkserver_preload(IMPORTED)
        with LocalCluster(n_workers, threads_per_worker=1, processes=True, dashboard_address=":0", **options) as made:
            yield made


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Run a program as ``python -c`` would: its exit code (-9: killed), and what it said."""
    handle, said = tempfile.mkstemp(prefix="dpdist-said-")
    os.close(handle)
    process = PROCESSES.Process(target=_run, args=(program, arguments, dict(os.environ), said))
    try:
        process.start()
        process.join(300)
        assert process.exitcode is not None, f"still running: {Path(said).read_text()}"
        return process.exitcode, Path(said).read_text()
    finally:
        process.kill()
        os.unlink(said)


def _run(program: str, arguments: tuple[str, ...], environment: dict[str, str], said: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    out = os.open(said, os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = ["-c", *arguments]
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()

"""Clusters that live as long as one run, and how much a place to compute can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import LocalCluster
from distributed.system import MEMORY_LIMIT

from dpdist.engine.security import is_remote
from dpdist.engine.workers import connect
from dpdist.errors import ClusterUnavailable

NEVER_TO_DISK = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
"""By default, workers short of memory write what they hold to the disk: here, rows and un-noised sums."""


@contextmanager
def opened(cluster: Any) -> Iterator[Any]:
    """What users give as ``cluster``; worker processes that a mapping asks for are started and stopped.

    Parameters
    ----------
    cluster : mapping, str, Client, cluster object or None
        A mapping has ``workers``, and optionally ``threads_per_worker`` (1) and ``memory_limit`` (of each worker, for
        example "2GiB"); one with ``address`` is a scheduler that runs already.
    """
    if not isinstance(cluster, Mapping) or is_remote(cluster):
        yield cluster
        return
    try:
        with dask.config.set(NEVER_TO_DISK):
            local = LocalCluster(
                n_workers=cluster["workers"],
                threads_per_worker=cluster.get("threads_per_worker", 1),
                memory_limit=cluster.get("memory_limit", "auto"),
                dashboard_address=None,
            )
    except (OSError, RuntimeError, TimeoutError, ValueError) as error:
        raise ClusterUnavailable(
            f"worker processes could not be started ({type(error).__name__}): check cluster.workers, "
            "cluster.threads_per_worker and cluster.memory_limit. Nothing was charged"
        ) from None
    with local:
        yield local


def capacity(cluster: Any) -> tuple[int, float]:
    """Worker threads and bytes of memory, all workers together; a mapping's workers are not started for it."""
    if isinstance(cluster, Mapping) and not is_remote(cluster):
        workers = int(cluster["workers"])
        limit = cluster.get("memory_limit", "auto")
        memory = float(MEMORY_LIMIT) if limit == "auto" else float(workers * parse_bytes(limit))
        return workers * int(cluster.get("threads_per_worker", 1)), memory
    with closing(connect(cluster)) as workers_there:
        return workers_there.n_threads, workers_there.memory

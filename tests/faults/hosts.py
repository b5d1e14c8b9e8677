"""Hosts on one machine: network namespaces on a bridge, each with a scheduler or a worker, whose cables can be pulled.

Needs root and iproute2. The machine itself is 10.98.0.1, the scheduler 10.98.0.10, workers 10.98.0.11 and up. All
names begin with ``dpf-``; only processes that were started here are ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.cluster import Certificates, RealCluster

USABLE = os.getuid() == 0 and shutil.which("ip") is not None
BRIDGE, NET = "dpf-br", "10.98.0"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts(RealCluster):
    """A scheduler and workers, each on a host of its own."""

    def __init__(
        self, folder: Path, workers: int, env: Mapping[str, str] | None = None, tls: Certificates | None = None
    ) -> None:
        self.names: list[str] = []
        try:
            ip("link", "add", BRIDGE, "type", "bridge")
            ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
            ip("link", "set", BRIDGE, "up")
            for i in range(workers + 1):
                self._host(i)
            super().__init__(folder, 0, env=env, tls=tls)
            for _ in range(workers):
                self.start_worker()
        except BaseException:
            self.close()
            raise

    def _host(self, i: int) -> None:
        name, cable = f"dpf-{i}", f"dpf-v{i}"
        ip("netns", "add", name)
        self.names.append(name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", cable, "master", BRIDGE, "up")
        ip("-n", name, "addr", "add", f"{NET}.{10 + i}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")

    def start_scheduler(self) -> None:
        self.address = f"{'tls' if self.tls else 'tcp'}://{NET}.10:8786"
        words = ["--host", f"{NET}.10", "--port", "8786", "--no-show", "--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("dask_scheduler", "scheduler", words, {}, self._inside(0))

    def start_worker(self, *options: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()) -> None:
        i = len(self.workers) + 1
        super().start_worker("--host", f"{NET}.{10 + i}", *options, env=env, before=[*self._inside(i), *before])

    def _inside(self, i: int) -> list[str]:
        return ["ip", "netns", "exec", f"dpf-{i}"]

    def cut(self, i: int) -> None:
        """Pull the cable of a host (0: the scheduler's), silently."""
        ip("link", "set", f"dpf-v{i}", "down")

    def heal(self, i: int) -> None:
        ip("link", "set", f"dpf-v{i}", "up")

    def close(self) -> None:
        if hasattr(self, "processes"):
            super().close()
        for i, name in enumerate(self.names):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("link", "del", f"dpf-v{i}")
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", BRIDGE)

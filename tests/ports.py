"""Ports for servers that tests start."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """One at which nobody listens, below those that outgoing connections get.

    One of those can be taken by any connection before its server listens, or while it is started again.
    """
    chosen = random.SystemRandom()  # tests in other processes look at the same time
    for _ in range(1000):
        port = chosen.randrange(10_000, 20_000)
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            return port
        except OSError:
            continue
    raise RuntimeError("no port between 10000 and 20000 is free")

"""What the address of a Dask scheduler looks like; nothing is imported for it that takes a while."""

from __future__ import annotations

ADDRESS = r"(tcp|tls|ucx|ws|wss)://[^\s/]+:[0-9]{1,5}/?|inproc://\S+"

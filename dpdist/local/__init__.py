"""Statistics and models in the local model: every user randomises their own record, nobody is trusted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.local.protocol import LocalProtocol
    from dpdist.local.simulation import Collected, simulate

__all__ = ["Collected", "LocalProtocol", "simulate"]

# imported on first use: a device that randomises one record needs neither Dask nor numba
_HOMES = {
    "dpdist.local.protocol": ("LocalProtocol",),
    "dpdist.local.simulation": ("Collected", "simulate"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

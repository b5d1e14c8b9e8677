"""Statistics and models in the local model: every user randomises their own record, nobody is trusted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.local.aggregation import Aggregated, aggregate, write_reports
    from dpdist.local.frequency import Histogram
    from dpdist.local.glm import GeneralizedLinearModel, LogisticRegression
    from dpdist.local.heavy_hitters import HeavyHitters
    from dpdist.local.kernel_ridge import KernelRidge
    from dpdist.local.mean import Mean
    from dpdist.local.protocol import LocalProtocol
    from dpdist.local.questionnaire import Survey
    from dpdist.local.regression import LinearRegression
    from dpdist.local.simulation import Collected, simulate
    from dpdist.local.sparse import SparseRegression
    from dpdist.local.wire import decode, encode

__all__ = [
    "Aggregated",
    "Collected",
    "GeneralizedLinearModel",
    "HeavyHitters",
    "Histogram",
    "KernelRidge",
    "LinearRegression",
    "LocalProtocol",
    "LogisticRegression",
    "Mean",
    "SparseRegression",
    "Survey",
    "aggregate",
    "decode",
    "encode",
    "simulate",
    "write_reports",
]

# imported on first use: a device that randomises one record needs neither Dask nor numba
_HOMES = {
    "dpdist.local.frequency": ("Histogram",),
    "dpdist.local.heavy_hitters": ("HeavyHitters",),
    "dpdist.local.glm": ("GeneralizedLinearModel", "LogisticRegression"),
    "dpdist.local.kernel_ridge": ("KernelRidge",),
    "dpdist.local.regression": ("LinearRegression",),
    "dpdist.local.aggregation": ("Aggregated", "aggregate", "write_reports"),
    "dpdist.local.questionnaire": ("Survey",),
    "dpdist.local.wire": ("decode", "encode"),
    "dpdist.local.mean": ("Mean",),
    "dpdist.local.protocol": ("LocalProtocol",),
    "dpdist.local.simulation": ("Collected", "simulate"),
    "dpdist.local.sparse": ("SparseRegression",),
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

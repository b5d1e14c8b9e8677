"""`METHODS`: one row per method id, that is what a job can ask for; a table of them for each family of methods.

A row names an estimator and the parameters that make it this method. Adding a method is adding a row to the table of
its family and a ``pipelines/<id>.yaml``; nothing else knows the list. Importing this module imports no estimator, so
that looking up a name stays quick; `estimator_class` does when it is asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dpdist.errors import DpdistError
from dpdist.jobs.registry import (
    central_aggregate,
    central_linear,
    central_mean,
    local_frequency,
    local_linear,
    local_mean,
    local_sparse,
)
from dpdist.jobs.registry.registered import RegisteredMethod

__all__ = ["ALIASES", "ESTIMATORS", "METHODS", "OWNED_BY_OTHER_KEYS", "RegisteredMethod", "estimator_class"]

TABLES = (
    central_linear, central_mean, central_aggregate, local_frequency, local_mean, local_linear, local_sparse
)  # fmt: skip
"""One module for each family; the order is that of lists."""

ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {
        "LogisticRegression": "dpdist.central",
        "LinearRegression": "dpdist.central",
        "LinearSVC": "dpdist.central",
        "Minimizer": "dpdist.central",
        "Mean": "dpdist.central",
        "SampleAndAggregate": "dpdist.central",
        "local.Histogram": "dpdist.local.frequency.histogram",
        "local.HeavyHitters": "dpdist.local.frequency.heavy_hitters",
        "local.Mean": "dpdist.local.mean.columns",
        "local.LinearRegression": "dpdist.local.linear.regression",
        "local.KernelRidge": "dpdist.local.linear.kernel_ridge",
        "local.LogisticRegression": "dpdist.local.linear.glm",
        "local.SparseRegression": "dpdist.local.sparse.sparse_regression",
    }
)
"""The module of every estimator that a method can name."""

OWNED_BY_OTHER_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "epsilon": "budget.epsilon",
        "delta": "budget.delta",
        "ledger": "ledger",
        "cluster": "cluster",
        "run_id": "--resume",
    }
)
"""Parameters of estimators that a job does not set under ``params``, and where it does."""


def estimator_class(name: str) -> type:
    """The class of an estimator by its name in `ESTIMATORS`.

    Examples
    --------
    >>> estimator_class("LinearSVC").__name__
    'LinearSVC'
    """
    if name not in ESTIMATORS:
        raise DpdistError(f"no estimator is called {name!r}; there are {', '.join(ESTIMATORS)}")
    found: type = getattr(importlib.import_module(ESTIMATORS[name]), name.rpartition(".")[2])
    return found


METHODS: Mapping[str, RegisteredMethod] = MappingProxyType(
    {method.id: method for table in TABLES for method in table.METHODS}
)
"""Every method that is implemented, by id."""

ALIASES: Mapping[str, str] = MappingProxyType({alias: m.id for m in METHODS.values() for alias in m.aliases})
"""Other names of methods."""

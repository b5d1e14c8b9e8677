"""dpdist: statistical and machine-learning models on Dask and Zarr under differential privacy."""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.central import (
        PCA,
        GaussianMixture,
        GraphicalLasso,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        Mean,
        MetricLearner,
        Minimizer,
        MissingCovariateRegression,
        MixedRegression,
        PairwiseRanker,
        SampleAndAggregate,
        SecondMoment,
        SparseCovariance,
        SparsePCA,
        TwoComponentMixture,
    )
    from dpdist.data import Dataset
    from dpdist.engine.coordinator import Coordinator
    from dpdist.estimators.onnx_model import to_onnx
    from dpdist.jobs.loaded import load_run
    from dpdist.privacy.budget import Budget, Neighbours
    from dpdist.privacy.guarantee import Guarantee
    from dpdist.privacy.ledger.ledger import Ledger

    __version__: str

__all__ = [
    "PCA",
    "Budget",
    "Coordinator",
    "Dataset",
    "GaussianMixture",
    "GraphicalLasso",
    "Guarantee",
    "Ledger",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Mean",
    "MetricLearner",
    "Minimizer",
    "MissingCovariateRegression",
    "MixedRegression",
    "Neighbours",
    "PairwiseRanker",
    "SampleAndAggregate",
    "SecondMoment",
    "SparseCovariance",
    "SparsePCA",
    "TwoComponentMixture",
    "load_run",
    "to_onnx",
]

# imported on first use, so that `dpdist --help` need not wait for Dask and numba
_HOMES = {
    "dpdist.central": (
        "PCA",
        "GaussianMixture",
        "GraphicalLasso",
        "LinearRegression",
        "LinearSVC",
        "LogisticRegression",
        "Mean",
        "MetricLearner",
        "Minimizer",
        "MissingCovariateRegression",
        "MixedRegression",
        "PairwiseRanker",
        "SampleAndAggregate",
        "SecondMoment",
        "SparseCovariance",
        "SparsePCA",
        "TwoComponentMixture",
    ),
    "dpdist.data": ("Dataset",),
    "dpdist.engine.coordinator": ("Coordinator",),
    "dpdist.estimators.onnx_model": ("to_onnx",),
    "dpdist.jobs.loaded": ("load_run",),
    "dpdist.privacy.budget": ("Budget", "Neighbours"),
    "dpdist.privacy.guarantee": ("Guarantee",),
    "dpdist.privacy.ledger.ledger": ("Ledger",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("dpdist")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collecting = gc.isenabled()
    gc.disable()  # what is imported stays, and to look through it again and again takes a fifth of the time
    try:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    finally:
        if collecting:
            gc.enable()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Statistics and models in the local model: every user randomises their own record, nobody is trusted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import dpdist.estimators  # noqa: F401 - before scikit-learn

if TYPE_CHECKING:
    from dpdist.local.crowd.truth_inference import TruthInference
    from dpdist.local.density.density_queries import DensityQueries
    from dpdist.local.frequency.heavy_hitters import HeavyHitters
    from dpdist.local.frequency.histogram import Histogram
    from dpdist.local.latent.latent_models import MissingCovariateRegression, MixedRegression, TwoComponentMixture
    from dpdist.local.linear.glm import GeneralizedLinearModel, LogisticRegression
    from dpdist.local.linear.kernel_ridge import KernelRidge
    from dpdist.local.linear.regression import LinearRegression
    from dpdist.local.linear.svc import LinearSVC
    from dpdist.local.matrices.components import PCA, SparsePCA
    from dpdist.local.matrices.second_moment import SecondMoment
    from dpdist.local.matrices.sparse_matrices import GraphicalLasso, SparseCovariance
    from dpdist.local.mean.columns import Mean
    from dpdist.local.sparse.sparse_regression import SparseRegression
    from dpdist.local.surfaces.risk_surface import RiskSurface
    from dpdist.local.survey.aggregation import Aggregated, aggregate, write_reports
    from dpdist.local.survey.protocol import LocalProtocol
    from dpdist.local.survey.questionnaire import Survey
    from dpdist.local.survey.simulation import Collected, simulate
    from dpdist.local.survey.wire import decode, encode
    from dpdist.local.tables.marginals import Marginals

__all__ = [
    "PCA",
    "Aggregated",
    "Collected",
    "DensityQueries",
    "GeneralizedLinearModel",
    "GraphicalLasso",
    "HeavyHitters",
    "Histogram",
    "KernelRidge",
    "LinearRegression",
    "LinearSVC",
    "LocalProtocol",
    "LogisticRegression",
    "Marginals",
    "Mean",
    "MissingCovariateRegression",
    "MixedRegression",
    "RiskSurface",
    "SecondMoment",
    "SparseCovariance",
    "SparsePCA",
    "SparseRegression",
    "Survey",
    "TruthInference",
    "TwoComponentMixture",
    "aggregate",
    "decode",
    "encode",
    "simulate",
    "write_reports",
]

# imported on first use: a device that randomises one record needs neither Dask nor numba
_HOMES = {
    "dpdist.local.crowd.truth_inference": ("TruthInference",),
    "dpdist.local.density.density_queries": ("DensityQueries",),
    "dpdist.local.frequency.histogram": ("Histogram",),
    "dpdist.local.frequency.heavy_hitters": ("HeavyHitters",),
    "dpdist.local.latent.latent_models": ("MissingCovariateRegression", "MixedRegression", "TwoComponentMixture"),
    "dpdist.local.linear.glm": ("GeneralizedLinearModel", "LogisticRegression"),
    "dpdist.local.linear.kernel_ridge": ("KernelRidge",),
    "dpdist.local.linear.regression": ("LinearRegression",),
    "dpdist.local.linear.svc": ("LinearSVC",),
    "dpdist.local.matrices.components": ("PCA", "SparsePCA"),
    "dpdist.local.matrices.second_moment": ("SecondMoment",),
    "dpdist.local.matrices.sparse_matrices": ("GraphicalLasso", "SparseCovariance"),
    "dpdist.local.survey.aggregation": ("Aggregated", "aggregate", "write_reports"),
    "dpdist.local.survey.questionnaire": ("Survey",),
    "dpdist.local.survey.wire": ("decode", "encode"),
    "dpdist.local.mean.columns": ("Mean",),
    "dpdist.local.survey.protocol": ("LocalProtocol",),
    "dpdist.local.survey.simulation": ("Collected", "simulate"),
    "dpdist.local.sparse.sparse_regression": ("SparseRegression",),
    "dpdist.local.surfaces.risk_surface": ("RiskSurface",),
    "dpdist.local.tables.marginals": ("Marginals",),
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

"""`METHODS`: one row per method id, that is what a job can ask for; a table of them for each family of methods.

A row names an estimator and the parameters that make it this method. Adding a method is adding a row to the table of
its family and a ``pipelines/<id>.yaml``; nothing else knows the list. Importing this module imports no estimator, so
that looking up a name stays quick; `estimator_class` does when it is asked.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dpdist.errors import DpdistError
from dpdist.jobs.registry import (
    central_aggregate,
    central_latent,
    central_linear,
    central_matrices,
    central_mean,
    central_pairs,
    local_crowd,
    local_density,
    local_frequency,
    local_latent,
    local_linear,
    local_matrices,
    local_mean,
    local_sparse,
    local_surfaces,
    local_tables,
)
from dpdist.jobs.registry.other_names import OTHER_NAMES
from dpdist.jobs.registry.registered import OtherName, RegisteredMethod

__all__ = [
    "ALIASES",
    "AUTO",
    "ESTIMATORS",
    "METHODS",
    "NO_METHODS",
    "OWNED_BY_OTHER_KEYS",
    "OtherName",
    "RegisteredMethod",
    "automatic",
    "estimator_class",
    "named",
    "not_found",
]

TABLES = (
    central_linear, central_mean, central_aggregate, central_matrices, central_latent, central_pairs, local_frequency,
    local_mean, local_linear, local_sparse, local_tables, local_density, local_surfaces, local_matrices,
    local_crowd, local_latent,
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
        "SecondMoment": "dpdist.central",
        "PCA": "dpdist.central",
        "SparsePCA": "dpdist.central",
        "SparseCovariance": "dpdist.central",
        "GraphicalLasso": "dpdist.central",
        "TwoComponentMixture": "dpdist.central",
        "MixedRegression": "dpdist.central",
        "MissingCovariateRegression": "dpdist.central",
        "GaussianMixture": "dpdist.central",
        "PairwiseRanker": "dpdist.central",
        "MetricLearner": "dpdist.central",
        "local.Histogram": "dpdist.local.frequency.histogram",
        "local.HeavyHitters": "dpdist.local.frequency.heavy_hitters",
        "local.Mean": "dpdist.local.mean.columns",
        "local.LinearRegression": "dpdist.local.linear.regression",
        "local.KernelRidge": "dpdist.local.linear.kernel_ridge",
        "local.LogisticRegression": "dpdist.local.linear.glm",
        "local.LinearSVC": "dpdist.local.linear.svc",
        "local.GeneralizedLinearModel": "dpdist.local.linear.glm",
        "local.SparseRegression": "dpdist.local.sparse.sparse_regression",
        "local.Marginals": "dpdist.local.tables.marginals",
        "local.RiskSurface": "dpdist.local.surfaces.risk_surface",
        "local.DensityQueries": "dpdist.local.density.density_queries",
        "local.TwoComponentMixture": "dpdist.local.latent.latent_models",
        "local.MixedRegression": "dpdist.local.latent.latent_models",
        "local.MissingCovariateRegression": "dpdist.local.latent.latent_models",
        "local.TruthInference": "dpdist.local.crowd.truth_inference",
        "local.SecondMoment": "dpdist.local.matrices.second_moment",
        "local.PCA": "dpdist.local.matrices.components",
        "local.SparsePCA": "dpdist.local.matrices.components",
        "local.SparseCovariance": "dpdist.local.matrices.sparse_matrices",
        "local.GraphicalLasso": "dpdist.local.matrices.sparse_matrices",
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

NO_METHODS: Mapping[str, OtherName] = MappingProxyType({other.id: other for other in OTHER_NAMES})
"""Ids of the literature that are no methods, with what they are."""


def named(name: str) -> RegisteredMethod | None:
    """The method with an id or an alias.

    Examples
    --------
    >>> named("dp-gd").id, named("mean-dp").id, named("peeling")
    ('dp-gd', 'catoni-mean', None)
    """
    return METHODS.get(ALIASES.get(name, name))


AUTO = "auto"
"""In place of an id: the estimator decides, and nothing is fixed."""


def automatic(estimator: str) -> RegisteredMethod:
    """What a job asks for with ``method: auto``.

    Examples
    --------
    >>> automatic("local.Mean").outputs, automatic("LinearSVC").parameters
    (('mean_',), mappingproxy({}))
    """
    like = next(method for method in METHODS.values() if estimator in method.estimators)
    return RegisteredMethod(
        AUTO,
        "What the estimator chooses from public numbers",
        {},
        estimators=(estimator,),
        spec="",
        source="",
        trust=like.trust,
        guarantee="either",
        outputs=like.outputs,
    )


def not_found(name: str) -> str:
    """The end of a message about a name that is no method's: what it is, or what was probably meant.

    Examples
    --------
    >>> not_found("dp-gdd")
    "did you mean 'dp-gd'? Near it are dp-sgd, dp-agd; 'dpdist methods' lists all"
    """
    if name in NO_METHODS:
        return str(NO_METHODS[name])
    near = difflib.get_close_matches(name, [*METHODS, *ALIASES, AUTO], n=3)
    meant = f"did you mean {near[0]!r}? " if near else ""
    others = f"Near it are {', '.join(near[1:])}; " if near[1:] else ""
    return f"{meant}{others}'dpdist methods' lists all"

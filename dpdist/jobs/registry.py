"""`METHODS`: one entry per method id, that is what a job can ask for.

An entry names an estimator and the parameters that make it this method. Adding a method is adding an entry and a
``pipelines/<id>.yaml``; nothing else knows the list. Importing this module imports no estimator, so that looking up a
name stays quick; `estimator_class` does when it is asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from dpdist.errors import DpdistError
from dpdist.jobs.entry import Method
from dpdist.jobs.registry_local import LOCAL

__all__ = ["ALIASES", "ESTIMATORS", "METHODS", "OWNED_BY_OTHER_KEYS", "Method", "estimator_class"]

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


def _registry(*methods: Method) -> Mapping[str, Method]:
    entries = {method.id: method for method in methods}
    assert len(entries) == len(methods), "two methods have the same id"
    return MappingProxyType(entries)


_LINEAR = ("LogisticRegression", "LinearRegression", "LinearSVC", "Minimizer")

_ROBUST = ("LinearRegression", "LogisticRegression", "LinearSVC", "Minimizer")

METHODS: Mapping[str, Method] = _registry(
    Method(
        id="dp-gd",
        title="Gradient descent on all rows with Gaussian noise",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "gradient", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.5",
        source="seed 000, section 3.1.5",
    ),
    Method(
        id="dp-agd",
        title="Accelerated gradient descent on all rows with Gaussian noise",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "accelerated", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.5",
        source="seed 000, section 3.1.5",
    ),
    Method(
        id="dp-sgd",
        title="Stochastic gradient descent on Poisson samples of the rows, averaged, with Gaussian noise",
        estimators=_LINEAR,
        parameters=MappingProxyType(
            {"solver": {"gradient": {"combine": "tail-average"}}, "gradient": "norm", "rows": "sample"}
        ),
        spec="01, section 2.5",
        source="seed 000, section 3.1.5",
    ),
    Method(
        id="dp-svrg",
        title="Full gradients now and then, and noisy differences to them on Poisson samples of the rows",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "svrg", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.1",
        source="seed 000, Algorithm 3.1.1, as corrected",
    ),
    Method(
        id="dp-svrgpp",
        title="The same with epochs that double",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "svrg++", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.3",
        source="seed 000, Algorithm 3.1.3, as corrected",
    ),
    Method(
        id="dp-katyusha",
        title="The same with momentum that pulls towards the full gradients' points",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "katyusha", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.2",
        source="seed 000, Algorithm 3.1.2, as corrected",
    ),
    Method(
        id="dp-accmd",
        title="Accelerated mirror descent on a bounded set with Gaussian noise",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "accelerated-mirror", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.4",
        source="seed 000, Algorithm 3.1.4, as corrected",
    ),
    Method(
        id="dp-md",
        title="Mirror descent on a bounded set with Gaussian noise, averaged",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "mirror", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.5",
        source="Talwar, Thakurta and Zhang 2014; seed 000, section 3.1.5",
    ),
    Method(
        id="saa-clipmean",
        title="Any estimator on disjoint blocks of rows, and the clipped mean of the results with Gaussian noise",
        estimators=("SampleAndAggregate",),
        parameters=MappingProxyType({"combine": "clipped-mean"}),
        spec="01, section 3.2",
        source="Nissim, Raskhodnikova and Smith 2007; seed 000, section 3.2",
    ),
    Method(
        id="saa-nrs",
        title="Any estimator on disjoint blocks of rows, and the result most others are close to (smooth sensitivity)",
        estimators=("SampleAndAggregate",),
        parameters=MappingProxyType({"combine": "attention"}),
        spec="01, section 3.1",
        source="Nissim, Raskhodnikova and Smith 2007; seed 000, Algorithm 3.2.5, as corrected",
    ),
    Method(
        id="out-pert",
        title="The exact minimiser of a ridge-penalised loss, released once with Gaussian noise",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "output", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.6",
        source="seed 000, section 3.1.5",
    ),
    Method(
        id="obj-pert",
        title="The minimiser of a loss with a random linear term, released once",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "objective", "gradient": "norm", "rows": "all"}),
        spec="01, section 2.7",
        source="seed 000, section 3.1.5",
    ),
    Method(
        id="rgd-catoni",
        title="Gradient descent with softly truncated coordinates, for heavy-tailed rows",
        estimators=_ROBUST,
        parameters=MappingProxyType({"solver": "gradient", "gradient": "truncate", "rows": "all"}),
        spec="01, section 3.6",
        source="seed 000, section 3.2.4",
    ),
    Method(
        id="rgd-catoni-stoch",
        title="The same on Poisson samples of the rows, averaged",
        estimators=_ROBUST,
        parameters=MappingProxyType({"solver": "gradient", "gradient": "truncate", "rows": "sample"}),
        spec="01, section 3.7",
        source="seed 000, section 3.2.5",
    ),
    Method(
        id="rgd-trim",
        title="Gradient descent with trimmed means of the coordinates, for symmetric heavy-tailed rows",
        estimators=_ROBUST,
        parameters=MappingProxyType({"solver": "gradient", "gradient": "trim", "rows": "all"}),
        spec="01, section 3.4",
        source="seed 000, section 3.2.3",
    ),
    Method(
        id="clip-gd",
        title="Gradient descent with gradients clipped at a norm that a guess of their second moment sets",
        estimators=_ROBUST,
        parameters=MappingProxyType({"solver": "gradient", "gradient": "norm", "rows": "all"}),
        spec="01, section 3.7",
        source="seed 000, section 3.2.5",
    ),
    Method(
        id="catoni-mean",
        title="Means of columns with softly truncated entries",
        estimators=("Mean",),
        parameters=MappingProxyType({"method": "truncate"}),
        spec="01, section 3.5",
        source="seed 000, section 3.2.4",
        outputs=("mean_",),
    ),
    Method(
        id="catoni-smoothed-mean",
        title="Means of columns with smoothly truncated entries",
        estimators=("Mean",),
        parameters=MappingProxyType({"method": "smooth-truncate"}),
        spec="09, section 1.2",
        source="seed 003, section 4",
        outputs=("mean_",),
    ),
    Method(
        id="private-robust-mean",
        title="Means of columns with softly truncated entries and Laplace noise (budget.delta: 0)",
        estimators=("Mean",),
        parameters=MappingProxyType({"method": "truncate", "n_nonzero": None}),
        spec="09, section 1.3",
        source="seed 003, section 4",
        guarantee="epsilon",
        outputs=("mean_",),
    ),
    Method(
        id="trim-mean-ss",
        title="Trimmed means of columns with noise that follows the data, for symmetric columns",
        estimators=("Mean",),
        parameters=MappingProxyType({"method": "trim"}),
        spec="01, section 3.3",
        source="seed 000, section 3.2.3",
        outputs=("mean_",),
    ),
    Method(
        id="sparse-mean-ht",
        title="The largest means of many heavy-tailed columns (n_nonzero of them)",
        estimators=("Mean",),
        parameters=MappingProxyType({}),
        spec="09, section 5",
        source="seed 003, section 5.2",
        outputs=("mean_",),
    ),
    Method(
        id="dp-fw-l1",
        title="Frank-Wolfe on an l1 ball or simplex: private choices of vertices, coordinates clipped",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "coordinate", "rows": "all"}),
        spec="01, section 2.8",
        source="Talwar, Thakurta and Zhang 2015; seed 000, section 3.1",
    ),
    Method(
        id="dp-fw-linf-clip",
        title="Frank-Wolfe with coordinates clipped at a scale, on disjoint parts of the rows",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "coordinate", "rows": "split"}),
        spec="09, section 7",
        source="Talwar, Thakurta and Zhang 2015; seed 003, section 4",
        guarantee="epsilon",
    ),
    Method(
        id="ht-dp-fw",
        title="Frank-Wolfe for heavy tails: truncated gradients, every row read once",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "truncate", "rows": "split"}),
        spec="09, section 2",
        source="seed 003, Algorithm 1",
        guarantee="epsilon",
    ),
    Method(
        id="ht-dp-fw-full",
        title="Frank-Wolfe for heavy tails: truncated gradients of all rows",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "truncate", "rows": "all"}),
        spec="09, section 2.1",
        source="seed 003, Algorithm 1",
    ),
    Method(
        id="ht-dp-fw-robreg",
        title="Frank-Wolfe with the biweight loss, which ignores gross errors in the labels",
        estimators=("LinearRegression", "Minimizer"),
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "truncate", "rows": "split"}),
        spec="09, section 2.2",
        source="seed 003, Theorem 3",
        guarantee="epsilon",
    ),
    Method(
        id="ht-private-lasso",
        title="Frank-Wolfe on shrunken rows and labels (kept for comparison: residual-clip-fw is better)",
        estimators=("LinearRegression", "Minimizer"),
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "shrink", "rows": "all"}),
        spec="09, section 3",
        source="seed 003, Algorithm 2",
    ),
    Method(
        id="residual-clip-fw",
        title="Frank-Wolfe with features and residuals clipped: the lasso for heavy tails",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "frank-wolfe", "gradient": "residual", "rows": "all"}),
        spec="09, section 3.1",
        source="seed 003, Algorithm 2, with clipped residuals",
    ),
    Method(
        id="dp-iht-erm",
        title="Hard thresholding of gradient steps with Gaussian noise on the whole gradient",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "iht", "gradient": "norm", "rows": "all"}),
        spec="05, section 7.4",
        source="seed 000, Algorithm 5.3.43",
    ),
    Method(
        id="ht-dp-iht",
        title="Hard thresholding by peeling on shrunken rows (kept for comparison: residual-clip-iht is better)",
        estimators=("LinearRegression", "Minimizer"),
        parameters=MappingProxyType({"solver": "iht", "gradient": "shrink", "rows": "split"}),
        spec="09, section 4",
        source="seed 003, Algorithms 3 and 4",
    ),
    Method(
        id="residual-clip-iht",
        title="Hard thresholding by peeling with features and residuals clipped: sparse models",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "iht", "gradient": "residual", "rows": "all"}),
        spec="09, section 4.1",
        source="seed 003, Algorithm 3, with clipped residuals",
    ),
    Method(
        id="ht-sparse-opt",
        title="Hard thresholding by peeling with truncated gradients: sparse models for heavy tails",
        estimators=_LINEAR,
        parameters=MappingProxyType({"solver": "iht", "gradient": "truncate", "rows": "all"}),
        spec="09, section 5",
        source="seed 003, Algorithm 5",
    ),
    *LOCAL,
)
"""Every method that is implemented, by id."""

ALIASES: Mapping[str, str] = MappingProxyType({alias: m.id for m in METHODS.values() for alias in m.aliases})
"""Other names of methods."""

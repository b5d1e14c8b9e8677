"""`METHODS`: one entry per method id, that is what a job can ask for.

An entry names an estimator and the parameters that make it this method. Adding a method is adding an entry and a
``pipelines/<id>.yaml``; nothing else knows the list. Importing this module imports no estimator, so that looking up a
name stays quick; `estimator_class` does when it is asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from dpdist.errors import DpdistError

ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {
        "LogisticRegression": "dpdist.central",
        "LinearRegression": "dpdist.central",
        "LinearSVC": "dpdist.central",
        "Minimizer": "dpdist.central",
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
        "verbose": "--quiet",
    }
)
"""Parameters of estimators that a job does not set under ``params``, and where it does."""


@dataclass(frozen=True)
class Method:
    """What `dpdist methods` lists.

    Attributes
    ----------
    id : str
    title : str
        One line in plain words.
    estimators : tuple of str
        Names in `ESTIMATORS`; the first is the default of a job.
    parameters : mapping
        What makes the estimator this method; a job cannot set these.
    spec, source : str
        Where the method is specified, and where it comes from.
    trust : {"central", "local"}
        Who sees the rows: a trusted coordinator, or only the users themselves.
    guarantee : {"(epsilon, delta)", "epsilon"}
    outputs : tuple of str
        Fitted attributes that are released arrays (or numbers).

    Examples
    --------
    >>> METHODS["dp-sgd"].estimators[0], METHODS["dp-sgd"].pipeline
    ('LogisticRegression', 'pipelines/dp-sgd.yaml')
    """

    id: str
    title: str
    estimators: tuple[str, ...]
    parameters: Mapping[str, Any] = field(hash=False)
    spec: str
    source: str
    trust: Literal["central", "local"] = "central"
    guarantee: Literal["(epsilon, delta)", "epsilon"] = "(epsilon, delta)"
    outputs: tuple[str, ...] = ("coef_", "intercept_")

    @property
    def pipeline(self) -> str:
        """The example job of this method."""
        return f"pipelines/{self.id}.yaml"

    @property
    def summary(self) -> dict[str, Any]:
        """Plain values, for ``dpdist methods --json``."""
        return {
            "id": self.id,
            "title": self.title,
            "trust": self.trust,
            "guarantee": self.guarantee,
            "estimators": list(self.estimators),
            "parameters": dict(self.parameters),
            "outputs": list(self.outputs),
            "spec": self.spec,
            "source": self.source,
            "pipeline": self.pipeline,
        }


def estimator_class(name: str) -> type:
    """The class of an estimator by its name in `ESTIMATORS`.

    Examples
    --------
    >>> estimator_class("LinearSVC").__name__
    'LinearSVC'
    """
    if name not in ESTIMATORS:
        raise DpdistError(f"no estimator is called {name!r}; there are {', '.join(ESTIMATORS)}")
    return getattr(importlib.import_module(ESTIMATORS[name]), name)


def _registry(*methods: Method) -> Mapping[str, Method]:
    entries = {method.id: method for method in methods}
    assert len(entries) == len(methods), "two methods have the same id"
    return MappingProxyType(entries)


_LINEAR = ("LogisticRegression", "LinearRegression", "LinearSVC", "Minimizer")

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
            {"solver": "gradient", "gradient": "norm", "rows": "sample", "combine": "tail-average"}
        ),
        spec="01, section 2.5",
        source="seed 000, section 3.1.5",
    ),
)
"""Every method that is implemented, by id."""

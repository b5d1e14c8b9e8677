"""The rows of the registry: what it says about a method, and about an id that is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True)
class RegisteredMethod:
    """What `dpdist methods` lists: data only, the code is in the estimator.

    Attributes
    ----------
    id : str
    title : str
        One line in plain words.
    parameters : mapping
        What makes the estimator this method; a job cannot set these. One that is an object with parameters of its own
        (``solver``, ``gradient`` ...) is a name, or ``{name: {parameter: value}}``; a job may set its other parameters.
    estimators : tuple of str
        Names in `ESTIMATORS`; the first is the default of a job.
    spec, source : str
        Where the method is specified, and where it comes from.
    trust : {"central", "local"}
        Who sees the rows: a trusted coordinator, or only the users themselves.
    guarantee : {"(epsilon, delta)", "epsilon", "either"}
    outputs : tuple of str
        Fitted attributes that are released arrays (or numbers).
    needs : tuple of str
        Parameters that a job has to set, because the method would be another one without them.
    aliases : tuple of str
        Other ids of the same method.
    convex : bool, optional
        Which losses of a linear predictor it is for, where the others make another method of the same parameters.

    Examples
    --------
    >>> from dpdist.jobs.registry import METHODS
    >>> METHODS["dp-sgd"].estimators[0], METHODS["dp-sgd"].pipeline
    ('LogisticRegression', 'pipelines/dp-sgd.yaml')
    """

    id: str
    title: str
    parameters: Mapping[str, Any] = field(hash=False)
    _: KW_ONLY
    estimators: tuple[str, ...]
    spec: str
    source: str
    trust: Literal["central", "local"] = "central"
    guarantee: Literal["(epsilon, delta)", "epsilon", "either"] = "(epsilon, delta)"
    outputs: tuple[str, ...] = ("coef_", "intercept_")
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    convex: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    @property
    def pipeline(self) -> str:
        """The example job of this method."""
        return f"pipelines/{self.id}.yaml"

    @property
    def summary(self) -> dict[str, Any]:
        """Plain values, for ``dpdist methods --json``."""
        return {
            "id": self.id,
            "aliases": list(self.aliases),
            "title": self.title,
            "trust": self.trust,
            "guarantee": self.guarantee + (" per report" if self.trust == "local" else ""),
            "estimators": list(self.estimators),
            "parameters": dict(self.parameters),
            "needs": list(self.needs),
            "outputs": list(self.outputs),
            "spec": self.spec,
            "source": self.source,
            "pipeline": self.pipeline,
        }


@dataclass(frozen=True)
class OtherName:
    """An id that is no method: what it stands for, and which methods have to do with it.

    Attributes
    ----------
    id : str
    what : str
        One line in plain words.
    methods : tuple of str
        Ids of methods that it is a part of.
    settings : mapping
        Keys of a job that make it so.
    library : str
        Where it is in the library.
    """

    id: str
    what: str
    methods: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    library: str = ""

    @property
    def summary(self) -> dict[str, Any]:
        """Plain values, for ``dpdist methods ID --json``."""
        about = {"what": self.what, "methods": list(self.methods), "settings": dict(self.settings)}
        return {"id": self.id, **about, "library": self.library or None}

    def __str__(self) -> str:
        part = f", a part of {', '.join(self.methods)}" if self.methods else ""
        settings = " and ".join(f"{key}: {value}" for key, value in self.settings.items())
        return f"it is no method of its own{part}: {self.what}" + (f". Set {settings}" if settings else "")

"""`Problem`: a generator with a known truth and public parameters, and the metrics that judge answers by it.

Because the truth is known and the data is nobody's, a model fitted to a problem can be compared with it. The errors are
computed on fresh rows, given the true law of their labels, so that no label noise blurs them, and beside them stand
two others to judge them by: what a fit without privacy reaches on the same training rows, and what predicting nothing
reaches. On real data none of these numbers exists.

The id of a generated dataset is derived from the generator and its parameters, which are public: the same parameters
are the same dataset, so that a run can be resumed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import zarr

from dpdist.data import Dataset
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.data.stores import resolved, shown
from dpdist.errors import DataError
from dpdist.estimators.answer_kinds import Answer
from dpdist.problems.metrics import Array, Distance, Law, Metric, Parameters, TruthMetric, World

FRESH_BYTES = 2**26
"""Memory for fresh rows, of which there are at most 20 000."""
REFERENCE_BYTES = 2**28
"""Memory for the training rows of the fit without privacy; of a larger dataset it gets the first rows only."""


def parameters(n: int = 100_000, d: int = 20, **own: Any) -> Parameters:
    """What all generators take and what one takes beside it, with the defaults."""
    return MappingProxyType({"n": n, "d": d, "random_state": 0, **own, "dtype": "float64", "store": None})


@dataclass(frozen=True)
class Generated:
    """A generated dataset, what is known of it, and how far a model is from that."""

    problem: Problem
    dataset: Dataset
    world: World
    public: Array | None = None
    """Rows of other people, without labels, that need no protection."""

    @property
    def truth(self) -> Array:
        """As the generator returned it."""
        return self.world.truth

    def metric(self, model: Any, *, distance: bool = False) -> TruthMetric:
        """How models such as this one are judged."""
        return self.problem.metric(model.answers, type(model).__name__, distance=distance)(self.world)

    def nonprivate(self, metric: Metric) -> float:
        """The error of a fit without privacy to as many of the first rows as memory allows; trivial if labels agree."""
        rows = self.dataset.read(0, self._n_reference)
        y = rows.get("y")
        return metric.nonprivate(rows["X"], y) if y is None or len(np.unique(y)) > 1 else metric.trivial()

    def metrics(self, model: Any) -> dict[str, Any]:
        """``error``, ``nonprivate_error``, ``trivial_error`` and ``what`` they measure."""
        metric, n = self.metric(model), self._n_reference
        part = "" if n == self.dataset.n_rows else f"; without privacy: fitted to the first {n} rows"
        return {
            "error": metric.error(model),
            "nonprivate_error": self.nonprivate(metric),
            "trivial_error": metric.trivial(),
            "what": metric.what + part,
        }

    @property
    def _n_reference(self) -> int:
        row = sum(spec.row_bytes for spec in self.dataset.arrays.values())
        return min(self.dataset.n_rows, max(1, REFERENCE_BYTES // row))


@dataclass(frozen=True)
class Problem:
    """Data with a known truth, and how answers to it are judged.

    Attributes
    ----------
    name, title : str
    generator : callable
        From a number of rows and keyword arguments to a dataset and its truth.
    parameters : mapping
        What a job may set under ``data``, with the defaults; ``labels`` or ``n_classes`` where labels are classes.
    metrics : tuple of `TruthMetric` classes
        Each judges one kind of answer; the first one that judges what a model answers is its error.
    law : callable, optional
        What is known of the labels of fresh rows, for the metrics that need it.
    shared : tuple of str
        Parameters that an estimator has to have alike.

    Examples
    --------
    >>> from dpdist.problems.catalog import PROBLEMS
    >>> generated = PROBLEMS["logit"].generate({"n": 2000, "d": 5, "random_state": 3})
    >>> generated.dataset
    Dataset(id='generated-logit-5cd2b9d0b640', n_rows=2000, partitions=1, in memory)
      X: float64 (2000, 5)
      y: int8 (2000,)
    """

    name: str
    title: str
    generator: Callable[..., tuple[Dataset, Array]] = field(repr=False)
    parameters: Parameters = field(hash=False)
    metrics: tuple[type[TruthMetric], ...]
    law: Law | None = field(default=None, repr=False)
    shared: tuple[str, ...] = ()

    def resolve(self, data: Parameters) -> dict[str, Any]:
        """All parameters with their values; `DataError` names a key or a value that cannot be."""
        unknown = sorted(set(data) - set(self.parameters) - {"generate"})
        if unknown:
            there = list(self.parameters)
            raise DataError(f"data.{unknown[0]} is not a parameter of the problem {self.name!r}: it takes {there}")
        values = {**self.parameters, **{key: value for key, value in data.items() if key != "generate"}}
        return {key: _checked(key, value, self.parameters[key]) for key, value in values.items()}

    def metric(self, answers: tuple[Answer, ...], name: str, *, distance: bool = False) -> type[TruthMetric]:
        """The metric (a distance) for who gives these answers; `DataError` names what is judged where there is none."""
        asked = [metric for metric in self.metrics if not distance or issubclass(metric, Distance)]
        for metric in asked:
            if metric.answer in answers:
                return metric
        wanted = tuple(metric.answer for metric in asked)
        judged, given = (" or ".join(answer.words for answer in some) or "nothing" for some in (wanted, answers))
        how = " by distance" if distance else ""
        raise DataError(f"data.generate: the problem {self.name!r} judges {judged}{how}, and {name} gives {given}")

    def check(self, estimator: Any, data: Parameters, name: str = "") -> None:
        """Refuse an estimator of something else (what is generated is public, so this may be told)."""
        values, chosen, name = self.resolve(data), estimator.get_params(), name or type(estimator).__name__
        self.metric(estimator.answers, name)
        for key in self.shared:
            if chosen.get(key, values[key]) != values[key]:
                raise DataError(f"params.{key} is {chosen[key]}, but the problem {self.name!r} has {values[key]}")
        labels = self._labels(values)
        if labels is None:
            return
        if "classes" not in chosen and set(labels) != {-1, 1}:
            key, way_out = ("labels", ": set [-1, 1]") if "labels" in values else ("generate", "")
            text = f"{name} takes the labels -1 and +1, and the problem {self.name!r} has {labels}{way_out}"
            raise DataError(f"data.{key}: {text}")
        if chosen.get("classes") is not None and set(chosen["classes"]) != set(labels):
            offered = list(chosen["classes"])
            raise DataError(f"params.classes is {offered}, but the problem {self.name!r} has the labels {labels}")

    def generate(self, data: Parameters) -> Generated:
        """Make (or, in a store, find again) the data."""
        values = self.resolve(data)
        store, labels = values.pop("store"), self._labels(values)
        recode = labels if values.pop("labels", None) and labels != [0, 1] else None
        n, d, n_public = values.pop("n"), values.pop("d"), values.pop("public_rows", 0)
        sample = functools.partial(self.generator, n_features=d, **values)
        identity = self._identity(data)
        if store is not None:
            if recode:
                raise DataError("data.store keeps the labels 0 and 1: leave data.labels out, or leave data.store out")
            dataset, truth = _stored(sample, store, identity), sample(1)[1]
        else:
            dataset, truth = sample(n)
            rows: dict[str, Any] = dict(dataset.read(0, n))
            if recode is not None:
                rows["y"] = np.where(rows["y"] == 1, recode[1], recode[0])
            placed: dict[str, Any] = {"row_order": "arrival", "unit": dataset.schema.unit}
            dataset = Dataset.from_arrays(dataset_id=self.dataset_id(data), **placed, **rows)
        elsewhere = {**values, "n_features": d, "random_state": values["random_state"] + 2**40, "dtype": "float64"}

        def fresh() -> Array:
            n_fresh = min(20_000, max(1, FRESH_BYTES // (8 * d)))
            return self.generator(n_fresh, **elsewhere)[0].read(0, n_fresh)["X"]

        world = World(truth, values, labels, fresh, self.law)
        if not n_public:
            return Generated(self, dataset, world)
        others = self.generator(n_public, **{**elsewhere, "random_state": elsewhere["random_state"] + 2**40})[0]
        return Generated(self, dataset, world, others.read(0, n_public)["X"])

    def dataset_id(self, data: Parameters) -> str | None:
        """The id of generated rows in memory; None for a store, which gets one when it is written."""
        identity = self._identity(data)
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return f"generated-{self.name}-{digest[:12]}" if self.resolve(data)["store"] is None else None

    def _identity(self, data: Parameters) -> dict[str, Any]:
        """All that the rows depend on, as plain JSON."""
        values = self.resolve(data)
        del values["store"]
        return {"generator": self.name, **values, "labels": self._labels(values)}

    def _labels(self, values: Parameters) -> list[Any] | None:
        if "labels" in values:
            return list(values["labels"])
        classes = "n_classes" in values and "n_classes" not in self.shared
        return list(range(values["n_classes"])) if classes else None


def _checked(key: str, value: Any, default: Any) -> Any:
    """The value in the type of the default; ranges are left to the generator, where they are its own."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, int):
        low = {"random_state": 0, "n_classes": 2, "n_categories": 2, "n_nonzero": 0, "public_rows": 0}.get(key, 1)
        if not whole or value < low:
            raise DataError(f"data.{key} must be an integer >= {low}, got {value!r}")
    elif key == "labels":
        good = isinstance(value, list | tuple) and len(value) == 2 and all(type(v) is int for v in value)
        if not good or value[0] == value[1]:
            raise DataError(f"data.labels must be two different integers, for example [-1, 1], got {value!r}")
    elif isinstance(default, float):
        if not (whole or isinstance(value, float)) or not (math.isfinite(value) and value >= 0):
            raise DataError(f"data.{key} must be a finite number >= 0, got {value!r}")
        return float(value)
    elif not (isinstance(value, str) or (key == "store" and value is None)):
        raise DataError(f"data.{key} must be a string, got {value!r}")
    return value


def _stored(sample: Callable[..., tuple[Dataset, Array]], store: str, identity: Parameters) -> Dataset:
    """Write the rows to a store in constant memory, or find there what these parameters wrote before."""
    place, mark = resolved(store), "generated"
    try:
        group = zarr.open_group(place, mode="r")
    except FileNotFoundError:
        group = None
    if group is not None:
        if group.attrs.get(mark) != identity:
            raise DataError(
                f"data.store: {shown(store)} exists and is not what these parameters generate; name another place, "
                "or delete it"
            )
        if "id" in dict(group.attrs.get(ATTRIBUTE, {})):  # type: ignore[arg-type]
            return Dataset.open(place)
    try:
        # an unfinished one is written anew: it is what these parameters generate, and no run has used it
        group = zarr.open_group(place, mode="w", zarr_format=3, attributes={mark: dict(identity)})
    except OSError as error:
        raise DataError(f"data.store: cannot write to {shown(store)} ({error.strerror}); name another place") from None
    sample(identity["n"], store=group)
    return Dataset.open(place)

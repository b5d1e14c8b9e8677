"""Data that is generated from a known truth, and how far a model is from it.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from sklearn.base import is_classifier, is_regressor

from dpdist.data import Dataset
from dpdist.data.dataset_schema import ATTRIBUTE
from dpdist.data.stores import resolved, shown
from dpdist.errors import DataError
from dpdist.losses import LOSSES
from dpdist.problems.catalog_local import ASKED_FOR, check_unlabelled
from dpdist.problems.metrics import Array, Yardstick

FRESH_BYTES = 2**26
"""Memory for fresh rows, of which there are at most 20 000."""
REFERENCE_BYTES = 2**28
"""Memory for the training rows of the fit without privacy; of a larger dataset it gets the first rows only."""

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Generated:
    """A generated dataset, its truth, and how far a model is from it."""

    dataset: Dataset
    truth: Array
    _yardstick: Callable[[Any], Yardstick] = field(repr=False)
    public: Array | None = None
    """Rows of other people, without labels, that need no protection."""

    def yardstick(self, model: Any) -> Yardstick:
        """How models such as this one are judged."""
        return self._yardstick(model)

    def reference(self, yardstick: Yardstick) -> Any:
        """A model without privacy, fitted to as many of the first rows as memory allows; None if all labels agree."""
        rows = self.dataset.read(0, self._n_reference)
        y = rows.get("y")
        return yardstick.reference(rows["X"], y) if y is None or len(np.unique(y)) > 1 else None

    def metrics(self, model: Any) -> dict[str, Any]:
        """``error``, ``nonprivate_error``, ``trivial_error`` and ``what`` they measure."""
        yardstick, n = self.yardstick(model), self._n_reference
        reference = self.reference(yardstick)
        part = "" if n == self.dataset.n_rows else f"; without privacy: fitted to the first {n} rows"
        return {
            "error": yardstick.error(model),
            "nonprivate_error": yardstick.trivial() if reference is None else yardstick.error(reference),
            "trivial_error": yardstick.trivial(),
            "what": yardstick.what + part,
        }

    @property
    def _n_reference(self) -> int:
        row = sum(spec.row_bytes for spec in self.dataset.arrays.values())
        return min(self.dataset.n_rows, max(1, REFERENCE_BYTES // row))


@dataclass(frozen=True)
class Problem:
    """How to generate data with a known truth.

    Attributes
    ----------
    name, title : str
    keys : mapping
        What a job may set under ``data``, with the defaults.
    task : {"classes", "numbers", "columns", "categories", "codes"}
        What the labels are; the last three have none, and the means of columns, the frequencies of categories or the
        frequent codes are wanted.

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
    keys: Keys = field(hash=False)
    task: str
    _sample: Callable[..., tuple[Dataset, Array]] = field(repr=False)
    _judge: Callable[[Array, Array, Keys], Callable[[Any], Yardstick]] = field(repr=False)

    def resolve(self, data: Keys) -> dict[str, Any]:
        """All keys with their values; `DataError` names a key or a value that cannot be."""
        unknown = sorted(set(data) - set(self.keys) - {"generate"})
        if unknown:
            raise DataError(f"data.{unknown[0]} is not a key of the problem {self.name!r}: it takes {list(self.keys)}")
        values = {**self.keys, **{key: value for key, value in data.items() if key != "generate"}}
        return {key: _checked(key, value, self.keys[key]) for key, value in values.items()}

    def size(self, data: Keys) -> tuple[int, int]:
        """Rows and features, without generating any."""
        values = self.resolve(data)
        return values["n"], values["d"]

    def check(self, estimator: Any, data: Keys) -> None:
        """Refuse an estimator that these labels are not for (what is generated is public, so this may be told)."""
        labels = self._labels(self.resolve(data))
        offered = estimator.get_params().get("classes")
        signs = _takes_signs(estimator)
        name = type(estimator).__name__
        if (self.task in ASKED_FOR) == hasattr(estimator, "predict"):
            raise DataError(
                f"{name} needs labels, and the problem {self.name!r} has none"
                if self.task in ASKED_FOR
                else f"{name} is for rows without labels, which the problem {self.name!r} does not give"
            )
        if self.task in ASKED_FOR:
            check_unlabelled(self.name, self.task, self.resolve(data), estimator)
            return
        if labels is None:
            if is_classifier(estimator) or signs:
                raise DataError(f"{name} needs classes, and the labels of the problem {self.name!r} are numbers")
        elif is_regressor(estimator) or not (is_classifier(estimator) or signs):
            raise DataError(f"{name} predicts numbers, and the labels of the problem {self.name!r} are classes")
        elif offered is not None and set(offered) != set(labels):
            raise DataError(f"params.classes is {list(offered)}, but the problem {self.name!r} has the labels {labels}")
        elif signs and not is_classifier(estimator) and set(labels) != {-1, 1}:
            raise DataError(f"{name} takes the labels -1 and +1: set data.labels to [-1, 1]")

    def generate(self, data: Keys) -> Generated:
        """Make (or, in a store, find again) the data."""
        values = self.resolve(data)
        store, labels = values.pop("store"), self._labels(values)
        recode = labels if values.pop("labels", None) and labels != [0, 1] else None
        n, d, n_public = values.pop("n"), values.pop("d"), values.pop("public_rows", 0)
        sample = functools.partial(self._sample, n_features=d, **values)
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
            dataset = Dataset.from_arrays(dataset_id=self.dataset_id(data), row_order="arrival", **rows)
        n_fresh = min(20_000, max(1, FRESH_BYTES // (8 * d)))
        elsewhere = {**values, "random_state": values["random_state"] + 2**40, "dtype": "float64"}
        fresh = self._sample(n_fresh, n_features=d, **elsewhere)[0].read(0, n_fresh)["X"]
        elsewhere["random_state"] += 2**40
        public = self._sample(n_public, n_features=d, **elsewhere)[0].read(0, n_public)["X"] if n_public else None
        return Generated(dataset, truth, self._judge(fresh, truth, {**values, "labels": labels}), public)

    def dataset_id(self, data: Keys) -> str | None:
        """The id of generated rows in memory; None for a store, which gets one when it is written."""
        identity = self._identity(data)
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return f"generated-{self.name}-{digest[:12]}" if self.resolve(data)["store"] is None else None

    def _identity(self, data: Keys) -> dict[str, Any]:
        """All that the rows depend on, as plain JSON."""
        values = self.resolve(data)
        del values["store"]
        return {"generator": self.name, **values, "labels": self._labels(values)}

    def _labels(self, values: Keys) -> list[Any] | None:
        if self.task != "classes":
            return None
        return list(values["labels"]) if "labels" in values else list(range(values["n_classes"]))


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


def _stored(sample: Callable[..., tuple[Dataset, Array]], store: str, identity: Keys) -> Dataset:
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


def loss_of(estimator: Any) -> Any:
    """The loss itself, where the estimator has one."""
    loss = getattr(estimator, "loss", None)
    return LOSSES[loss]() if isinstance(loss, str) and loss in LOSSES else loss


def _takes_signs(estimator: Any) -> bool:
    return getattr(loss_of(estimator), "labels", None) == "signs"

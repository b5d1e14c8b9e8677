"""`PROBLEMS`: data that is generated from a known truth, for examples, tests and simulations.

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
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import sklearn.linear_model
import zarr
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import is_classifier, is_regressor

from dpdist.data import Dataset, synthetic
from dpdist.data.schema import ATTRIBUTE
from dpdist.data.writing import resolved, shown
from dpdist.errors import DataError
from dpdist.losses import LOSSES, Logistic

FRESH_BYTES = 2**26
"""Memory for fresh rows, of which there are at most 20 000."""
REFERENCE_BYTES = 2**28
"""Memory for the training rows of the fit without privacy; of a larger dataset it gets the first rows only."""

Array = NDArray[Any]
Keys = Mapping[str, Any]


class Yardstick(Protocol):
    """Errors of predictions against the known truth, on fresh rows."""

    def error(self, model: Any) -> float:
        """Of a fitted model."""
        ...

    def trivial(self) -> float:
        """Of predicting nothing."""
        ...

    def reference(self, X: Array, y: Array) -> Any:
        """A model that is fitted without privacy."""
        ...

    @property
    def what(self) -> str:
        """What the errors measure."""
        ...


@dataclass(frozen=True)
class Excess:
    """Regression: mean of half the squared distance between predictions and the true mean of ``y``."""

    X: Array
    truth: Array

    what = "excess squared loss (half the squared distance to the true mean), on fresh rows"

    def error(self, model: Any) -> float:
        return float(np.mean((np.ravel(model.predict(self.X)) - self.X @ self.truth) ** 2) / 2)

    def trivial(self) -> float:
        return float(np.mean((self.X @ self.truth) ** 2) / 2)

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LinearRegression().fit(X, y)


@dataclass(frozen=True)
class Classes:
    """Classification with known probabilities of the labels at every fresh row."""

    X: Array
    log_probabilities: Array
    labels: Array

    def reference(self, X: Array, y: Array) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "did not converge" is of no interest to who asked for a private model
            return sklearn.linear_model.LogisticRegression(max_iter=1000).fit(X, y)


@dataclass(frozen=True)
class LogLoss(Classes):
    """Mean Kullback-Leibler divergence of predicted from true probabilities, which is the excess log-loss."""

    what = "excess log-loss over the true probabilities, on fresh rows"

    def error(self, model: Any) -> float:
        return self._divergence(_log_probabilities(model, self.X, self.labels))

    def trivial(self) -> float:
        return self._divergence(np.full_like(self.log_probabilities, -math.log(len(self.labels))))

    def _divergence(self, predicted: Array) -> float:
        p = np.exp(self.log_probabilities)
        return float(np.mean(np.sum(p * (self.log_probabilities - predicted), axis=1)))


@dataclass(frozen=True)
class WrongClass(Classes):
    """Probability of a wrong label minus that of the best possible rule: for models without probabilities."""

    what = "excess probability of a wrong class over the best possible rule, on fresh rows"

    def error(self, model: Any) -> float:
        position = np.argsort(self.labels)
        return self._excess(position[np.searchsorted(self.labels, model.predict(self.X), sorter=position)])

    def trivial(self) -> float:
        return self._excess(np.zeros(len(self.X), dtype=int))

    def _excess(self, chosen: Array) -> float:
        p = np.exp(self.log_probabilities)
        return float(np.mean(p.max(axis=1) - p[np.arange(len(p)), chosen]))


@dataclass(frozen=True)
class Generated:
    """A generated dataset, its truth, and how far a model is from it."""

    dataset: Dataset
    truth: Array
    _yardstick: Callable[[Any], Yardstick] = field(repr=False)

    def metrics(self, model: Any) -> dict[str, Any]:
        """``error``, ``nonprivate_error``, ``trivial_error`` and ``what`` they measure."""
        yardstick = self._yardstick(model)
        row = sum(spec.row_bytes for spec in self.dataset.arrays.values())
        n = min(self.dataset.n_rows, max(1, REFERENCE_BYTES // row))
        rows = self.dataset.read(0, n)
        reference = yardstick.reference(rows["X"], rows["y"]) if len(np.unique(rows["y"][:n])) > 1 else None
        part = "" if n == self.dataset.n_rows else f"; without privacy: fitted to the first {n} rows"
        return {
            "error": yardstick.error(model),
            "nonprivate_error": yardstick.trivial() if reference is None else yardstick.error(reference),
            "trivial_error": yardstick.trivial(),
            "what": yardstick.what + part,
        }


@dataclass(frozen=True)
class Problem:
    """How to generate data with a known truth.

    Attributes
    ----------
    name, title : str
    keys : mapping
        What a job may set under ``data``, with the defaults.
    task : {"classes", "numbers"}
        What the labels are.

    Examples
    --------
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
        n, d = values.pop("n"), values.pop("d")
        sample = functools.partial(self._sample, n_features=d, **values)
        identity = self._identity(data)
        if store is not None:
            if recode:
                raise DataError("data.store keeps the labels 0 and 1: leave data.labels out, or leave data.store out")
            dataset, truth = _stored(sample, store, identity), sample(1)[1]
        else:
            dataset, truth = sample(n)
            rows = dataset.read(0, n)
            y = rows["y"] if recode is None else np.where(rows["y"] == 1, recode[1], recode[0])
            dataset = Dataset.from_arrays(X=rows["X"], y=y, dataset_id=self.dataset_id(data), row_order="arrival")
        n_fresh = min(20_000, max(1, FRESH_BYTES // (8 * d)))
        elsewhere = {**values, "random_state": values["random_state"] + 2**40, "dtype": "float64"}
        fresh = self._sample(n_fresh, n_features=d, **elsewhere)[0].read(0, n_fresh)["X"]
        return Generated(dataset, truth, self._judge(fresh, truth, {**values, "labels": labels}))

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
        if self.task == "numbers":
            return None
        return list(values["labels"]) if "labels" in values else list(range(values["n_classes"]))


def _checked(key: str, value: Any, default: Any) -> Any:
    """The value in the type of the default; ranges are left to the generator, where they are its own."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key in ("n", "d", "random_state", "n_classes"):
        low = {"random_state": 0, "n_classes": 2}.get(key, 1)
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


def _loss(estimator: Any) -> Any:
    loss = getattr(estimator, "loss", None)
    return LOSSES.get(loss) if isinstance(loss, str) else loss


def _takes_signs(estimator: Any) -> bool:
    return getattr(_loss(estimator), "labels", None) == "signs"


def _log_probabilities(model: Any, X: Array, labels: Array) -> Array:
    """One column per label, in the order of ``labels``."""
    if not hasattr(model, "predict_log_proba"):
        u = np.ravel(model.decision_function(X))  # signs: the labels are -1 and +1, in this order or the other
        columns = {-1: log_expit(-u), 1: log_expit(u)}
        return np.column_stack([columns[int(label)] for label in labels])
    predicted = model.predict_log_proba(X)
    return predicted[:, [list(model.classes_).index(label) for label in labels]]


def _classes(X: Array, log_probabilities: Array, labels: list[Any]) -> Callable[[Any], Yardstick]:
    def choose(model: Any) -> Yardstick:
        logistic = hasattr(model, "predict_log_proba") or isinstance(_loss(model), Logistic)
        return (LogLoss if logistic else WrongClass)(X, log_probabilities, np.asarray(labels))

    return choose


def _judge_logit(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    margin = (X @ truth) * (math.sqrt(X.shape[1]) / 2)
    return _classes(X, np.column_stack([log_expit(-margin), log_expit(margin)]), values["labels"])


def _judge_multiclass(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return _classes(X, log_softmax((X @ truth.T) * (math.sqrt(X.shape[1]) / 2), axis=1), values["labels"])


def _judge_linear(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Excess(X, truth)


_COMMON: Keys = {"n": 100_000, "d": 20, "random_state": 0}
_STORED: Keys = {"dtype": "float64", "store": None}

PROBLEMS: Mapping[str, Problem] = MappingProxyType(
    {
        problem.name: problem
        for problem in (
            Problem(
                "logit",
                "two classes: x uniform on the unit sphere, P(y = 1) logistic in <x, truth>",
                MappingProxyType({**_COMMON, "signal": 6.0, "labels": (0, 1), **_STORED}),
                "classes",
                synthetic.logit,
                _judge_logit,
            ),
            Problem(
                "multiclass",
                "several classes: x uniform on the unit sphere, P(y = k) softmax in <x, truth_k>",
                MappingProxyType({**_COMMON, "n_classes": 3, "signal": 6.0, **_STORED}),
                "classes",
                synthetic.multiclass,
                _judge_multiclass,
            ),
            Problem(
                "linear",
                "regression: x uniform on the unit sphere, y = <x, truth> + noise",
                MappingProxyType({**_COMMON, "noise": "gaussian", "noise_std": 0.1, "signal": 1.0, **_STORED}),
                "numbers",
                synthetic.linear,
                _judge_linear,
            ),
        )
    }
)
"""Every generator with a known truth, by the name a job uses."""

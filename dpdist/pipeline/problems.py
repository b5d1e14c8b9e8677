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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import zarr
from scipy.special import log_expit, log_softmax
from sklearn.base import is_classifier, is_regressor

from dpdist.data import Dataset, heavy_columns, lookalikes, sparse, synthetic
from dpdist.data.schema import ATTRIBUTE
from dpdist.data.writing import resolved, shown
from dpdist.errors import DataError
from dpdist.losses import LOSSES, Logistic
from dpdist.pipeline.problems_local import ASKED_FOR, LOCAL_PROBLEMS, check_unlabelled
from dpdist.pipeline.yardsticks import Array, Distance, Excess, LogLoss, MeanDistance, WrongClass, Yardstick

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


def _loss(estimator: Any) -> Any:
    loss = getattr(estimator, "loss", None)
    return LOSSES[loss]() if isinstance(loss, str) and loss in LOSSES else loss


def _takes_signs(estimator: Any) -> bool:
    return getattr(_loss(estimator), "labels", None) == "signs"


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


def _judge_table(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return _classes(X, np.column_stack([log_expit(-X @ truth), log_expit(X @ truth)]), values["labels"])


def _judge_skewed_logit(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    location, scale = lookalikes.LOG_LOGISTIC
    # P(e < -<x, truth>), with e + mean log-logistic; where it is impossible, as good as impossible
    level = np.maximum(lookalikes.LOG_LOGISTIC_MEAN - X @ truth, 1e-30)
    margin = (np.log(level) - location) / scale
    return _classes(X, np.column_stack([log_expit(-margin), log_expit(margin)]), values["labels"])


def _judge_linear(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Excess(X, truth)


def _judge_heavy(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: Distance(truth)


def _judge_columns(X: Array, truth: Array, values: Keys) -> Callable[[Any], Yardstick]:
    return lambda model: MeanDistance(truth)


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
            Problem(
                "heavy",
                "regression with skewed heavy-tailed noise, e log-normal; features normal, Student's t or skewed",
                MappingProxyType({**_COMMON, "d": 10, "law": "normal", **_STORED}),
                "numbers",
                synthetic.heavy,
                _judge_heavy,
            ),
            Problem(
                "heavy-columns",
                "means: columns of heavy-tailed numbers around the truth, log-normal, Student's t or Pareto",
                MappingProxyType({**_COMMON, "d": 1, "law": "lognormal", "signal": 1.0, "n_nonzero": 0, **_STORED}),
                "columns",
                heavy_columns.heavy_columns,
                _judge_columns,
            ),
            Problem(
                "heavy-sparse",
                "sparse regression with heavy tails: features t with 5 degrees of freedom, noise t with 3",
                MappingProxyType({**_COMMON, "d": 200, "noise_std": 0.5, "outliers": 0.0, **_STORED}),
                "numbers",
                sparse.heavy_sparse,
                _judge_heavy,
            ),
            Problem(
                "heavy-logistic",
                "two classes, sparse, heavy tails: features t with 4 degrees of freedom, P(y = 1) logistic",
                MappingProxyType({**_COMMON, "d": 200, "labels": (0, 1), **_STORED}),
                "classes",
                sparse.heavy_logistic,
                _judge_table,
            ),
            Problem(
                "sparse-l1",
                "two classes, sparse rows like word counts of norm 1, a sparse truth: P(y = 1) logistic in <x, truth>",
                MappingProxyType({**_COMMON, "d": 1000, "n_nonzero": 20, "labels": (0, 1), **_STORED}),
                "classes",
                synthetic.sparse_l1,
                _judge_table,
            ),
            Problem(
                "skewed-logit",
                "two classes by a threshold with skewed noise: y = 1 where <x, truth> + e < 0, e log-logistic",
                MappingProxyType({**_COMMON, "rows": "normal", "signal": 1.0, "labels": (0, 1), **_STORED}),
                "classes",
                lookalikes.skewed_logit,
                _judge_skewed_logit,
            ),
            Problem(
                "covertype-like",
                "two classes: a table like Covertype, 10 numbers and one-hot blocks of 4 and 40, rows of norm 1",
                MappingProxyType({**_COMMON, "d": 54, "signal": 6.0, "n_nonzero": 0, "labels": (0, 1), **_STORED}),
                "classes",
                lookalikes.covertype_like,
                _judge_table,
            ),
            Problem(
                "ijcnn-like",
                "two classes, 9.7 % positive: a table like IJCNN, a one-hot block and a series, rows of norm 1",
                MappingProxyType({**_COMMON, "d": 22, "signal": 6.0, "labels": (0, 1), **_STORED}),
                "classes",
                lookalikes.ijcnn_like,
                _judge_table,
            ),
            Problem(
                "adult-like",
                "two classes, 24 % positive: a table like Adult, 6 numbers (two heavy-tailed) and 100 levels",
                MappingProxyType({**_COMMON, "n": 30_000, "d": 106, "signal": 3.0, "labels": (0, 1), **_STORED}),
                "classes",
                lookalikes.adult_like,
                _judge_table,
            ),
            Problem(
                "adult-like-income",
                "regression on the table of adult-like: y = <x, truth> + e, e log-normal",
                MappingProxyType({**_COMMON, "n": 30_000, "d": 106, "signal": 3.0, **_STORED}),
                "numbers",
                functools.partial(lookalikes.adult_like, target="number"),
                _judge_linear,
            ),
            *(Problem(*entry) for entry in LOCAL_PROBLEMS),
        )
    }
)
"""Every generator with a known truth, by the name a job uses."""

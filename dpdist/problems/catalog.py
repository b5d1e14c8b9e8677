"""`PROBLEMS`: the generators with a known truth, for examples, tests and simulations, and how models are judged."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import log_expit, log_softmax

from dpdist.losses import Logistic
from dpdist.problems import linear_problems as synthetic
from dpdist.problems import lookalikes
from dpdist.problems import sparse_problems as sparse
from dpdist.problems.catalog_local import LOCAL_PROBLEMS
from dpdist.problems.generated import Keys, Problem, loss_of
from dpdist.problems.mean_problems import heavy_columns
from dpdist.problems.metrics import Array, Distance, Excess, LogLoss, MeanDistance, WrongClass, Yardstick


def _classes(X: Array, log_probabilities: Array, labels: list[Any]) -> Callable[[Any], Yardstick]:
    def choose(model: Any) -> Yardstick:
        logistic = hasattr(model, "predict_log_proba") or isinstance(loss_of(model), Logistic)
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
                heavy_columns,
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

"""How far predictions are from a known truth: the errors of `dpdist.problems.catalog`."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import sklearn.linear_model
from numpy.typing import NDArray
from scipy.special import log_expit

Array = NDArray[Any]


class Yardstick(Protocol):
    """Errors of predictions against the known truth, on fresh rows."""

    def error(self, model: Any) -> float:
        """Of a fitted model."""
        ...

    def trivial(self) -> float:
        """Of predicting nothing."""
        ...

    def reference(self, X: Array, y: Any) -> Any:
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
class MeanDistance:
    """Means of columns: distance from the truth."""

    truth: Array

    what = "Euclidean distance to the true means"

    def error(self, model: Any) -> float:
        return float(np.linalg.norm(model.mean_ - self.truth))

    def trivial(self) -> float:
        return float(np.linalg.norm(self.truth))

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(mean_=X.mean(axis=0))


@dataclass(frozen=True)
class Distance:
    """Regression with heavy tails, where few rows decide any mean: distance of the coefficients from the truth."""

    truth: Array

    what = "distance of the coefficients from the truth (l2 norm)"

    def error(self, model: Any) -> float:
        return float(np.linalg.norm(np.ravel(model.coef_) - self.truth))

    def trivial(self) -> float:
        return float(np.linalg.norm(self.truth))

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LinearRegression(fit_intercept=False).fit(X, y)


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


def _log_probabilities(model: Any, X: Array, labels: Array) -> Array:
    """One column per label, in the order of ``labels``."""
    if not hasattr(model, "predict_log_proba"):
        u = np.ravel(model.decision_function(X))  # signs: the labels are -1 and +1, in this order or the other
        columns = {-1: log_expit(-u), 1: log_expit(u)}
        return np.column_stack([columns[int(label)] for label in labels])
    predicted = model.predict_log_proba(X)
    return predicted[:, [list(model.classes_).index(label) for label in labels]]

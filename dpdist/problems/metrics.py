"""How far answers are from a known truth: one class per metric, each for one kind of answer."""

from __future__ import annotations

import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import sklearn  # its modules on first use: they take as long to import as all of this
from numpy.typing import NDArray
from scipy.special import log_expit

from dpdist.estimators.answer_kinds import Answer

Array = NDArray[Any]
Parameters = Mapping[str, Any]
Law = Callable[[Array, Array, Parameters], Array]
"""From rows, truth and the generator's parameters to what is known of the rows' labels."""
MOST_KERNEL_ROWS = 1000
TOP = 10


@dataclass(frozen=True)
class World:
    """What is known of generated data.

    Attributes
    ----------
    truth : array
        As the generator returned it.
    parameters : mapping
        Of the generator.
    labels : list or None
        The classes, if labels are classes.
    """

    truth: Array
    parameters: Parameters
    labels: list[Any] | None
    _draw: Callable[[], Array] = field(repr=False)
    _law: Law | None = field(repr=False)

    @functools.cached_property
    def X(self) -> Array:
        """Fresh rows."""
        return self._draw()

    @functools.cached_property
    def law(self) -> Array:
        """Of the labels of the fresh rows: their means, or the logarithms of the probabilities of the classes."""
        assert self._law is not None, "the problem says nothing of its labels"
        return self._law(self.X, self.truth, self.parameters)


class Metric(ABC):
    """Errors of models that are fitted to one dataset."""

    what: ClassVar[str]
    """What the errors measure."""

    @abstractmethod
    def error(self, model: Any) -> float:
        """Of a fitted model."""

    @abstractmethod
    def trivial(self) -> float:
        """Of ignoring the data."""

    @abstractmethod
    def nonprivate(self, X: Array, y: Any) -> float:
        """Of a fit without privacy to these rows."""


@dataclass(frozen=True)
class TruthMetric(Metric):
    """Compares the answer of a model, and that of a plain fit, with the truth."""

    world: World

    answer: ClassVar[Answer]
    """The kind of answer that is judged."""

    @abstractmethod
    def reference(self, X: Array, y: Any) -> Any:
        """A model that is fitted without privacy."""

    def nonprivate(self, X: Array, y: Any) -> float:
        return self.error(self.reference(X, y))


class Distance(TruthMetric):
    """Distance of the answer, an array, from the truth."""

    def error(self, model: Any) -> float:
        return float(np.linalg.norm(np.ravel(getattr(model, self.answer.attribute)) - self.world.truth))

    def trivial(self) -> float:
        return float(np.linalg.norm(self.world.truth))


class MeanDistance(Distance):
    """Means of columns."""

    answer = Answer.MEANS
    what = "Euclidean distance to the true means"

    def reference(self, X: Array, y: Any) -> Any:
        return SimpleNamespace(mean_=X.mean(axis=0))


class FrequencyDistance(Distance):
    """Frequencies of categories."""

    answer = Answer.FREQUENCIES
    what = "Euclidean distance to the true frequencies"

    def trivial(self) -> float:
        return float(np.linalg.norm(1 / len(self.world.truth) - self.world.truth))

    def reference(self, X: Array, y: Any) -> Any:
        counts = np.bincount(X.ravel().astype(np.int64), minlength=len(self.world.truth))
        return SimpleNamespace(frequencies_=counts / len(X))


class CoefficientDistance(Distance):
    """Regression, where few rows decide any mean (heavy tails) or the coefficients themselves are wanted."""

    answer = Answer.COEFFICIENTS
    what = "distance of the coefficients from the truth (l2 norm)"

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LinearRegression(fit_intercept=False).fit(X, self.straightened(y))

    def straightened(self, y: Array) -> Array:
        """Labels that are linear in the features, but for noise."""
        return y


class Missed(TruthMetric):
    """Frequent codes: how much of the ten most frequent was not found."""

    answer = Answer.CODES
    what = f"share of the {TOP} most frequent codes (by frequency) that was not found"

    def error(self, model: Any) -> float:
        codes, frequencies = self.world.truth[:, :TOP]
        found = np.isin(codes, np.asarray(model.found_, dtype=np.float64))
        return float(1 - frequencies[found].sum() / frequencies.sum())

    def trivial(self) -> float:
        return 1.0

    def reference(self, X: Array, y: Any) -> Any:
        seen, counts = np.unique(X, return_counts=True)
        return SimpleNamespace(found_=seen[np.argsort(-counts)[:TOP]])


class Excess(TruthMetric):
    """Regression: mean of half the squared distance between predictions and the true mean of ``y``."""

    answer = Answer.NUMBERS
    what = "excess squared loss (half the squared distance to the true mean), on fresh rows"

    def error(self, model: Any) -> float:
        return float(np.mean((np.ravel(model.predict(self.world.X)) - self.world.law) ** 2) / 2)

    def trivial(self) -> float:
        return float(np.mean(self.world.law**2) / 2)

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LinearRegression().fit(X, y)


class SmoothExcess(Excess):
    """The same where nothing linear is near the truth."""

    def reference(self, X: Array, y: Array) -> Any:
        few = slice(MOST_KERNEL_ROWS)
        return sklearn.kernel_ridge.KernelRidge(kernel="rbf", gamma=1.0, alpha=0.1).fit(X[few], y[few])


class ClassMetric(TruthMetric):
    """Classification with known probabilities of the classes at every fresh row."""

    def reference(self, X: Array, y: Array) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "did not converge" is of no interest to who asked for a private model
            return sklearn.linear_model.LogisticRegression(max_iter=1000).fit(X, y)

    @property
    def _labels(self) -> Array:
        return np.asarray(self.world.labels)


class LogLoss(ClassMetric):
    """Mean Kullback-Leibler divergence of predicted from true probabilities, which is the excess log-loss."""

    answer = Answer.PROBABILITIES
    what = "excess log-loss over the true probabilities, on fresh rows"

    def error(self, model: Any) -> float:
        predicted = model.predict_log_proba(self.world.X)
        return self._divergence(predicted[:, [list(model.classes_).index(label) for label in self._labels]])

    def trivial(self) -> float:
        return self._divergence(np.full_like(self.world.law, -math.log(len(self._labels))))

    def _divergence(self, predicted: Array) -> float:
        p = np.exp(self.world.law)
        return float(np.mean(np.sum(p * (self.world.law - predicted), axis=1)))


class LogOddsLoss(LogLoss):
    """The same for models of the labels -1 and +1, in this order or the other."""

    answer = Answer.LOG_ODDS

    def error(self, model: Any) -> float:
        u = np.ravel(model.decision_function(self.world.X))
        return self._divergence(log_expit(np.outer(u, self._labels)))

    def nonprivate(self, X: Array, y: Array) -> float:
        return LogLoss(self.world).nonprivate(X, y)


class WrongClass(ClassMetric):
    """Probability of a wrong label minus that of the best possible rule: for models without probabilities."""

    answer = Answer.CLASSES
    what = "excess probability of a wrong class over the best possible rule, on fresh rows"

    def error(self, model: Any) -> float:
        position = np.argsort(self._labels)
        return self._excess(position[np.searchsorted(self._labels, model.predict(self.world.X), sorter=position)])

    def trivial(self) -> float:
        return self._excess(np.zeros(len(self.world.X), dtype=int))

    def _excess(self, chosen: Array) -> float:
        p = np.exp(self.world.law)
        return float(np.mean(p.max(axis=1) - p[np.arange(len(p)), chosen]))


CLASS_METRICS = (LogLoss, LogOddsLoss, WrongClass)
"""The log-loss where there are probabilities, else wrong classes."""
REGRESSION_METRICS = (Excess, CoefficientDistance)
"""The excess of predictions; and how far the coefficients are from the truth."""

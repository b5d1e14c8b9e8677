"""How far what users reported is from a known truth: yardsticks of problems for the local model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import sklearn.kernel_ridge
import sklearn.linear_model

from dpdist.problems.metrics import Array

MOST_KERNEL_ROWS = 1000
TOP = 10


@dataclass(frozen=True)
class Frequencies:
    """Frequencies of categories: distance from the truth."""

    truth: Array

    what = "Euclidean distance to the true frequencies"

    def error(self, model: Any) -> float:
        return float(np.linalg.norm(model.frequencies_ - self.truth))

    def trivial(self) -> float:
        return float(np.linalg.norm(1 / len(self.truth) - self.truth))

    def reference(self, X: Array, y: Any) -> Any:
        counts = np.bincount(X.ravel().astype(np.int64), minlength=len(self.truth))
        return SimpleNamespace(frequencies_=counts / len(X))


@dataclass(frozen=True)
class Missed:
    """Frequent codes: how much of the ten most frequent was not found."""

    truth: Array

    what = f"share of the {TOP} most frequent codes (by frequency) that was not found"

    def error(self, model: Any) -> float:
        found = np.isin(self.truth[0, :TOP], np.asarray(model.found_, dtype=np.float64))
        return float(1 - self.truth[1, :TOP][found].sum() / self.truth[1, :TOP].sum())

    def trivial(self) -> float:
        return 1.0

    def reference(self, X: Array, y: Any) -> Any:
        seen, counts = np.unique(X, return_counts=True)
        return SimpleNamespace(found_=seen[np.argsort(-counts)[:TOP]])


@dataclass(frozen=True)
class LinkedDistance:
    """Regression through an increasing function: distance of the coefficients from the truth."""

    truth: Array
    invert: Callable[[Array], Array]

    what = "distance of the coefficients from the truth (l2 norm)"

    def error(self, model: Any) -> float:
        return float(np.linalg.norm(np.ravel(model.coef_) - self.truth))

    def trivial(self) -> float:
        return float(np.linalg.norm(self.truth))

    def reference(self, X: Array, y: Array) -> Any:
        return sklearn.linear_model.LinearRegression(fit_intercept=False).fit(X, self.invert(y))


@dataclass(frozen=True)
class Function:
    """Regression of any form: mean of half the squared distance between predictions and the true mean of ``y``."""

    X: Array
    means: Array

    what = "excess squared loss (half the squared distance to the true mean), on fresh rows"

    def error(self, model: Any) -> float:
        return float(np.mean((np.ravel(model.predict(self.X)) - self.means) ** 2) / 2)

    def trivial(self) -> float:
        return float(np.mean(self.means**2) / 2)

    def reference(self, X: Array, y: Array) -> Any:
        few = slice(MOST_KERNEL_ROWS)
        return sklearn.kernel_ridge.KernelRidge(kernel="rbf", gamma=1.0, alpha=0.1).fit(X[few], y[few])

"""How good a fitted model is, and how good it was along its run: the metrics of figures.

- ``error``: that of the generated problem (`dpdist.problems.generated`), on fresh rows.
- ``gap``: the objective on the training rows (mean loss plus penalty) minus its minimum over the constraint.
- ``distance``: l2 distance of the coefficients to the truth.

Each stands beside two others: what the metric is without privacy on the same rows (0 for the gap, by definition), and
with all coefficients 0. Generated data only: the numbers are not private.

A run's released iterates are public, and so are means of them. Where a method returns the mean of the last half of its
iterates, the error after k rounds is that of the mean of the last half of the first k, which is what it would return.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.constraints import proximal
from dpdist.errors import DataError
from dpdist.jobs.planning import passes
from dpdist.problems.generated import Generated
from dpdist.problems.metrics import Distance, Excess

Vector = NDArray[np.float64]
MOST_POINTS = 40
"""Of a run: between them a curve is interpolated."""
_TOLERANCE = 1e-12
_MOST_ITERATIONS = 20_000


@dataclass(frozen=True)
class Ruler:
    """A metric on one dataset: ``of`` a fitted model, without privacy, and with all coefficients 0."""

    of: Callable[[Any], float]
    nonprivate: float
    trivial: float
    what: str


def ruler(metric: str, generated: Generated, model: Any) -> Ruler:
    """The metric for models such as ``model``, which has to be fitted."""
    return {"error": _error, "gap": _gap, "distance": _distance}[metric](generated, model)


def kind(metric: str, generated: Generated, model: Any) -> str:
    """Two models of one kind are measured by one ruler."""
    if metric == "gap":
        return repr((model._loss(), model._penalty(), model.constraint, model.fit_intercept))
    return type(generated.yardstick(model)).__name__


def along(model: Any) -> list[tuple[float, int, Any]]:
    """Passes, rounds and a model for some of the released iterates, evenly spaced; the last one is the model itself.

    Methods without a history, or whose releases cannot be matched to it, have the last one only. Needs a model without
    intercept and with one binary problem.
    """
    names = [release.name for release in model.releases_]
    end = passes(model.plan_, names), int(getattr(model, "n_iter_", len(names))), model
    history = [np.asarray(w, dtype=np.float64) for w in getattr(model, "history_", [])]
    counts = Counter(names)
    asked = [name for name in counts if counts[name] == len(history)]
    name = next((usual for usual in ("gradient", "snapshot") if usual in asked), asked[-1] if asked else None)
    if name is None or any(w.size != np.size(model.coef_) for w in history):
        return [end]
    before = [index for index, each in enumerate(names) if each == name]
    chosen = np.unique(np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).round().astype(int))
    points = []
    for k in chosen.tolist():
        w = np.mean(history[math.ceil(k / 2) : k + 1], axis=0) if _is_averaged(model) else history[k]
        earlier = copy.copy(model)
        earlier.coef_ = w.reshape(np.shape(model.coef_))
        points.append((passes(model.plan_, names[: before[k]]), k, earlier))
    return [*points, end]


def _is_averaged(model: Any) -> bool:
    combine, rows = getattr(getattr(model, "solver", None), "combine", "auto"), getattr(model, "rows", "all")
    return combine == "tail-average" or (combine == "auto" and getattr(rows, "name", rows) == "sample")


def _error(generated: Generated, model: Any) -> Ruler:
    yardstick = generated.yardstick(model)
    reference, trivial = generated.reference(yardstick), yardstick.trivial()
    nonprivate = trivial if reference is None else yardstick.error(reference)
    return Ruler(lambda other: generated.yardstick(other).error(other), nonprivate, trivial, yardstick.what)


def _distance(generated: Generated, model: Any) -> Ruler:
    yardstick = generated.yardstick(model)
    if not isinstance(yardstick, Excess | Distance):
        raise DataError("metric: distance is for regressions; take error or gap where the labels are classes")

    def distance(other: Any) -> float:
        return float(np.linalg.norm(np.ravel(other.coef_) - generated.truth))

    reference = generated.reference(yardstick)
    return Ruler(distance, distance(reference), float(np.linalg.norm(generated.truth)), "l2 distance to the truth")


def _gap(generated: Generated, model: Any) -> Ruler:
    if not hasattr(model, "_penalty") or (np.ndim(model.coef_) == 2 and len(model.coef_) > 1):
        raise DataError("metric: gap needs a method that minimises one objective; take error")
    rows = generated.dataset.read(0, generated.dataset.n_rows)
    X, loss, penalty = np.asarray(rows["X"], dtype=np.float64), model._loss(), model._penalty()
    y = np.asarray(rows["y"], dtype=np.float64)
    if hasattr(model, "classes_"):
        y = np.where(rows["y"] == model.classes_[1], 1.0, -1.0)

    def objective(w: Vector) -> float:
        return float(np.mean(loss.value(X @ w, y))) + (penalty.value(w) if penalty is not None else 0.0)

    best = minimise(X, y, loss, proximal(penalty, model.constraint, X.shape[1]))
    least = objective(best)
    trivial = objective(np.zeros(X.shape[1])) - least
    what = "objective on the training rows minus its minimum"
    # below the accuracy of the minimum a gap means nothing
    return Ruler(lambda other: max(objective(np.ravel(other.coef_)) - least, 1e-12), 0.0, trivial, what)


def minimise(X: Vector, y: Vector, loss: Any, prox: Callable[[Vector, float], Vector]) -> Vector:
    """The minimiser of mean loss plus what ``prox`` stands for, without privacy: accelerated steps with restarts.

    Stops when a step moves by less than 1e-12 of the size of the point (O'Donoghue and Candes 2015).

    Examples
    --------
    >>> from dpdist.losses import by_name
    >>> X, loss = np.eye(2), by_name("squared")
    >>> minimise(X, np.array([1.0, -2.0]), loss, lambda v, step: v).round(9)
    array([ 1., -2.])
    """
    n, d = X.shape
    v: Vector = np.random.default_rng(0).standard_normal((d,))
    for _ in range(50):  # the largest eigenvalue, from below; hence the 1.1
        v = X.T @ (X @ v)
        v = v / (np.linalg.norm(v) or 1.0)
    steep = 1.1 * loss.curvature_bound * float(np.sum((X @ v) ** 2)) / n
    step = 1 / steep if 0 < steep < math.inf else 1.0
    x: Vector = np.zeros(d)
    z, t = x, 1.0
    for _ in range(_MOST_ITERATIONS):
        following = prox(z - step * (X.T @ loss.derivative(X @ z, y)) / n, step)
        if (z - following) @ (following - x) > 0:
            t = 1.0
        before, t = t, (1 + math.sqrt(1 + 4 * t * t)) / 2
        z = following + (before - 1) / t * (following - x)
        moved, x = float(np.linalg.norm(following - x)), following
        if moved <= _TOLERANCE * max(1.0, float(np.linalg.norm(x))):
            break
    return x

"""How good a fitted model is, and how good it was along its run: the metrics of figures.

- ``error``: that of the generated problem, for every kind of answer (`dpdist.problems.metrics`).
- ``distance``: that of the answer from the truth, where the answer is an array: in the l2 norm, of abilities the
  largest.
- ``gap``: the objective on the training rows (mean loss plus penalty) minus its minimum over the constraint; for hard
  thresholding minus the least value that is found with as many coefficients, which no efficient search is sure of.
- ``gradient``: the length of the projected gradient of that objective, by the true gradient: how far a point is from a
  stationary one, where the loss is not convex.
- ``speed``: rows of all users per second of a fit.

Each stands beside two others: what the metric is without privacy on the same rows (0 for the gap and the gradient), and
for the trivial answer, that is with all coefficients 0. Generated and public data only: the numbers are not private.

A run's released iterates are public, and so are means of them. Where a method returns the mean of the last half of its
iterates, the error after k rounds is that of the mean of the last half of the first k, which is what it would return.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.central.linear.hard_threshold import HardThresholding
from dpdist.central.linear.linear_method import Problem
from dpdist.central.linear.minimizer import Minimizer
from dpdist.constraints import proximal
from dpdist.errors import DataError
from dpdist.figures.real_data import held_out
from dpdist.jobs.job import Job, make_estimator
from dpdist.jobs.planning import passes
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.metrics import Metric
from dpdist.problems.problem import Generated

Vector = NDArray[np.float64]
MOST_POINTS = 40
"""Of a run: between them a curve is interpolated."""
OBJECTIVES = ("gap", "gradient")
"""Metrics of an objective on the training rows."""
_TOLERANCE = 1e-12
_ROUGH = 1e-3
"""Of a point that a search only begins at."""
_MOST_ITERATIONS = 20_000
_SAME_SUPPORT = 200
"""Steps after which the entries that hard thresholding keeps are taken for its choice."""


def check(metric: str, job: Job, *, real: bool = False) -> None:
    """Refuse a job whose answers the metric cannot measure; ``real``: on data whose truth nobody knows."""
    model = make_estimator(job)
    if metric in OBJECTIVES:
        _minimised(model)
    elif metric != "speed":
        name, problem = f"{job.method.id} ({job.estimator})", PROBLEMS[job.data["generate"]]
        (held_out(problem) if real else problem).metric(model.answers, name, distance=metric == "distance")


def metric_of(metric: str, generated: Generated, model: Any) -> Metric:
    """The metric for models such as ``model``, which has to be fitted."""
    if metric not in OBJECTIVES:
        return generated.metric(model, distance=metric == "distance")
    if metric == "gradient":
        return ProjectedGradient(generated, model)
    sparse = _stated(generated, _minimised(model))[1] is not None
    return SparseGap(generated, model) if sparse else Gap(generated, model)


def kind(metric: str, generated: Generated, model: Any) -> str:
    """Two models of one kind are measured alike."""
    if metric in OBJECTIVES:
        problem, n_kept = _stated(generated, model)
        return repr((problem.loss, problem.penalty, problem.constraint, model.fit_intercept, n_kept))
    return type(generated.metric(model)).__name__


def along(model: Any) -> list[tuple[float, int, Any]]:
    """Passes, rounds and a model for some of the released iterates, evenly spaced; the last one is the model itself.

    Methods without a history or coefficients, or whose releases cannot be matched to it, have the last one only. Needs
    a model without intercept and with one binary problem.
    """
    names = [release.name for release in model.releases_]
    end = passes(model.plan_, names), int(getattr(model, "n_iter_", len(names))), model
    history = [np.asarray(w, dtype=np.float64) for w in getattr(model, "history_", [])]
    counts = Counter(names)
    asked = [name for name in counts if counts[name] == len(history)]
    name = next((usual for usual in ("gradient", "snapshot") if usual in asked), asked[-1] if asked else None)
    if name is None or any(w.size != np.size(getattr(model, "coef_", ())) for w in history):
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


def _minimised(model: Any) -> Minimizer:
    """A model that minimises one objective."""
    if not isinstance(model, Minimizer) or len(model.get_params().get("classes") or ()) > 2:
        raise DataError("metric: gap needs a method that minimises one objective; take error")
    return model


def _stated(generated: Generated, model: Minimizer) -> tuple[Problem, int | None]:
    """What a fit of the model would minimise, with the penalty that its solver takes by default, and over how many
    coefficients that are not 0 (None: over all)."""
    n_rows, n_features = generated.dataset.arrays["X"].shape
    method = model._method_for(n_rows, n_features)
    return method.statement, method.n_kept if isinstance(method, HardThresholding) else None


class _OnRows(Metric):
    """Of the objective of a model, which it shares with others of its `kind`, on the training rows."""

    def __init__(self, generated: Generated, model: Any) -> None:
        model = _minimised(model)
        rows = generated.dataset.read(0, generated.dataset.n_rows)
        stated, self._n_kept = _stated(generated, model)
        self._X, self._loss, self._penalty = np.asarray(rows["X"], dtype=np.float64), stated.loss, stated.penalty
        y, classes = rows["y"], model.get_params().get("classes")
        self._y = np.asarray(y if classes is None else np.where(y == classes[1], 1, -1), dtype=np.float64)
        self._smooth = stated.smooth_penalty
        self._prox = proximal(stated.proximal_penalty, model.constraint, self._X.shape[1])

    def nonprivate(self, X: Vector, y: Any) -> float:
        return 0.0


class ProjectedGradient(_OnRows):
    """``(w - prox(w - s g, s)) / s`` with the true gradient g and s one over the smoothness: 0 at stationary points."""

    what = "length of the projected gradient of the objective on the training rows"

    def error(self, model: Any) -> float:
        return self._length(np.ravel(model.coef_))

    def trivial(self) -> float:
        return self._length(np.zeros(self._X.shape[1]))

    def _length(self, w: Vector) -> float:
        g = self._X.T @ self._loss.derivative(self._X @ w, self._y) / len(self._X)
        step = _step(self._X, self._loss)
        if self._smooth is not None:
            g = g + self._smooth.gradient(w)
        return float(np.linalg.norm(w - self._prox(w - step * g, step))) / step


class Gap(_OnRows):
    """That objective minus its minimum without privacy."""

    what = "objective on the training rows minus its minimum"

    def __init__(self, generated: Generated, model: Any) -> None:
        super().__init__(generated, model)
        n_kept, prox = self._n_kept, self._prox
        best = minimise(self._X, self._y, self._loss, prox, _TOLERANCE if n_kept is None else _ROUGH)
        if n_kept is not None:
            best = sparse_minimum(self._X, self._y, self._loss, prox, n_kept, best, self._objective)
        self._least = self._objective(best)

    def error(self, model: Any) -> float:
        # below the accuracy of the minimum, or below the best that was found, a gap means nothing
        return max(self._objective(np.ravel(model.coef_)) - self._least, 1e-12)

    def trivial(self) -> float:
        return self._objective(np.zeros(self._X.shape[1])) - self._least

    def _objective(self, w: Vector) -> float:
        penalty = self._penalty.value(w) if self._penalty is not None else 0.0
        return float(np.mean(self._loss.value(self._X @ w, self._y))) + penalty


class SparseGap(Gap):
    """The same for hard thresholding."""

    what = "objective on the training rows minus the least that is found with as many coefficients"


def minimise(
    X: Vector, y: Vector, loss: Any, prox: Callable[[Vector, float], Vector], tolerance: float = _TOLERANCE
) -> Vector:
    """The minimiser of mean loss plus what ``prox`` stands for, without privacy: accelerated steps with restarts.

    Stops when a step moves by less than the tolerance, relative to the size of the point (O'Donoghue and Candes 2015).

    Examples
    --------
    >>> from dpdist.losses import by_name
    >>> X, loss = np.eye(2), by_name("squared")
    >>> minimise(X, np.array([1.0, -2.0]), loss, lambda v, step: v).round(9)
    array([ 1., -2.])
    """
    n, d = X.shape
    step = _step(X, loss)
    x: Vector = np.zeros(d)
    z, t = x, 1.0
    for _ in range(_MOST_ITERATIONS):
        following = prox(z - step * (X.T @ loss.derivative(X @ z, y)) / n, step)
        if (z - following) @ (following - x) > 0:
            t = 1.0
        before, t = t, (1 + math.sqrt(1 + 4 * t * t)) / 2
        z = following + (before - 1) / t * (following - x)
        moved, x = float(np.linalg.norm(following - x)), following
        if moved <= tolerance * max(1.0, float(np.linalg.norm(x))):
            break
    return x


def sparse_minimum(
    X: Vector,
    y: Vector,
    loss: Any,
    prox: Callable[[Vector, float], Vector],
    n_nonzero: int,
    dense: Vector,
    objective: Callable[[Vector], float],
) -> Vector:
    """The least objective that is found over vectors of ``n_nonzero`` entries, without privacy.

    Gradient steps after which the largest entries are kept, from 0 and from the largest entries of ``dense``, until
    the chosen ones stay the same for many steps; then the minimum over those that were chosen.

    Examples
    --------
    >>> from dpdist.losses import by_name
    >>> X, y, loss = np.eye(3), np.array([1.0, -2.0, 0.1]), by_name("squared")
    >>> def objective(w):
    ...     return float(np.sum((w - y) ** 2))
    >>> sparse_minimum(X, y, loss, lambda v, step: v, 2, np.zeros(3), objective).round(9)
    array([ 1., -2.,  0.])
    """
    n, d = X.shape
    step, found, columns = _step(X, loss), [], np.asfortranarray(X)
    for w in (np.zeros(d), _largest(dense, n_nonzero)):
        same = 0
        for _ in range(_MOST_ITERATIONS):
            before, kept = w, np.flatnonzero(w)
            slopes = loss.derivative(columns[:, kept] @ w[kept], y)
            w = _largest(prox(w - step * (X.T @ slopes) / n, step), n_nonzero)
            same = same + 1 if np.array_equal(w != 0, before != 0) else 0
            if same >= _SAME_SUPPORT or np.array_equal(w, before):
                break
        chosen = np.flatnonzero(w)
        full: Vector = np.zeros(d)
        if len(chosen):

            def restricted(v: Vector, size: float, chosen: Any = chosen) -> Vector:
                wide: Vector = np.zeros(d)
                wide[chosen] = v
                return prox(wide, size)[chosen]

            full[chosen] = minimise(X[:, chosen], y, loss, restricted)
        found.append(full)
    return min(found, key=objective)


def _largest(w: Vector, n_nonzero: int) -> Vector:
    kept: Vector = np.zeros_like(w)
    chosen = np.argpartition(-np.abs(w), n_nonzero - 1)[:n_nonzero]
    kept[chosen] = w[chosen]
    return kept


def _step(X: Vector, loss: Any) -> float:
    """One over the smoothness of the mean loss."""
    n, d = X.shape
    v: Vector = np.random.default_rng(0).standard_normal((d,))
    for _ in range(50):  # the largest eigenvalue, from below; hence the 1.1
        v = X.T @ (X @ v)
        v = v / (np.linalg.norm(v) or 1.0)
    steep = 1.1 * loss.curvature_bound * float(np.sum((X @ v) ** 2)) / n
    return 1 / steep if 0 < steep < math.inf else 1.0

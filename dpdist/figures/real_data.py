"""Public tables in place of the generated rows that stand in for them.

Only tables that are public already: what a figure shows of them is not private. So a dataset that a ledger limits is
refused. Seed k takes its own random rows, and the first features; a problem of classes gets its two labels. Nobody
knows the truth, so the ``error`` is that on rows which were held out, and the ``gap`` needs no truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dpdist.data import Dataset
from dpdist.engine.memory import noted_head
from dpdist.errors import DataError
from dpdist.figures.figure import Real
from dpdist.jobs.job import Job
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.metrics import Array, Excess, LogLoss, LogOddsLoss, Parameters, TruthMetric, World, WrongClass
from dpdist.problems.problem import Generated, Problem

HELD_OUT = 0.1
"""Share of the rows that errors are measured on."""
_BLOCK = 10_000
_NEVER = -700.0
"""Logarithm of the probability of a label that was not the one; its exponential is not 0."""


class HeldOutLogLoss(LogLoss):
    """Of probabilities."""

    what: ClassVar[str] = "log-loss on rows held out"


class HeldOutLogOddsLoss(LogOddsLoss):
    """The same for models of the labels -1 and +1."""

    what: ClassVar[str] = "log-loss on rows held out"


class HeldOutWrongClass(WrongClass):
    """Of classes."""

    what: ClassVar[str] = "share of wrong classes on rows held out"


class HeldOutSquares(Excess):
    """Of predicted numbers."""

    what: ClassVar[str] = "half the mean squared error on rows held out"


_METRICS: dict[type[TruthMetric], type[TruthMetric]] = {
    LogLoss: HeldOutLogLoss,
    LogOddsLoss: HeldOutLogOddsLoss,
    WrongClass: HeldOutWrongClass,
    Excess: HeldOutSquares,
}


def held_out(problem: Problem) -> Problem:
    """The same problem, judged by rows that were held out."""
    return replace(problem, metrics=tuple(_METRICS[metric] for metric in problem.metrics if metric in _METRICS))


def table(job: Job, path: str, real: Real | None, metric: str) -> Generated:
    """As many rows and features of a stored table as a job asks for, or all there are, as if they were generated.

    Raises
    ------
    DataError
        Says where the table is to be had, and what stands in for it.
    """
    name = job.data["generate"]
    problem = held_out(PROBLEMS[name])
    values = problem.resolve(job.data)
    try:
        dataset = Dataset.open(path)
        missing = {"X", "y"} - set(dataset.arrays)
        if missing:
            raise DataError(f"{path} has no array {min(missing)!r}")
        if noted_head(dataset) is not None:
            raise DataError(
                f"a ledger limits what may be told about {path}, and a figure shows errors without privacy: only "
                "tables that are public already may be taken"
            )
        n_held = 0 if metric == "gap" else max(1, round(HELD_OUT * dataset.n_rows))
        d = min(values["d"], dataset.arrays["X"].shape[1])
        n = min(values["n"], dataset.n_rows - n_held)
        order = np.random.default_rng(values["random_state"]).permutation(dataset.n_rows)[: n + n_held]
        X, y = _rows(dataset, order, d)
        y = _labels(y, problem._labels(values), path)
    except DataError as error:
        get = f" {real.name}: {real.get}." if real is not None else ""
        raise DataError(
            f"data.path: {str(error).rstrip('.')}.{get} Without data.path, {name} stands in for it"
        ) from None
    if real is not None and real.unit_rows:
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    world = World(np.zeros(d), values, problem._labels(values), lambda: X[n:], _observed(y[n:]))
    mine = Dataset.from_arrays(X=X[:n], y=y[:n], row_order="permuted", dataset_id=f"rows-{values['random_state']}")
    return Generated(problem, mine, world)


def _rows(dataset: Dataset, order: Array, d: int) -> tuple[Array, Array]:
    """The rows at these places, in this order."""
    X, labels = np.empty((len(order), d)), np.empty(len(order), dtype=object)
    at, place = np.sort(order), np.argsort(order)
    for start in range(0, dataset.n_rows, _BLOCK):
        stop = min(start + _BLOCK, dataset.n_rows)
        low, high = np.searchsorted(at, [start, stop])
        if low < high:
            rows = dataset.read(start, stop)
            chosen = at[low:high] - start
            X[place[low:high]] = rows["X"][chosen, :d]
            labels[place[low:high]] = rows["y"][chosen]
    return X, labels


def _labels(y: Array, labels: list[Any] | None, path: str) -> Array:
    """Numbers; or the labels of the problem in place of the two that there are, in their order."""
    if labels is None:
        return y.astype(np.float64)
    found = sorted(set(y.tolist()))
    if len(found) != len(labels):
        raise DataError(f"{path} has {len(found)} different labels; expected {len(labels)}")
    chosen: Array = np.asarray(labels)[np.searchsorted(found, y.tolist())]
    return chosen


def _observed(y: Array) -> Any:
    """What is known of the labels of rows that were held out: which they are."""

    def law(X: Array, truth: Array, values: Parameters) -> Array:
        if "labels" not in values:
            return y.astype(np.float64)
        return np.where(y[:, None] == np.asarray(values["labels"]), 0.0, _NEVER)

    return law

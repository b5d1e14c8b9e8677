"""Generated rows for generalised linear models with rows without labels from elsewhere (``public_rows``).

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, Rows, logistic, logistic_law
from dpdist.problems.metrics import CLASS_METRICS, Array, CoefficientDistance
from dpdist.problems.problem import Problem, parameters

NOISE = 0.001
"""Largest of the cubic labels."""


def signs_glm(
    n_rows: int, n_features: int = 10, *, signal: float = 3.0, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Two classes: ``x = +-1/sqrt(p)`` in every column, ``P(y = 1)`` logistic in ``<x, w>``, ``||w|| = signal``.

    Parameters
    ----------
    signal : float
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = signs_glm(1000, 4)
    >>> truth.tolist(), np.unique(data.read(0, 1000)["X"]).tolist()
    ([1.5, 1.5, 1.5, 1.5], [-0.5, 0.5])
    """
    generation = Generation("glm.signs", placing, signal=signal)
    truth = _even(n_features, signal)
    return generation.dataset(n_rows, truth, logistic(truth), rows=_signs(1 / math.sqrt(n_features)))


def cubic(n_rows: int, n_features: int = 10, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """``y = <x, w>^3 / 3`` and a little noise, ``x = +-1/p`` in every column, ``||w|| = 1`` (seed 000, section 5.2.5).

    Parameters
    ----------
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = cubic(1000, 4)
    >>> truth.tolist(), data.read(0, 1000)["y"].shape
    ([0.5, 0.5, 0.5, 0.5], (1000,))
    """
    generation, truth = Generation("glm.cubic", placing), _even(n_features, 1.0)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return np.asarray((X @ truth) ** 3 / 3 + generator.uniform(-NOISE, NOISE, len(X)))

    return generation.dataset(n_rows, truth, labels, "float64", rows=_signs(1 / n_features))


def _even(n_features: int, norm: float) -> np.ndarray:
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    return np.full(n_features, norm / math.sqrt(n_features))


def _signs(size: float) -> Rows:
    return lambda generator, shape: generator.choice([-size, size], shape)


class CubicDistance(CoefficientDistance):
    """Coefficients of labels that are cubes."""

    def straightened(self, y: Array) -> Array:
        return np.cbrt(3 * y)


PROBLEMS = (
    Problem(
        "signs-glm",
        "two classes: every feature is one of two numbers, P(y = 1) logistic in <x, truth>",
        signs_glm,
        parameters(d=10, signal=3.0, labels=(0, 1), public_rows=0),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "cubic",
        "regression: every feature is one of two numbers, y = <x, truth>^3 / 3 + noise",
        cubic,
        parameters(d=10, public_rows=0),
        (CubicDistance,),
    ),
)

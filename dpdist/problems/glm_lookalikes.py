"""Generated tables on which seed 000, section 5.2, is repeated: other laws than those of `dpdist.problems.lookalikes`.

Labels depend on the features almost linearly (`glm_covertype`), or on few of them through their logarithms
(`glm_susy`), so that a linear model is wrong a little, and public rows tell little of the labels. Conventions are those
of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from scipy.special import log_expit

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Labels, Placing
from dpdist.problems.lookalikes import _mark, _table
from dpdist.problems.metrics import CLASS_METRICS
from dpdist.problems.problem import Parameters, Problem, parameters

NUMBERS, LEVELS = 10, (4, 32)
"""Of the table like Covertype: numbers, and levels of the two blocks, whose last ones have no column."""
TWIST = 0.5
"""How much the product of two of its numbers matters."""
SPREAD, LONGER, SHARE = 0.8, 1.45, 0.46
"""Of the table like SUSY: of the logarithms; how much longer three of them are in class 1; its share."""
N_SUSY = 18


def glm_covertype(
    n_rows: int, n_features: int = 44, *, signal: float = 1.25, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """A table like Covertype: 10 correlated numbers, and one-hot blocks of 3 (of 4 levels) and 31 (of 32) columns.

    ``P(y = 1) = sigmoid(<x, truth> + tanh(x_1 x_2) / 2)``: a linear model is a little wrong.

    Parameters
    ----------
    signal : float
        Every number has a weight of this size over ``sqrt(10)`` on average, every level of ``signal``.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`; there are 44 features.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (44,)

    Examples
    --------
    >>> data, truth = glm_covertype(4000)
    >>> rows = data.read(0, 4000)
    >>> bool(0.4 < rows["y"].mean() < 0.6), rows["X"][:, 10:13].sum(axis=1).max()
    (True, np.float64(1.0))
    """
    _check_width("glm-covertype", n_features, NUMBERS + sum(LEVELS) - 2)
    generation = Generation("glm.covertype", placing, signal=signal)
    weights = generation.truth_generator().standard_normal(n_features)
    truth = signal * np.where(np.arange(n_features) < NUMBERS, weights / math.sqrt(NUMBERS), weights)
    numbers = _table(NUMBERS, NUMBERS, 0, (), normalise=False)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        blocks = np.zeros((shape[0], sum(LEVELS)))
        for first, levels in ((0, LEVELS[0]), (LEVELS[0], LEVELS[1])):
            _mark(blocks, first, levels, generator)
        kept = np.delete(blocks, [LEVELS[0] - 1, sum(LEVELS) - 1], axis=1)
        return np.hstack([numbers(generator, (shape[0], NUMBERS)), kept])

    return generation.dataset(n_rows, truth, _drawn(lambda X: _margin(X, truth)), rows=rows)


def _margin(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.asarray(X @ truth + TWIST * np.tanh(X[:, 0] * X[:, 1]))


def glm_susy(n_rows: int, n_features: int = N_SUSY, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """A table like SUSY: 8 positive heavy-tailed numbers, three of them longer in class 1, and 10 functions of them.

    The logarithms of the 8 are normal with standard deviation .8, those of the first three larger by log 1.45 in class
    1, to which 46 % belong.

    Parameters
    ----------
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`; there are 18 features.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (18,)
        What the logarithms of the first three numbers weigh in the log-odds, and zeros.

    Examples
    --------
    >>> data, truth = glm_susy(4000)
    >>> rows = data.read(0, 4000)
    >>> bool(0.43 < rows["y"].mean() < 0.49), rows["X"].shape
    (True, (4000, 18))
    """
    _check_width("glm-susy", n_features, N_SUSY)
    generation = Generation("glm.susy", placing)
    truth = np.where(np.arange(n_features) < 3, math.log(LONGER) / SPREAD**2, 0.0)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        logs = SPREAD * generator.standard_normal((shape[0], 8))
        logs[:, :3] += math.log(LONGER) * (generator.random(shape[0]) < SHARE)[:, None]
        a, b, c, d, e, f, g, h = x = np.exp(logs).T
        made = (
            np.sqrt(a * b), np.log1p(a), np.log1p(b), np.log1p(c), a / (a + d), b / (b + e), np.tanh(c - f),
            np.sqrt(g), np.minimum(a, b), np.maximum(b, c) / (1 + h),
        )  # fmt: skip
        return np.column_stack([*x, *made])

    return generation.dataset(n_rows, truth, _drawn(lambda X: _susy_margin(X, truth)), rows=rows)


def _susy_margin(X: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The logarithm of the odds of class 1: of two normal laws of the logarithms, at equal spread."""
    shift = math.log(LONGER)
    return np.asarray(np.log(X[:, :3] / math.exp(shift / 2)).sum(axis=1) * truth[0] + math.log(SHARE / (1 - SHARE)))


def _drawn(margin: Any) -> Labels:
    return lambda generator, X: generator.random(len(X)) < (1 + np.tanh(margin(X) / 2)) / 2


def _check_width(name: str, n_features: int, there_are: int) -> None:
    if n_features != there_are:
        raise DataError(f"{name} has {there_are} features, got n_features={n_features}")


def _law(margin: Any) -> Any:
    def law(X: np.ndarray, truth: np.ndarray, values: Parameters) -> np.ndarray:
        u = margin(X, truth)
        return np.column_stack([log_expit(-u), log_expit(u)])

    return law


PROBLEMS = (
    Problem(
        "glm-covertype",
        "two classes: 10 correlated numbers and one-hot blocks of 3 and 31, almost logistic",
        glm_covertype,
        parameters(n=400_000, d=44, signal=1.25, labels=(0, 1), public_rows=0),
        CLASS_METRICS,
        _law(_margin),
    ),
    Problem(
        "glm-susy",
        "two classes, 46 % positive: 8 heavy-tailed numbers and 10 functions of them",
        glm_susy,
        parameters(n=400_000, d=N_SUSY, labels=(0, 1), public_rows=0),
        CLASS_METRICS,
        _law(_susy_margin),
    ),
)

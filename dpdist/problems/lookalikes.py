"""Generated tables that look like well-known ones, and classes with skewed noise, for figures and tests.

The published experiments that `pipelines/figures` repeats were made on public tables. These are generated, so that the
truth is known and nothing has to be downloaded: correlated and log-normal numbers, one-hot blocks whose levels follow
Zipf's law, the share of positives of the original. Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from scipy.special import log_expit

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import (
    Generation,
    Placing,
    Rows,
    linear_means,
    logistic,
    logistic_law,
    student,
    unit_rows,
)
from dpdist.problems.metrics import CLASS_METRICS, REGRESSION_METRICS
from dpdist.problems.problem import Parameters, Problem, parameters

_PILOT = 1  # block of the stream of the truth: rows to set the share of positives by


def covertype_like(
    n_rows: int,
    n_features: int = 54,
    *,
    signal: float = 6.0,
    n_nonzero: int = 0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """A table like Covertype: 10 correlated numbers (two log-normal), one-hot blocks of 4 and 40, rows of norm 1.

    ``P(y = 1) = sigmoid(<x, truth>)``, with 49 % positives. Fewer than 54 features leave out the last levels.

    Parameters
    ----------
    signal : float
        The truth has norm ``signal sqrt(d) / 2`` before the share of positives is set by the first one-hot block.
    n_nonzero : int
        If not 0, only so many of the first 14 columns (the numbers and the first block) matter, each with a weight
        between 4 and 8 in size, whatever ``signal`` is; the share of positives is then as it comes.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`. Labels are 0 and 1 (int8).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = covertype_like(4000)
    >>> rows = data.read(0, 4000)
    >>> bool(0.45 < rows["y"].mean() < 0.53), float(np.linalg.norm(rows["X"], axis=1).max().round(6))
    (True, 1.0)
    """
    n_common = min(14, n_features)
    if not 0 <= n_nonzero <= n_common:
        raise DataError(f"n_nonzero must lie between 0 and {n_common}, got {n_nonzero!r}")
    generation = Generation("lookalikes.covertype", placing, n_features=n_features, signal=signal)
    rows = _table(n_features, 10, 2, (4, 40), normalise=True)
    if n_nonzero:
        truth = _some(generation, n_features, n_common, n_nonzero, (4.0, 8.0))
    else:
        truth = _truth(generation, rows, n_features, signal * math.sqrt(n_features) / 2, slice(10, 14), 0.49)
    return generation.dataset(n_rows, truth, logistic(truth), rows=rows)


def ijcnn_like(
    n_rows: int,
    n_features: int = 22,
    *,
    signal: float = 6.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """A table like IJCNN 2001: a one-hot block of 10 and a stationary series of 12 values, rows of norm 1.

    ``P(y = 1) = sigmoid(<x, truth>)``, with 9.7 % positives. Neighbouring values of the series have correlation 0.8.
    Parameters are those of `covertype_like`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    generation = Generation("lookalikes.ijcnn", placing, n_features=n_features, signal=signal)
    n_levels = min(10, n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        X = np.zeros(shape)
        _mark(X, 0, n_levels, generator)
        for j in range(n_levels, shape[1]):
            fresh = generator.standard_normal(shape[0])
            X[:, j] = fresh if j == n_levels else 0.8 * X[:, j - 1] + 0.6 * fresh
        X[:, n_levels:] /= 2  # so that the level keeps a say in the normalised row
        return unit_rows(X)

    truth = _truth(generation, rows, n_features, signal * math.sqrt(n_features) / 2, slice(0, n_levels), 0.097)
    return generation.dataset(n_rows, truth, logistic(truth), rows=rows)


def adult_like(
    n_rows: int,
    n_features: int = 106,
    *,
    target: str = "class",
    signal: float = 3.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """A table like Adult: 6 numbers, of which two are heavy-tailed (log-normal, as capital gains), and 100 levels.

    Rows are not normalised.

    Parameters
    ----------
    target : {"class", "number"}
        ``"class"``: labels 0 and 1 (int8), ``P(y = 1) = sigmoid(<x, truth>)``, 24 % positives. ``"number"``:
        ``<x, truth>`` plus centred log-normal(1, 1) noise.
    signal : float
        Norm of the truth (before the share of positives is set).
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    if target not in ("class", "number"):
        raise DataError(f'target must be "class" or "number", got {target!r}')
    parameters = {"n_features": n_features, "signal": signal, "target": target}
    generation = Generation("lookalikes.adult", placing, **parameters)
    rows = _table(n_features, 6, 2, (9, 16, 7, 14, 6, 5, 2, 41), normalise=False)
    if target == "class":
        truth = _truth(generation, rows, n_features, signal, slice(6, 15), 0.24)
        return generation.dataset(n_rows, truth, logistic(truth), rows=rows)
    truth = generation.directions(1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + _centred_lognormal(generator, len(X))

    return generation.dataset(n_rows, truth, labels, "float64", rows=rows)


def rcv1_like(
    n_rows: int,
    n_features: int = 47_236,
    *,
    n_nonzero: int = 20,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Texts like those of Reuters RCV1: 74 words from Zipf's law, entries ``1 + ln(count)``, rows of norm 1.

    ``P(y = 1) = sigmoid(<x, truth>)``; the truth is +-8 for some of the 200 most frequent words, which are the first
    ones. Rows are written in full, mostly zeros: 47 236 features take 185 kB a row in float32.

    Parameters
    ----------
    n_nonzero : int
        Words that matter.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`. Labels are 0 and 1 (int8).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    n_common = min(200, n_features)
    if not 1 <= n_nonzero <= n_common:
        raise DataError(f"n_nonzero must lie between 1 and {n_common}, got {n_nonzero!r}")
    generation = Generation("lookalikes.rcv1", placing, n_features=n_features, n_nonzero=n_nonzero)
    truth = _some(generation, n_features, n_common, n_nonzero, (8.0, 8.0))
    reach = np.cumsum(1 / np.arange(1, n_features + 1))

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        words = np.searchsorted(reach, generator.random((shape[0], 74)) * reach[-1], side="right")
        words = np.minimum(words, n_features - 1) + n_features * np.arange(shape[0])[:, None]
        place, count = np.unique(words, return_counts=True)
        X = np.zeros(shape)
        X.flat[place] = 1 + np.log(count)
        return unit_rows(X)

    return generation.dataset(n_rows, truth, logistic(truth), rows=rows)


LOG_LOGISTIC = (0.2, 0.2)
"""Location and scale of the logarithm of the noise in `skewed_logit`, which is logistic."""
LOG_LOGISTIC_MEAN = math.exp(LOG_LOGISTIC[0]) * math.pi * LOG_LOGISTIC[1] / math.sin(math.pi * LOG_LOGISTIC[1])


def skewed_logit(
    n_rows: int,
    n_features: int = 10,
    *,
    rows: str = "normal",
    signal: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Two classes by a threshold with skewed noise: y = 1 where ``<x, truth> + e < 0``, e log-logistic minus its mean.

    The design of seed 000, section 3.2.5 (there the classes are the signs of ``1/(1 + exp(<x, truth> + e)) - 1/2``). A
    logistic model does not quite fit it, so that the best one has an excess of its own. Labels are 0 and 1 (int8). The
    regression of that section is `dpdist.problems.linear_problems.heavy`.

    Parameters
    ----------
    rows : {"normal", "student"}
        Entries of x: standard normal, or Student's t with 3 degrees of freedom scaled to unit variance.
    signal : float
        Norm of the truth, whose direction is uniform.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    generation = Generation("lookalikes.skewed_logit", placing, n_features=n_features, signal=signal, rows=rows)
    truth = generation.directions(1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        noise = np.exp(generator.logistic(*LOG_LOGISTIC, len(X))) - LOG_LOGISTIC_MEAN
        return X @ truth + noise < 0

    return generation.dataset(n_rows, truth, labels, rows=_plain(rows))


def _plain(name: str) -> Rows:
    if name not in ("normal", "student"):
        raise DataError(f'rows must be "normal" or "student", got {name!r}')
    return student(3.0) if name == "student" else lambda generator, shape: generator.standard_normal(shape)


def _centred_lognormal(generator: np.random.Generator, count: int) -> np.ndarray:
    return generator.lognormal(1.0, 1.0, count) - math.exp(1.5)


def _mark(X: np.ndarray, first: int, n_levels: int, generator: np.random.Generator) -> None:
    """Mark one of ``n_levels`` columns of each row, the k-th with a chance in proportion to 1/k."""
    reach = np.cumsum(1 / np.arange(1, n_levels + 1))
    level = np.searchsorted(reach, generator.random(len(X)) * reach[-1], side="right")
    X[np.arange(len(X)), first + np.minimum(level, n_levels - 1)] = 1.0


def _table(n_features: int, n_numbers: int, n_lognormal: int, blocks: Sequence[int], normalise: bool) -> Rows:
    """Correlated numbers, the last of them log-normal with unit variance, and one-hot blocks; cut after n_features."""
    n_numbers = min(n_numbers, n_features)
    n_lognormal = min(n_lognormal, n_numbers - 1)
    # the same for every random_state: it belongs to the table, not to its rows
    mix = np.random.Generator(np.random.Philox(n_numbers)).standard_normal((n_numbers, n_numbers)) / math.sqrt(
        n_numbers
    )
    mix = mix / math.sqrt(n_numbers) + np.eye(n_numbers)
    mix /= np.linalg.norm(mix, axis=0)
    spread = math.sqrt((math.e - 1) * math.e)  # standard deviation of exp(z)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        X = np.zeros(shape)
        X[:, :n_numbers] = generator.standard_normal((shape[0], n_numbers)) @ mix
        if n_lognormal:
            heavy = slice(n_numbers - n_lognormal, n_numbers)
            X[:, heavy] = (np.exp(X[:, heavy]) - math.exp(0.5)) / spread
        first = n_numbers
        for n_levels in blocks:
            n_levels = min(n_levels, n_features - first)
            if n_levels:
                _mark(X, first, n_levels, generator)
            first += n_levels
        return unit_rows(X) if normalise else X

    return rows


def _some(
    generation: Generation, n_features: int, n_common: int, n_nonzero: int, size: tuple[float, float]
) -> np.ndarray:
    """Weights of random sign and of a size in that range, for ``n_nonzero`` of the first ``n_common`` features."""
    generator = generation.truth_generator()
    truth = np.zeros(n_features)
    chosen = generator.permutation(n_common)[:n_nonzero]
    truth[chosen] = generator.choice([-1.0, 1.0], n_nonzero) * generator.uniform(*size, n_nonzero)
    return truth


def _truth(generation: Generation, rows: Rows, n_features: int, norm: float, block: slice, share: float) -> np.ndarray:
    """A random direction, shifted on a one-hot block (if the table has it) until ``share`` of the labels is 1."""
    truth = generation.directions(1, n_features, norm)[0]
    X = rows(generation.truth_generator(_PILOT), (8192, n_features))
    there, margin = X[:, block].sum(axis=1), X @ truth
    if there.any():
        low, high = -100.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            positive = float(np.mean(1 + np.tanh((margin + middle * there) / 2))) / 2
            low, high = (middle, high) if positive < share else (low, middle)
        truth[block] += (low + high) / 2
    return truth


def _skewed_law(X: np.ndarray, truth: np.ndarray, values: Parameters) -> np.ndarray:
    location, scale = LOG_LOGISTIC
    # P(e < -<x, truth>), with e + mean log-logistic; where it is impossible, as good as impossible
    margin = (np.log(np.maximum(LOG_LOGISTIC_MEAN - X @ truth, 1e-30)) - location) / scale
    return np.column_stack([log_expit(-margin), log_expit(margin)])


PROBLEMS = (
    Problem(
        "skewed-logit",
        "two classes by a threshold with skewed noise: y = 1 where <x, truth> + e < 0, e log-logistic",
        skewed_logit,
        parameters(rows="normal", signal=1.0, labels=(0, 1)),
        CLASS_METRICS,
        _skewed_law,
    ),
    Problem(
        "covertype-like",
        "two classes: a table like Covertype, 10 numbers and one-hot blocks of 4 and 40, rows of norm 1",
        covertype_like,
        parameters(d=54, signal=6.0, n_nonzero=0, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "ijcnn-like",
        "two classes, 9.7 % positive: a table like IJCNN, a one-hot block and a series, rows of norm 1",
        ijcnn_like,
        parameters(d=22, signal=6.0, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "adult-like",
        "two classes, 24 % positive: a table like Adult, 6 numbers (two heavy-tailed) and 100 levels",
        adult_like,
        parameters(n=30_000, d=106, signal=3.0, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "rcv1-like",
        "two classes: texts like Reuters RCV1, 74 words of Zipf's law, rows of norm 1; 20 frequent words matter",
        rcv1_like,
        parameters(n=20_000, d=1000, n_nonzero=20, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "adult-like-income",
        "regression on the table of adult-like: y = <x, truth> + e, e log-normal",
        functools.partial(adult_like, target="number"),
        parameters(n=30_000, d=106, signal=3.0),
        REGRESSION_METRICS,
        linear_means,
    ),
)

"""Synthetic datasets of any size, written partition by partition (`dpdist.problems.generation`).

The truth is returned, because data that is generated has no privacy.
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

import numpy as np
from scipy.special import log_expit, log_softmax

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, linear_means, logistic, logistic_law, unit_rows
from dpdist.problems.metrics import CLASS_METRICS, REGRESSION_METRICS, CoefficientDistance
from dpdist.problems.problem import Parameters, Problem, parameters


def logit(
    n_rows: int,
    n_features: int = 50,
    *,
    signal: float = 6.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Logistic model: ``x`` uniform on the unit sphere, ``P(y = 1) = sigmoid(<x, truth> sqrt(d) / 2)``.

    Parameters
    ----------
    n_rows, n_features : int
    signal : float
        Norm of the truth, whose direction is uniform.
    store : path, URL, zarr store or group, optional
        Where to write, in constant memory; in memory if not given.
    partition_rows : int, optional
        See `Dataset.from_arrays`; the values do not depend on it.
    dtype : {"float64", "float32", "float16"}
        Of X, rounded from the same float64 draws. Labels are 0 and 1 (int8).
    compression : {"none", "zstd"}
    random_state : int

    Returns
    -------
    dataset : Dataset
        With arrays X and y.
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = logit(1000, 5, random_state=1)
    >>> data.arrays
    {'X': ArraySpec(dtype='float64', shape=(1000, 5)), 'y': ArraySpec(dtype='int8', shape=(1000,))}
    >>> float(np.linalg.norm(truth).round(9))
    6.0
    """
    generation = Generation("synthetic.logit", placing, n_features=n_features, signal=signal)
    truth = generation.directions(1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        margin = (X @ truth) * (math.sqrt(n_features) / 2)
        return generator.random(len(X)) < (1 + np.tanh(margin / 2)) / 2

    return generation.dataset(n_rows, truth, labels)


def linear(
    n_rows: int,
    n_features: int,
    *,
    noise: Literal["gaussian", "t3"] = "gaussian",
    noise_std: float = 0.1,
    signal: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Linear model: ``x`` uniform on the unit sphere, ``y = <x, truth> + noise`` (float64).

    Parameters
    ----------
    noise : {"gaussian", "t3"}
        Law of the noise; "t3" is Student's t with 3 degrees of freedom (no third moment), scaled to ``noise_std``.
    noise_std : float
        Standard deviation of the noise.
    signal : float
        Norm of the truth, whose direction is uniform.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    if noise not in ("gaussian", "t3"):
        raise DataError(f'noise must be "gaussian" or "t3", got {noise!r}')
    parameters = {"n_features": n_features, "signal": signal, "noise": noise, "noise_std": noise_std}
    generation = Generation("synthetic.linear", placing, **parameters)
    truth = generation.directions(1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        if noise == "gaussian":
            errors = generator.standard_normal(len(X))
        else:
            errors = generator.standard_t(3, len(X)) / math.sqrt(3)
        return X @ truth + noise_std * errors

    return generation.dataset(n_rows, truth, labels, "float64")


def multiclass(
    n_rows: int,
    n_features: int,
    n_classes: int,
    *,
    signal: float = 6.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Softmax model: ``x`` uniform on the unit sphere, ``P(y = k)`` proportional to ``exp(<x, truth_k> sqrt(d) / 2)``.

    Parameters
    ----------
    n_classes : int
        Labels are ``0 .. n_classes - 1`` (int32).
    signal : float
        Norm of every row of the truth, whose directions are independent and uniform.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_classes, n_features)
    """
    if n_classes < 2:
        raise DataError(f"n_classes must be at least 2, got {n_classes}")
    parameters = {"n_features": n_features, "n_classes": n_classes, "signal": signal}
    generation = Generation("synthetic.multiclass", placing, **parameters)
    truth = generation.directions(n_classes, n_features, signal)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        scores = (X @ truth.T) * (math.sqrt(n_features) / 2)
        # The largest of the scores with independent Gumbel noise has exactly the softmax law.
        return np.argmax(scores + generator.gumbel(size=scores.shape), axis=1)

    return generation.dataset(n_rows, truth, labels, "int32")


def heavy(
    n_rows: int,
    n_features: int = 10,
    *,
    law: Literal["normal", "student", "skewed"] = "normal",
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Linear model with heavy-tailed noise: ``y = <x, truth> + e``, e lognormal(1, 1) minus its mean (seed 000, 3.2.5).

    The noise has a standard deviation of 5.9 and is skewed; least squares has an error of ``5.9 sqrt(d / n)``.

    Parameters
    ----------
    law : {"normal", "student", "skewed"}
        Of the features, uncorrelated with mean square 1: standard normal; Student's t with 3 degrees of freedom; or
        exponential minus its mean, with the first feature 1 in every row.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        Of norm 1 and uniform direction.

    Examples
    --------
    >>> data, truth = heavy(1000, 5, law="skewed")
    >>> bool((data.read(0, 1000)["X"][:, 0] == 1).all()), float(np.linalg.norm(truth).round(9))
    (True, 1.0)
    """
    if law not in ("normal", "student", "skewed"):
        raise DataError(f'law must be "normal", "student" or "skewed", got {law!r}')
    generation = Generation("synthetic.heavy", placing, n_features=n_features, law=law)
    truth = generation.directions(1, n_features, 1.0)[0]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        if law == "normal":
            return generator.standard_normal(shape)
        if law == "student":
            return generator.standard_t(3, shape) / math.sqrt(3)
        X = generator.standard_exponential(shape) - 1
        X[:, 0] = 1.0
        return X

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + generator.lognormal(1.0, 1.0, len(X)) - math.exp(1.5)

    return generation.dataset(n_rows, truth, labels, "float64", rows=rows)


def sparse_l1(
    n_rows: int,
    n_features: int = 1000,
    *,
    n_nonzero: int = 20,
    coefficient: float = 8.0,
    n_draws: int = 20,
    exponent: float = 0.7,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Sparse logistic model of sparse rows, as word counts are: ``P(y = 1) = sigmoid(<x, truth>)``.

    A row marks the columns that ``n_draws`` draws from ``P(j) ~ j**-exponent`` (j = 1, 2, ...) hit, has norm 1, and
    entries above 0.5 are cut there. The truth is ``+-coefficient`` on the ``n_nonzero`` most frequent columns, which
    are the first ones, and 0 elsewhere (the design of seed 000, section 3.1.5, for l1 balls).

    Parameters
    ----------
    n_nonzero : int
        Number of columns that matter (all, if there are fewer).
    coefficient : float
        Size of their coefficients; the signs are independent and fair.
    n_draws : int
        Draws per row; a column that is hit twice counts once.
    exponent : float
        0 makes all columns equally frequent.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = sparse_l1(1000, 200, random_state=1)
    >>> int(np.count_nonzero(truth)), float(np.abs(truth).sum())
    (20, 160.0)
    """
    if min(n_features, n_nonzero, n_draws) < 1:
        raise DataError(
            f"n_features, n_nonzero and n_draws must be at least 1, got {n_features}, {n_nonzero} and {n_draws}"
        )
    n_nonzero = min(n_nonzero, n_features)
    parameters = {
        "n_features": n_features,
        "n_nonzero": n_nonzero,
        "coefficient": coefficient,
        "n_draws": n_draws,
        "exponent": exponent,
    }
    generation = Generation("synthetic.sparse_l1", placing, **parameters)
    truth = np.zeros(n_features)
    truth[:n_nonzero] = coefficient * generation.truth_generator().choice([-1.0, 1.0], n_nonzero)
    reach = np.cumsum(np.arange(1, n_features + 1, dtype=np.float64) ** -exponent)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        hit = np.searchsorted(reach, generator.random((shape[0], n_draws)) * reach[-1], side="right")
        X = np.zeros(shape)
        np.put_along_axis(X, np.minimum(hit, n_features - 1), 1.0, axis=1)
        return np.minimum(unit_rows(X), 0.5)

    return generation.dataset(n_rows, truth, logistic(truth), rows=rows)


def _sphere_margins(X: np.ndarray, truth: np.ndarray, values: Parameters) -> np.ndarray:
    margin = (X @ truth) * (math.sqrt(X.shape[1]) / 2)
    return np.column_stack([log_expit(-margin), log_expit(margin)])


def _softmax(X: np.ndarray, truth: np.ndarray, values: Parameters) -> np.ndarray:
    return np.asarray(log_softmax((X @ truth.T) * (math.sqrt(X.shape[1]) / 2), axis=1))


PROBLEMS = (
    Problem(
        "logit",
        "two classes: x uniform on the unit sphere, P(y = 1) logistic in <x, truth>",
        logit,
        parameters(signal=6.0, labels=(0, 1)),
        CLASS_METRICS,
        _sphere_margins,
    ),
    Problem(
        "multiclass",
        "several classes: x uniform on the unit sphere, P(y = k) softmax in <x, truth_k>",
        multiclass,
        parameters(n_classes=3, signal=6.0),
        CLASS_METRICS,
        _softmax,
    ),
    Problem(
        "linear",
        "regression: x uniform on the unit sphere, y = <x, truth> + noise",
        linear,
        parameters(noise="gaussian", noise_std=0.1, signal=1.0),
        REGRESSION_METRICS,
        linear_means,
    ),
    Problem(
        "heavy",
        "regression with skewed heavy-tailed noise, e log-normal; features normal, Student's t or skewed",
        heavy,
        parameters(d=10, law="normal"),
        (CoefficientDistance,),
    ),
    Problem(
        "sparse-l1",
        "two classes, sparse rows like word counts of norm 1, a sparse truth: P(y = 1) logistic in <x, truth>",
        sparse_l1,
        parameters(d=1000, n_nonzero=20, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
)

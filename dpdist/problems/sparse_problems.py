"""Synthetic sparse problems with heavy tails, for methods with many features.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, logistic, student


def heavy_sparse(
    n_rows: int,
    n_features: int = 200,
    *,
    coefficients: Sequence[float] = (0.3, -0.25, 0.2, -0.15, 0.1),
    degrees: float = 5.0,
    noise_std: float = 0.5,
    outliers: float = 0.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Heavy-tailed sparse linear model: Student features of unit variance, Student noise without third moment.

    ``y = <x, truth> + e``, where the entries of x are t with ``degrees`` degrees of freedom, and e is t with 3, scaled
    to ``noise_std``. The excess risk of w in the half squared loss is ``||w - truth||^2 / 2``. The default is a lasso
    on the edge of the unit l1 ball (seed 003, section 4); ``coefficients=(0.25, -0.25, 0.25, -0.25)`` with
    ``noise_std=0.25`` is a setting for sparse regression by hard thresholding.

    Parameters
    ----------
    coefficients : sequence of float
        The first entries of the truth; the others are 0.
    degrees : float
        More than 2; tails are heavier the smaller it is.
    outliers : float
        Fraction of labels that are replaced by 20 times the sign of feature 7: gross errors that least squares would
        follow.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = heavy_sparse(1000, 10)
    >>> truth[:6].tolist(), float(np.abs(truth).sum().round(9))
    ([0.3, -0.25, 0.2, -0.15, 0.1, 0.0], 1.0)
    """
    truth = _sparse_truth(coefficients, n_features)
    _check_share("outliers", outliers)
    if outliers and n_features < 8:
        raise DataError(f"outliers follow feature 7, so n_features must be at least 8, got {n_features}")
    parameters = {"n_features": n_features, "degrees": degrees, "noise_std": noise_std, "outliers": outliers}
    generation = Generation("synthetic.heavy_sparse", placing, truth=truth.tolist(), **parameters)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        y = X @ truth + generator.standard_t(3, len(X)) * (noise_std / math.sqrt(3))
        if outliers:
            y = np.where(generator.random(len(X)) < outliers, 20 * np.sign(X[:, 7]), y)
        return y

    return generation.dataset(n_rows, truth, labels, "float64", rows=student(degrees))


def heavy_logistic(
    n_rows: int,
    n_features: int = 200,
    *,
    coefficients: Sequence[float] = (1.2, -1.2, 0.9, -0.9),
    degrees: float = 4.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Heavy-tailed sparse logistic model: Student features of unit variance, ``P(y = 1) = sigmoid(<x, truth>)``.

    Parameters
    ----------
    coefficients, degrees
        As in `heavy_sparse`.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`. Labels are 0 and 1 (int8).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    truth = _sparse_truth(coefficients, n_features)
    parameters = {"n_features": n_features, "degrees": degrees}
    generation = Generation("synthetic.heavy_logistic", placing, truth=truth.tolist(), **parameters)

    return generation.dataset(n_rows, truth, logistic(truth), rows=student(degrees))


def spiky_sparse(
    n_rows: int,
    n_features: int = 300,
    *,
    n_nonzero: int = 5,
    second_moment: float = 1.0,
    share: float = 0.01,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """The hardest heavy-tailed instance for private sparse means: a few rows hold all of the mean.

    A row is 0, or with probability ``share`` the point ``sqrt(second_moment / share) v``, v a random sign vector with
    ``n_nonzero`` nonzeros: every coordinate has second moment ``second_moment`` at most, and the mean is
    ``sqrt(second_moment * share) v``. The instance of `dpdist.privacy.audit.lower_bounds`; hardest where ``n_rows *
    share * epsilon`` is about ``n_nonzero * ln(n_features)``.

    Parameters
    ----------
    n_nonzero : int
    second_moment : float
    share : float
        Between 0 and 1.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With the array X only.
    truth : ndarray of shape (n_features,)
        The mean.
    """
    if not 1 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 1 and n_features = {n_features}, got {n_nonzero!r}")
    _check_share("share", share)
    parameters = {"n_features": n_features, "n_nonzero": n_nonzero, "second_moment": second_moment, "share": share}
    generation = Generation("synthetic.spiky_sparse", placing, **parameters)
    generator = generation.truth_generator()
    v = np.zeros(n_features)
    v[generator.permutation(n_features)[:n_nonzero]] = generator.choice([-1.0, 1.0], n_nonzero)
    spike = math.sqrt(second_moment / share) * v if share else v

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return (generator.random(shape[0]) < share)[:, None] * spike

    return generation.dataset(n_rows, math.sqrt(second_moment * share) * v, rows=rows)


def _sparse_truth(coefficients: Sequence[float], n_features: int) -> np.ndarray:
    if not 1 <= len(coefficients) <= n_features:
        raise DataError(f"give 1 to n_features = {n_features} coefficients, got {len(coefficients)}")
    return np.concatenate([np.asarray(coefficients, dtype=np.float64), np.zeros(n_features - len(coefficients))])


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise DataError(f"{name} is a fraction of the rows, between 0 and 1, got {value!r}")

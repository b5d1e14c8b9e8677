"""Synthetic sparse problems with heavy tails, for methods with many features.

Conventions are those of `dpdist.data.synthetic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.data.schema import ArraySpec
from dpdist.data.synthetic import _TRUTH, _make, _student
from dpdist.data.writing import Compression, Location
from dpdist.errors import DataError
from dpdist.privacy.streams import Stream, run_key_from_seed


def heavy_sparse(
    n_rows: int,
    n_features: int = 200,
    *,
    coefficients: Sequence[float] = (0.3, -0.25, 0.2, -0.15, 0.1),
    degrees: float = 5.0,
    noise_std: float = 0.5,
    outliers: float = 0.0,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
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
        As in `dpdist.data.synthetic.logit`.

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
    stream = Stream(run_key_from_seed(random_state), "synthetic.heavy_sparse", truth=truth.tolist(), **parameters)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        y = X @ truth + generator.standard_t(3, len(X)) * (noise_std / math.sqrt(3))
        if outliers:
            y = np.where(generator.random(len(X)) < outliers, 20 * np.sign(X[:, 7]), y)
        return y

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("float64", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression, _student(degrees)), truth


def heavy_logistic(
    n_rows: int,
    n_features: int = 200,
    *,
    coefficients: Sequence[float] = (1.2, -1.2, 0.9, -0.9),
    degrees: float = 4.0,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Heavy-tailed sparse logistic model: Student features of unit variance, ``P(y = 1) = sigmoid(<x, truth>)``.

    Parameters
    ----------
    coefficients, degrees
        As in `heavy_sparse`.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.data.synthetic.logit`. Labels are 0 and 1 (int8).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    truth = _sparse_truth(coefficients, n_features)
    parameters = {"n_features": n_features, "degrees": degrees}
    stream = Stream(run_key_from_seed(random_state), "synthetic.heavy_logistic", truth=truth.tolist(), **parameters)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(len(X)) < (1 + np.tanh(X @ truth / 2)) / 2

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("int8", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression, _student(degrees)), truth


def spiky_sparse(
    n_rows: int,
    n_features: int = 300,
    *,
    n_nonzero: int = 5,
    second_moment: float = 1.0,
    share: float = 0.01,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """The hardest heavy-tailed instance for private sparse means: a few rows hold all of the mean.

    A row is 0, or with probability ``share`` the point ``sqrt(second_moment / share) v``, v a random sign vector with
    ``n_nonzero`` nonzeros: every coordinate has second moment ``second_moment`` at most, and the mean is
    ``sqrt(second_moment * share) v``. The instance of `dpdist.privacy.lower_bounds`; hardest where ``n_rows * share *
    epsilon`` is about ``n_nonzero * ln(n_features)``.

    Parameters
    ----------
    n_nonzero : int
    second_moment : float
    share : float
        Between 0 and 1.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.data.synthetic.logit`.

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
    stream = Stream(run_key_from_seed(random_state), "synthetic.spiky_sparse", **parameters)
    generator = stream.generator(0, _TRUTH)
    v = np.zeros(n_features)
    v[generator.permutation(n_features)[:n_nonzero]] = generator.choice([-1.0, 1.0], n_nonzero)
    spike = math.sqrt(second_moment / share) * v if share else v

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return (generator.random(shape[0]) < share)[:, None] * spike

    X_spec = ArraySpec(dtype, (n_rows, n_features))
    data = _make(stream, None, X_spec, None, store, partition_rows, compression, rows)
    return data, math.sqrt(second_moment * share) * v


def _sparse_truth(coefficients: Sequence[float], n_features: int) -> np.ndarray:
    if not 1 <= len(coefficients) <= n_features:
        raise DataError(f"give 1 to n_features = {n_features} coefficients, got {len(coefficients)}")
    return np.concatenate([np.asarray(coefficients, dtype=np.float64), np.zeros(n_features - len(coefficients))])


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise DataError(f"{name} is a fraction of the rows, between 0 and 1, got {value!r}")

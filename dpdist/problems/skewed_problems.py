"""Sparse regression where everything is skewed: log-normal features and noise, which a few rows decide.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import CoefficientDistance
from dpdist.problems.problem import Problem, parameters

SPREAD = 0.6
"""Standard deviation of the logarithm of a feature (seed 003's companion papers)."""


def skewed_sparse(
    n_rows: int,
    n_features: int = 200,
    *,
    n_nonzero: int = 5,
    noise_std: float = 0.5,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Sparse linear model, ``y = <x, truth> + e``, with independent log-normal entries of x and log-normal e.

    Entries are ``exp(0.6 z)`` with z standard normal, centred and scaled to variance 1; so is e, times ``noise_std``.

    Parameters
    ----------
    n_nonzero : int
        The first entries of the truth are ``+-1 / n_nonzero`` with signs in turn, so that its l1 norm is 1.
    noise_std : float
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = skewed_sparse(20_000, 5, n_nonzero=2)
    >>> X = data.read(0, 20_000)["X"]
    >>> truth.tolist(), bool(abs(X.mean()) < 0.02), bool(abs(X.std() - 1) < 0.05), bool((X**3).mean() > 1)
    ([0.5, -0.5, 0.0, 0.0, 0.0], True, True, True)
    """
    if not 1 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 1 and n_features = {n_features}, got {n_nonzero!r}")
    truth = np.zeros(n_features)
    truth[:n_nonzero] = np.where(np.arange(n_nonzero) % 2, -1.0, 1.0) / n_nonzero
    names = {"n_features": n_features, "n_nonzero": n_nonzero, "noise_std": noise_std}
    generation = Generation("skewed.skewed_sparse", placing, **names)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + noise_std * _standard(generator, len(X))

    return generation.dataset(n_rows, truth, labels, "float64", rows=_standard)


def _standard(generator: np.random.Generator, shape: int | tuple[int, int]) -> np.ndarray:
    """Log-normal numbers of mean 0 and variance 1."""
    square = SPREAD**2
    centred = np.exp(SPREAD * generator.standard_normal(shape)) - math.exp(square / 2)
    return centred / math.sqrt(math.expm1(square) * math.exp(square))


PROBLEMS = (
    Problem(
        "skewed-sparse",
        "sparse regression with skewed tails: log-normal features and noise, coefficients of one size",
        skewed_sparse,
        parameters(d=200, n_nonzero=5, noise_std=0.5),
        (CoefficientDistance,),
    ),
)

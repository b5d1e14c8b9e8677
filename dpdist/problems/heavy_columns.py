"""Generated columns with heavy tails around a known mean; conventions as in `dpdist.problems.linear_problems`."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, Rows

PARETO = 2.2
"""Tail index: the variance, 7.6, exists, the third moment does not."""
LAWS: dict[str, Rows] = {
    "lognormal": lambda generator, shape: generator.lognormal(size=shape) - math.exp(0.5),
    "t3": lambda generator, shape: generator.standard_t(3, shape),
    "pareto": lambda generator, shape: generator.pareto(PARETO, shape) - 1 / (PARETO - 1),
}
"""Laws with mean 0: skewed, symmetric, and skewed with a power law."""


def heavy_columns(
    n_rows: int,
    n_features: int = 1,
    *,
    law: str = "lognormal",
    signal: float = 1.0,
    n_nonzero: int = 0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Independent columns ``truth_j + e`` with heavy-tailed noise e of mean 0.

    Parameters
    ----------
    law : {"lognormal", "t3", "pareto"}
        Of the noise: log-normal (variance 4.7), Student's t with 3 degrees of freedom (variance 3), Pareto with tail
        index 2.2 (variance 7.6).
    signal : float
        Norm of the truth.
    n_nonzero : int
        Only the first so many means are not 0, all of one size; 0 for a direction in all columns.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With the array X only.
    truth : ndarray of shape (n_features,)
        The means.

    Examples
    --------
    >>> data, truth = heavy_columns(100, 10, law="t3", n_nonzero=4)
    >>> data.arrays, int(np.count_nonzero(truth)), float(np.linalg.norm(truth))
    ({'X': ArraySpec(dtype='float64', shape=(100, 10))}, 4, 1.0)
    """
    if law not in LAWS:
        raise DataError(f"law must be one of {list(LAWS)}, got {law!r}")
    if not 0 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 0 and n_features = {n_features}, got {n_nonzero!r}")
    parameters = {"n_features": n_features, "law": law, "signal": signal, "n_nonzero": n_nonzero}
    generation = Generation("synthetic.heavy_columns", placing, **parameters)
    truth = generation.directions(1, n_features, signal)[0]
    if n_nonzero:
        truth = np.where(np.arange(n_features) < n_nonzero, np.copysign(signal / math.sqrt(n_nonzero), truth), 0.0)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return truth + LAWS[law](generator, shape)

    return generation.dataset(n_rows, truth, rows=rows)

"""Generated columns whose means are wanted: bounded, heavy-tailed, and zero but for a few rows.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, Rows, check_share, on_sphere, sparse_direction
from dpdist.problems.metrics import MeanDistance
from dpdist.problems.problem import Problem, parameters

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


def box(n_rows: int, n_features: int = 1, **placing: Unpack[Placing]) -> tuple[Dataset, np.ndarray]:
    """Columns of numbers in [-1, 1]: uniform on an interval around the mean, which is uniform on [-1/2, 1/2].

    Examples
    --------
    >>> data, truth = box(20_000, 3)
    >>> rows = data.read(0, 20_000)["X"]
    >>> bool(np.abs(rows).max() <= 1), bool(np.abs(rows.mean(axis=0) - truth).max() < 0.03)
    (True, True)
    """
    generation = Generation("populations.box", placing, n_features=n_features)
    truth = generation.truth_generator().uniform(-0.5, 0.5, n_features)
    width = 1 - np.abs(truth)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return truth + width * generator.uniform(-1.0, 1.0, shape)

    return generation.dataset(n_rows, truth, rows=rows)


def ball(
    n_rows: int, n_features: int = 20, *, signal: float = 0.5, n_nonzero: int = 0, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Vectors of norm at most 1: uniform on a sphere around the mean.

    Parameters
    ----------
    signal : float
        Norm of the mean, at most 1; the sphere has the radius ``1 - signal``.
    n_nonzero : int
        Nonzero entries of the mean, all of the same size (its l1 norm is ``signal sqrt(n_nonzero)``); 0: all.

    Examples
    --------
    >>> data, truth = ball(1000, 10, n_nonzero=4)
    >>> bool(np.linalg.norm(data.read(0, 1000)["X"], axis=1).max() <= 1), float(np.abs(truth).sum().round(9))
    (True, 1.0)
    """
    if not 0 <= signal <= 1:
        raise DataError(f"signal must lie in [0, 1], got {signal!r}")
    parameters = {"n_features": n_features, "signal": signal, "n_nonzero": n_nonzero}
    generation = Generation("populations.ball", placing, **parameters)
    truth = signal * sparse_direction(generation, n_features, n_nonzero)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return truth + (1 - signal) * on_sphere(generator, shape) * (1 - 2.0**-40)

    return generation.dataset(n_rows, truth, rows=rows)


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
    check_share("share", share)
    parameters = {"n_features": n_features, "n_nonzero": n_nonzero, "second_moment": second_moment, "share": share}
    generation = Generation("synthetic.spiky_sparse", placing, **parameters)
    generator = generation.truth_generator()
    v = np.zeros(n_features)
    v[generator.permutation(n_features)[:n_nonzero]] = generator.choice([-1.0, 1.0], n_nonzero)
    spike = math.sqrt(second_moment / share) * v if share else v

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return (generator.random(shape[0]) < share)[:, None] * spike

    return generation.dataset(n_rows, math.sqrt(second_moment * share) * v, rows=rows)


PROBLEMS = (
    Problem(
        "heavy-columns",
        "means: columns of heavy-tailed numbers around the truth, log-normal, Student's t or Pareto",
        heavy_columns,
        parameters(d=1, law="lognormal", signal=1.0, n_nonzero=0),
        (MeanDistance,),
    ),
    Problem(
        "spiky-sparse",
        "means: the hardest sparse ones, which a few rows hold; the others are 0",
        spiky_sparse,
        parameters(d=300, n_nonzero=5, second_moment=1.0, share=0.01),
        (MeanDistance,),
    ),
    Problem(
        "box",
        "means: columns of numbers in [-1, 1]",
        box,
        parameters(d=1),
        (MeanDistance,),
    ),
    Problem(
        "ball",
        "means: vectors of norm 1 at most, with a dense or a sparse mean",
        ball,
        parameters(signal=0.5, n_nonzero=0),
        (MeanDistance,),
    ),
)

"""Generated categories and codes, one per row, whose frequencies are wanted.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing
from dpdist.problems.metrics import FrequencyDistance, Missed
from dpdist.problems.problem import Problem, parameters


def categories(
    n_rows: int, n_features: int = 1, *, n_categories: int = 100, exponent: float = 1.0, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """One category per row, with Zipf frequencies: that of rank r is proportional to ``r^-exponent``.

    Parameters
    ----------
    n_features : int
        1.
    n_categories : int
    exponent : float
        0: all are equally frequent. Ranks are given to categories at random.
    n_rows, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        X holds whole numbers.
    truth : ndarray of shape (n_categories,)
        The frequencies.

    Examples
    --------
    >>> data, truth = categories(1000, n_categories=4)
    >>> sorted(truth.round(2).tolist()), bool(np.isin(data.read(0, 1000)["X"], range(4)).all())
    ([0.12, 0.16, 0.24, 0.48], True)
    """
    _only_one(n_features)
    if n_categories < 2:
        raise DataError(f"n_categories must be at least 2, got {n_categories!r}")
    generation = Generation("populations.categories", placing, n_categories=n_categories, exponent=exponent)
    truth = generation.truth_generator().permutation(_zipf(n_categories, exponent))
    edges = np.cumsum(truth)[:-1]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return np.searchsorted(edges, generator.random(shape), side="right").astype(np.float64)

    return generation.dataset(n_rows, np.zeros(1), rows=rows)[0], truth


def codes(
    n_rows: int,
    n_features: int = 1,
    *,
    n_bits: int = 32,
    n_codes: int = 1000,
    exponent: float = 1.5,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """One code per row: random whole numbers below ``2**n_bits``, of which some have Zipf frequencies.

    Parameters
    ----------
    n_bits : int
        At most 52, so that a float64 holds the code.
    n_codes : int
        Different codes.
    n_rows, n_features, exponent, store, partition_rows, dtype, compression, random_state
        As in `categories`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (2, n_codes)
        The codes, the most frequent first, and their frequencies.

    Examples
    --------
    >>> data, truth = codes(1000, n_bits=16, n_codes=50)
    >>> truth.shape, bool(np.isin(data.read(0, 1000)["X"], truth[0]).all())
    ((2, 50), True)
    """
    _only_one(n_features)
    if not (1 <= n_bits <= 52 and 1 <= n_codes <= 2**n_bits):
        raise DataError(f"n_bits must lie in [1, 52] and n_codes in [1, 2**n_bits], got {n_bits!r} and {n_codes!r}")
    generation = Generation("populations.codes", placing, n_bits=n_bits, n_codes=n_codes, exponent=exponent)
    drawn, generator = np.empty(0), generation.truth_generator()
    while len(drawn) < n_codes:
        drawn = np.unique(np.concatenate([drawn, generator.integers(0, 2**n_bits, n_codes).astype(np.float64)]))
    chosen = generator.permutation(drawn)[:n_codes]
    frequencies = _zipf(n_codes, exponent)
    edges = np.cumsum(frequencies)[:-1]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return chosen[np.searchsorted(edges, generator.random(shape), side="right")]

    return generation.dataset(n_rows, np.zeros(1), rows=rows)[0], np.stack([chosen, frequencies])


def _zipf(n: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return weights / math.fsum(weights)


def _only_one(n_features: int) -> None:
    if n_features != 1:
        raise DataError(f"a user has one category: n_features must be 1, got {n_features!r}")


PROBLEMS = (
    Problem(
        "categories",
        "frequencies: one category per row, Zipf frequencies",
        categories,
        parameters(d=1, n_categories=100, exponent=1.0),
        (FrequencyDistance,),
        shared=("n_categories",),
    ),
    Problem(
        "codes",
        "frequent values: one code per row, below 2**n_bits, of which few are frequent",
        codes,
        parameters(d=1, n_bits=32, n_codes=1000, exponent=1.5),
        (Missed,),
        shared=("n_bits",),
    ),
)

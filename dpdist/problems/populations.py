"""Generated users for the local model: categories, codes, bounded numbers and vectors, and bounded regressions.

As in `dpdist.problems.linear_problems`, row i is a function of the seed and the parameters alone, in any partitioning.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, on_sphere


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
    truth = signal * _sparse(generation, n_features, n_nonzero)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return truth + (1 - signal) * on_sphere(generator, shape) * (1 - 2.0**-40)

    return generation.dataset(n_rows, truth, rows=rows)


def sphere_l1(
    n_rows: int,
    n_features: int = 50,
    *,
    signal: float = 4.0,
    n_nonzero: int = 4,
    noise_std: float = 0.1,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Regression on the unit sphere with few coefficients: ``y = <x, truth> + noise``, ``||truth||_1 = signal``.

    The nonzero coefficients have one size; the noise is normal.

    Examples
    --------
    >>> data, truth = sphere_l1(1000, 20)
    >>> int(np.count_nonzero(truth)), float(np.abs(truth).sum())
    (4, 4.0)
    """
    parameters = {"n_features": n_features, "signal": signal, "n_nonzero": n_nonzero, "noise_std": noise_std}
    generation = Generation("populations.sphere_l1", placing, **parameters)
    truth = _sparse(generation, n_features, n_nonzero)
    truth *= signal / np.abs(truth).sum()

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + noise_std * generator.standard_normal(len(X))

    return generation.dataset(n_rows, truth, labels, "float64")


def waves(
    n_rows: int, n_features: int = 1, *, noise_std: float = 0.1, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """A smooth regression: x uniform on ``[-1, 1]^d``, ``y = 0.7 sin(3 x_1) cos(2 x_d) + noise`` (normal).

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        Zeros: the function is always the same, `wave`.

    Examples
    --------
    >>> data, _ = waves(1000, 2)
    >>> rows = data.read(0, 1000)
    >>> bool(np.std(rows["y"] - wave(rows["X"])) < 0.12)
    True
    """
    generation = Generation("populations.waves", placing, n_features=n_features, noise_std=noise_std)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.uniform(-1.0, 1.0, shape)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return wave(X) + noise_std * generator.standard_normal(len(X))

    return generation.dataset(n_rows, np.zeros(n_features), labels, "float64", rows)


def wave(X: np.ndarray) -> np.ndarray:
    """The mean of the labels of `waves`."""
    return 0.7 * np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1])


def _zipf(n: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return weights / math.fsum(weights)


def _sparse(generation: Generation, n_features: int, n_nonzero: int) -> np.ndarray:
    """A vector of norm 1 in a random direction, or with a few entries of one size at random places."""
    if not 0 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 0 and n_features = {n_features}, got {n_nonzero!r}")
    if n_nonzero == 0:
        return generation.directions(1, n_features, 1.0)[0]
    generator = generation.truth_generator()
    truth = np.zeros(n_features)
    places = generator.permutation(n_features)[:n_nonzero]
    truth[places] = generator.choice([-1.0, 1.0], n_nonzero) / math.sqrt(n_nonzero)
    return truth


def _only_one(n_features: int) -> None:
    if n_features != 1:
        raise DataError(f"a user has one category: n_features must be 1, got {n_features!r}")

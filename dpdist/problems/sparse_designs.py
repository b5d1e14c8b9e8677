"""Synthetic sparse regressions for the local model: features that are signs, or dense and correlated.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, Rows

Design = Literal["sign", "gaussian"]
Noise = Literal["uniform", "t3"]
LINK_SLOPE = 8.0


def sparse_design(
    n_rows: int,
    n_features: int = 32,
    *,
    n_nonzero: int = 2,
    design: Design = "sign",
    correlation: float = 0.0,
    noise: Noise = "uniform",
    noise_std: float = 0.05,
    norm: Literal["l2", "l1"] = "l2",
    signal: float = 1.0,
    link: Literal["identity", "wave"] = "identity",
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """Sparse model ``y = f(<x, truth>) + noise`` (seed 000, section 5.3.6, with a truth of norm 1; seed 004).

    Parameters
    ----------
    n_nonzero : int
        Nonzero coefficients, at random places, with random signs and sizes that differ by a factor of 2 at most.
    design : {"sign", "gaussian"}
        Features that are -1 or 1, independent and fair; or normal with ``E x_j x_k = correlation^|j - k|``.
    correlation : float
        In (-1, 1); for ``design="gaussian"``.
    noise : {"uniform", "t3"}
        Uniform on ``[-noise_std, noise_std]``, or Student's t with 3 degrees of freedom times ``noise_std``.
    noise_std : float
        Scale of the noise (C of the literature; for "uniform" it is the bound).
    norm : {"l2", "l1"}
    signal : float
        That norm of the truth.
    link : {"identity", "wave"}
        f; "wave" is ``8 u + cos(u)``.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = sparse_design(1000, 8, n_nonzero=3)
    >>> int(np.count_nonzero(truth)), float(np.linalg.norm(truth).round(9)), np.unique(data.read(0, 1000)["X"]).tolist()
    (3, 1.0, [-1.0, 1.0])
    """
    for name, value, allowed in (
        ("design", design, ("sign", "gaussian")),
        ("noise", noise, ("uniform", "t3")),
        ("norm", norm, ("l2", "l1")),
        ("link", link, ("identity", "wave")),
    ):
        if value not in allowed:
            raise DataError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    if not -1 < correlation < 1:
        raise DataError(f"correlation must lie between -1 and 1, got {correlation!r}")
    if not 1 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 1 and n_features = {n_features}, got {n_nonzero!r}")
    parameters: dict[str, Any] = {"n_features": n_features, "n_nonzero": n_nonzero, "design": design}
    parameters |= {"correlation": correlation}
    parameters |= {"noise": noise, "noise_std": noise_std, "norm": norm, "signal": signal, "link": link}
    generation = Generation("synthetic.sparse_design", placing, **parameters)
    truth = _truth(generation, n_features, n_nonzero)
    truth *= signal / (np.linalg.norm(truth) if norm == "l2" else np.abs(truth).sum())

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        u = X @ truth
        errors = generator.uniform(-1.0, 1.0, len(X)) if noise == "uniform" else generator.standard_t(3, len(X))
        return (u if link == "identity" else LINK_SLOPE * u + np.cos(u)) + noise_std * errors

    rows = random_signs if design == "sign" else _correlated(correlation)
    return generation.dataset(n_rows, truth, labels, "float64", rows)


def hard_instance(
    n_rows: int,
    n_features: int = 64,
    *,
    n_nonzero: int = 4,
    signal: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """The instance of the lower bounds: signs for features, and a label 1 or -1 of mean ``<x, truth>``.

    ``P(y = 1 | x) = (1 + <x, truth>)/2`` with entries ``+-signal / n_nonzero`` of the truth, so that ``|y| = 1`` and
    ``E x y = truth`` exactly (seed 000, section 5.3.2, and seed 004, Theorem 1).

    Parameters
    ----------
    n_nonzero : int
    signal : float
        At most 1: the l1 norm of the truth.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Examples
    --------
    >>> data, truth = hard_instance(20_000, 4, n_nonzero=2)
    >>> rows = data.read(0, 20_000)
    >>> bool(np.abs(rows["X"].T @ rows["y"] / 20_000 - truth).max() < 0.04)
    True
    """
    if not (1 <= n_nonzero <= n_features and 0 <= signal <= 1):
        raise DataError(
            f"n_nonzero must lie between 1 and n_features = {n_features}, and signal between 0 and 1, got "
            f"{n_nonzero!r} and {signal!r}"
        )
    parameters = {"n_features": n_features, "n_nonzero": n_nonzero, "signal": signal}
    generation = Generation("synthetic.hard_instance", placing, **parameters)
    truth = np.sign(_truth(generation, n_features, n_nonzero)) * (signal / n_nonzero)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return np.where(generator.random(len(X)) < (1 + X @ truth) / 2, 1.0, -1.0)

    return generation.dataset(n_rows, truth, labels, "float64", random_signs)


def random_signs(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Fair signs, one bit each.

    >>> abs(random_signs(np.random.default_rng(0), (2, 3))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    size = math.prod(shape)
    bits = np.unpackbits(np.frombuffer(generator.bytes(-(-size // 8)), dtype=np.uint8), count=size)
    return 2.0 * bits.reshape(shape) - 1.0


def _correlated(correlation: float) -> Rows:
    """Stationary normal rows, each entry a fraction of the one before plus noise."""
    fresh = math.sqrt(1 - correlation**2)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        X = generator.standard_normal(shape)
        for j in range(1, shape[1] if correlation else 0):
            X[:, j] = correlation * X[:, j - 1] + fresh * X[:, j]
        return X

    return rows


def _truth(generation: Generation, n_features: int, n_nonzero: int) -> np.ndarray:
    """Random places and signs, sizes uniform on [1/2, 1]."""
    generator = generation.truth_generator()
    truth = np.zeros(n_features)
    places = generator.permutation(n_features)[:n_nonzero]
    truth[places] = generator.choice([-1.0, 1.0], n_nonzero) * generator.uniform(0.5, 1.0, n_nonzero)
    return truth

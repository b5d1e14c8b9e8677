"""Generated linear models with few coefficients: heavy tails, features that are signs, correlated ones.

Conventions are those of `dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.local.linear.links import LINKS
from dpdist.problems.generation import (
    Generation,
    Placing,
    Rows,
    check_share,
    linear_means,
    logistic,
    logistic_law,
    sparse_direction,
    student,
)
from dpdist.problems.metrics import CLASS_METRICS, REGRESSION_METRICS, CoefficientDistance
from dpdist.problems.problem import Problem, parameters

Design = Literal["sign", "gaussian"]
Noise = Literal["uniform", "t3"]
LINK_SLOPE = 8.0


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
    check_share("outliers", outliers)
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


def _sparse_truth(coefficients: Sequence[float], n_features: int) -> np.ndarray:
    if not 1 <= len(coefficients) <= n_features:
        raise DataError(f"give 1 to n_features = {n_features} coefficients, got {len(coefficients)}")
    return np.concatenate([np.asarray(coefficients, dtype=np.float64), np.zeros(n_features - len(coefficients))])


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
    truth = sparse_direction(generation, n_features, n_nonzero)
    truth *= signal / np.abs(truth).sum()

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + noise_std * generator.standard_normal(len(X))

    return generation.dataset(n_rows, truth, labels, "float64")


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
    if correlation and design != "gaussian":
        raise DataError(f"design={design!r} does not read correlation, {correlation!r}: design='gaussian' reads it")
    if not 1 <= n_nonzero <= n_features:
        raise DataError(f"n_nonzero must lie between 1 and n_features = {n_features}, got {n_nonzero!r}")
    parameters: dict[str, Any] = {"n_features": n_features, "n_nonzero": n_nonzero, "design": design}
    parameters |= {"correlation": correlation}
    parameters |= {"noise": noise, "noise_std": noise_std, "norm": norm, "signal": signal, "link": link}
    generation = Generation("synthetic.sparse_design", placing, **parameters)
    truth = _uneven(generation, n_features, n_nonzero)
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
    truth = np.sign(_uneven(generation, n_features, n_nonzero)) * (signal / n_nonzero)

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


def _uneven(generation: Generation, n_features: int, n_nonzero: int) -> np.ndarray:
    """Random places and signs, sizes uniform on [1/2, 1]."""
    generator = generation.truth_generator()
    truth = np.zeros(n_features)
    places = generator.permutation(n_features)[:n_nonzero]
    truth[places] = generator.choice([-1.0, 1.0], n_nonzero) * generator.uniform(0.5, 1.0, n_nonzero)
    return truth


class LinkedDistance(CoefficientDistance):
    """Regression through an increasing function."""

    def straightened(self, y: np.ndarray) -> np.ndarray:
        return LINKS[self.world.parameters["link"]].inverse(y)


PROBLEMS = (
    Problem(
        "heavy-sparse",
        "sparse regression with heavy tails: features t with 5 degrees of freedom, noise t with 3",
        heavy_sparse,
        parameters(d=200, noise_std=0.5, outliers=0.0),
        (CoefficientDistance,),
    ),
    Problem(
        "heavy-logistic",
        "two classes, sparse, heavy tails: features t with 4 degrees of freedom, P(y = 1) logistic",
        heavy_logistic,
        parameters(d=200, labels=(0, 1)),
        CLASS_METRICS,
        logistic_law,
    ),
    Problem(
        "sphere-l1",
        "regression: x uniform on the unit sphere, y = <x, truth> + noise, few coefficients",
        sphere_l1,
        parameters(d=50, signal=4.0, n_nonzero=4, noise_std=0.1, public_rows=0),
        REGRESSION_METRICS,
        linear_means,
    ),
    Problem(
        "sparse-design",
        "sparse regression: features that are signs or (correlated) normal, bounded or heavy-tailed noise",
        sparse_design,
        parameters(
            d=32,
            n_nonzero=2,
            design="sign",
            correlation=0.0,
            noise="uniform",
            noise_std=0.05,
            norm="l2",
            signal=1.0,
            link="identity",
            public_rows=0,
        ),
        (LinkedDistance,),
    ),
    Problem(
        "hard-instance",
        "sparse regression of the lower bounds: features are signs, and labels are 1 or -1",
        hard_instance,
        parameters(d=64, n_nonzero=4, signal=1.0),
        (CoefficientDistance,),
    ),
)

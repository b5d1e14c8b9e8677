"""Generated rows of which second moments are wanted: spiked, sparse, in blocks, along a chain, and hard ones.

The truth is the matrix ``E x x'`` of a row; subspaces and inverses are made of it. Conventions are those of
`dpdist.problems.linear_problems`.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.errors import DataError
from dpdist.problems.generation import Generation, Placing, check_share, unit_rows
from dpdist.problems.matrix_metrics import (
    CovarianceDistance,
    PrecisionDistance,
    SecondMomentDistance,
    SparseSubspaceDistance,
    SubspaceDistance,
)
from dpdist.problems.problem import Problem, parameters

SPREAD = 0.3
DECAY = 0.7
"""Of the factors of `factor_rows`, of which there are at most ten."""
_NODES = np.exp(np.linspace(-45.0, 120.0, 1651))
_STEP = 0.1


def spiked_unit(
    n_rows: int, n_features: int = 20, *, n_components: int = 2, noise: float = 0.5, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows of norm 1 near a subspace: ``V a + noise sqrt(k / p) g``, scaled, for normal a and g.

    Parameters
    ----------
    n_components : int
        k, the dimension of the subspace that the columns of V span.
    noise : float
        Norm of what is outside, relative to what is inside.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset : Dataset
        With the array X only.
    truth : ndarray of shape (n_features, n_features)
        ``E x x'``.

    Examples
    --------
    >>> data, truth = spiked_unit(1000, 6)
    >>> data.arrays, np.linalg.eigvalsh(truth).round(2).tolist()
    ({'X': ArraySpec(dtype='float64', shape=(1000, 6))}, [0.06, 0.06, 0.06, 0.06, 0.38, 0.38])
    """
    return sparse_spiked_unit(
        n_rows, n_features, n_components=n_components, n_nonzero=n_features, noise=noise, **placing
    )


def sparse_spiked_unit(
    n_rows: int,
    n_features: int = 80,
    *,
    n_components: int = 1,
    n_nonzero: int = 8,
    noise: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """As `spiked_unit`, with a subspace in ``n_nonzero`` of the columns, at random places."""
    given = {"n_features": n_features, "n_components": n_components, "n_nonzero": n_nonzero, "noise": noise}
    generation = Generation("moments.spiked_unit", placing, **given)
    V = sparse_basis(generation, n_features, n_components, n_nonzero)
    scale = noise * math.sqrt(n_components / n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        drawn = generator.standard_normal((shape[0], n_components + n_features))
        return unit_rows(drawn[:, :n_components] @ V.T + scale * drawn[:, n_components:])

    truth = direction_moments(np.zeros(n_features), V @ V.T + scale**2 * np.eye(n_features))
    return generation.dataset(n_rows, truth, rows=rows)


def factor_rows(
    n_rows: int, n_features: int = 54, *, n_components: int = 1, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Rows of norm 1 with a mean and up to ten factors of decreasing size, as real tables have them.

    ``0.5 u + V diag(0.7^j) a + 0.3 g / sqrt(p)``, scaled, for a fixed random unit vector u and normal a and g. Shapes
    of tables that it stands for: 581 012 rows of 54 columns, 583 250 of 77, 515 345 of 90.

    Parameters
    ----------
    n_components : int
        Of the subspace that is asked for; the rows do not depend on it.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `dpdist.problems.linear_problems.logit`.

    Returns
    -------
    dataset, truth
        As `spiked_unit`.
    """
    _check_rank(n_components, n_features)
    generation = Generation("moments.factor_rows", placing, n_features=n_features)
    n_factors = min(10, n_features)
    V = _orthonormal(generation.truth_generator(), n_features, n_factors) * DECAY ** np.arange(n_factors)
    mean = 0.5 * unit_rows(generation.truth_generator(1).standard_normal((1, n_features)))[0]
    scale = SPREAD / math.sqrt(n_features)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        drawn = generator.standard_normal((shape[0], n_factors + n_features))
        return unit_rows(mean + drawn[:, :n_factors] @ V.T + scale * drawn[:, n_factors:])

    return generation.dataset(n_rows, direction_moments(mean, V @ V.T + scale**2 * np.eye(n_features)), rows=rows)


def block_cov(
    n_rows: int, n_features: int = 60, *, block: int = 4, correlation: float = 0.5, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Normal rows whose columns are correlated within blocks, with a covariance of trace 1.

    Parameters
    ----------
    block : int
        Columns of a block; the last one may have fewer.
    correlation : float
        Within a block.
    """
    check_share("correlation", correlation)
    generation = Generation("moments.block_cov", placing, n_features=n_features, block=block, correlation=correlation)
    place = np.arange(n_features) // block
    truth = np.where(place[:, None] == place, correlation, 0.0)
    np.fill_diagonal(truth, 1.0)
    return _normal(generation, n_rows, truth / n_features)


def thin_cov(
    n_rows: int, n_features: int = 100, *, share: float = 0.2, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Normal rows with the covariance ``(T + 50 I) / 200``, T symmetric with a share of normal entries.

    The setting of a published experiment (seed 000, section 6.2.4), kept as a warning: the covariance is nearly a
    multiple of the identity, and rows have norms of about ``sqrt(p) / 2``, where 1 was claimed.
    """
    check_share("share", share)
    generation = Generation("moments.thin_cov", placing, n_features=n_features, share=share)
    generator = generation.truth_generator()
    upper = np.triu(generator.standard_normal((n_features, n_features)))
    upper *= generator.random((n_features, n_features)) < share
    return _normal(generation, n_rows, (upper + np.triu(upper, 1).T + 50 * np.eye(n_features)) / 200)


def chain_precision(
    n_rows: int, n_features: int = 15, *, strength: float = 0.4, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Normal rows of unit variances, each column independent of all but its two neighbours, given these.

    Parameters
    ----------
    strength : float
        Of a link, below .5: the entries beside the diagonal of the precision matrix, before it is rescaled.
    """
    if not 0 <= strength < 0.5:
        raise DataError(f"strength must lie in [0, 0.5), got {strength!r}")
    generation = Generation("moments.chain_precision", placing, n_features=n_features, strength=strength)
    beside = np.diag(np.full(n_features - 1, strength), 1)
    return _normal(generation, n_rows, _correlation(np.linalg.inv(np.eye(n_features) + beside + beside.T)))


def sign_precision(
    n_rows: int, n_features: int = 400, *, share: float = 0.01, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """Normal rows with the precision ``U U' + I / 10``, U with a share of random signs.

    The setting of a published experiment (seed 000, section 6.3.6), kept as a warning: it has fewer rows than columns.
    """
    check_share("share", share)
    generation = Generation("moments.sign_precision", placing, n_features=n_features, share=share)
    generator = generation.truth_generator()
    U = generator.choice([-1.0, 1.0], (n_features, n_features))
    U *= generator.random((n_features, n_features)) < share
    return _normal(generation, n_rows, np.linalg.inv(U @ U.T + 0.1 * np.eye(n_features)))


def lb_spiked(
    n_rows: int,
    n_features: int = 40,
    *,
    n_components: int = 5,
    n_nonzero: int = 0,
    signal: float = 1.0,
    **placing: Unpack[Placing],
) -> tuple[Dataset, np.ndarray]:
    """The hardest instance for subspaces: normal rows of covariance ``(lam V V' + I) / (5 p (lam + 1))``.

    Rows are short (``E |x|^2`` is at most .2), and eigenvalues differ by ``lam / (5 p (lam + 1))`` (seed 000,
    equation 6.7).

    Parameters
    ----------
    signal : float
        lam.
    n_nonzero : int
        Columns of the subspace; 0: all.
    """
    given = {"n_features": n_features, "n_components": n_components, "n_nonzero": n_nonzero, "signal": signal}
    generation = Generation("moments.lb_spiked", placing, **given)
    V = sparse_basis(generation, n_features, n_components, n_nonzero or n_features)
    return _normal(generation, n_rows, (signal * V @ V.T + np.eye(n_features)) / (5 * n_features * (signal + 1)))


def lb_sparse_cov(
    n_rows: int, n_features: int = 40, *, n_nonzero: int = 2, signal: float = 0.2, **placing: Unpack[Placing]
) -> tuple[Dataset, np.ndarray]:
    """The hardest instance for sparse covariances: ``c (I + signal sum_m v_m A_m)``, ``c = 1 / (10 p)``.

    ``A_m`` joins column m of the first half to ``n_nonzero`` random ones of the second half, each of which is used
    ``2 n_nonzero`` times at most; v are random bits (seed 000, equation 6.37). Hardest where ``signal`` is about
    ``sqrt(ln p / (n epsilon^2))``.
    """
    if not 1 <= n_nonzero <= n_features // 4:
        raise DataError(f"n_nonzero must lie between 1 and n_features / 4 = {n_features // 4}, got {n_nonzero!r}")
    generation = Generation("moments.lb_sparse_cov", placing, n_features=n_features, n_nonzero=n_nonzero, signal=signal)
    generator, half = generation.truth_generator(), n_features // 2
    truth, used = np.eye(n_features), np.zeros(n_features - half, dtype=np.int64)
    for m in range(half):
        chosen = generator.permutation(np.flatnonzero(used < 2 * n_nonzero))[:n_nonzero]
        used[chosen] += 1
        truth[m, half + chosen] = truth[half + chosen, m] = signal * generator.integers(2)
    return _normal(generation, n_rows, truth / (10 * n_features))


def direction_moments(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """``E y y' / |y|^2`` of a normal vector y: an integral over one number, by the trapezoidal rule.

    ``1 / |y|^2`` is the integral of ``exp(-s |y|^2)`` over s, and y weighted by that is normal again, with the
    covariance ``(C^-1 + 2 s I)^-1``.

    Examples
    --------
    >>> direction_moments(np.zeros(3), np.eye(3)).round(9).tolist()[0]
    [0.333333333, 0.0, 0.0]
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    m, shrunk = vectors.T @ mean, 1 / (1 + 2 * np.outer(_NODES, values))
    log_weights = 0.5 * np.log(shrunk).sum(axis=1) - _NODES * (shrunk @ m**2)
    weights = _STEP * _NODES * np.exp(log_weights)
    inner = (shrunk * weights[:, None]).T @ shrunk * np.outer(m, m)
    inner[np.diag_indices(len(m))] += values * (weights @ shrunk)
    return np.asarray(vectors @ inner @ vectors.T)


def sparse_basis(generation: Generation, n_features: int, n_components: int, n_nonzero: int) -> np.ndarray:
    """Uniform orthonormal columns that are zero but in ``n_nonzero`` random rows."""
    _check_rank(n_components, n_features)
    if not n_components <= n_nonzero <= n_features:
        raise DataError(
            f"n_nonzero must lie between n_components = {n_components} and n_features = {n_features}, got {n_nonzero!r}"
        )
    generator = generation.truth_generator()
    V = np.zeros((n_features, n_components))
    V[generator.permutation(n_features)[:n_nonzero]] = _orthonormal(generator, n_nonzero, n_components)
    return V


def _check_rank(n_components: int, n_features: int) -> None:
    if not 1 <= n_components <= n_features:
        raise DataError(f"n_components must lie between 1 and n_features = {n_features}, got {n_components!r}")


def _orthonormal(generator: np.random.Generator, n: int, k: int) -> np.ndarray:
    q, r = np.linalg.qr(generator.standard_normal((n, k)))
    return np.asarray(q * np.sign(np.diag(r)))  # uniform: QR alone prefers some signs


def _correlation(covariance: np.ndarray) -> np.ndarray:
    scale = 1 / np.sqrt(np.diag(covariance))
    return np.asarray(covariance * np.outer(scale, scale))


def _normal(generation: Generation, n_rows: int, covariance: np.ndarray) -> tuple[Dataset, np.ndarray]:
    """Normal rows without a mean."""
    values, vectors = np.linalg.eigh(covariance)
    if not values[0] > 0:
        raise DataError(
            f"these parameters give no covariance matrix (smallest eigenvalue {values[0]:.3g}): take smaller "
            "correlations, signals or shares"
        )
    root = (vectors * np.sqrt(values)) @ vectors.T

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return generator.standard_normal(shape) @ root

    return generation.dataset(n_rows, covariance, rows=rows)


_MATRICES: tuple[Any, ...] = (CovarianceDistance, SecondMomentDistance)
_SHARED = ("n_components",)

PROBLEMS = (
    Problem(
        "spiked-unit", "subspaces: rows of norm 1 near one", spiked_unit,
        parameters(n_components=2, noise=0.5), (SubspaceDistance, *_MATRICES), shared=_SHARED,
    ),
    Problem(
        "sparse-spiked-unit", "sparse subspaces: rows of norm 1 near one of few columns", sparse_spiked_unit,
        parameters(d=80, n_components=1, n_nonzero=8, noise=1.0), (SparseSubspaceDistance, *_MATRICES), shared=_SHARED,
    ),
    Problem(
        "factor-rows", "subspaces: rows of norm 1 with a mean and ten factors, like those of real tables", factor_rows,
        parameters(d=54, n_components=1), (SubspaceDistance, *_MATRICES), shared=_SHARED,
    ),
    Problem(
        "lb-spiked", "subspaces: short rows that are hardest for private methods", lb_spiked,
        parameters(d=40, n_components=5, n_nonzero=0, signal=1.0), (SubspaceDistance, *_MATRICES), shared=_SHARED,
    ),
    Problem(
        "block-cov", "covariances: columns that are correlated in blocks", block_cov,
        parameters(d=60, block=4, correlation=0.5), _MATRICES,
    ),
    Problem(
        "thin-cov", "covariances: nearly a multiple of the identity, as published", thin_cov,
        parameters(d=100, share=0.2), _MATRICES,
    ),
    Problem(
        "lb-sparse-cov", "covariances: sparse ones that are hardest for private methods", lb_sparse_cov,
        parameters(d=40, n_nonzero=2, signal=0.2), _MATRICES,
    ),
    Problem(
        "chain-precision", "graphs: columns that depend on their two neighbours", chain_precision,
        parameters(d=15, strength=0.4), (PrecisionDistance, *_MATRICES),
    ),
    Problem(
        "sign-precision", "graphs: a precision matrix of few random signs, as published", sign_precision,
        parameters(d=400, share=0.01), (PrecisionDistance, *_MATRICES),
    ),
)  # fmt: skip

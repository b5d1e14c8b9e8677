"""Synthetic datasets of any size, written partition by partition.

Row values are keyed by the stream block (4096 consecutive global rows, fewer for wide rows) and drawn block by block
through `dpdist.privacy.streams.Stream`: they depend on ``random_state`` and the parameters of the generator, not on
``partition_rows``, on the store or on ``n_rows`` (the first rows of a longer dataset are the shorter dataset).
The truth is returned, because data that is generated has no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from dpdist.data.dataset import Dataset
from dpdist.data.schema import ArraySpec, Schema, new_id
from dpdist.data.writing import Compression, Location, write_group
from dpdist.errors import DataError
from dpdist.privacy.streams import Stream, block_size, run_key_from_seed

Rows = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
Labels = Callable[[np.random.Generator, np.ndarray], np.ndarray]
_ROWS, _LABELS, _TRUTH = 0, 1, 2


def logit(
    n_rows: int,
    n_features: int = 50,
    *,
    signal: float = 6.0,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Logistic model: ``x`` uniform on the unit sphere, ``P(y = 1) = sigmoid(<x, truth> sqrt(d) / 2)``.

    Parameters
    ----------
    n_rows, n_features : int
    signal : float
        Norm of the truth, whose direction is uniform.
    store : path, URL, zarr store or group, optional
        Where to write, in constant memory; in memory if not given.
    partition_rows : int, optional
        See `Dataset.from_arrays`; the values do not depend on it.
    dtype : {"float64", "float32", "float16"}
        Of X, rounded from the same float64 draws. Labels are 0 and 1 (int8).
    compression : {"none", "zstd"}
    random_state : int

    Returns
    -------
    dataset : Dataset
        With arrays X and y.
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = logit(1000, 5, random_state=1)
    >>> data.arrays
    {'X': ArraySpec(dtype='float64', shape=(1000, 5)), 'y': ArraySpec(dtype='int8', shape=(1000,))}
    >>> float(np.linalg.norm(truth).round(9))
    6.0
    """
    stream = Stream(run_key_from_seed(random_state), "synthetic.logit", n_features=n_features, signal=signal)
    truth = _directions(stream, 1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        margin = (X @ truth) * (math.sqrt(n_features) / 2)
        return generator.random(len(X)) < (1 + np.tanh(margin / 2)) / 2

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("int8", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression), truth


def linear(
    n_rows: int,
    n_features: int,
    *,
    noise: Literal["gaussian", "t3"] = "gaussian",
    noise_std: float = 0.1,
    signal: float = 1.0,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Linear model: ``x`` uniform on the unit sphere, ``y = <x, truth> + noise`` (float64).

    Parameters
    ----------
    noise : {"gaussian", "t3"}
        Law of the noise; "t3" is Student's t with 3 degrees of freedom (no third moment), scaled to ``noise_std``.
    noise_std : float
        Standard deviation of the noise.
    signal : float
        Norm of the truth, whose direction is uniform.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
    """
    if noise not in ("gaussian", "t3"):
        raise DataError(f'noise must be "gaussian" or "t3", got {noise!r}')
    parameters = {"n_features": n_features, "signal": signal, "noise": noise, "noise_std": noise_std}
    stream = Stream(run_key_from_seed(random_state), "synthetic.linear", **parameters)
    truth = _directions(stream, 1, n_features, signal)[0]

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        if noise == "gaussian":
            errors = generator.standard_normal(len(X))
        else:
            errors = generator.standard_t(3, len(X)) / math.sqrt(3)
        return X @ truth + noise_std * errors

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("float64", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression), truth


def multiclass(
    n_rows: int,
    n_features: int,
    n_classes: int,
    *,
    signal: float = 6.0,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Softmax model: ``x`` uniform on the unit sphere, ``P(y = k)`` proportional to ``exp(<x, truth_k> sqrt(d) / 2)``.

    Parameters
    ----------
    n_classes : int
        Labels are ``0 .. n_classes - 1`` (int32).
    signal : float
        Norm of every row of the truth, whose directions are independent and uniform.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_classes, n_features)
    """
    if n_classes < 2:
        raise DataError(f"n_classes must be at least 2, got {n_classes}")
    parameters = {"n_features": n_features, "n_classes": n_classes, "signal": signal}
    stream = Stream(run_key_from_seed(random_state), "synthetic.multiclass", **parameters)
    truth = _directions(stream, n_classes, n_features, signal)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        scores = (X @ truth.T) * (math.sqrt(n_features) / 2)
        # The largest of the scores with independent Gumbel noise has exactly the softmax law.
        return np.argmax(scores + generator.gumbel(size=scores.shape), axis=1)

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("int32", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression), truth


def heavy(
    n_rows: int,
    n_features: int = 10,
    *,
    law: Literal["normal", "student", "skewed"] = "normal",
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Linear model with heavy-tailed noise: ``y = <x, truth> + e``, e lognormal(1, 1) minus its mean (seed 000, 3.2.5).

    The noise has a standard deviation of 5.9 and is skewed; least squares has an error of ``5.9 sqrt(d / n)``.

    Parameters
    ----------
    law : {"normal", "student", "skewed"}
        Of the features, uncorrelated with mean square 1: standard normal; Student's t with 3 degrees of freedom; or
        exponential minus its mean, with the first feature 1 in every row.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)
        Of norm 1 and uniform direction.

    Examples
    --------
    >>> data, truth = heavy(1000, 5, law="skewed")
    >>> bool((data.read(0, 1000)["X"][:, 0] == 1).all()), float(np.linalg.norm(truth).round(9))
    (True, 1.0)
    """
    if law not in ("normal", "student", "skewed"):
        raise DataError(f'law must be "normal", "student" or "skewed", got {law!r}')
    stream = Stream(run_key_from_seed(random_state), "synthetic.heavy", n_features=n_features, law=law)
    truth = _directions(stream, 1, n_features, 1.0)[0]

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        if law == "normal":
            return generator.standard_normal(shape)
        if law == "student":
            return generator.standard_t(3, shape) / math.sqrt(3)
        X = generator.standard_exponential(shape) - 1
        X[:, 0] = 1.0
        return X

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return X @ truth + generator.lognormal(1.0, 1.0, len(X)) - math.exp(1.5)

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("float64", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression, rows), truth


def _student(degrees: float) -> Rows:
    """Student rows of unit variance."""
    if not degrees > 2:
        raise DataError(f"degrees must exceed 2 (below, there is no variance), got {degrees!r}")
    scale = math.sqrt(1 - 2 / degrees)
    return lambda generator, shape: generator.standard_t(degrees, shape) * scale


def sparse_l1(
    n_rows: int,
    n_features: int = 1000,
    *,
    n_nonzero: int = 20,
    coefficient: float = 8.0,
    n_draws: int = 20,
    exponent: float = 0.7,
    store: Location | None = None,
    partition_rows: int | None = None,
    dtype: str = "float64",
    compression: Compression = "none",
    random_state: int = 0,
) -> tuple[Dataset, np.ndarray]:
    """Sparse logistic model of sparse rows, as word counts are: ``P(y = 1) = sigmoid(<x, truth>)``.

    A row marks the columns that ``n_draws`` draws from ``P(j) ~ j**-exponent`` (j = 1, 2, ...) hit, has norm 1, and
    entries above 0.5 are cut there. The truth is ``+-coefficient`` on the ``n_nonzero`` most frequent columns, which
    are the first ones, and 0 elsewhere (the design of seed 000, section 3.1.5, for l1 balls).

    Parameters
    ----------
    n_nonzero : int
        Number of columns that matter (all, if there are fewer).
    coefficient : float
        Size of their coefficients; the signs are independent and fair.
    n_draws : int
        Draws per row; a column that is hit twice counts once.
    exponent : float
        0 makes all columns equally frequent.
    n_rows, n_features, store, partition_rows, dtype, compression, random_state
        As in `logit`.

    Returns
    -------
    dataset : Dataset
    truth : ndarray of shape (n_features,)

    Examples
    --------
    >>> data, truth = sparse_l1(1000, 200, random_state=1)
    >>> int(np.count_nonzero(truth)), float(np.abs(truth).sum())
    (20, 160.0)
    """
    if min(n_features, n_nonzero, n_draws) < 1:
        raise DataError(
            f"n_features, n_nonzero and n_draws must be at least 1, got {n_features}, {n_nonzero} and {n_draws}"
        )
    n_nonzero = min(n_nonzero, n_features)
    parameters = {
        "n_features": n_features,
        "n_nonzero": n_nonzero,
        "coefficient": coefficient,
        "n_draws": n_draws,
        "exponent": exponent,
    }
    stream = Stream(run_key_from_seed(random_state), "synthetic.sparse_l1", **parameters)
    truth = np.zeros(n_features)
    truth[:n_nonzero] = coefficient * stream.generator(0, _TRUTH).choice([-1.0, 1.0], n_nonzero)
    reach = np.cumsum(np.arange(1, n_features + 1, dtype=np.float64) ** -exponent)

    def rows(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        hit = np.searchsorted(reach, generator.random((shape[0], n_draws)) * reach[-1], side="right")
        X = np.zeros(shape)
        np.put_along_axis(X, np.minimum(hit, n_features - 1), 1.0, axis=1)
        return np.minimum(_unit_rows(X), 0.5)

    def labels(generator: np.random.Generator, X: np.ndarray) -> np.ndarray:
        return generator.random(len(X)) < (1 + np.tanh(X @ truth / 2)) / 2

    X_spec, y_spec = ArraySpec(dtype, (n_rows, n_features)), ArraySpec("int8", (n_rows,))
    return _make(stream, labels, X_spec, y_spec, store, partition_rows, compression, rows), truth


def _directions(stream: Stream, count: int, n_features: int, norm: float) -> np.ndarray:
    if n_features < 1:
        raise DataError(f"n_features must be at least 1, got {n_features}")
    return norm * _unit_rows(stream.generator(0, _TRUTH).standard_normal((count, n_features)))


def _unit_rows(X: np.ndarray) -> np.ndarray:
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return X


def _on_sphere(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return _unit_rows(generator.standard_normal(shape))


def _make(
    stream: Stream,
    labels: Labels | None,
    X_spec: ArraySpec,
    y_spec: ArraySpec | None,
    store: Location | None,
    partition_rows: int | None,
    compression: Compression,
    rows: Rows = _on_sphere,
) -> Dataset:
    n_rows, n_features = X_spec.shape
    if n_rows < 1:
        raise DataError(f"n_rows must be at least 1, got {n_rows}")
    if X_spec.dtype not in ("float64", "float32", "float16"):
        raise DataError(f'dtype must be "float64", "float32" or "float16", got {X_spec.dtype!r}')
    block_rows = block_size(n_features)

    specs = {"X": X_spec} if y_spec is None else {"X": X_spec, "y": y_spec}

    def fill(start: int, stop: int) -> dict[str, np.ndarray]:
        filled = {name: np.empty((stop - start, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}
        for block in range(start // block_rows, -(-stop // block_rows)):
            first = block * block_rows
            low, high = max(start, first), min(stop, first + block_rows)
            # Always the whole block: products of fewer rows could round differently and flip a label.
            X_block = rows(stream.generator(block, _ROWS), (block_rows, n_features))
            filled["X"][low - start : high - start] = X_block[low - first : high - first]
            if labels is not None:
                y_block = labels(stream.generator(block, _LABELS), X_block)
                filled["y"][low - start : high - start] = y_block[low - first : high - first]
        return filled

    schema = Schema(id=new_id(), arrays=specs, row_order="arrival", partition_rows=partition_rows)
    if store is not None:
        return Dataset.open(write_group(store, schema, fill, compression=compression))
    arrays: dict[str, Any] = fill(0, n_rows)
    return Dataset.from_arrays(partition_rows=partition_rows, dataset_id=schema.id, row_order="arrival", **arrays)

"""What all generators of datasets share: a stream of their own, rows and labels block by block, and where they go.

Row values are keyed by the stream block (4096 consecutive global rows, fewer for wide rows) and drawn block by block
through `dpdist.privacy.randomness.streams.Stream`: they depend on ``random_state`` and the parameters of the generator,
not on ``partition_rows``, on the store or on ``n_rows`` (the first rows of a longer dataset are the shorter dataset).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np
from scipy.special import log_expit

from dpdist.data.dataset import Dataset
from dpdist.data.dataset_schema import ArraySpec, Schema, new_id
from dpdist.data.stores import Location
from dpdist.data.writing import Compression, write_group
from dpdist.errors import DataError
from dpdist.privacy.randomness.streams import Stream, block_size, run_key_from_seed

Rows = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
Labels = Callable[[np.random.Generator, np.ndarray], np.ndarray]
_ROWS, _LABELS, _TRUTH, _HIDDEN = 0, 1, 2, 3


class Placing(TypedDict, total=False):
    """Keyword arguments that all generators take, as `dpdist.problems.linear_problems.logit` explains them."""

    store: Location | None
    partition_rows: int | None
    dtype: str
    compression: Compression
    random_state: int


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Scale the rows to norm 1, in place."""
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return X


def on_sphere(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Rows that are uniform on the unit sphere."""
    return unit_rows(generator.standard_normal(shape))


def student(degrees: float) -> Rows:
    """Student rows of unit variance."""
    if not degrees > 2:
        raise DataError(f"degrees must exceed 2 (below, there is no variance), got {degrees!r}")
    scale = math.sqrt(1 - 2 / degrees)
    return lambda generator, shape: generator.standard_t(degrees, shape) * scale


def logistic(truth: np.ndarray) -> Labels:
    """Labels 0 and 1 with ``P(y = 1) = sigmoid(<x, truth>)``."""
    return lambda generator, X: generator.random(len(X)) < (1 + np.tanh(X @ truth / 2)) / 2


def logistic_law(X: np.ndarray, truth: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
    """Logarithms of the probabilities of `logistic` labels."""
    return np.column_stack([log_expit(-X @ truth), log_expit(X @ truth)])


def linear_means(X: np.ndarray, truth: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
    """Means of the labels of linear models."""
    return X @ truth


def check_share(name: str, value: float) -> None:
    """Refuse what is no fraction of the rows."""
    if not 0 <= value <= 1:
        raise DataError(f"{name} is a fraction of the rows, between 0 and 1, got {value!r}")


class Generation:
    """One call of a generator.

    Parameters
    ----------
    name : str
        Of the generator; with the parameters and ``random_state`` it keys all draws.
    placing : Placing
    **parameters
        Whatever the law of the rows depends on.
    """

    def __init__(self, name: str, placing: Placing, **parameters: Any) -> None:
        if unknown := sorted(set(placing) - set(Placing.__annotations__)):
            raise TypeError(f"{name.rpartition('.')[2]}() got an unexpected keyword argument {unknown[0]!r}")
        self.stream = Stream(run_key_from_seed(placing.get("random_state", 0)), name, **parameters)
        self._placing = placing

    def truth_generator(self, block: int = 0) -> np.random.Generator:
        """For draws that belong to no row."""
        return self.stream.generator(block, _TRUTH)

    def row_generator(self, block: int) -> np.random.Generator:
        """For the rows of a block, at its beginning."""
        return self.stream.generator(block, _ROWS)

    def directions(self, count: int, n_features: int, norm: float) -> np.ndarray:
        """``count`` independent vectors of that norm in uniform directions."""
        if n_features < 1:
            raise DataError(f"n_features must be at least 1, got {n_features}")
        return norm * unit_rows(self.truth_generator().standard_normal((count, n_features)))

    def dataset(
        self,
        n_rows: int,
        truth: np.ndarray,
        labels: Labels | None = None,
        label_dtype: str = "int8",
        rows: Rows = on_sphere,
        unit: str = "row",
        hidden: Labels | None = None,
    ) -> tuple[Dataset, np.ndarray]:
        """Rows as long as ``truth``, with labels if there are any, where they were asked to go; and the truth.

        ``hidden`` says which cells of rows nobody sees; labels are those of the whole rows.
        """
        n_features, dtype = truth.shape[-1], self._placing.get("dtype", "float64")
        if n_rows < 1:
            raise DataError(f"n_rows must be at least 1, got {n_rows}")
        if dtype not in ("float64", "float32", "float16"):
            raise DataError(f'dtype must be "float64", "float32" or "float16", got {dtype!r}')
        block_rows = block_size(n_features)
        specs = {"X": ArraySpec(dtype, (n_rows, n_features))}
        if labels is not None:
            specs["y"] = ArraySpec(label_dtype, (n_rows,))

        def fill(start: int, stop: int) -> dict[str, np.ndarray]:
            filled = {name: np.empty((stop - start, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}
            for block in range(start // block_rows, -(-stop // block_rows)):
                first = block * block_rows
                low, high = max(start, first), min(stop, first + block_rows)
                # Always the whole block: products of fewer rows could round differently and flip a label.
                X_block = rows(self.row_generator(block), (block_rows, n_features))
                if labels is not None:
                    y_block = labels(self.stream.generator(block, _LABELS), X_block)
                    filled["y"][low - start : high - start] = y_block[low - first : high - first]
                if hidden is not None:
                    X_block = np.where(hidden(self.stream.generator(block, _HIDDEN), X_block), np.nan, X_block)
                filled["X"][low - start : high - start] = X_block[low - first : high - first]
            return filled

        partition_rows = self._placing.get("partition_rows")
        missing = () if hidden is None else tuple(map(str, range(n_features)))
        schema = Schema(
            id=new_id(), arrays=specs, row_order="arrival", unit=unit, partition_rows=partition_rows, missing=missing
        )
        store = self._placing.get("store")
        if store is not None:
            compression = self._placing.get("compression", "none")
            return Dataset.open(write_group(store, schema, fill, compression=compression)), truth
        arrays: dict[str, Any] = fill(0, n_rows)
        placed: dict[str, Any] = {
            "partition_rows": partition_rows, "row_order": "arrival", "unit": unit, "missing": missing,
        }  # fmt: skip
        return Dataset.from_arrays(dataset_id=schema.id, **placed, **arrays), truth


def sparse_direction(generation: Generation, n_features: int, n_nonzero: int) -> np.ndarray:
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

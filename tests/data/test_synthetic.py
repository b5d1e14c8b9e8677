"""Generators: the declared laws, values that do not depend on the partitioning, and constant memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpdist.data import Dataset
from dpdist.data.synthetic import linear, logit, multiclass
from dpdist.errors import DataError

GENERATORS: list[Any] = [
    lambda n, **options: logit(n, 6, **options),
    lambda n, **options: linear(n, 6, **options),
    lambda n, **options: linear(n, 6, noise="t3", **options),
    lambda n, **options: multiclass(n, 6, 4, **options),
]


def everything(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    block = data.read(0, data.n_rows)
    return block["X"], block["y"]


@pytest.mark.parametrize("generate", GENERATORS)
def test_values_do_not_depend_on_the_partitioning(tmp_path: Path, generate: Any) -> None:
    n = 10_000
    plain, truth = generate(n, random_state=5)
    X, y = everything(plain)
    for place, rows in [(None, 1000), (tmp_path / "a", None), (tmp_path / "b", 1000), (tmp_path / "c", 7777)]:
        data, same_truth = generate(n, random_state=5, store=place, partition_rows=rows)
        np.testing.assert_array_equal(truth, same_truth)
        np.testing.assert_array_equal(everything(data)[0], X)
        np.testing.assert_array_equal(everything(data)[1], y)
        assert data.partitions[0] == (0, rows or n)
        assert data.in_memory == (place is None)
    shorter = everything(generate(4500, random_state=5)[0])
    np.testing.assert_array_equal(shorter[0], X[:4500])
    np.testing.assert_array_equal(shorter[1], y[:4500])
    single = everything(generate(n, random_state=5, dtype="float32")[0])
    np.testing.assert_array_equal(single[0], X.astype("f4"))
    np.testing.assert_array_equal(single[1], y)
    assert not np.array_equal(everything(generate(n, random_state=6)[0])[0], X)
    # Blocks are different numbers.
    assert len(np.unique(X[:, 0])) == n


def test_wide_rows_use_smaller_blocks() -> None:
    X, _ = everything(logit(20, 300_000, random_state=1)[0])
    Z, _ = everything(logit(17, 300_000, random_state=1)[0])
    np.testing.assert_array_equal(X[:17], Z)


def test_logit_follows_its_law() -> None:
    """Margins in 20 bins: chi-squared at a false-alarm probability below 1e-6 (and the seed is fixed)."""
    data, truth = logit(200_000, 50, random_state=2)
    X, y = everything(data)
    assert X.dtype == np.float64 and y.dtype == np.int8 and set(np.unique(y)) == {0, 1}
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-12)
    assert np.linalg.norm(truth) == pytest.approx(6)
    probability = 1 / (1 + np.exp(-X @ truth * np.sqrt(50) / 2))
    bins = np.argsort(np.argsort(probability)) * 20 // len(y)
    expected = np.bincount(bins, probability)
    spread = np.bincount(bins, probability * (1 - probability))
    score = np.sum((np.bincount(bins, y) - expected) ** 2 / spread)
    assert score < stats.chi2.isf(1e-6, 20)
    # x is uniform on the sphere: coordinates have mean 0 and variance 1/d.
    assert np.abs(X.mean(axis=0)).max() < 6 / np.sqrt(50 * len(y))
    np.testing.assert_allclose(X.var(axis=0), 1 / 50, rtol=0.03)


@pytest.mark.parametrize(("noise", "law"), [("gaussian", stats.norm()), ("t3", stats.t(3, scale=3**-0.5))])
def test_linear_follows_its_law(noise: Any, law: Any) -> None:
    data, truth = linear(100_000, 10, noise=noise, noise_std=0.5, signal=2.0, random_state=3)
    X, y = everything(data)
    assert np.linalg.norm(truth) == pytest.approx(2)
    assert law.std() == pytest.approx(1)
    assert stats.kstest((y - X @ truth) / 0.5, law.cdf).pvalue > 1e-6
    np.testing.assert_allclose(np.linalg.lstsq(X, y, rcond=None)[0], truth, atol=6 * 0.5 * np.sqrt(10 / 100_000))


def test_multiclass_follows_its_law() -> None:
    data, truth = multiclass(100_000, 8, 5, random_state=4)
    X, y = everything(data)
    assert truth.shape == (5, 8) and y.dtype == np.int32 and set(np.unique(y)) == set(range(5))
    np.testing.assert_allclose(np.linalg.norm(truth, axis=1), 6)
    scores = np.exp(X @ truth.T * np.sqrt(8) / 2)
    probability = scores / scores.sum(axis=1, keepdims=True)
    for k in range(5):
        deviation = np.sum((y == k) - probability[:, k])
        assert abs(deviation) < 5.5 * np.sqrt(np.sum(probability[:, k] * (1 - probability[:, k])))
        deviation = np.sum(((y == k) - probability[:, k]) * probability[:, k])
        assert abs(deviation) < 5.5 * np.sqrt(np.sum(probability[:, k] ** 3 * (1 - probability[:, k])))


def test_ids_are_random_and_order_is_arrival() -> None:
    first, second = logit(10, 2)[0], logit(10, 2)[0]
    assert first.id != second.id
    assert first.schema.row_order == "arrival"


def test_refusals() -> None:
    for call in (
        lambda: logit(0),
        lambda: logit(5, 0),
        lambda: logit(5, 2, dtype="int8"),
        lambda: linear(5, 2, noise="cauchy"),  # type: ignore[arg-type]
        lambda: multiclass(5, 2, 1),
        lambda: logit(5, 2, partition_rows=0),
    ):
        with pytest.raises(DataError):
            call()

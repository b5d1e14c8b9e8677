"""Generators: the declared laws, values that do not depend on the partitioning, and constant memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpdist.data import Dataset
from dpdist.errors import DataError
from dpdist.problems.linear_problems import linear, logit, multiclass, sparse_l1
from dpdist.problems.mean_problems import spiky_sparse
from dpdist.problems.sparse_problems import heavy_logistic, heavy_sparse

GENERATORS: list[Any] = [
    lambda n, **options: logit(n, 6, **options),
    lambda n, **options: linear(n, 6, **options),
    lambda n, **options: linear(n, 6, noise="t3", **options),
    lambda n, **options: multiclass(n, 6, 4, **options),
    lambda n, **options: heavy_sparse(n, 9, outliers=0.1, **options),
    lambda n, **options: heavy_logistic(n, 6, **options),
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


def test_heavy_tails_follow_their_laws() -> None:
    """Kolmogorov-Smirnov at a false-alarm probability below 1e-6 each (and the seeds are fixed)."""
    data, truth = heavy_sparse(50_000, 8, coefficients=(0.25, -0.25), noise_std=0.25, random_state=3)
    X, y = everything(data)
    assert truth.tolist() == [0.25, -0.25] + [0.0] * 6
    assert stats.kstest(X[:, 3], stats.t(5, scale=0.6**0.5).cdf).pvalue > 1e-6
    assert stats.kstest(y - X @ truth, stats.t(3, scale=0.25 * 3**-0.5).cdf).pvalue > 1e-6
    X, y = everything(heavy_sparse(50_000, 8, outliers=0.1, random_state=3)[0])
    assert abs(np.mean(np.abs(y) == 20) - 0.1) < 0.01
    assert np.all(y[np.abs(y) == 20] == 20 * np.sign(X[np.abs(y) == 20, 7]))
    X, y = everything(heavy_logistic(50_000, 8, random_state=3)[0])
    truth = np.array([1.2, -1.2, 0.9, -0.9, 0, 0, 0, 0])
    assert stats.kstest(X[:, 3], stats.t(4, scale=0.5**0.5).cdf).pvalue > 1e-6
    # the published log-loss of the truth in this setting
    assert np.logaddexp(0, -(2.0 * y - 1) * (X @ truth)).mean() == pytest.approx(0.47, abs=0.01)


def test_spikes_hold_the_mean() -> None:
    data, mean = spiky_sparse(20_000, 30, n_nonzero=4, second_moment=2.0, share=0.02, random_state=1)
    assert list(data.arrays) == ["X"]
    X = data.read(0, data.n_rows)["X"]
    spikes = X[X.any(axis=1)]
    assert abs(len(spikes) / 20_000 - 0.02) < 0.006  # 6 standard deviations
    np.testing.assert_allclose(spikes[0], mean / 0.02)
    assert np.count_nonzero(mean) == 4 and np.allclose(np.abs(spikes[0][mean != 0]), 10.0)


@pytest.mark.parametrize(
    "generate",
    [
        lambda: heavy_sparse(10, 3),
        lambda: heavy_sparse(10, 7, outliers=0.1),
        lambda: heavy_sparse(10, 9, outliers=1.1),
        lambda: heavy_sparse(10, 9, degrees=2.0),
        lambda: heavy_logistic(10, 9, coefficients=()),
        lambda: spiky_sparse(10, 3, n_nonzero=4),
        lambda: spiky_sparse(10, 3, n_nonzero=1, share=2.0),
    ],
)
def test_impossible_settings_are_refused(generate: Any) -> None:
    with pytest.raises(DataError):
        generate()


def test_sparse_rows_follow_their_law() -> None:
    """Frequencies of columns and labels; six standard deviations (and the seed is fixed)."""
    n, d = 50_000, 40
    data, truth = sparse_l1(n, d, n_nonzero=3, coefficient=4.0, n_draws=5, random_state=7)
    X, y = everything(data)
    assert sorted(np.abs(truth)) == [0.0] * 37 + [4.0] * 3 and truth[:3].all()
    counts = np.count_nonzero(X, axis=1)
    assert counts.min() >= 1 and counts.max() == 5
    np.testing.assert_allclose(X.max(axis=1), np.minimum(1 / np.sqrt(counts), 0.5))
    np.testing.assert_allclose(X.sum(axis=1), counts * X.max(axis=1))  # all entries of a row are equal
    reach = np.arange(1, d + 1) ** -0.7
    hit = 1 - (1 - reach / reach.sum()) ** 5
    assert np.all(np.abs((X > 0).mean(axis=0) - hit) < 6 * np.sqrt(hit / n))
    probability = 1 / (1 + np.exp(-X @ truth))
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        chosen = (probability >= low) & (probability <= high)
        assert chosen.sum() > 1000
        assert abs(np.sum(y[chosen] - probability[chosen])) < 6 * np.sqrt(chosen.sum()) / 2


@pytest.mark.parametrize("options", [{"n_nonzero": 0}, {"n_features": 0}, {"n_draws": 0}])
def test_impossible_sparse_rows_are_refused(options: Any) -> None:
    with pytest.raises(DataError):
        sparse_l1(10, **options)

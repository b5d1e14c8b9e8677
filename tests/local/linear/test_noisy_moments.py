"""Second moments of Gaussian reports: private, unbiased, exact sums, and one law for both fidelities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dpdist import Dataset
from dpdist.kernels.moments import unpack_symmetric
from dpdist.local.linear.noisy_moments import FINENESS, GaussianMoments
from dpdist.local.statistics.bounded_values import Ball
from dpdist.local.statistics.labelled import RowAndLabel
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.local.survey.simulation import simulate
from dpdist.privacy.accounting.closed_forms import gdp_delta
from dpdist.privacy.randomness.draws import StreamDraws, SystemDraws


def vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    V = np.random.default_rng(seed).normal(size=(n, d))
    return V / np.maximum(1.0, np.linalg.norm(V, axis=1))[:, None]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_a_copy_hides_the_diameter_of_the_ball(epsilon):
    std = GaussianMoments(3, epsilon, 1e-5).copy_std
    assert gdp_delta(epsilon, 2 / std) <= 1e-5 * (1 + 1e-9)
    printed = math.sqrt(2 * math.log(1.25e5)) / epsilon  # seed 001, Algorithm 1: as if the diameter were 1
    assert gdp_delta(epsilon, 2 / printed) > 1e-5


def test_the_moments_are_unbiased_with_the_variance_of_the_formula():
    moments, v, n = GaussianMoments(2, 4.0, 1e-6), np.array([0.8, -0.6]), 400_000
    generator = np.random.default_rng(1)
    reports = moments.randomise(np.tile(v, (n, 1)), StreamDraws(generator)) * moments.copy_grid
    s = moments.copy_std
    for i, j in ((0, 0), (0, 1), (1, 1)):
        products = reports[:, i] * reports[:, j] - (s**2 if i == j else 0.0)
        variance = (1 + (i == j)) * (s**4 + s**2 * (v[i] ** 2 + v[j] ** 2))
        assert abs(products.mean() - v[i] * v[j]) < 6 * math.sqrt(variance / n)
        assert abs(products.var() / variance - 1) < 0.05
        assert variance <= moments.noise_std**2 * (1 + 1e-12)
    found = moments.decode(moments.accumulate((reports / moments.copy_grid).astype(np.int32)) * moments.grid, n)
    assert (abs(found - [0.64, -0.48, 0.36]) < 6 * moments.noise_std / math.sqrt(n)).all()


def _features(sums: np.ndarray, d: int) -> np.ndarray:
    matrices = np.array([unpack_symmetric(row) for row in sums])
    return np.column_stack([sums, matrices.trace(axis1=1, axis2=2), np.linalg.eigvalsh(matrices)[:, 1:]])


@pytest.mark.parametrize("n", [2, 5, 12, 40])  # fewer users than coordinates, few, many
def test_the_sum_of_the_reports_has_the_law_that_is_drawn_directly(n):
    moments, V = GaussianMoments(3, 8.0, 1e-6), vectors(n, 3)
    generator = np.random.default_rng(n)
    draws = StreamDraws(generator)
    by_report = np.array([moments.summarise(V, draws) for _ in range(4000)]) * moments.grid
    at_once = np.array([moments.draw_sum(V, generator) for _ in range(4000)]) * moments.grid
    for one, other in zip(_features(by_report, 3).T, _features(at_once, 3).T, strict=True):
        assert ks_2samp(one, other).pvalue > 1e-7


def test_forgetting_the_rows_would_be_noticed():
    """The same test on a broken law: the noise of the sum without its product with the rows."""
    moments, V = GaussianMoments(3, 8.0, 1e-6), vectors(12, 3) * [1.0, 0.1, 0.1]
    generator = np.random.default_rng(0)
    ours = np.array([moments.draw_sum(V, generator)[0] for _ in range(4000)]) * moments.grid
    broken = np.array([moments.draw_sum(V * 0, generator)[0] for _ in range(4000)]) * moments.grid + (V[:, 0] @ V[:, 0])
    assert ks_2samp(ours, broken).pvalue < 1e-7


def test_products_add_up_exactly_whatever_they_are():
    moments = GaussianMoments(4, 1.0, 1e-6)
    rng = np.random.default_rng(0)
    limit = math.isqrt(moments.units)
    reports = rng.choice([-limit, limit, limit - 1, 7], size=(5000, 4)).astype(np.int32)
    exact = reports.astype(object).T @ reports.astype(object)
    assert (moments.accumulate(reports) == exact[np.triu_indices(4)].astype(np.int64)).all()
    parts = moments.accumulate(reports[:1234]) + moments.accumulate(reports[1234:][::-1])
    assert (parts == moments.accumulate(reports)).all()
    assert moments.valid(reports).all() and not moments.valid(reports * 2).all()
    assert moments.units * 4096 < 2**53 and FINENESS == 4096


@pytest.mark.parametrize("fidelity", ["report", "sum"])
@pytest.mark.parametrize("partition_rows", [1000, 4096, 20_000])
def test_the_sum_does_not_depend_on_the_partitions(fidelity, partition_rows, tmp_path):
    protocol, X = LocalProtocol(Ball(3), GaussianMoments(3, 2.0, 1e-6)), vectors(20_000, 3)
    stored = Dataset.from_arrays(tmp_path / "a.zarr", X=X, partition_rows=partition_rows)
    ours = simulate(protocol, stored, random_state=3, fidelity=fidelity, run_id=None)
    assert (ours.total == simulate(protocol, {"X": X}, random_state=3, fidelity=fidelity).total).all()


def test_any_record_is_a_vector_of_the_ball():
    bad = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [1e300, -1e300, 1e300], [0, 0, 0], [5e-324, 0, 0], [3, 4, 0]])
    y = np.array([1.0, 1.0, 1e300, np.nan, -np.inf, -7.0])
    statistic = RowAndLabel(3, row_norm=2.0, label_bound=3.0, share=0.8)
    with np.errstate(all="raise"):
        values = statistic.values({"X": bad, "y": y})
        assert GaussianMoments(4, 1.0, 1e-6).valid(GaussianMoments(4, 1.0, 1e-6).randomise(values, SystemDraws())).all()
    assert (np.linalg.norm(values, axis=1) <= 1).all() and not values[[0, 1, 3, 4]].any()
    assert np.allclose(values[5], [math.sqrt(0.8) * 0.6, math.sqrt(0.8) * 0.8, 0, -math.sqrt(0.2)])
    packed = np.outer(values[5], values[5])[np.triu_indices(4)]
    expected = np.outer([1.2, 1.6, 0, -3], [1.2, 1.6, 0, -3])
    assert np.allclose(unpack_symmetric(statistic.restore(packed)), expected)

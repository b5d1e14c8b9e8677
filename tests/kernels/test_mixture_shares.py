"""Sums of an expectation step: a plain twin, whatever the blocks, and factors that are truncated, not products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import softmax

from dpdist.kernels.mixture_shares import UNIT, Components, mixture_sums

rng = np.random.default_rng(0)
THREE = Components(np.array([0.2, 0.5, 0.3]), rng.normal(size=(3, 4)) * 2, rng.uniform(0.3, 2.0, (3, 4)))


def plain(X, components, row_norm):
    """In floats, without truncation."""
    X = X[np.isfinite(X).all(axis=1)]
    X = X * np.minimum(1, row_norm / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    r, Z = softmax(components.log_densities(X), axis=1), X / row_norm
    return (r.T @ np.column_stack([np.ones(len(Z)), Z, Z**2])).ravel()


@pytest.mark.parametrize("row_norm", [0.5, 3.0, 100.0])
def test_the_sums_are_those_of_a_plain_twin(row_norm):
    X = np.random.default_rng(1).normal(size=(9000, 4)) * 2
    X[5], X[6, 2] = np.inf, np.nan
    found = mixture_sums(X, THREE, row_norm) * UNIT
    assert np.allclose(found, plain(X, THREE, row_norm), atol=9000 * 2.0**-15)


def test_blocks_and_places_change_nothing():
    X = np.random.default_rng(2).normal(size=(6000, 4)) * 2
    whole = mixture_sums(X, THREE, 3.0)
    assert np.array_equal(whole, sum(mixture_sums(X[a : a + 777], THREE, 3.0) for a in range(0, 6000, 777)))
    assert np.array_equal(whole, mixture_sums(X[::-1], THREE, 3.0))


def test_every_row_counts_once_at_most():
    X = np.random.default_rng(3).normal(size=(500, 4)) * 10.0 ** np.arange(-250, 250)[:, None]
    for x in X:
        units = mixture_sums(x[None], THREE, 1.0).reshape(3, -1)
        assert units[:, 0].sum() <= 1 / UNIT and units[:, 0].min() >= 0
        assert math.isqrt(sum(int(u) ** 2 for u in units.ravel())) <= math.sqrt(3) / UNIT


@pytest.mark.parametrize("extreme", [1e308, -1e308, 5e-324, np.inf, np.nan])
def test_points_of_any_size_do_no_harm(extreme):
    for change in ("weights", "means", "variances"):
        points = {name: getattr(THREE, name).copy() for name in ("weights", "means", "variances")}
        points[change].ravel()[1] = extreme
        units = mixture_sums(np.ones((10, 4)), Components(**points), 3.0).reshape(3, -1)
        assert 0 <= units[:, 0].sum() <= 10 / UNIT


def test_densities_are_those_of_normal_components():
    X = np.random.default_rng(4).normal(size=(20, 4))
    for k in range(3):
        square = ((X - THREE.means[k]) ** 2 / THREE.variances[k]).sum(axis=1)
        expected = np.log(THREE.weights[k]) - square / 2 - np.log(2 * np.pi * THREE.variances[k]).sum() / 2
        assert np.allclose(THREE.log_densities(X)[:, k], expected)

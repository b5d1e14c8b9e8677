"""Models with a hidden part: gradients are those of the likelihood, sums are what they say, bounds hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.kernels.grid import grid_for
from dpdist.kernels.latent import MixedLines, TwoComponents, distance
from dpdist.kernels.truncation import SmoothTruncation, SoftTruncation

MODELS = [TwoComponents(1.3), MixedLines(0.8)]
NAMES = ["two components", "mixed lines"]


def drawn(model, n, b, seed=0):
    """Rows of the model itself."""
    rng = np.random.default_rng(seed)
    z, noise = rng.choice([-1.0, 1.0], n), model.noise_std
    if isinstance(model, TwoComponents):
        return z[:, None] * b + noise * rng.normal(size=(n, b.size)), None
    X = rng.normal(size=(n, b.size))
    return X, z * (X @ b) + noise * rng.normal(size=n)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_gradients_are_those_of_the_likelihood(model):
    """Fisher's identity, by finite differences, at points far from and near the truth."""
    rng = np.random.default_rng(1)
    X, y, h = rng.normal(size=(40, 4)) * 2, rng.normal(size=40) * 3, 1e-6
    for scale in (0.05, 1.0, 3.0):
        b = rng.normal(size=4) * scale
        ahead, behind = (
            np.array([model.log_likelihood(X, y, b + s * h * axis) for axis in np.eye(4)]).T for s in (1, -1)
        )
        numeric = (ahead - behind) / (2 * h) * model.noise_std**2
        assert np.abs(numeric - model.row_gradients(X, y, b)).max() < 1e-6


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_likelihood_is_a_density(model):
    """Its integral is 1: over the row, in one dimension, or over the label."""
    t = np.linspace(-40, 40, 200_001)
    X, y = (t[:, None], None) if not model.labelled else (np.full((t.size, 1), 0.7), t)
    total = np.exp(model.log_likelihood(X, y, np.array([2.5]))).sum() * (t[1] - t[0])
    assert total == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", [TwoComponents, MixedLines], ids=NAMES)
@pytest.mark.parametrize("snr", [1.0, 3.0])
def test_the_truth_is_a_fixed_point(kind, snr):
    """With half of the weight's argument, as printed, it is none where components overlap (D6)."""
    model, b, n = kind(1.0), np.array([snr, 0.0, 0.0, 0.0]), 400_000
    X, y = drawn(model, n, b)
    gradients = model.row_gradients(X, y, b)
    error = gradients.std(axis=0) / math.sqrt(n)
    assert (np.abs(gradients.mean(axis=0)) < 5.5 * error).all()
    response = X if y is None else X * y[:, None]
    printed = np.tanh(np.arctanh(np.clip(model.weight(X, y, b), -1 + 1e-12, 1 - 1e-12)) / 2)[:, None] * response
    printed = (printed - b if y is None else printed - (X @ b)[:, None] * X).mean(axis=0)
    assert (np.abs(printed) > 6 * error).any() or snr > 2


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_sums_are_those_of_bounded_gradients(model):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(1000, 5)) * 2, rng.normal(size=1000) * 3
    X[3], y[7] = np.nan, np.inf
    b = rng.normal(size=5)
    good = np.isfinite(X).all(axis=1) & (np.isfinite(y) | (not model.labelled))
    g = model.row_gradients(X[good], y[good], b)
    for bound in (0.3, 2.0, 1e6):
        found = model.clipped_sum(X, y, b, bound, grid_for(bound), None) * grid_for(bound)
        clipped = g * np.minimum(1.0, bound / np.linalg.norm(g, axis=1))[:, None]
        assert np.allclose(found, -clipped.sum(axis=0), atol=1000 * grid_for(bound) + 1e-9)
    for bounded in (SoftTruncation(0.7), SmoothTruncation(3.0, 2.0)):
        grid = grid_for(bounded.bound)
        assert np.allclose(model.mapped_sum(X, y, b, bounded, grid, None) * grid, -bounded(g).sum(axis=0), atol=1e-5)
    some = np.array([0, 9, 3, 500])
    parts = [model.clipped_sum(X, y, b, 2.0, grid_for(2.0), np.array([i])) for i in some]
    assert np.array_equal(model.clipped_sum(X, y, b, 2.0, grid_for(2.0), some), sum(parts))


def test_the_norm_that_is_clipped_is_that_of_the_sum():
    """Near a row the gradient is what is left of two long vectors; its norm by the parts has no correct digit."""
    model, grid = TwoComponents(1.0), grid_for(1.0)
    b = np.array([3e8, -2e8, 1e8])
    for delta in (0.5, 3.0, 100.0):
        x = b + np.array([delta, 0.0, 0.0])
        found = model.clipped_sum(x[None], None, b, 1.0, grid, None) * grid
        assert np.allclose(found, [-min(1.0, delta), 0.0, 0.0], atol=1e-7)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_second_moment_has_its_bound_wherever_the_point_is(model):
    rng = np.random.default_rng(3)
    for d in (2, 30):
        truth = rng.normal(size=d)
        truth *= 2.0 / np.linalg.norm(truth)
        X, y = drawn(model, 20_000, truth, seed=d)
        for length in (0.1, 1.0, 2.5):
            b = rng.normal(size=d)
            b *= length / np.linalg.norm(b)
            largest = (model.row_gradients(X, y, b) ** 2).mean(axis=0).max()
            entries = max(np.abs(truth).max(), np.abs(b).max())
            assert largest < model.second_moment(2.5, entries)


@pytest.mark.parametrize("kind", [TwoComponents, MixedLines], ids=NAMES)
@pytest.mark.parametrize("snr", [0.7, 2.0])
def test_the_information_is_the_variance_of_the_score(kind, snr):
    model, b = kind(1.5), np.array([1.5 * snr, 0.0, 0.0])
    X, y = drawn(model, 400_000, b, seed=4)
    along, across = (model.row_gradients(X, y, b) ** 2).mean(axis=0)[:2] / 1.5**2
    assert (along, across) == pytest.approx(model.information(1.5 * snr), rel=0.03)


def test_distances_are_over_both_signs():
    b = np.array([1.0, -2.0])
    assert distance(TwoComponents(1.0), -b, b) == 0.0
    assert distance(TwoComponents(1.0), b + np.array([0.3, 0.4]), b) == pytest.approx(0.5)

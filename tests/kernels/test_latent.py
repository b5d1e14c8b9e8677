"""Models with a hidden part: gradients are those of the likelihood, sums are what they say, bounds hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.kernels.grid import grid_for
from dpdist.kernels.latent import MissingCells, MixedLines, TwoComponents, distance
from dpdist.kernels.truncation import SmoothTruncation, SoftTruncation

MODELS = [TwoComponents(1.3), MixedLines(0.8), MissingCells(0.9)]
NAMES = ["two components", "mixed lines", "missing cells"]


def drawn(model, n, b, seed=0):
    """Rows of the model itself."""
    rng = np.random.default_rng(seed)
    z, noise = rng.choice([-1.0, 1.0], n), model.noise_std
    if isinstance(model, TwoComponents):
        return z[:, None] * b + noise * rng.normal(size=(n, b.size)), None
    X = rng.normal(size=(n, b.size))
    if isinstance(model, MissingCells):
        y = X @ b + noise * rng.normal(size=n)
        return np.where(rng.random(X.shape) < model.missing_rate, np.nan, X), y
    return X, z * (X @ b) + noise * rng.normal(size=n)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_gradients_are_those_of_the_likelihood(model):
    """Fisher's identity, by finite differences, at points far from and near the truth."""
    rng = np.random.default_rng(1)
    X, y, h = rng.normal(size=(40, 4)) * 2, rng.normal(size=40) * 3, 1e-6
    if model.empty_cells:
        X[rng.random(X.shape) < 0.3] = np.nan
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


@pytest.mark.parametrize("kind", [TwoComponents, MixedLines], ids=NAMES[:2])
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
    X[3], y[7] = (np.inf if model.empty_cells else np.nan), np.inf
    if model.empty_cells:
        X[rng.random(X.shape) < 0.3] = np.nan
        X[5] = np.nan
    b = rng.normal(size=5)
    finite = np.isfinite(X) | (np.isnan(X) & model.empty_cells)
    good = finite.all(axis=1) & (np.isfinite(y) | (not model.labelled))
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


@pytest.mark.parametrize("kind", [TwoComponents, MixedLines], ids=NAMES[:2])
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


# -- missing cells -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.05, 0.4])
@pytest.mark.parametrize("exact", [True, False])
def test_the_truth_is_a_fixed_point_with_missing_cells(rate, exact):
    """Of the printed equation as well (spec 07, D10), and a step of the algorithm without privacy stays there."""
    model, b, n = MissingCells(1.0, rate, exact), np.array([0.8, -0.6, 0.0]), 400_000
    X, y = drawn(model, n, b)
    gradients = model.row_gradients(X, y, b)
    assert (np.abs(gradients.mean(axis=0)) < 5.5 * gradients.std(axis=0) / math.sqrt(n)).all()
    assert np.abs(model.maximum(X, y, b) - b).max() < 0.01


def test_gradients_as_printed_are_those_of_the_printed_matrix():
    """``y m - K b`` with K of seed 002, (11), formed row by row; with the true covariance the factor appears (D10)."""
    rng = np.random.default_rng(5)
    X, y, b, s2 = rng.normal(size=(30, 4)), rng.normal(size=30), rng.normal(size=4), 0.49
    X[rng.random(X.shape) < 0.4] = np.nan
    for exact in (False, True):
        expected = []
        for x, label in zip(X, y, strict=True):
            seen, z = np.nan_to_num(x), ~np.isnan(x)
            lost = np.where(z, 0.0, b)
            nu = s2 + lost @ lost
            m = seen + (label - seen @ b) / nu * lost
            hidden = np.diag(1.0 - z)
            K = hidden + np.outer(m, m) - np.outer((1 - z) * m, (1 - z) * m)
            if exact:  # E x x' given what was seen
                K = hidden - np.outer(lost, lost) / nu + np.outer(m, m)
            expected.append(label * m - K @ b)
        found = MissingCells(0.7, exact=exact).row_gradients(X, y, b)
        assert np.allclose(found, expected)


def test_the_steps_of_the_algorithm_climb():
    model, rng = MissingCells(1.0, 0.3), np.random.default_rng(6)
    X, y = drawn(model, 5000, np.array([1.0, -2.0, 0.5]))
    b, levels = rng.normal(size=3), []
    for _ in range(8):
        levels.append(model.log_likelihood(X, y, b).sum())
        b = model.maximum(X, y, b)
    assert (np.diff(levels) > -1e-9).all()


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_the_information_with_missing_cells_is_at_least_what_is_said(rate):
    model, d = MissingCells(1.5, rate), 12
    b = np.full(d, 1.5 * 1.2 / math.sqrt(d))
    X, y = drawn(model, 200_000, b, seed=4)
    values = np.linalg.eigvalsh(np.cov(model.row_gradients(X, y, b).T)) / 1.5**2
    along, across = model.information(float(np.linalg.norm(b)))
    assert 0.97 * along < values[-1] < 1.15 * along and 0.97 * across < np.median(values) < 1.15 * across


def test_what_is_missing_does_not_depend_on_the_type_of_the_rows():
    rng, model = np.random.default_rng(8), MissingCells(1.0)
    X, y, b = rng.normal(size=(300, 9)).astype(np.float32), rng.normal(size=300), rng.normal(size=9)
    X[rng.random(X.shape) < 0.2] = np.nan
    found = [model.clipped_sum(rows, y, b, 1.0, grid_for(1.0), None) for rows in (X, X.astype(np.float64))]
    assert np.array_equal(*found)


@pytest.mark.parametrize("d", [1, 7, 8, 9, 64, 65, 130])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_row_adds_the_same_beside_an_empty_one(d, dtype):
    """Blocks with an empty row go another way; the integers are the same."""
    rng = np.random.default_rng(d)
    X, y, b = rng.normal(size=(40, d)).astype(dtype), rng.normal(size=40), rng.normal(size=d)
    empty, bound = np.full((1, d), np.inf, dtype=dtype), 0.9
    grid = grid_for(bound)
    for model in (TwoComponents(1.0), MissingCells(1.0)):
        rows = np.where(rng.random(X.shape) < 0.2, np.nan, X).astype(dtype) if model.empty_cells else X
        rows[:, 0] = X[:, 0]  # a row of which nothing is there is rare as well
        for asked in (
            lambda X, y, m=model: m.clipped_sum(X, y, b, bound, grid, None),
            lambda X, y, m=model: m.mapped_sum(X, y, b, SoftTruncation(0.9), grid, None),
        ):
            whole = asked(rows, y)
            alone = sum(
                asked(np.vstack([row[None], empty]), np.append(label, 0.0)) for row, label in zip(rows, y, strict=True)
            )
            assert np.array_equal(whole, alone)

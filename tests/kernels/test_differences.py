"""The fused difference kernel: bound for any row, exact and order-free sums, agreement with plain NumPy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels.clip import kappa
from dpdist.kernels.differences import glm_difference
from dpdist.kernels.gradients import glm_gradient
from dpdist.losses import Huber, Logistic, SmoothedHinge, Squared
from tests.kernels.reference import shrink
from tests.kernels.test_gradients import ADVERSARIAL, PlainLogistic, bounds, data, parameters, with_bad_rows

LOSSES = [Logistic(), Squared(), Huber(0.7), SmoothedHinge(0.25), PlainLogistic()]


def reference(X, y, w, v, loss, *, row_norm, clip_norm, grid, intercept=0.0):
    """Row by row in plain NumPy; for rows whose numbers neither overflow nor vanish when they are squared."""
    total = np.zeros(len(w), dtype=np.int64)
    for x, label in zip(np.asarray(X, dtype=np.float64), y, strict=True):
        if not (np.isfinite(x).all() and (np.isfinite(label) if loss.labels == "real" else abs(label) == 1)):
            continue
        z = np.append(shrink(x, row_norm), intercept) if intercept else shrink(x, row_norm)
        with np.errstate(all="ignore"):
            c = float(loss.derivative(z @ w, label)) - float(loss.derivative(z @ v, label))
            size = abs(c) * np.linalg.norm(z)
        if not np.isfinite(c) or size == 0:
            continue
        total += np.trunc(c * z * min(1, clip_norm * (1 - kappa(X.shape[1] + 1)) / size) / grid).astype(np.int64)
    return total


@pytest.mark.parametrize("d", [1, 7, 8, 50, 65, 131])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_agrees_with_numpy(d, dtype):
    for k, loss in enumerate(LOSSES):
        X, y, w = data(150, d, 40 + k, loss.labels, dtype)
        w = 3 * np.sqrt(d) * w  # margins of all sizes, so that every loss bends somewhere
        v = w + np.random.default_rng(k).normal(size=w.shape)
        X[3], X[10, 0], X[20], y[30], y[31] = np.nan, np.inf, 0.0, np.nan, 0.5
        for intercept, row_norm, clip_norm in [(0.0, 1.0, 0.02), (0.5, 2.0, 3.0), (1.0, np.inf, 0.1)]:
            options = bounds(row_norm, clip_norm, intercept)
            at = parameters(w, options), parameters(v, options)
            units = glm_difference(X, y, *at, loss, **options)
            expected = reference(X, y, *at, loss, **options)
            # rounding can flip a few truncations; exp differs from NumPy's in the last bit, which the difference
            # of two close derivatives shows in a few more units
            assert np.abs(units - expected).max() <= 40, (loss, intercept, row_norm)
            assert np.abs(expected).max() > 1000


def test_is_the_difference_of_gradients_where_nothing_is_clipped():
    rng = np.random.default_rng(3)
    X, y = rng.integers(-8, 9, (200, 13)) / 16.0, rng.integers(-8, 9, 200) / 4.0
    w, v = rng.integers(-4, 5, (2, 14)) / 8.0
    options = bounds(1e4, 1e6, 0.5)
    gradients = [glm_gradient(X, y, at, Squared(), **options) for at in (w, v)]
    assert np.array_equal(glm_difference(X, y, w, v, Squared(), **options), gradients[0] - gradients[1])
    assert not glm_difference(X, y, w, w, Squared(), **options).any()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_row_never_exceeds_the_bound(loss, dtype):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        rows = np.array(ADVERSARIAL, dtype=np.float64).astype(dtype)
    rows = np.concatenate([rows, rng.normal(size=(10, 3)).astype(dtype) * 10.0 ** rng.integers(-20, 20, (10, 1))])
    points = [np.array(p) for p in ([1.0, -2.0, 0.5, 1.0], [1e308, -1e308, 1e308, -1e308], [0.0] * 4)]
    largest = 0.0
    for row_norm, clip_norm, intercept in [(1.0, 1e-3, 0.0), (np.inf, 0.3, 0.0), (3.0, 1e-30, 3.0)]:
        options = bounds(row_norm, clip_norm, intercept)
        limit = Fraction(clip_norm) ** 2
        for w, v in ((points[0], points[2]), (points[1], points[0]), (points[2], points[1])):
            at = parameters(w, options), parameters(v, options)
            for label in (1.0, -1.0, 1e308, np.nan, np.inf):
                for row in rows:
                    units = glm_difference(row[None], np.array([label]), *at, loss, **options)
                    norm2 = sum(int(u) ** 2 for u in units) * Fraction(options["grid"]) ** 2
                    assert norm2 <= limit
                    largest = max(largest, float(norm2 / limit))
                    if not np.isfinite(row).all() or not np.isfinite(label):
                        assert not units.any()
    assert largest > 0.999  # the bound is reached, so the test could fail


@pytest.mark.parametrize("loss", [Logistic(), PlainLogistic()], ids=lambda loss: loss.name)
def test_any_split_and_choice_of_the_rows_gives_the_same_bits(loss):
    X, y, w = data(8000, 21, 4)
    X, y = with_bad_rows(X, y)
    v, options = 0.5 * w, bounds(1.0, 0.1, 1.0)
    whole = glm_difference(X, y, w, v, loss, **options)
    for size in (7, 256, 1000, 7777):
        m = 400 if size == 7 else 8000
        parts = [
            glm_difference(X[i : min(i + size, m)], y[i : min(i + size, m)], w, v, loss, **options)
            for i in range(0, m, size)
        ]
        assert np.array_equal(sum(parts), glm_difference(X[:m], y[:m], w, v, loss, **options))
    rows = np.random.default_rng(7).permutation(8000)[:1234]
    chosen = glm_difference(X, y, w, v, loss, rows=rows, **options)
    assert np.array_equal(chosen, glm_difference(X[rows], y[rows], w, v, loss, **options))
    rest = np.setdiff1d(np.arange(8000), rows)
    assert np.array_equal(chosen + glm_difference(X, y, w, v, loss, rows=rest, **options), whole)


def test_refuses_what_cannot_be_a_public_bound():
    X, y, w = data(10, 3, 11)
    for change in ({"clip_norm": 0.0}, {"clip_norm": np.inf}, {"row_norm": -1.0}, {"grid": 0.3}, {"grid": 2.0**-33}):
        with pytest.raises(ValueError, match="must be"):
            glm_difference(X, y, w[:-1], w[:-1], Logistic(), **{**bounds(), **change})
    for v in (np.array([1.0, np.nan, 0.0]), np.zeros(4)):
        with pytest.raises(ValueError, match="v must be"):
            glm_difference(X, y, w[:-1], v, Logistic(), **bounds())
    with pytest.raises(DataError):
        glm_difference(X, y[:-1], w[:-1], w[:-1], Logistic(), **bounds())

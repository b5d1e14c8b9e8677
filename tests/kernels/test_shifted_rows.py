"""A vector added to the gradient of every row: bounded as it was added, whatever cancels; empty rows stay empty."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.kernels.block_pass import rows_of
from dpdist.kernels.coordinate_gradients import Residual, coordinate_gradient
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.shifted_rows import shift_of
from dpdist.kernels.truncation import HardClip, SmoothTruncation, SoftTruncation
from dpdist.losses import Huber, Logistic, Squared
from tests.kernels.reference import shrink
from tests.kernels.test_gradients import ADVERSARIAL, PlainLogistic, bounds, data, parameters, with_bad_rows

MAPS = [HardClip(0.3), SoftTruncation(0.5), SmoothTruncation(1.0, 0.5)]


def contributions(X, y, w, loss, shift, row_norm=1.0, intercept=0.0):
    """``l' z + s`` of every row in plain NumPy; None for an empty one."""
    found = []
    for x, label in zip(np.asarray(X, dtype=np.float64), y, strict=True):
        good = np.isfinite(label) if loss.labels == "real" else abs(label) == 1
        if not (good and np.isfinite(x).all()):
            found.append(None)
            continue
        x = shrink(x, row_norm)
        with np.errstate(all="ignore"):
            u = float(x @ w[: len(x)]) + (intercept * w[-1] if intercept else 0.0)
            c = float(loss.derivative(u, label))
        z = np.append(x, intercept) if intercept else x
        found.append(None if not math.isfinite(c) else c * z + shift)
    return found


def sizes_of(units, grid):
    """The exact squared l2 norm and the exact largest entry."""
    exact = [Fraction(int(v)) * Fraction(grid) for v in units]
    return sum(v * v for v in exact), max(abs(v) for v in exact)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 50, 65, 500])
@pytest.mark.parametrize("intercept", [0.0, 0.4])
def test_sums_agree_with_numpy(d, intercept, dtype):
    X, y, w = data(300, d, 1, dtype=dtype)
    X, y = with_bad_rows(X, y)
    options = bounds(row_norm=1.3, clip_norm=0.2, intercept=intercept)
    w = parameters(w, options)
    shift = np.random.default_rng(2).normal(size=w.size) / 5 / np.sqrt(d)
    for loss in (Logistic(), PlainLogistic()):
        units = glm_gradient(X, y, w, loss, **options, shift=shift)
        rows = [v for v in contributions(X, y, w, loss, shift, 1.3, intercept) if v is not None]
        expected = sum(v * min(1.0, 0.2 / np.linalg.norm(v)) for v in rows)
        np.testing.assert_allclose(units * options["grid"], expected, atol=len(X) * options["grid"] + 1e-9)


@pytest.mark.parametrize("bounded", MAPS, ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 0.4])
def test_coordinates_agree_with_numpy(bounded, intercept):
    X, y, w = data(300, 9, 1, "real")
    X, y = with_bad_rows(X, y)
    grid, w = grid_for(bounded.bound), w if intercept else w[:-1]
    shift = np.random.default_rng(2).normal(size=w.size)
    options = {"grid": grid, "intercept": intercept, "row_norm": 50.0}
    units = coordinate_gradient(X, y, w, Huber(0.7), bounded, **options, shift=shift)
    # entry by entry, as a gradient whose rows are the sums themselves
    rows = np.array([v for v in contributions(X, y, w, Huber(0.7), shift, 50.0, intercept) if v is not None])
    again = coordinate_gradient(rows, np.full(len(rows), 9.0), np.zeros(w.size), Huber(1.0), bounded, grid=grid)
    np.testing.assert_allclose(units * grid, -again * grid, atol=300 * grid + 1e-7)


def test_a_shift_of_zeros_changes_nothing():
    X, y, w = data(500, 50, 3)
    X, y = with_bad_rows(X, y)
    for options in (bounds(), bounds(2.0, 0.1, 0.4), bounds(np.inf, 0.1)):
        asked, zeros = parameters(w, options), np.zeros(parameters(w, options).size)
        with_zeros = glm_gradient(X, y, asked, Logistic(), **options, shift=zeros)
        np.testing.assert_allclose(with_zeros, glm_gradient(X, y, asked, Logistic(), **options), atol=1000)


@pytest.mark.parametrize("row", [r for r in ADVERSARIAL if not np.isfinite(r).all()], ids=str)
@pytest.mark.parametrize("label", [1.0, np.nan])
def test_an_empty_row_stays_empty(row, label):
    X, shift = np.array([row]), np.array([1e30, -1.0, 5.0])
    assert not glm_gradient(X, np.array([label]), np.zeros(3), Logistic(), **bounds(), shift=shift).any()
    for bounded in MAPS:
        grid = grid_for(bounded.bound)
        found = coordinate_gradient(X, np.array([label]), np.zeros(3), Squared(), bounded, grid=grid, shift=shift)
        assert not found.any()


def test_rows_without_a_label_are_empty_and_rows_of_zeros_are_not():
    shift = np.array([3.0, -4.0])
    for label, expected in ((0.5, [0, 0]), (np.inf, [0, 0]), (1.0, [0.6, -0.8])):
        units = glm_gradient(np.zeros((1, 2)), np.array([label]), np.zeros(2), Logistic(), **bounds(), shift=shift)
        np.testing.assert_allclose(units * grid_for(1.0), expected, atol=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-3, 1.0, 1e8, 1e30, 1e60])
@pytest.mark.parametrize("intercept", [0.0, 1.0, 1e6])
def test_the_bound_survives_cancellation(size, intercept):
    """Shifts that are minus the gradient of a row, but for the last bits: exactly, row by row."""
    rng, closest = np.random.default_rng(5), 0.0
    for trial in range(60):
        d = int(rng.integers(1, 9))
        x, clip_norm = rng.normal(size=d) * size, 10.0 ** rng.integers(-20, 3)
        row_norm = math.inf if trial % 2 else 10.0 ** rng.integers(-3, 60)
        options = bounds(row_norm, clip_norm, intercept)
        w = np.zeros(d + (intercept > 0))
        label = rng.normal() * 10.0 ** rng.integers(-3, 9)
        (gradient,) = contributions([x], [label], w, Squared(), np.zeros(w.size), row_norm, intercept)
        shift = -gradient * (1 + rng.choice([0.0, 2.0**-52, -(2.0**-51), 1e-14, 1e-9], size=w.size))
        shift = np.clip(shift, -1e60, 1e60)
        units = glm_gradient(x[None], np.array([label]), w, Squared(), **options, shift=shift)
        square, _ = sizes_of(units, options["grid"])
        assert square <= Fraction(clip_norm) ** 2
        closest = max(closest, float(square / Fraction(clip_norm) ** 2))
        for bounded in (HardClip(clip_norm), SoftTruncation(clip_norm)):
            grid = grid_for(bounded.bound)
            units = coordinate_gradient(
                x[None], np.array([label]), w, Squared(), bounded, grid=grid, intercept=intercept, shift=shift
            )
            assert sizes_of(units, grid)[1] <= Fraction(bounded.bound)
    assert closest > 0.99 or size < 1e-3


@pytest.mark.parametrize("row", ADVERSARIAL, ids=str)
@pytest.mark.parametrize("shift", [1e60, -1.0, 1e-300, 5e-324, 0.0, 2.0**200])
@pytest.mark.parametrize("label", [1.0, -1e308, 1e-320])
def test_no_row_exceeds_the_bound(row, shift, label):
    vector = np.array([shift, -shift / 3, shift * 1e-9])
    for row_norm in (1.0, 1e-50, math.inf):
        for w in (np.zeros(3), np.array([1e300, -1e300, 1.0])):
            options = bounds(row_norm, 0.3)
            units = glm_gradient(np.array([row]), np.array([label]), w, Squared(), **options, shift=vector)
            assert sizes_of(units, options["grid"])[0] <= Fraction(0.3) ** 2
            grid = grid_for(0.3)
            units = coordinate_gradient(
                np.array([row]),
                np.array([label]),
                w,
                Squared(),
                HardClip(0.3),
                grid=grid,
                row_norm=row_norm,
                shift=vector,
            )
            assert sizes_of(units, grid)[1] <= Fraction(0.3)


def test_overflowing_rows_keep_the_direction_of_what_overflows():
    X, shift = np.array([[1e308, 0.0, 1.0]]), np.array([1.0, 1.0, 1.0])
    options = bounds(math.inf, 1.0)
    units = glm_gradient(X, np.array([-1e300]), np.zeros(3), Squared(), **options, shift=shift)
    np.testing.assert_allclose(units * options["grid"], [1, 0, 0], atol=1e-9)


def test_sums_do_not_depend_on_how_rows_are_cut():
    X, y, w = data(3000, 20, 7)
    X, y = with_bad_rows(X, y)
    shift, options = np.linspace(-0.2, 0.3, 21), bounds(1.0, 0.3, 0.4)
    whole = glm_gradient(X, y, w, Logistic(), **options, shift=shift)
    for size in (1, 7, 64, 1000):
        parts = [slice(i, i + size) for i in range(0, len(X), size)]
        assert np.array_equal(
            whole, sum(glm_gradient(X[p], y[p], w, Logistic(), **options, shift=shift) for p in parts)
        )
    order = np.random.default_rng(0).permutation(len(X))
    assert np.array_equal(whole, glm_gradient(X, y, w, Logistic(), **options, rows=order, shift=shift))
    grid, bounded = grid_for(0.5), SoftTruncation(0.5)
    whole = coordinate_gradient(X, y, w, Logistic(), bounded, grid=grid, intercept=0.4, shift=shift)
    halves = [coordinate_gradient(X[p], y[p], w, Logistic(), bounded, grid=grid, intercept=0.4, shift=shift)
              for p in (slice(0, 1111), slice(1111, None))]  # fmt: skip
    assert np.array_equal(whole, halves[0] + halves[1])


@pytest.mark.parametrize("shift", [[1.0], [[1.0, 2.0]], [np.nan, 1.0], [np.inf, 0.0], [1e300, 0.0]], ids=str)
def test_what_is_no_public_vector_is_refused(shift):
    X, y = np.ones((2, 2)), np.ones(2)
    with pytest.raises(ValueError, match="shift must be 2 numbers"):
        glm_gradient(X, y, np.zeros(2), Logistic(), **bounds(), shift=shift)
    with pytest.raises(ValueError, match="shift must be 2 numbers"):
        coordinate_gradient(X, y, np.zeros(2), Logistic(), HardClip(1.0), grid=grid_for(1.0), shift=shift)


def test_bounded_factors_have_no_sum_to_add_to():
    X, bounded = np.ones((2, 2)), Residual(1.0, 1.0)
    with pytest.raises(ValueError, match="Residual bounds the factors"):
        coordinate_gradient(X, X[0], np.zeros(2), Squared(), bounded, grid=grid_for(1.0), shift=X[0])


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_the_vector_is_copied_and_its_last_number_is_the_constant_feature_s(intercept):
    X, y = np.ones((20, 3)), np.ones(20)
    vector = np.arange(3.0 + (intercept > 0))
    with rows_of(X, y, np.zeros(len(vector)), Logistic(), row_norm=1.0, intercept=intercept, chosen=None) as rows:
        found = shift_of(vector, rows)
        vector[:] = 9.0
        assert found.vector.tolist() == [0.0, 1.0, 2.0] and found.last == (3.0 if intercept else 0.0)
        assert found.sums.shape == (rows.block, 3) and found.constants.shape == (rows.block,)
        for wrong in (np.zeros(2), np.full(len(vector), np.nan), np.full(len(vector), 2.0**201), np.zeros((1, 3))):
            with pytest.raises(ValueError, match="shift must be"):
                shift_of(wrong, rows)

"""Losses: derivatives, constants, and the compiled twins of the derivatives."""

from __future__ import annotations

import ctypes
import pickle
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from dpdist.losses import (
    LOSSES,
    Biweight,
    Cauchy,
    Huber,
    Logistic,
    Loss,
    NegativeSquare,
    ResidualSquares,
    Sigmoid,
    SmoothedHinge,
    Squared,
    SquaredProbability,
    WeightedHinge,
    WeightedLogistic,
    Welsch,
    by_name,
)

ALL = [
    Logistic(), Squared(), Huber(), Huber(0.2), Biweight(), Biweight(0.5), SmoothedHinge(), SmoothedHinge(2.0),
    Sigmoid(), SquaredProbability(), Welsch(), Welsch(0.5), Cauchy(), Cauchy(0.5), NegativeSquare(),
    ResidualSquares(0.5), ResidualSquares(3.0),
    WeightedLogistic(1.0, 5.0), WeightedLogistic(0.7, 0.3), WeightedHinge(5.0, 1.0), WeightedHinge(0.1, 0.3, 2.0),
]  # fmt: skip


def identity(loss):
    return repr(loss)


def labels_of(loss, n, rng):
    return np.sign(rng.normal(size=n)) if loss.labels == "signs" else rng.normal(size=n) * 3


def compiled_derivative(loss, u, y, address=None):
    pointer = ctypes.POINTER(ctypes.c_double)
    address = loss.block_address() if address is None else address
    function = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, ctypes.c_ssize_t)(address)
    u, y, params, out = (np.ascontiguousarray(a, dtype=np.float64) for a in (u, y, loss.params, np.empty(len(u))))
    function(*(a.ctypes.data_as(pointer) for a in (u, y, params, out)), len(u))
    return out


@pytest.mark.parametrize("loss", ALL, ids=identity)
def test_compiled_derivative_is_the_numpy_derivative(loss):
    rng = np.random.default_rng(0)
    u = np.concatenate([np.linspace(-800, 800, 20_001), rng.normal(size=20_000), [1e-9, -1e-9, 0.0, -0.0]])
    y = labels_of(loss, len(u), rng)
    expected = loss.derivative(u, y)
    scale = np.maximum(np.abs(expected), 1e-300)
    # the hinge subtracts numbers near 1, so its absolute error counts
    scale = np.maximum(scale, 1.0) if loss.name == "smoothed-hinge" else scale
    assert np.max(np.abs(compiled_derivative(loss, u, y) - expected) / scale) < 1e-14
    for n in (1, 3, 8, 15, 16, 17, 255, 256):  # every length, vectorised or not, gives the same bits
        assert np.array_equal(compiled_derivative(loss, u[:n], y[:n]), compiled_derivative(loss, u, y)[:n])


@pytest.mark.parametrize("loss", ALL, ids=identity)
def test_compiled_second_derivative_is_the_numpy_second_derivative(loss):
    rng = np.random.default_rng(2)
    u = np.concatenate([np.linspace(-800, 800, 20_001), rng.normal(size=20_000) * 2, [1e-9, -1e-9, 0.0, -0.0, 1e308]])
    y = labels_of(loss, len(u), rng)
    values = compiled_derivative(loss, u, y, loss.second_block_address())
    np.testing.assert_allclose(values, loss.second_derivative(u, y), rtol=1e-14, atol=2e-15 * loss.curvature_bound)
    low, high = loss.curvature_range
    assert values.min() >= low - 4e-16 * loss.curvature_bound and values.max() <= high + 4e-16 * loss.curvature_bound


def test_compiled_logistic_against_many_digits():
    u = np.concatenate([np.linspace(-40, 40, 301), np.linspace(-707, 707, 101), [1e-300, 5e-324]])
    values = compiled_derivative(Logistic(), u, np.ones(len(u)))
    with mpmath.workdps(50):
        for argument, value in zip(u, values, strict=True):
            exact = -1 / (1 + mpmath.exp(mpmath.mpf(float(argument))))
            assert abs(mpmath.mpf(float(value)) / exact - 1) < 4 * 2.0**-53


@pytest.mark.parametrize("loss", ALL, ids=identity)
def test_compiled_derivative_of_extreme_arguments(loss):
    u = np.array([1e308, -1e308, np.inf, -np.inf, 5e-324, np.nan])
    y = np.ones(6)
    values = compiled_derivative(loss, u, y)
    if np.isfinite(loss.derivative_bound):
        assert np.abs(values[:5]).max() <= loss.derivative_bound
        np.testing.assert_allclose(values[:5], loss.derivative(u, y)[:5], rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("loss", ALL, ids=identity)
def test_derivative_and_constants(loss):
    rng = np.random.default_rng(1)
    u, h = rng.normal(size=20_000) * 4, 1e-6
    y = labels_of(loss, len(u), rng)
    slope = (loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(u, y), slope, atol=1e-4 if loss.name == "smoothed-hinge" else 1e-5)
    curvature = (loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2 * h)
    low, high = loss.curvature_range
    assert low - 1e-6 <= curvature.min() < low + 0.01 * loss.curvature_bound
    assert high - 0.01 * loss.curvature_bound < curvature.max() <= high + 1e-6
    assert loss.curvature_bound == max(high, -low) and loss.convex == (low >= 0)
    wide = loss.derivative(np.concatenate([u, u * 100]), np.tile(y, 2))
    assert np.abs(wide).max() <= loss.derivative_bound
    if np.isfinite(loss.derivative_bound):
        assert np.abs(wide).max() > 0.999 * loss.derivative_bound
    assert loss.lipschitz(3.0) == 3 * loss.derivative_bound
    assert loss.smoothness(3.0) == 9 * loss.curvature_bound


@pytest.mark.parametrize("loss", ALL, ids=identity)
def test_range_of_the_curvature_on_a_grid(loss):
    u = np.concatenate([np.linspace(-12, 12, 400_001), np.linspace(-1000, 1000, 20_001)])
    low, high = loss.curvature_range
    lowest, highest, steepest = [], [], []
    for label in (1.0, -1.0):
        y = np.full(len(u), label)
        second = loss.second_derivative(u, y)
        lowest.append(second.min())
        highest.append(second.max())
        h = 1e-5
        slope = (loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2 * h)
        smooth = abs(slope - second) < 1e-5 * loss.curvature_bound
        assert smooth.mean() > 0.9999, "but for corners the second derivative is that of the derivative"
        if np.isfinite(loss.third_bound):
            third = (loss.second_derivative(u + h, y) - loss.second_derivative(u - h, y)) / (2 * h)
            steepest.append(abs(third).max())
    assert low - 1e-15 <= min(lowest) < low + 1e-3 * loss.curvature_bound
    assert high + 1e-15 >= max(highest) > high - 1e-3 * loss.curvature_bound
    if steepest:
        assert loss.third_bound * (1 - 1e-3) <= max(steepest) <= loss.third_bound * (1 + 1e-4) + 1e-9


def test_the_constants_are_those_of_the_literature():
    """Seed 003, section 0.3, as corrected."""
    for loss, slope, low, high in (
        (Sigmoid(), 0.25, -0.0962, 0.0962), (SquaredProbability(), 0.2963, -0.1202, 0.1541),
        (Welsch(1.0), 0.4289, -0.4463, 1.0), (Cauchy(1.0), 0.5, -0.125, 1.0), (Biweight(1.0), 0.2862, -0.8, 1.0),
    ):  # fmt: skip
        assert [round(v, 4) for v in (loss.derivative_bound, *loss.curvature_range)] == [slope, low, high]
    assert round(SquaredProbability().third_bound, 4) == 0.2020 and Sigmoid().third_bound == 1 / 8


def test_values():
    assert Logistic().value(0.0, 1.0) == pytest.approx(np.log(2))
    assert Logistic().value(-1000.0, 1.0) == 1000.0
    assert Squared().value(5.0, 2.0) == 4.5
    assert Huber(1.0).value(0.5, 0.0) == 0.125
    assert Biweight(2.0).value([0.0, 2.0, -9.0], 0.0).tolist() == [0.0, 4 / 6, 4 / 6]
    assert SmoothedHinge(0.5).value([1.0, 0.75, 0.5, 0.0], 1.0).tolist() == [0.0, 0.0625, 0.25, 0.75]


def test_by_name():
    assert sorted(LOSSES) == [
        "biweight", "cauchy", "glm-squared", "huber", "logistic", "negative-square", "sigmoid", "smoothed-hinge",
        "squared", "welsch",
    ]  # fmt: skip
    for name in LOSSES:
        assert by_name(name).name == name
    with pytest.raises(ValueError, match="expected one of biweight, cauchy"):
        by_name("hinge")
    with pytest.raises(ValueError, match="threshold"):
        Huber(0.0)
    for threshold in (-1.0, 0.0, 1e-300, 1e300, np.nan):
        with pytest.raises(ValueError, match="threshold must be a positive number between 1e-60 and 1e60"):
            Biweight(threshold)
    with pytest.raises(ValueError, match="width"):
        SmoothedHinge(np.inf)


def test_losses_are_values():
    assert Huber(1.0) == Huber(1.0) != Huber(2.0)
    for loss in ALL:
        loss.block_address()
        assert pickle.loads(pickle.dumps(loss)) == loss


def _absolute_block(u, y, params, out, n):
    for i in range(n):
        s = u[i] - y[i]
        out[i] = params[0] * s / (1.0 + abs(s))


@dataclass(frozen=True)
class Custom(Loss):
    scale: float = 2.0
    name: ClassVar[str] = "custom"
    labels: ClassVar[str] = "real"
    curvature_bound: ClassVar[float] = 2.0
    block = staticmethod(_absolute_block)

    @property
    def derivative_bound(self):
        return self.scale

    def value(self, u, y):
        s = np.abs(np.subtract(u, y))
        return self.scale * (s - np.log1p(s))

    def derivative(self, u, y):
        s = np.subtract(u, y)
        return self.scale * s / (1.0 + np.abs(s))


class Changed(Custom):
    def derivative(self, u, y):
        return np.zeros_like(u)


class Bumpy(Custom):
    convex = False


class Renamed(Changed):
    name = "renamed"


def test_user_defined_losses():
    u, y = np.linspace(-3, 3, 50), np.linspace(1, -1, 50)
    np.testing.assert_allclose(compiled_derivative(Custom(1.5), u, y), Custom(1.5).derivative(u, y), rtol=1e-14)
    with pytest.raises(NotImplementedError, match="has no second_derivative"):
        Custom().second_derivative(u, y)
    assert Custom().curvature_range == (0.0, 2.0) and Custom().second_block_address() == 0
    with pytest.raises(ValueError, match="not convex and has no curvature_range"):
        _ = Bumpy().curvature_range
    # compiled code that belongs to another derivative must not be used
    assert Changed().block_address() == 0
    assert Renamed().block_address() == 0

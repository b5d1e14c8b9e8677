"""Losses: derivatives, constants, and the compiled twins of the derivatives."""

from __future__ import annotations

import ctypes
import pickle
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from dpdist.losses import LOSSES, Biweight, Huber, Logistic, Loss, SmoothedHinge, Squared, by_name

ALL = [Logistic(), Squared(), Huber(), Huber(0.2), Biweight(), Biweight(0.5), SmoothedHinge(), SmoothedHinge(2.0)]


def identity(loss):
    return repr(loss)


def labels_of(loss, n, rng):
    return np.sign(rng.normal(size=n)) if loss.labels == "signs" else rng.normal(size=n) * 3


def compiled_derivative(loss, u, y):
    pointer = ctypes.POINTER(ctypes.c_double)
    function = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, ctypes.c_ssize_t)(loss.block_address())
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
    assert curvature.min() >= (-0.8 - 1e-6 if loss.name == "biweight" else -1e-8)  # the others are convex
    assert curvature.max() <= loss.curvature_bound + 1e-6
    assert curvature.max() > 0.99 * loss.curvature_bound
    wide = loss.derivative(np.concatenate([u, u * 100]), np.tile(y, 2))
    assert np.abs(wide).max() <= loss.derivative_bound
    if np.isfinite(loss.derivative_bound):
        assert np.abs(wide).max() > 0.999 * loss.derivative_bound
    assert loss.lipschitz(3.0) == 3 * loss.derivative_bound
    assert loss.smoothness(3.0) == 9 * loss.curvature_bound


def test_values():
    assert Logistic().value(0.0, 1.0) == pytest.approx(np.log(2))
    assert Logistic().value(-1000.0, 1.0) == 1000.0
    assert Squared().value(5.0, 2.0) == 4.5
    assert Huber(1.0).value(0.5, 0.0) == 0.125
    assert Biweight(2.0).value([0.0, 2.0, -9.0], 0.0).tolist() == [0.0, 4 / 6, 4 / 6]
    assert SmoothedHinge(0.5).value([1.0, 0.75, 0.5, 0.0], 1.0).tolist() == [0.0, 0.0625, 0.25, 0.75]


def test_by_name():
    assert sorted(LOSSES) == ["biweight", "huber", "logistic", "smoothed-hinge", "squared"]
    for name in LOSSES:
        assert by_name(name).name == name
    with pytest.raises(ValueError, match="expected one of biweight, huber"):
        by_name("hinge")
    with pytest.raises(ValueError, match="threshold"):
        Huber(0.0)
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


class Renamed(Changed):
    name = "renamed"


def test_user_defined_losses():
    u, y = np.linspace(-3, 3, 50), np.linspace(1, -1, 50)
    np.testing.assert_allclose(compiled_derivative(Custom(1.5), u, y), Custom(1.5).derivative(u, y), rtol=1e-14)
    # compiled code that belongs to another derivative must not be used
    assert Changed().block_address() == 0
    assert Renamed().block_address() == 0

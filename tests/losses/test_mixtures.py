"""Losses of symmetric mixtures: compiled code, NumPy and slopes of the values agree, for every float."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdist.kernels.gradients import glm_gradient
from dpdist.losses.mixtures import TwoCentres, TwoLines, log_cosh

LOSSES = [TwoCentres(0.7), TwoCentres(30.0), TwoLines(1.0), TwoLines(4.0)]
EDGES = np.array([0.0, 1e-320, 1e-9, 0.3, 2.0, 40.0, 1e6, 1e154, 1e300])
EDGES = np.concatenate([-EDGES, EDGES])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_derivatives_are_slopes(loss):
    rng = np.random.default_rng(0)
    u, y, h = rng.normal(size=500) * 3, rng.normal(size=500) * 3, 1e-6
    slopes = (loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h)
    assert np.abs(slopes - loss.derivative(u, y)).max() < 1e-7


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_compiled_code_is_the_same_function(loss):
    assert loss.block_address()
    u, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        expected = loss.derivative(u, y)
    for one, label, value in zip(u, y, expected, strict=True):
        if abs(value) < 1e6:
            grid = 2.0**-10
            units = glm_gradient(
                np.array([[1.0]]),
                np.array([label]),
                np.array([one]),
                loss,
                row_norm=math.inf,
                clip_norm=2.0**22,
                grid=grid,
            )
            assert abs(units[0] * grid - value) <= 2 * grid + 1e-9 * abs(value)


def test_what_bounds_the_derivative_holds():
    u = np.linspace(-50, 50, 100_001)
    loss = TwoCentres(0.7)
    assert np.abs(loss.derivative(u, 0.0)).max() <= loss.derivative_bound
    slope = np.diff(loss.derivative(u, 0.0)) / np.diff(u)
    low, high = loss.curvature_range
    assert low <= slope.min() and slope.max() <= high + 1e-12


def test_log_cosh_of_every_size():
    assert log_cosh(1e-8) == pytest.approx(0.5e-16, abs=1e-15)
    assert np.isfinite(log_cosh(EDGES)).all()
    with pytest.raises(ValueError, match="noise_std must be a positive number"):
        TwoLines(0.0)

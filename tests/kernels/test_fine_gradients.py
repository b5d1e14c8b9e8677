"""Fine gradient sums: exact sums of parts, and within `gradient_error` of the exact gradient for adversarial rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from dpdist.kernels.clip import kappa
from dpdist.kernels.fine_gradients import fine_gradient, fine_grid, gradient_error, joined
from dpdist.losses import Huber, Logistic, Loss, SmoothedHinge
from dpdist.privacy.audit.sensitivity_fuzz import adversarial_rows

LOSSES = [Logistic(), SmoothedHinge(0.3), Huber(0.7)]


def exact_derivative(loss, u, y):
    if isinstance(loss, Logistic):
        return -y / (1 + mpmath.exp(y * u))
    if isinstance(loss, SmoothedHinge):
        return -y * min(max(1 - u * y, 0), loss.width) / mpmath.mpf(loss.width)
    return max(min(u - y, mpmath.mpf(loss.threshold)), -mpmath.mpf(loss.threshold))


def exact_gradient(X, y, w, loss, row_norm, intercept):
    """The definition at 60 digits, for rows that may be anything."""
    with mpmath.workdps(700):  # squares of 1e308 beside those of 1e-320
        d = X.shape[1]
        total = [mpmath.mpf(0)] * w.size
        limit = mpmath.mpf(row_norm * (1 - kappa(d + 1)))
        for row, label in zip(X, y, strict=True):
            if not (np.isfinite(row).all() and np.isfinite(label)) or (loss.labels == "signs" and abs(label) != 1):
                continue
            x = [mpmath.mpf(float(v)) for v in row]
            norm = mpmath.sqrt(sum(v * v for v in x))
            factor = min(mpmath.mpf(1), limit / norm) if norm else mpmath.mpf(0)
            z = [v * factor for v in x] + ([mpmath.mpf(intercept)] if intercept else [])
            u = sum(a * mpmath.mpf(float(b)) for a, b in zip(z, w, strict=True))
            c = exact_derivative(loss, u, mpmath.mpf(float(label)))
            total = [t + c * v for t, v in zip(total, z, strict=True)]
        return total


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_within_the_bound_of_the_exact_gradient(loss, size, intercept):
    rng = np.random.default_rng(0)
    labels = (1.0, -1.0, 0.0, np.nan) if loss.labels == "signs" else (0.0, 3.5, -1e308, 1e-320, np.inf, size)
    for dtype in ("float64", "float32"):
        rows = [x for _, x in adversarial_rows(5, dtype, rng)]
        X = np.array(rows * 2)
        y = np.array([labels[i % len(labels)] for i in range(len(X))])
        w = rng.normal(size=5 + (intercept > 0))
        w *= size / np.linalg.norm(w)
        radius = math.hypot(2.0, intercept)
        grid = fine_grid(loss.lipschitz(radius))
        units = joined(fine_gradient(X, y, w, loss, row_norm=2.0, grid=grid, intercept=intercept))
        exact = exact_gradient(X, y, w, loss, 2.0, intercept)
        off = math.sqrt(float(sum((mpmath.mpf(int(u)) * grid - e) ** 2 for u, e in zip(units, exact, strict=True))))
        bound = gradient_error(len(X), loss, radius, w.size, size, grid)
        assert off <= bound


def test_the_bound_is_of_the_right_size():
    """Many ordinary rows come within a factor 1000 of it: a bound that is far too large would cost accuracy."""
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(20_000, 8)), rng.choice([-1.0, 1.0], 20_000), rng.normal(size=8)
    grid = fine_grid(1.0)
    units = joined(fine_gradient(X, y, w, Logistic(), row_norm=1.0, grid=grid)).astype(float) * grid
    Z = X.astype(np.longdouble)
    Z *= np.minimum(1, (1 - kappa(9)) / np.sqrt((Z**2).sum(axis=1)))[:, None]
    exact = ((-y / (1 + np.exp(y * (Z @ w)))) @ Z).astype(np.longdouble)
    off = float(np.linalg.norm(units - exact))
    bound = gradient_error(len(X), Logistic(), 1.0, 8, float(np.linalg.norm(w)), grid)
    assert bound / 1e5 < off < bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [1, 7, 64, 130])
def test_parts_add_up_to_the_whole(dtype, d):
    rng = np.random.default_rng(2)
    X, y, w = (10 * rng.normal(size=(3000, d))).astype(dtype), rng.choice([-1.0, 1.0], 3000), rng.normal(size=d)
    X[::97] = 1e30 if dtype == "float32" else 1e250
    X[5::101] = np.nan
    arguments = {"row_norm": 1.0, "grid": fine_grid(1.0)}
    whole = joined(fine_gradient(X, y, w, Logistic(), **arguments))
    for step in (1, 3, 777):
        if step == 1 and d != 7:
            continue
        parts = sum(
            fine_gradient(X[a : a + step], y[a : a + step], w, Logistic(), **arguments) for a in range(0, 3000, step)
        )
        assert np.array_equal(joined(parts), whole)
    assert not joined(fine_gradient(X[:0], y[:0], w, Logistic(), **arguments)).any()


@dataclass(frozen=True)
class Plain(Logistic):
    """The logistic loss without compiled code."""

    block: ClassVar[None] = None


def test_a_loss_without_compiled_code():
    rng = np.random.default_rng(3)
    X, y, w = rng.normal(size=(5000, 4)), rng.choice([-1.0, 1.0], 5000), rng.normal(size=5)
    arguments = {"row_norm": 1.0, "grid": fine_grid(1.2), "intercept": 0.4}
    fast = joined(fine_gradient(X, y, w, Logistic(), **arguments))
    slow = joined(fine_gradient(X, y, w, Plain(), **arguments))
    assert np.abs(fast - slow).max() * fine_grid(1.2) < 1e-10
    assert isinstance(Plain(), Loss)


def test_a_grid_that_is_too_fine_is_refused():
    with pytest.raises(ValueError, match="grid"):
        fine_gradient(np.ones((1, 2)), np.ones(1), np.zeros(2), Logistic(), row_norm=1.0, grid=fine_grid(1.0) / 2)

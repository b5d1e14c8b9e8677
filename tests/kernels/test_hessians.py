"""Hessians are exact integer sums of products of truncated rows, weighted by the curvature of a loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from dpdist.kernels import moments
from dpdist.kernels.hessians import glm_hessian
from dpdist.kernels.moments import moment_grid, moment_radius, second_moment, unpack_symmetric
from dpdist.losses import (
    Biweight,
    Cauchy,
    Huber,
    Logistic,
    Loss,
    NegativeSquare,
    Sigmoid,
    SmoothedHinge,
    Squared,
    SquaredProbability,
    Welsch,
)

ALL = [
    Logistic(), Squared(), Huber(0.7), Biweight(1.5), SmoothedHinge(), Sigmoid(), SquaredProbability(), Welsch(1.0),
    Cauchy(0.8), NegativeSquare(),
]  # fmt: skip


def table(loss, n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sign(rng.normal(size=n)) if loss.labels == "signs" else rng.normal(size=n)
    X[0, 0], X[1, -1], X[2], X[3], X[4], y[5] = np.nan, -np.inf, 1e308, 5e-324, 0.0, np.nan
    y[6], X[7] = (0.5, 1e-250) if loss.labels == "signs" else (np.inf, 1e-250)
    return X, y


def curvature(loss, u, y):
    """``l''`` with many digits, from the formulas of the losses."""
    s, m = u - y, u * y
    if isinstance(loss, Logistic):
        return 1 / (2 + 2 * mpmath.cosh(m))
    if isinstance(loss, Sigmoid):
        return mpmath.tanh(m / 2) / (2 + 2 * mpmath.cosh(m))
    if isinstance(loss, SquaredProbability):
        q = 1 / (1 + mpmath.exp(m))
        return 2 * q**2 * (1 - q) * (2 - 3 * q)
    if isinstance(loss, Squared | NegativeSquare):
        return mpmath.mpf(loss.curvature_range[0])
    if isinstance(loss, SmoothedHinge):
        return mpmath.mpf(1 / loss.width if 0 < 1 - m < loss.width else 0)
    v = s / loss.threshold
    if isinstance(loss, Huber):
        return mpmath.mpf(abs(v) <= 1)
    if isinstance(loss, Biweight):
        return (1 - v**2) * (1 - 5 * v**2) if abs(v) < 1 else mpmath.mpf(0)
    if isinstance(loss, Welsch):
        return (1 - 2 * v**2) * mpmath.exp(-(v**2))
    return (1 - v**2) / (1 + v**2) ** 2


def in_rationals(X, y, w, loss, row_norm, intercept, weighed=False):
    """The Hessian of the clipped (or weighed) rows without any truncation, with 60 digits."""
    d = X.shape[1] + (intercept > 0)
    total = mpmath.zeros(d, d)
    for x, label in zip(X, y, strict=True):
        allowed = np.isfinite(label) and (loss.labels == "real" or abs(label) == 1)
        if not (np.isfinite(x).all() and allowed):
            continue
        row = [mpmath.mpf(float(v)) for v in x]
        norm = mpmath.sqrt(mpmath.fsum(v * v for v in row))
        factor = row_norm / norm if norm > row_norm else mpmath.mpf(1)
        row = row if weighed else [v * factor for v in row]
        row += [mpmath.mpf(intercept)] if intercept else []
        u = mpmath.fsum(v * float(c) for v, c in zip(row, w, strict=True))
        c = curvature(loss, u, mpmath.mpf(float(label))) * (factor**2 if weighed else 1)
        for i in range(d):
            for j in range(d):
                total[i, j] += c * row[i] * row[j]
    return total


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
def test_against_a_computation_with_many_digits(loss, intercept, dtype, weighed):
    with np.errstate(over="ignore", under="ignore"):
        X, y = table(loss, 60, 3, 1)
        X = X.astype(dtype)
    w = np.array([0.8, -1.3, 0.4, 0.5])[: 3 + (intercept > 0)]
    packed = glm_hessian(X, y, w, loss, row_norm=1.3, intercept=intercept, weighed=weighed)
    radius = moment_radius(1.3, intercept, weight_bound=loss.curvature_bound)
    found = unpack_symmetric(packed.astype(object))
    with mpmath.workdps(60):
        exact = in_rationals(X, y, w, loss, 1.3, intercept, weighed)
        grid = mpmath.mpf(moment_grid(radius))
        # every factor is truncated by less than one unit of 2**20, so a product by less than 2**21
        for i in range(len(w)):
            for j in range(len(w)):
                assert abs(found[i, j] - exact[i, j] / grid) < 60 * 2**21


class Curved(Loss):
    """Curvatures given by the label, to say exactly what the kernel has to do with them."""

    name, labels, convex, derivative_bound, curvature_bound = "curved", "real", False, 1.0, 2.0
    curvature_range: ClassVar[tuple[float, float]] = (-2.0, 1.0)

    def value(self, u, y):
        return 0.0 * u

    def derivative(self, u, y):
        return 0.0 * u

    def second_derivative(self, u, y):
        return y * 1.0


def exact_sum(X, curvatures, row_norm, intercept, h):
    """Python integers: rows that need no clipping, times the root of the size of their weight, truncated."""
    total = 0
    for x, c in zip(X, curvatures, strict=True):
        root = math.sqrt(abs(c))
        z = [int(np.trunc(v * root / h)) for v in x]
        z += [int(np.trunc(intercept * (1 - 1e-12) / h * root))] if intercept else []
        total = total + int(np.sign(c)) * np.outer(np.array(z, dtype=object), np.array(z, dtype=object))
    return total


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_weights_of_either_sign_in_python_integers(intercept):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(9000, 4))
    X /= np.linalg.norm(X, axis=1)[:, None] * rng.uniform(1.01, 50, 9000)[:, None]
    y = rng.normal(size=9000) * 2  # beyond the declared range: clamped row by row
    h = math.sqrt(moment_grid(moment_radius(1.0, intercept, weight_bound=2.0)))
    w = np.zeros(4 + (intercept > 0))
    found = unpack_symmetric(glm_hessian(X, y, w, Curved(), row_norm=1.0, intercept=intercept).astype(object))
    assert np.array_equal(found, exact_sum(X, np.clip(y, -2.0, 1.0), 1.0, intercept, h))
    plain = second_moment(X, 1.0, intercept=intercept, weights=lambda a, b: np.clip(y[a:b], -2, 1), weight_bound=2.0)
    assert np.array_equal(unpack_symmetric(plain.astype(object)), found)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0])
def test_curvatures_that_are_no_numbers_or_out_of_range(weight):
    @dataclass(frozen=True)
    class Wild(Curved):
        def second_derivative(self, u, y):
            return np.where(y == 0.25, weight, 1.0)

    X, y, w = np.eye(2)[[0, 1]] * 0.5, np.array([1.0, 0.25]), np.zeros(2)
    found = unpack_symmetric(glm_hessian(X, y, w, Wild(), row_norm=1.0)) * moment_grid(
        moment_radius(1.0, weight_bound=2)
    )
    expected = 0.0 if np.isnan(weight) else 0.25 * np.clip(weight, -2.0, 1.0)
    np.testing.assert_allclose(found, [[0.25, 0.0], [0.0, expected]], atol=1e-5)


@dataclass(frozen=True)
class PlainSigmoid(Sigmoid):
    """Without compiled code, which does not outlive an overridden derivative."""

    def second_derivative(self, u, y):
        return super().second_derivative(u, y)


def test_a_loss_without_compiled_code_gives_nearly_the_same():
    X, y = table(Sigmoid(), 9000, 5, 3)
    w = np.array([1.0, -1.0, 0.5, 3.0, 0.0])
    one, other = (glm_hessian(X, y, w, loss, row_norm=1.0) for loss in (Sigmoid(), PlainSigmoid()))
    assert PlainSigmoid().second_block_address() == 0
    assert abs(one - other).max() < 9000 * 2**21  # a last bit of a weight may move a factor by one unit


@pytest.mark.parametrize("loss", [Logistic(), Sigmoid(), PlainSigmoid()], ids=lambda loss: type(loss).__name__)
def test_any_split_order_or_choice_of_rows_gives_the_same_integers(loss):
    X, y = table(loss, 9001, 5, 4)
    w = np.array([1.0, -1.0, 0.5, 3.0, 0.0, 0.2])
    options = {"row_norm": 1.5, "intercept": 0.5}
    whole = glm_hessian(X, y, w, loss, **options)
    rng = np.random.default_rng(5)
    order = rng.permutation(len(X))
    assert np.array_equal(glm_hessian(X[order], y[order], w, loss, **options), whole)
    assert np.array_equal(glm_hessian(X, y, w, loss, rows=order, **options), whole)
    for size in (1000, 4096, 5000):
        parts = [glm_hessian(X[i : i + size], y[i : i + size], w, loss, **options) for i in range(0, len(X), size)]
        assert np.array_equal(sum(parts), whole)
    batch = np.flatnonzero(rng.random(len(X)) < 0.3)
    assert np.array_equal(
        glm_hessian(X, y, w, loss, rows=batch, **options), glm_hessian(X[batch], y[batch], w, loss, **options)
    )
    assert not glm_hessian(X[:0], y[:0], w, loss, **options).any()


def test_full_panels_of_either_sign_are_exact():
    n = 2 * moments.PANEL_ROWS + 17
    X, y = np.tile([[1 - 1e-9, 2.0**-20]], (n, 1)), np.where(np.arange(n) % 3, 1.0, -2.0)
    found = glm_hessian(X, y, np.zeros(2), Curved(), row_norm=1.0)
    one, other = (glm_hessian(X[i : i + 1], y[i : i + 1], np.zeros(2), Curved(), row_norm=1.0) for i in (0, 1))
    n_first = len(range(0, n, 3))
    assert [int(v) for v in found] == [
        n_first * int(a) + (n - n_first) * int(b) for a, b in zip(one, other, strict=True)
    ]


def test_what_a_row_adds_is_bounded_and_of_rank_one():
    rng = np.random.default_rng(6)
    grid = Fraction(moment_grid(moment_radius(1.3, 0.4, weight_bound=Sigmoid().curvature_bound)))
    bound = Fraction(Sigmoid().curvature_bound) * (Fraction(1.3) ** 2 + Fraction(0.4) ** 2)
    for _ in range(200):
        X, y = rng.normal(size=(1, 2)) * 10.0 ** rng.uniform(-2, 3), np.sign(rng.normal(size=1))
        w = rng.normal(size=3) * 5
        found = unpack_symmetric(glm_hessian(X, y, w, Sigmoid(), row_norm=1.3, intercept=0.4).astype(object))
        assert abs(sum(int(found[i, i]) for i in range(3))) * grid <= bound
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert found[i, i] * found[j, j] == found[i, j] ** 2


def test_refuses():
    X, y = np.ones((2, 2)), np.ones(2)
    with pytest.raises(ValueError, match="finite numbers"):
        glm_hessian(X, y, np.array([np.nan, 1.0]), Logistic(), row_norm=1.0)
    with pytest.raises(ValueError, match="row_norm"):
        glm_hessian(X, y, np.zeros(2), Logistic(), row_norm=np.inf)
    with pytest.raises(ValueError, match="weights go with plain rows"):
        second_moment(X, 1.0, unit=True, weights=lambda a, b: np.ones(b - a))

"""The scalar maps: against quadrature, their bounds for every float, and compiled code against NumPy, bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpdist.kernels.grid import grid_for
from dpdist.kernels.smooth_table import PIECES, smooth_table
from dpdist.kernels.truncation import (
    PHI_BOUND,
    ROOT2,
    HardClip,
    ScalarMap,
    SmoothTruncation,
    SoftTruncation,
    fused_multiply_add,
    phi,
)

BETAS = [0.01, 0.1, 1.0, 9.2, 20.0, 100.0]
MAPS = [HardClip(0.7), SoftTruncation(1 / 3), SoftTruncation(2.0**-30), SmoothTruncation(9.2, 1.3)]
MAPS += [SmoothTruncation(beta, 1 / beta) for beta in BETAS]
SPECIAL = [0.0, 5e-324, 1e-320, 2.2250738585072014e-308, 1e-160, 1e-20, 1.0, 1e9, 1e154, 1.4e154, 1e155, 1e308, np.inf]


def exact_phi(x):
    root2 = mpmath.sqrt(2)
    return x - x**3 / 6 if abs(x) <= root2 else mpmath.sign(x) * 2 * root2 / 3


def smoothed(u, beta):
    """``E phi(u X)``, X normal with mean 1 and variance 1/beta: quadrature where phi bends, normal tails beyond."""
    u, beta = mpmath.mpf(u), mpmath.mpf(beta)
    if u == 0:
        return mpmath.mpf(0)
    sigma, corner = 1 / mpmath.sqrt(beta), mpmath.sqrt(2) / abs(u)
    low, high = max(-corner, 1 - 13 * sigma), min(corner, 1 + 13 * sigma)
    inside = mpmath.mpf(0)
    if low < high:
        points = mpmath.linspace(low, high, 4)
        inside = mpmath.quad(lambda x: (u * x - (u * x) ** 3 / 6) * mpmath.npdf(x, 1, sigma), points)
    beyond = mpmath.ncdf(-(corner - 1) / sigma) - mpmath.ncdf(-(corner + 1) / sigma)
    return inside + mpmath.sign(u) * 2 * mpmath.sqrt(2) / 3 * beyond


def near(beta):
    """Where the pieces of the approximation meet."""
    t = smooth_table(beta)
    y = np.arange(PIECES - 1) + 0.5
    return np.sqrt(np.maximum(1 / y - t.shift, 0)) / t.stretch


def floats(seed, n=200_000):
    """Floats of every size, near the corners of the maps, and special ones."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(-(2**63), 2**63 - 1, n, dtype=np.int64)
    ulps = rng.integers(-1000, 1000, n // 20)
    corners = np.concatenate([[ROOT2, 1.0, 0.7, ROOT2 / 3, 1 / 3], *(near(beta) for beta in BETAS)])
    around = (corners.view(np.int64)[:, None] + ulps).view(np.float64).ravel()
    moderate = rng.standard_cauchy(n)
    u = np.concatenate([bits.view(np.float64), around, moderate, SPECIAL, np.negative(SPECIAL)])
    return u[~np.isnan(u)]


def exact_fma(a, b, c):
    return float(Fraction(a) * Fraction(b) + Fraction(c))


@pytest.mark.parametrize("beta", BETAS)
def test_against_quadrature(beta):
    h = SmoothTruncation(beta)
    rng = np.random.default_rng(0)
    corners = near(beta)
    u = np.concatenate([
        np.geomspace(1e-4, 1e4, 60), corners, corners * (1 + 1e-12), corners * (1 - 1e-12),
        rng.uniform(0, 3 * corners[0], 40), rng.uniform(0, 3, 20), [1e5, 1e6, 1e8, 1e12, 1e200],
    ])  # fmt: skip
    with mpmath.workdps(20):
        exact = np.array([float(smoothed(v, beta)) for v in u])
    assert np.abs(h(u) - exact).max() < 1e-13
    assert np.array_equal(h(-u), -h(u))


def test_the_quadrature_of_the_tests():
    # phi integrated as it is, with no formula for its flat parts
    with mpmath.workdps(25):
        for u, beta in [(0.3, 1.0), (1.0, 9.2), (2.5, 0.1), (1.4, 100.0)]:
            sigma = 1 / mpmath.sqrt(beta)
            bends = [b for b in (-mpmath.sqrt(2) / u, mpmath.sqrt(2) / u) if abs(b - 1) < 13 * sigma]
            points = sorted([1 - 13 * sigma, 1 + 13 * sigma, 1 - 3 * sigma, 1 + 3 * sigma, mpmath.mpf(1), *bends])
            direct = mpmath.quad(lambda x, u=u, s=sigma: exact_phi(u * x) * mpmath.npdf(x, 1, s), points)
            assert abs(direct - smoothed(u, beta)) < 1e-15


def test_known_values():
    h = SmoothTruncation(9.2)
    expected = [0.47237319, 0.88930914, 0.93365559, 0.94042179, 0.94052730]
    assert np.abs(h([0.5, 1.5, 3.0, 20.1, 1e8]) - expected).max() < 5e-9
    for beta, bound in [(0.5, 0.4907), (1.0, 0.6436), (2.0, 0.7945), (4.0, 0.8999), (9.0, 0.9403)]:
        assert abs(SmoothTruncation(beta).bound - bound) < 5e-5
        assert math.isclose(
            SmoothTruncation(beta).bound, 2 * math.sqrt(2) / 3 * math.erf(math.sqrt(beta / 2)), rel_tol=1e-15
        )
    # near 0, E (u X)**3 = u**3 (1 + 3/beta)
    for beta in BETAS:
        u = np.geomspace(1e-12, 0.9, 50) * near(beta)[-1]
        assert np.abs(SmoothTruncation(beta)(u) - u * (1 - (1 + 3 / beta) * u * u / 6)).max() < 1e-13
        tiny = np.geomspace(1e-300, 1e-9, 50)
        assert np.abs(SmoothTruncation(beta)(tiny) / tiny - 1).max() < 1e-14


def test_phi():
    u = np.concatenate([np.linspace(-3, 3, 2001), SPECIAL])
    with mpmath.workdps(25):
        assert max(abs(float(a) - float(exact_phi(mpmath.mpf(v)))) for a, v in zip(phi(u), u, strict=True)) < 2e-16
    x = np.linspace(-30, 30, 4001)
    assert (phi(x) <= np.log1p(x + x * x / 2) + 1e-15).all()
    assert (phi(x) >= -np.log1p(-x + x * x / 2) - 1e-15).all()
    assert np.array_equal(SoftTruncation(2.0)(2 * x), 2 * phi(x))


@pytest.mark.filterwarnings("ignore:overflow encountered in multiply")
@pytest.mark.parametrize("bounded", MAPS, ids=repr)
def test_the_bound_holds_for_every_float(bounded):
    u = floats(1)
    values = bounded(bounded.scale * u)
    assert np.abs(values).max() <= bounded.bound
    assert np.abs(values).max() > 0.999999 * bounded.bound
    assert np.array_equal(values, -bounded(-bounded.scale * u))  # odd, and nothing is NaN
    grid = grid_for(bounded.bound)
    units = bounded.units(u * bounded.constants(grid).per_scale * bounded.scale, grid)
    assert np.array_equal(units, np.trunc(units))
    assert Fraction(np.abs(units).max()) * Fraction(grid) <= Fraction(bounded.bound)
    assert bounded(np.nan) == 0 and np.isnan(bounded([1.0, np.nan, 2.0])).sum() == 0
    assert math.copysign(1, bounded(-0.0)) == -1 and bounded(0.0) == 0


def test_the_bound_of_phi_where_it_is_attained():
    # the derivative vanishes at sqrt(2), so rounding decides which float has the largest value
    bits = np.array([ROOT2]).view(np.int64) + np.arange(-300_000, 10)
    assert phi(bits.view(np.float64)).max() <= PHI_BOUND
    for scale in np.random.default_rng(2).uniform(1e-3, 1e3, 200):
        bounded = SoftTruncation(scale)
        for grid in (grid_for(bounded.bound), 2.0**-20 * grid_for(scale)):
            corner = bounded.constants(grid).corner
            u = (np.array([corner]).view(np.int64) + np.arange(-200, 50)).view(np.float64)
            assert Fraction(bounded.units(u, grid).max()) * Fraction(grid) <= Fraction(bounded.bound)


@pytest.mark.filterwarnings("ignore:overflow encountered in multiply")
@pytest.mark.parametrize("bounded", MAPS, ids=repr)
def test_increasing(bounded):
    u = np.sort(np.abs(floats(3)))
    values = bounded(bounded.scale * u)
    assert np.diff(values).min() >= -2e-13 * bounded.scale  # pieces meet up to the errors on either side


def test_fused_multiply_add():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=20_000) * 2.0 ** rng.integers(-5, 32, 20_000), rng.uniform(-0.5, 0.5, 20_000)
    c = rng.normal(size=20_000) * 2.0 ** rng.integers(-40, 32, 20_000)
    c[::3] = -(a * b)[::3]  # cancellation down to the rounding error
    c[1::3] = np.rint(c[1::3] * 2.0**20) / 2.0**20 - (a * b)[1::3]
    got = fused_multiply_add(a, b, c)
    assert [exact_fma(*args) for args in zip(a, b, c, strict=True)] == got.tolist()
    assert (got != a * b + c).any()


def test_refuses():
    for beta in (0.0, -1.0, 1e-3, 101.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="beta"):
            SmoothTruncation(beta)
    for kind in (HardClip, SoftTruncation):
        for scale in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="scale"):
                kind(scale)
    assert isinstance(SmoothTruncation(2, 3), ScalarMap) and SmoothTruncation(2, 3) == SmoothTruncation(2.0, 3.0)

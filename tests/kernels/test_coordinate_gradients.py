"""Coordinate-wise bounded gradient sums: the integers of NumPy, bounds for any row, no trace of how rows are cut."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels.clip import kappa
from dpdist.kernels.coordinate_gradients import Residual, coordinate_gradient
from dpdist.kernels.gradients import DERIVATIVE_CAP
from dpdist.kernels.grid import grid_for
from dpdist.kernels.truncation import HardClip, SmoothTruncation, SoftTruncation
from dpdist.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
from dpdist.privacy.audit.sensitivity_fuzz import SensitivityViolation, adversarial_rows, sensitivity_fuzz
from dpdist.privacy.budget import Neighbours
from dpdist.queries.coordinate_gradient_sums import CoordinateGradientSum

MAPS = [HardClip(0.7), SoftTruncation(1.3), SmoothTruncation(9.2, 1.3), SmoothTruncation(1.0, 0.5)]
BOUNDED = [*MAPS, Residual(0.8, 1.5), Residual(1.0, 4.0, label_bound=1.0)]
LOSSES = [Logistic(), Squared(), Huber(0.7), SmoothedHinge(0.25)]
DIMENSIONS = [1, 2, 7, 8, 9, 50, 64, 65, 72, 131]


@dataclass(frozen=True)
class PlainSquared(Loss):
    """A user's loss: a derivative in NumPy, nothing compiled."""

    name: ClassVar[str] = "plain"
    labels: ClassVar[str] = "real"
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0

    def value(self, u, y):
        return Squared().value(u, y)

    def derivative(self, u, y):
        return Squared().derivative(u, y)


def data(n, d, seed, labels="signs", dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2.5, size=(n, d)) * np.exp(rng.normal(size=(n, 1)))
    y = np.sign(rng.normal(size=n)) if labels == "signs" else 3 * rng.standard_t(2.5, size=n)
    return X.astype(dtype), y, rng.normal(size=d + 1) / np.sqrt(d)


def with_bad_rows(X, y):
    """Every kind of row that does not take the fast path, among ordinary ones."""
    X, y = X.copy(), y.copy()
    huge, tiny = (3e38, 1e-45) if X.dtype == np.float32 else (1e308, 5e-324)
    X[3, 0], X[10, -1], X[11] = np.nan, np.inf, -np.inf
    X[20], X[21] = 0.0, -0.0
    X[30] = X[30] / np.abs(X[30]).max() * huge
    X[31], X[40] = -huge, tiny
    X[41] *= tiny * 1e8
    X[50, 0] = huge
    y[60], y[61], y[62] = np.nan, np.inf, 0.5
    return X, y


def by_eight(rows, w):
    """Sums of x * w and x * x in the kernel's order: eight lanes, then a tree."""
    d = rows.shape[1]
    padded = -(-d // 8) * 8
    x, weights = np.zeros((len(rows), padded)), np.zeros(padded)
    x[:, :d], weights[:d] = rows, w
    sums = []
    for factor in (weights, x):
        lanes = np.zeros((len(rows), 8))
        for j in range(0, padded, 8):
            lanes = lanes + x[:, j : j + 8] * (factor[j : j + 8] if factor.ndim == 1 else factor[:, j : j + 8])
        for width in (4, 2, 1):
            lanes = lanes[:, :width] + lanes[:, width : 2 * width]
        sums.append(lanes[:, 0])
    return sums


def scaled(x):
    """A row as ``2**e * z``: ``(2**e, z, norm of z)``, sums in the order of the entries."""
    e = math.frexp(np.abs(x).max())[1] - 1
    z = np.ldexp(x, -e)
    norm2 = 0.0
    for v in z:
        norm2 += v * v
    return math.ldexp(1.0, e), z, math.sqrt(norm2)


def compiled_derivative(loss, u, y):
    """The loss's compiled function: the exponential of other libraries differs in the last bit."""
    u, y = np.ascontiguousarray(u), np.ascontiguousarray(y)
    out, params = np.empty(len(u)), np.append(loss.params, 0.0)
    pointer = ctypes.POINTER(ctypes.c_double)
    block = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, pointer, ctypes.c_ssize_t)(loss.block_address())
    block(*(a.ctypes.data_as(pointer) for a in (u, y, params, out)), len(u))
    return out


@np.errstate(all="ignore")
def reference(X, y, w, loss, bounded, *, grid, row_norm=None, intercept=0.0):
    """The definition in NumPy, operation by operation: a matrix of units, one row for each row."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    d = X.shape[1]
    cap, constants = DERIVATIVE_CAP, bounded.constants(grid)
    null = ~np.isfinite(X).all(axis=1) | ~(np.isfinite(y) if loss.labels == "real" else np.abs(y) == 1)
    if isinstance(bounded, Residual):
        cap = bounded.residual_bound
        X, y = (
            np.clip(X, -bounded.feature_bound, bounded.feature_bound),
            np.clip(y, -bounded.label_bound, bounded.label_bound),
        )
        mapped = HardClip(bounded.bound)
    else:
        mapped = bounded
    limit = (math.inf if row_norm is None else row_norm) * (1 - kappa(d + 1))
    X, y = np.where(null[:, None], 0.0, X), np.where(null, 1.0, y)
    dots, norms2 = by_eight(X, w[:d])
    factor = np.fmin(limit / np.sqrt(norms2), 1.0)
    shift = intercept * w[d] if intercept > 0 else 0.0
    margin = dots * factor + shift
    X = X.copy()
    for i in np.flatnonzero(~((norms2 >= 2.0**-400) & (norms2 <= 2.0**400))):
        factor[i], margin[i] = 1.0, shift
        if np.abs(X[i]).max() > 0:
            scale, z, size = scaled(X[i])
            dot = 0.0
            for a, b in zip(z, w[:d], strict=True):
                dot += a * b
            margin[i] = dot * min(scale, limit / size) + shift
            X[i] = z * min(scale, limit / size)
    c = compiled_derivative(loss, margin, y) if loss.block_address() else loss.derivative(margin, y)
    c = np.clip(np.where(np.isfinite(c) & ~null, c, 0.0), -cap, cap)
    units = mapped.units((c * constants.per_scale * factor)[:, None] * X, grid)
    if intercept > 0:
        units = np.hstack([units, mapped.units(c * (intercept * constants.per_scale), grid)[:, None]])
    return units.astype(np.int64)


@pytest.mark.parametrize("bounded", BOUNDED, ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_integers_as_numpy(bounded, dtype):
    grid = grid_for(bounded.bound)
    for k, d in enumerate(DIMENSIONS):
        for loss in [LOSSES[k % 4], LOSSES[(k + 1) % 4], PlainSquared()]:
            X, y, w = data(150, d, 100 + k, loss.labels, dtype)
            X, y = with_bad_rows(X, y)
            for intercept, row_norm in [(0.0, None), (0.5, None), (0.0, 1.0), (1.0, 3.0)]:
                options = {"grid": grid, "row_norm": row_norm, "intercept": intercept}
                parameter = w if intercept > 0 else w[:-1]
                units = coordinate_gradient(X, y, parameter, loss, bounded, **options)
                expected = reference(X, y, parameter, loss, bounded, **options)
                assert np.array_equal(units, expected.sum(axis=0)), (d, loss, intercept, row_norm)
                assert np.abs(expected).max() > 1000


def test_agrees_with_the_formula():
    # the same without any care for floating point: l' x_j through the map
    X, y, w = data(500, 20, 1, "real")
    with np.errstate(over="ignore"):
        for bounded in MAPS:
            units = coordinate_gradient(X, y, w[:-1], Squared(), bounded, grid=grid_for(bounded.bound))
            exact = bounded((X @ w[:-1] - y)[:, None] * X)
            assert np.abs(units * grid_for(bounded.bound) - exact.sum(axis=0)).max() < 500 * 2**-31
        residual, shrink = BOUNDED[-2:]
        shrunk = np.clip(X, -0.8, 0.8)
        exact = shrunk * np.clip(shrunk @ w[:-1] - y, -1.5, 1.5)[:, None]
        units = coordinate_gradient(X, y, w[:-1], Squared(), residual, grid=grid_for(residual.bound))
        assert np.abs(units * grid_for(residual.bound) - exact.sum(axis=0)).max() < 500 * 2**-31
        shrunk = np.clip(X, -1, 1)
        small = w[:-1] / np.abs(w[:-1]).sum() * 3
        exact = shrunk * (shrunk @ small - np.clip(y, -1, 1))[:, None]  # |residual| <= 4 without being clipped
        units = coordinate_gradient(X, y, small, Squared(), shrink, grid=grid_for(shrink.bound))
        assert np.abs(units * grid_for(shrink.bound) - exact.sum(axis=0)).max() < 500 * 2**-31


@pytest.mark.parametrize("loss", [*LOSSES, PlainSquared()], ids=lambda loss: loss.name)
def test_one_row_never_exceeds_the_bound(loss):
    rng = np.random.default_rng(0)
    rows = [row for _, row in adversarial_rows(3, np.float64, rng)]
    largest = 0.0
    for bounded in BOUNDED:
        for scale in (1.0, 1e-30, 1e30):
            if isinstance(bounded, Residual):
                chosen = Residual(bounded.feature_bound * scale, bounded.residual_bound)
            else:
                chosen = type(bounded)(**{**vars(bounded), "scale": bounded.scale * scale})
            grid = grid_for(chosen.bound)
            for w in ([1.0, -2.0, 0.5, 1.0], [1e308, -1e308, 1e308, -1e308], [-3e155, 1e-300, 5e-324, 1.0]):
                for label in (1.0, -1.0, 1e308, np.nan, np.inf, 0.5, 5e-324):
                    for intercept in (0.0, 1e9):
                        X, y = np.array(rows), np.full(len(rows), label)
                        parameter = np.array(w if intercept else w[:3])
                        units = np.array([
                            coordinate_gradient(X[i : i + 1], y[i : i + 1], parameter, loss, chosen, grid=grid,
                                                intercept=intercept)
                            for i in rng.integers(len(X), size=6)
                        ])  # fmt: skip
                        size = Fraction(int(np.abs(units).max())) * Fraction(grid) / Fraction(chosen.bound)
                        assert size <= 1
                        largest = max(largest, float(size))
    assert largest > 0.999999


def test_what_overflows_counts_as_infinite():
    # l' = -y, and l' x_j overflows, or x_j is so large that its square does
    for bounded in MAPS:
        grid = grid_for(bounded.bound)
        X = np.array([[1e308, -1e308, 0.0, 1e-300], [1e200, -1e154, 1.0, 0.0]])
        units = [coordinate_gradient(X[i : i + 1], [-1e10], np.zeros(4), Squared(), bounded, grid=grid) for i in (0, 1)]
        full = int(bounded.units(np.inf, grid))
        assert units[0].tolist() == [full, -full, 0, 0]
        assert units[1].tolist() == [full, -full, full, 0] and full * grid > 0.99 * bounded.bound
    # a margin that is not finite: the derivative counts as 0, and the other rows are not touched
    X = np.array([[1e308, 1e308], [1.0, 2.0]])
    units = coordinate_gradient(X, [0.0, 0.0], np.array([10.0, 10.0]), Squared(), MAPS[0], grid=2.0**-32)
    alone = coordinate_gradient(X[1:], [0.0], np.array([10.0, 10.0]), Squared(), MAPS[0], grid=2.0**-32)
    assert np.array_equal(units, alone) and alone.all()


@pytest.mark.parametrize("bounded", [MAPS[1], MAPS[2], BOUNDED[-1]], ids=repr)
@pytest.mark.parametrize("loss", [Logistic(), PlainSquared()], ids=lambda loss: loss.name)
def test_any_split_of_the_rows_gives_the_same_bits(bounded, loss):
    n, d = 9000, 21
    X, y, w = data(n, d, 4, loss.labels)
    X, y = with_bad_rows(X, y)
    options = {"grid": grid_for(bounded.bound), "intercept": 1.0}
    whole = coordinate_gradient(X, y, w, loss, bounded, **options)
    for size in (7, 256, 5000):
        m = 400 if size == 7 else n
        cuts = [slice(i, min(i + size, m)) for i in range(0, m, size)]
        parts = [coordinate_gradient(X[cut], y[cut], w, loss, bounded, **options) for cut in cuts]
        expected = whole if m == n else coordinate_gradient(X[:m], y[:m], w, loss, bounded, **options)
        assert np.array_equal(sum(parts), expected)
    order = np.random.default_rng(5).permutation(n)
    assert np.array_equal(coordinate_gradient(X[order], y[order], w, loss, bounded, **options), whole)
    rows, rest = order[:1234], order[1234:]
    chosen = coordinate_gradient(X, y, w, loss, bounded, rows=rows, **options)
    assert np.array_equal(chosen, coordinate_gradient(X[rows], y[rows], w, loss, bounded, **options))
    assert np.array_equal(chosen + coordinate_gradient(X, y, w, loss, bounded, rows=rest, **options), whole)
    assert not coordinate_gradient(X, y, w, loss, bounded, rows=rows[:0], **options).any()


def test_threads_layouts_and_types():
    X, y, w = data(20_000, 50, 9)
    bounded = MAPS[2]
    options = {"grid": grid_for(bounded.bound)}
    whole = coordinate_gradient(X, y, w[:-1], Logistic(), bounded, **options)
    pieces = [slice(i, i + 2500) for i in range(0, 20_000, 2500)]
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda s: coordinate_gradient(X[s], y[s], w[:-1], Logistic(), bounded, **options), pieces)
        assert np.array_equal(sum(parts), whole)
    frozen = X.copy()
    frozen.flags.writeable = False
    for other in (frozen, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        assert np.array_equal(coordinate_gradient(other, y, w[:-1], Logistic(), bounded, **options), whole)
    half = X.astype(np.float16)
    for exact in (half.astype(np.float32), half.astype(np.float64)):
        expected = coordinate_gradient(exact, y, w[:-1], Logistic(), bounded, **options)
        assert np.array_equal(coordinate_gradient(half, y, w[:-1], Logistic(), bounded, **options), expected)


def test_totals_beyond_float64():
    n = 2**21 + 2**20 + 5
    X, y = np.ones((n, 1), dtype=np.float32), np.full(n, 3 * 2.0**-32 - 1)
    one = coordinate_gradient(X[:1], y[:1], np.zeros(1), Squared(), HardClip(1.0), grid=2.0**-32)
    assert int(one[0]) == 2**32 - 3 and (2**32 - 3) * n > 2**53
    assert int(coordinate_gradient(X, y, np.zeros(1), Squared(), HardClip(1.0), grid=2.0**-32)[0]) == int(one[0]) * n


def test_no_gradient_matrix_is_formed():
    X, y, w = data(100_000, 40, 10)
    for bounded in (MAPS[2], BOUNDED[-1]):
        call = {"grid": grid_for(bounded.bound), "intercept": 1.0}
        coordinate_gradient(X[:10], y[:10], w, Logistic(), bounded, **call)
        tracemalloc.start()
        coordinate_gradient(X, y, w, Logistic(), bounded, **call)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.1 * X.nbytes


ROWS = [(f"{kind}, y={label}", (row, label))
        for i, (kind, row) in enumerate(adversarial_rows(5, np.float64, np.random.default_rng(0)))
        for label in ((1.0, -1.0) if i % 2 else (-1.0, 3e9))]  # fmt: skip


@pytest.mark.parametrize("norm", ["inf", 2])
@pytest.mark.parametrize("bounded", BOUNDED, ids=repr)
def test_no_neighbours_exceed_the_declared_sensitivity(bounded, norm):
    query = CoordinateGradientSum(Squared(), bounded, n_features=5, intercept=0.5)
    w = np.array([1.0, -2.0, 0.5, 30.0, 0.0, 1.0])
    measured_in = math.inf if norm == "inf" else 2
    bounds = {r: Fraction(query.sensitivity(r, measured_in)) / Fraction(query.grid) for r in Neighbours}

    def units(rows):
        return query.summarise({"X": np.array([x for x, _ in rows]), "y": np.array([y for _, y in rows])}, w, None)

    worst = sensitivity_fuzz(units, ROWS, bounds, norm, np.random.default_rng(1), n_bases=1)
    assert worst[Neighbours.REPLACE_ONE] > (0.999 if norm == "inf" else 0.7)
    if norm == "inf" and bounded is MAPS[0]:  # a test that could fail
        tight = {r: b * Fraction(99, 100) for r, b in bounds.items()}
        with pytest.raises(SensitivityViolation):
            sensitivity_fuzz(units, ROWS, tight, norm, np.random.default_rng(1), n_bases=1)


def test_refuses_what_cannot_be_a_public_bound():
    X, y, w = data(10, 3, 11)
    w = w[:-1]
    for change in ({"row_norm": -1.0}, {"row_norm": np.nan}, {"grid": 0.3}, {"grid": 2.0**-34}, {"intercept": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            coordinate_gradient(X, y, w, Logistic(), HardClip(1.0), **{"grid": 2.0**-32, **change})
    for bad in ({"feature_bound": 0.0}, {"residual_bound": np.inf}, {"label_bound": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            Residual(**{"feature_bound": 1.0, "residual_bound": 1.0, **bad})
    with pytest.raises(DataError):
        coordinate_gradient(X, y[:-1], w, Logistic(), HardClip(1.0), grid=2.0**-32)
    with pytest.raises(ValueError, match="finite"):
        coordinate_gradient(X, y, np.array([1.0, np.nan, 0.0]), Logistic(), HardClip(1.0), grid=2.0**-32)
    with pytest.raises(IndexError):
        coordinate_gradient(X, y, w, Logistic(), HardClip(1.0), grid=2.0**-32, rows=np.array([10]))


OTHER_MACHINE = """
import numpy as np
from dpdist.kernels.coordinate_gradients import coordinate_gradient
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.truncation import SmoothTruncation
from dpdist.losses import Squared
rng = np.random.default_rng(0)
X, y, w = rng.standard_t(2.5, size=(3000, 21)), rng.normal(size=3000), rng.normal(size=21)
print(coordinate_gradient(X, y, w, Squared(), SmoothTruncation(9.2, 1.3), grid=2.0**-31).tolist())
for d in (3, 64, 65, 200, 1003):
    for dtype in (np.float64, np.float32):
        X, w = rng.standard_t(2.5, size=(203, d)).astype(dtype), rng.normal(size=d)
        print(glm_gradient(X, y[:203], w, Squared(), row_norm=9.0, clip_norm=3.0, grid=2.0**-30).tolist())
"""


@pytest.mark.slow
def test_machines_without_wide_vectors_get_the_same_integers(tmp_path):
    # without AVX-512 the coefficients are loaded one by one; without FMA the fused operation is a library call
    printed = []
    for i, features in enumerate([None, "+avx2,+fma", "+sse2"]):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / str(i))}
        if features:
            environment |= {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features}
        run = subprocess.run([sys.executable, "-c", OTHER_MACHINE], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        printed.append(run.stdout)
    assert printed[0] and printed == [printed[0]] * 3

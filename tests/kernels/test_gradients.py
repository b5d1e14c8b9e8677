"""The fused gradient kernel: bound for any row, exact and order-free sums, agreement with plain NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels import gradients
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
from tests.kernels.reference import glm_gradient_reference

LOSSES = [Logistic(), Squared(), Huber(0.7), SmoothedHinge(0.25)]
DIMENSIONS = [1, 2, 5, 7, 8, 9, 50, 54, 63, 64, 65, 72, 131, 500]


@dataclass(frozen=True)
class PlainLogistic(Loss):
    """A user's loss: a derivative in NumPy, nothing compiled."""

    name: ClassVar[str] = "plain"
    labels: ClassVar[str] = "signs"
    derivative_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25

    def value(self, u, y):
        return Logistic().value(u, y)

    def derivative(self, u, y):
        return Logistic().derivative(u, y)


def data(n, d, seed, labels="signs", dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1)))
    y = np.sign(rng.normal(size=n)) if labels == "signs" else 3 * rng.normal(size=n)
    return X.astype(dtype), y, rng.normal(size=d + 1) / np.sqrt(d)


def bounds(row_norm=1.0, clip_norm=1.0, intercept=0.0):
    return {"row_norm": row_norm, "clip_norm": clip_norm, "grid": grid_for(clip_norm), "intercept": intercept}


def parameters(w, options):
    return w if options["intercept"] > 0 else w[:-1]


def with_bad_rows(X, y):
    """Every kind of row that does not take the fast path, among ordinary ones."""
    X, y = X.copy(), y.copy()
    huge = 1e308 if X.dtype == np.float64 else 3e38
    tiny = 5e-324 if X.dtype == np.float64 else 1e-45
    X[3, 0] = np.nan
    X[10, -1] = np.inf
    X[11] = -np.inf
    X[20] = 0.0
    X[21] = -0.0
    X[30] = X[30] / np.abs(X[30]).max() * (huge / 2)
    X[31] = -huge
    X[40] = tiny
    X[41] *= tiny * 1e8
    X[50, 0] = huge
    y[60], y[61], y[62] = np.nan, np.inf, 0.5
    return X, y


ADVERSARIAL = [
    [np.nan, 1.0, 1.0],
    [np.inf, 1.0, 1.0],
    [-np.inf, np.inf, 0.0],
    [1e308, 1e308, 1e308],
    [-1e308, 1e308, 5e-324],
    [1.7976931348623157e308, -1.7976931348623157e308, 1.7976931348623157e308],
    [5e-324, 0.0, -5e-324],
    [2.2e-308, 1e-310, 5e-324],
    [1e-170, -1e-170, 1e-165],
    [1e-60, 1e-61, -1e-62],
    [0.0, 0.0, 0.0],
    [-0.0, 0.0, -0.0],
    [1.0, 0.0, 0.0],
    [0.6, 0.8, 0.0],
    [1 / 3, 2 / 3, 2 / 3],
    [1e200, 1.0, 1e-200],
    [2.0**200, 2.0**-200, 1.0],
    [3e38, -3e38, 3e38],
]


@pytest.mark.parametrize("loss", [*LOSSES, PlainLogistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_row_never_exceeds_the_bound(loss, dtype):
    # The exact norm of what one row adds, for adversarial rows, labels, parameters and bounds.
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        rows = np.array(ADVERSARIAL, dtype=np.float64).astype(dtype)
    # sigma and direction random as well: the rounding errors of norm and factor differ from row to row
    rows = np.concatenate([rows, rng.normal(size=(30, 3)).astype(dtype) * 10.0 ** rng.integers(-20, 20, (30, 1))])
    largest = 0.0
    for row_norm, clip_norm, intercept in [(1.0, 1.0, 0.0), (np.inf, 0.3, 0.0), (3.0, 1e-30, 3.0), (1e-9, 7.0, 1e9)]:
        options = bounds(row_norm, clip_norm, intercept)
        limit = Fraction(clip_norm) ** 2
        for w in ([1.0, -2.0, 0.5, 1.0], [1e308, -1e308, 1e308, -1e308], [0.0] * 4, [-3e155, 1e-300, 5e-324, 1.0]):
            w = parameters(np.array(w), options)
            for label in (1.0, -1.0, 1e308, -1e308, np.nan, np.inf, 0.5, 5e-324):
                for row in rows:
                    units = glm_gradient(row[None].astype(dtype), np.array([label]), w, loss, **options)
                    norm2 = sum(int(u) ** 2 for u in units) * Fraction(options["grid"]) ** 2
                    assert norm2 <= limit
                    largest = max(largest, float(norm2 / limit))
                    if not np.isfinite(row).all() or not np.isfinite(label):
                        assert not units.any()
                    if loss.labels == "signs" and abs(label) != 1:
                        assert not units.any()
    assert largest > 0.999  # the bound is reached, so the test could fail


def test_rounding_errors_do_not_exceed_the_bound():
    # Long rows that are clipped right at the bound: without the margin kappa some norms exceed it by an ulp or two.
    rng = np.random.default_rng(1)
    for d in (3, 50, 1000):
        X = rng.normal(size=(60, d)) * 100
        for i in range(60):
            units = glm_gradient(X[i : i + 1], np.ones(1), -X[i], Squared(), **bounds(np.inf, 1.0))
            assert sum(int(u) ** 2 for u in units) <= 2**64


def test_duplicated_and_flipped_rows_cancel_or_double():
    X, y, w = data(100, 9, 2)
    options = bounds()
    once = glm_gradient(X, y, w[:-1], Logistic(), **options)
    twice = glm_gradient(np.concatenate([X, X]), np.concatenate([y, y]), w[:-1], Logistic(), **options)
    assert np.array_equal(twice, 2 * once)
    # l'(-u, -y) = -l'(u, y): flipping row and label leaves the contribution, flipping the row at w = 0 negates it
    assert np.array_equal(glm_gradient(-X, -y, w[:-1], Logistic(), **options), once)
    at_zero = glm_gradient(X, y, np.zeros(9), Logistic(), **options)
    assert np.array_equal(glm_gradient(-X, y, np.zeros(9), Logistic(), **options), -at_zero)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_agrees_with_numpy(d, dtype):
    n = 150
    for k, loss in enumerate(LOSSES):
        X, y, w = data(n, d, 100 + k, loss.labels, dtype)
        X, y = with_bad_rows(X, y)
        for intercept, row_norm, clip_norm in [(0.0, 1.0, 0.4), (0.5, 2.0, 3.0), (1.0, np.inf, 1.0)]:
            options = bounds(row_norm, clip_norm, intercept)
            parameter = parameters(w, options)
            units = glm_gradient(X, y, parameter, loss, **options)
            reference = glm_gradient_reference(X, y, parameter, loss, **options)
            # one unit is 2**-32 of the bound: rounding can flip the truncation of a few values, not more
            assert np.abs(units - reference).max() <= 2 + n / 50, (loss, intercept, row_norm)
            assert np.abs(reference).max() > 1000


def test_exact_where_arithmetic_is_exact():
    rng = np.random.default_rng(3)
    for d in (1, 8, 13, 70):
        X = rng.integers(-8, 9, (200, d)) / 16.0
        y, w = rng.integers(-8, 9, 200) / 4.0, rng.integers(-4, 5, d + 1) / 8.0
        for loss in (Squared(), Huber(0.5)):
            for intercept in (0.0, 0.5):
                options = bounds(1e4, 1e6, intercept)
                parameter = parameters(w, options)
                z = np.hstack([X, np.full((200, 1), intercept)]) if intercept else X
                expected = np.trunc(loss.derivative(z @ parameter, y)[:, None] * z / options["grid"]).sum(axis=0)
                assert np.array_equal(glm_gradient(X, y, parameter, loss, **options), expected)


def test_truncates_toward_zero():
    # l'(0, y) = -y and x = 1: the contribution is -y, as a fraction of the grid
    grid = grid_for(1.0)
    for y in (0.1, 1 / 3, -0.7, 1e-9, 2.0**-33, 0.25, -0.123456789):
        units = glm_gradient(np.ones((1, 1)), np.array([y]), np.zeros(1), Squared(), **bounds(np.inf))
        exact = Fraction(-y) / Fraction(grid)
        assert int(units[0]) == int(exact)  # int() truncates toward zero


@pytest.mark.parametrize("loss", [Logistic(), Huber(), PlainLogistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("d", [3, 50, 500])
def test_any_split_of_the_rows_gives_the_same_bits(loss, d):
    n = 8000 if d < 500 else 1500
    X, y, w = data(n, d, 4, loss.labels)
    X, y = with_bad_rows(X, y)
    options = bounds(1.0, 0.5, 1.0)
    whole = glm_gradient(X, y, w, loss, **options)
    for size in (1, 7, 256, 1000, 7777):
        m = min(n, 400) if size == 1 else n
        cuts = [slice(i, min(i + size, m)) for i in range(0, m, size)]
        parts = [glm_gradient(X[cut], y[cut], w, loss, **options) for cut in cuts]
        expected = whole if m == n else glm_gradient(X[:m], y[:m], w, loss, **options)
        assert np.array_equal(sum(parts), expected)
    order = np.random.default_rng(5).permutation(n)
    assert np.array_equal(glm_gradient(X[order], y[order], w, loss, **options), whole)


@pytest.mark.parametrize("loss", [Logistic(), PlainLogistic()], ids=lambda loss: loss.name)
def test_chosen_rows(loss):
    X, y, w = data(5000, 21, 6)
    X, y = with_bad_rows(X, y)
    options = bounds(1.0, 0.5, 1.0)
    rows = np.random.default_rng(7).permutation(5000)[:1234]
    chosen = glm_gradient(X, y, w, loss, rows=rows, **options)
    assert np.array_equal(chosen, glm_gradient(X[rows], y[rows], w, loss, **options))
    rest = np.setdiff1d(np.arange(5000), rows)
    everything = glm_gradient(X, y, w, loss, **options)
    assert np.array_equal(chosen + glm_gradient(X, y, w, loss, rows=rest, **options), everything)
    assert not glm_gradient(X, y, w, loss, rows=np.empty(0, dtype=np.int64), **options).any()
    with pytest.raises(IndexError):
        glm_gradient(X, y, w, loss, rows=np.array([5000]), **options)


def test_a_loss_without_compiled_code_is_the_same_function():
    X, y, w = data(9000, 12, 8)
    X, y = with_bad_rows(X, y)
    options = bounds(1.0, 0.5, 1.0)
    assert PlainLogistic().block_address() == 0
    compiled, plain = (glm_gradient(X, y, w, loss, **options) for loss in (Logistic(), PlainLogistic()))
    assert np.abs(compiled - plain).max() <= 9000  # exp differs in its last bit, so a unit may flip here and there
    assert np.abs(compiled).max() > 2**36


def test_totals_beyond_float64():
    # Every row adds the full bound to one coordinate: 2**32 units. Beyond 2**21 rows float64 alone would round.
    n = 2**21 + 2**20 + 5
    X, y = np.ones((n, 1), dtype=np.float32), np.full(n, 3 * 2.0**-32 - 1)
    options = bounds(np.inf, 1.0)
    one = glm_gradient(X[:1], y[:1], np.zeros(1), Squared(), **options)
    assert int(one[0]) == 2**32 - 3 and (2**32 - 3) * n > 2**53
    assert int(glm_gradient(X, y, np.zeros(1), Squared(), **options)[0]) == int(one[0]) * n


def test_threads_give_the_same_bits():
    X, y, w = data(40_000, 50, 9)
    options = bounds(1.0, 0.5, 1.0)
    whole = glm_gradient(X, y, w, Logistic(), **options)
    pieces = [slice(i, i + 2500) for i in range(0, 40_000, 2500)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            parts = list(pool.map(lambda s: glm_gradient(X[s], y[s], w, Logistic(), **options), pieces))
            assert np.array_equal(sum(parts), whole)


def test_layouts_and_read_only_arrays():
    X, y, w = data(300, 10, 10)
    options = bounds()
    expected = glm_gradient(X, y, w[:-1], Logistic(), **options)
    frozen, labels = X.copy(), y.copy()
    frozen.flags.writeable = labels.flags.writeable = False
    misaligned = np.frombuffer(b"\0" + X.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(X.shape)
    n_compiled = len(gradients._fused.signatures)
    for other in (frozen, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], misaligned):
        assert np.array_equal(glm_gradient(other, labels, w[:-1], Logistic(), **options), expected)
    assert len(gradients._fused.signatures) == n_compiled
    assert not glm_gradient(X[:0], y[:0], w[:-1], Logistic(), **options).any()
    integers = np.array([[1, 2], [3, 4]])
    assert glm_gradient(integers, [1, -1], np.zeros(2), Logistic(), **options).any()


def test_refuses_what_cannot_be_a_public_bound():
    X, y, w = data(10, 3, 11)
    for change in ({"clip_norm": 0.0}, {"clip_norm": np.inf}, {"clip_norm": np.nan}, {"row_norm": -1.0},
                   {"grid": 0.3}, {"grid": 2.0**-33}, {"intercept": -1.0}):  # fmt: skip
        with pytest.raises(ValueError, match="must be"):
            glm_gradient(X, y, w[:-1], Logistic(), **{**bounds(), **change})
    with pytest.raises(ValueError, match="finite"):
        glm_gradient(X, y, np.array([1.0, np.nan, 0.0]), Logistic(), **bounds())
    with pytest.raises(DataError):
        glm_gradient(X, y[:-1], w[:-1], Logistic(), **bounds())
    with pytest.raises(DataError):
        glm_gradient(X[:, :0], y, w[:0], Logistic(), **bounds())


def test_a_second_process_finds_the_compiled_code(tmp_path):
    code = (
        "import numpy as np\n"
        "from dpdist.kernels import gradients as g\n"
        "from dpdist.losses import by_name\n"
        "for name in ('logistic', 'huber'):\n"
        "    g.glm_gradient(np.ones((2, 2)), np.ones(2), np.zeros(2), by_name(name),"
        " row_norm=1.0, clip_norm=1.0, grid=2.0**-32)\n"
        "print(sum(g._fused.stats.cache_hits.values()), len(g._fused.signatures))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
            for _ in range(2)]  # fmt: skip
    assert [run.stdout.split() for run in runs] == [["0", "1"], ["1", "1"]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [0.0, 0.6])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_weighed_rows_keep_their_margins_and_count_less(loss, intercept, dtype):
    """The sum is the gradient of ``sum q l(<x, w>, y)``, ``q = min(1, row_norm / |x|)^2``."""
    X, y, w = data(400, 7, 2, loss.labels, dtype)
    X[0], X[1], X[2, 0], X[3] = 0.0, 1e-250, np.nan, 1e30
    options = bounds(0.8, 50.0, intercept)
    w = parameters(w, options)
    found = glm_gradient(X, y, w, loss, **options, weighed=True) * options["grid"]
    good = np.isfinite(X).all(axis=1)
    Z = np.column_stack([X[good].astype(float), np.full(good.sum(), intercept)]) if intercept else X[good].astype(float)
    lengths = np.linalg.norm(X[good].astype(float), axis=1)
    q = np.minimum(1.0, 0.8 / np.maximum(lengths, 1e-300)) ** 2
    terms = (q * loss.derivative(Z @ w, y[good]))[:, None] * Z
    inside = np.linalg.norm(terms, axis=1) < 49.0
    terms[~inside] *= (50.0 / np.linalg.norm(terms[~inside], axis=1))[:, None]
    np.testing.assert_allclose(found, terms.sum(axis=0), rtol=1e-6 if dtype == np.float32 else 1e-9, atol=1e-5)
    short = np.delete(X, 3, axis=0) * 1e-3
    y = np.delete(y, 3)
    plain = glm_gradient(short, y, w, loss, **options)
    assert np.abs(plain - glm_gradient(short, y, w, loss, **options, weighed=True)).max() <= 400


def test_weighed_rows_take_no_shift():
    X, y, w = data(5, 3, 0)
    with pytest.raises(ValueError, match="no shift"):
        glm_gradient(X, y, w[:-1], Logistic(), **bounds(), shift=np.ones(3), weighed=True)

"""The pass over blocks of rows: which rows a step sees, when totals are moved, rare rows, and losses in NumPy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numba
import numpy as np
import pytest

from dpdist.errors import DataError
from dpdist.kernels import block_pass
from dpdist.kernels.block_pass import aligned, padded, rows_of, scale_row
from dpdist.kernels.block_steps import DERIVATIVE, LABEL, MARGIN, MOST_ROWS, NORM2, NORM2_HIGH, NORM2_LOW, UNITS
from dpdist.losses import Logistic, Loss, Squared


@dataclass(frozen=True)
class Plain(Loss):
    """A user's loss: what it is asked is kept."""

    name: ClassVar[str] = "plain"
    labels: ClassVar[str] = "real"
    derivative_bound: ClassVar[float] = np.inf
    curvature_bound: ClassVar[float] = 1.0
    sizes: ClassVar[list[int]] = []
    fails_at: ClassVar[int] = 0

    def value(self, u, y):
        return (u - y) ** 2 / 2

    def derivative(self, u, y):
        self.sizes.append(len(u))
        if len(self.sizes) == self.fails_at:
            raise KeyError("no derivative")
        return u - y

    def second_derivative(self, u, y):
        return np.ones(len(u))


class Seen(NamedTuple):
    """What a step of a test writes down."""

    rows: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    at: np.ndarray


@numba.njit
def look(rows, start, n, ahead, seen, flushed):
    """Adds the number of rows to the totals."""
    seen.starts[seen.at[0]], seen.sizes[seen.at[0]] = start, n
    seen.at[0] += 1
    for k in range(n):
        seen.rows[start + k] = rows.places[k]
    rows.totals[0] += n


@numba.njit
def move(totals, flushed):
    flushed[int(flushed[0]) + 1] = totals[0]
    flushed[0] += 1
    totals[:] = 0.0


@numba.njit
def look_at_blocks(rows, seen, most, flushed):
    block_pass.each_block(rows, look, seen, move, most, flushed)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 23, 24, 25, 240, 241])
@pytest.mark.parametrize("gather", [False, True])
def test_every_row_is_in_one_block_and_totals_are_moved_in_time(n, gather):
    rng = np.random.default_rng(n)
    X, chosen = np.zeros((300 if gather else n, 50)), rng.integers(0, 300, n) if gather else None
    with rows_of(X, np.zeros(len(X)), np.zeros(50), Logistic(), row_norm=1.0, intercept=0.0, chosen=chosen) as rows:
        assert rows.block == 24 and rows.block * X[:1].nbytes <= block_pass.BLOCK_BYTES
        for most in (24, 50, 10**6):
            seen = Seen(*(np.full(300, -1) for _ in range(3)), np.zeros(1, dtype=np.int64))
            flushed = np.zeros(300)
            look_at_blocks(rows, seen, most, flushed)
            starts = list(range(0, n, 24))
            assert seen.starts[: seen.at[0]].tolist() == starts
            assert seen.sizes[: seen.at[0]].tolist() == [min(24, n - start) for start in starts]
            assert seen.rows[:n].tolist() == (chosen.tolist() if gather else list(range(n)))
            moved = [0]
            for start in starts:
                size = min(24, n - start)
                moved = [*moved, size] if moved[-1] + size > most else [*moved[:-1], moved[-1] + size]
            assert flushed[1 : 1 + int(flushed[0])].tolist() == moved and max(moved) <= most


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scaled_rows_are_exact(dtype):
    tiny = np.nextafter(dtype(0), dtype(1))
    rows = [[0.0, -0.0, 0.0], [tiny, 0.0, -tiny], [np.finfo(dtype).max, -1.0, 0.5], [1.0, 2.0, 3.0], [-0.3, 1e-30, 0]]
    rows += [[np.nan, 1.0, 0.0], [np.inf, 0.0, 1.0], [1.0, 2.0, -np.inf]]
    for row in rows:
        X, z = np.array([[9.0] * 3, row], dtype=dtype), np.full(3, np.nan)
        scale, size = scale_row(X, 1, z)
        if not np.isfinite(row).all():
            assert (scale, size) == (-1.0, 0.0)
        elif not any(row):
            assert (scale, size) == (0.0, 0.0) and not z.any()
        else:
            assert math.frexp(scale)[0] == 0.5 and 1 <= np.abs(z).max() < 2
            exact = [Fraction(float(x)) / Fraction(scale) for x in X[1]]
            assert all(abs(Fraction(got) - want) <= Fraction(5e-324) for got, want in zip(z, exact, strict=True))
            assert abs(size**2 - float(sum(x * x for x in exact))) < 1e-14


@numba.njit
def differentiate(rows, n):
    for k in range(n):
        rows.places[k] = n - 1 - k
    return block_pass.differentiate(rows, rows.X, rows.y, rows.weights, n, 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", [Squared(), Plain(), Logistic()], ids=lambda loss: loss.name)
def test_margins_and_derivatives_of_rows_of_every_size(dtype, loss):
    """Against fractions: the row, scaled to norm 2 where it is longer, times the parameter, plus the constant."""
    rng = np.random.default_rng(3)
    top = 37 if dtype == np.float32 else 150
    X = rng.normal(size=(24, 9)) * 10.0 ** np.linspace(-top, top, 24)[:, None]
    X[3], X[4, 2], X[5, 8], X[6] = 0.0, np.nan, -np.inf, np.finfo(dtype).tiny / 16
    y, w, X = rng.choice([-1.0, 1.0, 0.5, np.nan], 24), rng.normal(size=10), X.astype(dtype)
    with rows_of(X, y, w, loss, row_norm=2.0, intercept=0.5, chosen=None) as rows:
        work = rows.work
        assert differentiate(rows, 24) == (not (work[NORM2 : NORM2 + 24] >= NORM2_LOW).all())
        for k, i in enumerate(reversed(range(24))):
            known = np.isfinite(X[i]).all() and (loss.labels == "real" or abs(y[i]) == 1)
            assert work[LABEL + k] == y[i] if known and not np.isnan(y[i]) else np.isnan(work[LABEL + k])
            if not known:
                continue
            row = [Fraction(float(x)) for x in X[i]]
            exact = sum((x * Fraction(float(v)) for x, v in zip(row, w[:9], strict=True)), Fraction(0))
            biggest = max(abs(x) for x in row)
            norm = float(biggest) * math.hypot(*(float(x / biggest) for x in row)) if biggest else 0.0
            margin = float(exact * Fraction(min(1.0, 2.0 / norm) if norm else 1.0)) + 0.5 * w[9]
            assert abs(work[MARGIN + k] - margin) < 1e-11
            slope = margin - y[i] if loss.name == "plain" else float(loss.derivative(margin, y[i]))
            assert work[DERIVATIVE + k] == pytest.approx(slope, abs=1e-11, nan_ok=True)


class Aside(NamedTuple):
    """Which rows were handed over, and how."""

    c: np.ndarray
    row: np.ndarray
    at: np.ndarray


@numba.njit
def note(rows, c, scale, size, aside):
    aside.c[aside.at[0]] = c
    for j in range(rows.z.size):
        aside.row[aside.at[0], j] = scale * rows.z[j] if size > 0.0 else 0.0
    aside.at[0] += 1


@numba.njit
def set_aside(rows, n, aside):
    return block_pass.set_aside(rows, rows.X, n, note, aside)


def test_rare_rows_are_handed_over_and_the_others_close_up():
    X = np.ones((12, 2))
    X[[0, 4, 5, 11]] = [[0.0, 0.0], [3e200, 4e200], [np.nan, 1.0], [3e-200, -4e-200]]
    for n in range(13):
        with rows_of(X, np.ones(12), np.zeros(2), Squared(), row_norm=1.0, intercept=0.0, chosen=None) as rows:
            rows.places[:n] = np.arange(n)
            norms2 = np.array([0.0, 2, 2, 2, np.inf, np.nan, NORM2_LOW, NORM2_HIGH, 2, 2, 2, 0.0])
            rows.work[NORM2 : NORM2 + n] = norms2[:n]
            rows.work[UNITS : UNITS + n] = np.arange(n) * 10.0
            rows.work[DERIVATIVE : DERIVATIVE + n] = 1.0 + np.arange(n)
            aside = Aside(np.zeros(12), np.zeros((12, 2)), np.zeros(1, dtype=np.int64))
            kept = set_aside(rows, n, aside)
            usual = [k for k in range(n) if k not in (0, 4, 5, 11)]
            assert kept == len(usual) and rows.places[:kept].tolist() == usual
            assert rows.work[UNITS : UNITS + kept].tolist() == [10.0 * k for k in usual]
            rare = [k for k in (0, 4, 11) if k < n]  # a row that is not finite adds nothing
            assert aside.c[: aside.at[0]].tolist() == [1.0 + k for k in rare]
            bounded = {0: [0.0, 0.0], 4: [0.6, 0.8], 11: [3e-200, -4e-200]}
            for got, k in zip(aside.row, rare, strict=False):
                assert got == pytest.approx(bounded[k], rel=1e-11, abs=0)


@numba.njit
def look_at_derivatives(rows, start, n, ahead, found, result):
    block_pass.differentiate(rows, rows.X, rows.y, rows.weights, n, ahead)
    for k in range(n):
        found[start + k] = rows.work[DERIVATIVE + k]


@numba.njit
def nothing(totals, result):
    pass


@numba.njit
def differentiate_all(rows, found):
    block_pass.each_block(rows, look_at_derivatives, found, nothing, 10**9, found)


def test_a_loss_in_numpy_is_asked_for_long_blocks_and_may_fail(monkeypatch):
    n = 2 * MOST_ROWS + 5
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(n, 3)), rng.normal(size=n), rng.normal(size=3)
    monkeypatch.setattr(Plain, "sizes", [])
    found, compiled = np.empty(n), np.empty(n)
    with rows_of(X, y, w, Plain(), row_norm=np.inf, intercept=0.0, chosen=None) as rows:
        differentiate_all(rows, found)
    assert Plain.sizes == [MOST_ROWS, MOST_ROWS, 5]
    with rows_of(X, y, w, Squared(), row_norm=np.inf, intercept=0.0, chosen=None) as rows:
        differentiate_all(rows, compiled)
    assert np.array_equal(found, compiled)
    monkeypatch.setattr(Plain, "fails_at", 5)
    failing = rows_of(X, y, w, Plain(), row_norm=1.0, intercept=0.0, chosen=None)
    with pytest.raises(KeyError, match="no derivative"), failing as rows:
        differentiate_all(rows, found)
    assert len(Plain.sizes) == 5  # and it is not asked again
    monkeypatch.setattr(Plain, "sizes", [])
    with rows_of(X, y, w, Plain(), row_norm=1.0, intercept=0.0, chosen=None, second=True, most=100) as rows:
        differentiate_all(rows, found)
    assert (found == 1.0).all() and rows.block == 100 and not Plain.sizes


def test_scratch_starts_on_a_cache_line():
    for size in (1, 8, 1000):
        array = aligned(size)
        assert array.shape == (size,) and array.ctypes.data % 128 == 0 and not array.any()
    assert padded([1.0, 2.0, 3.0], 2, 0.5, "w", np.zeros(9)).tolist() == [1.0, 2.0, 0, 0, 0, 0, 0, 0, 3.0]
    assert padded([1.0, 2.0], 2, 0.0, "w", np.zeros(9)).tolist() == [1.0, 2.0, 0, 0, 0, 0, 0, 0, 0.0]


@pytest.mark.parametrize("loss", [Squared(), Plain()])
def test_the_scratch_of_a_pass_is_one_allocation_and_no_array_has_a_cache_line_of_another(loss):
    """Partitions can be small: with an allocation for each array a round on 200 rows each took a fifth longer."""
    for d in (1, 8, 50):
        with rows_of(np.ones((4, d)), np.ones(4), np.ones(d), loss, row_norm=1.0, intercept=0.0, chosen=None) as rows:
            arrays = [rows.weights, rows.totals, rows.z, rows.places, rows.work]
            assert all(array.base is rows.work.base for array in arrays) and not rows.work.any()
            lines = [(array.ctypes.data // 128, (array.ctypes.data + array.nbytes - 1) // 128) for array in arrays]
            assert all(array.ctypes.data % 128 == 0 for array in arrays)
            assert all(last < first for (_, last), (first, _) in itertools.pairwise(sorted(lines)))


def test_refuses():
    def begin(**change):
        given = {"X": np.ones((4, 2)), "y": np.ones(4), "w": np.zeros(2), "intercept": 0.0, "chosen": None, **change}
        with rows_of(loss=Squared(), row_norm=1.0, **given):
            pass

    begin()
    for change in ({"X": np.ones(4)}, {"X": np.ones((4, 0)), "w": []}, {"y": np.ones(3)}):
        with pytest.raises(DataError):
            begin(**change)
    for change in ({"w": np.zeros(3)}, {"w": [0.0, np.inf]}, {"intercept": -1.0}, {"intercept": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            begin(**change)
    for chosen in ([4], [-1], [0, 2**62]):
        with pytest.raises(IndexError):
            begin(chosen=np.array(chosen))

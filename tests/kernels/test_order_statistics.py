"""Order statistics: against sorting, in any grouping, and bounds that are smooth in exact arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpdist.kernels import order_statistics as o
from dpdist.kernels.grid import grid_for
from dpdist.losses import Logistic, Squared

BOUND = 1000


def columns(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(rng.standard_t(2, (n, d)) * 100, -BOUND, BOUND).astype(np.int64)


@pytest.mark.parametrize(("n", "d", "m"), [(1, 3, 0), (7, 2, 3), (500, 4, 60), (60_000, 3, 5), (9000, 20, 1700)])
def test_a_summary_is_what_sorting_gives(n, d, m):
    units = columns(n, d, n)
    ordered = np.sort(units, axis=0).T
    summary = o.extremes(units, m, BOUND)
    kept = min(m + 1, n)
    assert np.array_equal(summary[:, 0], units.sum(axis=0))
    assert np.array_equal(summary[:, 1 : 1 + kept], ordered[:, :kept])
    assert np.array_equal(summary[:, summary.shape[1] - kept :], ordered[:, n - kept :])
    if n > 2 * m:
        assert np.array_equal(o.trimmed_sums(summary), ordered[:, m : n - m].sum(axis=1))


@pytest.mark.parametrize("wide", [False, True])
def test_summaries_merge_in_any_order_and_grouping(wide):
    units, m = columns(4000, 3, 1), 40
    whole = o.extremes(units, m, BOUND)
    rng = np.random.default_rng(2)
    for pieces in (2, 7, 400):
        borders = np.sort(rng.choice(4000, pieces - 1, replace=False))
        parts = [o.extremes(part, m, BOUND) for part in np.split(units, borders)]
        rng.shuffle(parts)
        left = None
        for part in parts:
            left = o.merge(left, part, wide)
        middle = pieces // 2
        first, second = None, None
        for part in parts[:middle]:
            first = o.merge(first, part, wide)
        for part in parts[middle:]:
            second = o.merge(second, part, wide)
        assert np.array_equal(left, whole) and np.array_equal(o.merge(first, second, wide), whole)
        assert (left.dtype == object) == wide


def smooth_bound_twin(entries: list[int], m: int, t: float) -> Fraction:
    """The definition, entry by entry."""
    x = sorted(entries)
    n = len(x)
    gaps = [x[n - m + k] - x[m - 1 - k] for k in range(m)] + [2 * BOUND]
    return max(Fraction(w) * h for w, h in zip(o.weights(t, m), gaps, strict=True)) / 2**o.WEIGHT_BITS


@pytest.mark.parametrize(("n", "m", "t"), [(1, 0, 0.1), (3, 1, 0.5), (40, 19, 0.1), (400, 30, 0.02)])
def test_smooth_bounds_are_what_their_definition_says(n, m, t):
    units = columns(n, 5, n)
    bounds = o.smooth_bounds(o.extremes(units, m, BOUND), t, BOUND)
    assert [Fraction(int(b), 2**o.WEIGHT_BITS) for b in bounds] == [
        smooth_bound_twin(column.tolist(), m, t) for column in units.T
    ]


@pytest.mark.parametrize("t", [1e-4, 0.0123, 0.3, 5.0])
def test_the_weights_fall_no_faster_than_the_exponential(t):
    w = o.weights(t, 500)
    with mpmath.workprec(200):
        growth = mpmath.exp(mpmath.mpf(t))
        assert w[0] == 2**o.WEIGHT_BITS and all(a <= growth * b for a, b in itertools.pairwise(w))
        # and hardly slower, down to the last unit
        assert all(b <= a / growth * (1 + mpmath.mpf(2) ** -45) + 1 for a, b in itertools.pairwise(w))


def test_rows_that_are_not_finite_count_as_zeros():
    X = np.array([[5.0, 1.0], [np.nan, -9.0], [3.0, np.inf], [-1e300, 2.0]])
    grid = grid_for(8.0)
    summary = o.column_extremes(X, 3, 8.0, grid) * grid
    assert summary[0].tolist() == [-3.0, -8.0, 0.0, 0.0, 5.0, -8.0, 0.0, 0.0, 5.0]
    assert summary[1].tolist() == [3.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_gradients_are_those_of_the_loss(loss, intercept):
    rng = np.random.default_rng(3)
    X, w = rng.standard_t(3, (3000, 4)), rng.normal(size=4 + (intercept > 0))
    y = rng.choice([-1.0, 1.0], 3000)
    X[5, 2], X[6, 0], y[7], bad = np.nan, np.inf, 7.0 if loss.labels == "signs" else np.nan, [5, 6, 7]
    limit = 4.0
    grid = grid_for(limit)
    rows = np.column_stack([X, np.full(3000, intercept)]) if intercept else X
    expected = loss.derivative(np.nan_to_num(rows) @ w, y)[:, None] * rows
    expected[bad] = 0.0
    expected = np.clip(expected, -limit, limit)
    arguments = {"m": 30, "bound": limit, "grid": grid, "intercept": intercept}
    summary = o.gradient_extremes(X, y, w, loss, **arguments)
    ordered = np.sort(expected, axis=0).T
    assert np.allclose(summary[:, 0] * grid, expected.sum(axis=0), atol=1e-5)
    assert np.allclose(summary[:, 1:32] * grid, ordered[:, :31])
    assert np.allclose(summary[:, 32:] * grid, ordered[:, -31:])
    parts = None
    for a in range(0, 3000, 701):  # the same bits whatever the blocks
        parts = o.merge(parts, o.gradient_extremes(X[a : a + 701], y[a : a + 701], w, loss, **arguments), False)
    assert np.array_equal(parts, summary)

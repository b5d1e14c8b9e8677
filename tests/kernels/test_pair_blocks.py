"""All pairs inside blocks, against the double loop, and the norm that a row can move them by."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from dpdist.kernels.fine_gradients import joined
from dpdist.kernels.moments import unpack_symmetric
from dpdist.kernels.pair_blocks import LARGEST_NEGATIVE, block_grid, block_pairs

rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 4)) / 3, rng.choice([0.0, 1.0, 2.0], 60)
ROOT = rng.normal(size=(4, 4)) / 4


def released(X, y, root=ROOT, size=20):
    return unpack_symmetric((joined(block_pairs(X, y, root, 1.0, size)) * block_grid(1.0)).astype(float))


def double_loop(X, y, root=ROOT, size=20):
    X = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    total = np.zeros((X.shape[1],) * 2)
    for first in range(0, len(X) // size * size, size):
        for i in range(first, first + size):
            for j in range(first, i):
                apart, sign = X[i] - X[j], 1 if y[i] == y[j] else -1
                near = apart @ root @ root.T @ apart
                total += sign * expit(sign * (near - 1)) * np.outer(apart, apart)
    return total


def test_the_sum_is_that_of_the_double_loop_and_rows_behind_the_last_block_do_not_count():
    for n in (60, 59):
        exact = double_loop(X[:n], y[:n])
        assert np.linalg.norm(released(X[:n], y[:n]) - exact) < 1e-3 * np.linalg.norm(exact)


def test_blocks_add_up_and_bad_rows_add_nothing():
    whole = joined(block_pairs(X, y, ROOT, 1.0, 20))
    parts = [joined(block_pairs(X[a : a + 20], y[a : a + 20], ROOT, 1.0, 20)) for a in (40, 0, 20)]
    assert np.array_equal(whole, sum(parts))
    rows, labels = X.copy(), y.copy()
    rows[3, 1], labels[7] = np.inf, np.nan
    others = np.delete(np.arange(20), [3, 7])
    kept = joined(block_pairs(X[others], y[others], ROOT, 1.0, 18))
    assert np.array_equal(joined(block_pairs(rows[:20], labels[:20], ROOT, 1.0, 20)), kept)


def test_extreme_rows_and_metrics_are_finite():
    for scale in (1e-300, 1e200):
        for root in (ROOT * scale, ROOT):
            assert np.isfinite(released(X * scale, y, root)).all()


def test_a_row_that_changes_its_class_moves_its_pairs_by_almost_the_bound():
    """Labels: c from s(m - 1) to -s(1 - m), best where the first is far and the second near: never above the bound."""
    size, worst = 30, 0.0
    rest = np.tile([1.0, 0.0], (size - 1, 1))
    labels = np.append(0.0, np.ones(size - 1))
    for scale in (0.0, 0.5, 2.0, 10.0):
        root = np.diag([scale, 0.0])
        for one, other in ((np.array([-1.0, 0.0]), np.array([-1.0, 0.0])), (np.array([-1.0, 0]), np.array([0.9, 0.4]))):
            first = released(np.vstack([one, rest]), np.append(1.0, labels[1:]), root, size)
            second = released(np.vstack([other, rest]), labels, root, size)
            worst = max(worst, np.linalg.norm(first - second) / ((size - 1) * 4))
    assert 0.95 < worst <= 1 + LARGEST_NEGATIVE


def test_a_row_moves_its_pairs_by_the_whole_bound_where_the_metric_sees_hardly_any_of_it():
    """Far for a metric that is blind to nearly all of the row, and near for it as a row of the other class."""
    size, tilt = 30, 1e-2
    rest, root = np.tile([1.0, 0.0], (size - 1, 1)), np.diag([0.0, 1e3])
    far = [-np.sqrt(1 - tilt**2), tilt]
    first = released(np.vstack([far, rest]), np.zeros(size), root, size)
    second = released(np.vstack([[-1.0, 0.0], rest]), np.append(1.0, np.zeros(size - 1)), root, size)
    moved = np.linalg.norm(first - second) / ((size - 1) * 4)
    assert 0.999 * (1 + LARGEST_NEGATIVE) < moved <= 1 + LARGEST_NEGATIVE
